/* Endpoints: which path is answered by what, and what they share. */
#include "server/api/api_int.h"
#include "server/api/batch.h"
#include "server/api/grpc/grpc.h"
#include "server/page/page.h"

#include "base/clock.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* ---- Routes ---- */

#define JSON          "application/json"
#define TEXT          "text/plain"
#define ANSWER_ERRORS "400,401,403,404,408,413,415,429,503,504"
#define READ_ERRORS   "401,403,429,503"
#define ADMIN_ERRORS  "400,401,403,404,408,413,415,429,503"
#define FILE_ERRORS   "400,401,403,404,408,413,429,503"
const api_route api_routes[] = {
    {"POST", "/v1/chat/completions", endpoint_chat, BODY_CHAT, ACCESS_ALL, "OpenAI",
     "Answers a conversation.", JSON, "ChatCompletion", ANSWER_ERRORS, NULL},
    {"POST", "/v1/completions", endpoint_completion, BODY_COMPLETION, ACCESS_ALL, "OpenAI",
     "Continues texts.", JSON, "Completion", ANSWER_ERRORS, NULL},
    {"POST", "/v1/responses", endpoint_response, BODY_RESPONSE, ACCESS_ALL, "OpenAI",
     "Answers a conversation given as items; nothing is stored.", JSON, "Response", ANSWER_ERRORS,
     NULL},
    {"POST", "/v1/embeddings", endpoint_embedding, BODY_EMBEDDING, ACCESS_ALL, "OpenAI",
     "Computes embeddings of texts.", JSON, "Embeddings", ANSWER_ERRORS, NULL},
    {"POST", "/v1/files", endpoint_upload, BODY_NONE, ACCESS_ALL, "Batches",
     "Stores a file of requests for a batch: multipart/form-data with file and purpose.", JSON,
     "File", FILE_ERRORS, NULL},
    {"GET", "/v1/files", endpoint_files, BODY_NONE, ACCESS_ALL, "Batches",
     "Lists the key's files, the newest first.", JSON, "Files", FILE_ERRORS, openapi_list},
    {"GET", "/v1/files/{id}/content", endpoint_file_content, BODY_NONE, ACCESS_ALL, "Batches",
     "Returns the bytes of a file.", TEXT, NULL, FILE_ERRORS, openapi_file_id},
    {"GET", "/v1/files/{id}", endpoint_file, BODY_NONE, ACCESS_ALL, "Batches", "Describes a file.",
     JSON, "File", FILE_ERRORS, openapi_file_id},
    {"DELETE", "/v1/files/{id}", endpoint_file_delete, BODY_NONE, ACCESS_ALL, "Batches",
     "Deletes a file.", JSON, "Deleted", FILE_ERRORS, openapi_file_id},
    {"POST", "/v1/batches", endpoint_batch_create, BODY_NONE, ACCESS_ALL, "Batches",
     "Answers the requests of a file when nobody else waits.", JSON, "Batch", FILE_ERRORS, NULL},
    {"GET", "/v1/batches", endpoint_batches, BODY_NONE, ACCESS_ALL, "Batches",
     "Lists the key's batches, the newest first.", JSON, "Batches", FILE_ERRORS, openapi_list},
    {"POST", "/v1/batches/{id}/cancel", endpoint_batch_cancel, BODY_NONE, ACCESS_ALL, "Batches",
     "Cancels a batch; what was answered stays.", JSON, "Batch", FILE_ERRORS, openapi_file_id},
    {"GET", "/v1/batches/{id}", endpoint_batch, BODY_NONE, ACCESS_ALL, "Batches",
     "Describes a batch.", JSON, "Batch", FILE_ERRORS, openapi_file_id},
    {"GET", "/v1/models", endpoint_models, BODY_NONE, ACCESS_ALL, "OpenAI",
     "Lists the base model and adapters.", JSON, "Models", READ_ERRORS, NULL},
    {"GET", "/v1/models/{id}", endpoint_model, BODY_NONE, ACCESS_ALL, "OpenAI",
     "Describes the base model or an adapter.", JSON, "Model", "401,403,404,429,503",
     openapi_model_id},
    {"POST", "/v1/messages", endpoint_message, BODY_MESSAGE, ACCESS_ALL, "Anthropic",
     "Answers a conversation.", JSON, "Message", ANSWER_ERRORS, NULL},
    {"POST", "/v1/messages/count_tokens", endpoint_count, BODY_COUNT, ACCESS_ALL, "Anthropic",
     "Counts the tokens of a conversation.", JSON, "Count", ANSWER_ERRORS, NULL},
    {"POST", "/completion", endpoint_llama, BODY_LLAMA, ACCESS_ALL, "llama.cpp", "Continues texts.",
     JSON, "LlamaCompletion", ANSWER_ERRORS, NULL},
    {"POST", "/completions", endpoint_llama, BODY_LLAMA, ACCESS_ALL, "llama.cpp",
     "Same as /completion.", JSON, "LlamaCompletion", ANSWER_ERRORS, NULL},
    {"POST", "/infill", endpoint_infill, BODY_INFILL, ACCESS_ALL, "llama.cpp",
     "Fills a gap between two texts, with models that were trained to.", JSON, "LlamaCompletion",
     ANSWER_ERRORS, NULL},
    {"POST", "/embedding", endpoint_llama_embedding, BODY_LLAMA_EMBEDDING, ACCESS_ALL, "llama.cpp",
     "Computes embeddings of texts.", JSON, "Vectors", ANSWER_ERRORS, NULL},
    {"POST", "/embeddings", endpoint_llama_embedding, BODY_LLAMA_EMBEDDING, ACCESS_ALL, "llama.cpp",
     "Same as /embedding.", JSON, "Vectors", ANSWER_ERRORS, NULL},
    {"POST", "/apply-template", endpoint_template, BODY_TEMPLATE, ACCESS_ALL, "llama.cpp",
     "Renders a conversation with the chat template.", JSON, "Rendered", ADMIN_ERRORS, NULL},
    {"GET", "/props", endpoint_props, BODY_NONE, ACCESS_ALL, "llama.cpp",
     "Model, limits and defaults.", JSON, "Props", READ_ERRORS, NULL},
    {"GET", "/slots", endpoint_slots, BODY_NONE, ACCESS_ALL, "llama.cpp",
     "How many sessions there are, and how many of them work.", JSON, "Slots", READ_ERRORS, NULL},
    {"GET", "/models", endpoint_models, BODY_NONE, ACCESS_ALL, "llama.cpp", "Same as /v1/models.",
     JSON, "Models", READ_ERRORS, NULL},
    {"POST", "/api/chat", endpoint_ollama_chat, BODY_OLLAMA_CHAT, ACCESS_ALL, "ollama",
     "Answers a conversation.", JSON, "OllamaAnswer", ANSWER_ERRORS, NULL},
    {"POST", "/api/generate", endpoint_ollama_generate, BODY_OLLAMA_GENERATE, ACCESS_ALL, "ollama",
     "Answers a prompt, or continues it with raw.", JSON, "OllamaAnswer", ANSWER_ERRORS, NULL},
    {"POST", "/api/embed", endpoint_ollama_embed, BODY_OLLAMA_EMBED, ACCESS_ALL, "ollama",
     "Computes embeddings of texts.", JSON, "OllamaVectors", ANSWER_ERRORS, NULL},
    {"POST", "/api/embeddings", endpoint_ollama_vector, BODY_OLLAMA_VECTOR, ACCESS_ALL, "ollama",
     "Computes the embedding of a text, not normalised.", JSON, "OllamaVector", ANSWER_ERRORS,
     NULL},
    {"POST", "/api/show", endpoint_ollama_show, BODY_OLLAMA_NAME, ACCESS_ALL, "ollama",
     "Describes the base model or an adapter.", JSON, "OllamaModel", ADMIN_ERRORS, NULL},
    {"POST", "/api/pull", endpoint_ollama_pull, BODY_OLLAMA_NAME, ACCESS_ALL, "ollama",
     "Succeeds for a model that is there; nothing is downloaded.", JSON, "OllamaStatus",
     ADMIN_ERRORS, NULL},
    {"GET", "/api/tags", endpoint_ollama_tags, BODY_NONE, ACCESS_ALL, "ollama",
     "Lists the base model and adapters.", JSON, "OllamaModels", READ_ERRORS, NULL},
    {"GET", "/api/ps", endpoint_ollama_ps, BODY_NONE, ACCESS_ALL, "ollama",
     "Lists the same models: they are loaded.", JSON, "OllamaModels", READ_ERRORS, NULL},
    {"GET", "/api/version", endpoint_ollama_version, BODY_NONE, ACCESS_ALL, "ollama",
     "The version of ollama's interface.", JSON, "OllamaVersion", READ_ERRORS, NULL},
    {"POST", "/tokenize", endpoint_tokenize, BODY_TOKENIZE, ACCESS_ALL, "Tokens",
     "Converts a text or a conversation to token ids.", JSON, "Tokens", ADMIN_ERRORS, NULL},
    {"POST", "/detokenize", endpoint_detokenize, BODY_DETOKENIZE, ACCESS_ALL, "Tokens",
     "Converts token ids to text.", JSON, "Text", ADMIN_ERRORS, NULL},
    {"GET", "/tokenizer_info", endpoint_tokenizer_info, BODY_NONE, ACCESS_ALL, "Tokens",
     "Special tokens, limits and chat template of the tokenizer.", JSON, "Tokenizer",
     "401,403,404,429,503", NULL},
    {"POST", "/v1/load_lora_adapter", endpoint_load, BODY_LOAD, ACCESS_OWNER, "Adapters",
     "Loads an adapter, or replaces the one with this name.", TEXT, NULL, ADMIN_ERRORS, NULL},
    {"POST", "/v1/unload_lora_adapter", endpoint_unload, BODY_UNLOAD, ACCESS_OWNER, "Adapters",
     "Unloads an adapter after the requests that use it have finished.", TEXT, NULL, ADMIN_ERRORS,
     NULL},
    {"GET", "/lora-adapters", endpoint_scales, BODY_NONE, ACCESS_ALL, "Adapters",
     "Lists adapters by id, with the default scale for requests that select none.", JSON,
     "Adapters", READ_ERRORS, NULL},
    {"POST", "/lora-adapters", endpoint_set_scales, BODY_SCALES, ACCESS_ADMIN, "Adapters",
     "Sets the default scales; adapters that are not listed get 0.", JSON, "Success", ADMIN_ERRORS,
     NULL},
    {"GET", "/health", endpoint_health, BODY_NONE, ACCESS_ALL, "Operation",
     "Reports whether the server is healthy: the decode loop is idle or has made progress lately, "
     "and the device works.",
     JSON, "Health", "403,503", NULL},
    {"GET", "/ready", endpoint_ready, BODY_NONE, ACCESS_ALL, "Operation",
     "Reports whether the server accepts requests; 503 while it drains.", JSON, "Health", "403,503",
     NULL},
    {"GET", "/metrics", endpoint_metrics, BODY_NONE, ACCESS_METRICS, "Operation",
     "Counters and histograms for Prometheus.", TEXT, NULL, "401,403,404,429,503", NULL},
    {"GET", "/telemetry", endpoint_telemetry, BODY_NONE, ACCESS_METRICS, "Operation",
     "Returns the data of the dashboard.", JSON, "Telemetry", "401,403,404,429,503", NULL},
    {"GET", "/training", endpoint_training, BODY_NONE, ACCESS_ALL, "Operation",
     "Lists training runs, or, with run, returns the metrics of one.", JSON, "Training",
     "401,403,404,429,503", openapi_training_run},
    {"GET", "/v1/usage", endpoint_usage, BODY_NONE, ACCESS_ALL, "Operation",
     "Requests and tokens by key and day, and quota windows; a key sees its own, administrators "
     "all.",
     JSON, "Usage", "400,401,403,404,429,503", openapi_usage},
    {"GET", "/version", endpoint_version, BODY_NONE, ACCESS_ALL, "Operation",
     "Version, model and limits.", JSON, "Version", READ_ERRORS, NULL},
    {"GET", "/openapi.json", endpoint_openapi, BODY_NONE, ACCESS_ALL, "Operation",
     "Returns this document.", JSON, "Document", "403,503", NULL},
    {"POST", "/debug/trace", endpoint_trace, BODY_NONE, ACCESS_ADMIN, "Operation",
     "Records a Chrome trace for some seconds.", JSON, "Trace", ADMIN_ERRORS,
     openapi_trace_seconds},
};
const size_t api_route_count = sizeof(api_routes) / sizeof(api_routes[0]);

