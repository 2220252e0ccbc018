/* Protected blocks: whole memory maps behind a header of their own. */
#include "device/test/wall.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>

/* In a page of its own in front of the block, which is never protected. */
struct wall_block {
    wall_block *next, *previous;
    uint8_t *map;
    size_t map_bytes;
    size_t bytes; /* behind the header, whole pages */
};

#define PAGE_BYTES ((size_t)4096)

static void protect(const wall_block *block, bool open) {
    uint8_t *data = (uint8_t *)(uintptr_t)block + PAGE_BYTES;
    int failed = mprotect(data, block->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    assert(failed == 0);
    (void)failed;
}

static void *allocate(void *context, size_t size, size_t alignment) {
    wall *wall = context;
    size_t step = alignment > PAGE_BYTES ? alignment : PAGE_BYTES;
    if (size > SIZE_MAX / 2 || step > SIZE_MAX / 8)
        return NULL;
    size_t bytes = (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    size_t map_bytes = bytes + 2 * step;
    uint8_t *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    uint8_t *data = (uint8_t *)(((uintptr_t)map + PAGE_BYTES + step - 1) / step * step);
    wall_block *block = (wall_block *)(void *)(data - PAGE_BYTES);
    *block = (wall_block){.map = map, .map_bytes = map_bytes, .bytes = bytes};
    pthread_mutex_lock(&wall->mutex);
    block->next = wall->blocks;
    if (wall->blocks != NULL)
        wall->blocks->previous = block;
    wall->blocks = block;
    protect(block, wall->open > 0);
    pthread_mutex_unlock(&wall->mutex);
    return data;
}

static void release(void *context, void *memory, size_t size) {
    (void)size;
    wall *wall = context;
    wall_block *block = (wall_block *)(void *)((uint8_t *)memory - PAGE_BYTES);
    pthread_mutex_lock(&wall->mutex);
    if (block->previous != NULL)
        block->previous->next = block->next;
    else
        wall->blocks = block->next;
    if (block->next != NULL)
        block->next->previous = block->previous;
    pthread_mutex_unlock(&wall->mutex);
    munmap(block->map, block->map_bytes);
}

void wall_init(wall *wall) {
    wall->allocator = (avo_allocator){wall, allocate, release};
    wall->open = 0;
    wall->blocks = NULL;
    pthread_mutex_init(&wall->mutex, NULL);
}

void wall_end(wall *wall) {
    assert(wall->blocks == NULL && wall->open == 0);
    pthread_mutex_destroy(&wall->mutex);
}

static void protect_all(const wall *wall, bool open) {
    for (const wall_block *block = wall->blocks; block != NULL; block = block->next)
        protect(block, open);
}

void wall_open(wall *wall) {
    pthread_mutex_lock(&wall->mutex);
    if (wall->open++ == 0)
        protect_all(wall, true);
    pthread_mutex_unlock(&wall->mutex);
}

void wall_close(wall *wall) {
    pthread_mutex_lock(&wall->mutex);
    if (--wall->open == 0)
        protect_all(wall, false);
    pthread_mutex_unlock(&wall->mutex);
}
