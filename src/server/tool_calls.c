/* Calls of functions are refused until a model's own form of them is known here. */
#include "server/tool_calls.h"

avo_status tool_format_open(const avo_model *model, tool_format **out, avo_error *error) {
    (void)model;
    *out = NULL;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "calls of functions are not supported yet");
}

void tool_format_close(tool_format *format) {
    (void)format;
}

const char *tool_format_name(const tool_format *format) {
    (void)format;
    return "none";
}

avo_status tool_parser_open(const tool_format *format, tool_parser **out, avo_error *error) {
    (void)format;
    *out = NULL;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "calls of functions are not supported yet");
}

void tool_parser_close(tool_parser *parser) {
    (void)parser;
}

avo_status tool_parser_push(tool_parser *parser, int32_t token, text_view piece, text_view *text,
                            avo_error *error) {
    (void)parser;
    (void)token;
    (void)error;
    *text = piece;
    return AVO_OK;
}

avo_status tool_parser_finish(tool_parser *parser, text_view *text, avo_error *error) {
    (void)parser;
    (void)error;
    *text = (text_view){"", 0};
    return AVO_OK;
}

size_t tool_parser_count(const tool_parser *parser) {
    (void)parser;
    return 0;
}

const tool_call *tool_parser_call(const tool_parser *parser, size_t index) {
    (void)parser;
    (void)index;
    return NULL;
}

avo_status tool_grammar_write(const tool_format *format, const json_value *tools,
                              const tool_choice *choice, tool_grammar *grammar, avo_error *error) {
    (void)format;
    (void)tools;
    (void)choice;
    (void)grammar;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "calls of functions are not supported yet");
}
