/* Which form of calls a model's template has, and grammars for it. */
#include "server/tool_int.h"

#include "base/allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RENDERED_MAX ((size_t)1 << 20)
#define PROBE_NAME   "look_up"
#define BEFORE_MAX   400 /* bytes before the argument in which a call may have begun */

static const tool_form *form_named(const char *name) {
    for (size_t i = 0; i < tool_form_count; i++)
        if (strcmp(tool_forms[i].name, name) == 0)
            return &tool_forms[i];
    return NULL;
}

/* ---- The form ---- */

static const char *find_last(const char *text, const char *part) {
    const char *found = NULL;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        found = at;
    return found;
}

/* By what stands before the argument of a call, or in what the template tells the model to do. */
static const char *form_in(const char *text) {
    static const struct {
        const char *text, *form;
    } signs[] = {{"[TOOL_CALLS]", "mistral"},
                 {"<|tool_call|>", "granite"},
                 {"<tool_call>", "hermes"},
                 {"<|python_tag|>", "llama3"},
                 {"functools[", "functools"},
                 {"```tool_code", "fenced"},
                 {"<\xef\xbd\x9ctool\xe2\x96\x81"
                  "call\xe2\x96\x81"
                  "begin\xef\xbd\x9c>",
                  "deepseek"},
                 {"<|tool_call_begin|>", "kimi"},
                 {"<|START_ACTION|>", "command"},
                 {"<|tools_prefix|>", "apertus"},
                 {"<|function_call|>", "gigachat"},
                 {"<TOOLCALL>", "nemotron"},
                 {"<minimax:tool_call>", "minimax"},
                 {"<\xef\xbd\x9c"
                  "DSML\xef\xbd\x9c"
                  "invoke",
                  "deepseek_dsml"},
                 {"<atem:function_calls>", "atem"},
                 {"<function name=\"", "minicpm"},
                 {"<tool_call:opensource>", "hunyuan"},
                 {"<|tool_call>call:", "gemma4"},
                 {"<|tool_call_start|>[", "lfm"},
                 {">>>", "functionary"},
                 {"<|open|>call tool=", NULL}};
    const char *best = NULL, *form = NULL;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        const char *at = find_last(text, signs[i].text);
        if (at != NULL && (best == NULL || at > best)) {
            best = at;
            form = signs[i].form;
        }
    }
    if (best == NULL || form == NULL || strcmp(form, "hermes") != 0)
        return form;
    if (strstr(best, "<function=") != NULL)
        return "qwen3_coder";
    return strstr(best, "<arg_key>") != NULL ? "glm" : form;
}

static const char *form_around(const char *call) {
    const char *form = form_in(call);
    if (form != NULL || strstr(call, "<|open|>call tool=") != NULL)
        return form;
    if (strstr(call, "<function=") != NULL)
        return "qwen3_coder";
    if (strstr(call, "[" PROBE_NAME "(") != NULL)
        return "pythonic";
    const char *name = find_last(call, "\"name\"");
    if (name == NULL)
        return NULL;
    return strstr(name, "\"parameters\"") != NULL ? "llama3" : "json";
}

const char *tool_format_seen(text_view rendered, const char *value) {
    char *text = malloc(rendered.size + 1);
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < rendered.size; i++)
        text[i] = rendered.data[i] == '\0' ? ' ' : rendered.data[i];
    text[rendered.size] = '\0';
    char *argument = (char *)(uintptr_t)find_last(text, value);
    const char *form = NULL;
    if (argument != NULL) {
        *argument = '\0';
        size_t before = (size_t)(argument - text);
        form = form_around(text + (before > BEFORE_MAX ? before - BEFORE_MAX : 0));
    } else {
        form = form_in(text);
    }
    free(text);
    return form;
}

/* A conversation in which a function was called. `arguments` as an object, or as text. */
#define PROBE_VALUE "oXq7Zk2"
#define PROBE(call)                                                                                \
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"description\":"       \
    "\"Looks up.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"what\":{\"type\":"        \
    "\"string\",\"description\":\"What.\"}},\"required\":[\"what\"]}}}],\"messages\":["            \
    "{\"role\":\"user\",\"content\":\"Look.\"},{\"role\":\"assistant\",\"content\":\"\","          \
    "\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":"          \
    "\"look_up\",\"arguments\":" call "}}]}]}"

