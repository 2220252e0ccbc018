/* Weak stand-ins until the tokenizer and the template engine have landed; removed then. */
#include "model/model.h"

#define WEAK __attribute__((weak))

WEAK avo_status tokenizer_open(const tokenizer_source *source, const avo_allocator *allocator,
                               tokenizer **out, avo_error *error) {
    (void)source;
    (void)allocator;
    *out = NULL;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no tokenizer in this build");
}
WEAK void tokenizer_close(tokenizer *tokenizer) {
    (void)tokenizer;
}
WEAK bytes_view tokenizer_image(const tokenizer *tokenizer) {
    (void)tokenizer;
    return (bytes_view){NULL, 0};
}
WEAK tokenizer_info tokenizer_describe(const tokenizer *tokenizer) {
    (void)tokenizer;
    return (tokenizer_info){0};
}
WEAK avo_status tokenizer_encode(const tokenizer *tokenizer, text_view text,
                                 const encode_options *options, id_list *ids, avo_error *error) {
    (void)tokenizer, (void)text, (void)options, (void)ids;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no tokenizer in this build");
}
WEAK avo_status tokenizer_decode(const tokenizer *tokenizer, const int32_t *ids, size_t count,
                                 bool special, buffer *out, avo_error *error) {
    (void)tokenizer, (void)ids, (void)count, (void)special, (void)out;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no tokenizer in this build");
}
WEAK text_view tokenizer_piece(const tokenizer *tokenizer, int32_t id) {
    (void)tokenizer, (void)id;
    return (text_view){"", 0};
}
WEAK void id_list_init(id_list *list, const avo_allocator *allocator) {
    *list = (id_list){.allocator = allocator};
}
WEAK void id_list_free(id_list *list) {
    (void)list;
}
WEAK void decode_stream_init(decode_stream *stream, const tokenizer *tokenizer, bool special) {
    (void)stream, (void)tokenizer, (void)special;
}
WEAK avo_status decode_stream_push(decode_stream *stream, int32_t id, buffer *out,
                                   avo_error *error) {
    (void)stream, (void)id, (void)out;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no tokenizer in this build");
}
WEAK avo_status decode_stream_finish(decode_stream *stream, buffer *out, avo_error *error) {
    (void)stream, (void)out;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no tokenizer in this build");
}
WEAK avo_status chat_template_open(text_view source, const avo_allocator *allocator,
                                   chat_template **out, avo_error *error) {
    (void)source, (void)allocator;
    *out = NULL;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no templates in this build");
}
WEAK void chat_template_close(chat_template *chat) {
    (void)chat;
}
WEAK void chat_template_output_init(chat_template_output *output, const avo_allocator *allocator) {
    (void)output, (void)allocator;
}
WEAK void chat_template_output_free(chat_template_output *output) {
    (void)output;
}
WEAK avo_status chat_template_render(const chat_template *chat, const chat_template_input *input,
                                     chat_template_output *output, avo_error *error) {
    (void)chat, (void)input, (void)output;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no templates in this build");
}
WEAK avo_status chat_template_messages(arena *arena, const avo_message *messages, size_t count,
                                       bool add_generation_prompt, json_value *variables,
                                       avo_error *error) {
    (void)arena, (void)messages, (void)count, (void)add_generation_prompt, (void)variables;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "no templates in this build");
}
