/* spec/drafter: which of several drafts is taken, when models are asked beside lookups, and how
 * rarely where that does not pay. */
#include "support/support.h"

#include "spec/drafter.h"

#include <string.h>

#define CONTEXT 8192
#define LEAST   0.25 /* what a pass and a row cost, in tokens */

typedef struct bench {
    speculation *shared;
    drafter *drafter;
    int32_t tokens[CONTEXT];
    uint32_t count;
} bench;

static void take(bench *b, float temperature) {
    const drafter_options options = {.kinds = ~DRAFTS_OFF, .temperature = temperature};
    drafter_give(b->drafter);
    b->drafter = drafter_take(b->shared, &options);
    assert_non_null(b->drafter);
    b->count = 0;
}

static void open(bench *b, draft_kinds kinds, draft_controller controller) {
    const speculation_options options = {
        .kinds = kinds,
        .draft_tokens = 7,
        .controller = controller,
        .drafters = 2,
        .context_max = CONTEXT,
        .corpus = {.tokens_max = 1024, .keys_max = 2, .vocabulary = 1000}};
    avo_error error = {0};
    *b = (bench){.count = 0};
    assert_ok_error(speculation_open(&options, NULL, &b->shared, &error), &error);
    take(b, 0);
}

static void close(bench *b) {
    drafter_give(b->drafter);
    speculation_close(b->shared);
}

static draft_timeline timeline_of(const bench *b) {
    return (draft_timeline){b->tokens, b->count, b->count};
}

/* `count` tokens from `first` on, each one more than the one before. */
static void say(bench *b, int32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        b->tokens[b->count++] = first + (int32_t)i;
}

static draft graded(draft_kind kind, uint8_t grade, int32_t first) {
    draft given = {.kind = kind, .graded = kind != DRAFT_GRAMMAR, .count = 7};
    for (uint32_t i = 0; i < given.count; i++) {
        given.tokens[i] = first + (int32_t)i;
        given.grade[i] = grade;
    }
    return given;
}

static draft proposed(bench *b, const draft *given) {
    draft_timeline timeline = timeline_of(b);
    draft out;
    drafter_propose(b->drafter, &timeline, given, 7, &out);
    return out;
}

/* ---- The better draft ---- */

static void the_draft_with_more_expected_tokens_wins(void **state) {
    (void)state;
    bench b;
    /* How many tokens a lookup finds again, what the heads say, and who wins. */
    static const struct {
        uint32_t match;
        draft_kind kind;
        uint8_t grade;
        draft_kind winner;
    } cases[] = {{0, DRAFT_EAGLE, 0, DRAFT_EAGLE},    {4, DRAFT_EAGLE, 0, DRAFT_SUFFIX},
                 {4, DRAFT_EAGLE, 7, DRAFT_EAGLE},    {20, DRAFT_EAGLE, 3, DRAFT_SUFFIX},
                 {1, DRAFT_MEDUSA, 3, DRAFT_MEDUSA},  {1, DRAFT_LAYERS, 0, DRAFT_SUFFIX},
                 {2, DRAFT_MODEL, 6, DRAFT_MODEL},    {4, DRAFT_GRAMMAR, 0, DRAFT_GRAMMAR},
                 {20, DRAFT_GRAMMAR, 0, DRAFT_SUFFIX}};
    open(&b, ~DRAFTS_OFF & ~DRAFT_BIT(DRAFT_NGRAM), CONTROLLER_COST);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        take(&b, 0);
        say(&b, 1, 40);
        say(&b, 500, 1);
        say(&b, 11, cases[i].match);
        draft given = graded(cases[i].kind, cases[i].grade, 300), out = proposed(&b, &given);
        assert_int_equal(out.kind, cases[i].winner);
        assert_int_equal(out.count, 7);
        bool looked_up = out.kind == DRAFT_SUFFIX;
        int32_t first = looked_up ? 11 + (int32_t)cases[i].match : 300;
        for (uint32_t n = 0; n < 7; n++) {
            assert_int_equal(out.tokens[n], first + (int32_t)n);
            assert_true(out.survival[n] > 0 && (n == 0 || out.survival[n] <= out.survival[n - 1]));
        }
        assert_int_equal(out.match, looked_up ? cases[i].match : 0);
        assert_false(out.always);
    }
    close(&b);
}

/* Corpus and suffix have the same rates: of equal matches the first source wins, of others the
 * longer match. */
