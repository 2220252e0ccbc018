/* What answers may be: the flags of `avocet run`. */
#include "cli/run_int.h"

#include "base/file.h"

#include <string.h>

const char *run_grammar_wrong(const run_flags *flags) {
    int given = (flags->json_schema != NULL) + (flags->grammar != NULL) + flags->json_object;
    return given > 1 ? "give one of --json-schema, --grammar and --json-object" : NULL;
}

static avo_status read_whole(const char *path, buffer *text, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = buffer_append(text, map.bytes.data, map.bytes.size);
    file_map_close(&map);
    if (status == AVO_OK && text->size > 0 && memchr(text->data, 0, text->size) != NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: contains a zero byte", path);
    AVO_THEN(status, buffer_terminate(text));
    return status == AVO_OK ? AVO_OK : status_no_memory(error, path, text->size);
}

/* A schema is an object or a boolean: anything else is the name of a file. */
static bool is_schema(const char *text) {
    text += strspn(text, " \t\r\n");
    return text[0] == '{' || strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
}

avo_status run_grammar_open(const run_flags *flags, const avo_model *model, avo_grammar **grammar,
                            avo_error *error) {
    *grammar = NULL;
    if (flags->json_object)
        return avo_grammar_open(model, AVO_GRAMMAR_JSON, NULL, NULL, grammar, error);
    if (flags->json_schema != NULL && is_schema(flags->json_schema))
        return avo_grammar_open(model, AVO_GRAMMAR_JSON_SCHEMA, flags->json_schema, NULL, grammar,
                                error);
    const char *path = flags->json_schema != NULL ? flags->json_schema : flags->grammar;
    if (path == NULL)
        return AVO_OK;
    buffer text;
    buffer_init(&text, NULL, CLI_INPUT_BYTES_MAX);
    avo_status status = read_whole(path, &text, error);
    if (status == AVO_OK) {
        status = avo_grammar_open(
            model, flags->json_schema != NULL ? AVO_GRAMMAR_JSON_SCHEMA : AVO_GRAMMAR_GBNF,
            text.data, NULL, grammar, error);
        if (status != AVO_OK)
            status = status_prefix(error, status, "%s", path);
    }
    buffer_free(&text);
    return status;
}
