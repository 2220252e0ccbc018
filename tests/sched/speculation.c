/* Speculation through the scheduler, with every draft source and controller: random requests give
 * the bytes that avo_generate gives for each of them alone without speculation.
 * AVO_TEST_TOKENS=1000000 compares that many tokens. AVO_TEST_THREADS */
#include "sched/serving.h"

#include "engine/draft_heads.h"
#include "engine/engine_int.h"
#include "support/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char json_like[] =
    "root ::= \"{\\\"name\\\": \\\"\" word \"\\\", \\\"values\\\": [\" list \"]}\"\n"
    "list ::= number (\", \" number)*\nword ::= [a-z]{1,6}\nnumber ::= [0-9]{1,3}";

typedef struct tally {
    uint64_t tokens, drafted, accepted, preemptions;
} tally;

/* A few tokens are so likely that the text repeats itself: random weights alone never do. */
static void repeat_often(question *q, dice *dice) {
    uint32_t first = 3 + roll(dice, TINY_VOCABULARY - 12);
    for (size_t i = 1; i < q->token_count; i++)
        q->tokens[i] = (int32_t)(first + i % 5);
    for (uint32_t i = 0; i < 2; i++)
        q->bias[i] = (avo_logit_bias){(int32_t)(first + roll(dice, 5)), 8.0f};
    q->sampling.bias = q->bias;
    q->sampling.bias_count = 2;
    q->max_new_tokens = 20 + roll(dice, 60);
    q->stop_count = roll(dice, 4) == 0 ? q->stop_count : 0;
    q->stop_token = -1;
    q->ignore_end = true;
}

/* A model that drafts for itself never pays, so tests pretend that it costs nothing. */
static void make_drafts_cheap(world *w) {
    if (w->engine->draft_model != NULL)
        draft_model_assume(w->engine->draft_model, 1.0);
    if (w->engine->draft_heads != NULL)
        draft_heads_assume(w->engine->draft_heads, 1.0);
}

static void run_exam(const world_options *options, size_t count, uint64_t seed, bool plain,
                     tally *all) {
    world w;
    world_open(&w, options);
    make_drafts_cheap(&w);
    avo_adapter *adapter = test_adapter_make(
        w.model, &(adapter_random_options){seed + 1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.5f});
    avo_grammar *grammar = NULL;
    assert_ok_error(
        avo_grammar_open(w.model, AVO_GRAMMAR_GBNF, json_like, NULL, &grammar, &w.error), &w.error);
    exam e = exam_make(&w, count, seed);
    dice dice = {seed, 1000};
    for (size_t i = 0; i < count; i++) {
        question *q = &e.q[i];
        if (roll(&dice, 3) > 0)
            repeat_often(q, &dice);
        if (plain) { /* penalties see a draft only when it is accepted */
            const avo_sampling none = AVO_SAMPLING_INIT;
            q->sampling.repetition_penalty = none.repetition_penalty;
            q->sampling.frequency_penalty = none.frequency_penalty;
        }
        q->use_count = !plain && roll(&dice, 3) == 0;
        q->uses[0] = (avo_adapter_use){adapter, 1.0f};
        q->grammar = !plain && roll(&dice, 4) == 0 ? grammar : NULL;
    }
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    assert_true(avo_scheduler_drain(w.scheduler, 600.0));
    for (size_t i = 0; i < count; i++) {
        same_answer(&e.seen[i], &e.alone[i]);
        all->tokens += e.seen[i].new_tokens;
    }
    avo_scheduler_info info = info_of(&w);
    assert_int_equal(info.finished, count);
    all->drafted += info.drafted_tokens;
    all->accepted += info.accepted_tokens;
    all->preemptions += info.preemptions;
    avo_adapter_close(adapter);
    avo_grammar_close(grammar);
    exam_free(&e);
    world_close(&w);
}

static uint64_t tokens_wanted(void) {
    const char *text = getenv("AVO_TEST_TOKENS");
    return text == NULL ? FEWER(12000) : strtoull(text, NULL, 10);
}

