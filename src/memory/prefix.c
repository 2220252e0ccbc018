/* The index of prefixes: an open-addressing table from hash(page before, tokens) to a page. What is
 * found is compared with what was asked for, token by token, so a hash only ever saves time.
 * One page told to the index takes 45 to 70 ns, one found 57 to 78 ns in a pool of 65,536 pages,
 * and 150 to 200 ns in one of a million, where each is a miss of every cache (bench/pages.c). */
#include "memory/pages_int.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

#define PAGE_BYTES (KV_PAGE_TOKENS * sizeof(int32_t))

prefix_root prefix_root_of(const void *data, size_t bytes) {
    prefix_root root;
    hash_key_wide(data, bytes, root.key);
    return root;
}

static prefix_parent parent_root(prefix_root root) {
    return (prefix_parent){.key = {root.key[0], root.key[1]}, .first = 1};
}

static prefix_parent parent_page(const kv_pages *pages, uint32_t page) {
    return (prefix_parent){.key = {pages->info[page].serial, 0}, .first = 0};
}

static uint64_t key_of(const kv_pages *pages, const prefix_parent *parent, const int32_t *tokens) {
    struct {
        prefix_parent parent;
        int32_t tokens[KV_PAGE_TOKENS];
    } content;
    content.parent = *parent;
    memcpy(content.tokens, tokens, PAGE_BYTES);
    return hash_key_seeded(&content, sizeof(content), pages->key_seed) & pages->key_mask;
}

static bool is_page(const kv_pages *pages, uint32_t page, const prefix_parent *parent,
                    const int32_t *tokens) {
    const prefix_parent *own = &pages->info[page].parent;
    return own->key[0] == parent->key[0] && own->key[1] == parent->key[1] &&
           own->first == parent->first &&
           memcmp(pages->tokens + (size_t)page * KV_PAGE_TOKENS, tokens, PAGE_BYTES) == 0;
}

static uint32_t tag_of(uint64_t key) {
    return (uint32_t)(key >> 32);
}

/* The slot that holds the page, or the empty one where it would go. */
static size_t find_slot(const kv_pages *pages, uint64_t key, const prefix_parent *parent,
                        const int32_t *tokens) {
    size_t at = (size_t)key & pages->slot_mask;
    while (pages->slot[at].page != PAGE_NONE &&
           (pages->slot[at].tag != tag_of(key) ||
            !is_page(pages, pages->slot[at].page, parent, tokens)))
        at = (at + 1) & pages->slot_mask;
    return at;
}

/* Those that follow move up, so that no walk ever meets a gap before its goal. */
void prefix_forget(kv_pages *pages, uint32_t page) {
    page_info *info = &pages->info[page];
    assert(info->serial != 0);
    size_t mask = pages->slot_mask;
    size_t gap = (size_t)info->key & mask;
    while (pages->slot[gap].page != page)
        gap = (gap + 1) & mask;
    for (size_t at = (gap + 1) & mask; pages->slot[at].page != PAGE_NONE; at = (at + 1) & mask) {
        size_t home = (size_t)pages->info[pages->slot[at].page].key & mask;
        if (((at - home) & mask) < ((at - gap) & mask))
            continue; /* it would stand before its home */
        pages->slot[gap] = pages->slot[at];
        gap = at;
    }
    pages->slot[gap].page = PAGE_NONE;
    info->serial = 0;
    pages->known--;
    if (pages->events != NULL) {
        kv_events_removed(pages->events, info->block);
        kv_events_flush(pages->events);
    }
}

void prefix_rename(kv_pages *pages, uint32_t from, uint32_t to) {
    page_info *info = &pages->info[from], *other = &pages->info[to];
    assert(info->serial != 0 && other->serial == 0);
    size_t at = (size_t)info->key & pages->slot_mask;
    while (pages->slot[at].page != from)
        at = (at + 1) & pages->slot_mask;
    pages->slot[at].page = to;
    other->parent = info->parent;
    other->key = info->key;
    other->serial = info->serial;
    other->block = info->block; /* its name in events */
    memcpy(pages->tokens + (size_t)to * KV_PAGE_TOKENS,
           pages->tokens + (size_t)from * KV_PAGE_TOKENS, PAGE_BYTES);
    info->serial = 0;
}

uint32_t pages_find(kv_pages *pages, prefix_root root, const int32_t *tokens, uint32_t count,
                    kv_table *table) {
    assert(table->count == 0);
    pages->queried_tokens += count;
    uint32_t most = count == 0 ? 0 : (count - 1) / KV_PAGE_TOKENS;
    if (most > table->capacity)
        most = table->capacity;
    prefix_parent parent = parent_root(root);
    while (table->count < most) {
        const int32_t *next = tokens + (size_t)table->count * KV_PAGE_TOKENS;
        size_t at = find_slot(pages, key_of(pages, &parent, next), &parent, next);
        uint32_t page = pages->slot[at].page;
        if (page == PAGE_NONE)
            break;
        if (page >= pages->pages)
            page = pages_host_fetch(pages, page);
        else
            pages_hold(pages, page);
        if (page == PAGE_NONE)
            break;
        table->pages[table->count++] = page;
        parent = parent_page(pages, page);
    }
    table->indexed = table->count;
    pages->hit_tokens += (uint64_t)table->count * KV_PAGE_TOKENS;
    return table->count * KV_PAGE_TOKENS;
}

