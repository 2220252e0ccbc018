/* Bump allocation in growing blocks. */
#include "base/arena.h"

#include "base/checked.h"

#include <string.h>

#define ARENA_BLOCK_BYTES_MIN ((size_t)16 << 10)
#define ARENA_BLOCK_BYTES_MAX ((size_t)4 << 20)

/* Under AddressSanitizer what nobody has taken is poisoned, and items keep a distance: else a byte
 * too far would only meet the neighbour. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISON 1
#endif
#endif
#ifdef ARENA_POISON
#include <sanitizer/asan_interface.h>
#define ARENA_GAP_BYTES 16
#else
#define ARENA_GAP_BYTES                         0
#define ASAN_POISON_MEMORY_REGION(data, size)   ((void)(data), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#endif

struct arena_block {
    arena_block *next;
    size_t bytes; /* with this head */
    size_t used;
    size_t padding_; /* keeps the head a multiple of 16 */
};

void arena_init(arena *arena, const avo_allocator *allocator, size_t limit_bytes) {
    *arena = (struct arena){.allocator = allocator, .limit_bytes = limit_bytes};
}

void arena_free(arena *arena) {
    arena_block *block = arena->blocks;
    while (block != NULL) {
        arena_block *next = block->next;
        size_t bytes = block->bytes;
        ASAN_UNPOISON_MEMORY_REGION(block, bytes);
        allocator_give(arena->allocator, block, bytes);
        block = next;
    }
    arena->blocks = NULL;
    arena->used_bytes = 0;
}

void arena_reset(arena *arena) {
    arena_block *kept = arena->blocks; /* blocks grow, so the newest is the most useful */
    if (kept == NULL)
        return;
    arena->blocks = kept->next;
    arena_free(arena);
    kept->next = NULL;
    kept->used = sizeof(arena_block);
    ASAN_POISON_MEMORY_REGION(kept + 1, kept->bytes - sizeof(arena_block));
    arena->blocks = kept;
    arena->used_bytes = kept->bytes;
    arena->limit_hit = false;
}

static arena_block *arena_block_add(arena *arena, size_t payload) {
    size_t wanted = ARENA_BLOCK_BYTES_MIN;
    if (arena->blocks != NULL)
        wanted = size_min(arena->blocks->bytes * 2, ARENA_BLOCK_BYTES_MAX);
    size_t needed;
    if (!size_add(payload, sizeof(arena_block) + ALLOCATOR_ALIGNMENT, &needed))
        return NULL;
    size_t bytes = size_max(wanted, needed);
    size_t left = arena->limit_bytes - arena->used_bytes;
    if (bytes > left)
        bytes = needed; /* close to the limit: no more than is asked for */
    if (bytes > left) {
        arena->limit_hit = true;
        return NULL;
    }
    arena_block *block = allocator_take(arena->allocator, bytes);
    if (block == NULL)
        return NULL;
    *block = (arena_block){.next = arena->blocks, .bytes = bytes, .used = sizeof(arena_block)};
    ASAN_POISON_MEMORY_REGION(block + 1, bytes - sizeof(arena_block));
    arena->blocks = block;
    arena->used_bytes += bytes;
    return block;
}

void *arena_take(arena *arena, size_t size) {
    if (size == 0)
        return NULL;
    size_t alignment = size >= 1024 ? ALLOCATOR_ALIGNMENT : 16;
    arena_block *block = arena->blocks;
    size_t begin = 0;
    size_t end = 0;
    if (block == NULL || !size_round_up(block->used + ARENA_GAP_BYTES, alignment, &begin) ||
        !size_add(begin, size, &end) || end > block->bytes) {
        block = arena_block_add(arena, size);
        if (block == NULL)
            return NULL;
        begin = (block->used + ARENA_GAP_BYTES + alignment - 1) & ~(alignment - 1);
        end = begin + size;
    }
    block->used = end;
    void *memory = (char *)block + begin;
    ASAN_UNPOISON_MEMORY_REGION(memory, size);
    memset(memory, 0, size);
    return memory;
}

void *arena_take_array(arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (!size_multiply(count, size, &bytes))
        return NULL;
    return arena_take(arena, bytes);
}

char *arena_copy_text(arena *arena, const char *text, size_t bytes) {
    size_t with_end;
    if (!size_add(bytes, 1, &with_end))
        return NULL;
    char *copy = arena_take(arena, with_end);
    if (copy != NULL && bytes > 0)
        memcpy(copy, text, bytes);
    return copy;
}
