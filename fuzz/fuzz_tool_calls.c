/* Answers with calls of functions: the first byte is the form, the second how the rest is cut. What
 * comes out in pieces is what comes out of the whole, and text that has no calls is all there. */
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

static const char *const forms[] = {
    "hermes",  "mistral",  "granite",     "functools",   "llama3",        "fenced",   "json",
    "kimi",    "deepseek", "command",     "apertus",     "gigachat",      "nemotron", "glm",
    "minimax", "hunyuan",  "qwen3_coder", "functionary", "deepseek_dsml", "atem",     "minicpm",
    "gemma4",  "lfm",      "pythonic",    "described"};

static const char offered[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"n\":{\"$ref\":\"#/properties/s\"},\"r\":{\"$ref\":\"#/properties/r\"},\"i\":{\"type\":"
    "\"integer\"}}}}},{\"function\":{\"name\":\"g\"}}]";

typedef struct outcome {
    buffer text, arguments;
    size_t calls, malformed;
} outcome;

static void keep(outcome *o, text_view text) {
    if (text.size > 0 && buffer_append(&o->text, text.data, text.size) != AVO_OK)
        abort();
}

/* Arguments are JSON objects, whatever the model wrote; with `eager`, those that turned out not to
 * be have been told before. */
static void keep_calls(outcome *o, chat_parser *parser, bool eager, arena *arena) {
    for (size_t i = 0; i < chat_parser_count(parser); i++) {
        const tool_call *call = chat_parser_call(parser, i);
        json_value value;
        if (!call->complete || call->name.size == 0)
            abort();
        if (!eager && (json_parse(arena, call->arguments, &value, NULL) != AVO_OK ||
                       value.kind != JSON_OBJECT))
            abort();
        if (buffer_append(&o->arguments, call->name.data, call->name.size) != AVO_OK ||
            buffer_append(&o->arguments, call->arguments.data, call->arguments.size) != AVO_OK ||
            buffer_append(&o->arguments, "\n", 1) != AVO_OK)
            abort();
    }
}

static void read_all(const char *form, text_view answer, size_t step, bool eager, outcome *o) {
    arena arena;
    json_value tools;
    arena_init(&arena, NULL, SIZE_MAX);
    if (json_parse(&arena, (text_view){offered, sizeof(offered) - 1}, &tools, NULL) != AVO_OK)
        abort();
    chat_parser_options options = {.calls = true, .tools = &tools, .eager = eager};
    buffer_init(&o->arguments, NULL, SIZE_MAX);
    chat_format *format = NULL;
    chat_parser *parser = NULL;
    chat_delta delta;
    buffer_init(&o->text, NULL, SIZE_MAX);
    if (chat_format_named(form, &format, NULL) != AVO_OK ||
        chat_parser_open(format, &options, &parser, NULL) != AVO_OK)
        abort();
    for (size_t at = 0; at < answer.size; at += step) {
        size_t bytes = answer.size - at < step ? answer.size - at : step;
        if (chat_parser_push(parser, -1, (text_view){answer.data + at, bytes}, &delta, NULL) !=
            AVO_OK)
            abort();
        keep(o, delta.text);
    }
    if (chat_parser_finish(parser, &delta, NULL) != AVO_OK)
        abort();
    keep(o, delta.text);
    keep_calls(o, parser, eager, &arena);
    arena_free(&arena);
    o->calls = chat_parser_count(parser);
    o->malformed = chat_parser_malformed(parser);
    chat_parser_close(parser);
    chat_format_close(format);
}

static bool same(const buffer *a, const buffer *b) {
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const char *form = forms[data[0] % (sizeof(forms) / sizeof(forms[0]))];
    text_view answer = {(const char *)data + 2, size - 2};
    outcome whole, cut, told;
    read_all(form, answer, answer.size + 1, false, &whole);
    read_all(form, answer, 1 + data[1] % 7, false, &cut);
    read_all(form, answer, 1 + data[1] % 5, true, &told);
    if (whole.calls != cut.calls || whole.malformed != cut.malformed ||
        !same(&whole.text, &cut.text) || !same(&whole.arguments, &cut.arguments))
        abort();
    /* What a stream tells is the same, where all of it is good. */
    if (whole.malformed == 0 && told.malformed == 0 &&
        (!same(&whole.text, &told.text) || !same(&whole.arguments, &told.arguments)))
        abort();
    bool all = strcmp(form, "functionary") != 0; /* whose "all" says that text follows */
    if (all && whole.calls == 0 &&
        (whole.text.size != answer.size ||
         (answer.size > 0 && memcmp(whole.text.data, answer.data, answer.size) != 0)))
        abort();
    outcome *outcomes[] = {&whole, &cut, &told};
    for (size_t i = 0; i < 3; i++) {
        buffer_free(&outcomes[i]->text);
        buffer_free(&outcomes[i]->arguments);
    }
    return 0;
}
