/* A ring of spans: see ring.h for why it needs no lock.
 *
 * A slot: begin, nanoseconds; length (56 bits) and kind (8); id; a (32) and b (32). */
#include "telemetry/ring.h"

#include "base/allocator.h"

#define LENGTH_MAX (((uint64_t)1 << 56) - 1)
#define READ_TRIES 100 /* of a reader that is overtaken each time */

avo_status span_ring_open(span_ring *ring, uint32_t size, const avo_allocator *allocator,
                          avo_error *error) {
    *ring = (span_ring){.size = size};
    size_t bytes = (size_t)size * sizeof(*ring->slots);
    ring->slots = allocator_take(allocator, bytes); /* not cleared: nobody reads unwritten ones */
    if (ring->slots == NULL)
        return status_no_memory(error, "spans", bytes);
    return AVO_OK;
}

void span_ring_close(span_ring *ring, const avo_allocator *allocator) {
    allocator_give(allocator, ring->slots, (size_t)ring->size * sizeof(*ring->slots));
    ring->slots = NULL;
}

void span_ring_add(span_ring *ring, const telemetry_span *span) {
    uint64_t index = atomic_load_explicit(&ring->written, memory_order_relaxed);
    _Atomic uint64_t *slot = ring->slots[index % ring->size];
    uint64_t length = span->end_ns > span->begin_ns ? span->end_ns - span->begin_ns : 0;
    length = length < LENGTH_MAX ? length : LENGTH_MAX;
    atomic_store_explicit(&ring->begun, index + 1, memory_order_relaxed);
    atomic_store_explicit(&slot[0], span->begin_ns, memory_order_release);
    atomic_store_explicit(&slot[1], length << 8 | (uint64_t)span->kind, memory_order_release);
    atomic_store_explicit(&slot[2], span->id, memory_order_release);
    atomic_store_explicit(&slot[3], (uint64_t)span->a << 32 | span->b, memory_order_release);
    atomic_store_explicit(&ring->written, index + 1, memory_order_release);
}

static void slot_read(_Atomic uint64_t *slot, telemetry_span *span) {
    uint64_t word[SPAN_WORDS];
    for (size_t i = 0; i < SPAN_WORDS; i++)
        word[i] = atomic_load_explicit(&slot[i], memory_order_acquire);
    *span = (telemetry_span){.begin_ns = word[0],
                             .end_ns = word[0] + (word[1] >> 8),
                             .kind = (span_kind)(word[1] & 0xff),
                             .id = word[2],
                             .a = (uint32_t)(word[3] >> 32),
                             .b = (uint32_t)word[3]};
}

uint32_t span_ring_read(span_ring *ring, uint64_t *from, telemetry_span *spans, uint32_t capacity) {
    for (int try = 0; try < READ_TRIES; try++) {
        uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
        uint64_t oldest = written > ring->size ? written - ring->size : 0;
        uint64_t first = *from > oldest ? *from : oldest;
        uint64_t left = written - first;
        uint32_t count = left < capacity ? (uint32_t)left : capacity;
        if (count == 0)
            return 0;
        for (uint32_t i = 0; i < count; i++)
            slot_read(ring->slots[(first + i) % ring->size], &spans[i]);
        uint64_t begun = atomic_load_explicit(&ring->begun, memory_order_relaxed);
        uint64_t believed = begun > ring->size ? begun - ring->size : 0;
        *from = first + count;
        if (believed <= first)
            return count;
        if (believed >= first + count)
            continue; /* all of them were overwritten: what is there now is newer */
        uint32_t lost = (uint32_t)(believed - first);
        for (uint32_t i = lost; i < count; i++)
            spans[i - lost] = spans[i];
        return count - lost;
    }
    return 0;
}
