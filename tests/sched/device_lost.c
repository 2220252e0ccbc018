/* The scheduler on a device that fails for good: every request ends with the device's error at
 * once, none waits for pages that the device cannot prepare, and closing takes no time. Requests
 * are of every kind that asks a device for something else. AVO_TEST_THREADS */
#include "sched/serving.h"

#include <sys/stat.h>

#define KINDS 8
#define COUNT 16 /* requests; twice as many as sessions, so that some begin after the failure */

typedef struct setup {
    avo_model *model;
    avo_adapter *adapter;
    avo_grammar *grammar;
    avo_heads *heads;
} setup;

static void set_up(setup *u) {
    avo_error error = {0};
    char folder[4096];
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &u->model, &error), &error);
    snprintf(folder, sizeof(folder), "%s/lost", test_scratch_folder());
    mkdir(folder, 0755);
    tiny_adapter_write(folder, 1);
    assert_ok_error(avo_adapter_open(u->model, folder, NULL, &u->adapter, &error), &error);
    assert_ok_error(avo_grammar_open(u->model, AVO_GRAMMAR_GBNF, "root ::= [a-z]+ \".\"", NULL,
                                     &u->grammar, &error),
                    &error);
    u->heads = test_heads_make(u->model, HEADS_EAGLE, 7);
}

static void tear_down(setup *u) {
    avo_heads_close(u->heads);
    avo_grammar_close(u->grammar);
    avo_adapter_close(u->adapter);
    avo_model_close(u->model);
}

/* Kinds: greedy, text, logprobs of the prompt, embeddings, grammar, adapter, and one with the
 * prompt of the first, whose last page it copies. */
static avo_request request_for(const setup *u, uint32_t i, const int32_t *prompt, seen *seen) {
    static avo_adapter_use use;
    static avo_sampling flat = AVO_SAMPLING_INIT;
    avo_request request = AVO_REQUEST_INIT;
    flat.temperature = 50.0f;
    use = (avo_adapter_use){u->adapter, 1.0f};
    request.tokens = prompt;
    request.token_count = 37;
    request.max_new_tokens = 10;
    request.ignore_end = true;
    request.on_event = on_event;
    request.on_event_context = seen;
    switch (i % KINDS) {
    case 1:
        request.tokens = NULL;
        request.token_count = 0;
        request.text = "once upon a time there was a machine";
        request.sampling = &flat;
        break;
    case 2:
        request.prompt_logprobs = seen->takes_prompt = true;
        break;
    case 3:
    case 4:
        request.no_answer = true;
        request.max_new_tokens = 0;
        request.pooling = i % KINDS == 3 ? AVO_POOLING_MEAN : AVO_POOLING_LAST;
        break;
    case 5:
        request.grammar = u->grammar;
        break;
    case 6:
        request.adapters = &use;
        request.adapter_count = 1;
        break;
    default:
        break;
    }
    return request;
}

/* All at once; how many failed. */
static uint32_t run_all(const setup *u, avo_scheduler *scheduler, seen seen[COUNT]) {
    avo_error error = {0};
    int32_t prompt[COUNT][37];
    uint32_t failed = 0;
    memset(seen, 0, COUNT * sizeof(*seen));
    for (uint32_t i = 0; i < COUNT; i++) {
        bool same = i % KINDS == KINDS - 1; /* as the first one's */
        for (uint32_t j = 0; j < 37; j++)
            prompt[i][j] = (int32_t)(3 + ((same ? 0 : i) * 5 + j * 3) % 300);
        uint64_t number;
        avo_request request = request_for(u, i, prompt[i], &seen[i]);
        assert_ok_error(avo_scheduler_submit(scheduler, &request, &number, NULL, &error), &error);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t ms = 0; atomic_load(&seen[i].ended) == 0; ms++) {
            if (ms == 20000)
                fail_msg("request %u of kind %u hangs", i, i % KINDS);
            pause_ms(1);
        }
        failed += seen[i].error.status != AVO_OK;
        if (seen[i].error.status != AVO_OK) {
            assert_int_equal(seen[i].error.status, AVO_ERROR_DEVICE);
            assert_non_null(strstr(seen[i].error.text, "device remote: "));
        }
    }
    return failed;
}

