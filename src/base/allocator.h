/* The allocator that callers may replace, and how modules use it. A NULL allocator is malloc. */
#ifndef AVO_BASE_ALLOCATOR_H
#define AVO_BASE_ALLOCATOR_H

#include <avocet.h>

#define ALLOCATOR_ALIGNMENT 64 /* a cache line, and the widest vector */

/* NULL when there is no memory or size is 0. The memory is not cleared. */
void *allocator_take(const avo_allocator *allocator, size_t size);
/* The same, cleared; false arithmetic (count × size wraps) gives NULL. */
void *allocator_take_array(const avo_allocator *allocator, size_t count, size_t size);
/* `size` as it was taken. NULL is ignored. */
void allocator_give(const avo_allocator *allocator, void *memory, size_t size);

/* For libraries whose release does not tell the size: it stands in front of the block. `context` is
 * an allocator; the arguments stand as PCRE2 wants them. */
void *allocator_take_sized(size_t size, void *context);
void allocator_give_sized(void *memory, void *context);

#endif