/* A model with other tokens, which drafts by text; its path. */
static const char *other_words(void) {
    static const char *const words[10] = {"one", "two",  " a",  " th", "ere",
                                          "{\"", "\": ", "val", "x",   ", "};
    static char path[1024];
    char folder[512];
    snprintf(folder, sizeof(folder), "%s/other", test_scratch_folder());
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s", tiny_model_write_words(folder, 2, words));
    return path;
}

/* A different combination for every seed. */
static world_options combination(uint64_t seed) {
    /* The custom source is what lets crowded requests meet. */
    static const char *const sources[] = {"auto",           "suffix,custom", "ngram,custom",
                                          "grammar,custom", "corpus,custom", "model,custom",
                                          "eagle,custom",   "medusa,custom", "layers,custom"};
    static const char *const controllers[] = {"cost", "fixed", "step", "rate", "ema"};
    static const char *const types[] = {NULL, "f32", "bf16", "int8", "fp8"};
    world_options options = WORLD_OPTIONS;
    uint64_t source = (seed + 5) % 9; /* heads early: few seeds run by default */
    options.speculate = sources[source];
    bool drafts = source == 5 || (source == 0 && seed % 4 == 0);
    const char *const models[] = {NULL, "exit:1", other_words()};
    options.draft = drafts ? models[seed / 9 % 3] : NULL;
    options.self_draft = drafts && options.draft == NULL;
    if (source == 0 && !drafts)
        options.heads = HEADS_EAGLE + 1;
    if (source > 5)
        options.heads = (uint32_t[]){HEADS_EAGLE, HEADS_MEDUSA, HEADS_LAYERS}[source - 6] + 1;
    options.controller = controllers[seed / 5 % 5];
    options.kv_type = types[seed / 7 % 5];
    options.threads = 1 + (uint32_t)(seed / 3 % 4);
    options.sessions = (uint32_t[]){1, 4, 9}[seed / 2 % 3];
    options.rows = seed % 4 == 0 ? 20 : 200;
    options.crowded = seed / 2 % 2 == 0;
    if (options.crowded) { /* too few pages: some are preempted */
        options.sessions = 8;
        options.kv_tokens = TINY_CONTEXT;
    }
    options.scheduler.token_seconds = seed % 3 == 0 ? 0.01 : -1.0;
    options.scheduler.no_prefix_cache = seed % 5 == 0;
    return options;
}

static void the_same_bytes(void **state) {
    (void)state;
    tally all = {0};
    for (uint64_t seed = 1; all.tokens < tokens_wanted(); seed++) {
        world_options options = combination(seed);
        run_exam(&options, 24, seed, false, &all);
    }
    print_message("%llu tokens, %llu drafts of which %llu accepted, %llu preemptions\n",
                  (unsigned long long)all.tokens, (unsigned long long)all.drafted,
                  (unsigned long long)all.accepted, (unsigned long long)all.preemptions);
    assert_true(all.drafted > all.tokens / 20 && all.accepted > all.tokens / 40);
    assert_true(all.accepted < all.drafted);
    assert_true(all.preemptions > 0);
}

/* A model that drafts for itself samples with the same random numbers: nearly every draft is right,
 * at any temperature. The rest are drafts behind the end of an answer. */
static void a_model_agrees_with_itself(void **state) {
    (void)state;
    tally all = {0};
    world_options options = WORLD_OPTIONS;
    options.speculate = "model";
    options.controller = "fixed";
    options.self_draft = true;
    for (uint64_t seed = 1; seed <= 3; seed++)
        run_exam(&options, FEWER(24), seed, true, &all);
    assert_true(all.drafted > 0);
    if (all.accepted * 10 < all.drafted * 9)
        fail_msg("%llu of %llu drafts were right", (unsigned long long)all.accepted,
                 (unsigned long long)all.drafted);
}

/* The same prompt again, in the prefix cache up to its last token: it is drafted for in its first
 * step. What another salt has computed is not found in the draft model either. */
