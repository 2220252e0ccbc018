/* Telemetry of a scheduler's requests and of answers without one, beside what their results say;
 * the limit of adapters, hostile names, exporters beside those who compute. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/json.h"
#include "base/number.h"
#include "support/tiny_model.h"
#include "telemetry/telemetry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REQUESTS 12

static bool collect(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

/* An export, terminated; the caller frees it. */
static buffer exported(avo_telemetry *telemetry, avo_telemetry_form form) {
    avo_error error;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_ok_error(avo_telemetry_export(telemetry, form, collect, &text, &error), &error);
    assert_int_equal(buffer_terminate(&text), AVO_OK);
    return text;
}

/* The value behind "name{labels} " or "name " at the begin of a line. */
static double metric(const buffer *text, const char *series) {
    size_t bytes = strlen(series);
    for (const char *line = text->data; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, series, bytes) == 0 && line[bytes] == ' ')
            return number_from_text(line + bytes + 1, NULL);
    }
    fail_msg("no series %s", series);
    return 0.0;
}

#define IDLE "waiting_lora_adapters=\"\",running_lora_adapters=\"\"}"
#define VLLM "{model_name=\"name \\\"of\\\\ it\",engine=\"0\""

typedef struct world {
    avo_telemetry *telemetry;
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    uint32_t threads; /* 0: 2 */
} world;

static void world_open(world *w, const avo_telemetry_options *options) {
    avo_error error;
    const char *path = tiny_model_write(test_scratch_folder(), 3);
    assert_ok_error(avo_telemetry_open(options, NULL, &w->telemetry, &error), &error);
    assert_ok_error(avo_model_open(path, NULL, &w->model, &error), &error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = w->threads > 0 ? w->threads : 2;
    engine.sessions_max = 4;
    engine.telemetry = w->telemetry;
    assert_ok_error(avo_engine_open(w->model, &engine, &w->engine, &error), &error);
}

static void world_close(world *w) {
    avo_scheduler_close(w->scheduler);
    avo_engine_close(w->engine);
    avo_model_close(w->model);
    avo_telemetry_close(w->telemetry);
}

typedef struct sums {
    atomic_uint prompt, fresh, ended;
} sums;

static bool on_event(void *context, const avo_event *event) {
    sums *sums = context;
    if (event->kind == AVO_EVENT_FINISHED) {
        atomic_fetch_add(&sums->prompt, event->result->prompt_tokens);
        atomic_fetch_add(&sums->fresh, event->result->new_tokens);
        atomic_fetch_add(&sums->ended, 1);
    }
    return true;
}

static void submit_all(world *w, sums *sums, uint32_t count) {
    avo_error error;
    for (uint32_t i = 0; i < count; i++) {
        avo_request request = AVO_REQUEST_INIT;
        request.text = "once upon a time";
        request.max_new_tokens = 3 + i % 4;
        request.ignore_end = true;
        request.on_event = on_event;
        request.on_event_context = sums;
        assert_ok_error(avo_scheduler_submit(w->scheduler, &request, NULL, NULL, &error), &error);
    }
}

static void a_schedulers_counts_are_those_of_its_results(void **state) {
    (void)state;
    world w = {0};
    avo_error error;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.model_name = "name \"of\\ it";
    world_open(&w, &options);
    assert_ok_error(avo_scheduler_open(w.engine, NULL, &w.scheduler, &error), &error);
    sums sums = {0};
    submit_all(&w, &sums, REQUESTS);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(atomic_load(&sums.ended), REQUESTS);
    for (int closed = 0; closed < 2; closed++) { /* what was counted stays when it has closed */
        buffer text = exported(w.telemetry, AVO_TELEMETRY_PROMETHEUS);
        unsigned fresh = atomic_load(&sums.fresh);
        assert_int_equal(metric(&text, "vllm:generation_tokens_total" VLLM "}"), fresh);
        assert_int_equal(metric(&text, "vllm:prompt_tokens_total" VLLM "}"),
                         atomic_load(&sums.prompt));
        assert_int_equal(metric(&text, "vllm:num_requests_running" VLLM "}"), 0);
        assert_int_equal(metric(&text, "vllm:num_requests_waiting" VLLM "}"), 0);
        assert_int_equal(
            metric(&text, "vllm:request_success_total" VLLM ",finished_reason=\"length\"}"),
            REQUESTS);
        assert_int_equal(metric(&text, "vllm:time_to_first_token_seconds_count" VLLM "}"),
                         REQUESTS);
        assert_int_equal(metric(&text, "vllm:inter_token_latency_seconds_count" VLLM "}"),
                         fresh - REQUESTS);
        assert_int_equal(
            metric(&text, "vllm:e2e_request_latency_seconds_bucket" VLLM ",le=\"+Inf\"}"),
            REQUESTS);
        assert_int_equal(metric(&text, "vllm:request_inference_time_seconds_count" VLLM "}"),
                         REQUESTS);
        assert_int_equal(metric(&text, "vllm:request_time_per_output_token_seconds_count" VLLM "}"),
                         REQUESTS);
        assert_int_equal(metric(&text, "vllm:request_params_max_tokens_count" VLLM "}"), REQUESTS);
        assert_int_equal(metric(&text, "vllm:request_params_max_tokens_bucket" VLLM ",le=\"5.0\"}"),
                         REQUESTS * 3 / 4); /* 3, 4, 5 and 6 tokens were asked for */
        /* Borders of tokens end with the context. */
        assert_int_equal(metric(&text, "vllm:request_prompt_tokens_bucket" VLLM ",le=\"100.0\"}"),
                         REQUESTS);
        assert_null(strstr(text.data, "le=\"200.0\"}"));
        /* With a scheduler: what can run together, else how many have counters. */
        assert_true(metric(&text, closed ? "vllm:lora_requests_info{max_lora=\"64\"," IDLE
                                         : "vllm:lora_requests_info{max_lora=\"4\"," IDLE) > 1.7e9);
        assert_non_null(strstr(text.data, "\nvllm:cache_config_info{block_size=\""));
        assert_int_equal(metric(&text, "avocet_stage_events_total{stage=\"sample\"}"), fresh);
        assert_int_equal(metric(&text, "avocet_stage_events_total{stage=\"deliver\"}"), fresh);
        assert_int_equal(metric(&text, "avocet_stage_events_total{stage=\"tokenise\"}"), REQUESTS);
        assert_int_equal(metric(&text, "avocet_adapter_requests_total{adapter=\"base\"}"),
                         REQUESTS);
        assert_int_equal(metric(&text, "avocet_kv_pages{state=\"used\"}"), 0);
        assert_true(metric(&text, "avocet_read_bytes_total") > 0.0);
        assert_true(metric(&text, "avocet_threads") == (closed ? 2.0 : 2.0));
        buffer_free(&text);
        avo_scheduler_close(w.scheduler);
        w.scheduler = NULL;
    }
    world_close(&w);
}

/* Worker 0 measures the phases. Where there are others, they may do all of one before it comes. */
static void phases_take_time(void **state) {
    (void)state;
    world w = {.threads = 1};
    avo_error error;
    world_open(&w, NULL);
    assert_ok_error(avo_scheduler_open(w.engine, NULL, &w.scheduler, &error), &error);
    sums sums = {0};
    submit_all(&w, &sums, 1);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    buffer text = exported(w.telemetry, AVO_TELEMETRY_PROMETHEUS);
    static const char *const phases[] = {"attention_input",     "attention",
                                         "attention_output",    "feed_forward_input",
                                         "feed_forward_output", "head"};
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        char name[80];
        snprintf(name, sizeof(name), "avocet_phase_seconds_total{phase=\"%s\"}", phases[i]);
        assert_true(metric(&text, name) > 0.0);
    }
    buffer_free(&text);
    world_close(&w);
}

