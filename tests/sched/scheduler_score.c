/* AVO_TEST_THREADS
 * Prompts that are scored and embedded by the scheduler: whatever runs beside them, however they
 * are cut, preempted or cached, the bits are those of the prompt alone, every token of it is told
 * once, in order, before the answer, and the answer is what it is without all that. */
#include "sched/serving.h"

#include "support/adapters.h"

#include <math.h>

/* What is asked of each question of an exam. */
typedef struct wish {
    bool logprobs, no_answer;
    avo_pooling pooling;
    size_t
        from; /* logprobs of prompt tokens from here on, or of the last one of a shorter prompt */
} wish;

static wish wish_of(size_t i) {
    static const wish wishes[] = {
        {true, false, AVO_POOLING_NONE, 0},  {false, true, AVO_POOLING_MEAN, 0},
        {true, true, AVO_POOLING_NONE, 0},   {false, true, AVO_POOLING_LAST, 0},
        {false, false, AVO_POOLING_NONE, 0}, {true, true, AVO_POOLING_MEAN, 7},
        {true, true, AVO_POOLING_LAST, 60},  {false, true, AVO_POOLING_NONE, 0},
        {true, false, AVO_POOLING_NONE, 33}, {true, true, AVO_POOLING_NONE, 1},
        {true, true, AVO_POOLING_NONE, 95}};
    return wishes[i % 11];
}

static size_t from_of(const question *q, wish wish) {
    return wish.from < q->token_count ? wish.from : q->token_count > 0 ? q->token_count - 1 : 0;
}

/* ---- Alone: by the batch's own functions, the whole prompt in one step ---- */

typedef struct truth {
    float logprob[PROMPT_MAX];
    avo_logprob top[PROMPT_MAX][3];
    float mean[EMBEDDING_MAX], last[EMBEDDING_MAX];
    uint32_t width;
} truth;

static void pool_alone(truth *t, const float *hidden, size_t count) {
    for (uint32_t i = 0; i < t->width; i++) {
        double sum = 0.0;
        for (size_t row = 0; row < count; row++)
            sum += (double)hidden[row * t->width + i];
        t->mean[i] = (float)(sum / (double)count);
        t->last[i] = hidden[(count - 1) * t->width + i];
    }
}

static void score_alone(world *w, const question *q, truth *t) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(w->model, &info);
    t->width = info.width;
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = q->uses;
    options.adapter_count = q->use_count;
    avo_session *session;
    avo_batch *batch;
    assert_ok(avo_session_open(w->alone, &options, &session, NULL));
    assert_ok(avo_batch_open(w->alone, &batch, NULL));
    assert_ok(avo_batch_add_scored(batch, session, q->tokens, q->token_count, 0));
    assert_ok(avo_step(w->alone, batch));
    const float *hidden = avo_batch_hidden(batch, session, 0, q->token_count);
    assert_non_null(hidden);
    pool_alone(t, hidden, q->token_count);
    t->logprob[0] = NAN;
    assert_ok(avo_batch_score(batch, session, 0, q->token_count - 1, q->tokens + 1, 3,
                              t->logprob + 1, t->top[1]));
    avo_batch_close(batch);
    avo_session_close(session);
}

/* ---- The same ---- */

static void same_prompt(const question *q, size_t from, const seen *s, const truth *t) {
    assert_int_equal(s->prompt_count, q->token_count - from);
    for (size_t i = from; i < q->token_count; i++) {
        const seen_token *told = &s->prompt[i - from];
        uint32_t wanted = i == 0 ? 0 : q->sampling.top_logprobs;
        assert_int_equal(told->token, q->tokens[i]);
        assert_int_equal(told->top_count, wanted);
        assert_memory_equal(told->top, t->top[i], wanted * sizeof(avo_logprob));
        if (i == 0)
            assert_true(isnan(told->logprob));
        else if (memcmp(&told->logprob, &t->logprob[i], sizeof(float)) != 0)
            fail_msg("token %zu of %zu: %a, and %a alone", i, q->token_count, (double)told->logprob,
                     (double)t->logprob[i]);
    }
}

