/* Protected blocks: all in one range of addresses, so that one call opens or closes all of them. A
 * call for each block is most of what a test on this device costs. The kernel is asked for huge
 * pages, because a call changes the table entry of every page: with pages of 4 KiB that took half
 * of the time of some tests. */
#include "device/test/wall.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)
/* Addresses alone: memory is taken by the pages that are written. */
#define RANGE_BYTES ((size_t)32 << 30)

static uint8_t *aligned(uint8_t *at, size_t alignment) {
    return (uint8_t *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
}

/* Whole huge pages: one that is protected in part is split. */
static void protect(const wall *wall, bool open) {
    size_t bytes = (size_t)(aligned(wall->end, HUGE_BYTES) - wall->range);
    int failed =
        bytes > 0 && mprotect(wall->range, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0;
    assert(!failed);
    (void)failed;
}

/* The first gap that is large enough, as the place of the new block in the order of addresses. */
static uint32_t find_gap(const wall *wall, size_t bytes, size_t alignment, uint8_t **at) {
    uint8_t *from = wall->range;
    for (uint32_t place = 0;; place++) {
        const wall_block *next = place < wall->count ? &wall->blocks[place] : NULL;
        const uint8_t *limit = next != NULL ? next->at : wall->range + RANGE_BYTES;
        *at = aligned(from, alignment);
        if (*at <= limit && bytes <= (size_t)(limit - *at))
            return place;
        if (next == NULL)
            return UINT32_MAX;
        from = next->at + next->bytes;
    }
}

static bool reserve(wall *wall) {
    if (wall->range != NULL)
        return true;
    uint8_t *mapped = mmap(NULL, RANGE_BYTES + HUGE_BYTES, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return false;
    wall->mapped = mapped;
    wall->range = wall->end = aligned(mapped, HUGE_BYTES);
    (void)madvise(wall->range, RANGE_BYTES, MADV_HUGEPAGE); /* without it all works, slowly */
    return true;
}

static void *take(wall *wall, size_t bytes, size_t alignment) {
    uint8_t *at;
    if (!reserve(wall) || wall->count == WALL_BLOCKS_MAX)
        return NULL;
    uint32_t place = find_gap(wall, bytes, alignment, &at);
    if (place == UINT32_MAX)
        return NULL;
    for (uint32_t i = wall->count; i > place; i--)
        wall->blocks[i] = wall->blocks[i - 1];
    wall->blocks[place] = (wall_block){at, bytes};
    wall->count++;
    if (at + bytes > wall->end) {
        wall->end = at + bytes;
        protect(wall, wall->open > 0);
    }
    return at;
}

static void *allocate(void *context, size_t size, size_t alignment) {
    wall *wall = context;
    if (size > RANGE_BYTES || alignment > RANGE_BYTES)
        return NULL;
    size_t bytes = (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    pthread_mutex_lock(&wall->mutex);
    void *at = take(wall, bytes, alignment > PAGE_BYTES ? alignment : PAGE_BYTES);
    pthread_mutex_unlock(&wall->mutex);
    return at;
}

static void release(void *context, void *memory, size_t size) {
    (void)size;
    wall *wall = context;
    pthread_mutex_lock(&wall->mutex);
    uint32_t place = 0;
    while (place < wall->count && wall->blocks[place].at != memory)
        place++;
    assert(place < wall->count);
    /* What is in it stays: giving a part of a huge page back to the system would split it. */
    wall->count--;
    for (uint32_t i = place; i < wall->count; i++)
        wall->blocks[i] = wall->blocks[i + 1];
    pthread_mutex_unlock(&wall->mutex);
}

void wall_init(wall *wall) {
    wall->allocator = (avo_allocator){wall, allocate, release};
    wall->open = wall->count = 0;
    wall->range = wall->end = wall->mapped = NULL;
    pthread_mutex_init(&wall->mutex, NULL);
}

void wall_end(wall *wall) {
    assert(wall->count == 0 && wall->open == 0);
    if (wall->range != NULL)
        munmap(wall->mapped, RANGE_BYTES + HUGE_BYTES);
    pthread_mutex_destroy(&wall->mutex);
}

void wall_open(wall *wall) {
    pthread_mutex_lock(&wall->mutex);
    if (wall->open++ == 0)
        protect(wall, true);
    pthread_mutex_unlock(&wall->mutex);
}

void wall_close(wall *wall) {
    pthread_mutex_lock(&wall->mutex);
    if (--wall->open == 0)
        protect(wall, false);
    pthread_mutex_unlock(&wall->mutex);
}
