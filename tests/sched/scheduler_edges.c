/* sched/scheduler at its edges: closed while others are inside, engines and requests that are not
 * as they should be, deadlines before the cost model knows anything and beside the prefix cache.
 * AVO_TEST_THREADS */
#include "sched/serving.h"

#include "base/value.h"
#include "support/adapters.h"

static void wait_for(atomic_int *number, int least) {
    while (atomic_load(number) < least)
        pause_ms(1);
}

/* ---- Closing while calls are inside ---- */

typedef struct caller {
    world *world;
    exam *exam;
    size_t first, count;
    atomic_int *begun; /* callers whose first token has come */
    bool heard;
    avo_status status;
} caller;

static bool on_batch_event(void *context, const avo_event *event) {
    caller *c = context;
    if (!c->heard)
        atomic_fetch_add(c->begun, 1);
    c->heard = true;
    return on_event(&c->exam->seen[c->first + event->index], event);
}

static void *call_batch(void *context) {
    caller *c = context;
    avo_error error = {0};
    avo_request requests[30];
    for (size_t i = 0; i < c->count; i++)
        requests[i] = request_of(&c->exam->q[c->first + i], NULL);
    c->status = avo_scheduler_batch(c->world->scheduler, requests, c->count, NULL, on_batch_event,
                                    c, &error);
    return NULL;
}

/* Batches that wait for room, and for their answers: they return, everything has ended once, and
 * what did not finish was cancelled. */
static void closed_while_batches_wait(void **state) {
    (void)state;
    enum { CALLERS = 3, EACH = 30 };
    size_t cancelled = 0;
    for (int round = 0; round < 4 || cancelled == 0; round++) {
        world w;
        world_options options = WORLD_OPTIONS;
        options.scheduler.running_max = 2;
        options.scheduler.waiting_max = 3;
        world_open(&w, &options);
        exam e = exam_make(&w, CALLERS * EACH, 200);
        pthread_t thread[CALLERS];
        caller c[CALLERS];
        atomic_int begun = 0;
        for (size_t i = 0; i < CALLERS; i++) {
            c[i] = (caller){&w, &e, i * EACH, EACH, &begun, false, AVO_ERROR_LIMIT};
            assert_int_equal(pthread_create(&thread[i], NULL, call_batch, &c[i]), 0);
        }
        wait_for(&begun, CALLERS);
        pause_ms(round % 4);
        avo_scheduler_close(w.scheduler);
        w.scheduler = NULL;
        for (size_t i = 0; i < CALLERS; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(c[i].status, AVO_OK);
        }
        for (size_t i = 0; i < e.count; i++) {
            assert_int_equal(atomic_load(&e.seen[i].ended), 1);
            assert_int_equal(e.seen[i].error.status, AVO_OK);
            cancelled += e.seen[i].finish == AVO_FINISH_CANCELLED;
        }
        exam_free(&e);
        world_close(&w);
    }
}

typedef struct lone_caller {
    world *world;
    const avo_request *request;
    atomic_int *begun;
    avo_status status;
    bool empty;
} lone_caller;

static void *call_submit(void *context) {
    lone_caller *c = context;
    avo_error error = {0};
    closes_first = c->world->scheduler;
    c->status = avo_scheduler_submit(c->world->scheduler, c->request, NULL, NULL, &error);
    return NULL;
}

static void *call_drain(void *context) {
    lone_caller *c = context;
    c->empty = avo_scheduler_drain(c->world->scheduler, PATIENCE);
    return NULL;
}

/* A submission that has its room and is just being copied. */
static void closed_while_a_request_is_copied(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 1, 210);
    avo_request request = request_of(&e.q[0], &e.seen[0]);
    lone_caller c = {.world = &w, .request = &request, .status = AVO_ERROR_LIMIT};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_submit, &c), 0);
    wait_for(&w.counting.held, 1);
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    pthread_join(thread, NULL);
    assert_int_equal(c.status, AVO_OK);
    assert_int_equal(atomic_load(&e.seen[0].ended), 1);
    assert_int_equal(e.seen[0].finish, AVO_FINISH_CANCELLED);
    exam_free(&e);
    world_close(&w);
}

static void closed_while_another_drains(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.running_max = 1;
    world_open(&w, &options);
    exam e = exam_make(&w, 40, 220);
    exam_submit(&w, &e);
    lone_caller c = {.world = &w};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_drain, &c), 0);
    for (bool inside = false; !inside; pause_ms(1)) {
        pthread_mutex_lock(&w.scheduler->lock);
        inside = w.scheduler->inside > 0;
        pthread_mutex_unlock(&w.scheduler->lock);
    }
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    pthread_join(thread, NULL);
    assert_true(c.empty);
    for (size_t i = 0; i < e.count; i++)
        assert_int_equal(atomic_load(&e.seen[i].ended), 1);
    exam_free(&e);
    world_close(&w);
}

