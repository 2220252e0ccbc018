/* response_format and grammars: what is to be compiled, and compiling it. */
#include "chat/chat_int.h"

#include <string.h>

bool constraint_fits(text_view text, const char *param, chat_fault *fault) {
    return text.size <= CHAT_GRAMMAR_BYTES_MAX ||
           chat_fail(fault, param, "invalid_grammar",
                     "%s: the schema or grammar has %zu bytes, must have at most %zu", param,
                     text.size, CHAT_GRAMMAR_BYTES_MAX);
}

/* The text is copied into the arena; without data: there is none. */
static bool take(avo_grammar_kind kind, text_view text, const char *param, arena *arena,
                 chat_constraint *out, chat_fault *fault) {
    if (!constraint_fits(text, param, fault))
        return false;
    const char *copy = text.data == NULL ? NULL : arena_copy_text(arena, text.data, text.size);
    if (text.data != NULL && copy == NULL)
        return chat_fail_memory(fault);
    *out = (chat_constraint){.kind = kind, .text = copy, .param = param};
    return true;
}

static bool read_schema(const json_value *schema, const char *param, arena *arena,
                        chat_constraint *out, chat_fault *fault) {
    if (schema == NULL || (schema->kind != JSON_OBJECT && schema->kind != JSON_BOOLEAN))
        return chat_fail(fault, param, "missing_required_parameter",
                         "%s: json_schema needs a schema that is an object", param);
    buffer text;
    buffer_init(&text, arena->allocator, CHAT_GRAMMAR_BYTES_MAX);
    avo_status status = json_write_value(&text, schema);
    bool good;
    if (status == AVO_OK)
        good = take(AVO_GRAMMAR_JSON_SCHEMA, buffer_text(&text), param, arena, out, fault);
    else if (status == AVO_ERROR_LIMIT)
        good = chat_fail(fault, param, "invalid_value", "%s: the schema has more than %zu bytes",
                         param, CHAT_GRAMMAR_BYTES_MAX);
    else
        good = chat_fail_memory(fault);
    buffer_free(&text);
    return good;
}

static bool read_format(const json_value *format, const char *param, arena *arena,
                        chat_constraint *out, chat_fault *fault) {
    const json_value *type = json_find(format, "type");
    if (format->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return chat_fail(fault, param, "invalid_type", "%s must be an object with a type", param);
    if (text_is(type->string, "text"))
        return true;
    if (text_is(type->string, "json_object")) {
        const json_value *schema = json_find(format, "schema"); /* llama.cpp's short form */
        if (schema != NULL && schema->kind == JSON_OBJECT)
            return read_schema(schema, param, arena, out, fault);
        return take(AVO_GRAMMAR_JSON, (text_view){NULL, 0}, param, arena, out, fault);
    }
    if (!text_is(type->string, "json_schema"))
        return chat_fail(fault, param, "invalid_value",
                         "%s: type is \"%.*s\", must be text, json_object or json_schema", param,
                         TEXT_ARGUMENT(type->string));
    const json_value *inner = json_find(format, "json_schema");
    return read_schema(json_find(inner != NULL ? inner : format, "schema"), param, arena, out,
                       fault);
}

/* A schema as a value, or as text. */
static bool read_own_schema(const json_value *schema, const char *param, arena *arena,
                            chat_constraint *out, chat_fault *fault) {
    text_view text;
    if (schema->kind == JSON_OBJECT || schema->kind == JSON_BOOLEAN)
        return read_schema(schema, param, arena, out, fault);
    if (schema->kind != JSON_STRING)
        return chat_fail_kind(fault, param, "an object, true, false or their text", schema);
    return chat_string_read(schema, param, CHAT_GRAMMAR_BYTES_MAX, &text, fault) &&
           take(AVO_GRAMMAR_JSON_SCHEMA, text, param, arena, out, fault);
}

static bool only_one(const chat_constraint *out, const char *param, chat_fault *fault) {
    return out->param == NULL || chat_fail(fault, param, "invalid_value",
                                           "%s cannot be combined with %s", param, out->param);
}

/* ---- vLLM's names ---- */

/* A text of GBNF that is this text and nothing else. */
static avo_status write_literal(buffer *out, text_view text) {
    AVO_TRY(buffer_append_text(out, "\""));
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            AVO_TRY(buffer_format(out, "\\%c", c));
        else if (c < 0x20 || c == 0x7F)
            AVO_TRY(buffer_format(out, "\\x%02X", c));
        else
            AVO_TRY(buffer_append(out, &text.data[i], 1));
    }
    return buffer_append_text(out, "\"");
}