static void cached_prompts_and_salts(void **state) {
    (void)state;
    static const char *const salts[] = {"alice", "alice", "mallory"};
    world w;
    world_options options = WORLD_OPTIONS;
    options.speculate = "model";
    options.controller = "fixed";
    options.self_draft = true;
    world_open(&w, &options);
    make_drafts_cheap(&w);
    exam e = exam_make(&w, 3, 1);
    uint64_t hits[4] = {0};
    for (size_t i = 0; i < 3; i++) {
        question *q = &e.q[i];
        *q = e.q[0];
        q->token_count = 2 * KV_PAGE_TOKENS + 1;
        for (size_t n = 0; n < q->token_count; n++)
            q->tokens[n] = (int32_t)(3 + n % 40);
        q->max_new_tokens = 8;
        q->stop_count = 0;
        q->stop_token = -1;
        q->ignore_end = true;
        q->salt = salts[i];
        generate_alone(&w, q, &e.alone[i]);
        avo_request request = request_of(q, &e.seen[i]);
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, &e.number[i], NULL, &w.error),
                        &w.error);
        while (atomic_load(&e.seen[i].ended) == 0) /* requests count as finished before that */
            pause_ms(1);
        same_answer(&e.seen[i], &e.alone[i]);
        hits[i + 1] = draft_model_hits(w.engine->draft_model);
    }
    assert_true(info_of(&w).accepted_tokens > 0);
    assert_int_equal(hits[1], 0);
    assert_int_equal(hits[2], 2 * KV_PAGE_TOKENS);
    assert_int_equal(hits[3], hits[2]);
    exam_free(&e);
    world_close(&w);
}

/* Options that contradict each other. */
static void a_source_without_a_model_is_refused(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *opened;
    engine.speculate = "suffix,model";
    assert_refused(avo_engine_open(w.model, &engine, &opened, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "no draft model");
    engine.speculate = "suffix";
    engine.draft_model = w.model;
    assert_refused(avo_engine_open(w.model, &engine, &opened, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "add the source model");
    /* Its memory is planned. */
    avo_plan without = AVO_PLAN_INIT, with = AVO_PLAN_INIT;
    engine.speculate = NULL;
    assert_ok_error(avo_engine_plan(w.model, &engine, &with, &w.error), &w.error);
    engine.draft_model = NULL;
    assert_ok_error(avo_engine_plan(w.model, &engine, &without, &w.error), &w.error);
    assert_true(with.draft_bytes > without.draft_bytes + without.kv_bytes);
    world_close(&w);
}

/* A model with other tokens drafts by text. Random weights never agree; those that are the same but
 * for the words of the vocabulary do now and then. */
static void another_vocabulary_drafts_by_text(void **state) {
    (void)state;
    tally all = {0};
    world_options options = WORLD_OPTIONS;
    options.speculate = "model";
    options.controller = "fixed";
    options.draft = other_words();
    for (uint64_t seed = 1; seed <= 2; seed++)
        run_exam(&options, FEWER(24), seed, true, &all);
    assert_true(all.drafted > 0);
}

/* Its tokens would mean something else, and without a tokenizer there is no text either. */
static void a_draft_model_of_other_tokens_is_refused(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_model *other;
    assert_ok_error(avo_model_open(test_fixture_path("models/llama3"), NULL, &other, &w.error),
                    &w.error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *opened;
    engine.draft_model = other;
    assert_refused(avo_engine_open(w.model, &engine, &opened, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "same vocabulary");
    avo_model_close(other);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bytes),
                                       cmocka_unit_test(a_model_agrees_with_itself),
                                       cmocka_unit_test(cached_prompts_and_salts),
                                       cmocka_unit_test(a_source_without_a_model_is_refused),
                                       cmocka_unit_test(another_vocabulary_drafts_by_text),
                                       cmocka_unit_test(a_draft_model_of_other_tokens_is_refused)};
    return cmocka_run_group_tests_name("sched/speculation", tests, NULL, NULL);
}
