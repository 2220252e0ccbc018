/* States of pages: free, used, cached. The index of prefixes is prefix.c's. */
#include "memory/pages_int.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

/* ---- Opening ---- */

static size_t slots_for(uint32_t pages) {
    size_t slots = 16;
    while (slots < (size_t)pages * 2)
        slots *= 2;
    return slots;
}

uint64_t pages_bytes(uint32_t pages) {
    return sizeof(kv_pages) +
           pages * (uint64_t)(sizeof(page_info) + KV_PAGE_TOKENS * sizeof(int32_t)) +
           slots_for(pages) * sizeof(prefix_slot);
}

avo_status pages_open(uint32_t count, const avo_allocator *allocator, kv_pages **out,
                      avo_error *error) {
    return pages_open_with_host(count, NULL, allocator, out, error);
}

/* All that have a number. */
static size_t numbers_of(const kv_pages *pages) {
    return (size_t)pages->pages + pages->host.pages;
}

avo_status pages_open_with_host(uint32_t count, const pages_host *host,
                                const avo_allocator *allocator, kv_pages **out, avo_error *error) {
    *out = NULL;
    uint32_t beside = host != NULL ? host->pages : 0;
    if (count > 0 && count <= PAGES_MAX && beside > PAGES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the host's memory has %u KV pages, must be at most %u", beside,
                           PAGES_MAX);
    if (count == 0 || count > PAGES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the KV pool has %u pages, must have 1 to %u",
                           count, PAGES_MAX);
    kv_pages *pages = allocator_take_array(allocator, 1, sizeof(*pages));
    if (pages == NULL)
        return status_no_memory(error, "page accounting", sizeof(*pages));
    pages->allocator = allocator;
    pages->pages = count;
    pages->host.pages = beside;
    size_t all = numbers_of(pages);
    pages->slot_mask = slots_for((uint32_t)all) - 1;
    pages->info = allocator_take_array(allocator, all, sizeof(*pages->info));
    pages->tokens = allocator_take_array(allocator, all, KV_PAGE_TOKENS * sizeof(*pages->tokens));
    pages->slot = allocator_take_array(allocator, pages->slot_mask + 1, sizeof(*pages->slot));
    if (pages->info == NULL || pages->tokens == NULL || pages->slot == NULL) {
        pages_close(pages);
        return status_no_memory(error, "page accounting", (size_t)pages_bytes((uint32_t)all));
    }
    for (size_t i = 0; i <= pages->slot_mask; i++)
        pages->slot[i].page = PAGE_NONE;
    for (uint32_t i = 0; i < count; i++)
        pages->info[i].next = i + 1 < count ? i + 1 : PAGE_NONE;
    pages->free_count = count;
    pages_host_init(pages, host);
    pages->cached_oldest = PAGE_NONE;
    pages->cached_newest = PAGE_NONE;
    pages->key_seed = hash_key_seed();
    pages->key_mask = UINT64_MAX;
    *out = pages;
    return AVO_OK;
}

void pages_close(kv_pages *pages) {
    if (pages == NULL)
        return;
    const avo_allocator *allocator = pages->allocator;
    size_t count = numbers_of(pages);
    allocator_give(allocator, pages->info, count * sizeof(*pages->info));
    allocator_give(allocator, pages->tokens, count * KV_PAGE_TOKENS * sizeof(*pages->tokens));
    allocator_give(allocator, pages->slot, (pages->slot_mask + 1) * sizeof(*pages->slot));
    allocator_give(allocator, pages, sizeof(*pages));
}

/* ---- One page ---- */

static void give_free(kv_pages *pages, uint32_t page) {
    pages->info[page].next = pages->free_top;
    pages->free_top = page;
    pages->free_count++;
}

static void give_cached(kv_pages *pages, uint32_t page) {
    page_info *info = &pages->info[page];
    info->next = PAGE_NONE;
    info->previous = pages->cached_newest;
    if (info->previous != PAGE_NONE)
        pages->info[info->previous].next = page;
    else
        pages->cached_oldest = page;
    pages->cached_newest = page;
    pages->cached_count++;
}

void pages_uncache(kv_pages *pages, uint32_t page) {
    const page_info *info = &pages->info[page];
    if (info->previous != PAGE_NONE)
        pages->info[info->previous].next = info->next;
    else
        pages->cached_oldest = info->next;
    if (info->next != PAGE_NONE)
        pages->info[info->next].previous = info->previous;
    else
        pages->cached_newest = info->previous;
    pages->cached_count--;
}

uint32_t pages_take(kv_pages *pages) {
    uint32_t page;
    if (pages->free_count > 0) {
        page = pages->free_top;
        pages->free_top = pages->info[page].next;
        pages->free_count--;
    } else {
        page = pages->cached_oldest;
        pages_uncache(pages, page);
        if (!pages_host_keep(pages, page))
            prefix_forget(pages, page);
        pages->evicted_pages++;
    }
    pages->info[page].references = 1;
    pages->references++;
    return page;
}