static void of_lookups_the_longer_match_wins(void **state) {
    (void)state;
    bench b;
    int32_t earlier[40];
    for (int32_t i = 0; i < 40; i++)
        earlier[i] = i < 30 ? i + 1 : 900 + i; /* goes on in its own way behind token 30 */
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_CORPUS), CONTROLLER_COST);
    drafter_learn(b.drafter, earlier, 40);
    for (uint32_t match = 1; match <= 20; match += 19) {
        take(&b, 0);
        say(&b, 25, 10); /* the timeline knows 25 … 34, the corpus 1 … 30 */
        say(&b, 500, 1);
        say(&b, 31 - (int32_t)match, match);
        draft out = proposed(&b, NULL);
        assert_int_equal(out.kind, match == 1 ? DRAFT_SUFFIX : DRAFT_CORPUS);
        assert_int_equal(out.tokens[0], match == 1 ? 31 : 930);
    }
    close(&b);
}

/* What was wrong before loses, whatever the source claims. */
static void rates_are_learned_from_the_text(void **state) {
    (void)state;
    bench b;
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_EAGLE), CONTROLLER_COST);
    say(&b, 1, 200);
    for (int32_t round = 0; round < 30; round++) {
        /* Four tokens are found again, but something else follows each time; the heads know. */
        int32_t next = 600 + 10 * round;
        say(&b, 1 + 6 * round, 4);
        draft given = graded(DRAFT_EAGLE, 3, next), out = proposed(&b, &given);
        if (round == 0)
            assert_int_equal(out.kind, DRAFT_SUFFIX);
        if (round > 20)
            assert_int_equal(out.kind, DRAFT_EAGLE);
        say(&b, next, 8);
    }
    close(&b);
}

/* At temperatures at which nearly anything may come, rates begin lower, but not those of grammars.
 */
static void hot_sequences_begin_with_doubt(void **state) {
    (void)state;
    static const float temperatures[] = {0.0f, 1.0f, 1.1f};
    float lookup[3], model[3], forced[3];
    bench b;
    open(&b, ~DRAFTS_OFF, CONTROLLER_COST);
    for (int i = 0; i < 3; i++) {
        take(&b, temperatures[i]);
        say(&b, 1, 40);
        say(&b, 500, 1);
        say(&b, 11, 4);
        lookup[i] = proposed(&b, NULL).survival[0];
        draft given = graded(DRAFT_EAGLE, 7, 300), grammar = graded(DRAFT_GRAMMAR, 0, 300);
        drafter_rate(b.drafter, &given);
        drafter_rate(b.drafter, &grammar);
        model[i] = given.survival[0];
        forced[i] = grammar.survival[0];
    }
    assert_true(lookup[0] == lookup[1] && lookup[2] < .5f * lookup[1] && lookup[2] > 0);
    assert_true(model[0] == model[1] && model[2] < .5f * model[1]);
    assert_true(forced[0] == forced[2]);
    close(&b);
}

static uint32_t own_drafts(void *context, const int32_t *timeline, uint32_t count, uint32_t most,
                           int32_t *drafts) {
    (void)timeline;
    assert_true(count > 0 && most > 0);
    drafts[0] = *(int32_t *)context;
    return 1;
}

static void a_source_of_the_program_comes_before_all(void **state) {
    (void)state;
    bench b;
    int32_t token = 77;
    const draft_source source = {own_drafts, &token, 3};
    open(&b, ~DRAFTS_OFF, CONTROLLER_COST);
    assert_false(drafter_insists(b.drafter));
    speculation_custom(b.shared, &source);
    assert_true(drafter_insists(b.drafter));
    say(&b, 1, 40);
    say(&b, 5, 20);
    draft given = graded(DRAFT_EAGLE, 7, 300), out = proposed(&b, &given);
    assert_true(out.kind == DRAFT_CUSTOM && out.always && out.count == 1);
    assert_int_equal(out.tokens[0], 77);
    close(&b);
    open(&b, DRAFT_BIT(DRAFT_SUFFIX), CONTROLLER_FIXED);
    assert_true(drafter_insists(b.drafter) && drafter_decides(b.drafter));
    close(&b);
}

/* ---- Asking models ---- */

static void look(bench *b) {
    draft_timeline timeline = timeline_of(b);
    drafter_look(b->drafter, &timeline, 7);
}

static bool asked(bench *b, double least) {
    look(b);
    bool tried = drafter_try_model(b->drafter, least);
    (void)proposed(b, NULL);
    return tried;
}

