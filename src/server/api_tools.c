/* What an answer may be: tools and tool_choice, response_format, grammars. */
#include "server/api_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Grammars ---- */

bool grammar_take(api *api, const api_grammar *source, avo_grammar **out, avo_error *error,
                  api_fault *fault) {
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    options.trigger = source->trigger;
    options.json_or_text = source->json_or_text;
    avo_status status =
        grammar_cache_take(api->grammars, source->kind, source->text, &options, out, error);
    if (status == AVO_OK)
        return true;
    if (status == AVO_ERROR_MEMORY)
        return fault_no_memory(fault);
    return fault_set(fault, 400, source->param, "invalid_grammar", "%s: %s", source->param,
                     error->text);
}

/* Remembered with the request; whether it can be compiled turns out when there is room. */
static bool note_grammar(avo_grammar_kind kind, const char *text, const char *param, generation *g,
                         api_fault *fault) {
    size_t bytes = text == NULL ? 0 : strlen(text);
    if (bytes > API_GRAMMAR_BYTES_MAX)
        return fault_set(fault, 400, param, "invalid_grammar",
                         "%s: the schema or grammar has %zu bytes; at most %zu are compiled", param,
                         bytes, API_GRAMMAR_BYTES_MAX);
    const char *copy = text == NULL ? NULL : arena_copy_text(&g->arena, text, bytes);
    if (text != NULL && copy == NULL)
        return fault_no_memory(fault);
    g->grammar = (api_grammar){.kind = kind, .text = copy, .param = param};
    return true;
}

/* ---- response_format ---- */

static bool take_schema(const json_value *schema, const char *param, generation *g,
                        api_fault *fault) {
    if (schema == NULL || (schema->kind != JSON_OBJECT && schema->kind != JSON_BOOLEAN))
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: json_schema needs a schema, which is an object", param);
    buffer text;
    buffer_init(&text, NULL, API_GRAMMAR_BYTES_MAX);
    avo_status status = json_write_value(&text, schema);
    if (status == AVO_OK)
        status = buffer_terminate(&text);
    bool good = status == AVO_OK;
    if (status == AVO_ERROR_LIMIT)
        (void)FAULT_FIELD(fault, param, "%s: the schema has more than %zu bytes", param,
                          (size_t)API_GRAMMAR_BYTES_MAX);
    else if (!good)
        (void)fault_no_memory(fault);
    good = good && note_grammar(AVO_GRAMMAR_JSON_SCHEMA, text.data, param, g, fault);
    buffer_free(&text);
    return good;
}