static void same_as_wished(const question *q, wish wish, const seen *s, const seen *alone,
                           const truth *t) {
    if (s->error.status != AVO_OK)
        fail_msg("failed: %s", s->error.text);
    assert_int_equal(atomic_load(&s->ended), 1);
    if (!wish.no_answer)
        same_answer(s, alone);
    if (wish.no_answer) {
        assert_int_equal(s->finish, AVO_FINISH_LENGTH);
        assert_int_equal(s->count, 0);
        assert_int_equal(s->new_tokens, 0);
        assert_int_equal(s->prompt_tokens, q->token_count);
    }
    if (wish.logprobs)
        same_prompt(q, from_of(q, wish), s, t);
    else
        assert_int_equal(s->prompt_count, 0);
    assert_int_equal(s->embedding_width, wish.pooling == AVO_POOLING_NONE ? 0 : t->width);
    if (wish.pooling != AVO_POOLING_NONE)
        assert_memory_equal(s->embedding, wish.pooling == AVO_POOLING_MEAN ? t->mean : t->last,
                            t->width * sizeof(float));
    if (wish.pooling == AVO_POOLING_MEAN)
        assert_int_equal(s->result.reused_tokens, 0);
    if (wish.logprobs)
        assert_true(s->result.reused_tokens == 0 || s->result.reused_tokens < from_of(q, wish));
}

static avo_request wished(const question *q, wish wish, seen *seen) {
    avo_request request = request_of(q, seen);
    if (seen != NULL) {
        seen->takes_prompt = wish.logprobs;
        seen->prompt_from = from_of(q, wish);
    }
    request.prompt_logprobs = wish.logprobs;
    request.prompt_logprobs_from = wish.logprobs ? from_of(q, wish) : 0;
    request.no_answer = wish.no_answer;
    request.pooling = wish.pooling;
    return request;
}

/* Long answers that take pages from prompts which are scored meanwhile. */
static wish crowding_wish_of(size_t i) {
    return i % 2 == 0 ? (wish){true, false, AVO_POOLING_NONE, i % 3 * 20} : wish_of(i);
}

static void same_in(const world_options *options, size_t count, uint64_t seed,
                    wish (*wish_of)(size_t i), avo_scheduler_info *info) {
    world w;
    world_open(&w, options);
    avo_adapter *adapter = test_adapter_make(
        w.model, &(adapter_random_options){3, 4, TEST_MATRICES_ALL, 0, QUANT_F32, 0.5f});
    exam e = exam_make(&w, count, seed);
    truth *truths = calloc(count, sizeof(truth));
    assert_non_null(truths);
    for (size_t i = 0; i < count; i++) {
        if (i % 5 == 4) {
            e.q[i].uses[0] = (avo_adapter_use){adapter, 1.0f};
            e.q[i].use_count = 1;
        }
        score_alone(&w, &e.q[i], &truths[i]);
    }
    exam_alone(&w, &e);
    for (size_t i = 0; i < count; i++) {
        avo_request request = wished(&e.q[i], wish_of(i), &e.seen[i]);
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                        &w.error);
    }
    atomic_store(&w.submitted, 1);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < count; i++)
        same_as_wished(&e.q[i], wish_of(i), &e.seen[i], &e.alone[i], &truths[i]);
    *info = info_of(&w);
    assert_int_equal(info->finished, count);
    assert_int_equal(info->waiting_tokens, 0);
    free(truths);
    exam_free(&e);
    avo_adapter_close(adapter);
    world_close(&w);
}

static void the_same_bits_as_alone(void **state) {
    (void)state;
    avo_scheduler_info info;
    world_options options = WORLD_OPTIONS;
    same_in(&options, FEWER(96), 1, wish_of, &info);
    options.isa = "ref";
    same_in(&options, FEWER(24), 2, wish_of, &info);
}

