/* The default allocator and the wrappers around a caller's own. */
#include "base/allocator.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

void *allocator_take(const avo_allocator *allocator, size_t size) {
    if (size == 0)
        return NULL;
    if (allocator != NULL)
        return allocator->allocate(allocator->context, size, ALLOCATOR_ALIGNMENT);
    if (size > PTRDIFF_MAX)
        return NULL;
    /* Exactly this size, so that a sanitizer sees the first byte too far. */
    void *memory = NULL;
    return posix_memalign(&memory, ALLOCATOR_ALIGNMENT, size) == 0 ? memory : NULL;
}

void *allocator_take_array(const avo_allocator *allocator, size_t count, size_t size) {
    size_t bytes;
    if (!size_multiply(count, size, &bytes))
        return NULL;
    void *memory = allocator_take(allocator, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

void allocator_give(const avo_allocator *allocator, void *memory, size_t size) {
    if (memory == NULL)
        return;
    if (allocator != NULL)
        allocator->release(allocator->context, memory, size);
    else
        free(memory);
}

typedef struct sized_head {
    size_t bytes;
    uint8_t pad[ALLOCATOR_ALIGNMENT - sizeof(size_t)];
} sized_head;

void *allocator_take_sized(size_t size, void *context) {
    if (size > SIZE_MAX - sizeof(sized_head))
        return NULL;
    sized_head *head = allocator_take(context, size + sizeof(sized_head));
    if (head == NULL)
        return NULL;
    head->bytes = size + sizeof(sized_head);
    return head + 1;
}

void allocator_give_sized(void *memory, void *context) {
    if (memory == NULL)
        return;
    sized_head *head = (sized_head *)memory - 1;
    allocator_give(context, head, head->bytes);
}
