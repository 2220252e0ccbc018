/* engine/: the rules of sessions and batches, what is refused, and that a step allocates nothing.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "support/models.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int32_t prompt[] = {1, 5, 9, 2, 7, 3, 8, 4, 6, 11};
#define PROMPT (sizeof(prompt) / sizeof(prompt[0]))

typedef struct bench {
    test_allocator counter;
    avo_model *model;
    avo_engine *engine;
    avo_error error;
} bench;

static void bench_open(bench *b, avo_engine_options options) {
    memset(b, 0, sizeof(*b));
    test_allocator_init(&b->counter);
    avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
    model_options.allocator = &b->counter.allocator;
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2.gguf"), &model_options,
                                   &b->model, &b->error),
                    &b->error);
    assert_ok_error(avo_engine_open(b->model, &options, &b->engine, &b->error), &b->error);
}

static void bench_close(bench *b) {
    avo_engine_close(b->engine);
    avo_model_close(b->model);
    assert_int_equal(b->counter.live, 0);
    assert_int_equal(b->counter.live_bytes, 0);
}

static avo_engine_options small_options(void) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.context_max = 40;
    options.sessions_max = 3;
    options.rows_max = 16;
    return options;
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    avo_session *session;
    avo_batch *batch;
    assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    size_t before = b.counter.allocations;
    for (int i = 0; i < 3; i++) {
        avo_batch_clear(batch);
        assert_ok(avo_batch_add(batch, session, prompt, PROMPT));
        assert_ok(avo_step(b.engine, batch));
        assert_non_null(avo_batch_logits(batch, session, 0));
    }
    assert_ok(avo_session_truncate(session, 3, &b.error));
    assert_int_equal(b.counter.allocations, before);
    assert_int_equal(avo_session_length(session), 3);
    avo_batch_close(batch);
    avo_session_close(session);
    bench_close(&b);
}

static void places_are_planned_and_wrong_ones_refused(void **state) {
    (void)state;
    if (!test_device_has_threads())
        skip(); /* nothing to place */
    bench b;
    avo_engine_options options = small_options();
    options.huge_pages = "on";
    options.numa = "interleave";
    options.pin = "core";
    bench_open(&b, options);
    avo_plan plan = AVO_PLAN_INIT;
    assert_ok(avo_engine_plan(b.model, &options, &plan, &b.error));
    assert_string_equal(plan.device, avo_engine_device(b.engine));
    assert_string_equal(plan.numa, "interleave");
    assert_string_equal(plan.pin, "core");
    assert_true(plan.numa_nodes >= 1 && !plan.lock);
    avo_engine *other = NULL;
    options.numa = "everywhere";
    assert_refused(avo_engine_open(b.model, &options, &other, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "numa is \"everywhere\", must be first-touch, interleave or off");
    options = small_options();
    options.huge_pages = "";
    assert_refused(avo_engine_open(b.model, &options, &other, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "huge_pages");
    options.huge_pages = NULL;
    options.pin = "Core";
    assert_refused(avo_engine_open(b.model, &options, &other, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "pin");
    bench_close(&b);
}

typedef struct log_lines {
    uint32_t count;
    char first[256];
} log_lines;

static void take_line(void *context, const char *line) {
    log_lines *lines = context;
    if (strncmp(line, "passed over ", 12) == 0)
        return; /* devices that this machine lacks */
    if (lines->count++ == 0)
        snprintf(lines->first, sizeof(lines->first), "%s", line);
}

static void open_and_log(const avo_model *model, avo_engine_options options, const char *wanted,
                         const char *from) {
    avo_error error = {0};
    avo_engine *engine;
    avo_plan plan = AVO_PLAN_INIT;
    log_lines lines = {0};
    options.log = take_line;
    options.log_context = &lines;
    assert_ok_error(avo_engine_plan(model, &options, &plan, &error), &error);
    assert_int_equal(lines.count, 0); /* it opens nothing that would be chosen */
    assert_string_equal(plan.device_from, from);
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_int_equal(lines.count, 2);
    if (strstr(lines.first, wanted) == NULL ||
        strstr(lines.first, avo_engine_device(engine)) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", lines.first, wanted);
    avo_engine_close(engine);
}

/* Once per engine, with the reason; nothing where it did not open. */
static void the_choice_is_logged_once(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    avo_engine *engine;
    avo_engine_options options = small_options();
    const char *before = getenv("AVO_ISA");
    char kept[32] = "";
    if (before != NULL)
        snprintf(kept, sizeof(kept), "%s", before);
    assert_ok(avo_model_open(test_fixture_path("models/llama2.gguf"), NULL, &model, &error));
    if (test_device_is_remote())
        unsetenv("AVO_DEVICE"); /* this is about the choice itself */
    unsetenv("AVO_ISA");
    open_and_log(model, options, "the fastest available; this machine has: ref", "best");
    setenv("AVO_ISA", "", 1);
    open_and_log(model, options, "the fastest available", "best");
    setenv("AVO_ISA", "ref", 1);
    open_and_log(model, options, "ref (chosen by AVO_ISA", "AVO_ISA");
    setenv("AVO_DEVICE", "cpu", 1); /* goes before its older name */
    open_and_log(model, options, "chosen by AVO_DEVICE", "AVO_DEVICE");
    unsetenv("AVO_DEVICE");
    setenv("AVO_ISA", "nonsense", 1);
    options.device = "ref";
    open_and_log(model, options, "ref (requested", "option");
    log_lines lines = {0};
    options = small_options();
    options.log = take_line;
    options.log_context = &lines;
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT, &error,
                   "nonsense");
    assert_int_equal(lines.count, 0);
    if (before != NULL)
        setenv("AVO_ISA", kept, 1);
    else
        unsetenv("AVO_ISA");
    if (test_device_is_remote())
        setenv("AVO_DEVICE", test_device(NULL), 1);
    avo_model_close(model);
}

/* Weights to be repacked count against the limit, for the first engine of a model. */
static void repacked_weights_must_fit(void **state) {
    (void)state;
    if (test_device_is_remote())
        skip(); /* each remote device has a copy of its own */
    avo_error error = {0};
    avo_model *model;
    avo_engine *engine;
    avo_engine_options options = small_options();
    options.device = test_device("ref");
    assert_ok(avo_model_open(test_fixture_path("models/llama2.gguf"), NULL, &model, &error));
    avo_plan plain = AVO_PLAN_INIT;
    avo_plan best = AVO_PLAN_INIT;
    assert_ok(avo_engine_plan(model, &options, &plain, &error));
    options.device = test_device(NULL);
    assert_ok(avo_engine_plan(model, &options, &best, &error));
    if (best.repack_bytes == plain.repack_bytes) {
        print_message("SKIPPED: this machine computes with ref alone\n");
        avo_model_close(model);
        skip();
    }
    uint64_t without_weights =
        best.kv_bytes + best.scratch_bytes + best.session_bytes + best.draft_bytes;
    options.memory_max = without_weights + 1;
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_MEMORY, &error,
                   "weights repacked at load");
    assert_null(engine);
    options.memory_max = 0;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_engine *second;
    options.memory_max = without_weights + 1; /* they are there by now */
    assert_ok_error(avo_engine_open(model, &options, &second, &error), &error);
    avo_engine_close(second);
    avo_engine_close(engine);
    avo_model_close(model);
}

static void wrong_use_is_refused(void **state) {
    (void)state;
    bench b;
    avo_engine_options options = small_options();
    options.logits_max = options.sessions_max; /* none for drafts */
    bench_open(&b, options);
    avo_session *session;
    avo_batch *batch;
    assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    const avo_error *error = avo_batch_error(batch);
    int32_t bad[] = {1, -1};
    int32_t large[] = {1 << 20};
    assert_refused(avo_step(b.engine, batch), AVO_ERROR_ARGUMENT, error, "empty");
    assert_refused(avo_batch_add(batch, session, prompt, 0), AVO_ERROR_ARGUMENT, error, "0 tokens");
    assert_refused(avo_batch_add(batch, session, bad, 2), AVO_ERROR_ARGUMENT, error, "-1");
    assert_refused(avo_batch_add(batch, session, large, 1), AVO_ERROR_ARGUMENT, error, "1048576");
    int32_t many[64] = {0};
    assert_refused(avo_batch_add(batch, session, many, 41), AVO_ERROR_CONTEXT, error, "40");
    assert_refused(avo_batch_add(batch, session, many, 17), AVO_ERROR_FULL, error, "17");
    assert_refused(avo_batch_add_scored(batch, session, many, 8, 4), AVO_ERROR_FULL, error,
                   "logits");
    assert_refused(avo_batch_add_scored(batch, session, many, 1, 2), AVO_ERROR_ARGUMENT, error,
                   "1 tokens");
    assert_int_equal(avo_session_length(session), 0);
    assert_ok(avo_batch_add(batch, session, prompt, 2));
    assert_refused(avo_batch_add(batch, session, prompt, 2), AVO_ERROR_ARGUMENT, error, "already");
    assert_refused(avo_session_truncate(session, 0, &b.error), AVO_ERROR_ARGUMENT, &b.error,
                   "is in a batch");
    assert_null(avo_batch_logits(batch, session, 0));
    assert_ok(avo_step(b.engine, batch));
    assert_refused(avo_step(b.engine, batch), AVO_ERROR_ARGUMENT, error, "clear");
    assert_refused(avo_batch_add(batch, session, prompt, 2), AVO_ERROR_ARGUMENT, error, "clear");
    assert_null(avo_batch_logits(batch, session, 1));
    assert_refused(avo_session_truncate(session, 3, &b.error), AVO_ERROR_ARGUMENT, &b.error, "3");
    avo_batch_close(batch);
    avo_session_close(session);
    bench_close(&b);
}

static void sessions_have_a_maximum(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    avo_session *sessions[4];
    for (int i = 0; i < 3; i++)
        assert_ok(avo_session_open(b.engine, NULL, &sessions[i], &b.error));
    assert_refused(avo_session_open(b.engine, NULL, &sessions[3], &b.error), AVO_ERROR_FULL,
                   &b.error, "3");
    avo_session_close(sessions[1]);
    assert_ok(avo_session_open(b.engine, NULL, &sessions[1], &b.error));
    for (int i = 0; i < 3; i++)
        avo_session_close(sessions[i]);
    bench_close(&b);
}

static void a_closed_session_stops_its_batch(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    avo_session *session;
    avo_batch *batch;
    assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    assert_ok(avo_batch_add(batch, session, prompt, 2));
    avo_session_close(session);
    assert_refused(avo_step(b.engine, batch), AVO_ERROR_ARGUMENT, avo_batch_error(batch), "closed");
    avo_batch_clear(batch);
    assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
    assert_ok(avo_batch_add(batch, session, prompt, 2));
    assert_ok(avo_step(b.engine, batch));
    avo_batch_close(batch);
    avo_session_close(session);
    bench_close(&b);
}

/* Closing a waiting session and adding another, again and again, never outgrows the batch. */
static void closed_sessions_do_not_pile_up(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    avo_batch *batch;
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    avo_session *session;
    assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
    assert_ok(avo_batch_add_scored(batch, session, prompt, 1, 0));
    for (int i = 0; i < 8; i++) {
        avo_session_close(session);
        assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
        assert_refused(avo_batch_add_scored(batch, session, prompt, 1, 0), AVO_ERROR_ARGUMENT,
                       avo_batch_error(batch), "clear");
    }
    avo_session_close(session);
    avo_batch_close(batch);
    bench_close(&b);
}

/* Logits belong to one step of one batch and to the session that asked. */
static void stale_logits_are_not_handed_out(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    avo_session *first, *second;
    avo_batch *one, *two;
    assert_ok(avo_session_open(b.engine, NULL, &first, &b.error));
    assert_ok(avo_session_open(b.engine, NULL, &second, &b.error));
    assert_ok(avo_batch_open(b.engine, &one, &b.error));
    assert_ok(avo_batch_open(b.engine, &two, &b.error));
    assert_ok(avo_batch_add(one, first, prompt, 3));
    assert_ok(avo_batch_add(two, second, prompt, 4));
    assert_ok(avo_step(b.engine, one));
    assert_non_null(avo_batch_logits(one, first, 0));
    assert_null(avo_batch_logits(one, second, 0));
    assert_ok(avo_step(b.engine, two));
    assert_null(avo_batch_logits(one, first, 0));
    assert_non_null(avo_batch_logits(two, second, 0));
    avo_session_close(second);
    assert_ok(avo_session_open(b.engine, NULL, &second, &b.error));
    assert_null(avo_batch_logits(two, second, 0));
    avo_batch_close(one);
    avo_batch_close(two);
    avo_session_close(first);
    avo_session_close(second);
    bench_close(&b);
}

/* Sizes: shorter structs keep the defaults of what they lack, impossible ones and unknown fields
 * that are set are refused. */
static void sizes_of_options_are_honoured(void **state) {
    (void)state;
    bench b;
    bench_open(&b, small_options());
    struct {
        avo_engine_options known;
        uint64_t unknown;
    } larger = {.known = small_options()};
    avo_plan plan = AVO_PLAN_INIT;
    larger.known.size = sizeof(larger);
    assert_ok_error(avo_engine_plan(b.model, &larger.known, &plan, &b.error), &b.error);
    assert_int_equal(plan.context_max, 40);
    larger.unknown = 1;
    assert_refused(avo_engine_plan(b.model, &larger.known, &plan, &b.error), AVO_ERROR_UNSUPPORTED,
                   &b.error, "newer");
    avo_engine_options options = small_options();
    options.size = 0;
    assert_refused(avo_engine_plan(b.model, &options, &plan, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "size");
    options.size = offsetof(avo_engine_options, sessions_max);
    assert_ok_error(avo_engine_plan(b.model, &options, &plan, &b.error), &b.error);
    assert_int_equal(plan.context_max, 40);
    assert_int_equal(plan.kv_pages, 2); /* one session, as by default */
    avo_plan small = AVO_PLAN_INIT;
    small.size = offsetof(avo_plan, kv_bytes);
    small.kv_bytes = 12345;
    assert_ok(avo_engine_plan(b.model, &options, &small, &b.error));
    assert_int_equal(small.kv_bytes, 12345);
    bench_close(&b);
}

/* LongRoPE: the rotations go by rope_context, never by the context that fits. */
static void the_context_does_not_change_results(void **state) {
    (void)state;
    avo_model *model;
    avo_error error = {0};
    assert_ok_error(avo_model_open(test_fixture_path("models/phi3-long"), NULL, &model, &error),
                    &error);
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    size_t bytes = info.vocabulary * sizeof(float);
    float *first = malloc(bytes);
    static const uint32_t contexts[][2] = {{12, 0}, {64, 0}, {12, 8}};
    for (size_t i = 0; i < 3; i++) {
        avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
        options.context_max = contexts[i][0];
        options.rope_context = contexts[i][1];
        avo_engine *engine;
        avo_session *session;
        avo_batch *batch;
        assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
        assert_ok(avo_batch_add(batch, session, prompt, PROMPT));
        assert_ok(avo_step(engine, batch));
        const float *logits = avo_batch_logits(batch, session, 0);
        if (i == 0)
            memcpy(first, logits, bytes);
        else if (i == 1)
            assert_memory_equal(first, logits, bytes);
        else
            assert_memory_not_equal(first, logits, bytes);
        avo_batch_close(batch);
        avo_session_close(session);
        avo_engine_close(engine);
    }
    free(first);
    avo_model_close(model);
}

/* The host's rounding mode changes nothing, with one thread and with several. */
static void the_hosts_float_mode_does_not_matter(void **state) {
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    float *first = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; i < 6; i++) {
        bench b;
        avo_engine_options options = small_options();
        options.threads = 1 + i % 2;
        fesetround(modes[i / 2]);
        bench_open(&b, options);
        avo_session *session;
        avo_batch *batch;
        assert_ok(avo_session_open(b.engine, NULL, &session, &b.error));
        assert_ok(avo_batch_open(b.engine, &batch, &b.error));
        assert_ok(avo_batch_add(batch, session, prompt, PROMPT));
        assert_ok(avo_step(b.engine, batch));
        assert_int_equal(fegetround(), modes[i / 2]);
        fesetround(FE_TONEAREST);
        const float *logits = avo_batch_logits(batch, session, 0);
        if (first == NULL) {
            avo_model_info info = AVO_MODEL_INFO_INIT;
            avo_model_describe(b.model, &info);
            bytes = info.vocabulary * sizeof(float);
            first = malloc(bytes);
            memcpy(first, logits, bytes);
        }
        assert_memory_equal(first, logits, bytes);
        avo_batch_close(batch);
        avo_session_close(session);
        bench_close(&b);
    }
    free(first);
}

/* The pool is smaller than what the sessions may hold: the one that finds it full is told so, keeps
 * what it has, and goes on when another is gone. */
static void a_full_pool_is_an_answer(void **state) {
    (void)state;
    avo_engine_options options = small_options();
    options.kv_tokens = 64; /* two pages */
    bench b;
    bench_open(&b, options);
    avo_session *first, *second, *third;
    avo_batch *batch;
    assert_ok(avo_session_open(b.engine, NULL, &first, &b.error));
    assert_ok(avo_session_open(b.engine, NULL, &second, &b.error));
    assert_ok(avo_session_open(b.engine, NULL, &third, &b.error));
    assert_ok(avo_batch_open(b.engine, &batch, &b.error));
    assert_ok(avo_batch_add(batch, first, prompt, 4));
    assert_ok(avo_batch_add(batch, second, prompt, 4));
    assert_refused(avo_batch_add(batch, third, prompt, 4), AVO_ERROR_FULL, avo_batch_error(batch),
                   "KV pages");
    assert_ok(avo_step(b.engine, batch));
    avo_batch_clear(batch);
    avo_session_close(first);
    assert_ok(avo_batch_add(batch, third, prompt, 4));
    assert_ok(avo_step(b.engine, batch));
    avo_batch_close(batch);
    avo_session_close(second);
    avo_session_close(third);
    bench_close(&b);
}

static void the_plan_is_what_is_taken(void **state) {
    (void)state;
    if (test_device_is_remote())
        skip(); /* device memory does not come from the allocator that is counted here */
    bench b;
    avo_engine_options options = small_options();
    bench_open(&b, options);
    avo_plan plan = AVO_PLAN_INIT;
    assert_ok(avo_engine_plan(b.model, &options, &plan, &b.error));
    assert_int_equal(plan.context_max, 40);
    assert_int_equal(plan.kv_pages, 3 * 2);
    assert_true(plan.kv_bytes > 0 && plan.scratch_bytes > 0);
    avo_engine_close(b.engine);
    size_t before = b.counter.live_bytes;
    assert_ok(avo_engine_open(b.model, &options, &b.engine, &b.error));
    size_t taken = b.counter.live_bytes - before;
    uint64_t planned = plan.kv_bytes + plan.scratch_bytes + plan.draft_bytes;
    assert_true(plan.draft_bytes > 0);
    assert_true(taken >= planned);
    assert_true(taken < planned + (33 << 10)); /* heads and tables */
    options.memory_max = 1000;
    assert_refused(avo_engine_plan(b.model, &options, &plan, &b.error), AVO_ERROR_MEMORY, &b.error,
                   "the limit that was asked for");
    options = small_options();
    options.threads = 100000;
    assert_refused(avo_engine_plan(b.model, &options, &plan, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "threads");
    bench_close(&b);
}

/* Every type of K and V: the plan says which and how much, results stay near those of f32. */
static void kv_types_differ_in_bytes_only(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "f16", "bf16", "int8", "fp8"};
    bench b;
    avo_engine_options options = small_options();
    bench_open(&b, options);
    avo_plan plan = AVO_PLAN_INIT;
    assert_ok(avo_engine_plan(b.model, &options, &plan, &b.error));
    assert_true(plan.kv_type != NULL);
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        options.kv_type = names[i];
        assert_ok(avo_engine_plan(b.model, &options, &plan, &b.error));
        assert_string_equal(plan.kv_type, names[i]);
        bytes = i == 0 ? plan.kv_bytes : bytes;
        assert_true(i == 0 || plan.kv_bytes < bytes);
        avo_engine *engine;
        assert_ok(avo_engine_open(b.model, &options, &engine, &b.error));
        avo_engine_close(engine);
    }
    options.kv_type = "q4";
    assert_refused(avo_engine_plan(b.model, &options, &plan, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "kv_type is \"q4\"");
    bench_close(&b);
}

/* Every allocation of opening, stepping and generating fails once: an error, no crash, no leak. */
static void survives_every_allocation_failure(void **state) {
    (void)state;
    bool done = false;
    for (size_t fail_at = 1; !done; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
        model_options.allocator = &counter.allocator;
        avo_engine_options options = small_options();
        avo_error error = {0};
        avo_model *model = NULL;
        avo_engine *engine = NULL;
        avo_session *session = NULL;
        avo_status status =
            avo_model_open(test_fixture_path("models/llama2.gguf"), &model_options, &model, &error);
        if (status == AVO_OK)
            status = avo_engine_open(model, &options, &engine, &error);
        if (status == AVO_OK)
            status = avo_session_open(engine, NULL, &session, &error);
        if (status == AVO_OK) {
            avo_request request = AVO_REQUEST_INIT;
            avo_result result = AVO_RESULT_INIT;
            request.tokens = prompt;
            request.token_count = PROMPT;
            request.max_new_tokens = 3;
            status = avo_generate(engine, session, &request, &result, &error);
        }
        if (status != AVO_OK)
            assert_int_equal(status, AVO_ERROR_MEMORY);
        done = counter.allocations < fail_at;
        assert_true(!done || status == AVO_OK);
        avo_session_close(session);
        avo_engine_close(engine);
        avo_model_close(model);
        assert_int_equal(counter.live, 0);
        assert_true(fail_at < 10000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(places_are_planned_and_wrong_ones_refused),
        cmocka_unit_test(the_choice_is_logged_once),
        cmocka_unit_test(repacked_weights_must_fit),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(sessions_have_a_maximum),
        cmocka_unit_test(a_closed_session_stops_its_batch),
        cmocka_unit_test(closed_sessions_do_not_pile_up),
        cmocka_unit_test(stale_logits_are_not_handed_out),
        cmocka_unit_test(sizes_of_options_are_honoured),
        cmocka_unit_test(the_context_does_not_change_results),
        cmocka_unit_test(the_hosts_float_mode_does_not_matter),
        cmocka_unit_test(a_full_pool_is_an_answer),
        cmocka_unit_test(the_plan_is_what_is_taken),
        cmocka_unit_test(kv_types_differ_in_bytes_only),
        cmocka_unit_test(survives_every_allocation_failure),
    };
    return cmocka_run_group_tests_name("engine/engine", tests, NULL, NULL);
}