static void however_steps_are_cut(void **state) {
    (void)state;
    const double targets[] = {-1.0, 1e-7, 0.001};
    for (size_t i = 0; i < 3; i++)
        for (int cached = 0; cached < 2; cached++) {
            avo_scheduler_info info;
            world_options options = WORLD_OPTIONS;
            options.rows = i == 0 ? 200 : 7;
            options.threads = 1 + (uint32_t)i;
            options.scheduler.token_seconds = targets[i];
            options.scheduler.no_prefix_cache = cached == 0;
            same_in(&options, FEWER(48), 10 + i, wish_of, &info);
        }
}

/* Preempted in the middle of a prompt, too: what was told is not told again. */
static void pool_oversubscribed(void **state) {
    (void)state;
    uint64_t preemptions = 0, recomputed = 0;
    for (uint64_t seed = 30; seed < 33 || (recomputed == 0 && seed < 60); seed++) {
        avo_scheduler_info info;
        world_options options = WORLD_OPTIONS;
        options.sessions = 8;
        options.rows = 40;
        options.kv_tokens = TINY_CONTEXT + 64;
        options.scheduler.no_prefix_cache = seed % 2 == 1;
        options.crowded = true;
        same_in(&options, FEWER(64), seed, crowding_wish_of, &info);
        preemptions += info.preemptions;
        recomputed += info.recomputed_tokens;
    }
    assert_true(preemptions > 0 && recomputed > 0);
}

/* ---- A batch ---- */

static bool on_batch_event(void *context, const avo_event *event) {
    exam *e = context;
    return on_event(&e->seen[event->index], event);
}

static void in_a_batch(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 16, 90);
    truth *truths = calloc(16, sizeof(truth));
    assert_non_null(truths);
    avo_request requests[16];
    exam_alone(&w, &e);
    for (size_t i = 0; i < 16; i++) {
        score_alone(&w, &e.q[i], &truths[i]);
        requests[i] = wished(&e.q[i], wish_of(i), &e.seen[i]);
    }
    assert_ok_error(
        avo_scheduler_batch(w.scheduler, requests, 16, NULL, on_batch_event, &e, &w.error),
        &w.error);
    for (size_t i = 0; i < 16; i++)
        same_as_wished(&e.q[i], wish_of(i), &e.seen[i], &e.alone[i], &truths[i]);
    free(truths);
    exam_free(&e);
    world_close(&w);
}

/* ---- Text, length ---- */

static void told_texts_are_the_prompt(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    /* It ends in half a character, which belongs to the last token. */
    const char text[] = "the end of it \xc3\xa4 is \xe2\x82";
    question q = {.stop_token = -1, .sampling = AVO_SAMPLING_INIT};
    seen *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    avo_request request = wished(&q, (wish){true, true, AVO_POOLING_NONE, 0}, s);
    request.tokens = NULL;
    request.token_count = 0;
    request.text = text;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    int32_t ids[PROMPT_MAX];
    size_t count = 0, bytes = 0;
    char whole[256], told[256];
    assert_ok(avo_tokenize(w.model, text, strlen(text), 0, ids, PROMPT_MAX, &count, NULL));
    assert_ok(avo_detokenize(w.model, ids, count, 0, whole, sizeof(whole), &bytes, NULL));
    size_t at = 0;
    assert_int_equal(s->prompt_count, count);
    for (size_t i = 0; i < count; i++) {
        memcpy(told + at, s->prompt[i].text, s->prompt[i].text_bytes);
        at += s->prompt[i].text_bytes;
    }
    assert_int_equal(at, bytes + 1); /* two bytes of a character become U+FFFD, of three */
    assert_memory_equal(told, whole, bytes - 2);
    assert_memory_equal(told + bytes - 2, "\xef\xbf\xbd", 3);
    free(s);
    world_close(&w);
}

