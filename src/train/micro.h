/* Data-parallel training: the ranks of a job (device/ranks/transport.h) compute the micro-batches
 * of a step, each with the whole model.
 *
 * A micro-batch is `micro-batch` consecutive samples. Its gradient is summed by one rank from 0, in
 * the order of core.h; then every rank gets the gradients of all micro-batches and adds them in
 * their order. So each rank has the same sum, makes the same update, and needs nobody's weights;
 * and the sum is the same for any number of ranks, one process alone included. It is not the sum of
 * a run without `micro-batch`, which adds samples to what is there.
 *
 * Metrics are summed in the same way. Rank 0 alone writes files and reports; it says after every
 * step whether the run goes on. A rank that leaves or does not answer in time fails the call at
 * hand on all others with AVO_ERROR_DEVICE; the newest checkpoint continues with any number of
 * ranks. Called by the loop and by sft.c. */
#ifndef AVO_TRAIN_MICRO_H
#define AVO_TRAIN_MICRO_H

#include "train/run_int.h"

#define MICRO_SUMS_MAX 8 /* numbers of a micro-batch besides its gradient */

/* Samples [0, count) of something: computed as a whole, or in micro-batches. */
typedef struct micro_work {
    uint64_t count;
    bool learns; /* gradients are added to those of the core */
    /* Samples [first, first + count): adds their gradients, and their numbers to `sums`. */
    avo_status (*compute)(train_run_state *run, void *context, uint64_t first, uint64_t count,
                          double *sums);
    void *context;
    double *sums; /* [sum_count] */
    uint32_t sum_count;
} micro_work;
AVO_MUST_USE avo_status micro_compute(train_run_state *run, const micro_work *work);

/* Takes scratch; refuses tasks that are not divided. */
AVO_MUST_USE avo_status micro_open(train_run_state *run);
void micro_close(train_run_state *run);
/* Bytes of the scratch. */
uint64_t micro_bytes(const train_run_state *run);

/* Rank 0 gives a number to all others. */
AVO_MUST_USE avo_status micro_tell(const train_run_state *run, uint64_t *number);
/* Before the first step: all ranks have the same model, data, settings and weights. */
AVO_MUST_USE avo_status micro_compare(train_run_state *run);

static inline bool micro_leads(const train_run_state *run) {
    return run->options->transport == NULL || run->options->transport->rank == 0;
}
static inline uint32_t micro_count(const train_run_state *run) {
    return run->options->transport == NULL ? 1 : run->options->transport->ranks;
}

#endif
