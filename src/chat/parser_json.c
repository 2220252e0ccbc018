/* Tool calls that are JSON: whole, and while their arguments come. */
#include "chat/parser_int.h"

#include <string.h>

/* ---- Calls ---- */

static bool is_name_key(text_view key) {
    return text_is(key, "name") || text_is(key, "tool_name");
}

static bool is_arguments_key(text_view key) {
    return text_is(key, "arguments") || text_is(key, "parameters");
}

static const json_value *first_member(const json_value *object, bool (*is)(text_view key)) {
    for (size_t i = 0; object->kind == JSON_OBJECT && i < object->object.count; i++)
        if (is(object->object.members[i].key))
            return &object->object.members[i].value;
    return NULL;
}

static avo_status keep_text(chat_parser *p, text_view text, text_view *out) {
    out->data = arena_copy_text(&p->arena, text.size == 0 ? "" : text.data, text.size);
    out->size = text.size;
    return out->data == NULL ? AVO_ERROR_MEMORY : AVO_OK;
}

/* The arguments as text of a JSON object: as they came, an object, a text that is one, or none. */
static avo_status take_arguments(chat_parser *p, const json_value *value, const tool_call *came,
                                 text_view *out, bool *good) {
    buffer text;
    buffer_init(&text, p->allocator, SIZE_MAX);
    avo_status status = AVO_OK;
    json_value inner;
    *good = true;
    if (came != NULL && came->arguments.data != NULL) {
        *out = came->arguments;
        return AVO_OK;
    }
    if (value == NULL || value->kind == JSON_NULL)
        status = buffer_append_text(&text, "{}");
    else if (value->kind == JSON_OBJECT)
        status = json_write_value(&text, value);
    else if (value->kind == JSON_STRING &&
             json_parse(&p->arena, value->string, &inner, NULL) == AVO_OK &&
             inner.kind == JSON_OBJECT)
        status = json_write_value(&text, &inner);
    else
        *good = false;
    if (status == AVO_OK && *good)
        status = keep_text(p, buffer_text(&text), out);
    buffer_free(&text);
    return status;
}

avo_status parser_add_call(chat_parser *p, text_view name, const json_value *arguments,
                           const tool_call *came, bool *good) {
    *good = name.size > 0 && p->count < CHAT_CALLS_MAX;
    if (!*good)
        return AVO_OK;
    tool_call call = {.complete = true};
    AVO_TRY(take_arguments(p, arguments, came, &call.arguments, good));
    if (!*good)
        return AVO_OK;
    AVO_TRY(keep_text(p, name, &call.name));
    p->calls[p->count++] = call;
    return AVO_OK;
}

static avo_status add_object(chat_parser *p, const json_value *value, const tool_call *came,
                             bool *good) {
    if (p->format->form->keyed && value->kind == JSON_OBJECT && value->object.count == 1 &&
        value->object.members[0].value.kind == JSON_OBJECT)
        return parser_add_call(p, value->object.members[0].key, &value->object.members[0].value,
                               came, good);
    const json_value *function = json_find(value, "function");
    if (first_member(value, is_name_key) == NULL && function != NULL)
        value = function;
    const json_value *name = first_member(value, is_name_key);
    const json_value *arguments = first_member(value, is_arguments_key);
    /* Without its opener an object must say more to be a call. */
    *good = name != NULL && name->kind == JSON_STRING && !(p->bare && arguments == NULL);
    return *good ? parser_add_call(p, name->string, arguments, came, good) : AVO_OK;
}

avo_status parser_add_value(chat_parser *p, const json_value *value, bool *good) {
    size_t before = p->count;
    *good = value->kind == JSON_OBJECT || (value->kind == JSON_ARRAY && value->array.count > 0 &&
                                           value->array.count <= CHAT_CALLS_MAX);
    if (value->kind == JSON_OBJECT)
        return add_object(p, value, &p->staged[0], good);
    for (size_t i = 0; value->kind == JSON_ARRAY && *good && i < value->array.count; i++)
        AVO_TRY(add_object(p, &value->array.items[i], &p->staged[i], good));
    if (!*good)
        p->count = before;
    return AVO_OK;
}

