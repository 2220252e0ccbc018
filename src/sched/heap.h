/* A binary heap of numbers 0…n − 1 that knows where each of them stands, so that any of them can be
 * moved or taken out. O(log n). The order is the owner's: whoever changes what it depends on calls
 * heap_put for the number that changed. Memory is the owner's, too. */
#ifndef AVO_SCHED_HEAP_H
#define AVO_SCHED_HEAP_H

#include "base/arena.h"

#define HEAP_OUT UINT32_MAX /* the place of what is not in the heap */

typedef bool (*heap_order)(const void *context, uint32_t a, uint32_t b); /* a before b */

typedef struct heap {
    uint32_t *item;  /* [capacity]: item[0] comes first */
    uint32_t *place; /* [capacity]: where a number stands, or HEAP_OUT */
    uint32_t count, capacity;
    heap_order before;
    const void *context;
} heap;

/* False: no memory. */
bool heap_init(heap *heap, arena *arena, uint32_t capacity, heap_order before, const void *context);
/* Puts it where it belongs, whether it is in already or not. */
void heap_put(heap *heap, uint32_t number);
/* Nothing happens where it is not in. */
void heap_remove(heap *heap, uint32_t number);

static inline bool heap_has(const heap *heap, uint32_t number) {
    return heap->place[number] != HEAP_OUT;
}
static inline uint32_t heap_first(const heap *heap) {
    return heap->count > 0 ? heap->item[0] : HEAP_OUT;
}
/* NULL, or what is wrong. O(n). */
const char *heap_check(const heap *heap);

#endif
