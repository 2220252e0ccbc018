/* The reader of traces: a bounded walk over lines, no number believed before it was looked at. */
#include "sched/trace.h"

#define HEADING "TIMESTAMP,ContextTokens,GeneratedTokens"

typedef struct reader {
    text_view left; /* of the line */
    text_view rest; /* behind it */
    const char *name;
    uint32_t line;
} reader;

/* False: there is no more. */
static bool line_next(reader *reader) {
    const char *data = reader->rest.data;
    size_t size = 0;
    if (reader->rest.size == 0)
        return false;
    while (size < reader->rest.size && data[size] != '\n')
        size++;
    reader->left = (text_view){data, size > 0 && data[size - 1] == '\r' ? size - 1 : size};
    size += size < reader->rest.size;
    reader->rest = (text_view){data + size, reader->rest.size - size};
    reader->line++;
    return true;
}

static bool take_letter(reader *reader, char letter) {
    if (reader->left.size == 0 || reader->left.data[0] != letter)
        return false;
    reader->left.data++;
    reader->left.size--;
    return true;
}

/* Between `least` and `most` digits. */
static bool take_digits(reader *reader, uint32_t least, uint32_t most, uint64_t *value) {
    uint32_t digits = 0;
    *value = 0;
    while (digits < most && digits < reader->left.size && reader->left.data[digits] >= '0' &&
           reader->left.data[digits] <= '9')
        *value = *value * 10 + (uint64_t)(reader->left.data[digits++] - '0');
    reader->left.data += digits;
    reader->left.size -= digits;
    return digits >= least;
}

/* Days since 1 March of the year 0: the year begins in March, so that the odd day is its last. */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day) {
    year -= month <= 2;
    month = month <= 2 ? month + 9 : month - 3;
    return 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
}

static bool take_time(reader *reader, uint64_t *nanoseconds) {
    uint64_t year, month, day, hour, minute, second, fraction = 0;
    if (!take_digits(reader, 4, 4, &year) || !take_letter(reader, '-') ||
        !take_digits(reader, 2, 2, &month) || !take_letter(reader, '-') ||
        !take_digits(reader, 2, 2, &day) ||
        !(take_letter(reader, ' ') || take_letter(reader, 'T')) ||
        !take_digits(reader, 2, 2, &hour) || !take_letter(reader, ':') ||
        !take_digits(reader, 2, 2, &minute) || !take_letter(reader, ':') ||
        !take_digits(reader, 2, 2, &second))
        return false;
    if (take_letter(reader, '.')) {
        size_t before = reader->left.size;
        if (!take_digits(reader, 1, 9, &fraction))
            return false;
        for (size_t digits = before - reader->left.size; digits < 9; digits++)
            fraction *= 10;
    }
    if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
        minute > 59 || second > 60)
        return false;
    uint64_t days = days_of(year, month, day) - days_of(1970, 1, 1);
    *nanoseconds =
        ((days * 24 + hour) * 60 + minute) * 60 * 1000000000ull + second * 1000000000ull + fraction;
    return true;
}

static avo_status take_tokens(reader *reader, const char *field, uint32_t *tokens,
                              avo_error *error) {
    uint64_t value = 0;
    if (!take_letter(reader, ',') || !take_digits(reader, 1, 12, &value) ||
        value > TRACE_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s:%u: %s must be a number up to %u",
                           reader->name, reader->line, field, TRACE_TOKENS_MAX);
    *tokens = (uint32_t)value;
    return AVO_OK;
}

static avo_status read_line(reader *reader, uint64_t *time, simulate_item *item, avo_error *error) {
    uint32_t prompt = 0, answer = 0;
    if (!take_time(reader, time))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s:%u: TIMESTAMP must be a time like 2023-11-16 18:17:03.97",
                           reader->name, reader->line);
    AVO_TRY(take_tokens(reader, "ContextTokens", &prompt, error));
    AVO_TRY(take_tokens(reader, "GeneratedTokens", &answer, error));
    if (reader->left.size > 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s:%u: unexpected text after the last field",
                           reader->name, reader->line);
    if (prompt == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s:%u: ContextTokens is 0, must be at least 1",
                           reader->name, reader->line);
    *item = (simulate_item){.prompt_tokens = prompt,
                            .new_tokens_max = answer > 0 ? answer : 1,
                            .answer_tokens = UINT32_MAX,
                            .priority = 8,
                            .weight = 1};
    return AVO_OK;
}

uint32_t trace_lines(text_view text) {
    uint32_t lines = 0;
    for (size_t i = 0; i < text.size && lines <= SIMULATE_REQUESTS_MAX; i++)
        lines += text.data[i] == '\n' || i + 1 == text.size;
    return lines > 0 ? lines - 1 : 0;
}

avo_status trace_parse(text_view text, const char *name, simulate_item *items, uint32_t capacity,
                       uint32_t *count, avo_error *error) {
    reader reader = {.rest = text, .name = name};
    uint64_t first = 0, last = 0;
    *count = 0;
    if (!line_next(&reader) || !text_is(reader.left, HEADING))
        return status_fail(error, AVO_ERROR_FORMAT, "%s:1: the header line must be %s", name,
                           HEADING);
    while (*count < capacity && line_next(&reader)) {
        uint64_t time = 0;
        if (reader.left.size == 0 && reader.rest.size == 0)
            break; /* an empty line at the end */
        AVO_TRY(read_line(&reader, &time, &items[*count], error));
        first = *count == 0 ? time : first;
        if (time < last)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s:%u: TIMESTAMP is before that of the previous line", name,
                               reader.line);
        last = time;
        items[(*count)++].arrival_ns = time - first + 1;
    }
    return AVO_OK;
}