/* ---- A drain that has to wait ---- */

typedef struct gate {
    seen seen;
    atomic_int entered, open;
} gate;

static bool on_gated_event(void *context, const avo_event *event) {
    gate *g = context;
    atomic_store(&g->entered, 1);
    wait_for(&g->open, 1);
    return on_event(&g->seen, event);
}

/* A listener that does not return keeps its request alive, and drain says so. */
static void a_drain_says_what_is_left(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 1, 230);
    exam_alone(&w, &e);
    gate *g = calloc(1, sizeof(*g));
    assert_non_null(g);
    avo_request request = request_of(&e.q[0], NULL);
    request.on_event = on_gated_event;
    request.on_event_context = g;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    wait_for(&g->entered, 1);
    assert_false(avo_scheduler_drain(w.scheduler, 0.0));
    assert_false(avo_scheduler_drain(w.scheduler, 0.01));
    atomic_store(&g->open, 1);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    same_answer(&g->seen, &e.alone[0]);
    free(g);
    exam_free(&e);
    world_close(&w);
}

/* ---- What is given ---- */

static void an_engine_with_sessions_is_refused(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_session *session;
    avo_scheduler *scheduler;
    assert_ok_error(avo_session_open(w.alone, NULL, &session, &w.error), &w.error);
    assert_refused(avo_scheduler_open(w.alone, NULL, &scheduler, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "1 sessions of the engine are open");
    assert_null(scheduler);
    avo_session_close(session);
    assert_ok_error(avo_scheduler_open(w.alone, NULL, &scheduler, &w.error), &w.error);
    avo_scheduler_close(scheduler);
    world_close(&w);
}

static void refuse(world *w, const avo_request *request, avo_status status, const char *part) {
    assert_refused(avo_scheduler_submit(w->scheduler, request, NULL, NULL, &w->error), status,
                   &w->error, part);
}

/* Counted, but not there: each is named. */
static void arrays_that_are_missing(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 1, 240);
    e.q[0].stop_count = 0;
    const avo_request good = request_of(&e.q[0], &e.seen[0]);
    avo_request bad = good;
    bad.tokens = NULL;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "tokens is NULL, but");
    bad.text = "beside it";
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "tokens is NULL, but");
    bad = good;
    bad.message_count = 2;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "messages is NULL, but its count is 2");
    bad = good;
    bad.adapters = NULL;
    bad.adapter_count = 1;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "adapters is NULL, but");
    bad = good;
    bad.named_adapter_count = 1;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "named_adapters is NULL, but");
    bad = good;
    bad.stop_count = 1;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "stop is NULL, but");
    const char *missing[2] = {"a", NULL};
    bad.stop = missing;
    bad.stop_count = 2;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "stop string 2 is NULL");
    bad = good;
    bad.stop_tokens = NULL;
    bad.stop_token_count = 3;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "stop_tokens is NULL, but");
    bad = good;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.bias_count = 1;
    bad.sampling = &sampling;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "bias is NULL, but");
    const float weights[] = {-1.0f, 1e-4f, 2e9f, 0.0f / 0.0f, 1.0f / 0.0f};
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        bad = good;
        bad.tenant_weight = weights[i];
        refuse(&w, &bad, AVO_ERROR_ARGUMENT, "tenant_weight ");
    }
    assert_int_equal(info_of(&w).submitted, 0);
    exam_free(&e);
    world_close(&w);
}

/* Arrays with nothing in them beside a text, gone when submission returns. */
static void empty_arrays_beside_a_text(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    const char *text = "once upon a time there is";
    question q = {.max_new_tokens = 8, .stop_token = -1, .sampling = AVO_SAMPLING_INIT};
    assert_ok(avo_tokenize(w.model, text, strlen(text), AVO_TOKENIZE_BEGIN, q.tokens, PROMPT_MAX,
                           &q.token_count, &w.error));
    seen alone = {0}, one = {0};
    generate_alone(&w, &q, &alone);
    int32_t *gone = malloc(sizeof(int32_t));
    avo_message *message = malloc(sizeof(avo_message));
    assert_true(gone != NULL && message != NULL);
    avo_request request = request_of(&q, &one);
    request.tokens = request.stop_tokens = gone;
    request.token_count = 0;
    request.messages = message;
    request.text = text;
    request.text_flags = AVO_TOKENIZE_BEGIN;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    free(gone);
    free(message);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    same_answer(&one, &alone);
    world_close(&w);
}

