/* Large memory that is read from front to back again and again: repacked weights. It lies in huge
 * pages where the system has them (a walk over it then misses the TLB 512 times less often), may be
 * spread over NUMA nodes and may be locked. Pages belong to the node of the thread that writes them
 * first, unless they are interleaved. */
#ifndef AVO_BASE_REGION_H
#define AVO_BASE_REGION_H

#include "base/status.h"

#define REGION_HUGE_BYTES ((size_t)2 << 20)
#define REGION_PAGE_BYTES ((size_t)4096)

typedef struct region_options {
    bool huge;           /* ask for huge pages */
    bool lock;           /* keep it in memory */
    uint64_t interleave; /* bit n: NUMA node n takes its turn; 0: first touch */
} region_options;

typedef struct region {
    const avo_allocator *allocator;
    uint8_t *data; /* at a multiple of 4096, of 2 MiB where it is as long as that */
    size_t bytes;
    bool huge;        /* the kernel has agreed; region_huge_bytes says how far it came */
    bool interleaved; /* the same of the nodes */
    bool locked;
} region;

/* What region_open takes for `bytes`: whole pages, huge ones where it is as long as that. False
 * when that wraps. */
bool region_round(size_t bytes, bool huge, size_t *rounded);

/* Huge pages and interleaving are wishes, and the region says what came of them; locking is not:
 * where it fails, so does this, naming the limit. Memory comes from `allocator`; without one, from
 * the system, untouched and cleared. `bytes` > 0. */
AVO_MUST_USE avo_status region_open(const avo_allocator *allocator, size_t bytes,
                                    const region_options *options, const char *what, region *out,
                                    avo_error *error);
/* A region of {0} is closed too. */
void region_close(region *region);

/* Locks pages that belong to somebody else (a mapped file), reading them in. The error names
 * RLIMIT_MEMLOCK where that is why. */
AVO_MUST_USE avo_status region_lock(const void *data, size_t bytes, const char *what,
                                    avo_error *error);

/* Bytes of [data, data + bytes) that lie in huge pages now (/proc/self/smaps); 0 where that is not
 * known. */
uint64_t region_huge_bytes(const void *data, size_t bytes);

typedef enum huge_pages {
    HUGE_PAGES_NONE,  /* switched off, or a kernel without them */
    HUGE_PAGES_ASKED, /* given to those who ask: madvise */
    HUGE_PAGES_ALWAYS /* given to everybody */
} huge_pages;
/* What the kernel offers, from sys/kernel/mm below `root` ("" for the real one). */
huge_pages huge_pages_under(const char *root);
const char *huge_pages_name(huge_pages pages);

#endif
