/* engine/generate on ids: greedy against a plain loop, ends of all kinds, seeds, continued
 * sessions, and that nothing is allocated between tokens. AVO_TEST_THREADS */
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

#define IDS_MAX 64

typedef struct bench {
    test_allocator counter;
    avo_model *model;
    avo_engine *engine;
    avo_session *session;
    avo_error error;
} bench;

typedef struct record {
    bench *bench;
    int32_t ids[IDS_MAX];
    size_t count;
    size_t stop_after;                /* the callback says no after this many; 0: never */
    uint64_t prefilled, prefill_most; /* likewise, of the prompt */
    size_t first_allocations, last_allocations;
    uint32_t top_count;
    avo_sampling sampling;
} record;

static const int32_t prompt[] = {1, 5, 9, 2, 7, 3, 8, 4, 6, 11, 30, 2, 2, 41};
#define PROMPT (sizeof(prompt) / sizeof(prompt[0]))

static void bench_open(bench *b, uint32_t threads, uint32_t rows) {
    memset(b, 0, sizeof(*b));
    test_allocator_init(&b->counter);
    avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
    model_options.allocator = &b->counter.allocator;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = threads;
    options.context_max = 48;
    options.rows_max = rows;
    assert_ok_error(avo_model_open(test_fixture_path("models/llama3.gguf"), &model_options,
                                   &b->model, &b->error),
                    &b->error);
    assert_ok_error(avo_engine_open(b->model, &options, &b->engine, &b->error), &b->error);
    assert_ok_error(avo_session_open(b->engine, NULL, &b->session, &b->error), &b->error);
}

static void bench_close(bench *b) {
    avo_session_close(b->session);
    avo_engine_close(b->engine);
    avo_model_close(b->model);
    assert_int_equal(b->counter.live, 0);
}

static bool on_event(void *context, const avo_event *told) {
    record *r = context;
    const avo_token_event *event = told->token;
    if (told->kind == AVO_EVENT_PREFILL) {
        r->prefilled = told->done;
        return r->prefill_most == 0 || told->done < r->prefill_most;
    }
    assert_int_equal(told->kind, AVO_EVENT_TOKEN);
    if (event->token < 0)
        return true;
    assert_int_equal(event->index, r->count);
    r->last_allocations = r->bench->counter.allocations;
    if (r->count == 0)
        r->first_allocations = r->last_allocations;
    r->top_count = event->top_count;
    assert_true(event->logprob <= 0.0f);
    r->ids[r->count++] = event->token;
    return r->stop_after == 0 || r->count < r->stop_after;
}

static avo_request request_for(bench *b, record *r) {
    memset(r, 0, sizeof(*r));
    r->bench = b;
    r->sampling = (avo_sampling)AVO_SAMPLING_INIT;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = PROMPT;
    request.max_new_tokens = 20;
    request.ignore_end = true;
    request.sampling = &r->sampling;
    request.on_event = on_event;
    request.on_event_context = r;
    return request;
}

static void run(bench *b, const avo_request *request, avo_result *result) {
    assert_ok_error(avo_generate(b->engine, b->session, request, result, &b->error), &b->error);
}

static void greedy_is_the_largest_logit(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 2, 5);
    record r;
    avo_request request = request_for(&b, &r);
    avo_result result = AVO_RESULT_INIT;
    run(&b, &request, &result);
    assert_int_equal(r.count, 20);
    assert_int_equal(result.new_tokens, 20);
    assert_int_equal(result.prompt_tokens, PROMPT);
    assert_int_equal(result.finish, AVO_FINISH_LENGTH);
    assert_int_equal(r.first_allocations, r.last_allocations);
    /* the same by hand, token by token */
    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(b.model, &info);
    avo_batch *batch;
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    for (size_t i = 0; i < PROMPT + 19; i++) {
        int32_t token = i < PROMPT ? prompt[i] : r.ids[i - PROMPT];
        avo_batch_clear(batch);
        assert_ok(avo_batch_add(batch, b.session, &token, 1));
        assert_ok(avo_step(b.engine, batch));
        if (i + 1 < PROMPT)
            continue;
        const float *logits = avo_batch_logits(batch, b.session, 0);
        int32_t best = 0;
        for (uint32_t id = 1; id < info.vocabulary; id++)
            best = logits[id] > logits[best] ? (int32_t)id : best;
        assert_int_equal(best, r.ids[i + 1 - PROMPT]);
    }
    avo_batch_close(batch);
    bench_close(&b);
}

