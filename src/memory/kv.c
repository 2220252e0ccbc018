/* The KV pool: pages.h over one block of device memory. */
#include "memory/kv.h"

#include "base/checked.h"
#include "device/kv_tile.h"
#include "device/pinned.h"

struct kv_pool {
    device *device;
    device_kv view;
    size_t *layer_offset;
    const layer_view *layer; /* the model's */
    uint32_t layers;
    kv_pages *pages;
    device_pinned host; /* pages that left the device */
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

bool kv_page_bytes(const model_view *model, kv_type type, size_t *bytes) {
    return measure_page(model, type, NULL, bytes);
}

bool kv_pool_bytes(const device *device, const model_view *model, kv_type type, uint32_t pages,
                   uint64_t *bytes) {
    size_t page_bytes, total;
    return measure_page(model, type, NULL, &page_bytes) &&
           size_multiply(page_bytes, pages, &total) && device_memory_round(device, total, bytes);
}

/* ---- The host's memory ---- */

static bool move_out(void *context, uint32_t page, uint32_t place) {
    kv_pool *pool = context;
    size_t bytes = pool->view.page_bytes;
    avo_error ignored; /* the page is forgotten, as it would be without a place */
    return device_copy_out(pool->device, pool->host.data + place * bytes, &pool->view.memory,
                           page * bytes, bytes, &ignored) == AVO_OK;
}

static bool move_in(void *context, uint32_t place, uint32_t page) {
    kv_pool *pool = context;
    size_t bytes = pool->view.page_bytes;
    avo_error ignored;
    return device_copy_in(pool->device, &pool->view.memory, page * bytes,
                          pool->host.data + place * bytes, bytes, &ignored) == AVO_OK;
}

/* ---- Opening ---- */

static avo_status open_parts(kv_pool *pool, const model_view *model, kv_type type, uint32_t pages,
                             uint32_t host_pages, avo_error *error) {
    const avo_allocator *allocator = device_allocator(pool->device);
    pages_host host = {.pages = host_pages, .out = move_out, .in = move_in, .context = pool};
    size_t bytes;
    pool->layer_offset = allocator_take_array(allocator, pool->layers, sizeof(size_t));
    if (pool->layer_offset == NULL)
        return status_no_memory(error, "the KV pool's head", pool->layers * sizeof(size_t));
    pool->view.type = type;
    pool->view.layer_offset = pool->layer_offset;
    (void)measure_page(model, type, pool->layer_offset, &pool->view.page_bytes);
    AVO_TRY(pages_open_with_host(pages, &host, allocator, &pool->pages, error));
    if (!size_multiply(host_pages, pool->view.page_bytes, &bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "%u KV pages of the host are too large",
                           host_pages);
    if (host_pages > 0)
        AVO_TRY(device_pinned_take(pool->device, bytes, "KV pages", &pool->host, error));
    return device_pages_take(pool->device, model, pages, &pool->view, error);
}

avo_status kv_pool_open(device *device, const model_view *model, kv_type type, uint32_t pages,
                        kv_pool **out, avo_error *error) {
    return kv_pool_open_with_host(device, model, type, pages, 0, out, error);
}

avo_status kv_pool_open_with_host(device *device, const model_view *model, kv_type type,
                                  uint32_t pages, uint32_t host_pages, kv_pool **out,
                                  avo_error *error) {
    *out = NULL;
    uint64_t bytes;
    if (pages == 0 || !kv_pool_bytes(device, model, type, pages, &bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "a KV pool of %u pages is too large", pages);
    kv_pool *pool = allocator_take_array(device_allocator(device), 1, sizeof(*pool));
    if (pool == NULL)
        return status_no_memory(error, "the KV pool's head", sizeof(*pool));
    pool->device = device;
    pool->layer = model->layer;
    pool->layers = model->layers;
    avo_status status = open_parts(pool, model, type, pages, host_pages, error);
    if (status != AVO_OK) {
        kv_pool_close(pool);
        return status;
    }
    *out = pool;
    return AVO_OK;
}

void kv_pool_close(kv_pool *pool) {
    if (pool == NULL)
        return;
    const avo_allocator *allocator = device_allocator(pool->device);
    device_memory_give(pool->device, &pool->view.memory);
    if (pool->host.data != NULL)
        device_pinned_give(pool->device, &pool->host);
    pages_close(pool->pages);
    allocator_give(allocator, pool->layer_offset, pool->layers * sizeof(size_t));
    allocator_give(allocator, pool, sizeof(*pool));
}

const device_kv *kv_pool_view(const kv_pool *pool) {
    return &pool->view;
}

kv_pages *kv_pool_pages(kv_pool *pool) {
    return pool->pages;
}

avo_status kv_pool_page_copy(kv_pool *pool, uint32_t to, uint32_t from, avo_error *error) {
    size_t bytes = pool->view.page_bytes;
    return device_copy_across(pool->device, &pool->view.memory, to * bytes, &pool->view.memory,
                              from * bytes, bytes, error);
}

avo_status kv_pool_page_write(kv_pool *pool, uint32_t page, const uint8_t *contents,
                              avo_error *error) {
    size_t bytes = pool->view.page_bytes;
    return device_copy_in(pool->device, &pool->view.memory, page * bytes, contents, bytes, error);
}

/* Pages from number `first` of the table on, neighbours in one call. */
static avo_status zero_pages(kv_pool *pool, const kv_table *table, uint32_t first,
                             avo_error *error) {
    size_t bytes = pool->view.page_bytes;
    for (uint32_t i = first, count; i < table->count; i += count) {
        count = 1;
        while (i + count < table->count && table->pages[i + count] == table->pages[i] + count)
            count++;
        AVO_TRY(device_zero(pool->device, &pool->view.memory, table->pages[i] * bytes,
                            count * bytes, error));
    }
    return AVO_OK;
}

avo_status kv_pool_write(kv_pool *pool, kv_table *table, uint32_t from, uint32_t length,
                         avo_error *error) {
    uint32_t copy_from, held = table->count;
    AVO_TRY(pages_write(pool->pages, table, from, length, &copy_from));
    avo_status status = AVO_OK;
    if (copy_from != PAGE_NONE) {
        uint32_t page = from / KV_PAGE_TOKENS;
        status = kv_pool_page_copy(pool, table->pages[page], copy_from, error);
        held = status == AVO_OK ? held : page;
    }
    if (status == AVO_OK && device_describe(pool->device)->whole_pages)
        status = zero_pages(pool, table, held, error);
    if (status != AVO_OK)
        pages_shrink(pool->pages, table, held * KV_PAGE_TOKENS);
    return status;
}

static void clear_slots(kv_type type, uint32_t head_size, uint8_t *head, uint32_t from) {
    static const float zeros[KV_HEAD_SIZE_MAX];
    for (uint32_t slot = from; slot < KV_PAGE_TOKENS; slot++)
        kv_tile_write(type, head_size, head, slot, zeros, zeros);
}

avo_status kv_pool_page_read(const kv_pool *pool, uint32_t page, uint32_t slots, uint8_t *contents,
                             avo_error *error) {
    size_t page_bytes = pool->view.page_bytes;
    AVO_TRY(device_copy_out(pool->device, contents, &pool->view.memory, page * page_bytes,
                            page_bytes, error));
    for (uint32_t i = 0; slots < KV_PAGE_TOKENS && i < pool->layers; i++) {
        uint32_t head_size = pool->layer[i].head_size;
        size_t bytes = kv_head_bytes(pool->view.type, head_size);
        for (uint32_t head = 0; head < pool->layer[i].kv_heads; head++)
            clear_slots(pool->view.type, head_size, contents + pool->layer_offset[i] + head * bytes,
                        slots);
    }
    return AVO_OK;
}
