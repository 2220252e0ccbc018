/* What the server is and how it is: models, health, readiness, telemetry, traces. */
#include "server/api/api_int.h"
#include "server/api/helpers.h"
#include "server/keys.h"

#include "base/number.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static void send_json(exchange *exchange, unsigned status, bool good, buffer *out) {
    if (good)
        exchange_send(exchange, status, "application/json", buffer_text(out));
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "there is no memory left");
    buffer_free(out);
}

/* ---- Models ---- */

typedef struct model_list {
    const api *api;
    const server_key *key;
    const char *only; /* NULL: all */
    buffer out;
    uint32_t count;
    bool good;
} model_list;

static avo_status write_model(model_list *list, const char *name, const char *path,
                              const char *parent) {
    const api *api = list->api;
    buffer *out = &list->out;
    if (list->count++ > 0)
        AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(buffer_append_text(out, "{\"id\":"));
    AVO_TRY(json_write_string(out, text_from(name)));
    AVO_TRY(buffer_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"avocet\"",
                          (long long)api->opened_at));
    AVO_TRY(buffer_append_text(out, ",\"root\":"));
    AVO_TRY(json_write_string(out, text_from(path)));
    AVO_TRY(buffer_append_text(out, ",\"parent\":"));
    AVO_TRY(parent == NULL ? buffer_append_text(out, "null")
                           : json_write_string(out, text_from(parent)));
    return buffer_format(out,
                         ",\"max_model_len\":%u,\"meta\":{\"architecture\":\"%s\",\"n_vocab\":%u,"
                         "\"n_ctx_train\":%u,\"n_embd\":%u,\"n_params\":%llu,\"size\":%llu}}",
                         api->context, api->info.architecture, api->info.vocabulary,
                         api->info.context, api->info.width,
                         (unsigned long long)api->info.parameters,
                         (unsigned long long)api->info.weight_bytes);
}

static bool wanted(const model_list *list, const char *name) {
    return list->only == NULL || strcmp(list->only, name) == 0;
}

static void see_adapter(void *context, const avo_registry_entry *entry) {
    model_list *list = context;
    if (wanted(list, entry->name) && server_key_allows_adapter(list->key, entry->name))
        list->good = list->good && write_model(list, entry->name, entry->name,
                                               list->api->options->model_name) == AVO_OK;
}

/* Paths of the server's files are nobody's business. */
static void list_models(model_list *list) {
    const char *base = list->api->options->model_name;
    list->good = true;
    if (wanted(list, base) && server_key_allows_adapter(list->key, NULL))
        list->good = write_model(list, base, base, NULL) == AVO_OK;
    if (list->api->registry != NULL)
        avo_registry_list(list->api->registry, see_adapter, list);
}

void endpoint_models(api *api, exchange *exchange) {
    model_list list = {.api = api, .key = exchange_asked(exchange)->key};
    buffer_init(&list.out, NULL, API_ANSWER_BYTES_MAX);
    bool good = buffer_append_text(&list.out, "{\"object\":\"list\",\"data\":[") == AVO_OK;
    list_models(&list);
    good = good && list.good && buffer_append_text(&list.out, "]}") == AVO_OK;
    send_json(exchange, 200, good, &list.out);
}

void endpoint_model(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    const char *name = asked->path + strlen("/v1/models/");
    model_list list = {.api = api, .key = asked->key, .only = name};
    buffer_init(&list.out, NULL, API_ANSWER_BYTES_MAX);
    list_models(&list);
    if (list.count > 0) {
        send_json(exchange, 200, list.good, &list.out);
        return;
    }
    buffer_free(&list.out);
    exchange_fail(exchange, 404, "model", "model_not_found", "there is no model \"%.100s\"", name);
}

/* ---- Health ---- */

static avo_status write_state(const api *api, const char *status, double seconds, buffer *out) {
    uint32_t running = 0, waiting = 0;
    uint64_t steps = 0;
    api->host.figures(api->host.context, &running, &waiting, &steps);
    char still[NUMBER_TEXT_MAX * 2];
    number_to_text(still, sizeof(still), 'f', 3, seconds);
    return buffer_format(out,
                         "{\"status\":\"%s\",\"running\":%u,\"waiting\":%u,\"steps\":%llu,"
                         "\"still_seconds\":%s}",
                         status, running, waiting, (unsigned long long)steps, still);
}

void endpoint_health(api *api, exchange *exchange) {
    double seconds = 0.0;
    bool alive = api->host.alive(api->host.context, &seconds);
    buffer out;
    buffer_init(&out, NULL, 4096);
    bool good = write_state(api, alive ? "ok" : "stalled", seconds, &out) == AVO_OK;
    send_json(exchange, alive ? 200 : 503, good, &out);
}

void endpoint_ready(api *api, exchange *exchange) {
    bool draining = api->host.draining(api->host.context);
    bool ready = !draining && api->host.alive(api->host.context, NULL);
    buffer out;
    buffer_init(&out, NULL, 4096);
    bool good = write_state(api,
                            ready      ? "ready"
                            : draining ? "draining"
                                       : "stalled",
                            0.0, &out) == AVO_OK;
    send_json(exchange, ready ? 200 : 503, good, &out);
}

