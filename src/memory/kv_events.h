/* A log of what the prefix index learns and forgets, for gateways that route requests to the
 * replica that has their prefix (server/kv_publish.h sends it).
 *
 * One writer, the thread that changes pages; one reader, another thread; no lock. The log is a ring
 * of fixed size. Where the reader is too slow, events are dropped, never the writer delayed: the
 * reader then gets what was there before and one KV_EVENT_CLEARED, after which nothing is known of
 * this index but what follows.
 *
 * Blocks are full pages. The name of a block is a hash of the root key, all tokens before it and
 * its own, so blocks of one prefix form a chain and equal prefixes have equal names within a
 * process.
 */
#ifndef AVO_MEMORY_KV_EVENTS_H
#define AVO_MEMORY_KV_EVENTS_H

#include "base/status.h"
#include "device/layer.h" /* KV_PAGE_TOKENS */

#include <stdbool.h>

#define KV_EVENTS_RING      16384u /* events that may wait for the reader */
#define KV_EVENT_LABELS_MAX 256u   /* different labels; the first one is "" */
#define KV_EVENT_LABEL_MAX  256u   /* bytes of one, with its end */

typedef enum kv_event_kind {
    KV_EVENT_STORED,  /* the index knows the block now */
    KV_EVENT_REMOVED, /* it does not any more */
    KV_EVENT_CLEARED  /* forget all blocks: events were lost */
} kv_event_kind;

typedef struct kv_event {
    uint64_t block, parent;
    uint16_t label; /* of the adapters that K and V depend on */
    uint8_t kind;   /* kv_event_kind */
    bool has_parent;
    int32_t tokens[KV_PAGE_TOKENS]; /* of a stored block */
} kv_event;

typedef struct kv_events kv_events;

AVO_MUST_USE avo_status kv_events_open(uint32_t capacity, const avo_allocator *allocator,
                                       kv_events **out, avo_error *error);
void kv_events_close(kv_events *events);

/* ---- The writer ---- */

/* The number of a label: the same text has the same one. 0, which is "", where there are too many
 * of them or the text is too long. */
uint16_t kv_events_label(kv_events *events, const char *text);
/* The label of blocks that are stored from here on. */
void kv_events_use_label(kv_events *events, uint16_t label);
void kv_events_stored(kv_events *events, uint64_t block, const uint64_t *parent,
                      const int32_t *tokens);
void kv_events_removed(kv_events *events, uint64_t block);
/* Behind some events: wakes the reader where it sleeps, by one system call. */
void kv_events_flush(kv_events *events);

/* ---- The reader ---- */

/* An eventfd that can be read once the writer has woken the reader; the log's own. */
int kv_events_descriptor(const kv_events *events);
/* Up to `capacity` events in their order. */
uint32_t kv_events_take(kv_events *events, kv_event *out, uint32_t capacity);
/* The reader is about to sleep. False: do not, there is something to take. */
bool kv_events_sleep(kv_events *events);
/* The text of a label of an event that was taken; lives as long as the log. */
const char *kv_events_label_text(const kv_events *events, uint16_t label);
/* Events that were dropped so far. */
uint64_t kv_events_dropped(const kv_events *events);

#endif
