/* Inside memory/: how pages.h keeps its books. pages.c has the states, prefix.c the index. */
#ifndef AVO_MEMORY_PAGES_INT_H
#define AVO_MEMORY_PAGES_INT_H

#include "memory/pages.h"

/* What a page continues: a root key, or a page of the index by its serial number. */
typedef struct prefix_parent {
    uint64_t key[2]; /* the root's; or serial and 0 */
    uint64_t first;  /* 1: key is a root's */
} prefix_parent;

/* One line of memory each. */
typedef struct page_info {
    _Alignas(64) prefix_parent parent; /* of a known page */
    uint64_t key;                      /* its hash */
    uint64_t serial;                   /* 0: unknown to the index */
    uint32_t references;               /* tables that hold it */
    uint32_t next, previous; /* cached: the list from the least to the most recently used. Free: a
                                stack through `next` */
    uint64_t block;          /* of a known page: its name in events */
} page_info;

_Static_assert(sizeof(page_info) == 64, "one line of memory");

/* Linear probing; never more than half full. */
typedef struct prefix_slot {
    uint32_t page; /* PAGE_NONE: empty */
    uint32_t tag;  /* upper half of the key: most other pages are told apart without a look */
} prefix_slot;

struct kv_pages {
    const avo_allocator *allocator;
    uint32_t pages;
    page_info *info;   /* [pages] */
    int32_t *tokens;   /* [pages][KV_PAGE_TOKENS] of known pages */
    prefix_slot *slot; /* [slot_mask + 1] */
    size_t slot_mask;
    uint32_t known; /* pages in the index */
    uint32_t free_top, free_count;
    uint32_t cached_oldest, cached_newest, cached_count;
    uint64_t references;
    uint64_t serial; /* the newest */
    uint64_t queried_tokens, hit_tokens, evicted_pages;
    uint64_t key_seed; /* of the hash */
    uint64_t key_mask; /* all ones, but for tests of collisions */
    pages_host host;   /* its pages have the numbers behind `pages` */
    uint32_t host_oldest, host_newest, host_cached, host_free;
    uint64_t moved_out, moved_in;
    kv_events *events; /* NULL: nobody listens */
};

/* What of a page the index knows goes to another one, which it does not know. */
void prefix_rename(kv_pages *pages, uint32_t from, uint32_t to);
/* A free page, or the least recently used cached one; the caller has seen that there is one. */
uint32_t pages_take(kv_pages *pages);

/* ---- The host's memory (pages_host.c) ---- */

void pages_host_init(kv_pages *pages, const pages_host *host);
/* A cached page that is taken for something else; false: it has to be forgotten. */
bool pages_host_keep(kv_pages *pages, uint32_t page);
/* Back to the pool, held by a table; PAGE_NONE: there is no page, or its contents were lost. */
uint32_t pages_host_fetch(kv_pages *pages, uint32_t place);
/* The same contents are in `page` now. */
void pages_host_replace(kv_pages *pages, uint32_t place, uint32_t page);
void pages_host_drop(kv_pages *pages);
const char *pages_host_check(const kv_pages *pages);

/* Takes a page out of the index. */
void prefix_forget(kv_pages *pages, uint32_t page);
/* Takes a cached page out of its list. */
void pages_uncache(kv_pages *pages, uint32_t page);
/* A table takes hold of a known page, whatever its state. */
void pages_hold(kv_pages *pages, uint32_t page);
/* A table lets go. */
void pages_release(kv_pages *pages, uint32_t page);
/* For tests: keys keep only these bits, so that they collide. The index must be empty. */
void pages_weaken_keys(kv_pages *pages, uint64_t mask);

#endif