/* ---- Without a scheduler ---- */

/* Adapters by handle come first, whatever the order of the request's fields. */
static void adapters_are_labelled_as_they_are_used(void **state) {
    (void)state;
    world w = {0};
    avo_error error;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    world_open(&w, &options);
    char path[2][4096];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/label-%d", test_scratch_folder(), i);
        mkdir(path[i], 0755);
        tiny_adapter_write(path[i], (uint64_t)i + 1);
    }
    avo_registry *registry;
    avo_adapter *handle;
    assert_ok_error(avo_registry_open(w.model, NULL, &registry, &error), &error);
    assert_ok_error(avo_registry_load(registry, "named", path[1], AVO_REGISTRY_LAZY, &error),
                    &error);
    assert_ok_error(avo_adapter_open(w.model, path[0], NULL, &handle, &error), &error);
    avo_scheduler_options scheduler = AVO_SCHEDULER_OPTIONS_INIT;
    scheduler.registry = registry;
    assert_ok_error(avo_scheduler_open(w.engine, &scheduler, &w.scheduler, &error), &error);
    avo_adapter_use use = {handle, 1.0f};
    avo_named_adapter named = {"named", 1.0f};
    avo_request request = AVO_REQUEST_INIT;
    request.text = "once upon a time";
    request.max_new_tokens = 2;
    request.adapters = &use;
    request.adapter_count = 1;
    request.named_adapters = &named;
    request.named_adapter_count = 1;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &error), &error);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    buffer text = exported(w.telemetry, AVO_TELEMETRY_PROMETHEUS);
    if (strstr(text.data, "label-0+named") == NULL)
        fail_msg("the label is not there: %s", text.data);
    buffer_free(&text);
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    avo_adapter_close(handle);
    avo_registry_close(registry);
    world_close(&w);
}

