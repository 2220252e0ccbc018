/* The public text functions: tokenize, detokenize, chat. */
#include "model/model.h"

#include "base/options.h"
#include "base/value.h"

#include <string.h>
#include <time.h>

static avo_status need_tokenizer(const avo_model *model, avo_error *error) {
    if (model->tokenizer != NULL)
        return AVO_OK;
    if (model->tokenizer_error.status != AVO_OK)
        return status_fail(error, model->tokenizer_error.status, "tokenizer: %s",
                           model->tokenizer_error.text);
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: the model has no tokenizer",
                       model->source->path);
}

/* The contract of all three: the full count always, AVO_ERROR_LIMIT when it does not fit. */
static avo_status hand_out(const void *data, size_t count, size_t item_bytes, void *out,
                           size_t capacity, size_t *full, avo_error *error) {
    *full = count;
    size_t fits = count < capacity ? count : capacity;
    if (fits > 0)
        memcpy(out, data, fits * item_bytes);
    if (count <= capacity)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT, "the buffer has space for %zu, needed are %zu",
                       capacity, count);
}

static avo_status encode(const avo_model *model, encoder *encoder, text_view text,
                         const encode_options *options, id_list *ids, avo_error *error) {
    return encoder != NULL ? encoder_run(encoder, text, options, ids, error)
                           : tokenizer_encode(model->tokenizer, text, options, ids, error);
}

avo_status model_encode_text(const avo_model *model, encoder *encoder, text_view text,
                             uint32_t flags, id_list *ids, avo_error *error) {
    AVO_TRY(need_tokenizer(model, error));
    encode_options options = {.special = (flags & AVO_TOKENIZE_SPECIAL) != 0,
                              .add_begin = (flags & AVO_TOKENIZE_BEGIN) != 0};
    return encode(model, encoder, text, &options, ids, error);
}

avo_status avo_tokenize(const avo_model *model, const char *text, size_t bytes, uint32_t flags,
                        int32_t *ids, size_t capacity, size_t *count, avo_error *error) {
    *count = 0;
    id_list list;
    id_list_init(&list, model->allocator);
    avo_status status =
        model_encode_text(model, NULL, (text_view){text, bytes}, flags, &list, error);
    AVO_THEN(status, hand_out(list.ids, list.count, sizeof(int32_t), ids, capacity, count, error));
    id_list_free(&list);
    return status;
}

avo_status avo_detokenize(const avo_model *model, const int32_t *ids, size_t count, uint32_t flags,
                          char *text, size_t capacity, size_t *bytes, avo_error *error) {
    *bytes = 0;
    AVO_TRY(need_tokenizer(model, error));
    buffer out;
    buffer_init(&out, model->allocator, SIZE_MAX);
    decode_stream stream;
    decode_stream_init(&stream, model->tokenizer, (flags & AVO_TOKENIZE_SPECIAL) != 0);
    stream.lossless = true;
    if ((flags & AVO_TOKENIZE_CONTINUE) != 0)
        decode_stream_continue(&stream);
    avo_status status = AVO_OK;
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        status = decode_stream_push(&stream, ids[i], &out, error);
    AVO_THEN(status, decode_stream_finish(&stream, &out, error));
    AVO_THEN(status, hand_out(out.data, out.size, 1, text, capacity, bytes, error));
    buffer_free(&out);
    return status;
}

static text_view piece_of(const avo_model *model, int32_t id) {
    return id < 0 ? (text_view){"", 0} : tokenizer_piece(model->tokenizer, id);
}

static avo_status need_template(const avo_model *model, avo_error *error) {
    AVO_TRY(need_tokenizer(model, error));
    if (model->chat_template != NULL)
        return AVO_OK;
    if (model->template_error.status != AVO_OK)
        return status_fail(error, model->template_error.status, "%s: %s", model->source->path,
                           model->template_error.text);
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "%s: the model has no chat template; use a plain text prompt instead",
                       model->source->path);
}

/* What the template wrote may hold special tokens, what the messages say may not; the template
 * writes the begin token itself where it wants one. */
