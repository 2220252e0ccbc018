/* Single values of a request: their types, ranges and names. HTTP and the public interface read
 * theirs here, so that both refuse the same with the same texts. */
#include "chat/chat_int.h"

#include "base/nearest.h"
#include "sample/sample.h"

#include <math.h>
#include <stdio.h>

bool chat_integer_read(const json_value *value, const char *param, int64_t minimum, int64_t maximum,
                       int64_t *out, chat_fault *fault) {
    int64_t integer = 0;
    if (value->kind == JSON_INTEGER)
        integer = value->integer;
    else if (value->kind == JSON_NUMBER && fabs(value->number) >= 9e15)
        return chat_fail(fault, param, "invalid_value", "%s: %g is out of range", param,
                         value->number);
    else if (value->kind == JSON_NUMBER && value->number == floor(value->number))
        integer = (int64_t)value->number;
    else
        return chat_fail_kind(fault, param, "an integer", value);
    if (integer < minimum || integer > maximum)
        return chat_fail(fault, param, "invalid_value", "%s is %lld, must be %lld to %lld", param,
                         (long long)integer, (long long)minimum, (long long)maximum);
    *out = integer;
    return true;
}

bool chat_number_read(const json_value *value, const char *param, double minimum, double maximum,
                      double *out, chat_fault *fault) {
    if (value->kind != JSON_INTEGER && value->kind != JSON_NUMBER)
        return chat_fail_kind(fault, param, "a number", value);
    double number = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    if (!(number >= minimum && number <= maximum))
        return chat_fail(fault, param, "invalid_value", "%s is %g, must be %g to %g", param, number,
                         minimum, maximum);
    *out = number;
    return true;
}

bool chat_boolean_read(const json_value *value, const char *param, bool *out, chat_fault *fault) {
    if (value->kind != JSON_BOOLEAN)
        return chat_fail_kind(fault, param, "true or false", value);
    *out = value->boolean;
    return true;
}

/* An id that is not plainly one; the text names the item, `param` the list. */
static bool read_id(const json_value *item, const char *param, size_t index, uint32_t vocabulary,
                    int64_t *id, chat_fault *fault) {
    char name[96];
    snprintf(name, sizeof(name), "%s[%zu]", param, index);
    if (chat_integer_read(item, name, 0, (int64_t)vocabulary - 1, id, fault))
        return true;
    snprintf(fault->param, sizeof(fault->param), "%s", param);
    return false;
}

bool chat_ids_read(const json_value *value, const char *param, uint32_t vocabulary, size_t maximum,
                   arena *arena, int32_t **ids, size_t *count, chat_fault *fault) {
    if (value->kind != JSON_ARRAY)
        return chat_fail_kind(fault, param, "an array", value);
    size_t length = value->array.count;
    if (length > maximum)
        return chat_fail(fault, param, "invalid_value", "%s has %zu tokens, must have at most %zu",
                         param, length, maximum);
    int32_t *own = arena_take_array(arena, length + 1, sizeof(*own));
    if (own == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < length; i++) {
        const json_value *item = &value->array.items[i];
        int64_t id = item->kind == JSON_INTEGER ? item->integer : -1;
        if ((id < 0 || id >= vocabulary) && !read_id(item, param, i, vocabulary, &id, fault))
            return false;
        own[i] = (int32_t)id;
    }
    *ids = own;
    *count = length;
    return true;
}

bool chat_stops_read(const json_value *value, const char *param, arena *arena, const char ***stops,
                     size_t *count, chat_fault *fault) {
    bool list = value->kind == JSON_ARRAY;
    size_t given = list ? value->array.count : 1, kept = 0;
    if (given > STOP_STRINGS_MAX)
        return chat_fail(fault, param, "invalid_value", "%s has %zu strings, must have at most %d",
                         param, given, STOP_STRINGS_MAX);
    const char **texts = arena_take_array(arena, given + 1, sizeof(*texts));
    if (texts == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < given; i++) {
        text_view text;
        if (!chat_string_read(list ? &value->array.items[i] : value, param, STOP_STRING_BYTES_MAX,
                              &text, fault))
            return false;
        if (text.size == 0)
            continue;
        texts[kept] = arena_copy_text(arena, text.data, text.size);
        if (texts[kept++] == NULL)
            return chat_fail_memory(fault);
    }
    *stops = texts;
    *count = kept;
    return true;
}

static bool key_known(text_view key, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text_is(key, names[i]))
            return true;
    return false;
}

bool chat_keys_check(const json_value *object, const char *const *names, size_t count,
                     chat_fault *fault) {
    for (size_t i = 0; i < object->object.count; i++) {
        text_view key = object->object.members[i].key;
        if (object->object.members[i].value.kind == JSON_NULL || key_known(key, names, count))
            continue;
        char wanted[JSON_SHOWN_KEY_MAX];
        json_shown_key(key, wanted);
        nearest nearest = {.wanted = wanted};
        for (size_t n = 0; n < count; n++)
            nearest_consider(&nearest, names[n]);
        return chat_fail(
            fault, wanted, "unknown_parameter", "unknown key \"%s\" in a request%s%s%s", wanted,
            nearest.best != NULL ? "; did you mean \"" : "",
            nearest.best != NULL ? nearest.best : "", nearest.best != NULL ? "\"?" : "");
    }
    return true;
}
