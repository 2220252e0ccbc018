/* Messages as JSON trees, and back. */
#include "server/api/grpc/message.h"

#include "base/utf8.h"
#include "server/api/grpc/wire.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

json_value tree_object(json_member *members, size_t count) {
    return (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
}

json_value tree_array(json_value *items, size_t count) {
    return (json_value){.kind = JSON_ARRAY, .array = {items, count}};
}

json_value tree_text(text_view text) {
    return (json_value){.kind = JSON_STRING, .string = text};
}

json_value tree_integer(int64_t number) {
    return (json_value){.kind = JSON_INTEGER, .integer = number};
}

json_value tree_boolean(bool boolean) {
    return (json_value){.kind = JSON_BOOLEAN, .boolean = boolean};
}

json_value tree_number(double number) {
    return (json_value){.kind = JSON_NUMBER, .number = number};
}

/* ---- Reading ---- */

/* One occurrence of a field on the wire. */
typedef struct seen {
    wire_field field;
    struct seen *next;
} seen;

typedef struct seen_list {
    seen *first, *last;
    size_t count;
} seen_list;

typedef struct reading {
    arena *arena;
    avo_error *error;
} reading;

static avo_status full(const reading *r) {
    return status_fail(r->error, AVO_ERROR_MEMORY, "the message needs too much memory");
}

static avo_status bad(const reading *r, const proto_message *message, const proto_field *field,
                      const char *what) {
    return status_fail(r->error, AVO_ERROR_FORMAT, "%s.%s: %s", message->name, field->name, what);
}

static const proto_field *field_of(const proto_message *message, uint32_t number, size_t *index) {
    for (size_t i = 0; i < message->count; i++)
        if (message->fields[i].number == number) {
            *index = i;
            return &message->fields[i];
        }
    return NULL;
}

/* Occurrences of every field, in their order: lists[message->count]. */
static avo_status collect(const reading *r, const proto_message *message, bytes_view bytes,
                          seen_list *lists) {
    cursor cursor = cursor_over(bytes);
    while (cursor_left(&cursor) > 0) {
        size_t at = cursor.at, index = 0;
        wire_field field;
        if (!wire_read(&cursor, &field))
            return status_fail(r->error, AVO_ERROR_FORMAT,
                               "%s: no valid field at byte %zu of the message", message->name, at);
        if (field_of(message, field.number, &index) == NULL) {
            if (message->strict)
                return status_fail(r->error, AVO_ERROR_FORMAT, "%s: unknown field number %" PRIu32,
                                   message->name, field.number);
            continue;
        }
        seen *one = arena_take(r->arena, sizeof(*one));
        if (one == NULL)
            return full(r);
        one->field = field;
        seen_list *list = &lists[index];
        if (list->last != NULL)
            list->last->next = one;
        else
            list->first = one;
        list->last = one;
        list->count++;
    }
    return AVO_OK;
}

static wire_type wire_of(proto_kind kind) {
    switch (kind) {
    case PROTO_DOUBLE:
        return WIRE_FIXED64;
    case PROTO_FLOAT:
        return WIRE_FIXED32;
    case PROTO_INT64:
    case PROTO_UINT64:
    case PROTO_INT32:
    case PROTO_UINT32:
    case PROTO_BOOL:
        return WIRE_VARINT;
    default:
        return WIRE_BYTES;
    }
}

/* A number, as its bits; false: JSON has no such number. */
static bool read_scalar(proto_kind kind, uint64_t bits, json_value *out) {
    double number = 0.0;
    float single = 0.0f;
    uint32_t word = (uint32_t)bits;
    switch (kind) {
    case PROTO_DOUBLE:
        memcpy(&number, &bits, sizeof(number));
        *out = tree_number(number);
        return isfinite(number);
    case PROTO_FLOAT:
        memcpy(&single, &word, sizeof(single));
        *out = tree_number((double)single);
        return isfinite(single);
    case PROTO_INT32: /* negative ones have ten bytes; readers keep the lower 32 bits */
        *out = tree_integer((int32_t)word);
        return true;
    case PROTO_UINT32:
        *out = tree_integer((int64_t)word);
        return true;
    case PROTO_BOOL:
        *out = tree_boolean(bits != 0);
        return true;
    default:
        *out = kind == PROTO_UINT64 && bits > INT64_MAX ? tree_number((double)bits)
                                                        : tree_integer((int64_t)bits);
        return true;
    }
}

static avo_status read_message(const reading *r, const proto_message *message,
                               const seen_list *parts, unsigned depth, json_value *out);

/* One value of a field that is no message. */
static avo_status read_value(const reading *r, const proto_message *message,
                             const proto_field *field, const wire_field *wire, json_value *out) {
    text_view text = {(const char *)wire->bytes.data, wire->bytes.size};
    if (wire->type != wire_of(field->kind))
        return bad(r, message, field, "the value has another wire type");
    if (wire->type != WIRE_BYTES)
        return read_scalar(field->kind, wire->value, out)
                   ? AVO_OK
                   : bad(r, message, field, "the number must be finite");
    if (field->kind == PROTO_JSON) {
        avo_error inner = {0};
        avo_status status = json_parse(r->arena, text, out, &inner);
        if (status == AVO_ERROR_MEMORY)
            return full(r);
        return status == AVO_OK ? AVO_OK : bad(r, message, field, inner.text);
    }
    if (field->kind == PROTO_STRING && utf8_valid_prefix(text.data, text.size) != text.size)
        return bad(r, message, field, "the string is not valid UTF-8");
    *out = tree_text(text.size == 0 ? (text_view){"", 0} : text);
    return AVO_OK;
}

static avo_status count_packed(const reading *r, const proto_message *message,
                               const proto_field *field, const wire_field *wire, size_t *count) {
    wire_type type = wire_of(field->kind);
    if (type == WIRE_BYTES || wire->type != WIRE_BYTES) {
        ++*count;
        return AVO_OK;
    }
    size_t each = type == WIRE_FIXED64 ? 8 : 4;
    if (type != WIRE_VARINT) {
        *count += wire->bytes.size / each;
        return wire->bytes.size % each == 0
                   ? AVO_OK
                   : bad(r, message, field, "the packed numbers end too early");
    }
    for (size_t i = 0; i < wire->bytes.size; i++)
        *count += wire->bytes.data[i] < 0x80;
    bool ends = wire->bytes.size == 0 || wire->bytes.data[wire->bytes.size - 1] < 0x80;
    return ends ? AVO_OK : bad(r, message, field, "the packed numbers end too early");
}

static avo_status read_packed(const reading *r, const proto_message *message,
                              const proto_field *field, const wire_field *wire, json_value *array) {
    wire_type type = wire_of(field->kind);
    cursor cursor = cursor_over(wire->bytes);
    while (cursor_left(&cursor) > 0) {
        uint32_t word = 0;
        uint64_t bits = 0;
        bool good = type == WIRE_VARINT    ? wire_read_varint(&cursor, &bits)
                    : type == WIRE_FIXED64 ? cursor_read_u64(&cursor, &bits)
                                           : cursor_read_u32(&cursor, &word);
        if (!good)
            return bad(r, message, field, "the packed numbers end too early");
        if (!read_scalar(field->kind, type == WIRE_FIXED32 ? word : bits,
                         &array->array.items[array->array.count++]))
            return bad(r, message, field, "the number must be finite");
    }
    return AVO_OK;
}

static avo_status read_repeated(const reading *r, const proto_message *message,
                                const proto_field *field, const seen_list *list, unsigned depth,
                                json_value *out) {
    size_t count = 0;
    for (const seen *one = list->first; one != NULL; one = one->next)
        AVO_TRY(count_packed(r, message, field, &one->field, &count));
    *out = (json_value){.kind = JSON_ARRAY};
    if (count == 0)
        return AVO_OK;
    out->array.items = arena_take_array(r->arena, count, sizeof(json_value));
    if (out->array.items == NULL)
        return full(r);
    for (seen *one = list->first; one != NULL; one = one->next) {
        bool packed = one->field.type == WIRE_BYTES && wire_of(field->kind) != WIRE_BYTES;
        if (packed) {
            AVO_TRY(read_packed(r, message, field, &one->field, out));
            continue;
        }
        json_value *item = &out->array.items[out->array.count++];
        seen alone = {one->field, NULL};
        seen_list part = {&alone, &alone, 1};
        if (field->kind == PROTO_MESSAGE)
            AVO_TRY(read_message(r, field->message, &part, depth + 1, item));
        else
            AVO_TRY(read_value(r, message, field, &one->field, item));
    }
    return AVO_OK;
}

static avo_status key_text(const reading *r, const json_value *key, text_view *out) {
    if (key != NULL && key->kind == JSON_STRING) {
        *out = key->string;
        return AVO_OK;
    }
    char text[24];
    int size = snprintf(text, sizeof(text), "%" PRId64,
                        key == NULL || key->kind != JSON_INTEGER ? 0 : key->integer);
    char *copy = arena_copy_text(r->arena, text, (size_t)size);
    if (copy == NULL)
        return full(r);
    *out = (text_view){copy, (size_t)size};
    return AVO_OK;
}

static avo_status read_map(const reading *r, const proto_field *field, const seen_list *list,
                           unsigned depth, json_value *out) {
    const proto_field *keys = &field->message->fields[0], *values = &field->message->fields[1];
    *out = (json_value){.kind = JSON_OBJECT};
    out->object.members = arena_take_array(r->arena, list->count, sizeof(json_member));
    if (out->object.members == NULL)
        return full(r);
    for (seen *one = list->first; one != NULL; one = one->next) {
        json_value entry;
        seen alone = {one->field, NULL};
        AVO_TRY(
            read_message(r, field->message, &(seen_list){&alone, &alone, 1}, depth + 1, &entry));
        json_member *member = &out->object.members[out->object.count++];
        const json_value *key = json_find(&entry, "key"), *value = json_find(&entry, "value");
        if (key == NULL && keys->kind == PROTO_STRING)
            member->key = (text_view){"", 0};
        else
            AVO_TRY(key_text(r, key, &member->key));
        if (value != NULL)
            member->value = *value;
        else if (values->kind == PROTO_MESSAGE)
            member->value = (json_value){.kind = JSON_OBJECT};
        else
            member->value = tree_integer(0);
    }
    return AVO_OK;
}

static avo_status read_field(const reading *r, const proto_message *message,
                             const proto_field *field, const seen_list *list, unsigned depth,
                             json_value *out) {
    if (field->kind == PROTO_MAP)
        return read_map(r, field, list, depth, out);
    if (field->repeated)
        return read_repeated(r, message, field, list, depth, out);
    if (field->kind == PROTO_MESSAGE)
        return read_message(r, field->message, list, depth + 1, out);
    return read_value(r, message, field, &list->last->field, out);
}

/* All occurrences of one message together. */
static avo_status read_message(const reading *r, const proto_message *message,
                               const seen_list *parts, unsigned depth, json_value *out) {
    *out = (json_value){.kind = JSON_OBJECT};
    if (depth > PROTO_DEPTH_MAX)
        return status_fail(r->error, AVO_ERROR_FORMAT, "%s: messages are nested too deeply",
                           message->name);
    if (message->count == 0 && !message->strict)
        return AVO_OK;
    seen_list *lists = arena_take_array(r->arena, message->count + 1, sizeof(*lists));
    if (lists == NULL)
        return full(r);
    for (const seen *one = parts->first; one != NULL; one = one->next) {
        if (one->field.type != WIRE_BYTES)
            return status_fail(r->error, AVO_ERROR_FORMAT, "%s: the value has another wire type",
                               message->name);
        AVO_TRY(collect(r, message, one->field.bytes, lists));
    }
    size_t count = 0;
    for (size_t i = 0; i < message->count; i++)
        count += lists[i].count > 0;
    if (count == 0)
        return AVO_OK;
    out->object.members = arena_take_array(r->arena, count, sizeof(json_member));
    if (out->object.members == NULL)
        return full(r);
    for (size_t i = 0; i < message->count; i++) {
        const proto_field *field = &message->fields[i];
        if (lists[i].count == 0)
            continue;
        json_member *member = &out->object.members[out->object.count];
        member->key = text_from(field->member);
        AVO_TRY(read_field(r, message, field, &lists[i], depth, &member->value));
        /* Packed numbers may be none, which is as if they were absent. */
        out->object.count +=
            member->value.kind != JSON_ARRAY || member->value.array.count > 0 || !field->repeated;
    }
    return AVO_OK;
}

avo_status proto_read(const proto_message *message, bytes_view bytes, arena *arena, json_value *out,
                      avo_error *error) {
    reading r = {arena, error};
    seen whole = {{.type = WIRE_BYTES, .bytes = bytes}, NULL};
    return read_message(&r, message, &(seen_list){&whole, &whole, 1}, 0, out);
}

/* ---- Writing ---- */

typedef struct writing {
    buffer *out;
    avo_error *error;
} writing;

static avo_status unfit(const writing *w, const proto_field *field, const json_value *value) {
    return status_fail(w->error, AVO_ERROR_FORMAT, "%s: found %s, which the field cannot hold",
                       field->name, json_kind_name(value->kind));
}

static avo_status write_message(const writing *w, const proto_message *message,
                                const json_value *object);

/* What begins at `begin` is the content of a field: its length comes in front. */
static avo_status close_length(buffer *out, size_t begin) {
    size_t size = out->size - begin;
    uint8_t length[10];
    buffer text = {.data = (char *)length, .capacity = sizeof(length), .limit = sizeof(length)};
    AVO_TRY(wire_write_varint(&text, size));
    AVO_TRY(buffer_reserve(out, text.size));
    memmove(out->data + begin + text.size, out->data + begin, size);
    memcpy(out->data + begin, length, text.size);
    out->size += text.size;
    return AVO_OK;
}

static bool number_of(const json_value *value, double *number) {
    *number = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    if (value->kind == JSON_NULL)
        *number = NAN;
    return value->kind == JSON_INTEGER || value->kind == JSON_NUMBER || value->kind == JSON_NULL;
}

/* A number without its tag. */
static avo_status write_scalar(const writing *w, const proto_field *field,
                               const json_value *value) {
    double number = 0.0;
    if (field->kind == PROTO_BOOL && value->kind == JSON_BOOLEAN)
        return wire_write_varint(w->out, value->boolean);
    if (field->kind != PROTO_DOUBLE && field->kind != PROTO_FLOAT) {
        bool whole = value->kind == JSON_INTEGER && field->kind != PROTO_BOOL;
        bool fits =
            whole &&
            (field->kind == PROTO_INT64 || (field->kind == PROTO_UINT64 && value->integer >= 0) ||
             (field->kind == PROTO_UINT32 && value->integer >= 0 && value->integer <= UINT32_MAX) ||
             (field->kind == PROTO_INT32 && value->integer >= INT32_MIN &&
              value->integer <= INT32_MAX));
        return fits ? wire_write_varint(w->out, (uint64_t)value->integer) : unfit(w, field, value);
    }
    if (!number_of(value, &number))
        return unfit(w, field, value);
    float single = (float)number;
    return field->kind == PROTO_DOUBLE ? buffer_append(w->out, &number, sizeof(number))
                                       : buffer_append(w->out, &single, sizeof(single));
}

static avo_status write_text(const writing *w, const proto_field *field, const json_value *value) {
    char text[24];
    if (field->kind == PROTO_JSON) {
        AVO_TRY(wire_write_tag(w->out, field->number, WIRE_BYTES));
        size_t begin = w->out->size;
        AVO_TRY(json_write_value(w->out, value));
        return close_length(w->out, begin);
    }
    if (value->kind == JSON_INTEGER) {
        snprintf(text, sizeof(text), "%" PRId64, value->integer);
        return wire_write_bytes(w->out, field->number, text_from(text));
    }
    return value->kind == JSON_STRING ? wire_write_bytes(w->out, field->number, value->string)
                                      : unfit(w, field, value);
}

static avo_status write_one(const writing *w, const proto_field *field, const json_value *value) {
    if (field->kind == PROTO_MESSAGE) {
        AVO_TRY(wire_write_tag(w->out, field->number, WIRE_BYTES));
        size_t begin = w->out->size;
        AVO_TRY(write_message(w, field->message, value));
        return close_length(w->out, begin);
    }
    if (wire_of(field->kind) == WIRE_BYTES)
        return write_text(w, field, value);
    AVO_TRY(wire_write_tag(w->out, field->number, wire_of(field->kind)));
    return write_scalar(w, field, value);
}

static avo_status write_map(const writing *w, const proto_field *field, const json_value *value) {
    if (value->kind != JSON_OBJECT)
        return unfit(w, field, value);
    for (size_t i = 0; i < value->object.count; i++) {
        const json_member *member = &value->object.members[i];
        json_value key = tree_text(member->key);
        if (field->message->fields[0].kind != PROTO_STRING) {
            char text[24], *end = NULL;
            snprintf(text, sizeof(text), "%.*s",
                     (int)(member->key.size < 23 ? member->key.size : 23), member->key.data);
            key = tree_integer(strtoll(text, &end, 10));
            if (end == text || *end != '\0')
                return unfit(w, field, &key);
        }
        AVO_TRY(wire_write_tag(w->out, field->number, WIRE_BYTES));
        size_t begin = w->out->size;
        AVO_TRY(write_one(w, &field->message->fields[0], &key));
        AVO_TRY(write_one(w, &field->message->fields[1], &member->value));
        AVO_TRY(close_length(w->out, begin));
    }
    return AVO_OK;
}

static avo_status write_repeated(const writing *w, const proto_field *field,
                                 const json_value *value) {
    if (field->kind == PROTO_FLOAT && value->kind == JSON_STRING &&
        value->string.size % sizeof(float) == 0)
        return wire_write_bytes(w->out, field->number, value->string);
    if (value->kind != JSON_ARRAY)
        return unfit(w, field, value);
    if (value->array.count == 0)
        return AVO_OK;
    if (wire_of(field->kind) == WIRE_BYTES) {
        for (size_t i = 0; i < value->array.count; i++)
            AVO_TRY(write_one(w, field, &value->array.items[i]));
        return AVO_OK;
    }
    AVO_TRY(wire_write_tag(w->out, field->number, WIRE_BYTES));
    size_t begin = w->out->size;
    for (size_t i = 0; i < value->array.count; i++)
        AVO_TRY(write_scalar(w, field, &value->array.items[i]));
    return close_length(w->out, begin);
}

static avo_status write_message(const writing *w, const proto_message *message,
                                const json_value *object) {
    if (object->kind != JSON_OBJECT)
        return status_fail(w->error, AVO_ERROR_FORMAT, "%s: found %s, expected an object",
                           message->name, json_kind_name(object->kind));
    for (size_t i = 0; i < message->count; i++) {
        const proto_field *field = &message->fields[i];
        const json_value *value = json_find(object, field->member);
        if (value == NULL || value->kind == JSON_NULL)
            continue;
        if (field->kind == PROTO_MAP)
            AVO_TRY(write_map(w, field, value));
        else if (field->repeated)
            AVO_TRY(write_repeated(w, field, value));
        else
            AVO_TRY(write_one(w, field, value));
    }
    return AVO_OK;
}

avo_status proto_write(const proto_message *message, const json_value *object, buffer *out,
                       avo_error *error) {
    writing w = {out, error};
    return write_message(&w, message, object);
}