static bool read_format(const json_value *format, const char *param, generation *g,
                        api_fault *fault) {
    const json_value *type = json_find(format, "type");
    if (format->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return fault_set(fault, 400, param, "invalid_type", "%s: expected an object with a type",
                         param);
    if (text_is(type->string, "text"))
        return true;
    if (text_is(type->string, "json_object")) {
        const json_value *schema = json_find(format, "schema"); /* llama.cpp's short form */
        if (schema != NULL && schema->kind == JSON_OBJECT)
            return take_schema(schema, param, g, fault);
        return note_grammar(AVO_GRAMMAR_JSON, NULL, param, g, fault);
    }
    if (!text_is(type->string, "json_schema"))
        return FAULT_FIELD(fault, param,
                           "%s: type \"%.*s\" is none of text, json_object, json_schema", param,
                           TEXT_ARGUMENT(type->string));
    const json_value *inner = json_find(format, "json_schema");
    return take_schema(json_find(inner != NULL ? inner : format, "schema"), param, g, fault);
}

bool format_read(api *api, const api_values *values, generation *g, arena *scratch,
                 api_fault *fault) {
    (void)api;
    (void)scratch;
    const json_value *format = values->response_format;
    const char *param = "response_format";
    if (values->text != NULL) {
        if (values->text->kind != JSON_OBJECT)
            return fault_set(fault, 400, "text", "invalid_type", "text: expected an object");
        format = json_find(values->text, "format");
        param = "text.format";
    }
    if (format != NULL && format->kind != JSON_NULL && !read_format(format, param, g, fault))
        return false;
    if (values->grammar == NULL || values->grammar[0] == '\0')
        return true;
    if (g->grammar.param != NULL)
        return FAULT_FIELD(fault, "grammar", "grammar: there is a %s already", param);
    return note_grammar(AVO_GRAMMAR_GBNF, values->grammar, "grammar", g, fault);
}

/* ---- Tools ---- */

static bool write_tool(buffer *out, const json_value *function, const char *schema_key,
                       const char *param, api_fault *fault) {
    const json_value *name = json_find(function, "name");
    const json_value *description = json_find(function, "description");
    const json_value *schema = json_find(function, schema_key);
    const json_value *strict = json_find(function, "strict");
    if (name == NULL || name->kind != JSON_STRING || !tool_name_good(name->string) ||
        name->string.size > API_TOOL_NAME_MAX)
        return FAULT_FIELD(fault, param,
                           "%s: a function has a name of 1 to %d letters, digits, _, - and .",
                           param, API_TOOL_NAME_MAX);
    if (description != NULL && description->kind != JSON_STRING && description->kind != JSON_NULL)
        return fault_set(fault, 400, param, "invalid_type", "%s: the description is a text", param);
    if (schema != NULL && schema->kind != JSON_OBJECT && schema->kind != JSON_NULL)
        return fault_set(fault, 400, param, "invalid_type", "%s: %s is an object", param,
                         schema_key);
    if (strict != NULL && strict->kind != JSON_BOOLEAN && strict->kind != JSON_NULL)
        return fault_set(fault, 400, param, "invalid_type", "%s: strict is true or false", param);
    bool good =
        buffer_append_text(out, "{\"type\":\"function\",\"function\":{\"name\":") == AVO_OK &&
        json_write_string(out, name->string) == AVO_OK;
    if (good && description != NULL && description->kind == JSON_STRING)
        good = buffer_append_text(out, ",\"description\":") == AVO_OK &&
               json_write_string(out, description->string) == AVO_OK;
    good = good && buffer_append_text(out, ",\"parameters\":") == AVO_OK;
    if (good && schema != NULL && schema->kind == JSON_OBJECT)
        good = json_write_value(out, schema) == AVO_OK;
    else if (good)
        good = buffer_append_text(out, "{\"type\":\"object\",\"properties\":{}}") == AVO_OK;
    if (good && strict != NULL && strict->kind == JSON_BOOLEAN && strict->boolean)
        good = buffer_append_text(out, ",\"strict\":true") == AVO_OK;
    return (good && buffer_append_text(out, "}}") == AVO_OK) || fault_no_memory(fault);
}

static bool read_tool(const json_value *tool, size_t index, api_family family, buffer *out,
                      api_fault *fault) {
    char param[32];
    snprintf(param, sizeof(param), "tools[%zu]", index);
    const json_value *type = json_find(tool, "type");
    if (tool->kind != JSON_OBJECT)
        return fault_set(fault, 400, param, "invalid_type", "%s: expected an object", param);
    bool function =
        type == NULL || (type->kind == JSON_STRING &&
                         (text_is(type->string, "function") ||
                          (family == FAMILY_MESSAGE && text_is(type->string, "custom"))));
    if (!function)
        return fault_set(fault, 400, param, "unsupported_parameter",
                         "%s: tools are functions; other types are not supported", param);
    if (index > 0 && buffer_append_text(out, ",") != AVO_OK)
        return fault_no_memory(fault);
    if (family == FAMILY_MESSAGE)
        return write_tool(out, tool, "input_schema", param, fault);
    const json_value *inner = json_find(tool, "function");
    return write_tool(out, family == FAMILY_CHAT && inner != NULL ? inner : tool, "parameters",
                      param, fault);
}

typedef struct choice_read {
    bool none;
    tool_choice choice;
} choice_read;

static bool read_word(text_view word, choice_read *out, api_fault *fault) {
    if (text_is(word, "none"))
        out->none = true;
    else if (text_is(word, "required") || text_is(word, "any"))
        out->choice.required = true;
    else if (!text_is(word, "auto"))
        return FAULT_FIELD(fault, "tool_choice",
                           "tool_choice: \"%.*s\" is none of none, auto, required",
                           TEXT_ARGUMENT(word));
    return true;
}

static bool read_choice(const json_value *value, generation *g, choice_read *out,
                        api_fault *fault) {
    if (value == NULL)
        return true;
    if (value->kind == JSON_STRING)
        return read_word(value->string, out, fault);
    const json_value *type = json_find(value, "type");
    if (value->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return fault_set(fault, 400, "tool_choice", "invalid_type",
                         "tool_choice: expected a word or an object with a type");
    const json_value *single = json_find(value, "disable_parallel_tool_use");
    if (single != NULL && single->kind == JSON_BOOLEAN && single->boolean)
        g->parallel_calls = false;
    bool named = text_is(type->string, "function") || text_is(type->string, "tool");
    if (!named)
        return read_word(type->string, out, fault);
    const json_value *inner = json_find(value, "function");
    const json_value *name = json_find(inner != NULL ? inner : value, "name");
    if (name == NULL)
        return fault_set(fault, 400, "tool_choice", "missing_required_parameter",
                         "tool_choice: the function's name is missing");
    out->choice.required = true;
    return api_read_string(name, "tool_choice", API_TOOL_NAME_MAX, &g->arena, &out->choice.function,
                           fault);
}

static bool names_tool(const json_value *tools, const char *name) {
    for (size_t i = 0; i < tools->array.count; i++)
        if (text_is(json_find(json_find(&tools->array.items[i], "function"), "name")->string, name))
            return true;
    return false;
}

/* A grammar for what was asked: for calls that are demanded, and for those of strict functions. */
static bool constrain(api *api, const json_value *tools, const choice_read *read, generation *g,
                      api_fault *fault) {
    tool_grammar grammar = {0};
    avo_error error = {0};
    avo_status status = tool_grammar_write(api->tools, tools, &read->choice, &grammar, &error);
    if (status == AVO_ERROR_UNSUPPORTED && !read->choice.required)
        return true; /* free to call, as well as the model can */
    if (status == AVO_ERROR_MEMORY)
        return fault_no_memory(fault);
    if (status != AVO_OK)
        return FAULT_FIELD(fault, "tools", "tools: %s", error.text);
    bool good = note_grammar(grammar.kind, grammar.text.data, "tools", g, fault);
    if (good && !read->choice.required) {
        g->grammar.trigger = grammar.trigger;
        g->grammar.json_or_text = grammar.trigger == NULL;
        /* A call in another form would be free of what was promised. */
        g->only_opener = grammar.trigger == NULL ? "" : grammar.trigger;
    }
    buffer_free(&grammar.text);
    return good;
}

static bool offer(api *api, buffer *text, choice_read *read, generation *g, const char **out,
                  api_fault *fault) {
    if (buffer_append_text(text, "]") != AVO_OK ||
        (*out = arena_copy_text(&g->arena, text->data, text->size)) == NULL)
        return fault_no_memory(fault);
    avo_error error = {0};
    json_value *kept = arena_take(&g->arena, sizeof(*kept));
    if (kept == NULL || json_parse(&g->arena, text_from(*out), kept, &error) != AVO_OK)
        return fault_no_memory(fault);
    g->tools = kept;
    if (api->tools == NULL)
        return fault_set(fault, 400, "tools", "unsupported_parameter",
                         "tools: this model cannot call functions: %s", api->tools_error.text);
    if (read->choice.function != NULL && !names_tool(g->tools, read->choice.function))
        return FAULT_FIELD(fault, "tool_choice", "tool_choice: there is no tool \"%s\"",
                           read->choice.function);
    read->choice.parallel = g->parallel_calls;
    g->calls = true;
    if (g->grammar.param != NULL && read->choice.required)
        return FAULT_FIELD(fault, "tool_choice",
                           "tool_choice: an answer cannot be a call and follow response_format "
                           "or grammar, too");
    if (g->grammar.param != NULL) { /* the format decides, so there is no room for calls */
        g->calls = false;
        return true;
    }
    return constrain(api, g->tools, read, g, fault);
}

bool tools_read(api *api, const api_values *values, generation *g, arena *scratch,
                const char **tools, api_fault *fault) {
    (void)scratch;
    *tools = NULL;
    choice_read read = {0};
    const json_value *list = values->tools;
    if (!read_choice(values->tool_choice, g, &read, fault))
        return false;
    if (list == NULL || (list->kind == JSON_ARRAY && list->array.count == 0)) {
        if (read.choice.required)
            return FAULT_FIELD(fault, "tool_choice", "tool_choice: there are no tools");
        return true;
    }
    if (list->kind != JSON_ARRAY)
        return fault_set(fault, 400, "tools", "invalid_type", "tools: expected an array, found %s",
                         json_kind_name(list->kind));
    if (list->array.count > API_TOOLS_MAX)
        return FAULT_FIELD(fault, "tools", "tools: %zu; at most %d are allowed", list->array.count,
                           API_TOOLS_MAX);
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = buffer_append_text(&text, "[") == AVO_OK || fault_no_memory(fault);
    for (size_t i = 0; good && i < list->array.count; i++)
        good = read_tool(&list->array.items[i], i, g->family, &text, fault);
    if (good && !read.none)
        good = offer(api, &text, &read, g, tools, fault);
    buffer_free(&text);
    return good;
}
