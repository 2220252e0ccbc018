/* What the server is and how it is: models, health, readiness, telemetry, traces. */
#include "server/api/api_int.h"
#include "server/api/helpers.h"
#include "server/keys.h"

#include "base/number.h"
#include "sample/sample.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* ---- Models ---- */

typedef struct model_list {
    const api *api;
    const server_key *key;
    const char *only; /* NULL: all */
    json_writer *out;
    uint32_t count;
} model_list;

static void write_model(model_list *list, const char *name, const char *parent) {
    const api *api = list->api;
    json_writer *w = list->out;
    list->count++;
    json_object_begin(w);
    json_member_string(w, "id", name);
    json_member_string(w, "object", "model");
    json_member_i64(w, "created", api->opened_at);
    json_member_string(w, "owned_by", "avocet");
    json_member_string(w, "root", name); /* paths of the server's files are nobody's business */
    json_member_string(w, "parent", parent);
    json_member_u64(w, "max_model_len", api->context);
    json_member_object_begin(w, "meta");
    json_member_string(w, "architecture", api->info.architecture);
    json_member_u64(w, "n_vocab", api->info.vocabulary);
    json_member_u64(w, "n_ctx_train", api->info.context);
    json_member_u64(w, "n_embd", api->info.width);
    json_member_u64(w, "n_params", api->info.parameters);
    json_member_u64(w, "size", api->info.weight_bytes);
    json_end(w);
    json_end(w);
}

static bool wanted(const model_list *list, const char *name) {
    return list->only == NULL || strcmp(list->only, name) == 0;
}

static void see_adapter(void *context, const avo_registry_entry *entry) {
    model_list *list = context;
    if (wanted(list, entry->name) && server_key_allows_adapter(list->key, entry->name))
        write_model(list, entry->name, list->api->options->model_name);
}

static void list_models(model_list *list) {
    const char *base = list->api->options->model_name;
    if (wanted(list, base) && server_key_allows_adapter(list->key, NULL))
        write_model(list, base, NULL);
    if (list->api->registry != NULL)
        avo_registry_list(list->api->registry, see_adapter, list);
}

void endpoint_models(api *api, exchange *exchange) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    model_list list = {.api = api, .key = exchange_asked(exchange)->key, .out = &w};
    json_object_begin(&w);
    json_member_string(&w, "object", "list");
    json_member_array_begin(&w, "data");
    list_models(&list);
    json_end(&w);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

bool api_knows_model(const api *api, const server_key *key, const char *name) {
    buffer out;
    buffer_init(&out, NULL, 0); /* what is written is not wanted */
    json_writer w = json_writer_of(&out);
    model_list list = {.api = api, .key = key, .only = name, .out = &w};
    json_array_begin(&w);
    list_models(&list);
    json_end(&w);
    buffer_free(&out);
    return list.count > 0;
}

void endpoint_model(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    char own[KEY_ADAPTER_MAX];
    const char *given = asked->path + strlen("/v1/models/");
    const char *name = server_key_adapter(asked->key, given, adapter_is_known, api, own);
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    model_list list = {.api = api, .key = asked->key, .only = name, .out = &w};
    list_models(&list);
    if (list.count > 0)
        api_send_json(exchange, 200, &w);
    else
        exchange_fail(exchange, 404, "model", "model_not_found", "no model is named \"%.100s\"",
                      given);
    buffer_free(&out);
}

/* ---- Health ---- */

static void send_state(const api *api, exchange *exchange, unsigned http, const char *status,
                       double seconds) {
    uint32_t running = 0, waiting = 0;
    uint64_t steps = 0;
    api->host.figures(api->host.context, &running, &waiting, &steps);
    buffer out;
    buffer_init(&out, NULL, 4096);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "status", status);
    json_member_u64(&w, "running", running);
    json_member_u64(&w, "waiting", waiting);
    json_member_u64(&w, "steps", steps);
    json_member_fixed(&w, "still_seconds", seconds, 3);
    json_end(&w);
    api_send_json(exchange, http, &w);
    buffer_free(&out);
}

/* `alive`: what a server without a fault calls itself. */
static const char *state_name(server_state state, const char *alive) {
    const char *const names[] = {[SERVER_ALIVE] = alive,
                                 [SERVER_STALLED] = "stalled",
                                 [SERVER_DEVICE_FAILED] = "device_failed"};
    return names[state];
}

void endpoint_health(api *api, exchange *exchange) {
    double seconds = 0.0;
    server_state state = api->host.health(api->host.context, &seconds);
    send_state(api, exchange, state == SERVER_ALIVE ? 200 : 503, state_name(state, "ok"), seconds);
}

void endpoint_ready(api *api, exchange *exchange) {
    bool draining = api->host.draining(api->host.context);
    server_state state = api->host.health(api->host.context, NULL);
    send_state(api, exchange, state == SERVER_ALIVE && !draining ? 200 : 503,
               draining ? "draining" : state_name(state, "ready"), 0.0);
}

