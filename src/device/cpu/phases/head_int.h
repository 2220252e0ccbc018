/* Inside fast/: the parts of the head that scratch must know. */
#ifndef AVO_DEVICE_CPU_PHASES_HEAD_INT_H
#define AVO_DEVICE_CPU_PHASES_HEAD_INT_H

#include "device/cpu/backend.h"
#include "device/cpu/group.h"

/* Logits that are looked at together. Chunks begin at fixed places, so that what is found in them
 * depends on nothing else. */
#define HEAD_CHUNK GROUP_PIECE

/* Of one row and chunk. */
typedef struct chunk_sum {
    float highest; /* −infinity where there is none */
    float sum;     /* Σ e^(logit − highest) */
} chunk_sum;

static inline size_t head_chunks(const model_view *model) {
    return ((size_t)model->vocabulary + HEAD_CHUNK - 1) / HEAD_CHUNK;
}

/* Shared scratch of one row of logits: sums of its chunks, and what each worker found. */
static inline size_t head_row_bytes(const model_view *model, uint32_t workers) {
    return head_chunks(model) * sizeof(chunk_sum) + workers * sizeof(logit_top);
}

/* What a rank sends of one row: how many of the highest logits it found, these, the target's, and
 * the sums of its chunks. */
static inline size_t head_sent_bytes(uint32_t top, size_t chunks) {
    return 2 * sizeof(uint32_t) + top * (sizeof(float) + sizeof(int32_t)) +
           chunks * sizeof(chunk_sum);
}
/* At most, of all ranks. */
static inline size_t head_exchange_bytes(const model_view *model, uint32_t ranks) {
    return ranks * head_sent_bytes(LOGIT_TOP_MAX, 0) + head_chunks(model) * sizeof(chunk_sum);
}

#endif