static bool path_matches(const char *pattern, const char *path) {
    size_t fixed = strcspn(pattern, "{");
    if (pattern[fixed] == '\0')
        return strcmp(pattern, path) == 0;
    const char *behind = strchr(pattern + fixed, '}') + 1;
    size_t size = strlen(path), end = strlen(behind);
    return size > fixed + end && strncmp(pattern, path, fixed) == 0 &&
           strcmp(path + size - end, behind) == 0;
}

static void api_allowed(void *context, const char *path, char *text, size_t capacity) {
    const api *api = context;
    static const char *const methods[] = {"GET", "POST", "DELETE"};
    bool known = !api->options->no_page && page_find(path) != NULL;
    bool takes[3] = {known, false, false};
    for (size_t i = 0; i < api_route_count; i++)
        for (size_t m = 0; m < 3; m++)
            if (path_matches(api_routes[i].path, path) &&
                strcmp(api_routes[i].method, methods[m]) == 0)
                known = takes[m] = true;
    snprintf(text, capacity, "%s%s%sOPTIONS", takes[0] || !known ? "GET, HEAD, " : "",
             takes[1] || !known ? "POST, " : "", takes[2] ? "DELETE, " : "");
}

static void refuse_method(api *api, exchange *exchange, const char *path) {
    char allowed[64];
    api_allowed(api, path, allowed, sizeof(allowed));
    exchange_set_header(exchange, "Allow", allowed);
    exchange_fail(exchange, 405, NULL, "method_not_allowed",
                  "method not allowed for %.200s; allowed: %s", path, allowed);
}

