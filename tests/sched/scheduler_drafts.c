/* Draft tokens through the scheduler: whatever they are, every request gives the bytes that
 * avo_generate gives for it alone without any, and the steps are as many as the drafts that were
 * right leave. AVO_TEST_THREADS */
#include "sched/serving.h"

#include "sched/scheduler_int.h"
#include "support/adapters.h"
#include "support/drafts.h"

/* Answers of an exam for a source of drafts, which must know them before the requests come. */
typedef struct knowledge {
    drafted_answer *answers;
    int32_t (*ids)[EVENTS_MAX];
} knowledge;

static knowledge learn(const exam *e) {
    knowledge k = {calloc(e->count, sizeof(drafted_answer)), calloc(e->count, sizeof(*k.ids))};
    assert_true(k.answers != NULL && k.ids != NULL);
    for (size_t i = 0; i < e->count; i++) {
        size_t count = 0;
        for (size_t n = 0; n < e->alone[i].count; n++)
            if (e->alone[i].event[n].token >= 0)
                k.ids[i][count++] = e->alone[i].event[n].token;
        k.answers[i] = (drafted_answer){e->q[i].tokens, k.ids[i], e->q[i].token_count, count};
    }
    return k;
}

static void forget(knowledge *k) {
    free(k->answers);
    free(k->ids);
}

/* Every prompt is another's, so that a timeline says whose it is. */
static exam exam_of(world *w, size_t count, uint64_t seed, bool adapters, avo_adapter **adapter,
                    avo_grammar *grammar) {
    exam e = exam_make(w, count, seed);
    for (size_t i = 0; i < count; i++) {
        question *q = &e.q[i];
        q->tokens[q->token_count - 1] = (int32_t)(3 + i);
        q->use_count = adapters ? i % 3 : 0;
        for (size_t n = 0; n < q->use_count; n++)
            q->uses[n] = (avo_adapter_use){adapter[n], n == 0 ? 1.0f : -0.5f};
        q->grammar = i % 4 == 1 ? grammar : NULL;
    }
    return e;
}

static sched_counts counts_of(world *w) {
    (void)info_of(w); /* behind its lock lies what the engine thread has done */
    return sched_count(w->scheduler->core);
}

static void same_with(world_options options, drafting_kind kind, size_t count, uint64_t seed,
                      avo_scheduler_info *info) {
    static const char list[] = "root ::= word (\" \" word)* \".\"\nword ::= [a-z]{1,6} | [0-9]+";
    drafting d = {.kind = kind, .vocabulary = TINY_VOCABULARY, .seed = seed};
    draft_source source = draft_source_of(&d, 1 + (uint32_t)(seed % 7));
    options.drafts = &source;
    options.logits = options.sessions * (1 + source.drafts_max);
    world w;
    world_open(&w, &options);
    avo_adapter *adapter[2];
    for (uint64_t i = 0; i < 2; i++)
        adapter[i] = test_adapter_make(
            w.model, &(adapter_random_options){i + 1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.5f});
    avo_grammar *grammar = NULL;
    assert_ok_error(avo_grammar_open(w.model, AVO_GRAMMAR_GBNF, list, NULL, &grammar, &w.error),
                    &w.error);
    exam e = exam_of(&w, count, seed, seed % 2 == 0, adapter, grammar);
    exam_alone(&w, &e);
    knowledge k = learn(&e);
    d.answers = k.answers;
    d.answer_count = count;
    exam_submit(&w, &e);
    for (uint64_t i = 0; i < 2; i++)
        avo_adapter_close(adapter[i]);
    avo_grammar_close(grammar);
    assert_true(avo_scheduler_drain(w.scheduler, 240.0));
    for (size_t i = 0; i < count; i++)
        same_answer(&e.seen[i], &e.alone[i]);
    *info = info_of(&w);
    sched_counts counts = counts_of(&w);
    assert_int_equal(info->finished, count);
    assert_true(counts.draft_tokens > 0 && counts.draft_tokens <= d.proposed);
    assert_true(counts.accepted_drafts <= counts.draft_tokens);
    if (kind == DRAFTS_RIGHT)
        assert_int_equal(counts.accepted_drafts, counts.draft_tokens);
    if (kind == DRAFTS_WRONG)
        assert_int_equal(counts.accepted_drafts, 0);
    forget(&k);
    exam_free(&e);
    world_close(&w);
}

static void the_same_bytes_as_alone(void **state) {
    (void)state;
    for (int kind = DRAFTS_RIGHT; kind <= DRAFTS_MIXED; kind++)
        for (uint64_t i = 0; i < 3; i++) {
            avo_scheduler_info info;
            world_options options = WORLD_OPTIONS;
            options.rows = i == 0 ? 200 : 9;
            options.threads = 1 + (uint32_t)i;
            options.scheduler.token_seconds = i == 1 ? 0.001 : -1.0;
            options.scheduler.no_prefix_cache = i == 2;
            same_with(options, (drafting_kind)kind, FEWER(45), 10 * i + (uint64_t)kind, &info);
        }
}

/* Drafts take no page that somebody needs, and what is preempted goes on where it was. */
static void after_preemption(void **state) {
    (void)state;
    uint64_t preemptions = 0;
    for (uint64_t seed = 40; seed < 43 || (preemptions == 0 && seed < 70); seed++) {
        avo_scheduler_info info;
        world_options options = WORLD_OPTIONS;
        options.sessions = 8;
        options.kv_tokens = TINY_CONTEXT;
        options.scheduler.token_seconds = -1.0;
        options.crowded = true;
        same_with(options, DRAFTS_MIXED, FEWER(60), seed, &info);
        preemptions += info.preemptions;
    }
    assert_true(preemptions > 0);
}

