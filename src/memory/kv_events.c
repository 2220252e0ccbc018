/* The ring of events: see kv_events.h for who may call what.
 *
 * `written` and `taken` count events since the beginning. The writer stores an event before it
 * raises `written` (release), the reader copies it before it raises `taken`. `lost` is raised by
 * the writer and lowered by the reader: while it is 1 the writer drops everything, so the reader
 * finds the ring empty and can put KV_EVENT_CLEARED exactly where the gap is. */
#include "memory/kv_events.h"

#include "base/allocator.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct kv_events {
    const avo_allocator *allocator;
    kv_event *ring; /* [capacity] */
    uint32_t capacity;
    char (*labels)[KV_EVENT_LABEL_MAX]; /* [KV_EVENT_LABELS_MAX] written once each */
    uint32_t label_count;               /* the writer's */
    uint16_t label;                     /* the writer's: of blocks that come */
    int wake;
    _Alignas(64) atomic_uint_fast64_t written;
    atomic_uint_fast64_t dropped;
    atomic_bool lost;
    _Alignas(64) atomic_uint_fast64_t taken;
    atomic_bool asleep;
};

avo_status kv_events_open(uint32_t capacity, const avo_allocator *allocator, kv_events **out,
                          avo_error *error) {
    *out = NULL;
    kv_events *events = allocator_take_array(allocator, 1, sizeof(*events));
    if (events == NULL)
        return status_no_memory(error, "KV events", sizeof(*events));
    events->allocator = allocator;
    events->capacity = capacity;
    events->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (events->wake < 0) {
        int reason = errno;
        kv_events_close(events);
        return status_fail(error, AVO_ERROR_IO, "KV events: cannot create an eventfd: %s",
                           strerror(reason));
    }
    events->ring = allocator_take(allocator, capacity * sizeof(*events->ring));
    events->labels = allocator_take_array(allocator, KV_EVENT_LABELS_MAX, KV_EVENT_LABEL_MAX);
    events->label_count = 1; /* "" */
    if (events->ring == NULL || events->labels == NULL) {
        kv_events_close(events);
        return status_no_memory(error, "KV events", capacity * sizeof(kv_event));
    }
    *out = events;
    return AVO_OK;
}

void kv_events_close(kv_events *events) {
    if (events == NULL)
        return;
    const avo_allocator *allocator = events->allocator;
    if (events->wake >= 0)
        close(events->wake);
    allocator_give(allocator, events->ring, events->capacity * sizeof(*events->ring));
    allocator_give(allocator, events->labels, (size_t)KV_EVENT_LABELS_MAX * KV_EVENT_LABEL_MAX);
    allocator_give(allocator, events, sizeof(*events));
}

/* ---- The writer ---- */

uint16_t kv_events_label(kv_events *events, const char *text) {
    size_t size = strlen(text) + 1;
    for (uint32_t i = 0; i < events->label_count; i++)
        if (strcmp(events->labels[i], text) == 0)
            return (uint16_t)i;
    if (size > KV_EVENT_LABEL_MAX || events->label_count == KV_EVENT_LABELS_MAX)
        return 0;
    memcpy(events->labels[events->label_count], text, size);
    return (uint16_t)events->label_count++;
}

void kv_events_use_label(kv_events *events, uint16_t label) {
    events->label = label;
}

/* The event to fill, NULL: there is no room. */
static kv_event *next_event(kv_events *events) {
    uint64_t written = atomic_load_explicit(&events->written, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&events->taken, memory_order_acquire);
    bool lost = atomic_load_explicit(&events->lost, memory_order_acquire);
    if (!lost && written - taken < events->capacity)
        return &events->ring[written % events->capacity];
    atomic_fetch_add_explicit(&events->dropped, 1, memory_order_relaxed);
    if (!lost)
        atomic_store_explicit(&events->lost, true, memory_order_release);
    return NULL;
}

static void raise_written(kv_events *events) {
    uint64_t written = atomic_load_explicit(&events->written, memory_order_relaxed);
    atomic_store_explicit(&events->written, written + 1, memory_order_release);
}

void kv_events_stored(kv_events *events, uint64_t block, const uint64_t *parent,
                      const int32_t *tokens) {
    kv_event *event = next_event(events);
    if (event == NULL)
        return;
    event->kind = KV_EVENT_STORED;
    event->block = block;
    event->has_parent = parent != NULL;
    event->parent = parent == NULL ? 0 : *parent;
    event->label = events->label;
    memcpy(event->tokens, tokens, sizeof(event->tokens));
    raise_written(events);
}

void kv_events_removed(kv_events *events, uint64_t block) {
    kv_event *event = next_event(events);
    if (event == NULL)
        return;
    event->kind = KV_EVENT_REMOVED;
    event->block = block;
    event->has_parent = false;
    event->parent = 0;
    event->label = 0;
    raise_written(events);
}

void kv_events_flush(kv_events *events) {
    /* `written` once more and then `asleep`, both in the one order of all such operations; the
     * reader writes `asleep` and then looks at `written`. So one of both sees what the other has
     * written. */
    uint64_t one = 1;
    atomic_store(&events->written, atomic_load_explicit(&events->written, memory_order_relaxed));
    if (atomic_load(&events->asleep) && atomic_exchange(&events->asleep, false))
        (void)!write(events->wake, &one, sizeof(one));
}

/* ---- The reader ---- */

int kv_events_descriptor(const kv_events *events) {
    return events->wake;
}

uint32_t kv_events_take(kv_events *events, kv_event *out, uint32_t capacity) {
    uint32_t count = 0;
    uint64_t taken = atomic_load_explicit(&events->taken, memory_order_relaxed);
    /* Before `written`: what was written before the loss is seen, and nothing comes behind it. */
    bool lost = atomic_load_explicit(&events->lost, memory_order_acquire);
    uint64_t written = atomic_load_explicit(&events->written, memory_order_acquire);
    for (; taken < written && count < capacity; taken++)
        out[count++] = events->ring[taken % events->capacity];
    atomic_store_explicit(&events->taken, taken, memory_order_release);
    if (lost && taken == written && count < capacity) {
        out[count++] = (kv_event){.kind = KV_EVENT_CLEARED};
        atomic_store_explicit(&events->lost, false, memory_order_release);
    }
    return count;
}

bool kv_events_sleep(kv_events *events) {
    atomic_store(&events->asleep, true);
    if (atomic_load(&events->written) ==
            atomic_load_explicit(&events->taken, memory_order_relaxed) &&
        !atomic_load_explicit(&events->lost, memory_order_acquire))
        return true;
    atomic_store(&events->asleep, false);
    return false;
}

const char *kv_events_label_text(const kv_events *events, uint16_t label) {
    return events->labels[label < KV_EVENT_LABELS_MAX ? label : 0];
}

uint64_t kv_events_dropped(const kv_events *events) {
    return atomic_load_explicit(&events->dropped, memory_order_relaxed);
}