static bool may_use(const api_route *route, const exchange_request *asked) {
    switch (route->access) {
    case ACCESS_ADMIN:
        return asked->may_administer;
    case ACCESS_OWNER:
        return asked->may_administer || server_key_own_adapters(asked->key) > 0;
    case ACCESS_METRICS:
        return server_key_sees_metrics(asked->key);
    case ACCESS_ALL:
        break;
    }
    return true;
}

void api_audit(const api *api, exchange *exchange, const char *action, const char *target,
               const char *reason) {
    const exchange_request *asked = exchange_asked(exchange);
    if (api->host.audit == NULL)
        return;
    audit_entry entry = {.actor = asked->key == NULL ? "local" : server_key_name(asked->key),
                         .peer = asked->peer,
                         .request = asked->id,
                         .action = action,
                         .target = target,
                         .outcome = reason == NULL          ? AUDIT_DONE
                                    : action == asked->path ? AUDIT_DENIED
                                                            : AUDIT_FAILED,
                         .reason = reason};
    api->host.audit(api->host.context, &entry);
}

void api_answer_route(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    bool known = false;
    for (size_t i = 0; i < api_route_count; i++) {
        const api_route *route = &api_routes[i];
        if (!path_matches(route->path, asked->path))
            continue;
        known = true;
        if (strcmp(route->method, asked->method) != 0)
            continue;
        if (may_use(route, asked)) {
            route->answer(api, exchange);
            return;
        }
        if (route->access != ACCESS_METRICS)
            api_audit(api, exchange, asked->path, NULL, "needs an admin key");
        exchange_fail(exchange, 403, NULL, "admin_only", "%s needs an admin key%s", asked->path,
                      route->access == ACCESS_METRICS ? " or one with \"metrics\"" : "");
        return;
    }
    const page_file *page = api->options->no_page ? NULL : page_find(asked->path);
    if (page != NULL && strcmp(asked->method, "GET") == 0)
        page_send(exchange, page);
    else if (page != NULL || known)
        refuse_method(api, exchange, asked->path);
    else
        exchange_fail(exchange, 404, NULL, "not_found", "no such path: %s", asked->path);
}

