/* See template_cases.h. */
#include "support/template_cases.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

text_view cases_read_file(const char *path) {
    file_map map;
    avo_error error;
    if (file_map_open(path, &map, &error) != AVO_OK)
        fail_msg("%s", error.text);
    return (text_view){(const char *)map.bytes.data, map.bytes.size};
}

uint64_t cases_hash(text_view text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    return hash;
}

static bool spans_are_sound(const chat_template_output *output) {
    size_t end = 0;
    for (size_t i = 0; i < output->trusted_count; i++) {
        text_span span = output->trusted[i];
        if (span.begin >= span.end || (i > 0 && span.begin <= end) || span.end > output->text.size)
            return false;
        end = span.end;
    }
    return true;
}

static bool compare(const char *name, avo_status status, const chat_template_output *output,
                    const avo_error *error, const text_view *expected) {
    if (expected == NULL) {
        if (status == AVO_OK)
            print_error("%s: jinja2 refuses this, we render: %.*s\n", name,
                        TEXT_ARGUMENT(buffer_text(&output->text)));
        return status != AVO_OK;
    }
    if (status != AVO_OK) {
        print_error("%s: %s\n", name, error->text);
        return false;
    }
    text_view text = buffer_text(&output->text);
    if (!spans_are_sound(output)) {
        print_error("%s: the trusted spans are not in order\n", name);
        return false;
    }
    if (text_equal(text, *expected))
        return true;
    size_t at = 0;
    while (at < text.size && at < expected->size && text.data[at] == expected->data[at])
        at++;
    size_t from = at > 40 ? at - 40 : 0;
    print_error("%s: differs at byte %zu\n  jinja2: …%.*s\n  we:     …%.*s\n", name, at,
                (int)(expected->size - from > 160 ? 160 : expected->size - from),
                expected->data + from, (int)(text.size - from > 160 ? 160 : text.size - from),
                text.data + from);
    return false;
}

static bool is_refusal(const avo_error *error) {
    return strstr(error->text, "not supported") != NULL ||
           strstr(error->text, "cannot be printed") != NULL;
}

case_result case_check(const char *name, text_view source, const json_value *variables,
                       const text_view *expected) {
    chat_template *chat = NULL;
    avo_error error = {0};
    chat_template_output output;
    chat_template_output_init(&output, NULL);
    chat_template_input input = {.variables = variables,
                                 .begin_token = TEXT_LITERAL("<s>"),
                                 .end_token = TEXT_LITERAL("</s>"),
                                 .now = CASES_NOW};
    avo_status status = chat_template_open(source, NULL, &chat, &error);
    if (status == AVO_OK)
        status = chat_template_render(chat, &input, &output, &error);
    bool good = compare(name, status, &output, &error, expected);
    if (status != AVO_OK && (strstr(error.text, "line") == NULL || error.status != status)) {
        print_error("%s: an error without line and column: %s\n", name, error.text);
        good = false;
    }
    chat_template_output_free(&output);
    chat_template_close(chat);
    if (!good && status == AVO_ERROR_TEMPLATE && is_refusal(&error))
        return CASE_REFUSED;
    return good ? CASE_GOOD : CASE_FAILED;
}

size_t cases_check_file(const char *path, size_t *failed, size_t *refused) {
    arena arena;
    json_value root;
    avo_error error;
    arena_init(&arena, NULL, SIZE_MAX);
    text_view text = cases_read_file(path);
    assert_ok_error(json_parse(&arena, text, &root, &error), &error);
    const json_value *shared = json_find(&root, "variables");
    const json_value *cases = json_find(&root, "cases");
    assert_non_null(cases);
    *failed = 0;
    *refused = 0;
    for (size_t i = 0; i < cases->array.count; i++) {
        const json_value *item = json_item(cases, i);
        const json_value *variables = json_find(item, "variables");
        const json_value *output = json_find(item, "output");
        text_view source = json_find(item, "template")->string;
        char name[256];
        snprintf(name, sizeof(name), "case %zu: %.*s", i,
                 (int)(source.size > 200 ? 200 : source.size), source.data);
        case_result result = case_check(name, source, variables == NULL ? shared : variables,
                                        output == NULL ? NULL : &output->string);
        *failed += result == CASE_FAILED;
        *refused += result == CASE_REFUSED;
    }
    size_t count = cases->array.count;
    arena_free(&arena);
    return count;
}