void pages_hold(kv_pages *pages, uint32_t page) {
    if (pages->info[page].references++ == 0)
        pages_uncache(pages, page);
    pages->references++;
}

void pages_release(kv_pages *pages, uint32_t page) {
    page_info *info = &pages->info[page];
    assert(info->references > 0);
    pages->references--;
    if (--info->references > 0)
        return;
    if (info->serial != 0)
        give_cached(pages, page);
    else
        give_free(pages, page);
}

/* ---- Tables ---- */

avo_status pages_grow(kv_pages *pages, kv_table *table, uint32_t length) {
    uint32_t needed = kv_pages_for(length);
    if (needed <= table->count)
        return AVO_OK;
    if (needed > table->capacity || needed - table->count > pages_available(pages))
        return AVO_ERROR_FULL;
    while (table->count < needed)
        table->pages[table->count++] = pages_take(pages);
    return AVO_OK;
}

/* From the end, so that of a timeline's cached pages the last is given away first. */
void pages_shrink(kv_pages *pages, kv_table *table, uint32_t length) {
    uint32_t kept = kv_pages_for(length);
    while (table->count > kept)
        pages_release(pages, table->pages[--table->count]);
    if (table->indexed > length / KV_PAGE_TOKENS)
        table->indexed = length / KV_PAGE_TOKENS;
}

void pages_fork(kv_pages *pages, const kv_table *from, uint32_t length, kv_table *to) {
    uint32_t count = kv_pages_for(length);
    assert(to->count == 0 && count <= from->count && count <= to->capacity);
    for (uint32_t i = 0; i < count; i++) {
        to->pages[i] = from->pages[i];
        pages_hold(pages, from->pages[i]);
    }
    to->count = count;
    to->indexed = from->indexed;
    if (to->indexed > length / KV_PAGE_TOKENS)
        to->indexed = length / KV_PAGE_TOKENS;
}

/* ---- Copy on write ---- */

/* A position's page must be left to others before the position is written. */
static bool is_shared(const kv_pages *pages, const kv_table *table, uint32_t position) {
    if (position / KV_PAGE_TOKENS >= table->count)
        return false;
    const page_info *info = &pages->info[table->pages[position / KV_PAGE_TOKENS]];
    return info->references > 1 || info->serial != 0;
}

/* With `room` pages at hand for it: a page of its own, or the page itself, which the index then
 * loses. */
static uint32_t make_own(kv_pages *pages, kv_table *table, uint32_t position, uint32_t room) {
    uint32_t *place = &table->pages[position / KV_PAGE_TOKENS];
    uint32_t shared = *place;
    if (table->indexed > position / KV_PAGE_TOKENS)
        table->indexed = position / KV_PAGE_TOKENS;
    if (room == 0) {
        prefix_forget(pages, shared);
        return PAGE_NONE;
    }
    *place = pages_take(pages);
    pages_release(pages, shared);
    return shared;
}

avo_status pages_write(kv_pages *pages, kv_table *table, uint32_t from, uint32_t length,
                       uint32_t *copy_from) {
    *copy_from = PAGE_NONE;
    uint32_t needed = kv_pages_for(length);
    uint32_t more = needed > table->count ? needed - table->count : 0;
    uint32_t available = pages_available(pages);
    if (needed > table->capacity || more > available)
        return AVO_ERROR_FULL;
    if (is_shared(pages, table, from)) {
        uint32_t room = available - more;
        if (room == 0 && pages->info[table->pages[from / KV_PAGE_TOKENS]].references > 1)
            return AVO_ERROR_FULL;
        *copy_from = make_own(pages, table, from, room);
    }
    return pages_grow(pages, table, length);
}

bool pages_could_write(const kv_pages *pages, const kv_table *table, uint32_t from,
                       uint32_t length) {
    uint32_t kept = kv_pages_for(from), needed = kv_pages_for(length);
    uint32_t more = needed > kept ? needed - kept : 0;
    uint32_t available = pages_available(pages);
    for (uint32_t i = kept; i < table->count; i++)
        available += pages->info[table->pages[i]].references == 1;
    bool shared = from % KV_PAGE_TOKENS != 0 && pages->info[table->pages[kept - 1]].references > 1;
    return needed <= table->capacity && available >= more + shared;
}

/* ---- Counts ---- */

uint32_t pages_available(const kv_pages *pages) {
    return pages->free_count + pages->cached_count;
}

pages_counts pages_count(const kv_pages *pages) {
    return (pages_counts){.pages = pages->pages,
                          .free = pages->free_count,
                          .cached = pages->cached_count,
                          .used = pages->pages - pages->free_count - pages->cached_count,
                          .references = pages->references,
                          .queried_tokens = pages->queried_tokens,
                          .hit_tokens = pages->hit_tokens,
                          .evicted_pages = pages->evicted_pages,
                          .host = pages->host.pages,
                          .host_cached = pages->host_cached,
                          .moved_out = pages->moved_out,
                          .moved_in = pages->moved_in};
}
