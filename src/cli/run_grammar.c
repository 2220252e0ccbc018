/* What answers may be: the flags of `avocet run` and the keys of its lines. */
#include "cli/run_int.h"

#include "base/file.h"
#include "base/json.h"

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
    if (status == AVO_OK)
        status = buffer_terminate(text);
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

/* ---- Lines ---- */

/* The line before often has the same. */
static avo_status open_shared(prompt_line *line, const prompt_defaults *defaults,
                              avo_grammar_kind kind, const char *text) {
    run_grammar_last *last = defaults->last_grammar;
    if (last->grammar != NULL && last->kind == kind && strcmp(last->text, text) == 0) {
        line->request.grammar = avo_grammar_share(last->grammar);
        return AVO_OK;
    }
    AVO_TRY(
        avo_grammar_open(defaults->model, kind, text, NULL, &line->request.grammar, &line->error));
    last->grammar = line->request.grammar; /* lines live until all have been answered */
    last->kind = kind;
    last->text = text;
    return AVO_OK;
}

/* A schema that is written as a value. */
static avo_status copy_value(prompt_line *line, const json_value *value, const char **copy) {
    buffer own;
    buffer_init(&own, NULL, CLI_INPUT_BYTES_MAX);
    if (json_write_value(&own, value) == AVO_OK)
        *copy = arena_copy_text(&line->arena, own.data, own.size);
    size_t bytes = own.size;
    buffer_free(&own);
    return *copy == NULL ? status_no_memory(&line->error, "a grammar", bytes) : AVO_OK;
}

avo_status prompt_line_grammar(prompt_line *line, const json_value *root,
                               const prompt_defaults *defaults) {
    const json_value *schema = json_find(root, "json_schema");
    const json_value *text = json_find(root, "grammar");
    bool object = false;
    AVO_TRY(json_get_boolean(root, "json_object", &object, &line->error));
    if ((schema != NULL) + (text != NULL) + object > 1)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "give one of \"json_schema\", \"grammar\" and \"json_object\"");
    if (object)
        return open_shared(line, defaults, AVO_GRAMMAR_JSON, "");
    if (schema == NULL && text == NULL) {
        line->request.grammar = avo_grammar_share(defaults->request->grammar);
        return AVO_OK;
    }
    const char *copy = NULL;
    if (schema != NULL && schema->kind != JSON_STRING)
        AVO_TRY(copy_value(line, schema, &copy));
    else
        AVO_TRY(prompt_line_text(line, schema != NULL ? schema : text,
                                 schema != NULL ? "json_schema" : "grammar", &copy));
    return open_shared(line, defaults, schema != NULL ? AVO_GRAMMAR_JSON_SCHEMA : AVO_GRAMMAR_GBNF,
                       copy);
}
