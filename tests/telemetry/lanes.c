/* Telemetry of an engine with two lanes, and bytes that adapters add. AVO_TEST_THREADS */
#include "support/support.h"

#include "adapters/packed_int.h"
#include "base/json.h"
#include "base/number.h"
#include "support/tiny_model.h"
#include "telemetry/telemetry_int.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REQUESTS   24
#define NEW_TOKENS 12

static bool collect(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

typedef struct world {
    avo_telemetry *telemetry;
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    buffer text;
    arena arena;
} world;

static void world_open(world *w, const char *cores) {
    avo_error error;
    *w = (world){0};
    const char *path = tiny_model_write(test_scratch_folder(), 3);
    avo_telemetry_options telemetry = AVO_TELEMETRY_OPTIONS_INIT;
    telemetry.spans_max = 1u << 18;
    assert_ok_error(avo_telemetry_open(&telemetry, NULL, &w->telemetry, &error), &error);
    assert_ok_error(avo_model_open(path, NULL, &w->model, &error), &error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = 2;
    engine.sessions_max = 6;
    engine.rows_max = 16;
    engine.telemetry = w->telemetry;
    engine.streams = cores == NULL ? 1 : 2;
    engine.speculate = "off"; /* rows are counted */
    assert_ok_error(avo_engine_open(w->model, &engine, &w->engine, &error), &error);
    buffer_init(&w->text, NULL, SIZE_MAX);
    arena_init(&w->arena, NULL, SIZE_MAX);
    if (cores == NULL)
        return;
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    options.cores = cores;
    options.no_prefix_cache = true;
    assert_ok_error(avo_scheduler_open(w->engine, &options, &w->scheduler, &error), &error);
}

static void world_close(world *w) {
    avo_scheduler_close(w->scheduler);
    avo_engine_close(w->engine);
    avo_model_close(w->model);
    avo_telemetry_close(w->telemetry);
    buffer_free(&w->text);
    arena_free(&w->arena);
}

static double metric(world *w, const char *series) {
    avo_error error;
    w->text.size = 0;
    assert_ok_error(
        avo_telemetry_export(w->telemetry, AVO_TELEMETRY_PROMETHEUS, collect, &w->text, &error),
        &error);
    assert_int_equal(buffer_terminate(&w->text), AVO_OK);
    size_t bytes = strlen(series);
    for (const char *line = w->text.data; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, series, bytes) == 0 && line[bytes] == ' ')
            return number_from_text(line + bytes + 1, NULL);
    }
    fail_msg("no series %s", series);
    return 0.0;
}

static bool count_prompt(void *context, const avo_event *event) {
    if (event->kind == AVO_EVENT_FINISHED)
        atomic_fetch_add((atomic_uint *)context, event->result->prompt_tokens);
    return true;
}

static unsigned submit_all(world *w) {
    avo_error error;
    atomic_uint prompt = 0;
    for (int i = 0; i < REQUESTS; i++) {
        avo_request request = AVO_REQUEST_INIT;
        request.text = "once upon a time there was a bird that waded where the water is low";
        request.max_new_tokens = NEW_TOKENS;
        request.ignore_end = true;
        request.on_event = count_prompt;
        request.on_event_context = &prompt;
        assert_ok_error(avo_scheduler_submit(w->scheduler, &request, NULL, NULL, &error), &error);
    }
    assert_true(avo_scheduler_drain(w->scheduler, PATIENCE));
    return atomic_load(&prompt);
}

/* ---- The trace ---- */

typedef struct trace_sums {
    unsigned steps[16], phases[16], decode, prefill; /* by thread */
    unsigned plans, arrows;
    char names[16][64];
} trace_sums;

