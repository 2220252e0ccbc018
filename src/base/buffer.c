/* The growing buffer. */
#include "base/buffer.h"

#include "base/allocator.h"
#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buffer_init(buffer *buffer, const avo_allocator *allocator, size_t limit) {
    *buffer = (struct buffer){.allocator = allocator, .limit = limit};
}

void buffer_free(buffer *buffer) {
    allocator_give(buffer->allocator, buffer->data, buffer->capacity);
    buffer->data = NULL;
    buffer->size = 0;
    buffer->capacity = 0;
}

/* `end` is room for a terminator, which the limit does not count. */
static avo_status buffer_grow(buffer *buffer, size_t bytes, size_t end) {
    size_t needed;
    if (!size_add(buffer->size, bytes, &needed) || needed > buffer->limit)
        return AVO_ERROR_LIMIT;
    if (!size_add(needed, end, &needed))
        return AVO_ERROR_LIMIT;
    if (needed <= buffer->capacity)
        return AVO_OK;
    size_t doubled;
    if (!size_multiply(buffer->capacity, 2, &doubled))
        doubled = needed;
    size_t capacity = size_max(size_min(size_max(doubled, 64), buffer->limit), needed);
    char *data = allocator_take(buffer->allocator, capacity);
    if (data == NULL)
        return AVO_ERROR_MEMORY;
    if (buffer->size > 0)
        memcpy(data, buffer->data, buffer->size);
    allocator_give(buffer->allocator, buffer->data, buffer->capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return AVO_OK;
}

avo_status buffer_reserve(buffer *buffer, size_t bytes) {
    return buffer_grow(buffer, bytes, 0);
}

avo_status buffer_append(buffer *buffer, const void *data, size_t bytes) {
    if (bytes == 0)
        return AVO_OK;
    AVO_TRY(buffer_reserve(buffer, bytes));
    memcpy(buffer->data + buffer->size, data, bytes);
    buffer->size += bytes;
    return AVO_OK;
}

avo_status buffer_append_text(buffer *buffer, const char *terminated) {
    return buffer_append(buffer, terminated, strlen(terminated));
}

avo_status buffer_format(buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return AVO_ERROR_ARGUMENT;
    /* vsnprintf insists on a terminator: one byte more than is kept. */
    AVO_TRY(buffer_grow(buffer, (size_t)length, 1));
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->size += (size_t)length;
    return AVO_OK;
}

avo_status buffer_terminate(buffer *buffer) {
    AVO_TRY(buffer_grow(buffer, 0, 1));
    buffer->data[buffer->size] = '\0';
    return AVO_OK;
}