static bool write_choices(const json_value *list, const char *param, buffer *out,
                          chat_fault *fault) {
    avo_status status = buffer_append_text(out, "root ::= ");
    for (size_t i = 0; status == AVO_OK && i < list->array.count; i++) {
        text_view text;
        if (!chat_string_read(&list->array.items[i], param, CHAT_GRAMMAR_BYTES_MAX, &text, fault))
            return false;
        if (i > 0)
            status = buffer_append_text(out, " | ");
        AVO_THEN(status, write_literal(out, text));
    }
    if (status == AVO_ERROR_LIMIT)
        return constraint_fits((text_view){out->data, CHAT_GRAMMAR_BYTES_MAX + 1}, param, fault);
    return status == AVO_OK || chat_fail_memory(fault);
}

/* The answer is one of the texts. */
static bool read_choice(const json_value *list, const char *param, arena *arena,
                        chat_constraint *out, chat_fault *fault) {
    if (list->kind != JSON_ARRAY || list->array.count == 0)
        return chat_fail(fault, param, "invalid_value", "%s must be a list of one or more strings",
                         param);
    buffer text;
    buffer_init(&text, arena->allocator, CHAT_GRAMMAR_BYTES_MAX);
    bool good = write_choices(list, param, &text, fault) &&
                take(AVO_GRAMMAR_GBNF, buffer_text(&text), param, arena, out, fault);
    buffer_free(&text);
    return good;
}

static bool read_written(avo_grammar_kind kind, const json_value *value, const char *param,
                         arena *arena, chat_constraint *out, chat_fault *fault) {
    text_view text;
    return chat_string_read(value, param, CHAT_GRAMMAR_BYTES_MAX, &text, fault) &&
           take(kind, text, param, arena, out, fault);
}

typedef enum shape_kind {
    SHAPE_JSON,
    SHAPE_REGEX,
    SHAPE_CHOICE,
    SHAPE_GRAMMAR,
    SHAPE_OBJECT
} shape_kind;

static bool read_shape(shape_kind kind, const json_value *value, const char *param, arena *arena,
                       chat_constraint *out, chat_fault *fault) {
    bool wanted = false;
    switch (kind) {
    case SHAPE_JSON:
        return read_own_schema(value, param, arena, out, fault);
    case SHAPE_REGEX:
        return read_written(AVO_GRAMMAR_REGEX, value, param, arena, out, fault);
    case SHAPE_CHOICE:
        return read_choice(value, param, arena, out, fault);
    case SHAPE_GRAMMAR:
        return read_written(AVO_GRAMMAR_GBNF, value, param, arena, out, fault);
    case SHAPE_OBJECT:
        break;
    }
    return chat_boolean_read(value, param, &wanted, fault) &&
           (!wanted || take(AVO_GRAMMAR_JSON, (text_view){NULL, 0}, param, arena, out, fault));
}

typedef struct shape_name {
    const char *key, *param;
    shape_kind kind;
} shape_name;

static const shape_name guided[] = {{"guided_json", "guided_json", SHAPE_JSON},
                                    {"guided_regex", "guided_regex", SHAPE_REGEX},
                                    {"guided_choice", "guided_choice", SHAPE_CHOICE},
                                    {"guided_grammar", "guided_grammar", SHAPE_GRAMMAR},
                                    {"guided_json_object", "guided_json_object", SHAPE_OBJECT}};
static const shape_name structured[] = {
    {"json", "structured_outputs.json", SHAPE_JSON},
    {"regex", "structured_outputs.regex", SHAPE_REGEX},
    {"choice", "structured_outputs.choice", SHAPE_CHOICE},
    {"grammar", "structured_outputs.grammar", SHAPE_GRAMMAR},
    {"json_object", "structured_outputs.json_object", SHAPE_OBJECT}};
#define SHAPES (sizeof(guided) / sizeof(guided[0]))