/* What requests get that do not say how tokens are drawn. */
static void write_sampling(json_writer *w, const api *api) {
    avo_sampling sampling;
    bool own = api_sampling(api, BODY_CHAT, &sampling);
    json_member_object_begin(w, "sampling");
    json_member_boolean(w, "recommended", own); /* by the model's publisher */
    json_member_float(w, "temperature", sampling.temperature);
    json_member_float(w, "top_p", sampling.top_p);
    json_member_u64(w, "top_k", sampling.top_k);
    json_member_float(w, "min_p", sampling.min_p);
    json_member_float(w, "repetition_penalty", sampling.repetition_penalty);
    json_end(w);
}

void endpoint_version(api *api, exchange *exchange) {
    const server_options *options = api->options;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "version", avo_version());
    json_member_string(&w, "model", options->model_name);
    json_member_string(&w, "digest", api->digest);
    json_member_string(&w, "architecture", api->info.architecture);
    json_member_string(&w, "isa", avo_engine_device(options->engine));
    json_member_u64(&w, "context", api->context);
    json_member_string(&w, "tools", chat_format_name(api->format));
    json_member_boolean(&w, "chat", avo_chat_check(api->model, NULL) == AVO_OK);
    json_member_boolean(&w, "training", options->training != NULL);
    write_sampling(&w, api);
    json_member_object_begin(&w, "limits");
    json_member_u64(&w, "body_bytes", options->body_bytes_max);
    json_member_u64(&w, "connections", options->connections_max);
    json_member_u64(&w, "choices", options->choices_max);
    json_member_u64(&w, "prompts", API_PROMPTS_MAX);
    json_member_u64(&w, "messages", CHAT_TURNS_MAX);
    json_member_u64(&w, "tools", CHAT_TOOLS_MAX);
    json_member_u64(&w, "stops", STOP_STRINGS_MAX);
    json_member_u64(&w, "top_logprobs", AVO_TOP_LOGPROBS_MAX);
    json_member_u64(&w, "adapters", AVO_ADAPTERS_MAX);
    json_end(&w);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

void endpoint_openapi(api *api, exchange *exchange) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    openapi_write(&w, api);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

/* ---- Telemetry ---- */

static bool write_into(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

/* Keys are the server's, not the engine's: their metrics follow those of the telemetry. */
static avo_status write_export(const api *api, avo_telemetry_form form, buffer *out,
                               avo_error *error) {
    AVO_TRY(avo_telemetry_export(api->options->telemetry, form, write_into, out, error));
    if (form != AVO_TELEMETRY_PROMETHEUS || usage_write_metrics(api, out) == AVO_OK)
        return AVO_OK;
    return status_no_memory(error, "the metrics", out->size);
}

static void export(api *api, exchange *exchange, avo_telemetry_form form, const char *type) {
    if (api->options->telemetry == NULL) {
        exchange_fail(exchange, 404, NULL, "no_telemetry", "telemetry is disabled on this server");
        return;
    }
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    avo_error error = {0};
    if (write_export(api, form, &out, &error) == AVO_OK)
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

static void end_trace(api *api) {
    pthread_mutex_lock(&api->lock);
    api->tracing = false;
    pthread_mutex_unlock(&api->lock);
}

static void trace_run(api *api, void *context) {
    trace_job *job = context;
    avo_error error = {0};
    avo_trace_reader reader = {trace_wanted, trace_piece, job};
    buffer_init(&job->out, NULL, API_ANSWER_BYTES_MAX);
    avo_status status = avo_telemetry_trace_record(api->options->telemetry, job->seconds,
                                                   API_TRACE_SPANS_MAX, &reader, &error);
    exchange_on_gone(job->exchange, NULL, NULL);
    end_trace(api);
    helper_finished(api);
    if (status == AVO_OK)
        exchange_send(job->exchange, 200, "application/json", buffer_text(&job->out));
    else
        exchange_fail(job->exchange, 503, NULL, "trace_failed", "%s", error.text);
    buffer_free(&job->out);
    exchange_release(job->exchange);
    free(job);
}

static bool take_trace(api *api) {
    pthread_mutex_lock(&api->lock);
    bool taken = !api->tracing;
    api->tracing = true;
    pthread_mutex_unlock(&api->lock);
    return taken;
}

void endpoint_trace(api *api, exchange *exchange) {
    api_audit(api, exchange, "record_trace", NULL, NULL);
    const char *text = exchange_query(exchange, "seconds");
    char *end = NULL;
    double seconds = text == NULL ? 5.0 : number_from_text(text, &end);
    if (text != NULL && (end == text || *end != '\0'))
        seconds = NAN;
    if (!(seconds > 0.0 && seconds <= API_TRACE_SECONDS_MAX)) {
        exchange_fail(exchange, 400, "seconds", "invalid_value",
                      "seconds must be a number between 0 and %g", API_TRACE_SECONDS_MAX);
        return;
    }
    if (api->options->telemetry == NULL) {
        exchange_fail(exchange, 404, NULL, "no_telemetry", "telemetry is disabled on this server");
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
    end_trace(api);
    exchange_refuse(exchange, 503, 1.0, "cannot start a thread for the trace");
}