/* Same seed, same ids: whatever the threads and however the prompt was cut. */
static void sampled_ids_depend_on_the_seed_alone(void **state) {
    (void)state;
    record first, r;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        bench b;
        bench_open(&b, threads, threads * 4);
        avo_request request = request_for(&b, &r);
        r.sampling.temperature = 1.5f;
        r.sampling.top_p = 0.95f;
        r.sampling.seed = 42;
        r.sampling.top_logprobs = 3;
        avo_result result = AVO_RESULT_INIT;
        run(&b, &request, &result);
        assert_int_equal(r.top_count, 3);
        if (threads == 1)
            first = r;
        assert_memory_equal(first.ids, r.ids, sizeof(first.ids));
        assert_ok(avo_session_truncate(b.session, 0, &b.error));
        request = request_for(&b, &r);
        r.sampling.temperature = 1.5f;
        r.sampling.seed = 43;
        run(&b, &request, &result);
        assert_memory_not_equal(first.ids, r.ids, sizeof(first.ids));
        bench_close(&b);
    }
}

static void ends_are_named(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 16);
    record greedy, r;
    avo_request request = request_for(&b, &greedy);
    avo_result result = AVO_RESULT_INIT;
    run(&b, &request, &result);

    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    request = request_for(&b, &r);
    int32_t stops[] = {greedy.ids[4]};
    request.stop_tokens = stops;
    request.stop_token_count = 1;
    run(&b, &request, &result);
    assert_int_equal(result.finish, AVO_FINISH_STOP_TOKEN);
    assert_int_equal(result.stop_token, stops[0]);
    assert_int_equal(result.stop_index, 0);
    assert_true(r.count <= 5);
    assert_int_equal(r.ids[r.count - 1], stops[0]);

    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    request = request_for(&b, &r);
    r.stop_after = 3;
    run(&b, &request, &result);
    assert_int_equal(result.finish, AVO_FINISH_CANCELLED);
    assert_int_equal(result.stop_token, -1);
    assert_int_equal(r.count, 3);

    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    request = request_for(&b, &r);
    request.max_new_tokens = 0;
    run(&b, &request, &result);
    assert_int_equal(result.finish, AVO_FINISH_CONTEXT);
    assert_int_equal(r.count, 48 - PROMPT + 1);
    bench_close(&b);
}

/* Two calls on one session give what one call with everything gives. */
static void a_session_goes_on(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 2, 16);
    record whole, part;
    avo_request request = request_for(&b, &whole);
    avo_result result = AVO_RESULT_INIT;
    request.max_new_tokens = 6;
    run(&b, &request, &result);
    static const int32_t more[] = {3, 17, 9};
    request = request_for(&b, &part);
    request.tokens = more;
    request.token_count = 3;
    request.max_new_tokens = 5;
    run(&b, &request, &result);
    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    int32_t all[PROMPT + 9];
    memcpy(all, prompt, sizeof(prompt));
    memcpy(all + PROMPT, whole.ids, 6 * sizeof(int32_t));
    memcpy(all + PROMPT + 6, more, sizeof(more));
    request = request_for(&b, &whole);
    request.tokens = all;
    request.token_count = PROMPT + 9;
    request.max_new_tokens = 5;
    run(&b, &request, &result);
    assert_memory_equal(whole.ids, part.ids, 5 * sizeof(int32_t));
    bench_close(&b);
}

/* Without tokens a generation goes on where the last one ended. */
static void an_answer_goes_on(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 16);
    record whole, first, second;
    avo_result result = AVO_RESULT_INIT;
    avo_request request = request_for(&b, &whole);
    run(&b, &request, &result);
    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    request = request_for(&b, &first);
    request.max_new_tokens = 12;
    run(&b, &request, &result);
    request = request_for(&b, &second);
    request.tokens = NULL;
    request.token_count = 0;
    request.max_new_tokens = 8;
    run(&b, &request, &result);
    assert_memory_equal(whole.ids, first.ids, 12 * sizeof(int32_t));
    assert_memory_equal(whole.ids + 12, second.ids, 8 * sizeof(int32_t));
    bench_close(&b);
}

/* A batch after a generation computes the answer's last token first. */
static void batch_and_generation_share_a_timeline(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 2, 16);
    record r;
    avo_request request = request_for(&b, &r);
    avo_result result = AVO_RESULT_INIT;
    request.token_count = 4;
    request.max_new_tokens = 3;
    run(&b, &request, &result);
    assert_int_equal(avo_session_length(b.session), 7);
    static const int32_t more[] = {3, 17};
    avo_batch *batch;
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    assert_ok(avo_batch_add(batch, b.session, more, 2));
    assert_ok(avo_step(b.engine, batch));
    assert_int_equal(avo_session_length(b.session), 9);
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(b.model, &info);
    size_t bytes = info.vocabulary * sizeof(float);
    float *logits = malloc(bytes);
    memcpy(logits, avo_batch_logits(batch, b.session, 0), bytes);
    int32_t all[9];
    memcpy(all, prompt, 4 * sizeof(int32_t));
    memcpy(all + 4, r.ids, 3 * sizeof(int32_t));
    memcpy(all + 7, more, sizeof(more));
    avo_batch_clear(batch);
    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    assert_ok(avo_batch_add(batch, b.session, all, 9));
    assert_ok(avo_step(b.engine, batch));
    assert_memory_equal(logits, avo_batch_logits(batch, b.session, 0), bytes);
    free(logits);
    avo_batch_close(batch);
    bench_close(&b);
}