static void an_answer_alone_counts_too(void **state) {
    (void)state;
    world w = {0};
    avo_error error;
    world_open(&w, NULL);
    avo_session *session = NULL;
    assert_ok_error(avo_session_open(w.engine, NULL, &session, &error), &error);
    const int32_t tokens[] = {5, 6, 7, 8, 9};
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = tokens;
    request.token_count = 5;
    request.max_new_tokens = 6;
    request.ignore_end = true;
    assert_ok_error(avo_generate(w.engine, session, &request, NULL, &error), &error);
    request.token_count = 1000; /* too long: a failure is counted as one */
    assert_int_equal(avo_generate(w.engine, session, &request, NULL, &error), AVO_ERROR_CONTEXT);
    buffer text = exported(w.telemetry, AVO_TELEMETRY_JSON);
    arena arena;
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(json_parse(&arena, buffer_text(&text), &root, &error), &error);
    const json_value *requests = json_find(&root, "requests");
    assert_int_equal(json_find(requests, "finished")->integer, 1);
    assert_int_equal(json_find(requests, "failed")->integer, 1);
    assert_int_equal(json_find(requests, "running")->integer, 0);
    assert_int_equal(json_find(json_find(&root, "tokens"), "new")->integer, 6);
    const json_value *latency = json_find(&root, "latency");
    assert_int_equal(json_find(json_find(latency, "inter_token"), "count")->integer, 5);
    assert_int_equal(json_find(json_find(latency, "first_token"), "count")->integer, 1);
    assert_int_equal(json_find(json_find(latency, "queue"), "p50")->kind, JSON_NULL);
    assert_int_equal(json_find(&root, "threads")->integer, 2);
    assert_true(json_find(json_find(&root, "kv"), "used")->integer > 0);
    assert_int_equal(json_find(json_find(&root, "bandwidth"), "limit_bytes_per_second")->kind,
                     JSON_NULL);
    arena_free(&arena);
    buffer_free(&text);
    avo_session_close(session);
    world_close(&w);
}

/* ---- Adapters ---- */

static void adapters_beyond_the_limit_share_their_counters(void **state) {
    (void)state;
    avo_telemetry *telemetry = NULL;
    avo_error error;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.adapters_max = 3;
    assert_ok_error(avo_telemetry_open(&options, NULL, &telemetry, &error), &error);
    assert_int_equal(telemetry_adapter(telemetry, NULL), 0);
    assert_int_equal(telemetry_adapter(telemetry, ""), 0);
    telemetry_waiting_add(telemetry, 0, 1); /* the base is none of vLLM's adapters */
    uint32_t hostile = telemetry_adapter(telemetry, "a\"} 1\nfake{b=\"\\\x01\xff\t");
    uint32_t second = telemetry_adapter(telemetry, "second");
    assert_int_equal(telemetry_adapter(telemetry, "second"), second);
    assert_true(telemetry_adapter(telemetry, "third") != second);
    uint32_t beyond = telemetry_adapter(telemetry, "fourth");
    assert_int_equal(telemetry_adapter(telemetry, "fifth"), beyond);
    const uint32_t used[] = {hostile, second, beyond, beyond};
    for (size_t i = 0; i < 4; i++)
        telemetry_request_over(telemetry, &(telemetry_request){.adapter = used[i],
                                                               .submitted_ns = 1,
                                                               .begun_ns = 2,
                                                               .over_ns = 3,
                                                               .prompt_tokens = 10});
    telemetry_running_add(telemetry, hostile, 1);
    telemetry_running_add(telemetry, second, 2);
    telemetry_waiting_add(telemetry, second, 1);
    buffer text = exported(telemetry, AVO_TELEMETRY_PROMETHEUS);
    assert_non_null(strstr(text.data, "\nvllm:lora_requests_info{max_lora=\"3\","
                                      "waiting_lora_adapters=\"second\",running_lora_adapters="
                                      "\"a\\\"} 1\\nfake{b=\\\"\\\\ "));
    assert_null(strstr(text.data, "\nfake"));
    assert_int_equal(metric(&text, "avocet_adapter_prompt_tokens_total{adapter=\"other\"}"), 20);
    assert_int_equal(metric(&text, "avocet_adapter_prompt_tokens_total{adapter=\"second\"}"), 10);
    assert_int_equal(metric(&text, "avocet_adapter_prompt_tokens_total{adapter=\"a\\\"} "
                                   "1\\nfake{b=\\\"\\\\ \xEF\xBF\xBD \"}"),
                     10);
    buffer_free(&text);
    text = exported(telemetry, AVO_TELEMETRY_CSV); /* a line each, quotes doubled */
    assert_null(strstr(text.data, "\nfake"));
    assert_non_null(strstr(text.data, "\navocet_adapter_prompt_tokens_total,\"{adapter="
                                      "\"\"second\"\"}\",10\n"));
    buffer_free(&text);
    avo_telemetry_close(telemetry);
}

