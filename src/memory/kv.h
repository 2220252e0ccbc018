/* The KV pool of an engine: one block of device memory cut into pages and, in pages.h, the books of
 * who holds which. Nothing else knows where a page is. */
#ifndef AVO_MEMORY_KV_H
#define AVO_MEMORY_KV_H

#include "device/device.h"
#include "memory/pages.h"

typedef struct kv_pool kv_pool;

/* Device memory of `pages` pages for this model, without their books (pages_bytes); false when the
 * product wraps. */
bool kv_pool_bytes(const device *device, const model_view *model, kv_type type, uint32_t pages,
                   uint64_t *bytes);

/* Huge pages matter here: a layer reads one tile of every page, and with small memory pages each
 * would miss the TLB. */
AVO_MUST_USE avo_status kv_pool_open(device *device, const model_view *model, kv_type type,
                                     uint32_t pages, kv_pool **out, avo_error *error);
/* With `host_pages` more in the host's memory, for cached pages that the device has no place for
 * (pages_host): they are copied there when their place is taken, and back when they are found. */
AVO_MUST_USE avo_status kv_pool_open_with_host(device *device, const model_view *model,
                                               kv_type type, uint32_t pages, uint32_t host_pages,
                                               kv_pool **out, avo_error *error);
/* Bytes of one page; false when they wrap. */
bool kv_page_bytes(const model_view *model, kv_type type, size_t *bytes);
void kv_pool_close(kv_pool *pool);
const device_kv *kv_pool_view(const kv_pool *pool);
/* Whose pages are whose: pages_grow, pages_shrink, pages_fork, pages_find, pages_index on it. */
kv_pages *kv_pool_pages(kv_pool *pool);

/* Before a step writes positions from … length − 1 of a table that holds `from` computed ones:
 * pages_write, and the copy it asks for. AVO_ERROR_FULL without text when there are too few pages;
 * nothing has changed then. Where the device fails to copy a page, the table has lost that page and
 * holds whole pages only; where it fails to zero a new one, the table is as it was. New pages are
 * zeroed where the device reads whole pages. Elsewhere they hold what their last owner left, or
 * nothing yet: no attention reads a position before its token is written, and memory is touched
 * first by the workers of the step that writes it. */
AVO_MUST_USE avo_status kv_pool_write(kv_pool *pool, kv_table *table, uint32_t from,
                                      uint32_t length, avo_error *error);

/* The contents of a page in host memory, device_kv.page_bytes bytes. Reading gives zeros for
 * positions from `slots` on, which may be another timeline's. */
AVO_MUST_USE avo_status kv_pool_page_read(const kv_pool *pool, uint32_t page, uint32_t slots,
                                          uint8_t *contents, avo_error *error);
AVO_MUST_USE avo_status kv_pool_page_write(kv_pool *pool, uint32_t page, const uint8_t *contents,
                                           avo_error *error);
AVO_MUST_USE avo_status kv_pool_page_copy(kv_pool *pool, uint32_t to, uint32_t from,
                                          avo_error *error);

#endif
