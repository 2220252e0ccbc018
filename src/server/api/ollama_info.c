/* What ollama's clients ask about models: /api/tags, ps, show, pull, version. The models are the
 * one that is served and its adapters; none is loaded, downloaded or removed here. */
#include "server/api/answer.h"
#include "server/api/helpers.h"
#include "server/keys.h"
#include "server/log.h"

#include <stdio.h>
#include <time.h>

/* ollama's own version whose interface this is: clients compare it. */
#define OLLAMA_VERSION "0.12.0"

static void write_time(json_writer *w, const char *name, int64_t seconds) {
    char text[32];
    time_t time = (time_t)seconds;
    struct tm parts;
    if (gmtime_r(&time, &parts) == NULL || strftime(text, sizeof(text), "%FT%TZ", &parts) == 0)
        text[0] = '\0';
    json_member_string(w, name, text);
}

static void write_details(json_writer *w, const api *api) {
    char size[32];
    const char *family = api->info.architecture;
    double millions = (double)api->info.parameters / 1e6;
    snprintf(size, sizeof(size), millions < 1000.0 ? "%.2fM" : "%.1fB",
             millions < 1000.0 ? millions : millions / 1000.0);
    json_member_object_begin(w, "details");
    json_member_string(w, "parent_model", "");
    json_member_string(w, "format", api->info.format);
    json_member_string(w, "family", family);
    json_member_array_begin(w, "families");
    json_string(w, family);
    json_end(w);
    json_member_string(w, "parameter_size", size);
    json_member_string(w, "quantization_level", "unknown"); /* may differ from tensor to tensor */
    json_end(w);
}

typedef struct tag_list {
    const api *api;
    const server_key *key;
    json_writer *out;
    bool running; /* of /api/ps */
} tag_list;

static void write_tag(tag_list *list, const char *name) {
    const api *api = list->api;
    json_writer *w = list->out;
    json_object_begin(w);
    json_member_string(w, "name", name);
    json_member_string(w, "model", name);
    if (list->running)
        write_time(w, "expires_at", api_now() + 86400); /* it stays */
    else
        write_time(w, "modified_at", api->opened_at);
    json_member_u64(w, "size", api->info.weight_bytes);
    if (list->running)
        json_member_u64(w, "size_vram", 0);
    json_member_string(w, "digest", api->digest);
    write_details(w, api);
    if (list->running)
        json_member_u64(w, "context_length", api->context);
    json_end(w);
}

static void see_adapter(void *context, const avo_registry_entry *entry) {
    tag_list *list = context;
    if (server_key_allows_adapter(list->key, entry->name))
        write_tag(list, entry->name);
}

static void send_tags(api *api, exchange *exchange, bool running) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    tag_list list = {
        .api = api, .key = exchange_asked(exchange)->key, .out = &w, .running = running};
    json_object_begin(&w);
    json_member_array_begin(&w, "models");
    if (server_key_allows_adapter(list.key, NULL))
        write_tag(&list, api->options->model_name);
    if (api->registry != NULL)
        avo_registry_list(api->registry, see_adapter, &list);
    json_end(&w);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

void endpoint_ollama_tags(api *api, exchange *exchange) {
    send_tags(api, exchange, false);
}

void endpoint_ollama_ps(api *api, exchange *exchange) {
    send_tags(api, exchange, true);
}

void endpoint_ollama_version(api *api, exchange *exchange) {
    (void)api;
    buffer out;
    buffer_init(&out, NULL, 1024);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "version", OLLAMA_VERSION);
    json_member_string(&w, "server", "avocet-" AVO_VERSION_TEXT);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

/* ---- show, pull ---- */

/* The body, where it names a model that the key may use; false: that was answered. */
static bool find_model(api *api, exchange *exchange, api_request **r) {
    const exchange_request *asked = exchange_asked(exchange);
    api_fault fault = {0};
    if (!api_request_open(api, BODY_OLLAMA_NAME, asked->key, asked->body, r, &fault) ||
        !dialect_read(api, *r, &fault)) {
        api_fail(exchange, &fault);
        return false;
    }
    if ((*r)->model == NULL || (*r)->model[0] == '\0') {
        exchange_fail(exchange, 400, "model", "missing_required_parameter", "model is missing");
        return false;
    }
    if (api_knows_model(api, asked->key, (*r)->model))
        return true;
    exchange_fail(exchange, 404, "model", "model_not_found",
                  "model \"%.100s\" not found; this server has the model it was started with, and "
                  "downloads none (avocet pull)",
                  (*r)->model);
    return false;
}

static void write_parameters(json_writer *w, const api *api) {
    avo_sampling sampling;
    char text[160];
    (void)api_sampling(api, BODY_OLLAMA_CHAT, &sampling);
    snprintf(text, sizeof(text), "temperature %g\ntop_p %g\ntop_k %u\nmin_p %g\nrepeat_penalty %g",
             (double)sampling.temperature, (double)sampling.top_p, sampling.top_k,
             (double)sampling.min_p, (double)sampling.repetition_penalty);
    json_member_string(w, "parameters", text);
}

static void write_model_info(json_writer *w, const api *api) {
    char name[64];
    const char *kind = api->info.architecture;
    json_member_object_begin(w, "model_info");
    json_member_string(w, "general.architecture", kind);
    json_member_u64(w, "general.parameter_count", api->info.parameters);
    snprintf(name, sizeof(name), "%.40s.context_length", kind);
    json_member_u64(w, name, api->info.context);
    snprintf(name, sizeof(name), "%.40s.embedding_length", kind);
    json_member_u64(w, name, api->info.width);
    snprintf(name, sizeof(name), "%.40s.block_count", kind);
    json_member_u64(w, name, api->info.layers);
    json_end(w);
}

static void send_model(api *api, exchange *exchange) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "license", "");
    json_member_string(&w, "modelfile", "");
    write_parameters(&w, api);
    json_member_text(&w, "template", api->model->source->chat_template);
    write_details(&w, api);
    write_model_info(&w, api);
    json_member_array_begin(&w, "capabilities");
    json_string(&w, "completion");
    if (chat_format_name(api->format) != NULL)
        json_string(&w, "tools");
    json_end(&w);
    write_time(&w, "modified_at", api->opened_at);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

static void answer_show(api *api, exchange *exchange) {
    api_request *r = NULL;
    if (find_model(api, exchange, &r))
        send_model(api, exchange);
    api_request_free(r);
}

void endpoint_ollama_show(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_show);
}

/* Of a model that is there: there is nothing to do. */
static void send_status(exchange *exchange, bool lines) {
    buffer out;
    buffer_init(&out, NULL, 1024);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "status", "success");
    json_end(&w);
    if (json_writer_status(&w) == AVO_OK && buffer_append_text(&out, "\n") == AVO_OK)
        exchange_send(exchange, 200, lines ? "application/x-ndjson" : "application/json",
                      buffer_text(&out));
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
    buffer_free(&out);
}

static void answer_pull(api *api, exchange *exchange) {
    api_request *r = NULL;
    if (find_model(api, exchange, &r))
        send_status(exchange, r->stream);
    api_request_free(r);
}

void endpoint_ollama_pull(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_pull);
}