/* More bytes than the context can take are not even copied. */
static void a_text_that_cannot_fit(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    size_t bytes = w.scheduler->text_max + 1;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'a', bytes);
    text[bytes] = '\0';
    json_value long_text = {.kind = JSON_STRING, .string = {text, bytes}};
    avo_value *variables;
    assert_ok(value_copy(&long_text, NULL, SIZE_MAX, NULL, &variables, NULL));
    size_t before = own_allocations;
    avo_request request = AVO_REQUEST_INIT;
    request.text = text;
    refuse(&w, &request, AVO_ERROR_CONTEXT, "does not fit a context of 192 tokens");
    avo_message messages[2] = {{"user", text + 3}, {"user", "and"}};
    request.text = NULL;
    request.messages = messages;
    request.message_count = 2;
    refuse(&w, &request, AVO_ERROR_CONTEXT, "does not fit a context of 192 tokens");
    messages[0].content = "short";
    avo_chat_options chat = AVO_CHAT_OPTIONS_INIT;
    chat.variables = variables;
    request.chat = &chat;
    refuse(&w, &request, AVO_ERROR_CONTEXT, "does not fit a context of 192 tokens");
    assert_int_equal(own_allocations, before);
    avo_value_close(variables);
    seen longest = {0};
    request = (avo_request)AVO_REQUEST_INIT;
    request.text = text + 1; /* taken, and too long once it is tokenised */
    request.on_event = on_event;
    request.on_event_context = &longest;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(longest.error.status, AVO_ERROR_CONTEXT);
    free(text);
    world_close(&w);
}

/* ---- What a conversation is charged ---- */

static uint64_t charge_of(world *w, const char *content, const char *variables) {
    avo_message message = {"user", content};
    avo_chat_options chat = AVO_CHAT_OPTIONS_INIT;
    if (variables != NULL)
        assert_ok(avo_value_open(variables, strlen(variables), NULL, &chat.variables, NULL));
    avo_request request = AVO_REQUEST_INIT;
    request.messages = &message;
    request.message_count = 1;
    request.chat = &chat;
    request.max_new_tokens = 1;
    uint64_t charge = scheduler_charge(w->scheduler, &request) - 1;
    avo_value_close(chat.variables);
    return charge;
}

/* Variables stand beside the messages, unless they bring their own. */
static void variables_are_charged(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    char content[81];
    memset(content, 'a', 80);
    content[80] = '\0';
    uint64_t alone = charge_of(&w, content, NULL);
    assert_int_equal(alone, 80 / SCHEDULER_BYTES_PER_TOKEN + 1);
    static const struct {
        const char *variables;
        size_t bytes; /* of its strings and keys */
        bool replaces;
    } rows[] = {
        {"{\"tools\":[{\"name\":\"something long enough to count\"}]}", 5 + 4 + 30, false},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"another\"}]}", 8 + 4 + 4 + 7 + 7, true},
        {" { \"a\" : [1, {\"b\": \"}\\\"]\"}] , \"messages\" : []}", 1 + 1 + 3 + 8, true},
        {"{\"tools\":[{\"messages\":[\"inside, where it means nothing\"]}]}", 5 + 8 + 30, false},
        {"{\"note\":\"messages\"}", 4 + 8, false},
        {"[\"messages\"]", 8, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t bytes = rows[i].bytes + (rows[i].replaces ? 0 : 80);
        assert_int_equal(charge_of(&w, content, rows[i].variables),
                         bytes / SCHEDULER_BYTES_PER_TOKEN + 1);
    }
    world_close(&w);
}

/* ---- Deadlines and what steps are thought to cost ---- */

static void set_cost(world *w, double ns) {
    pthread_mutex_lock(&w->scheduler->lock);
    step_cost *cost = sched_cost_model(w->scheduler->core, SCHED_BOTH);
    *cost = (step_cost){0};
    step_cost_line(cost, ns, ns, ns);
    pthread_mutex_unlock(&w->scheduler->lock);
}

static void ask(world *w, const question *q, seen *seen, double deadline) {
    avo_request request = request_of(q, seen);
    request.first_token_deadline = deadline;
    assert_ok_error(avo_scheduler_submit(w->scheduler, &request, NULL, NULL, &w->error), &w->error);
    wait_for(&seen->ended, 1);
}

static question plain_question(size_t tokens) {
    question q = {.token_count = tokens,
                  .max_new_tokens = 12,
                  .stop_token = -1,
                  .ignore_end = true,
                  .sampling = AVO_SAMPLING_INIT};
    for (size_t i = 0; i < tokens; i++)
        q.tokens[i] = (int32_t)(5 + i * 3 % 300);
    return q;
}