static void models_are_asked_where_lookups_leave_something_to_gain(void **state) {
    (void)state;
    bench b;
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_EAGLE), CONTROLLER_COST);
    say(&b, 1, 40);
    assert_true(asked(&b, LEAST)); /* nothing was found */
    assert_false(asked(&b, 0.75)); /* nearly a token's time, which nothing pays for */
    say(&b, 500, 1);
    say(&b, 11, 1);
    assert_true(asked(&b, LEAST)); /* a weak match */
    say(&b, 600, 1);
    say(&b, 11, 20);
    assert_false(asked(&b, LEAST)); /* a long one */
    say(&b, 700, 8);                /* far enough from the copy that nobody expects it to go on */
    assert_true(asked(&b, LEAST));
    /* Lookups got more than a token accepted in each of the last steps. */
    look(&b);
    (void)proposed(&b, NULL);
    for (int i = 0; i < 10; i++)
        drafter_verified(b.drafter, 3, 3);
    assert_false(asked(&b, LEAST));
    for (int i = 0; i < 20; i++)
        drafter_verified(b.drafter, 3, 0);
    assert_true(asked(&b, LEAST));
    close(&b);
}

/* ---- Where they do not pay ---- */

/* A token that nobody has seen. */
static int32_t fresh(const bench *b) {
    return 10000 + (int32_t)b->count;
}

/* So many steps; returns how often the heads were asked. Their drafts are right or wrong. */
static uint32_t run(bench *b, uint32_t steps, bool right) {
    uint32_t tries = 0;
    for (uint32_t i = 0; i < steps; i++) {
        int32_t next = fresh(b);
        look(b);
        bool tried = drafter_try_model(b->drafter, LEAST);
        draft given = graded(DRAFT_EAGLE, 3, right ? next : 5);
        given.count = tried;
        (void)proposed(b, &given);
        drafter_verified(b->drafter, tried, tried && right);
        b->tokens[b->count++] = next;
        tries += tried;
    }
    return tries;
}

static void useless_models_are_tried_rarely_and_by_all_together(void **state) {
    (void)state;
    bench b;
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_EAGLE), CONTROLLER_COST);
    say(&b, 1, 1);
    assert_in_range(run(&b, 100, false), 5, 15);
    /* From now on half a percent of the time at most: 0.004 / (2 · LEAST) of the steps. */
    assert_in_range(run(&b, 4000, false), 10, 40);
    /* Short answers, of which each begins with what the others have seen. */
    uint32_t tries = 0;
    for (int answer = 0; answer < 40; answer++) {
        take(&b, 0);
        say(&b, 1, 1);
        tries += run(&b, 100, false);
    }
    assert_in_range(tries, 10, 60);
    /* Other temperatures know nothing of it. */
    take(&b, 0.7f);
    say(&b, 1, 1);
    assert_in_range(run(&b, 20, false), 3, 12);
    /* Nearly anything may come at high ones: nobody begins there. */
    take(&b, 1.5f);
    say(&b, 1, 1);
    assert_in_range(run(&b, 100, false), 0, 1);
    close(&b);
}

static void models_that_became_useful_are_used(void **state) {
    (void)state;
    bench b;
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_EAGLE), CONTROLLER_COST);
    say(&b, 1, 1);
    (void)run(&b, 4000, false);
    uint32_t steps = 0;
    while (run(&b, 1, true) == 0)
        assert_true(++steps < 200);
    /* The try was right, so the next step tries again at once. */
    assert_int_equal(run(&b, 100, true), 100);
    assert_false(asked(&b, 0.75)); /* too dear even where all are right */
    assert_true(asked(&b, 0.65));
    close(&b);
}

/* A timeline that models still have to read is no failed draft. */
static void models_that_are_behind_are_asked_again(void **state) {
    (void)state;
    bench b;
    open(&b, DRAFT_BIT(DRAFT_SUFFIX) | DRAFT_BIT(DRAFT_EAGLE), CONTROLLER_COST);
    say(&b, 1, 1);
    (void)run(&b, 300, false);
    drafter_model_behind(b.drafter);
    assert_true(asked(&b, LEAST));
    assert_false(asked(&b, LEAST));
    close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_draft_with_more_expected_tokens_wins),
        cmocka_unit_test(of_lookups_the_longer_match_wins),
        cmocka_unit_test(rates_are_learned_from_the_text),
        cmocka_unit_test(hot_sequences_begin_with_doubt),
        cmocka_unit_test(a_source_of_the_program_comes_before_all),
        cmocka_unit_test(models_are_asked_where_lookups_leave_something_to_gain),
        cmocka_unit_test(useless_models_are_tried_rarely_and_by_all_together),
        cmocka_unit_test(models_that_became_useful_are_used),
        cmocka_unit_test(models_that_are_behind_are_asked_again),
    };
    return cmocka_run_group_tests_name("spec/drafter", tests, NULL, NULL);
}