/* ---- Following arguments ---- */

avo_status arguments_begin(chat_parser *p, text_view name) {
    follower *f = &p->follow;
    f->open = true;
    p->arguments.size = 0;
    if (p->options.eager && p->count < CHAT_CALLS_MAX && tool_known(p->options.tools, name)) {
        p->begun = true;
        p->coming = (tool_call){0};
        AVO_TRY(keep_text(p, name, &p->coming.name));
    }
    return buffer_append(&p->arguments, p->raw.data + p->raw.size - 1, 1);
}

avo_status begun_ends(chat_parser *p) {
    p->coming.complete = true;
    AVO_TRY(keep_text(p, buffer_text(&p->arguments), &p->coming.arguments));
    p->calls[p->count++] = p->coming;
    p->begun = false;
    return AVO_OK;
}

avo_status follow_open(chat_parser *p, char byte) {
    follower *f = &p->follow;
    if (byte == '{' && p->depth == f->members) {
        f->value = f->name_seen = f->arguments_seen = f->collected = false;
        f->name_size = f->key_size = 0;
        f->element_at = p->raw.size - 1;
        return AVO_OK;
    }
    bool due = !f->open && f->members > 0 && p->depth == f->members + 1 && f->value;
    text_view key = raw_at(p, f->key_at, f->key_size);
    if (!due || f->key_size == 0)
        return AVO_OK;
    if (is_arguments_key(key)) {
        bool first = !f->arguments_seen;
        f->arguments_seen = true;
        if (first && byte == '{' && f->name_size > 0)
            return arguments_begin(p, raw_at(p, f->name_at, f->name_size));
    } else if (p->format->form->keyed && byte == '{' && !f->arguments_seen) {
        f->arguments_seen = true;
        return arguments_begin(p, key);
    }
    return AVO_OK;
}

/* A string of an object's own has ended: a key, or the value of one. */
void follow_string(chat_parser *p) {
    follower *f = &p->follow;
    if (f->open || f->members == 0 || p->depth != f->members)
        return;
    size_t size = p->raw.size - 1 - f->string_at;
    if (!f->value) {
        f->key_at = f->string_at;
        f->key_size = f->escapes ? 0 : size;
        return;
    }
    text_view key = raw_at(p, f->key_at, f->key_size);
    if (f->key_size > 0 && is_name_key(key)) {
        f->name_at = f->string_at;
        f->name_size = f->escapes || f->name_seen ? 0 : size;
        f->name_seen = true;
    } else if (f->key_size > 0 && is_arguments_key(key)) {
        f->arguments_seen = true;
    }
}

/* An object that was an element of an array, complete: without waiting for the others. */
static avo_status element_alone(chat_parser *p, const tool_call *came) {
    json_value value;
    text_view text = raw_at(p, p->follow.element_at, p->raw.size - p->follow.element_at);
    bool good = json_parse(&p->arena, text, &value, NULL) == AVO_OK;
    if (good)
        AVO_TRY(add_object(p, &value, came, &good));
    p->broken = p->broken || !good;
    return AVO_OK;
}

static avo_status element_ends(chat_parser *p) {
    follower *f = &p->follow;
    tool_call came = {0};
    if (f->collected && !p->begun)
        AVO_TRY(keep_text(p, buffer_text(&p->arguments), &came.arguments));
    f->collected = false;
    if (f->element < CHAT_CALLS_MAX)
        p->staged[f->element] = came;
    f->element++;
    if (p->begun)
        return begun_ends(p);
    return p->options.eager && f->members == 2 ? element_alone(p, &came) : AVO_OK;
}

avo_status follow_close(chat_parser *p) {
    follower *f = &p->follow;
    if (f->open && p->depth == f->members) {
        f->open = false;
        f->collected = true;
    }
    bool element = f->members > 0 ? p->depth + 1 == f->members : p->depth == 0;
    return element && p->raw.data[p->raw.size - 1] == '}' ? element_ends(p) : AVO_OK;
}
