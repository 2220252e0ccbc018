/* spec/record and spec/controller: rates follow what is seen; names are refused by name. */
#include "support/support.h"

#include "base/random.h"
#include "spec/controller.h"
#include "spec/record.h"

#include <string.h>

static void a_record_begins_with_priors_and_follows_the_text(void **state) {
    (void)state;
    record own, shared;
    record_clear(&own);
    record_begin(&shared);
    draft draft = {.kind = DRAFT_SUFFIX, .match = 3, .count = 4};
    record_rate(&own, &shared, &draft);
    float first = draft.survival[0];
    assert_true(first > .1f && first < .9f);
    for (uint32_t i = 1; i < 4; i++)
        assert_true(draft.survival[i] <= draft.survival[i - 1]);
    for (int i = 0; i < 50; i++)
        for (uint32_t place = 0; place < 4; place++)
            record_note(&own, &draft, place, true);
    record_rate(&own, &shared, &draft);
    assert_true(draft.survival[0] > .85f && draft.survival[3] > .5f);
    for (int i = 0; i < 50; i++)
        record_note(&own, &draft, 0, false);
    record_rate(&own, &shared, &draft);
    assert_true(draft.survival[0] < .15f);
    /* Another class and another source know nothing of it. */
    draft.match = 5;
    record_rate(&own, &shared, &draft);
    assert_true(draft.survival[0] > first);
    float worth = draft_worth(&draft);
    draft.count = 0;
    assert_true(worth > 0 && draft_worth(&draft) == 0);
}

static void rates_stay_probabilities(void **state) {
    (void)state;
    record own, shared;
    record_clear(&own);
    record_begin(&shared);
    for (uint64_t i = 0; i < 20000; i++) {
        random_block r = random_at(1, 2, i);
        draft_kind kind = (draft_kind)(r.words[0] % DRAFT_KINDS);
        draft draft = {.kind = kind,
                       .match = r.words[1] % 40,
                       .vote = r.words[0] / 64 % SUFFIX_VOTES,
                       .count = DRAFTS_MAX};
        record_note(&own, &draft, r.words[2] % 20, r.words[3] % 3 > 0);
        record_note(&shared, &draft, r.words[2] % 20, r.words[3] % 3 > 0);
        record_rate(&own, &shared, &draft);
        for (uint32_t j = 0; j < draft.count; j++)
            assert_true(draft.survival[j] > 0 && draft.survival[j] < 1 &&
                        (j == 0 || draft.survival[j] <= draft.survival[j - 1]));
    }
}

static void rules_follow_what_was_accepted(void **state) {
    (void)state;
    for (uint32_t kind = 0; kind < CONTROLLERS; kind++) {
        controller c;
        controller_begin(&c, (draft_controller)kind, 7);
        for (int i = 0; i < 60; i++) {
            uint32_t limit = controller_limit(&c);
            assert_true(limit <= 7);
            controller_verified(&c, limit, limit);
        }
        assert_int_equal(controller_limit(&c), 7);
        uint32_t tries = 0;
        for (int i = 0; i < 400; i++) {
            uint32_t limit = controller_limit(&c);
            tries += limit > 0;
            controller_verified(&c, limit, 0);
        }
        if (kind == CONTROLLER_COST || kind == CONTROLLER_FIXED)
            assert_int_equal(tries, 400);
        else
            assert_in_range(tries, 5, 60); /* gives up, and asks again now and then */
        for (int i = 0; i < 400; i++) {
            uint32_t limit = controller_limit(&c);
            controller_verified(&c, limit, limit);
        }
        assert_int_equal(controller_limit(&c), 7);
    }
}

static void names_are_read(void **state) {
    (void)state;
    draft_kinds kinds;
    draft_controller controller;
    avo_error error;
    assert_int_equal(draft_kinds_parse(NULL, &kinds, &error), AVO_OK);
    assert_int_equal(kinds, DRAFTS_AUTO);
    assert_int_equal(draft_kinds_parse("off", &kinds, &error), AVO_OK);
    assert_int_equal(kinds, DRAFTS_OFF);
    assert_int_equal(draft_kinds_parse("suffix,grammar", &kinds, &error), AVO_OK);
    assert_int_equal(kinds, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_GRAMMAR));
    const char *const wrong[] = {"", "suffix,", ",suffix", "suffix,off", "Suffix", "none", "auto,"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(draft_kinds_parse(wrong[i], &kinds, &error), AVO_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, "must be off, auto or a list of sources"));
        assert_non_null(strstr(error.text, "suffix"));
        assert_null(strstr(error.text, "custom"));
    }
    assert_int_equal(draft_controller_parse("ema", &controller, &error), AVO_OK);
    assert_int_equal(controller, CONTROLLER_EMA);
    assert_int_equal(draft_controller_parse("EMA", &controller, &error), AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "cost"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_begins_with_priors_and_follows_the_text),
        cmocka_unit_test(rates_stay_probabilities),
        cmocka_unit_test(rules_follow_what_was_accepted),
        cmocka_unit_test(names_are_read),
    };
    return cmocka_run_group_tests_name("spec/record", tests, NULL, NULL);
}
