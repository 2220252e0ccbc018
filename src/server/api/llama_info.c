/* What llama.cpp's clients ask a server about itself: /props, /slots, /apply-template. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include "base/value.h"

static void write_defaults(json_writer *w, const api *api) {
    avo_sampling sampling;
    const avo_request request = AVO_REQUEST_INIT;
    (void)api_sampling(api, BODY_LLAMA, &sampling);
    json_member_object_begin(w, "default_generation_settings");
    json_member_u64(w, "n_ctx", api->context);
    json_member_object_begin(w, "params");
    llama_write_settings(w, &sampling, &request, false, NULL);
    json_end(w);
    json_end(w);
}

static void write_token_text(json_writer *w, const api *api, const char *key, int32_t id) {
    json_key(w, key);
    json_text(w, id < 0 ? (text_view){"", 0} : tokenizer_piece(api->model->tokenizer, id));
}

void endpoint_props(api *api, exchange *exchange) {
    const tokenizer *tokenizer = api->model->tokenizer;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    write_defaults(&w, api);
    json_member_u64(&w, "total_slots", api->options->sessions);
    json_member_string(&w, "model_alias", api->options->model_name);
    json_member_string(&w, "model_path", api->options->model_name); /* no paths of the server */
    json_member_text(&w, "chat_template", api->model->source->chat_template);
    tokenizer_info info = {.begin = -1, .end = -1};
    if (tokenizer != NULL)
        info = tokenizer_describe(tokenizer);
    write_token_text(&w, api, "bos_token", info.begin);
    write_token_text(&w, api, "eos_token", info.end);
    json_member_object_begin(&w, "modalities");
    json_member_boolean(&w, "vision", false);
    json_member_boolean(&w, "audio", false);
    json_end(&w);
    json_member_object_begin(&w, "chat_template_caps");
    json_member_boolean(&w, "supports_tools", chat_format_name(api->format) != NULL);
    json_end(&w);
    json_member_boolean(&w, "is_sleeping", false);
    json_member_string(&w, "build_info", "avocet-" AVO_VERSION_TEXT);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

/* Sessions have no fixed places: the first so many are those that run. */
void endpoint_slots(api *api, exchange *exchange) {
    uint32_t running = 0, waiting = 0;
    uint64_t steps = 0;
    api->host.figures(api->host.context, &running, &waiting, &steps);
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_array_begin(&w);
    for (uint32_t i = 0; i < api->options->sessions; i++) {
        json_object_begin(&w);
        json_member_u64(&w, "id", i);
        json_member_u64(&w, "n_ctx", api->context);
        json_member_boolean(&w, "speculative", false);
        json_member_boolean(&w, "is_processing", i < running);
        json_end(&w);
    }
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

/* ---- /apply-template ---- */

static bool render(api *api, const api_request *r, buffer *out, api_fault *fault) {
    chat_template_output rendered;
    avo_error error = {0};
    chat_template_output_init(&rendered, NULL);
    model_chat chat = {.variables = value_tree(r->chat.variables),
                       .no_generation_prompt = r->chat.no_generation_prompt};
    avo_status status = model_render_chat(api->model, &chat, &rendered, &error);
    if (status != AVO_OK)
        fault_from_error(fault, &error, "messages");
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_text(&w, "prompt", buffer_text(&rendered.text));
    json_end(&w);
    chat_template_output_free(&rendered);
    return status == AVO_OK && (json_writer_status(&w) == AVO_OK || fault_no_memory(fault));
}

static void answer_template(api *api, exchange *exchange) {
    api_fault fault = {0};
    api_request *r = NULL;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    const exchange_request *asked = exchange_asked(exchange);
    if (api_request_open(api, BODY_TEMPLATE, asked->key, asked->body, &r, &fault) &&
        api_request_talk(api, r, &fault) && render(api, r, &out, &fault))
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    else
        api_fail(exchange, &fault);
    buffer_free(&out);
    api_request_free(r);
}

void endpoint_template(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_template);
}