static void prefill_can_be_cancelled(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 4);
    record r;
    avo_request request = request_for(&b, &r);
    avo_result result = AVO_RESULT_INIT;
    r.prefill_most = 8;
    run(&b, &request, &result);
    assert_int_equal(result.finish, AVO_FINISH_CANCELLED);
    assert_int_equal(r.prefilled, 8);
    assert_int_equal(r.count, 0);
    assert_int_equal(avo_session_length(b.session), 8);
    bench_close(&b);
}

/* A second answer with the same seed draws other numbers: draws are keyed by position. */
static void turns_do_not_repeat_their_draws(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 16);
    record whole, first, second;
    avo_result result = AVO_RESULT_INIT;
    avo_request request = request_for(&b, &whole);
    whole.sampling.temperature = 1.5f;
    whole.sampling.seed = 5;
    request.max_new_tokens = 9;
    run(&b, &request, &result);
    /* the same in two calls: the second goes on where the first ended */
    assert_ok(avo_session_truncate(b.session, 0, &b.error));
    request = request_for(&b, &first);
    first.sampling = whole.sampling;
    request.max_new_tokens = 4;
    run(&b, &request, &result);
    assert_ok(avo_session_truncate(b.session, PROMPT + 3, &b.error));
    request = request_for(&b, &second);
    second.sampling = whole.sampling;
    request.tokens = whole.ids + 3;
    request.token_count = 1;
    request.max_new_tokens = 5;
    run(&b, &request, &result);
    assert_memory_equal(whole.ids, first.ids, 4 * sizeof(int32_t));
    assert_memory_equal(whole.ids + 4, second.ids, 5 * sizeof(int32_t));
    bench_close(&b);
}

static void bad_requests_are_refused(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 16);
    record r;
    avo_result result = AVO_RESULT_INIT;
    avo_request request = request_for(&b, &r);
    request.token_count = 0;
    assert_refused(avo_generate(b.engine, b.session, &request, &result, &b.error),
                   AVO_ERROR_ARGUMENT, &b.error, "empty");
    int32_t many[60] = {0};
    request = request_for(&b, &r);
    request.tokens = many;
    request.token_count = 60;
    assert_refused(avo_generate(b.engine, b.session, &request, &result, &b.error),
                   AVO_ERROR_CONTEXT, &b.error, "61");
    assert_non_null(strstr(b.error.text, "48"));
    request = request_for(&b, &r);
    r.sampling.temperature = -1.0f;
    assert_refused(avo_generate(b.engine, b.session, &request, &result, &b.error),
                   AVO_ERROR_ARGUMENT, &b.error, "temperature");
    const char *stop = "x";
    request = request_for(&b, &r);
    request.stop = &stop;
    request.stop_count = 1;
    assert_refused(avo_generate(b.engine, b.session, &request, &result, &b.error),
                   AVO_ERROR_UNSUPPORTED, &b.error, "tokenizer");
    assert_int_equal(avo_session_length(b.session), 0);
    bench_close(&b);
}

static bool refuse_at_two(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)total;
    *(uint64_t *)context = done;
    return done < 2;
}

static void opening_can_be_cancelled(void **state) {
    (void)state;
    uint64_t seen = 0;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.progress = refuse_at_two;
    options.progress_context = &seen;
    avo_model *model;
    avo_error error = {0};
    assert_refused(
        avo_model_open(test_fixture_path("models/llama3.gguf"), &options, &model, &error),
        AVO_ERROR_CANCELLED, &error, "cancelled");
    assert_int_equal(seen, 2);
    assert_null(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_the_largest_logit),
        cmocka_unit_test(sampled_ids_depend_on_the_seed_alone),
        cmocka_unit_test(ends_are_named),
        cmocka_unit_test(a_session_goes_on),
        cmocka_unit_test(an_answer_goes_on),
        cmocka_unit_test(batch_and_generation_share_a_timeline),
        cmocka_unit_test(prefill_can_be_cancelled),
        cmocka_unit_test(turns_do_not_repeat_their_draws),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(opening_can_be_cancelled),
    };
    return cmocka_run_group_tests_name("engine/generate", tests, NULL, NULL);
}