static void api_handle(void *context, exchange *exchange) {
#ifdef AVO_HTTP2
    if (exchange_asked(exchange)->grpc) {
        grpc_handle(context, exchange);
        return;
    }
#endif
    api_answer_route(context, exchange);
}

#ifdef AVO_HTTP2
static unsigned api_call(void *context, const char *path) {
    (void)context;
    return grpc_call_of(path);
}

static void api_changed(void *context) {
    grpc_changed(context);
}
#endif

/* ---- State ---- */

server_handler api_handler(api *api) {
    server_handler handler = {.context = api, .handle = api_handle, .allowed = api_allowed};
#ifdef AVO_HTTP2
    handler.call = api_call;
    handler.changed = api_changed;
#endif
    return handler;
}

avo_status api_open(const server_options *options, const api_host *host, api **out,
                    avo_error *error) {
    api *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "the endpoints", sizeof(*opened));
    opened->host = *host;
    opened->options = options;
    opened->model = opened->options->model;
    opened->scheduler = opened->options->scheduler;
    opened->registry = opened->options->registry;
    opened->info = (avo_model_info)AVO_MODEL_INFO_INIT;
    avo_model_describe(opened->model, &opened->info);
    snprintf(opened->digest, sizeof(opened->digest), "%016llx",
             (unsigned long long)source_digest(opened->model->source));
    opened->context =
        opened->options->context != 0 ? opened->options->context : opened->info.context;
    opened->opened_at = api_now();
    if (getrandom(&opened->secret, sizeof(opened->secret), 0) != sizeof(opened->secret))
        opened->secret = clock_now_ns();
    atomic_init(&opened->counter, 0);
    pthread_mutex_init(&opened->lock, NULL);
    pthread_cond_init(&opened->idle, NULL);
    if (chat_format_open(opened->model, &opened->format, error) != AVO_OK ||
        grammar_cache_open(opened->model, API_GRAMMARS_BYTES_MAX, &opened->grammars, error) !=
            AVO_OK) {
        api_close(opened);
        return status_no_memory(error, "the endpoints", sizeof(*opened));
    }
    adapters_number(opened);
    if (options->state != NULL) {
        avo_status status = batches_open(opened, &opened->batches, error);
        if (status != AVO_OK) {
            api_close(opened);
            return status;
        }
    }
    *out = opened;
    return AVO_OK;
}