static avo_status render(const avo_model *model, const char *variables, buffer *out,
                         avo_error *error) {
    avo_chat_options chat = AVO_CHAT_OPTIONS_INIT;
    chat.variables = variables;
    chat.no_generation_prompt = true;
    avo_message none = {"user", ""};
    size_t count = 0, bytes = 0;
    avo_status status = avo_chat_tokenize(model, &none, 1, &chat, NULL, 0, &count, error);
    if (status != AVO_OK && status != AVO_ERROR_LIMIT)
        return status;
    int32_t *ids = calloc(count + 1, sizeof(*ids));
    if (ids == NULL)
        return status_no_memory(error, "a conversation", count * sizeof(*ids));
    status = avo_chat_tokenize(model, &none, 1, &chat, ids, count, &count, error);
    out->size = 0;
    if (status == AVO_OK)
        status = buffer_reserve(out, 16 * count + 64);
    if (status == AVO_OK)
        status = avo_detokenize(model, ids, count, AVO_TOKENIZE_SPECIAL, out->data, out->capacity,
                                &bytes, error);
    if (status == AVO_ERROR_LIMIT && bytes > 0 && bytes < RENDERED_MAX) {
        status = buffer_reserve(out, bytes);
        if (status == AVO_OK)
            status = avo_detokenize(model, ids, count, AVO_TOKENIZE_SPECIAL, out->data,
                                    out->capacity, &bytes, error);
    }
    free(ids);
    out->size = status == AVO_OK ? bytes : 0;
    return status;
}

static avo_status find_form(const avo_model *model, const tool_form **form, avo_error *error) {
    static const char *const probes[] = {PROBE("{\"what\":\"" PROBE_VALUE "\"}"),
                                         PROBE("\"{\\\"what\\\":\\\"" PROBE_VALUE "\\\"}\"")};
    const char *name = NULL;
    avo_status status = AVO_OK;
    buffer rendered;
    buffer_init(&rendered, NULL, RENDERED_MAX);
    bool listed = false;
    for (size_t i = 0; i < 2 && name == NULL; i++) {
        status = render(model, probes[i], &rendered, error);
        if (status == AVO_ERROR_MEMORY)
            break;
        text_view text = buffer_text(&rendered);
        if (status != AVO_OK || text.size == 0)
            continue;
        listed = listed || memmem(text.data, text.size, "look_up", 7) != NULL;
        name = tool_format_seen(text, PROBE_VALUE);
    }
    buffer_free(&rendered);
    if (status == AVO_ERROR_MEMORY)
        return status;
    if (name == NULL && listed)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "its template writes calls in a form that is not known here");
    if (name == NULL)
        name = "described";
    *form = form_named(name);
    return AVO_OK;
}

/* Tokens whose text an answer does not show: they are seen by their number. */
static void find_markers(const avo_model *model, tool_format *format) {
    const char *texts[2 * TOOL_OPENERS_MAX + 2];
    size_t count = 0;
    for (size_t i = 0; i < 2 && format->form->marks[i] != NULL; i++)
        texts[count++] = format->form->marks[i];
    for (size_t i = 0; i < TOOL_OPENERS_MAX && format->form->openers[i].text != NULL; i++) {
        texts[count++] = format->form->openers[i].text;
        if (format->form->openers[i].close != NULL)
            texts[count++] = format->form->openers[i].close;
    }
    for (size_t i = 0; i < count && format->marker_count < TOOL_MARKERS_MAX; i++) {
        int32_t ids[2];
        size_t found = 0, bytes = 0;
        char shown[8];
        if (avo_tokenize(model, texts[i], strlen(texts[i]), AVO_TOKENIZE_SPECIAL, ids, 2, &found,
                         NULL) != AVO_OK ||
            found != 1 || avo_detokenize(model, ids, 1, 0, shown, 8, &bytes, NULL) != AVO_OK ||
            bytes > 0)
            continue;
        bool opens = false;
        for (size_t n = 0; n < TOOL_OPENERS_MAX && format->form->openers[n].text != NULL; n++)
            opens = opens || texts[i] == format->form->openers[n].text;
        format->markers[format->marker_count++] = (tool_marker){ids[0], texts[i], opens};
    }
}

avo_status tool_format_open(const avo_model *model, tool_format **out, avo_error *error) {
    const tool_form *form = NULL;
    *out = NULL;
    AVO_TRY(avo_chat_check(model, error));
    AVO_TRY(find_form(model, &form, error));
    tool_format *format = calloc(1, sizeof(*format));
    if (format == NULL)
        return status_no_memory(error, "the form of calls", sizeof(*format));
    format->form = form;
    find_markers(model, format);
    *out = format;
    return AVO_OK;
}

