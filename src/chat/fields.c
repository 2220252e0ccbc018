/* Values of fields, by their rows of the table. */
#include "chat/fields.h"

/* What a client may send although it does not want it. */
static bool asks_nothing(const json_value *value, double neutral) {
    switch (value->kind) {
    case JSON_BOOLEAN:
        return value->boolean == (neutral == 1.0);
    case JSON_INTEGER:
        return (double)value->integer == neutral;
    case JSON_NUMBER:
        return value->number == neutral;
    case JSON_STRING:
        return value->string.size == 0 || text_is(value->string, "disabled") ||
               text_is(value->string, "none");
    case JSON_ARRAY:
        return value->array.count == 0;
    case JSON_OBJECT:
        return value->object.count == 0;
    default:
        return value->kind == JSON_NULL;
    }
}

static bool read_whole(const chat_field *field, const json_value *value, void *at,
                       chat_fault *fault) {
    bool any = field->minimum <= -9.2e18; /* of an int64 */
    int64_t integer = 0;
    if (!chat_integer_read(value, field->name, any ? INT64_MIN + 1 : (int64_t)field->minimum,
                           any ? INT64_MAX : (int64_t)field->maximum, &integer, fault))
        return false;
    if (field->kind == FIELD_U32)
        *(uint32_t *)at = integer < 0 ? 0 : (uint32_t)integer;
    else if (integer != -1)
        *(uint64_t *)at = (uint64_t)integer;
    return true;
}

static bool read_number(const chat_field *field, const json_value *value, void *at,
                        chat_fault *fault) {
    double number = 0.0;
    if (!chat_number_read(value, field->name, field->minimum, field->maximum, &number, fault))
        return false;
    if (field->kind == FIELD_FLOAT)
        *(float *)at = (float)number;
    else
        *(double *)at = field->kind == FIELD_SECONDS ? number : number * 1e-3;
    return true;
}

static bool read_string(const chat_field *field, const json_value *value, void *at, arena *arena,
                        chat_fault *fault) {
    text_view text;
    if (!chat_string_read(value, field->name, (size_t)field->maximum, &text, fault))
        return false;
    const char *copy = arena_copy_text(arena, text.data, text.size);
    *(const char **)at = copy;
    return copy != NULL || chat_fail_memory(fault);
}

bool chat_field_read(const chat_field *field, const json_value *value, void *base, arena *arena,
                     chat_fault *fault) {
    void *at = (char *)base + field->offset;
    switch (field->kind) {
    case FIELD_BOOLEAN:
        return chat_boolean_read(value, field->name, at, fault);
    case FIELD_U32:
    case FIELD_SEED:
        return read_whole(field, value, at, fault);
    case FIELD_FLOAT:
    case FIELD_SECONDS:
    case FIELD_MILLISECONDS:
        return read_number(field, value, at, fault);
    case FIELD_STRING:
        return read_string(field, value, at, arena, fault);
    case FIELD_VALUE:
    case FIELD_IGNORED:
        return true;
    case FIELD_REFUSED:
        break;
    }
    return asks_nothing(value, field->minimum) ||
           chat_fail(fault, field->name, "unsupported_parameter", "%s is not supported: %s",
                     field->name, field->text);
}
