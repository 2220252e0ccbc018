/* Answers with calls of functions: the first byte is the form, the second how the rest is cut. What
 * comes out in pieces is what comes out of the whole, and text that has no calls is all there. */
#include "server/tool_calls.h"

#include <stdlib.h>
#include <string.h>

static const char *const forms[] = {"hermes", "mistral", "granite", "functools",
                                    "llama3", "fenced",  "json"};

typedef struct outcome {
    buffer text;
    size_t calls, malformed;
} outcome;

static void keep(outcome *o, text_view text) {
    if (text.size > 0 && buffer_append(&o->text, text.data, text.size) != AVO_OK)
        abort();
}

static void read_all(const char *form, text_view answer, size_t step, outcome *o) {
    tool_format *format = NULL;
    tool_parser *parser = NULL;
    text_view text;
    buffer_init(&o->text, NULL, SIZE_MAX);
    if (tool_format_named(form, &format, NULL) != AVO_OK ||
        tool_parser_open(format, &parser, NULL) != AVO_OK)
        abort();
    for (size_t at = 0; at < answer.size; at += step) {
        size_t bytes = answer.size - at < step ? answer.size - at : step;
        if (tool_parser_push(parser, -1, (text_view){answer.data + at, bytes}, &text, NULL) !=
            AVO_OK)
            abort();
        keep(o, text);
    }
    if (tool_parser_finish(parser, &text, NULL) != AVO_OK)
        abort();
    keep(o, text);
    o->calls = tool_parser_count(parser);
    o->malformed = tool_parser_malformed(parser);
    tool_parser_close(parser);
    tool_format_close(format);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const char *form = forms[data[0] % (sizeof(forms) / sizeof(forms[0]))];
    text_view answer = {(const char *)data + 2, size - 2};
    outcome whole, cut;
    read_all(form, answer, answer.size + 1, &whole);
    read_all(form, answer, 1 + data[1] % 7, &cut);
    if (whole.calls != cut.calls || whole.malformed != cut.malformed ||
        whole.text.size != cut.text.size ||
        (whole.text.size > 0 && memcmp(whole.text.data, cut.text.data, whole.text.size) != 0))
        abort();
    if (whole.calls == 0 &&
        (whole.text.size != answer.size ||
         (answer.size > 0 && memcmp(whole.text.data, answer.data, answer.size) != 0)))
        abort();
    buffer_free(&whole.text);
    buffer_free(&cut.text);
    return 0;
}