avo_status tool_format_named(const char *name, tool_format **out, avo_error *error) {
    *out = NULL;
    const tool_form *form = form_named(name);
    if (form == NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "no form of calls is named %.40s", name);
    tool_format *format = calloc(1, sizeof(*format));
    if (format == NULL)
        return status_no_memory(error, "the form of calls", sizeof(*format));
    format->form = form;
    *out = format;
    return AVO_OK;
}

void tool_format_close(tool_format *format) {
    free(format);
}

const char *tool_format_name(const tool_format *format) {
    return format->form->name;
}

/* ---- Described ---- */

bool tool_format_describes(const tool_format *format) {
    return format->form->described;
}

avo_status tool_describe(const json_value *tools, buffer *out) {
    AVO_TRY(buffer_append_text(out, "You can call functions. These are there, one in a line:\n"
                                    "<tools>\n"));
    for (size_t i = 0; tools->kind == JSON_ARRAY && i < tools->array.count; i++) {
        AVO_TRY(json_write_value(out, &tools->array.items[i]));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return buffer_append_text(out, "</tools>\nTo call one, answer with nothing but its name and "
                                   "arguments as JSON inside of tags:\n<tool_call>\n{\"name\": "
                                   "\"the function\", \"arguments\": {\"its\": \"arguments\"}}"
                                   "\n</tool_call>\nWhat it returns comes in <tool_response> "
                                   "tags.");
}

avo_status tool_describe_calls(const json_value *calls, buffer *out) {
    for (size_t i = 0; calls->kind == JSON_ARRAY && i < calls->array.count; i++) {
        const json_value *function = json_find(&calls->array.items[i], "function");
        const json_value *name = json_find(function, "name");
        const json_value *arguments = json_find(function, "arguments");
        if (name == NULL || name->kind != JSON_STRING)
            continue;
        AVO_TRY(buffer_format(out, "%s<tool_call>\n{\"name\": ", out->size > 0 ? "\n" : ""));
        AVO_TRY(json_write_string(out, name->string));
        AVO_TRY(buffer_append_text(out, ", \"arguments\": "));
        if (arguments != NULL && arguments->kind == JSON_STRING)
            AVO_TRY(buffer_append(out, arguments->string.data, arguments->string.size));
        else if (arguments != NULL)
            AVO_TRY(json_write_value(out, arguments));
        else
            AVO_TRY(buffer_append_text(out, "{}"));
        AVO_TRY(buffer_append_text(out, "}\n</tool_call>"));
    }
    return AVO_OK;
}

/* ---- Grammars ---- */

static bool wanted(const json_value *function, const tool_choice *choice) {
    const json_value *name = json_find(function, "name");
    return name != NULL && name->kind == JSON_STRING &&
           (choice->function == NULL || text_is(name->string, choice->function));
}

static bool is_strict(const json_value *function) {
    const json_value *strict = json_find(function, "strict");
    return strict != NULL && strict->kind == JSON_BOOLEAN && strict->boolean;
}

static const char *key_of(const tool_form *form) {
    return form->key == NULL ? "arguments" : form->key;
}

static avo_status write_reference(text_view path, const char *place, buffer *out) {
    buffer moved;
    buffer_init(&moved, NULL, TOOL_CALL_BYTES_MAX);
    avo_status status = buffer_append_text(&moved, place);
    if (status == AVO_OK)
        status = buffer_append(&moved, path.data + 1, path.size - 1);
    if (status == AVO_OK)
        status = json_write_string(out, buffer_text(&moved));
    buffer_free(&moved);
    return status;
}

static bool is_one_of(text_view key, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text_is(key, names[i]))
            return true;
    return false;
}

/* What stands in a schema. */
typedef enum schema_part {
    PART_SCHEMA, /* or a list of them */
    PART_NAMED,  /* schemas by names, which may be those of keywords */
    PART_VALUE   /* not a schema, whatever it looks like */
} schema_part;

static schema_part part_of(text_view key) {
    static const char *const values[] = {"const", "enum", "default", "examples", "example"};
    static const char *const named[] = {"properties", "$defs", "definitions", "patternProperties",
                                        "dependentSchemas"};
    if (is_one_of(key, values, sizeof(values) / sizeof(values[0])))
        return PART_VALUE;
    return is_one_of(key, named, sizeof(named) / sizeof(named[0])) ? PART_NAMED : PART_SCHEMA;
}

