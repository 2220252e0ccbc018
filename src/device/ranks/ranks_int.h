/* Inside the device of ranks: device.c has rank 0's device, its memory, weights and adapters,
 * stream.c its steps, worker.c the loop of the other ranks. */
#ifndef AVO_DEVICE_RANKS_INT_H
#define AVO_DEVICE_RANKS_INT_H

#include "base/arena.h"
#include "device/cpu/cpu.h"
#include "device/driver.h"
#include "device/ranks/message.h"
#include "device/ranks/ranks.h"

/* ---- What was asked for ---- */

#define RANKS_TIMEOUT_MS  30000  /* until a rank counts as dead within a step */
#define RANKS_OPENING_MS  600000 /* opening a model, whose file may come from a slow disk */
#define RANKS_TIMEOUT_MAX 86400000

typedef struct ranks_wish {
    const device_driver *inner;
    uint32_t ranks; /* 0: as many as there are */
    bool by_layers;
    uint64_t timeout_ms;
    ranks_trouble trouble;
} ranks_wish;
/* "3,avx2,layers,timeout=5" */
AVO_MUST_USE avo_status ranks_read_wish(const char *device, const char *parameters,
                                        ranks_wish *wish, avo_error *error);

/* ---- Rank 0's device ---- */

typedef struct ranks_weights {
    device_weights base;
    device_weights *inner;
    bool spread; /* all ranks have their parts */
    uint32_t layers_stored;
} ranks_weights;

typedef struct ranks_device {
    device base;
    device *inner; /* the CPU device that computes rank 0's part */
    cpu_group group;
    ranks_wish wish;
    uint32_t threads; /* of each rank; 0: each decides */
    const char *huge_pages, *pin;
    bool lock;
    const ranks_carrier *carrier;
    transport *transport; /* NULL while the others have not been needed */
    void *world;          /* the carrier's */
    message message;
    message_answer answer[GROUP_RANKS_MAX];
    avo_status lost; /* AVO_OK: all ranks are there */
    avo_error lost_error;
    /* What the last step used, so that pages can be collected. */
    uint64_t kv_memory; /* 0: nothing */
    kv_type kv_type;
    size_t page_bytes;
    const size_t *layer_offset;
    const ranks_weights *kv_weights;
} ranks_device;

typedef struct ranks_stream {
    device_stream base;
    device_stream *inner;
} ranks_stream;

static inline ranks_device *ranks_of(device *device) {
    return (ranks_device *)(void *)device;
}
static inline uint64_t number_of(const void *object) {
    return (uint64_t)(uintptr_t)object;
}
static inline uint64_t ranks_timeout_ns(const ranks_device *ranks) {
    return ranks->wish.timeout_ms * 1000000;
}

/* Sends the message that was begun in ranks->message; a failure loses the other ranks. */
AVO_MUST_USE avo_status ranks_send(ranks_device *ranks, avo_error *error);
/* Waits for all answers: the first error among them. */
AVO_MUST_USE avo_status ranks_answers(ranks_device *ranks, uint64_t timeout_ms, avo_error *error);
/* Both. */
AVO_MUST_USE avo_status ranks_ask(ranks_device *ranks, uint64_t timeout_ms, avo_error *error);
/* A call that failed between ranks: none can follow. */
avo_status ranks_lose(ranks_device *ranks, avo_status status, const avo_error *error);

extern const stream_operations ranks_stream_operations;

/* What a worker gets with MESSAGE_OPEN_DEVICE and MESSAGE_OPEN_WEIGHTS. */
#define RANKS_PROTOCOL 1
typedef struct ranks_opening {
    uint64_t device;
    uint32_t protocol, structure_bytes; /* of the program that rank 0 runs */
    uint32_t threads, by_layers, lock, unused;
    uint64_t timeout_ms;
    ranks_trouble trouble;
} ranks_opening;

typedef struct ranks_weights_opening {
    uint64_t weights, device, check;
    uint32_t rows_max, logits_max, head_rows, context_max, adapter_rank_max, pairs_max, taps;
    uint32_t rotary_tables;
} ranks_weights_opening;

/* Tells whether two ranks have opened the same weights: shapes, types and the first bytes of every
 * matrix. */
uint64_t ranks_weights_check(const model_view *model);

/* Workers of a rank. */
uint32_t ranks_threads(uint32_t asked, uint32_t here);

#endif