static void beside_prompts_on_cores_of_their_own(void **state) {
    (void)state;
    static const char *const modes[] = {"static", "adaptive"};
    for (uint64_t i = 0; i < 2; i++) {
        avo_scheduler_info info;
        world_options options = WORLD_OPTIONS;
        options.threads = 2 + (uint32_t)i;
        options.scheduler.cores = modes[i];
        options.scheduler.token_seconds = -1.0;
        same_with(options, DRAFTS_MIXED, FEWER(45), 80 + i, &info);
    }
}

/* One request alone: a step for the prompt, then one for every 1 + k tokens, or for every one where
 * the drafts are wrong. */
static void counts_are_right(void **state) {
    (void)state;
    enum { TOKENS = 61 };
    for (uint32_t k = 1; k <= 8; k += 7)
        for (int kind = DRAFTS_RIGHT; kind <= DRAFTS_WRONG; kind++) {
            drafting d = {.kind = (drafting_kind)kind, .vocabulary = TINY_VOCABULARY};
            draft_source source = draft_source_of(&d, k);
            world_options options = WORLD_OPTIONS;
            options.scheduler.token_seconds = -1.0;
            options.drafts = &source;
            options.logits = 54;
            world w;
            world_open(&w, &options);
            exam e = exam_make(&w, 1, 5);
            e.q[0] = (question){.token_count = 20,
                                .max_new_tokens = TOKENS,
                                .stop_token = -1,
                                .ignore_end = true,
                                .sampling = AVO_SAMPLING_INIT};
            for (size_t i = 0; i < 20; i++)
                e.q[0].tokens[i] = (int32_t)(5 + i);
            exam_alone(&w, &e);
            knowledge answers = learn(&e);
            d.answers = answers.answers;
            d.answer_count = 1;
            exam_submit(&w, &e);
            assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
            same_answer(&e.seen[0], &e.alone[0]);
            sched_counts counts = counts_of(&w);
            uint32_t steps = kind == DRAFTS_RIGHT ? (TOKENS - 1 + k) / (k + 1) : TOKENS - 1;
            assert_int_equal(info_of(&w).steps, 1 + steps);
            assert_int_equal(counts.new_tokens, TOKENS);
            assert_int_equal(counts.draft_tokens, d.proposed);
            assert_int_equal(counts.accepted_drafts, kind == DRAFTS_RIGHT ? TOKENS - 1 - steps : 0);
            forget(&answers);
            exam_free(&e);
            world_close(&w);
        }
}

/* A listener that says no within a step that accepted several tokens is told no more. */
static void listeners_end_within_a_step(void **state) {
    (void)state;
    drafting d = {.kind = DRAFTS_RIGHT, .vocabulary = TINY_VOCABULARY};
    draft_source source = draft_source_of(&d, 7);
    world_options options = WORLD_OPTIONS;
    options.scheduler.token_seconds = -1.0;
    options.drafts = &source;
    options.logits = 48;
    world w;
    world_open(&w, &options);
    exam e = exam_make(&w, 12, 6);
    for (size_t i = 0; i < e.count; i++) {
        question *q = &e.q[i];
        q->tokens[q->token_count - 1] = (int32_t)(3 + i);
        q->max_new_tokens = 40;
        q->stop_count = 0;
        q->stop_token = -1;
        q->ignore_end = true;
    }
    exam_alone(&w, &e);
    knowledge k = learn(&e);
    d.answers = k.answers;
    d.answer_count = e.count;
    for (size_t i = 0; i < e.count; i++)
        e.seen[i].refuse_after = 1 + (uint32_t)i;
    exam_submit(&w, &e);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        assert_int_equal(e.seen[i].finish, AVO_FINISH_CANCELLED);
        assert_int_equal(e.seen[i].tokens, 1 + i);
        assert_int_equal(e.seen[i].new_tokens, 1 + i);
        same_events(&e.seen[i], &e.alone[i], e.seen[i].count);
    }
    forget(&k);
    exam_free(&e);
    world_close(&w);
}

/* Nothing is allocated from the second token on, drafts or not. */
static void steps_allocate_nothing(void **state) {
    (void)state;
    drafting d = {.kind = DRAFTS_MIXED, .vocabulary = TINY_VOCABULARY};
    draft_source source = draft_source_of(&d, 7);
    world_options options = WORLD_OPTIONS;
    options.scheduler.tokenizer_threads = 1;
    options.scheduler.token_seconds = -1.0;
    options.drafts = &source;
    options.logits = 48;
    world w;
    world_open(&w, &options);
    frugal f = {.world = &w};
    question q = {.token_count = 20,
                  .max_new_tokens = 120,
                  .stop_token = -1,
                  .ignore_end = true,
                  .stop = {"never there"},
                  .stop_count = 1,
                  .sampling = AVO_SAMPLING_INIT};
    for (size_t i = 0; i < q.token_count; i++)
        q.tokens[i] = (int32_t)(5 + i);
    avo_request request = request_of(&q, NULL);
    request.on_event = on_frugal_event;
    request.on_event_context = &f;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(f.tokens, 120);
    assert_int_equal(f.last, f.second);
    assert_true(d.calls > 50);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_as_alone),
        cmocka_unit_test(after_preemption),
        cmocka_unit_test(beside_prompts_on_cores_of_their_own),
        cmocka_unit_test(counts_are_right),
        cmocka_unit_test(listeners_end_within_a_step),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests_name("sched/scheduler_drafts", tests, NULL, NULL);
}