/* ---- Exporters beside those who compute ---- */

static void *export_often(void *context) {
    world *w = context;
    avo_error error;
    for (int i = 0; i < 60; i++) {
        buffer text = exported(w->telemetry, (avo_telemetry_form)(i % 3));
        text.size = 0;
        if (i % 4 == 0)
            avo_telemetry_trace_begin(w->telemetry);
        assert_ok_error(avo_telemetry_trace_write(w->telemetry, 5.0, collect, &text, &error),
                        &error);
        if (i % 4 == 0)
            avo_telemetry_trace_end(w->telemetry);
        buffer_free(&text);
    }
    return NULL;
}

static void exporters_disturb_nobody(void **state) {
    (void)state;
    world w = {0};
    avo_error error;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.spans_max = 256; /* wraps all the time */
    options.hardware = true; /* works or says why not */
    world_open(&w, &options);
    assert_ok_error(avo_scheduler_open(w.engine, NULL, &w.scheduler, &error), &error);
    pthread_t exporter;
    assert_int_equal(pthread_create(&exporter, NULL, export_often, &w), 0);
    sums sums = {0};
    submit_all(&w, &sums, 2 * REQUESTS);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    pthread_join(exporter, NULL);
    assert_int_equal(atomic_load(&sums.ended), 2 * REQUESTS);
    buffer text = exported(w.telemetry, AVO_TELEMETRY_PROMETHEUS);
    double counts = metric(&text, "avocet_hardware_counters");
    assert_true(counts == 0.0 || metric(&text, "avocet_cycles_total") > 0.0);
    assert_true(counts == 1.0 || strstr(text.data, "avocet_cycles_total") == NULL);
    buffer_free(&text);
    text = exported(w.telemetry, AVO_TELEMETRY_JSON);
    assert_true(counts == 1.0 || strstr(text.data, "no hardware counters: ") != NULL);
    buffer_free(&text);
    world_close(&w);
}

/* By position, as a naive count has it; more than there are positions for is no fault. */
static void drafts_are_counted_by_position(void **state) {
    (void)state;
    avo_error error;
    avo_telemetry *telemetry;
    assert_ok_error(avo_telemetry_open(NULL, NULL, &telemetry, &error), &error);
    static const uint32_t verified[][2] = {{4, 2}, {3, 0}, {0, 0}, {16, 16}, {1, 1}};
    for (size_t i = 0; i < sizeof(verified) / sizeof(verified[0]); i++)
        telemetry_drafts_add(telemetry, verified[i][0], verified[i][1]);
    telemetry_drafts_add(NULL, 3, 1);
    buffer text = exported(telemetry, AVO_TELEMETRY_PROMETHEUS);
    static const struct {
        const char *name;
        double value;
    } wanted[] = {{"drafts_total", 4}, {"draft_tokens_total", 24}, {"accepted_tokens_total", 19}};
    char series[160];
    for (size_t i = 0; i < 3; i++) {
        snprintf(series, sizeof(series), "vllm:spec_decode_num_%s{model_name=\"\",engine=\"0\"}",
                 wanted[i].name);
        assert_true(metric(&text, series) == wanted[i].value);
    }
    for (unsigned i = 0; i < TELEMETRY_DRAFTS_MAX; i++) {
        snprintf(series, sizeof(series),
                 "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"\",engine=\"0\","
                 "position=\"%u\"}",
                 i);
        assert_int_equal(metric(&text, series), i == 0 ? 3 : i == 1 ? 2 : 1);
    }
    buffer_free(&text);
    text = exported(telemetry, AVO_TELEMETRY_JSON);
    assert_non_null(strstr(text.data, "\"speculation\":{\"drafts\":4,\"draft_tokens\":24,"
                                      "\"accepted_tokens\":19,\"accepted_by_position\":[3,2,1,"));
    buffer_free(&text);
    avo_telemetry_close(telemetry);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_take_time),
        cmocka_unit_test(drafts_are_counted_by_position),
        cmocka_unit_test(a_schedulers_counts_are_those_of_its_results),
        cmocka_unit_test(adapters_are_labelled_as_they_are_used),
        cmocka_unit_test(an_answer_alone_counts_too),
        cmocka_unit_test(adapters_beyond_the_limit_share_their_counters),
        cmocka_unit_test(exporters_disturb_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
