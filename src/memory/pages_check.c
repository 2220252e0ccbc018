/* Every invariant of pages.h, in O(pages): for tests and simulation. */
#include "memory/pages_int.h"

static const char *check_free(const kv_pages *pages) {
    uint32_t count = 0;
    for (uint32_t page = pages->free_top; count < pages->free_count; count++) {
        if (page >= pages->pages)
            return "the stack of free pages is shorter than its count";
        const page_info *info = &pages->info[page];
        if (info->references != 0 || info->serial != 0)
            return "a free page is held or known";
        page = info->next;
    }
    return NULL;
}

static const char *check_cached(const kv_pages *pages) {
    uint32_t previous = PAGE_NONE;
    uint32_t page = pages->cached_oldest;
    for (uint32_t count = 0; count < pages->cached_count; count++) {
        if (page >= pages->pages)
            return "the list of cached pages is shorter than its count";
        const page_info *info = &pages->info[page];
        if (info->references != 0 || info->serial == 0)
            return "a cached page is held or unknown";
        if (info->previous != previous)
            return "the list of cached pages is broken";
        previous = page;
        page = info->next;
    }
    if (page != PAGE_NONE || pages->cached_newest != previous)
        return "the list of cached pages is longer than its count";
    return NULL;
}

static const char *check_sums(const kv_pages *pages) {
    uint64_t references = 0;
    uint32_t used = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < pages->pages; i++) {
        const page_info *info = &pages->info[i];
        references += info->references;
        used += info->references > 0;
        known += info->serial != 0;
        if (info->serial > pages->serial)
            return "a serial number from the future";
    }
    for (uint32_t i = 0; i < pages->host.pages; i++)
        known += pages->info[pages->pages + i].serial != 0;
    if (references != pages->references)
        return "the sum of references is wrong";
    if ((uint64_t)used + pages->free_count + pages->cached_count != pages->pages)
        return "pages are lost: free, cached and used do not add up";
    if (known != pages->known)
        return "the count of known pages is wrong";
    return NULL;
}

/* Every known page is met when walking from its home, and nothing else is in the table. */
static const char *check_index(const kv_pages *pages) {
    uint32_t filled = 0;
    for (size_t at = 0; at <= pages->slot_mask; at++) {
        uint32_t page = pages->slot[at].page;
        if (page == PAGE_NONE)
            continue;
        filled++;
        if (page >= pages->pages + pages->host.pages || pages->info[page].serial == 0)
            return "the index names a page that it does not know";
        uint64_t key = pages->info[page].key;
        if (pages->slot[at].tag != (uint32_t)(key >> 32))
            return "the index names a page under another key";
        for (size_t walk = (size_t)key & pages->slot_mask; walk != at;
             walk = (walk + 1) & pages->slot_mask)
            if (pages->slot[walk].page == PAGE_NONE || pages->slot[walk].page == page)
                return "a known page cannot be found";
    }
    return filled == pages->known ? NULL : "the index has lost pages";
}

const char *pages_check(const kv_pages *pages) {
    const char *wrong = check_free(pages);
    if (wrong == NULL)
        wrong = check_cached(pages);
    if (wrong == NULL)
        wrong = check_sums(pages);
    if (wrong == NULL)
        wrong = check_index(pages);
    if (wrong == NULL)
        wrong = pages_host_check(pages);
    return wrong;
}
