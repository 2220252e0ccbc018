/* Who owns which page: reference counts, sharing, the index of prefixes and the order of eviction.
 * Page numbers only; what lies in a page is kv.h's business, so that the scheduler's simulation
 * runs this very code without any memory behind it.
 *
 * A page is
 *   free     in nobody's table, nothing of use in it;
 *   used     in one or more tables (its count);
 *   cached   in nobody's table, but full, and known to the index: whoever asks for the same prefix
 *            gets it back. Cached pages are given away like free ones, least recently used first.
 *
 * The index knows full pages by hash(page before, tokens of this page); the first page of a
 * timeline has in place of a page before it a root key that stands for everything else K and V
 * depend on (adapters, tenant's salt). Every page that becomes known gets a serial number that is
 * never used again, and that is how the page after it names it. Tokens and the page before are
 * compared too, so a colliding hash can never give a wrong page.
 *
 * A prefix is in the index once: a timeline that has computed what the index knows already gets the
 * known page in its table, and its own is free again. So a page is never given away before those
 * that continue it.
 *
 * Every operation is O(1) per page. Allocates only when opened. Not for several threads.
 */
#ifndef AVO_MEMORY_PAGES_H
#define AVO_MEMORY_PAGES_H

#include "base/allocator.h"
#include "base/status.h"
#include "device/layer.h" /* KV_PAGE_TOKENS */
#include "memory/kv_events.h"

#define PAGE_NONE UINT32_MAX

typedef struct kv_pages kv_pages;

/* Most pages of a pool. */
#define PAGES_MAX ((uint32_t)1 << 30)

/* Bytes that the bookkeeping of `pages` pages takes, those in the host's memory included. */
uint64_t pages_bytes(uint32_t pages);
AVO_MUST_USE avo_status pages_open(uint32_t pages, const avo_allocator *allocator, kv_pages **out,
                                   avo_error *error);
/* Places in the host's memory for cached pages that the pool has no place for. Both functions copy
 * contents at once; false: they could not, and then the page is forgotten. */
typedef struct pages_host {
    uint32_t pages;
    bool (*out)(void *context, uint32_t page, uint32_t place);
    bool (*in)(void *context, uint32_t place, uint32_t page);
    void *context;
} pages_host;
AVO_MUST_USE avo_status pages_open_with_host(uint32_t pages, const pages_host *host,
                                             const avo_allocator *allocator, kv_pages **out,
                                             avo_error *error);
void pages_close(kv_pages *pages);

/* One timeline's pages, in order of position. */
typedef struct kv_table {
    uint32_t *pages; /* [capacity], owned by whoever made the table */
    uint32_t count;
    uint32_t capacity;
    uint32_t indexed; /* leading pages that the index has been told about */
} kv_table;

static inline uint32_t kv_pages_for(uint64_t tokens) {
    return (uint32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

/* Makes room for positions below `length`; AVO_ERROR_FULL without text when pages or table are too
 * few, and then nothing has changed. The new pages hold whatever their last owner left there. */
AVO_MUST_USE avo_status pages_grow(kv_pages *pages, kv_table *table, uint32_t length);
/* Forgets everything from `length` on: roll-back. Shared pages merely lose a reference. O(pages
 * given back). */
void pages_shrink(kv_pages *pages, kv_table *table, uint32_t length);
/* `to` (empty, with room) becomes a copy of the first `length` positions of `from`, sharing its
 * pages, the last, partial one too. */
void pages_fork(kv_pages *pages, const kv_table *from, uint32_t length, kv_table *to);
/* Room to write positions from … length − 1, the table being shrunk to `from`. Where the page of
 * `from` is shared or known to the index, a page of its own takes its place in the table, and
 * *copy_from is the page whose contents must be copied into it before anything else happens (else
 * PAGE_NONE). AVO_ERROR_FULL as in pages_grow, all or nothing; a page that only the index shares is
 * then taken from it instead. */
AVO_MUST_USE avo_status pages_write(kv_pages *pages, kv_table *table, uint32_t from,
                                    uint32_t length, uint32_t *copy_from);
/* Whether pages_write would find its pages, were the table shrunk to `from` before. */
bool pages_could_write(const kv_pages *pages, const kv_table *table, uint32_t from,
                       uint32_t length);

/* ---- Prefixes ---- */

/* The key everything of a timeline begins with. */
typedef struct prefix_root {
    uint64_t key[2];
} prefix_root;
/* From whatever K and V depend on besides tokens: digests and factors of adapters, a salt. */
prefix_root prefix_root_of(const void *data, size_t bytes);

/* Fills an empty table with cached or shared full pages whose tokens begin `tokens`, as many as
 * there are, but never so many that no token is left to compute. Returns the tokens found, a
 * multiple of KV_PAGE_TOKENS. */
uint32_t pages_find(kv_pages *pages, prefix_root root, const int32_t *tokens, uint32_t count,
                    kv_table *table);
/* How many tokens pages_find would find, with a table large enough: nothing is taken, counted or
 * made younger by it. */
uint32_t pages_peek(const kv_pages *pages, prefix_root root, const int32_t *tokens, uint32_t count);
/* Tells the index about full pages of the table: the first `computed` positions are written.
 * Called after each step; looks only at pages that are new to it. Page numbers in the table may
 * change. */
void pages_index(kv_pages *pages, prefix_root root, const int32_t *tokens, uint32_t computed,
                 kv_table *table);
/* Tells the log what the index learns and forgets from here on; NULL: no longer. The index must be
 * empty. */
void pages_tell(kv_pages *pages, kv_events *events);
/* Forgets all cached pages: for tests and benches. */
void pages_drop_cache(kv_pages *pages);

typedef struct pages_counts {
    uint32_t pages, free, cached, used; /* used: in tables, each once. Sum: pages */
    uint64_t references;                /* of tables to pages */
    uint64_t queried_tokens, hit_tokens, evicted_pages;
    uint32_t host, host_cached;   /* places in the host's memory; pages there */
    uint64_t moved_out, moved_in; /* pages, to the host's memory and back */
} pages_counts;
pages_counts pages_count(const kv_pages *pages);
/* Pages that pages_grow could give now: free and cached. */
uint32_t pages_available(const kv_pages *pages);
/* Checks every invariant (counts, lists, index) in O(pages): for tests and simulation. Returns NULL
 * or what is wrong. */
const char *pages_check(const kv_pages *pages);

#endif
