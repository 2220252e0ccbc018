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
            return chat_fail(fault, param, "invalid_value",
                             "%s: an empty string would end every answer; leave it out", param);
        texts[kept] = arena_copy_text(arena, text.data, text.size);
        if (texts[kept++] == NULL)
            return chat_fail_memory(fault);
    }
    *stops = texts;
    *count = kept;
    return true;
}

/* The id that a key of logit_bias is. */
static bool read_bias_token(text_view key, uint32_t vocabulary, int32_t *token) {
    uint64_t id = 0;
    if (key.size == 0 || key.size > 10)
        return false;
    for (size_t i = 0; i < key.size; i++) {
        if (key.data[i] < '0' || key.data[i] > '9')
            return false;
        id = id * 10 + (uint64_t)(key.data[i] - '0');
    }
    *token = (int32_t)id;
    return id < vocabulary;
}

bool chat_bias_read(const json_value *value, uint32_t vocabulary, arena *arena,
                    avo_sampling *sampling, chat_fault *fault) {
    if (value->kind != JSON_OBJECT)
        return chat_fail_kind(fault, "logit_bias", "an object", value);
    size_t count = value->object.count;
    if (count > CHAT_BIAS_MAX)
        return chat_fail(fault, "logit_bias", "invalid_value",
                         "logit_bias has %zu tokens, must have at most %d", count, CHAT_BIAS_MAX);
    avo_logit_bias *bias = arena_take_array(arena, count + 1, sizeof(*bias));
    if (bias == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < count; i++) {
        const json_member *member = &value->object.members[i];
        double added = 0.0;
        if (!read_bias_token(member->key, vocabulary, &bias[i].token))
            return chat_fail(fault, "logit_bias", "invalid_value",
                             "logit_bias: \"%.*s\" is not a token id (0 to %u)",
                             TEXT_ARGUMENT(member->key), vocabulary - 1);
        if (!chat_number_read(&member->value, "logit_bias", -1e9, 1e9, &added, fault))
            return false;
        bias[i].bias = added <= CHAT_BIAS_FORBIDS ? -INFINITY : (float)added;
    }
    sampling->bias = bias;
    sampling->bias_count = count;
    return true;
}

bool chat_logprobs_read(const json_value *logprobs, bool *wanted, avo_sampling *sampling,
                        chat_fault *fault) {
    int64_t count = 0;
    *wanted = logprobs != NULL;
    if (logprobs != NULL && logprobs->kind == JSON_BOOLEAN)
        *wanted = logprobs->boolean;
    else if (logprobs != NULL && logprobs->kind != JSON_INTEGER && logprobs->kind != JSON_NUMBER)
        return chat_fail_kind(fault, "logprobs", "true, false or an integer", logprobs);
    else if (logprobs != NULL) {
        if (!chat_integer_read(logprobs, "logprobs", 0, AVO_TOP_LOGPROBS_MAX, &count, fault))
            return false;
        sampling->top_logprobs = (uint32_t)count;
    }
    return *wanted || sampling->top_logprobs == 0 ||
           chat_fail(fault, "top_logprobs", "invalid_value", "top_logprobs needs logprobs: true");
}

bool chat_repetition_read(const json_value *value, avo_repetition *out, chat_fault *fault) {
    static const char *const names[] = {"max_pattern_size", "min_pattern_size", "min_count"};
    uint32_t *const places[] = {&out->pattern_max, &out->pattern_min, &out->count_min};
    if (value->kind != JSON_OBJECT)
        return chat_fail_kind(fault, "repetition_detection", "an object", value);
    if (!chat_keys_check(value, names, 3, fault))
        return false;
    *out = (avo_repetition){0};
    for (size_t i = 0; i < 3; i++) {
        const json_value *member = json_find(value, names[i]);
        int64_t number = 0;
        if (member == NULL || member->kind == JSON_NULL)
            continue;
        if (!chat_integer_read(member, names[i], 0, AVO_REPETITION_PATTERN_MAX, &number, fault))
            return false;
        *places[i] = (uint32_t)number;
    }
    if (out->pattern_max == 0 || (out->count_min >= 2 && out->pattern_min <= out->pattern_max))
        return true;
    return chat_fail(fault, "repetition_detection", "invalid_value",
                     "repetition_detection: min_count is %u and min_pattern_size %u, must be at "
                     "least 2 and at most max_pattern_size (%u)",
                     out->count_min, out->pattern_min, out->pattern_max);
}

bool chat_modalities_read(const json_value *list, chat_fault *fault) {
    if (list == NULL)
        return true;
    if (list->kind != JSON_ARRAY)
        return chat_fail_kind(fault, "modalities", "an array", list);
    for (size_t i = 0; i < list->array.count; i++)
        if (list->array.items[i].kind != JSON_STRING ||
            !text_is(list->array.items[i].string, "text"))
            return chat_fail(fault, "modalities", "unsupported_parameter",
                             "modalities: only text is supported");
    return true;
}

#define ADAPTER_FORM "\"name\" or {\"name\": …, \"weight\": …}"

bool chat_adapter_read(const json_value *value, text_view *name, double *weight,
                       chat_fault *fault) {
    if (value->kind == JSON_STRING)
        return chat_string_read(value, "adapter", CHAT_NAME_BYTES_MAX, name, fault);
    if (value->kind == JSON_ARRAY)
        return chat_fail(fault, "adapter", "invalid_type",
                         "adapter must be " ADAPTER_FORM
                         ", not an array; use \"adapters\" for several");
    if (value->kind != JSON_OBJECT)
        return chat_fail(fault, "adapter", "invalid_type",
                         "an adapter must be " ADAPTER_FORM ", not %s",
                         json_kind_name(value->kind));
    for (size_t i = 0; i < value->object.count; i++) {
        char shown[JSON_SHOWN_KEY_MAX];
        text_view key = value->object.members[i].key;
        if (!text_is(key, "name") && !text_is(key, "weight"))
            return chat_fail(fault, "adapter", "unknown_parameter",
                             "unknown key \"%s\" in an adapter, which must be " ADAPTER_FORM,
                             json_shown_key(key, shown));
    }
    const json_value *given = json_find(value, "name"), *factor = json_find(value, "weight");
    if (given == NULL)
        return chat_fail(fault, "adapter", "missing_required_parameter",
                         "an adapter has no \"name\"; it must be " ADAPTER_FORM);
    return chat_string_read(given, "name", CHAT_NAME_BYTES_MAX, name, fault) &&
           (factor == NULL || factor->kind == JSON_NULL ||
            chat_number_read(factor, "weight", CHAT_ADAPTER_WEIGHT, weight, fault));
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