/* The members of `object` with these names. */
static bool read_shapes(const json_value *object, const shape_name *names, arena *arena,
                        chat_constraint *out, chat_fault *fault) {
    for (size_t i = 0; i < SHAPES; i++) {
        const json_value *value = json_find(object, names[i].key);
        bool asked = value != NULL && value->kind != JSON_NULL &&
                     (value->kind != JSON_BOOLEAN || value->boolean);
        if (asked && (!only_one(out, names[i].param, fault) ||
                      !read_shape(names[i].kind, value, names[i].param, arena, out, fault)))
            return false;
    }
    return true;
}

/* Members that are not known would constrain the answer in a way that is not kept. */
static bool check_structured(const json_value *object, chat_fault *fault) {
    if (object->kind != JSON_OBJECT)
        return chat_fail_kind(fault, "structured_outputs", "an object", object);
    for (size_t i = 0; i < object->object.count; i++) {
        const json_member *member = &object->object.members[i];
        bool known = member->value.kind == JSON_NULL ||
                     (member->value.kind == JSON_BOOLEAN && !member->value.boolean);
        for (size_t k = 0; k < SHAPES && !known; k++)
            known = text_is(member->key, structured[k].key);
        char shown[JSON_SHOWN_KEY_MAX];
        if (!known)
            return chat_fail(fault, "structured_outputs", "unsupported_parameter",
                             "structured_outputs.%s is not supported; json, regex, choice, "
                             "grammar and json_object are",
                             json_shown_key(member->key, shown));
    }
    return true;
}

static bool read_guided(const json_value *body, arena *arena, chat_constraint *out,
                        chat_fault *fault) {
    const json_value *object = json_find(body, "structured_outputs");
    if (!read_shapes(body, guided, arena, out, fault))
        return false;
    return object == NULL || object->kind == JSON_NULL ||
           (check_structured(object, fault) && read_shapes(object, structured, arena, out, fault));
}

/* ---- ollama's ---- */

static bool read_ollama(const json_value *format, arena *arena, chat_constraint *out,
                        chat_fault *fault) {
    if (format->kind == JSON_STRING && format->string.size == 0)
        return true;
    if (!only_one(out, "format", fault))
        return false;
    if (format->kind == JSON_STRING && text_is(format->string, "json"))
        return take(AVO_GRAMMAR_JSON, (text_view){NULL, 0}, "format", arena, out, fault);
    if (format->kind != JSON_OBJECT)
        return chat_fail(fault, "format", "invalid_value",
                         "format must be \"json\" or a JSON schema");
    return read_schema(format, "format", arena, out, fault);
}

/* ---- The whole ---- */

bool chat_constraint_read(const chat_constraint_source *source, arena *arena, chat_constraint *out,
                          chat_fault *fault) {
    *out = (chat_constraint){0};
    const json_value *format = source->format;
    if (format != NULL && format->kind != JSON_NULL &&
        !read_format(format, source->param, arena, out, fault))
        return false;
    /* An empty grammar is refused like any other without a root rule. */
    if (source->grammar != NULL &&
        (!only_one(out, "grammar", fault) ||
         !take(AVO_GRAMMAR_GBNF, text_from(source->grammar), "grammar", arena, out, fault)))
        return false;
    if (source->schema != NULL &&
        (!only_one(out, "json_schema", fault) ||
         !read_own_schema(source->schema, "json_schema", arena, out, fault)))
        return false;
    if (source->body != NULL && !read_guided(source->body, arena, out, fault))
        return false;
    if (source->shape != NULL && !read_ollama(source->shape, arena, out, fault))
        return false;
    return !source->object ||
           (only_one(out, "json_object", fault) &&
            take(AVO_GRAMMAR_JSON, (text_view){NULL, 0}, "json_object", arena, out, fault));
}

avo_status chat_constraint_open(grammar_cache *cache, const chat_constraint *constraint,
                                avo_grammar **out, avo_error *error) {
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    options.trigger = constraint->trigger;
    options.json_or_text = constraint->json_or_text;
    avo_status status = grammar_cache_take(cache, constraint->owner, constraint->kind,
                                           constraint->text, &options, out, error);
    if (status == AVO_OK || status == AVO_ERROR_MEMORY)
        return status;
    return status_prefix(error, status, "%s", constraint->param);
}