static avo_status write_version(const api *api, buffer *out) {
    const server_options *options = api->options;
    AVO_TRY(buffer_append_text(out, "{\"version\":"));
    AVO_TRY(json_write_string(out, text_from(avo_version())));
    AVO_TRY(buffer_append_text(out, ",\"model\":"));
    AVO_TRY(json_write_string(out, text_from(options->model_name)));
    AVO_TRY(buffer_format(out, ",\"architecture\":\"%s\",\"isa\":\"%s\",\"context\":%u,\"tools\":",
                          api->info.architecture, avo_engine_device(options->engine),
                          api->context));
    const char *tools = chat_format_name(api->format);
    AVO_TRY(tools == NULL ? buffer_append_text(out, "null")
                          : json_write_string(out, text_from(tools)));
    return buffer_format(out,
                         ",\"chat\":%s,\"limits\":{\"body_bytes\":%llu,\"connections\":%u,"
                         "\"choices\":%u,\"prompts\":%d,\"messages\":%d,\"tools\":%d,\"stops\":%d,"
                         "\"top_logprobs\":%d,\"adapters\":%d}}",
                         avo_chat_check(api->model, NULL) == AVO_OK ? "true" : "false",
                         (unsigned long long)options->body_bytes_max, options->connections_max,
                         options->choices_max, API_PROMPTS_MAX, CHAT_TURNS_MAX, CHAT_TOOLS_MAX,
                         API_STOPS_MAX, AVO_TOP_LOGPROBS_MAX, AVO_ADAPTERS_MAX);
}

void endpoint_version(api *api, exchange *exchange) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    bool good = write_version(api, &out) == AVO_OK;
    send_json(exchange, 200, good, &out);
}

void endpoint_openapi(api *api, exchange *exchange) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    bool good = openapi_write(api, &out) == AVO_OK;
    send_json(exchange, 200, good, &out);
}

/* ---- Telemetry ---- */

static bool write_into(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

static void export(api *api, exchange *exchange, avo_telemetry_form form, const char *type) {
    if (api->options->telemetry == NULL) {
        exchange_fail(exchange, 404, NULL, "no_telemetry", "this server keeps no telemetry");
        return;
    }
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    avo_error error = {0};
    if (avo_telemetry_export(api->options->telemetry, form, write_into, &out, &error) == AVO_OK)
        exchange_send(exchange, 200, type, buffer_text(&out));
    else
        exchange_fail(exchange, 503, NULL, "telemetry_failed", "%s", error.text);
    buffer_free(&out);
}

void endpoint_metrics(api *api, exchange *exchange) {
    export(api, exchange, AVO_TELEMETRY_PROMETHEUS, "text/plain; version=0.0.4; charset=utf-8");
}

void endpoint_telemetry(api *api, exchange *exchange) {
    export(api, exchange, AVO_TELEMETRY_JSON, "application/json");
}

typedef struct trace_job {
    exchange *exchange;
    double seconds;
    atomic_bool gone;
    buffer out;
} trace_job;

static void trace_gone(void *context) {
    atomic_store(&((trace_job *)context)->gone, true);
}

static bool trace_wanted(void *context) {
    return !atomic_load(&((trace_job *)context)->gone);
}

static bool trace_piece(void *context, const char *text, size_t bytes) {
    return write_into(&((trace_job *)context)->out, text, bytes);
}

static void trace_run(api *api, void *context) {
    trace_job *job = context;
    avo_error error = {0};
    avo_trace_reader reader = {trace_wanted, trace_piece, job};
    buffer_init(&job->out, NULL, API_ANSWER_BYTES_MAX);
    avo_status status = avo_telemetry_trace_record(api->options->telemetry, job->seconds,
                                                   API_TRACE_SPANS_MAX, &reader, &error);
    exchange_on_gone(job->exchange, NULL, NULL);
    if (status == AVO_OK)
        exchange_send(job->exchange, 200, "application/json", buffer_text(&job->out));
    else
        exchange_fail(job->exchange, 503, NULL, "trace_failed", "%s", error.text);
    buffer_free(&job->out);
    exchange_release(job->exchange);
    free(job);
    pthread_mutex_lock(&api->lock);
    api->tracing = false;
    pthread_mutex_unlock(&api->lock);
}

static bool take_trace(api *api) {
    pthread_mutex_lock(&api->lock);
    bool taken = !api->tracing;
    api->tracing = true;
    pthread_mutex_unlock(&api->lock);
    return taken;
}

void endpoint_trace(api *api, exchange *exchange) {
    const char *text = exchange_query(exchange, "seconds");
    char *end = NULL;
    double seconds = text == NULL ? 5.0 : number_from_text(text, &end);
    if (text != NULL && (end == text || *end != '\0'))
        seconds = NAN;
    if (!(seconds > 0.0 && seconds <= API_TRACE_SECONDS_MAX)) {
        exchange_fail(exchange, 400, "seconds", "invalid_value",
                      "seconds: a number between 0 and %g", API_TRACE_SECONDS_MAX);
        return;
    }
    if (api->options->telemetry == NULL) {
        exchange_fail(exchange, 404, NULL, "no_telemetry", "this server keeps no telemetry");
        return;
    }
    if (!take_trace(api)) {
        exchange_refuse(exchange, 503, seconds, "another trace is being recorded");
        return;
    }
    trace_job *job = calloc(1, sizeof(*job));
    if (job != NULL) {
        job->exchange = exchange_share(exchange);
        job->seconds = seconds;
        exchange_on_gone(exchange, trace_gone, job);
        if (helper_start(api, trace_run, job))
            return;
        exchange_on_gone(exchange, NULL, NULL);
        exchange_release(job->exchange);
        free(job);
    }
    pthread_mutex_lock(&api->lock);
    api->tracing = false;
    pthread_mutex_unlock(&api->lock);
    exchange_refuse(exchange, 503, 1.0, "there is no thread left for a trace");
}
