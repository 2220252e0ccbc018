/* The KV pool: pages of one preallocated block, a free list, page tables per session. Sharing and
 * eviction will come here; nothing else knows which page is whose. */
#ifndef AVO_MEMORY_KV_H
#define AVO_MEMORY_KV_H

#include "base/allocator.h"
#include "base/region.h"
#include "base/status.h"
#include "kernels/layer.h"

typedef struct kv_pool kv_pool;

/* Bytes of `pages` pages for this model; false when the product wraps. */
bool kv_pool_bytes(const model_view *model, kv_type type, uint32_t pages, uint64_t *bytes);

/* `placement`: huge pages, locking, nodes. Huge pages matter: a layer reads one tile of every page,
 * and with small memory pages each would miss the TLB. */
AVO_MUST_USE avo_status kv_pool_open(const model_view *model, kv_type type, uint32_t pages,
                                     const region_options *placement,
                                     const avo_allocator *allocator, kv_pool **out,
                                     avo_error *error);
void kv_pool_close(kv_pool *pool);
const kv_view *kv_pool_view(const kv_pool *pool);
uint32_t kv_pool_free_pages(const kv_pool *pool);

/* One session's pages, in order of position. */
typedef struct kv_table {
    uint32_t *pages; /* [capacity], owned by whoever made the table */
    uint32_t count;
    uint32_t capacity;
} kv_table;

/* Makes room for positions below `length`; AVO_ERROR_FULL without text when the pool or the table
 * is too small, and then nothing has changed. O(pages added). Pages are not cleared: they hold what
 * their last owner left, or nothing yet. No attention looks at a slot before its token is written,
 * and memory is touched first by the workers of the step that writes it. */
AVO_MUST_USE avo_status kv_table_grow(kv_pool *pool, kv_table *table, uint32_t length);
/* Gives back the pages past `length`. */
void kv_table_shrink(kv_pool *pool, kv_table *table, uint32_t length);

static inline uint32_t kv_pages_for(uint64_t tokens) {
    return (uint32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

#endif
