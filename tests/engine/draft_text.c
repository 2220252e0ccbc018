/* engine/: timelines in the tokens of another vocabulary, and guesses on their way back. */
#include "support/support.h"

#include "engine/draft_text.h"
#include "model/model.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <sys/stat.h>

typedef struct pair {
    test_allocator counter;
    avo_model *target, *own;
    draft_text *text;
    avo_error error;
} pair;

static avo_model *open_model(pair *p, const char *folder, const char *const words[10]) {
    char path[512];
    avo_model *model;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = &p->counter.allocator;
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), folder);
    (void)mkdir(path, 0700);
    assert_ok_error(
        avo_model_open(tiny_model_write_words(path, 1, words), &options, &model, &p->error),
        &p->error);
    return model;
}

static void pair_open(pair *p, uint32_t context) {
    /* A token of several characters is found by way of shorter ones. */
    static const char *const theirs[10] = {" r",  " ra", " rai", " rain", "th",
                                           "the", " t",  " th",  " the",  "lo"};
    static const char *const ours[10] = {" r",   " ra", "in",  "he", "hel",
                                         "hell", " t",  " th", "ll", "lo"};
    *p = (pair){0};
    test_allocator_init(&p->counter);
    p->target = open_model(p, "target", theirs);
    p->own = open_model(p, "own", ours);
    assert_ok_error(draft_text_open(p->target->tokenizer, p->own->tokenizer, 2, context,
                                    &p->counter.allocator, &p->text, &p->error),
                    &p->error);
}

static void pair_close(pair *p) {
    draft_text_close(p->text);
    avo_model_close(p->own);
    avo_model_close(p->target);
    assert_int_equal(p->counter.live, 0);
}

static size_t encode(const avo_model *model, const char *text, int32_t *ids, size_t most) {
    size_t count;
    avo_error error;
    assert_ok_error(
        avo_tokenize(model, text, strlen(text), AVO_TOKENIZE_BEGIN, ids, most, &count, &error),
        &error);
    return count;
}

/* Token by token, the follower's tokens always have the text of the timeline. */
static void tokens_follow_the_text(void **state) {
    (void)state;
    static const char said[] = "hello world, the rainfall\nends.  Then é and more rain falls";
    pair p;
    pair_open(&p, 128);
    int32_t ids[128];
    uint32_t count = (uint32_t)encode(p.target, said, ids, 128), whole = 0;
    for (uint32_t i = 1; i <= count; i++) {
        char expected[256], found[256];
        size_t expected_bytes, found_bytes;
        draft_timeline given = {ids, i, i};
        draft_timeline own = draft_text_follow(p.text, 0, &given);
        if (own.count == 0)
            continue; /* half a character */
        whole++;
        assert_ok_error(avo_detokenize(p.target, ids, i, 0, expected, sizeof(expected),
                                       &expected_bytes, &p.error),
                        &p.error);
        assert_ok_error(avo_detokenize(p.own, own.tokens, own.count, 0, found, sizeof(found),
                                       &found_bytes, &p.error),
                        &p.error);
        assert_int_equal(found_bytes, expected_bytes);
        assert_memory_equal(found, expected, expected_bytes);
    }
    assert_true(whole > count / 2);
    /* Another sequence begins anew, in the same follower and beside it. */
    draft_text_clear(p.text, 0);
    draft_timeline given = {ids, 4, 4};
    assert_true(draft_text_follow(p.text, 0, &given).count > 0);
    assert_true(draft_text_follow(p.text, 1, &given).count > 0);
    pair_close(&p);
}

/* What does not fit has no drafts, and never will. */
static void a_full_context_ends_it(void **state) {
    (void)state;
    pair p;
    pair_open(&p, 6);
    int32_t ids[64];
    uint32_t count = (uint32_t)encode(p.target, "qwertyuiopasdf", ids, 64);
    draft_timeline given = {ids, 3, 3};
    assert_true(draft_text_follow(p.text, 0, &given).count > 0);
    given = (draft_timeline){ids, count, count};
    assert_int_equal(draft_text_follow(p.text, 0, &given).count, 0);
    assert_int_equal(draft_text_follow(p.text, 0, &given).count, 0);
    given.position = count + 5; /* a ring has forgotten some */
    assert_int_equal(draft_text_follow(p.text, 1, &given).count, 0);
    pair_close(&p);
}

static int32_t piece(const avo_model *model, const char *text) {
    int32_t id = tokenizer_find_piece(model->tokenizer, text_from(text));
    assert_true(id >= 0);
    return id;
}

/* The last token of a guess may become longer: it counts less until the next, or the end. */
static void unfinished_tokens_may_grow(void **state) {
    (void)state;
    pair p;
    pair_open(&p, 64);
    int32_t ids[16], last;
    uint32_t count = (uint32_t)encode(p.target, "the", ids, 16);
    draft_timeline given = {ids, count, count};
    draft out = {.kind = DRAFT_MODEL, .graded = true};
    assert_true(draft_text_follow(p.text, 0, &given).count > 0);
    assert_true(draft_text_guess(p.text, 0, piece(p.own, " ra"), 0.9f, 4, &out));
    assert_true(draft_text_guess(p.text, 0, piece(p.own, "in"), 0.5f, 4, &out));
    assert_int_equal(out.count, 1); /* " rain" is one token, perhaps of "raining" */
    assert_int_equal(out.grade[0], draft_grade(0.45f * 0.6f));
    assert_int_equal(draft_text_guesses(p.text, 0, &last), 2);
    assert_int_equal(last, piece(p.own, "in"));
    assert_true(draft_text_guess(p.text, 0, piece(p.own, " th"), 0.9f, 4, &out));
    assert_int_equal(out.count, 2);
    assert_int_equal(out.tokens[0], piece(p.target, " rain"));
    assert_int_equal(out.grade[0], draft_grade(0.45f));
    assert_int_equal(out.grade[1], draft_grade(0.9f * 0.6f));
    /* The end of the answer: nothing follows, so all of it counts. */
    out.count = 0;
    assert_true(draft_text_follow(p.text, 0, &given).count > 0);
    assert_true(draft_text_guess(p.text, 0, piece(p.own, " ra"), 0.9f, 4, &out));
    assert_true(draft_text_guess(p.text, 0, piece(p.own, "in"), 0.5f, 4, &out));
    assert_false(draft_text_guess(p.text, 0, 2, 0.5f, 4, &out));
    assert_int_equal(out.count, 1);
    assert_int_equal(out.tokens[0], piece(p.target, " rain"));
    assert_int_equal(out.grade[0], draft_grade(0.45f));
    pair_close(&p);
}

static void every_failed_allocation_is_refused(void **state) {
    (void)state;
    pair p;
    pair_open(&p, 16);
    draft_text *text;
    for (size_t at = 1;; at++) {
        size_t live = p.counter.live;
        p.counter.fail_at = p.counter.allocations + at;
        avo_status status = draft_text_open(p.target->tokenizer, p.own->tokenizer, 2, 16,
                                            &p.counter.allocator, &text, &p.error);
        p.counter.fail_at = 0;
        if (status == AVO_OK) {
            draft_text_close(text);
            break;
        }
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_int_equal(p.counter.live, live);
    }
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_follow_the_text),
                                       cmocka_unit_test(a_full_context_ends_it),
                                       cmocka_unit_test(unfinished_tokens_may_grow),
                                       cmocka_unit_test(every_failed_allocation_is_refused)};
    return cmocka_run_group_tests_name("engine/draft_text", tests, NULL, NULL);
}
