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

static avo_status take(prompt_line *line, avo_grammar_kind kind, const char *text,
                       const char *param) {
    line->prompt.constraint = (chat_constraint){.kind = kind, .text = text, .param = param};
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

avo_status prompt_line_constraint(prompt_line *line, const json_value *root) {
    const json_value *schema = json_find(root, "json_schema");
    const json_value *text = json_find(root, "grammar");
    const json_value *format = json_find(root, "response_format");
    bool object = false;
    AVO_TRY(json_get_boolean(root, "json_object", &object, &line->error));
    if ((schema != NULL) + (text != NULL) + (format != NULL) + object > 1)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "give one of \"json_schema\", \"grammar\", \"json_object\" and "
                           "\"response_format\"");
    const char *copy = NULL;
    if (object)
        return take(line, AVO_GRAMMAR_JSON, NULL, "json_object");
    if (text != NULL) {
        AVO_TRY(prompt_line_text(line, text, "grammar", &copy));
        return take(line, AVO_GRAMMAR_GBNF, copy, "grammar");
    }
    if (schema != NULL) {
        AVO_TRY(schema->kind != JSON_STRING ? copy_value(line, schema, &copy)
                                            : prompt_line_text(line, schema, "json_schema", &copy));
        return take(line, AVO_GRAMMAR_JSON_SCHEMA, copy, "json_schema");
    }
    chat_fault fault = {0};
    if (chat_constraint_read(format, "response_format", NULL, &line->arena,
                             &line->prompt.constraint, &fault))
        return AVO_OK;
    return status_fail(&line->error, fault.status, "%s", fault.text);
}

avo_status prompt_line_grammar(prompt_line *line, const prompt_defaults *defaults) {
    if (line->prompt.constraint.param != NULL)
        return chat_constraint_open(defaults->grammars, &line->prompt.constraint,
                                    &line->request.grammar, &line->error);
    line->request.grammar = avo_grammar_share(defaults->request->grammar);
    return AVO_OK;
}