avo_status model_encode_rendered(const avo_model *model, encoder *encoder,
                                 const chat_template_output *rendered, size_t bytes, id_list *ids,
                                 avo_error *error) {
    encode_options options = {.special = true,
                              .trusted_given = true,
                              .trusted = rendered->trusted,
                              .trusted_count = rendered->trusted_count};
    text_view text = buffer_text(&rendered->text);
    text.size = bytes < text.size ? bytes : text.size;
    return encode(model, encoder, text, &options, ids, error);
}

static avo_status render_chat(const avo_model *model, const json_value *variables, int64_t now,
                              chat_template_output *rendered, avo_error *error) {
    tokenizer_info info = tokenizer_describe(model->tokenizer);
    chat_template_input input = {.variables = variables,
                                 .begin_token = piece_of(model, info.begin),
                                 .end_token = piece_of(model, info.end),
                                 .unknown_token = piece_of(model, info.unknown),
                                 .padding_token = piece_of(model, info.padding),
                                 .now = now == 0 ? (int64_t)time(NULL) : now};
    return chat_template_render(model->chat_template, &input, rendered, error);
}

/* The caller's own variables, then the conversation's where the caller has not set them. */
static avo_status merge_variables(arena *arena, const json_value *given, json_value *variables,
                                  avo_error *error) {
    if (given == NULL)
        return AVO_OK;
    if (given->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "template variables must be a JSON object, found %s",
                           json_kind_name(given->kind));
    size_t count = given->object.count;
    json_member *members =
        arena_take_array(arena, count + variables->object.count, sizeof(*members));
    if (members == NULL)
        return status_no_memory(error, "template variables", count * sizeof(*members));
    if (count > 0)
        memcpy(members, given->object.members, count * sizeof(*members));
    for (size_t i = 0; i < variables->object.count; i++)
        if (json_find_text(given, variables->object.members[i].key) == NULL)
            members[count++] = variables->object.members[i];
    *variables = (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
    return AVO_OK;
}

avo_status model_render_chat(const avo_model *model, const model_chat *chat,
                             chat_template_output *rendered, avo_error *error) {
    AVO_TRY(need_template(model, error));
    arena arena;
    json_value variables;
    arena_init(&arena, model->allocator, TEMPLATE_MEMORY_MAX);
    avo_status status = chat_template_messages(&arena, chat->messages, chat->message_count,
                                               !chat->no_generation_prompt, &variables, error);
    AVO_THEN(status, merge_variables(&arena, chat->variables, &variables, error));
    AVO_THEN(status, render_chat(model, &variables, chat->now, rendered, error));
    arena_free(&arena);
    return status;
}

avo_status model_encode_chat(const avo_model *model, encoder *encoder, const avo_message *messages,
                             size_t message_count, const avo_chat_options *options, id_list *ids,
                             avo_error *error) {
    avo_chat_options own = AVO_CHAT_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_chat_options", error));
    chat_template_output rendered;
    chat_template_output_init(&rendered, model->allocator);
    model_chat chat = {.messages = messages,
                       .message_count = message_count,
                       .variables = own.variables == NULL ? NULL : value_tree(own.variables),
                       .no_generation_prompt = own.no_generation_prompt,
                       .now = own.now};
    avo_status status = model_render_chat(model, &chat, &rendered, error);
    AVO_THEN(status, model_encode_rendered(model, encoder, &rendered, SIZE_MAX, ids, error));
    chat_template_output_free(&rendered);
    return status;
}

avo_status avo_chat_check(const avo_model *model, avo_error *error) {
    return need_template(model, error);
}

avo_status avo_chat_tokenize(const avo_model *model, const avo_message *messages,
                             size_t message_count, const avo_chat_options *options, int32_t *ids,
                             size_t capacity, size_t *count, avo_error *error) {
    *count = 0;
    id_list list;
    id_list_init(&list, model->allocator);
    avo_status status =
        model_encode_chat(model, NULL, messages, message_count, options, &list, error);
    AVO_THEN(status, hand_out(list.ids, list.count, sizeof(int32_t), ids, capacity, count, error));
    id_list_free(&list);
    return status;
}
