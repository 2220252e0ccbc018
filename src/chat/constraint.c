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

/* json_schema: as a value, or as text. */
static bool read_own_schema(const json_value *schema, arena *arena, chat_constraint *out,
                            chat_fault *fault) {
    text_view text;
    if (schema->kind == JSON_OBJECT || schema->kind == JSON_BOOLEAN)
        return read_schema(schema, "json_schema", arena, out, fault);
    if (schema->kind != JSON_STRING)
        return chat_fail_kind(fault, "json_schema", "an object, true, false or their text", schema);
    return chat_string_read(schema, "json_schema", CHAT_GRAMMAR_BYTES_MAX, &text, fault) &&
           take(AVO_GRAMMAR_JSON_SCHEMA, text, "json_schema", arena, out, fault);
}

static bool only_one(const chat_constraint *out, const char *param, chat_fault *fault) {
    return out->param == NULL || chat_fail(fault, param, "invalid_value",
                                           "%s cannot be combined with %s", param, out->param);
}

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
    if (source->schema != NULL && (!only_one(out, "json_schema", fault) ||
                                   !read_own_schema(source->schema, arena, out, fault)))
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
