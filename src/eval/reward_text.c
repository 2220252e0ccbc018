/* Rewards that look at one completion: its text, its length, its last number. */
#include "eval/reward_int.h"

#include "base/utf8.h"

#include <string.h>

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool is_same(const char *a, const char *b, size_t bytes, bool ignore_case) {
    if (!ignore_case)
        return memcmp(a, b, bytes) == 0;
    for (size_t i = 0; i < bytes; i++)
        if (lower(a[i]) != lower(b[i]))
            return false;
    return true;
}

bool reward_text_contains(text_view text, text_view part, bool ignore_case) {
    if (!ignore_case)
        return memmem(text.data, text.size, part.data, part.size) != NULL;
    for (size_t i = 0; i + part.size <= text.size; i++)
        if (is_same(text.data + i, part.data, part.size, true))
            return true;
    return false;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static text_view trim(text_view text) {
    while (text.size > 0 && is_space(text.data[0])) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && is_space(text.data[text.size - 1]))
        text.size--;
    return text;
}

/* ---- Numbers ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_part(char c) {
    return is_digit(c) || c == '$' || c == '.' || c == ',';
}

/* Without ',' and '$', and without a point at the end. */
static bool read_number(text_view text, double *number) {
    char plain[64], *end;
    size_t bytes = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == ',' || text.data[i] == '$')
            continue;
        if (bytes == sizeof(plain) - 1)
            return false;
        plain[bytes++] = text.data[i];
    }
    if (bytes > 0 && plain[bytes - 1] == '.')
        bytes--;
    plain[bytes] = '\0';
    *number = number_from_text(plain, &end);
    return bytes > 0 && end == plain + bytes;
}

/* lm-eval's expression (-?[$0-9.,]{2,})|(-?[0-9]+), its last match that contains a digit. */
bool reward_last_number(text_view text, double *number) {
    text_view last = {0};
    for (size_t at = 0; at < text.size;) {
        size_t begin = at, end = at + (text.data[at] == '-');
        bool digits = false;
        for (; end < text.size && is_part(text.data[end]); end++)
            digits = digits || is_digit(text.data[end]);
        if (digits)
            last = (text_view){text.data + begin, end - begin};
        at = end > begin ? end : begin + 1;
    }
    return last.size > 0 && read_number(last, number);
}

/* ---- Fields ---- */

/* The text of a string, or a number or boolean as JSON writes it into `room`. */
static avo_status field_text(const reward *reward, const json_value *value, buffer *room,
                             text_view *text, avo_error *error) {
    if (value != NULL && value->kind == JSON_STRING) {
        *text = value->string;
        return AVO_OK;
    }
    if (value == NULL || value->kind == JSON_NULL || value->kind == JSON_ARRAY ||
        value->kind == JSON_OBJECT)
        return status_fail(
            error, AVO_ERROR_ARGUMENT, "field \"%.*s\" is %s, must be a text or a number",
            TEXT_ARGUMENT(reward->field), value == NULL ? "missing" : json_kind_name(value->kind));
    room->size = 0;
    if (json_write_value(room, value) != AVO_OK)
        return status_no_memory(error, "a field", 0);
    *text = buffer_text(room);
    return AVO_OK;
}

static avo_status match_field(const reward *reward, const json_value *value, text_view completion,
                              buffer *room, float *score, avo_error *error) {
    text_view wanted;
    AVO_TRY(field_text(reward, value, room, &wanted, error));
    if (reward->kind == REWARD_EXACT_MATCH) {
        text_view a = trim(completion), b = trim(wanted);
        if (a.size == b.size && is_same(a.data, b.data, a.size, reward->ignore_case))
            *score = 1.0f;
        return AVO_OK;
    }
    double found, right;
    if (!reward_last_number(wanted, &right))
        return status_fail(error, AVO_ERROR_ARGUMENT, "field \"%.*s\" contains no number: \"%.*s\"",
                           TEXT_ARGUMENT(reward->field), TEXT_ARGUMENT(wanted));
    if (reward_last_number(completion, &found) && found == right)
        *score = 1.0f;
    return AVO_OK;
}

/* An array has several right answers. */
static avo_status score_field(const reward *reward, const reward_item *item, text_view completion,
                              float *score, avo_error *error) {
    const json_value *value = json_find_text(item->fields, reward->field);
    buffer room;
    buffer_init(&room, reward->options.allocator, 4096);
    avo_status status = AVO_OK;
    if (value != NULL && value->kind == JSON_ARRAY)
        for (size_t i = 0; i < value->array.count && status == AVO_OK; i++)
            status = match_field(reward, &value->array.items[i], completion, &room, score, error);
    else
        status = match_field(reward, value, completion, &room, score, error);
    buffer_free(&room);
    return status;
}

static uint64_t count_characters(text_view text) {
    uint64_t count = 0;
    for (size_t at = 0; at < text.size; count++) {
        uint32_t code_point;
        size_t bytes = utf8_decode(text.data + at, text.size - at, &code_point);
        at += bytes > 0 ? bytes : utf8_invalid_length(text.data + at, text.size - at);
    }
    return count;
}

avo_status reward_score_text(const reward *reward, const reward_item *item, float *score,
                             avo_error *error) {
    text_view completion = text_from(item->completion);
    bool good = false;
    uint64_t length = 0;
    uint32_t steps_left = REWARD_PATTERN_STEPS;
    *score = 0.0f;
    switch (reward->kind) {
    case REWARD_EXACT_MATCH:
    case REWARD_NUMBER:
        return score_field(reward, item, completion, score, error);
    case REWARD_CONTAINS:
        good = reward_text_contains(completion, reward->text, reward->ignore_case);
        break;
    case REWARD_LENGTH:
        if (reward->tokens)
            AVO_TRY(reward->options.count_tokens(reward->options.tokens_context, item->completion,
                                                 &length, error));
        else
            length = count_characters(completion);
        good = length >= reward->least && length <= reward->most;
        break;
    case REWARD_REGEX:
        AVO_TRY(pattern_test(reward->pattern, completion, &steps_left, &good, error));
        break;
    case REWARD_JSON_SCHEMA:
        AVO_TRY(reward_schema_check(reward->schema, completion, &good, error));
        break;
    default:
        break;
    }
    *score = good ? 1.0f : 0.0f;
    return AVO_OK;
}