uint32_t pages_peek(const kv_pages *pages, prefix_root root, const int32_t *tokens,
                    uint32_t count) {
    uint32_t most = count == 0 ? 0 : (count - 1) / KV_PAGE_TOKENS;
    prefix_parent parent = parent_root(root);
    for (uint32_t i = 0; i < most; i++) {
        const int32_t *next = tokens + (size_t)i * KV_PAGE_TOKENS;
        size_t at = find_slot(pages, key_of(pages, &parent, next), &parent, next);
        uint32_t page = pages->slot[at].page;
        if (page == PAGE_NONE)
            return i * KV_PAGE_TOKENS;
        parent = parent_page(pages, page);
    }
    return most * KV_PAGE_TOKENS;
}

void pages_tell(kv_pages *pages, kv_events *events) {
    assert(pages->known == 0);
    pages->events = events;
}

/* The page's name: unlike its key it depends on tokens and root alone, not on serial numbers. */
static void tell_stored(kv_pages *pages, const prefix_parent *parent, uint64_t before,
                        const int32_t *tokens, uint32_t page) {
    struct {
        uint64_t before[2];
        uint64_t first;
        int32_t tokens[KV_PAGE_TOKENS];
    } content = {.first = parent->first};
    if (parent->first)
        memcpy(content.before, parent->key, sizeof(content.before));
    else
        content.before[0] = before;
    memcpy(content.tokens, tokens, PAGE_BYTES);
    pages->info[page].block = hash_bytes(&content, sizeof(content));
    kv_events_stored(pages->events, pages->info[page].block, parent->first ? NULL : &before,
                     tokens);
}

/* The page becomes known, or the known one takes its place. Returns which. */
static uint32_t index_page(kv_pages *pages, const prefix_parent *parent, const int32_t *tokens,
                           uint32_t page) {
    uint64_t key = key_of(pages, parent, tokens);
    size_t at = find_slot(pages, key, parent, tokens);
    uint32_t known = pages->slot[at].page;
    if (known == page)
        return page;
    if (known != PAGE_NONE && known >= pages->pages) {
        if (pages->info[page].serial != 0)
            prefix_forget(pages, page);
        pages_host_replace(pages, known, page);
        return page;
    }
    if (known != PAGE_NONE) {
        pages_hold(pages, known);
        pages_release(pages, page);
        return known;
    }
    page_info *info = &pages->info[page];
    if (info->serial != 0) { /* known behind a page that is gone: nobody could find it any more */
        prefix_forget(pages, page);
        at = find_slot(pages, key, parent, tokens);
    }
    info->parent = *parent;
    info->key = key;
    info->serial = ++pages->serial;
    memcpy(pages->tokens + (size_t)page * KV_PAGE_TOKENS, tokens, PAGE_BYTES);
    pages->slot[at] = (prefix_slot){.page = page, .tag = tag_of(key)};
    pages->known++;
    return page;
}

/* Whether the page has become known just now, by its serial number. */
static bool is_newest(const kv_pages *pages, uint32_t page, uint64_t serial) {
    return pages->serial != serial && pages->info[page].serial == pages->serial;
}

void pages_index(kv_pages *pages, prefix_root root, const int32_t *tokens, uint32_t computed,
                 kv_table *table) {
    uint32_t full = computed / KV_PAGE_TOKENS;
    assert(full <= table->count);
    uint64_t before = pages->serial;
    for (uint32_t i = table->indexed; i < full; i++) {
        const int32_t *own = tokens + (size_t)i * KV_PAGE_TOKENS;
        prefix_parent parent = i == 0 ? parent_root(root) : parent_page(pages, table->pages[i - 1]);
        uint64_t serial = pages->serial;
        table->pages[i] = index_page(pages, &parent, own, table->pages[i]);
        table->indexed = i + 1;
        if (pages->events != NULL && is_newest(pages, table->pages[i], serial))
            tell_stored(pages, &parent, i == 0 ? 0 : pages->info[table->pages[i - 1]].block, own,
                        table->pages[i]);
    }
    if (pages->events != NULL && pages->serial != before)
        kv_events_flush(pages->events);
}

void pages_drop_cache(kv_pages *pages) {
    pages_host_drop(pages);
    while (pages->cached_count > 0) {
        uint32_t page = pages->cached_oldest;
        /* Held for a moment, unknown when let go: a free page. */
        pages_hold(pages, page);
        prefix_forget(pages, page);
        pages_release(pages, page);
    }
}

void pages_weaken_keys(kv_pages *pages, uint64_t mask) {
    assert(pages->known == 0);
    pages->key_mask = mask;
}