/* Without an answer a prompt may fill the context; one token more, or an answer, is too much. */
static void a_prompt_may_fill_the_context(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    int32_t tokens[TINY_CONTEXT + 1];
    for (size_t i = 0; i <= TINY_CONTEXT; i++)
        tokens[i] = (int32_t)(3 + i % 300);
    seen *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = tokens;
    request.token_count = TINY_CONTEXT;
    request.on_event = on_event;
    request.on_event_context = s;
    assert_int_equal(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                     AVO_ERROR_CONTEXT);
    request.no_answer = true;
    request.pooling = AVO_POOLING_LAST;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    request.token_count++;
    assert_int_equal(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                     AVO_ERROR_CONTEXT);
    assert_non_null(strstr(w.error.text, "193 tokens, the context is 192"));
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(s->error.status, AVO_OK);
    assert_int_equal(s->prompt_tokens, TINY_CONTEXT);
    assert_true(s->embedding_width > 0);
    assert_int_equal(info_of(&w).new_tokens, 0);
    free(s);
    world_close(&w);
}

/* ---- The prefix cache ---- */

/* The last token's state may rest on cached pages; a mean, and logprobs, may not. */
static void what_is_reused(void **state) {
    (void)state;
    static const wish wishes[] = {
        {false, true, AVO_POOLING_NONE, 0}, {false, true, AVO_POOLING_LAST, 0},
        {false, true, AVO_POOLING_MEAN, 0}, {true, true, AVO_POOLING_NONE, 0},
        {true, true, AVO_POOLING_NONE, 32}, {true, true, AVO_POOLING_NONE, 33},
        {true, true, AVO_POOLING_NONE, 79}, {true, true, AVO_POOLING_MEAN, 79}};
    static const uint32_t reused[] = {0, 64, 0, 0, 0, 32, 64, 0};
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 8, 100);
    truth truth = {0};
    for (size_t i = 0; i < 8; i++) {
        e.q[i].token_count = 80;
        for (size_t n = 0; n < 80; n++)
            e.q[i].tokens[n] = (int32_t)(9 + n);
        e.q[i].salt = NULL;
        if (i == 0)
            score_alone(&w, &e.q[0], &truth);
        avo_request request = wished(&e.q[i], wishes[i], &e.seen[i]);
        assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
        while (atomic_load(&e.seen[i].ended) == 0)
            pause_ms(1);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(e.seen[i].result.reused_tokens, reused[i]);
        if (wishes[i].logprobs)
            same_prompt(&e.q[i], wishes[i].from, &e.seen[i], &truth);
    }
    assert_memory_equal(e.seen[1].embedding, truth.last, truth.width * sizeof(float));
    assert_memory_equal(e.seen[2].embedding, truth.mean, truth.width * sizeof(float));
    exam_free(&e);
    world_close(&w);
}

/* ---- Ends ---- */

static void the_listener_may_say_no(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.rows = 6;
    world_open(&w, &options);
    exam e = exam_make(&w, 24, 110);
    for (size_t i = 0; i < e.count; i++) {
        wish wish = {true, i % 2 == 0, i % 2 == 0 ? AVO_POOLING_MEAN : AVO_POOLING_NONE, 0};
        e.seen[i].refuse_prompt_after = 1 + i % 9;
        e.q[i].token_count = 10 + i;
        avo_request request = wished(&e.q[i], wish, &e.seen[i]);
        assert_ok(avo_scheduler_submit(w.scheduler, &request, &e.number[i], NULL, &w.error));
    }
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        assert_int_equal(atomic_load(&e.seen[i].ended), 1);
        assert_int_equal(e.seen[i].finish, AVO_FINISH_CANCELLED);
        assert_int_equal(e.seen[i].prompt_count, 1 + i % 9);
        assert_int_equal(e.seen[i].count, 0);
        assert_int_equal(e.seen[i].embedding_width, 0);
    }
    exam_free(&e);
    world_close(&w);
}