/* A schema that stands inside of another: its references begin at its own root. */
static avo_status write_moved(const json_value *value, schema_part part, const char *place,
                              buffer *out) {
    bool array = value->kind == JSON_ARRAY;
    if (part == PART_VALUE || (!array && value->kind != JSON_OBJECT))
        return json_write_value(out, value);
    size_t count = array ? value->array.count : value->object.count;
    AVO_TRY(buffer_append_text(out, array ? "[" : "{"));
    for (size_t i = 0; i < count; i++) {
        const json_value *item = array ? &value->array.items[i] : &value->object.members[i].value;
        AVO_TRY(buffer_append_text(out, i > 0 ? "," : ""));
        schema_part inside = PART_SCHEMA;
        bool reference = false;
        if (!array) {
            text_view key = value->object.members[i].key;
            AVO_TRY(json_write_string(out, key));
            AVO_TRY(buffer_append_text(out, ":"));
            reference = part == PART_SCHEMA && text_is(key, "$ref") && item->kind == JSON_STRING &&
                        item->string.size > 0 && item->string.data[0] == '#';
            inside = part == PART_SCHEMA ? part_of(key) : PART_SCHEMA;
        }
        AVO_TRY(reference ? write_reference(item->string, place, out)
                          : write_moved(item, inside, place, out));
    }
    return buffer_append_text(out, array ? "]" : "}");
}

/* Arguments are any object where nothing was promised of them. */
static avo_status write_schema(const char *key, const json_value *function, bool promised,
                               const char *place, buffer *out) {
    const json_value *parameters = promised ? json_find(function, "parameters") : NULL;
    AVO_TRY(buffer_append_text(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":"));
    AVO_TRY(json_write_string(out, json_find(function, "name")->string));
    AVO_TRY(buffer_format(out, "},\"%s\":", key));
    if (parameters != NULL && parameters->kind == JSON_OBJECT)
        AVO_TRY(write_moved(parameters, PART_SCHEMA, place, out));
    else
        AVO_TRY(buffer_append_text(out, "{\"type\":\"object\"}"));
    return buffer_format(out, "},\"required\":[\"name\",\"%s\"],\"additionalProperties\":false}",
                         key);
}

/* One call, or with `array` several in one. */
static avo_status write_schemas(const tool_form *form, const json_value *tools,
                                const tool_choice *choice, bool array, buffer *out,
                                size_t *written) {
    *written = 0;
    if (array)
        AVO_TRY(buffer_format(out, "{\"type\":\"array\",\"minItems\":1%s,\"items\":",
                              choice->parallel ? "" : ",\"maxItems\":1"));
    AVO_TRY(buffer_append_text(out, "{\"anyOf\":["));
    for (size_t i = 0; i < tools->array.count; i++) {
        const json_value *function = json_find(&tools->array.items[i], "function");
        char place[96];
        if (!wanted(function, choice))
            continue;
        snprintf(place, sizeof(place), "#%s/anyOf/%zu/properties/%s", array ? "/items" : "",
                 *written, key_of(form));
        if ((*written)++ > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_schema(key_of(form), function, choice->required || is_strict(function), place,
                             out));
    }
    AVO_TRY(buffer_append_text(out, array ? "]}}" : "]}"));
    return buffer_terminate(out);
}

static bool any_strict(const json_value *tools) {
    for (size_t i = 0; i < tools->array.count; i++)
        if (is_strict(json_find(&tools->array.items[i], "function")))
            return true;
    return false;
}

avo_status tool_grammar_write(const tool_format *format, const json_value *tools,
                              const tool_choice *choice, tool_grammar *grammar, avo_error *error) {
    *grammar = (tool_grammar){.kind = AVO_GRAMMAR_JSON_SCHEMA};
    if (tools->kind != JSON_ARRAY || tools->array.count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "tools: there are none");
    if (!choice->required && !any_strict(tools))
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "calls are free");
    const tool_form *form = format->form;
    if (!choice->required && !form->bare && !form->python)
        grammar->trigger = form->openers[0].text;
    size_t written;
    buffer_init(&grammar->text, NULL, TOOL_CALL_BYTES_MAX);
    avo_status status = write_schemas(form, tools, choice, form->array && grammar->trigger != NULL,
                                      &grammar->text, &written);
    if (status == AVO_OK && written == 0)
        status = status_fail(error, AVO_ERROR_ARGUMENT, "tools: none is named %s",
                             choice->function == NULL ? "at all" : choice->function);
    else if (status != AVO_OK)
        status = status_fail(error, status, "tools: their schemas have more than %zu bytes",
                             TOOL_CALL_BYTES_MAX);
    if (status != AVO_OK)
        buffer_free(&grammar->text);
    return status;
}
