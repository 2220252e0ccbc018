/* The KV pool: one preallocated block of pages and, in pages.h, the books of who holds which.
 * Nothing else knows where a page lies. */
#ifndef AVO_MEMORY_KV_H
#define AVO_MEMORY_KV_H

#include "base/allocator.h"
#include "base/region.h"
#include "base/status.h"
#include "device/layer.h"
#include "memory/pages.h"

typedef struct kv_pool kv_pool;

/* Bytes of `pages` pages for this model, without their books (pages_bytes); false when the product
 * wraps. */
bool kv_pool_bytes(const model_view *model, kv_type type, uint32_t pages, uint64_t *bytes);

/* `placement`: huge pages, locking, nodes. Huge pages matter: a layer reads one tile of every page,
 * and with small memory pages each would miss the TLB. */
AVO_MUST_USE avo_status kv_pool_open(const model_view *model, kv_type type, uint32_t pages,
                                     const region_options *placement,
                                     const avo_allocator *allocator, kv_pool **out,
                                     avo_error *error);
void kv_pool_close(kv_pool *pool);
const kv_view *kv_pool_view(const kv_pool *pool);
/* Whose pages are whose: pages_grow, pages_shrink, pages_fork, pages_find, pages_index on it. */
kv_pages *kv_pool_pages(kv_pool *pool);

/* Before a step writes positions from … length − 1 of a table that holds `from` computed ones:
 * pages_write, and the copy it asks for. AVO_ERROR_FULL without text when there are too few pages;
 * nothing has changed then. New pages are not cleared: they hold what their last owner left, or
 * nothing yet. No attention looks at a slot before its token is written, and memory is touched
 * first by the workers of the step that writes it. */
AVO_MUST_USE avo_status kv_pool_write(kv_pool *pool, kv_table *table, uint32_t from,
                                      uint32_t length);

/* Where a page lies: view->page_bytes bytes. */
uint8_t *kv_pool_page(const kv_pool *pool, uint32_t page);
/* The first `slots` positions of a page, and zeros for those behind, which may be another
 * timeline's: page_bytes bytes. */
void kv_pool_page_copy(const kv_pool *pool, uint32_t page, uint32_t slots, uint8_t *copy);

#endif
