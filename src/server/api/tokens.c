/* /tokenize, /detokenize and /tokenizer_info, with the names of llama.cpp's fields and of vLLM's.
 */
#include "server/api/helpers.h"

#include "base/value.h"

bool api_tokenize_chat(const api *api, const api_request *r, id_list *ids, api_fault *fault) {
    size_t bytes = value_text_bytes(r->chat.variables);
    if (bytes > API_TOKENIZE_BYTES_MAX)
        return fault_set(fault, 400, "messages", "string_above_max_length",
                         "messages has %zu bytes, must have at most %zu", bytes,
                         API_TOKENIZE_BYTES_MAX);
    avo_error error = {0};
    avo_chat_options options = r->chat;
    options.no_generation_prompt = !r->add_generation_prompt;
    if (model_encode_chat(api->model, NULL, NULL, 0, &options, ids, &error) == AVO_OK)
        return true;
    fault_from_error(fault, &error, "messages");
    return false;
}

avo_status api_piece(const avo_model *model, int32_t token, buffer *out) {
    const uint32_t flags = AVO_TOKENIZE_SPECIAL | AVO_TOKENIZE_CONTINUE;
    size_t bytes = 0;
    out->size = 0;
    AVO_TRY(buffer_reserve(out, 256));
    avo_status status =
        avo_detokenize(model, &token, 1, flags, out->data, out->capacity, &bytes, NULL);
    if (status == AVO_ERROR_LIMIT && bytes > out->capacity) {
        AVO_TRY(buffer_reserve(out, bytes));
        status = avo_detokenize(model, &token, 1, flags, out->data, out->capacity, &bytes, NULL);
    }
    if (status == AVO_OK)
        out->size = bytes;
    return status;
}

/* ---- /tokenize ---- */

/* llama.cpp's piece: a text, or its bytes where it is none. */
static void write_piece(json_writer *w, const api *api, int32_t id, buffer *piece) {
    json_writer_note(w, api_piece(api->model, id, piece));
    json_text(w, buffer_text(piece));
}

