/* Ids and their text: encoding and decoding as the flags have it, lists of ids read and written. */
#include "cli/tokenize_int.h"

avo_status tokenize_encode(const tokenizer *tokenizer, const tokenize_options *options,
                           text_view text, id_list *ids, avo_error *error) {
    encode_options how = {.special = options->special, .add_begin = options->begin};
    ids->count = 0;
    return tokenizer_encode(tokenizer, text, &how, ids, error);
}

/* ---- Reading ids ---- */

static bool separates(char c) {
    return c == ' ' || c == ',' || c == '[' || c == ']' || c == '\n' || c == '\r' || c == '\t';
}

/* Behind the id of a printed line: blanks and the piece as a JSON string, to the end of the line.
 * Moves `at` there, or leaves it where there is no such piece. */
static void skip_piece(text_view text, size_t *at) {
    size_t scan = *at;
    while (scan < text.size && text.data[scan] == ' ')
        scan++;
    if (scan == *at || scan >= text.size || text.data[scan] != '"')
        return;
    for (scan++; scan < text.size && text.data[scan] != '"' && text.data[scan] != '\n'; scan++)
        if (text.data[scan] == '\\')
            scan++;
    if (scan >= text.size || text.data[scan] != '"')
        return;
    scan++;
    if (scan == text.size || text.data[scan] == '\n' || text.data[scan] == '\r')
        *at = scan;
}

static avo_status parse_ids(text_view text, id_list *ids, avo_error *error) {
    ids->count = 0;
    for (size_t at = 0; at < text.size;) {
        if (separates(text.data[at])) {
            at++;
            continue;
        }
        int64_t number = 0;
        size_t begin = at;
        while (at < text.size && text.data[at] >= '0' && text.data[at] <= '9' &&
               number <= INT32_MAX)
            number = number * 10 + (text.data[at++] - '0');
        bool ends = at == text.size || separates(text.data[at]);
        if (at == begin || number > INT32_MAX || !ends) {
            size_t shown = text.size - begin < 40 ? text.size - begin : 40;
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "not a token id: \"%.*s\"; write ids as 1,2,3", (int)shown,
                               text.data + begin);
        }
        if (id_list_append(ids, (int32_t)number) != AVO_OK)
            return status_no_memory(error, "ids", text.size);
        skip_piece(text, &at);
    }
    return AVO_OK;
}

avo_status tokenize_decode(const tokenizer *tokenizer, const tokenize_options *options,
                           text_view text, id_list *ids, buffer *out, avo_error *error) {
    AVO_TRY(parse_ids(text, ids, error));
    uint32_t vocabulary = tokenizer_describe(tokenizer).vocabulary;
    for (size_t i = 0; i < ids->count; i++) /* a typing error rather than a model's padding */
        if ((uint32_t)ids->ids[i] >= vocabulary)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "token %d is not in the vocabulary (%u tokens)", ids->ids[i],
                               vocabulary);
    out->size = 0;
    return tokenizer_decode(tokenizer, ids->ids, ids->count, options->special, out, error);
}

/* ---- Writing ids ---- */

#define ID_DIGITS_MAX 10 /* of INT32_MAX */

/* Ids are most of what `--jsonl` has to write, so no printf: the count of digits first, then the
 * digits in their places, from the last to the first. */
static char *write_id(char *at, uint32_t id) {
    size_t length = 1;
    for (uint64_t power = 10; id >= power; power *= 10)
        length++;
    for (char *digit = at + length; digit > at; id /= 10)
        *--digit = (char)('0' + id % 10);
    return at + length;
}

avo_status tokenize_write_ids(const id_list *ids, buffer *out) {
    size_t room = 0;
    if (__builtin_mul_overflow(ids->count, (size_t)ID_DIGITS_MAX + 1, &room) || room > SIZE_MAX - 2)
        return AVO_ERROR_LIMIT;
    AVO_TRY(buffer_reserve(out, room + 2));
    char *at = out->data + out->size;
    *at++ = '[';
    for (size_t i = 0; i < ids->count; i++) {
        if (i > 0)
            *at++ = ',';
        at = write_id(at, (uint32_t)ids->ids[i]);
    }
    *at++ = ']';
    out->size = (size_t)(at - out->data);
    return AVO_OK;
}