/* False: the device fails while the engine is opened. */
static bool lose(const setup *u, uint32_t calls, const char *cores, bool drafts, uint32_t *kinds) {
    avo_error error = {0};
    avo_engine *engine;
    avo_scheduler *scheduler;
    char device[32];
    static seen seen[COUNT];
    snprintf(device, sizeof(device), "remote:lost=%u", calls);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 2;
    options.context_max = 64;
    options.sessions_max = COUNT / 2;
    options.rows_max = 48;
    options.streams = cores == NULL ? 1 : 2;
    const avo_heads *heads[] = {u->heads};
    options.draft_heads = heads;
    options.draft_heads_count = drafts;
    options.draft_model = drafts ? u->model : NULL;
    options.draft_controller = "fixed";
    if (avo_engine_open(u->model, &options, &engine, &error) != AVO_OK) {
        assert_int_equal(error.status, AVO_ERROR_DEVICE);
        return false;
    }
    avo_scheduler_options own = AVO_SCHEDULER_OPTIONS_INIT;
    own.cores = cores;
    assert_ok_error(avo_scheduler_open(engine, &own, &scheduler, &error), &error);
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(scheduler, &info);
    assert_int_equal(info.device_failures, 0);
    (void)run_all(u, scheduler, seen);
    for (uint32_t i = 0; i < COUNT; i++)
        *kinds |= (uint32_t)(seen[i].error.status != AVO_OK) << i % KINDS;
    bool lost = run_all(u, scheduler, seen) > 0;
    if (lost) { /* then nothing works ever after */
        assert_int_equal(run_all(u, scheduler, seen), COUNT);
        avo_scheduler_describe(scheduler, &info);
        assert_true(info.device_failures >= COUNT);
    }
    assert_true(avo_scheduler_drain(scheduler, 20.0));
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    return true;
}

static void requests_end_with_the_device(void **state) {
    (void)state;
    static const char *const cores[] = {NULL, "static"};
    setup u = {0};
    set_up(&u);
    for (uint32_t c = 0; c < 4; c++) {
        uint32_t opened = 0, kinds = 0;
        for (uint32_t calls = 1; opened < FEWER(60); calls += opened == 0 ? 1 : 1 + calls % 3)
            opened += lose(&u, calls, cores[c % 2], c >= 2, &kinds);
        assert_int_equal(kinds, (1u << KINDS) - 1); /* each kind has failed */
    }
    tear_down(&u);
}

/* Pages that are lacking are waited for, and others than FULL are failures. */
static void reservation_says_why(void **state) {
    (void)state;
    avo_error error = {0};
    avo_engine *engine;
    avo_session *session[2];
    setup u = {0};
    set_up(&u);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = TINY_CONTEXT;
    options.sessions_max = 2;
    options.kv_tokens = TINY_CONTEXT;
    options.speculate = "off";
    assert_ok_error(avo_engine_open(u.model, &options, &engine, &error), &error);
    for (int i = 0; i < 2; i++)
        assert_ok_error(avo_session_open(engine, NULL, &session[i], &error), &error);
    assert_ok(engine_session_reserve(session[0], TINY_CONTEXT - KV_PAGE_TOKENS, &error));
    assert_ok(engine_session_reserve(session[1], KV_PAGE_TOKENS, &error));
    assert_int_equal(engine_session_reserve(session[1], KV_PAGE_TOKENS + 1, &error),
                     AVO_ERROR_FULL);
    assert_int_equal(engine_session_reserve(session[0], TINY_CONTEXT + 1, &error), AVO_ERROR_FULL);
    avo_session_close(session[0]);
    assert_ok(engine_session_reserve(session[1], KV_PAGE_TOKENS + 1, &error));
    avo_session_close(session[1]);
    avo_engine_close(engine);
    tear_down(&u);
}

/* Two requests of which one alone fills the pool: the second begins when the first has ended. */
static void the_second_waits_for_room(void **state) {
    (void)state;
    setup u = {0};
    avo_error error = {0};
    avo_engine *engine;
    avo_scheduler *scheduler;
    static seen seen[2];
    int32_t prompt[2][TINY_CONTEXT - KV_PAGE_TOKENS];
    uint64_t number;
    set_up(&u);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = TINY_CONTEXT;
    options.sessions_max = 2;
    options.rows_max = 2 * TINY_CONTEXT;
    options.kv_tokens = TINY_CONTEXT;
    options.speculate = "off";
    assert_ok_error(avo_engine_open(u.model, &options, &engine, &error), &error);
    assert_ok_error(avo_scheduler_open(engine, NULL, &scheduler, &error), &error);
    memset(seen, 0, sizeof(seen));
    for (int i = 0; i < 2; i++) {
        avo_request request = AVO_REQUEST_INIT;
        for (uint32_t j = 0; j < TINY_CONTEXT - KV_PAGE_TOKENS; j++)
            prompt[i][j] = (int32_t)(3 + ((uint32_t)i * 7 + j) % 300);
        request.tokens = prompt[i];
        request.token_count = TINY_CONTEXT - KV_PAGE_TOKENS;
        request.max_new_tokens = KV_PAGE_TOKENS;
        request.ignore_end = true;
        request.on_event = on_event;
        request.on_event_context = &seen[i];
        assert_ok_error(avo_scheduler_submit(scheduler, &request, &number, NULL, &error), &error);
    }
    assert_true(avo_scheduler_drain(scheduler, PATIENCE));
    for (int i = 0; i < 2; i++) {
        assert_string_equal(seen[i].error.text, "");
        assert_int_equal(seen[i].tokens, KV_PAGE_TOKENS);
    }
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(scheduler, &info);
    assert_int_equal(info.preemptions, 0);
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    tear_down(&u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_end_with_the_device),
        cmocka_unit_test(reservation_says_why),
        cmocka_unit_test(the_second_waits_for_room),
    };
    return cmocka_run_group_tests_name("sched/device_lost", tests, NULL, NULL);
}
