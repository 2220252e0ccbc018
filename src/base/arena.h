/* Memory that lives and dies together: what a loader keeps. Not for threads to share. */
#ifndef AVO_BASE_ARENA_H
#define AVO_BASE_ARENA_H

#include "base/allocator.h"
#include "base/status.h"

typedef struct arena_block arena_block;

typedef struct arena {
    const avo_allocator *allocator;
    arena_block *blocks; /* newest first */
    size_t used_bytes;   /* taken from the allocator so far */
    size_t limit_bytes;  /* at most this much; SIZE_MAX: no limit of its own */
    bool limit_hit;      /* a request failed because of it, not for want of memory */
} arena;

void arena_init(arena *arena, const avo_allocator *allocator, size_t limit_bytes);
void arena_free(arena *arena);
/* Empty again, with the newest block kept for what comes next: for work that repeats. */
void arena_reset(arena *arena);

/* Cleared memory, aligned to 16 (64 from 1 KiB on). NULL when there is none, or the limit is hit,
 * or size is 0. */
void *arena_take(arena *arena, size_t size);
void *arena_take_array(arena *arena, size_t count, size_t size);
/* A terminated copy of bytes. */
char *arena_copy_text(arena *arena, const char *text, size_t bytes);

#endif
