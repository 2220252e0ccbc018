/* The newest spans of one thread. One writer, any number of readers, no lock: a reader may find
 * that what it was reading has been overwritten meanwhile, and leaves that out.
 *
 * Every word of a slot is stored with release and loaded with acquire, behind `begun`, which is
 * raised before a slot is written: a reader that has seen any word of a newer span also sees
 * `begun` raised for it, and knows which slots it must not believe. On x86-64 these are plain
 * moves.
 */
#ifndef AVO_TELEMETRY_RING_H
#define AVO_TELEMETRY_RING_H

#include "telemetry/telemetry.h"

#include <stdatomic.h>

#define SPAN_WORDS 4

typedef struct span_ring {
    _Atomic uint64_t (*slots)[SPAN_WORDS]; /* [size] */
    uint32_t size;
    _Atomic uint64_t begun, written; /* spans, since it was opened */
} span_ring;

AVO_MUST_USE avo_status span_ring_open(span_ring *ring, uint32_t size,
                                       const avo_allocator *allocator, avo_error *error);
void span_ring_close(span_ring *ring, const avo_allocator *allocator);
void span_ring_add(span_ring *ring, const telemetry_span *span);
/* Spans from `*from` on (0: the oldest there is), up to `capacity` of them, oldest first; raises
 * *from to where the next call goes on. Returns how many; 0: there are no more, or
 * the writer is too fast for any. Spans that were
 * overwritten while they were read are left out. */
uint32_t span_ring_read(span_ring *ring, uint64_t *from, telemetry_span *spans, uint32_t capacity);

#endif