void api_close(api *api) {
    if (api == NULL)
        return;
    batches_close(api->batches);
    pthread_mutex_lock(&api->lock);
    while (api->helpers > 0 || api->readers > 0 || api->room_runs)
        pthread_cond_wait(&api->idle, &api->lock);
    pthread_mutex_unlock(&api->lock);
    grammar_cache_close(api->grammars);
    adapters_forget(api);
    chat_format_close(api->format);
    pthread_cond_destroy(&api->idle);
    pthread_mutex_destroy(&api->lock);
    free(api);
}

/* ---- Shared ---- */

int64_t api_now(void) {
    return (int64_t)time(NULL);
}

uint64_t api_random(api *api) {
    random_block block = random_at(api->secret, 1, atomic_fetch_add(&api->counter, 1));
    return (uint64_t)block.words[0] << 32 | block.words[1];
}

void api_make_id(api *api, const char *prefix, char *id, size_t capacity) {
    random_block block = random_at(api->secret, 2, atomic_fetch_add(&api->counter, 1));
    snprintf(id, capacity, "%s%08x%08x%08x%08x", prefix, block.words[0], block.words[1],
             block.words[2], block.words[3]);
}

void api_fail(exchange *exchange, const api_fault *fault) {
    exchange_fail(exchange, fault->status, fault->param[0] == '\0' ? NULL : fault->param,
                  fault->code, "%s", fault->text);
}

void api_send_json(exchange *exchange, unsigned status, const json_writer *w) {
    if (json_writer_status(w) == AVO_OK)
        exchange_send(exchange, status, "application/json", buffer_text(w->out));
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
}

void fault_from_error(api_fault *fault, const avo_error *error, const char *param) {
    switch (error->status) {
    case AVO_ERROR_CONTEXT:
        (void)fault_set(fault, 400, param, "context_length_exceeded", "%s", error->text);
        return;
    case AVO_ERROR_ARGUMENT:
    case AVO_ERROR_LIMIT:
    case AVO_ERROR_TEMPLATE:
        (void)fault_set(fault, 400, param, "invalid_value", "%s", error->text);
        return;
    case AVO_ERROR_UNSUPPORTED:
        (void)fault_set(fault, 400, NULL, "unsupported", "%s", error->text);
        return;
    case AVO_ERROR_NOT_FOUND:
        (void)fault_set(fault, 404, "model", "model_not_found", "%s", error->text);
        return;
    case AVO_ERROR_DEADLINE:
        (void)fault_set(fault, 504, "deadline_ms", "deadline_exceeded", "%s", error->text);
        return;
    case AVO_ERROR_FULL:
        (void)fault_set(fault, 503, NULL, "overloaded", "%s", error->text);
        return;
    case AVO_ERROR_MEMORY:
        (void)fault_no_memory(fault);
        return;
    case AVO_ERROR_DEVICE: /* of this step alone: the engine goes on */
        (void)fault_set(fault, 500, NULL, "device_failed",
                        "the device failed while it computed this request; send it again: %s",
                        error->text);
        return;
    default:
        (void)fault_set(fault, 500, NULL, "internal_error", "%s", error->text);
    }
}
