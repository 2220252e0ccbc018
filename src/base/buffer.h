/* A growing byte buffer with a maximum: output of templates, JSON and decoders. */
#ifndef AVO_BASE_BUFFER_H
#define AVO_BASE_BUFFER_H

#include "base/cursor.h"
#include "base/status.h"

typedef struct buffer {
    const avo_allocator *allocator;
    char *data; /* NULL while empty; not terminated unless buffer_terminate was called */
    size_t size;
    size_t capacity;
    size_t limit; /* size never exceeds this */
} buffer;

void buffer_init(buffer *buffer, const avo_allocator *allocator, size_t limit);
void buffer_free(buffer *buffer);

/* AVO_ERROR_LIMIT past the maximum, AVO_ERROR_MEMORY without memory; nothing is appended then.
 * These two have no text of their own: the caller knows what was growing. */
AVO_MUST_USE avo_status buffer_append(buffer *buffer, const void *data, size_t bytes);
AVO_MUST_USE avo_status buffer_append_text(buffer *buffer, const char *terminated);
AVO_MUST_USE avo_status buffer_format(buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes room for `bytes` more and returns where they go (the caller then raises size). */
AVO_MUST_USE avo_status buffer_reserve(buffer *buffer, size_t bytes);
/* A zero byte behind the text, counted neither in size nor against the limit. */
AVO_MUST_USE avo_status buffer_terminate(buffer *buffer);

static inline text_view buffer_text(const buffer *buffer) {
    return (text_view){buffer->data == NULL ? "" : buffer->data, buffer->size};
}

#endif
