/* The bounded reader: all binary parsing goes through it. Little-endian. A read past the end
 * returns false and leaves the cursor where it was; nothing is ever read outside [data, data+size).
 */
#ifndef AVO_BASE_CURSOR_H
#define AVO_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that somebody else owns. */
typedef struct bytes_view {
    const uint8_t *data;
    size_t size;
} bytes_view;

/* Text that somebody else owns; not terminated, may contain anything. */
typedef struct text_view {
    const char *data;
    size_t size;
} text_view;

#define TEXT_LITERAL(literal) ((text_view){literal, sizeof(literal) - 1})
/* For printf's "%.*s", shortened so that a hostile name cannot fill the message. */
#define TEXT_ARGUMENT(view) (int)((view).size > 200 ? 200 : (view).size), (view).data

static inline text_view text_from(const char *terminated) {
    return (text_view){terminated, terminated == NULL ? 0 : strlen(terminated)};
}

static inline bool text_equal(text_view a, text_view b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool text_is(text_view a, const char *terminated) {
    return text_equal(a, text_from(terminated));
}

static inline bool text_starts(text_view text, text_view prefix) {
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}

/* Takes `prefix` off the front; false and nothing changed where it is not there. */
static inline bool text_take(text_view *text, const char *prefix) {
    text_view wanted = text_from(prefix);
    if (!text_starts(*text, wanted))
        return false;
    text->data += wanted.size;
    text->size -= wanted.size;
    return true;
}

/* Takes "12." off the front, as numbers stand in names of tensors: no sign, no leading zeros, at
 * most six digits. */
static inline bool text_take_number(text_view *text, uint32_t *number) {
    size_t at = 0;
    uint32_t value = 0;
    while (at < text->size && at < 6 && text->data[at] >= '0' && text->data[at] <= '9')
        value = value * 10 + (uint32_t)(text->data[at++] - '0');
    if (at == 0 || at >= text->size || text->data[at] != '.' || (at > 1 && text->data[0] == '0'))
        return false;
    text->data += at + 1;
    text->size -= at + 1;
    *number = value;
    return true;
}

static inline bool text_ends(text_view text, text_view suffix) {
    return text.size >= suffix.size &&
           (suffix.size == 0 ||
            memcmp(text.data + text.size - suffix.size, suffix.data, suffix.size) == 0);
}

typedef struct cursor {
    const uint8_t *data;
    size_t size;
    size_t at;
} cursor;

static inline cursor cursor_over(bytes_view bytes) {
    return (cursor){bytes.data, bytes.size, 0};
}

static inline size_t cursor_left(const cursor *cursor) {
    return cursor->size - cursor->at;
}

static inline bool cursor_take(cursor *cursor, size_t bytes, const uint8_t **data) {
    if (bytes > cursor_left(cursor))
        return false;
    *data = cursor->data + cursor->at;
    cursor->at += bytes;
    return true;
}

static inline bool cursor_skip(cursor *cursor, size_t bytes) {
    const uint8_t *ignored;
    return cursor_take(cursor, bytes, &ignored);
}

#define CURSOR_READ(name, type)                                                                    \
    static inline bool cursor_read_##name(cursor *cursor, type *value) {                           \
        const uint8_t *data;                                                                       \
        if (!cursor_take(cursor, sizeof(type), &data))                                             \
            return false;                                                                          \
        memcpy(value, data, sizeof(type));                                                         \
        return true;                                                                               \
    }
CURSOR_READ(u8, uint8_t)
CURSOR_READ(u16, uint16_t)
CURSOR_READ(u32, uint32_t)
CURSOR_READ(u64, uint64_t)
CURSOR_READ(i32, int32_t)
CURSOR_READ(i64, int64_t)
CURSOR_READ(f32, float)
CURSOR_READ(f64, double)
#undef CURSOR_READ

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read in place: little-endian");

#endif
