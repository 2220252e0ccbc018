/* The KV pool: pages.h over one block of memory. */
#include "memory/kv.h"

#include "base/checked.h"
#include "device/kv_tile.h"

#include <string.h>

struct kv_pool {
    const avo_allocator *allocator;
    kv_view view;
    size_t *layer_offset;
    const layer_view *layer; /* the model's */
    uint32_t layers;
    size_t pool_bytes;
    region region;
    kv_pages *pages;
};

/* Bytes of one page: K and V tiles of every layer and head. */
static bool measure_page(const model_view *model, kv_type type, size_t *layer_offset,
                         size_t *bytes) {
    size_t total = 0;
    for (uint32_t i = 0; i < model->layers; i++) {
        if (layer_offset != NULL)
            layer_offset[i] = total;
        size_t layer;
        if (!size_multiply(kv_head_bytes(type, model->layer[i].head_size), model->layer[i].kv_heads,
                           &layer) ||
            !size_add(total, layer, &total))
            return false;
    }
    *bytes = total;
    return true;
}

bool kv_pool_bytes(const model_view *model, kv_type type, uint32_t pages, uint64_t *bytes) {
    size_t page_bytes;
    return measure_page(model, type, NULL, &page_bytes) && u64_multiply(page_bytes, pages, bytes);
}

avo_status kv_pool_open(const model_view *model, kv_type type, uint32_t pages,
                        const region_options *placement, const avo_allocator *allocator,
                        kv_pool **out, avo_error *error) {
    *out = NULL;
    uint64_t bytes;
    if (pages == 0 || !kv_pool_bytes(model, type, pages, &bytes) || bytes > SIZE_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "KV pool of %u pages: too large", pages);
    kv_pool *pool = allocator_take_array(allocator, 1, sizeof(*pool));
    if (pool == NULL)
        return status_no_memory(error, "the KV pool's head", sizeof(*pool));
    pool->allocator = allocator;
    pool->layer = model->layer;
    pool->layers = model->layers;
    pool->pool_bytes = (size_t)bytes;
    pool->layer_offset = allocator_take_array(allocator, model->layers, sizeof(size_t));
    if (pool->layer_offset == NULL) {
        kv_pool_close(pool);
        return status_no_memory(error, "the KV pool's head", model->layers * sizeof(size_t));
    }
    avo_status status = pages_open(pages, allocator, &pool->pages, error);
    if (status == AVO_OK)
        status = region_open(allocator, pool->pool_bytes, placement, "the KV pool", &pool->region,
                             error);
    if (status != AVO_OK) {
        kv_pool_close(pool);
        return status;
    }
    pool->view.pool = pool->region.data;
    pool->view.type = type;
    pool->view.layer_offset = pool->layer_offset;
    (void)measure_page(model, type, pool->layer_offset, &pool->view.page_bytes);
    *out = pool;
    return AVO_OK;
}

void kv_pool_close(kv_pool *pool) {
    if (pool == NULL)
        return;
    region_close(&pool->region);
    pages_close(pool->pages);
    allocator_give(pool->allocator, pool->layer_offset, pool->layers * sizeof(size_t));
    allocator_give(pool->allocator, pool, sizeof(*pool));
}

const kv_view *kv_pool_view(const kv_pool *pool) {
    return &pool->view;
}

kv_pages *kv_pool_pages(kv_pool *pool) {
    return pool->pages;
}

uint8_t *kv_pool_page(const kv_pool *pool, uint32_t page) {
    return pool->view.pool + page * pool->view.page_bytes;
}

avo_status kv_pool_write(kv_pool *pool, kv_table *table, uint32_t from, uint32_t length) {
    uint32_t copy_from;
    AVO_TRY(pages_write(pool->pages, table, from, length, &copy_from));
    if (copy_from != PAGE_NONE)
        memcpy(kv_pool_page(pool, table->pages[from / KV_PAGE_TOKENS]),
               kv_pool_page(pool, copy_from), pool->view.page_bytes);
    return AVO_OK;
}

static void clear_slots(kv_type type, uint32_t head_size, uint8_t *head, uint32_t from) {
    static const float zeros[KV_HEAD_SIZE_MAX];
    for (uint32_t slot = from; slot < KV_PAGE_TOKENS; slot++)
        kv_tile_write(type, head_size, head, slot, zeros, zeros);
}

void kv_pool_page_copy(const kv_pool *pool, uint32_t page, uint32_t slots, uint8_t *copy) {
    memcpy(copy, kv_pool_page(pool, page), pool->view.page_bytes);
    for (uint32_t i = 0; slots < KV_PAGE_TOKENS && i < pool->layers; i++) {
        uint32_t head_size = pool->layer[i].head_size;
        size_t bytes = kv_head_bytes(pool->view.type, head_size);
        for (uint32_t head = 0; head < pool->layer[i].kv_heads; head++)
            clear_slots(pool->view.type, head_size, copy + pool->layer_offset[i] + head * bytes,
                        slots);
    }
}