static void cancelled_at_any_time(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.rows = 6;
    world_open(&w, &options);
    exam e = exam_make(&w, FEWER(48), 120);
    for (size_t i = 0; i < e.count; i++) {
        avo_request request = wished(&e.q[i], wish_of(i), &e.seen[i]);
        assert_ok(avo_scheduler_submit(w.scheduler, &request, &e.number[i], NULL, &w.error));
    }
    for (size_t i = 0; i < e.count; i++) {
        if (i % 4 == 0)
            pause_ms(1);
        (void)avo_scheduler_cancel(w.scheduler, e.number[i]);
    }
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        assert_int_equal(atomic_load(&e.seen[i].ended), 1);
        assert_true(e.seen[i].finish != AVO_FINISH_CANCELLED || e.seen[i].embedding_width == 0);
    }
    exam_free(&e);
    world_close(&w);
}

static void refuse(world *w, const avo_request *request, const char *why) {
    assert_int_equal(avo_scheduler_submit(w->scheduler, request, NULL, NULL, &w->error),
                     AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(w->error.text, why));
}

static void wrong_wishes_are_refused(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    question q = {.token_count = 4, .stop_token = -1, .sampling = AVO_SAMPLING_INIT};
    seen *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    avo_request request = request_of(&q, s);
    request.pooling = AVO_POOLING_MEAN;
    refuse(&w, &request, "needs no_answer");
    request.no_answer = true;
    request.pooling = (avo_pooling)3;
    refuse(&w, &request, "unknown pooling 3");
    request.pooling = AVO_POOLING_LAST;
    request.prompt_logprobs_from = 1;
    refuse(&w, &request, "prompt_logprobs_from is 1, needs prompt_logprobs");
    request.prompt_logprobs_from = 0;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    seen *late = calloc(1, sizeof(*late)); /* known once the prompt is prepared */
    assert_non_null(late);
    request = wished(&q, (wish){true, true, AVO_POOLING_NONE, 0}, late);
    request.prompt_logprobs_from = 4;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(late->error.status, AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(late->error.text,
                           "prompt_logprobs_from is 4, must be less than the prompt's tokens (4)"));
    free(late);
    free(s);
    world_close(&w);
}

/* ---- Memory ---- */

typedef struct frugal_scored {
    world *world;
    size_t first, last; /* allocations when these tokens of the prompt came */
    uint32_t tokens;
} frugal_scored;

static bool on_scored_event(void *context, const avo_event *event) {
    frugal_scored *f = context;
    if (event->kind != AVO_EVENT_PROMPT)
        return true;
    pthread_mutex_lock(&f->world->counting.lock);
    f->last = f->world->counting.counter.allocations;
    pthread_mutex_unlock(&f->world->counting.lock);
    if (f->tokens++ == 0)
        f->first = f->last;
    return true;
}

static void steps_allocate_nothing(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.rows = 8;
    options.scheduler.tokenizer_threads = 1; /* another might begin late, and allocates then */
    world_open(&w, &options);
    frugal_scored f = {.world = &w};
    int32_t tokens[TINY_CONTEXT];
    for (size_t i = 0; i < TINY_CONTEXT; i++)
        tokens[i] = (int32_t)(3 + i % 300);
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.top_logprobs = 5;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = tokens;
    request.token_count = TINY_CONTEXT;
    request.sampling = &sampling;
    request.prompt_logprobs = request.no_answer = true;
    request.pooling = AVO_POOLING_MEAN;
    request.on_event = on_scored_event;
    request.on_event_context = &f;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(f.tokens, TINY_CONTEXT);
    assert_int_equal(f.last, f.first);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits_as_alone),
                                       cmocka_unit_test(however_steps_are_cut),
                                       cmocka_unit_test(pool_oversubscribed),
                                       cmocka_unit_test(in_a_batch),
                                       cmocka_unit_test(told_texts_are_the_prompt),
                                       cmocka_unit_test(a_prompt_may_fill_the_context),
                                       cmocka_unit_test(what_is_reused),
                                       cmocka_unit_test(the_listener_may_say_no),
                                       cmocka_unit_test(cancelled_at_any_time),
                                       cmocka_unit_test(wrong_wishes_are_refused),
                                       cmocka_unit_test(steps_allocate_nothing)};
    return cmocka_run_group_tests_name("sched/scheduler_score", tests, NULL, NULL);
}