static double number_of(const json_value *event, const char *name) {
    const json_value *value = json_find(event, name);
    assert_non_null(value);
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static bool is_text(const json_value *event, const char *key, const char *wanted) {
    const json_value *value = json_find(event, key);
    return value != NULL && value->kind == JSON_STRING && value->string.size == strlen(wanted) &&
           memcmp(value->string.data, wanted, value->string.size) == 0;
}

static void sum_event(const json_value *event, trace_sums *sums) {
    unsigned thread = (unsigned)number_of(event, "tid");
    assert_true(thread < 16);
    if (is_text(event, "name", "thread_name")) {
        const json_value *name = json_find(json_find(event, "args"), "name");
        snprintf(sums->names[thread], 64, "%.*s", (int)name->string.size, name->string.data);
    }
    assert_false(is_text(event, "name", "spans_overwritten"));
    sums->arrows += is_text(event, "ph", "f");
    if (!is_text(event, "ph", "X"))
        return;
    const json_value *args = json_find(event, "args");
    sums->plans += is_text(event, "name", "plan");
    sums->phases[thread] += is_text(event, "name", "embed");
    if (is_text(event, "name", "step")) {
        sums->steps[thread]++;
        sums->decode += (unsigned)number_of(args, "decode");
        sums->prefill += (unsigned)number_of(args, "prefill");
    }
}

static void read_trace(world *w, trace_sums *sums) {
    avo_error error;
    json_value root;
    w->text.size = 0;
    *sums = (trace_sums){0};
    assert_ok_error(avo_telemetry_trace_write(w->telemetry, 1e6, collect, &w->text, &error),
                    &error);
    assert_ok_error(json_parse(&w->arena, buffer_text(&w->text), &root, &error), &error);
    const json_value *events = json_find(&root, "traceEvents");
    for (size_t i = 0; i < events->array.count; i++)
        sum_event(&events->array.items[i], sums);
}

/* Every row of every request is in exactly one step of one lane, and each lane's steps have their
 * phases on threads of their own. */
static void both_lanes_are_seen(const char *cores) {
    world w;
    world_open(&w, cores);
    avo_telemetry_trace_begin(w.telemetry);
    unsigned prompt = submit_all(&w);
    avo_telemetry_trace_end(w.telemetry);
    trace_sums sums;
    read_trace(&w, &sums);
    unsigned rows = prompt + REQUESTS * (NEW_TOKENS - 1); /* the last one drawn is not computed */
    assert_int_equal(sums.decode + sums.prefill, rows);
    assert_int_equal(metric(&w, "avocet_step_rows_total{kind=\"decode\"}") +
                         metric(&w, "avocet_step_rows_total{kind=\"prefill\"}"),
                     rows);
    assert_int_equal(metric(&w, "avocet_stage_events_total{stage=\"sample\"}"),
                     REQUESTS * NEW_TOKENS);
    assert_int_equal(metric(&w, "avocet_threads"), 2);
    unsigned steps = 0, leaders = 0;
    for (int i = 0; i < 16; i++) {
        bool engine = strcmp(sums.names[i], "engine") == 0;
        bool prompts = strcmp(sums.names[i], "prefill") == 0;
        leaders += engine + prompts;
        assert_true(sums.steps[i] == 0 || engine || prompts);
        assert_true(sums.steps[i] == 0 || sums.phases[i] == sums.steps[i]);
        steps += sums.steps[i];
        if (prompts && strcmp(cores, "static") == 0)
            assert_true(sums.steps[i] > 0);
        for (int j = 0; j < i; j++) /* nobody takes one thread for another */
            assert_true(sums.names[i][0] == '\0' || strcmp(sums.names[i], sums.names[j]) != 0);
    }
    assert_int_equal(leaders, 2);
    assert_int_equal(metric(&w, "avocet_stage_events_total{stage=\"prefill\"}") +
                         metric(&w, "avocet_stage_events_total{stage=\"decode\"}"),
                     steps);
    assert_int_equal(sums.arrows, REQUESTS);
    assert_int_equal(sums.plans, steps);
    world_close(&w);
}

static void static_lanes(void **state) {
    (void)state;
    both_lanes_are_seen("static");
}

static void adaptive_lanes(void **state) {
    (void)state;
    both_lanes_are_seen("adaptive");
}

/* ---- Time in which any of them ran ---- */

static void overlapping_steps_count_once(void **state) {
    (void)state;
    avo_error error;
    avo_telemetry *t = NULL;
    telemetry_engine *lane[2];
    assert_ok_error(avo_telemetry_open(NULL, NULL, &t, &error), &error);
    for (uint32_t i = 0; i < 2; i++) {
        telemetry_facts facts = {.isa = "ref", .workers = 1, .lane = i};
        assert_ok_error(telemetry_engine_open(t, &facts, &lane[i], &error), &error);
    }
    uint64_t first = telemetry_engine_begin(lane[1]);
    uint64_t second = telemetry_engine_begin(lane[0]);
    assert_true(first > 0 && second >= first);
    /* A step of 1 s, and within it one of 0.25 s and, behind a gap, one of 0.1 s. */
    const uint64_t ms = 1000000;
    telemetry_engine_step(lane[0], &(telemetry_step){second, first + 250 * ms, 1, 1, 100});
    assert_true(telemetry_engine_begin(lane[0]) > 0);
    telemetry_engine_step(lane[0],
                          &(telemetry_step){first + 600 * ms, first + 700 * ms, 1, 1, 100});
    telemetry_engine_step(lane[1], &(telemetry_step){first, first + 1000 * ms, 9, 0, 800});
    assert_int_equal(atomic_load(&t->busy_total), 1000 * ms);
    assert_int_equal(atomic_load(&t->read_total), 1000);
    /* Nothing ran before the next one. */
    uint64_t third = telemetry_engine_begin(lane[1]);
    telemetry_engine_step(lane[1], &(telemetry_step){third, third + 5 * ms, 1, 1, 100});
    assert_true(third < first + 1000 * ms || atomic_load(&t->busy_total) == 1005 * ms);
    telemetry_engine_close(lane[0]);
    telemetry_engine_close(lane[1]);
    avo_telemetry_close(t);
}

/* The limit is measured once: who reads more has found a better one. */
static void more_than_the_limit_is_the_new_limit(void **state) {
    (void)state;
    avo_error error;
    avo_telemetry *t = NULL;
    telemetry_engine *engine;
    assert_ok_error(avo_telemetry_open(NULL, NULL, &t, &error), &error);
    telemetry_facts facts = {.isa = "ref", .workers = 1};
    assert_ok_error(telemetry_engine_open(t, &facts, &engine, &error), &error);
    const uint64_t ms = 1000000;
    uint64_t first = telemetry_engine_begin(engine);
    telemetry_engine_step(engine, &(telemetry_step){first, first + 10 * ms, 1, 1, 1000000});
    assert_true(telemetry_bandwidth(t, first + 10 * ms) > 1e6);
    assert_true(telemetry_limit(t, first + 10 * ms) == 0.0); /* never measured: none */
    telemetry_engine_limit(engine, 1e6);
    assert_true(telemetry_limit(t, first + 10 * ms) == 1e6); /* too short to prove anything */
    assert_true(telemetry_engine_begin(engine) > 0);
    telemetry_engine_step(engine,
                          &(telemetry_step){first + 10 * ms, first + 1010 * ms, 1, 1, 2000000});
    double seen = telemetry_bandwidth(t, first + 1010 * ms);
    assert_true(seen > 2e6 && seen < 4e6);
    assert_true(telemetry_limit(t, first + 1010 * ms) == seen);
    assert_true(telemetry_limit(t, first + 60000 * ms) == seen); /* and it stays */
    telemetry_engine_close(engine);
    avo_telemetry_close(t);
}

/* ---- Adapters ---- */

static double bytes_of_a_step(world *w, avo_adapter *const *adapter, size_t sessions) {
    avo_error error;
    avo_session *session[4];
    avo_batch *batch = NULL;
    const int32_t token[] = {5};
    assert_ok_error(avo_batch_open(w->engine, &batch, &error), &error);
    for (size_t i = 0; i < sessions; i++) {
        avo_adapter_use use = {adapter[i], 1.0f};
        avo_session_options options = AVO_SESSION_OPTIONS_INIT;
        options.adapters = &use;
        options.adapter_count = adapter[i] == NULL ? 0 : 1;
        assert_ok_error(avo_session_open(w->engine, &options, &session[i], &error), &error);
        assert_int_equal(avo_batch_add(batch, session[i], token, 1), AVO_OK);
    }
    double before = metric(w, "avocet_read_bytes_total");
    assert_int_equal(avo_step(w->engine, batch), AVO_OK);
    double bytes = metric(w, "avocet_read_bytes_total") - before;
    for (size_t i = 0; i < sessions; i++)
        avo_session_close(session[i]);
    avo_batch_close(batch);
    return bytes;
}

/* A packed file is arrays behind a head: what a step reads is what lies behind the head. */
static void bytes_of_adapters_are_those_of_their_files(void **state) {
    (void)state;
    world w;
    avo_error error;
    world_open(&w, NULL);
    avo_adapter *adapter[2];
    char path[2][512];
    for (uint64_t i = 0; i < 2; i++) {
        avo_adapter *made;
        snprintf(path[i], sizeof(path[i]), "%s/peft%llu", test_scratch_folder(),
                 (unsigned long long)i);
        mkdir(path[i], 0755);
        tiny_adapter_write(path[i], i + 1);
        assert_ok_error(avo_adapter_open(w.model, path[i], NULL, &made, &error), &error);
        snprintf(path[i], sizeof(path[i]), "%s/packed%llu.avoa", test_scratch_folder(),
                 (unsigned long long)i);
        assert_ok_error(adapter_write(made, path[i], &error), &error);
        avo_adapter_close(made);
        assert_ok_error(avo_adapter_open(w.model, path[i], NULL, &adapter[i], &error), &error);
    }
    avo_adapter *none[] = {NULL, NULL}, *one[] = {adapter[0], NULL};
    avo_adapter *same[] = {adapter[0], adapter[0]}, *two[] = {adapter[0], adapter[1]};
    double base = bytes_of_a_step(&w, none, 2);
    double own = bytes_of_a_step(&w, one, 2) - base;
    packed_header head;
    FILE *file = fopen(path[0], "rb");
    assert_non_null(file);
    assert_int_equal(fread(&head, sizeof(head), 1, file), 1);
    fclose(file);
    /* Arrays lie at multiples of 64: what is between them nobody reads. */
    double rest = (double)head.data_bytes - own;
    assert_true(rest >= 0.0 && rest < 64.0 * head.array_count);
    assert_int_equal(own, adapter[0]->bytes);
    assert_int_equal(bytes_of_a_step(&w, same, 2) - base, own); /* read once for both rows */
    assert_int_equal(bytes_of_a_step(&w, two, 2) - base,
                     (double)(adapter[0]->bytes + adapter[1]->bytes));
    assert_int_equal(bytes_of_a_step(&w, none, 2), base);
    for (int i = 0; i < 2; i++)
        avo_adapter_close(adapter[i]);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_lanes),
        cmocka_unit_test(adaptive_lanes),
        cmocka_unit_test(overlapping_steps_count_once),
        cmocka_unit_test(more_than_the_limit_is_the_new_limit),
        cmocka_unit_test(bytes_of_adapters_are_those_of_their_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