/* A guess refuses nothing; what was learned does, but not for what the prefix cache has. */
static void deadlines_know_the_prefix_cache(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    question q = plain_question(70);
    seen first = {0}, cached = {0}, salted = {0};
    set_cost(&w, 1e12);
    ask(&w, &q, &first, 600.0);
    assert_int_equal(first.error.status, AVO_OK);
    assert_int_equal(first.finish, AVO_FINISH_LENGTH);
    assert_true(info_of(&w).steps >= SCHEDULER_TRUST_STEPS);
    set_cost(&w, 1e9); /* a second for each row: 6 of the 70 are not in the cache */
    ask(&w, &q, &cached, 40.0);
    assert_int_equal(cached.error.status, AVO_OK);
    assert_int_equal(cached.finish, AVO_FINISH_LENGTH);
    assert_int_equal(cached.result.reused_tokens, 64);
    set_cost(&w, 1e9);
    q.salt = "another";
    ask(&w, &q, &salted, 40.0);
    assert_int_equal(salted.error.status, AVO_ERROR_DEADLINE);
    world_close(&w);
}

/* What is late before it is tokenised, or by then, ends like what is late afterwards. */
static void a_deadline_that_passes_while_a_text_waits(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    question q = plain_question(30);
    seen first = {0}, whole = {0};
    ask(&w, &q, &first, 1e-9);
    assert_int_equal(first.error.status, AVO_OK);
    assert_int_equal(first.finish, AVO_FINISH_DEADLINE);
    avo_request request = request_of(&q, &whole);
    request.deadline = 1e-9;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    wait_for(&whole.ended, 1);
    assert_int_equal(whole.finish, AVO_FINISH_DEADLINE);
    assert_int_equal(whole.tokens, 0);
    assert_int_equal(info_of(&w).expired, 2);
    assert_int_equal(info_of(&w).steps, 0);
    world_close(&w);
}

/* ---- What is told, and adapters in turns ---- */

static void pages_and_prefixes_are_told(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_kv_info kv = AVO_KV_INFO_INIT;
    avo_engine_kv(w.engine, &kv);
    assert_int_equal(info_of(&w).pages_free, kv.pages);
    question q = plain_question(70);
    seen one = {0}, two = {0};
    ask(&w, &q, &one, 0.0);
    ask(&w, &q, &two, 0.0);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    avo_scheduler_info info = info_of(&w);
    assert_int_equal(info.pages_used, 0);
    assert_int_equal(info.pages_cached, 2); /* of 32 tokens; the answer does not fill a third */
    assert_int_equal(info.pages_free, kv.pages - 2);
    assert_int_equal(info.prefix_queried_tokens, 140);
    assert_int_equal(info.prefix_hit_tokens, 64);
    world_close(&w);
}

static void one_adapter_in_a_step(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.adapters_max = 1;
    world_open(&w, &options);
    avo_adapter *adapter[3];
    for (uint64_t i = 0; i < 3; i++)
        adapter[i] = test_adapter_make(
            w.model, &(adapter_random_options){i + 1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.5f});
    exam e = exam_make(&w, FEWER(30), 250);
    for (size_t i = 0; i < e.count; i++) {
        e.q[i].use_count = i % 4 == 3 ? 0 : 1;
        e.q[i].uses[0] = (avo_adapter_use){adapter[i % 3], 1.0f};
    }
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    question two = plain_question(9);
    two.use_count = 2;
    two.uses[0] = (avo_adapter_use){adapter[0], 1.0f};
    two.uses[1] = (avo_adapter_use){adapter[1], 1.0f};
    seen refused = {0};
    ask(&w, &two, &refused, 0.0);
    assert_int_equal(refused.error.status, AVO_ERROR_LIMIT);
    assert_non_null(strstr(refused.error.text, "a step can have at most 1"));
    for (uint64_t i = 0; i < 3; i++)
        adapter_release(adapter[i]);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++)
        same_answer(&e.seen[i], &e.alone[i]);
    exam_free(&e);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(closed_while_batches_wait),
                                       cmocka_unit_test(closed_while_a_request_is_copied),
                                       cmocka_unit_test(closed_while_another_drains),
                                       cmocka_unit_test(a_drain_says_what_is_left),
                                       cmocka_unit_test(an_engine_with_sessions_is_refused),
                                       cmocka_unit_test(arrays_that_are_missing),
                                       cmocka_unit_test(empty_arrays_beside_a_text),
                                       cmocka_unit_test(a_text_that_cannot_fit),
                                       cmocka_unit_test(variables_are_charged),
                                       cmocka_unit_test(deadlines_know_the_prefix_cache),
                                       cmocka_unit_test(a_deadline_that_passes_while_a_text_waits),
                                       cmocka_unit_test(pages_and_prefixes_are_told),
                                       cmocka_unit_test(one_adapter_in_a_step)};
    return cmocka_run_group_tests_name("sched/scheduler_edges", tests, NULL, NULL);
}