static avo_status write_tokens(const api *api, const api_request *r, const int32_t *ids,
                               size_t count, buffer *piece, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_array_begin(&w, "tokens");
    for (size_t i = 0; i < count && !r->with_pieces; i++)
        json_i64(&w, ids[i]);
    for (size_t i = 0; i < count && r->with_pieces; i++) {
        json_object_begin(&w);
        json_member_i64(&w, "id", ids[i]);
        json_key(&w, "piece");
        write_piece(&w, api, ids[i], piece);
        json_end(&w);
    }
    json_end(&w);
    json_member_u64(&w, "count", count);
    json_member_u64(&w, "max_model_len", api->context);
    if (r->return_token_strs) {
        json_member_array_begin(&w, "token_strs");
        for (size_t i = 0; i < count; i++)
            write_piece(&w, api, ids[i], piece);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}

static bool tokenize(api *api, api_request *r, id_list *ids, api_fault *fault) {
    const json_value *prompt = api_field_of(r, "prompt");
    if (api_field_of(r, "messages") != NULL)
        return api_request_talk(api, r, fault) && api_tokenize_chat(api, r, ids, fault);
    const char *text = r->content;
    if (text == NULL && prompt != NULL &&
        !api_read_string(prompt, "prompt", API_TOKENIZE_BYTES_MAX, &r->arena, &text, fault))
        return false;
    if (text == NULL)
        return fault_set(fault, 400, "content", "missing_required_parameter",
                         "give one of content, prompt and messages");
    /* vLLM always recognises special tokens here, and its clients send rendered templates. */
    bool special =
        r->parse_special || (r->content == NULL && api_field_of(r, "parse_special") == NULL);
    uint32_t flags =
        (r->add_special ? AVO_TOKENIZE_BEGIN : 0u) | (special ? AVO_TOKENIZE_SPECIAL : 0u);
    avo_error error = {0};
    if (model_encode_text(api->model, NULL, text_from(text), flags, ids, &error) == AVO_OK)
        return true;
    fault_from_error(fault, &error, "content");
    return false;
}

static void answer_tokenize(api *api, exchange *exchange) {
    api_fault fault = {0};
    api_request *r = NULL;
    id_list ids;
    buffer piece, out;
    id_list_init(&ids, NULL);
    buffer_init(&piece, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    bool good =
        api_request_open(api, BODY_TOKENIZE, NULL, exchange_asked(exchange)->body, &r, &fault) &&
        tokenize(api, r, &ids, &fault);
    if (good)
        good = write_tokens(api, r, ids.ids, ids.count, &piece, &out) == AVO_OK ||
               fault_no_memory(&fault);
    if (good)
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    else
        api_fail(exchange, &fault);
    id_list_free(&ids);
    buffer_free(&piece);
    buffer_free(&out);
    api_request_free(r);
}

void endpoint_tokenize(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_tokenize);
}

/* ---- /detokenize ---- */

static bool detokenize(api *api, const json_value *tokens, arena *scratch, buffer *out,
                       api_fault *fault) {
    int32_t *ids = NULL;
    size_t count = 0;
    if (!token_list_read(api, tokens, "tokens", scratch, &ids, &count, fault))
        return false;
    size_t bytes = 0;
    avo_error error = {0};
    avo_status status =
        avo_detokenize(api->model, ids, count, AVO_TOKENIZE_SPECIAL, NULL, 0, &bytes, &error);
    char *text = arena_take(scratch, bytes + 1);
    if (text == NULL)
        return fault_no_memory(fault);
    if (bytes > 0)
        status = avo_detokenize(api->model, ids, count, AVO_TOKENIZE_SPECIAL, text, bytes, &bytes,
                                &error);
    if (status != AVO_OK) {
        fault_from_error(fault, &error, "tokens");
        return false;
    }
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_text(&w, "content", (text_view){text, bytes});
    json_member_text(&w, "prompt", (text_view){text, bytes});
    json_end(&w);
    return json_writer_status(&w) == AVO_OK || fault_no_memory(fault);
}

static void answer_detokenize(api *api, exchange *exchange) {
    api_fault fault = {0};
    api_request *r = NULL;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    if (api_request_open(api, BODY_DETOKENIZE, NULL, exchange_asked(exchange)->body, &r, &fault) &&
        detokenize(api, api_field_of(r, "tokens"), &r->arena, &out, &fault))
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    else
        api_fail(exchange, &fault);
    buffer_free(&out);
    api_request_free(r);
}

void endpoint_detokenize(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_detokenize);
}

/* ---- /tokenizer_info ---- */

static void write_special(json_writer *w, const api *api, const char *key, int32_t id) {
    json_key(w, key);
    if (id < 0)
        json_null(w);
    else
        json_text(w, tokenizer_piece(api->model->tokenizer, id));
}

/* What a client needs that tokenizes here: lm-eval's remote tokenizer reads it. */
void endpoint_tokenizer_info(api *api, exchange *exchange) {
    const tokenizer *tokenizer = api->model->tokenizer;
    if (tokenizer == NULL) {
        exchange_fail(exchange, 404, NULL, "not_found", "the model has no tokenizer");
        return;
    }
    tokenizer_info info = tokenizer_describe(tokenizer);
    text_view chat_template = api->model->source->chat_template;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "kind", info.kind);
    json_member_u64(&w, "vocab_size", info.vocabulary);
    json_member_u64(&w, "model_max_length", api->context);
    json_member_boolean(&w, "add_bos_token", info.adds_begin);
    json_member_boolean(&w, "add_eos_token", info.adds_end);
    write_special(&w, api, "bos_token", info.begin);
    write_special(&w, api, "eos_token", info.end);
    write_special(&w, api, "unk_token", info.unknown);
    write_special(&w, api, "pad_token", info.padding);
    json_key(&w, "chat_template");
    if (chat_template.size > 0)
        json_text(&w, chat_template);
    else
        json_null(&w);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}
