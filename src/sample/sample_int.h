/* Between the files of sample/: the set of tokens that filters narrow. */
#ifndef AVO_SAMPLE_SAMPLE_INT_H
#define AVO_SAMPLE_SAMPLE_INT_H

#include "device/layer.h"
#include "device/logits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens still in the race, in order of ids; arrays of `vocabulary` entries. */
typedef struct candidate_set {
    int32_t *ids;
    float *scores;  /* logits after bias and penalties */
    float *weights; /* e^((score − highest) / temperature): the likeliest has 1; after top-k */
    uint32_t *keys; /* scratch of the filters: the order they walk in */
    size_t count;
    const logit_loops *loops;
} candidate_set;

/* Each removes candidates and keeps the order. Weights are valid from candidates_weigh on. */
void candidates_top_k(candidate_set *set, uint32_t k);
void candidates_weigh(candidate_set *set, float highest, float temperature);
void candidates_top_p(candidate_set *set, float p);
void candidates_min_p(candidate_set *set, float p);
void candidates_typical(candidate_set *set, float p, float highest, float temperature);
/* The sum of all weights, block by block: candidates_pick walks the same blocks. */
double candidates_total(const candidate_set *set);
/* The place of the candidate at `uniform`, in [0, 1), of the cumulated weights. */
size_t candidates_pick(const candidate_set *set, double uniform);

/* Fills the set with what top-p and min-p (one of them at least narrows) leave of a vocabulary,
 * with weights, from its highest logits; false: these do not decide it. */
bool candidates_narrow(candidate_set *set, const logit_top *top, uint32_t vocabulary,
                       float temperature, float top_p, float min_p);

/* Natural logarithm of a positive finite number (NaN for any other), ours for the same bits with
 * every C library. */
double sample_log(double x);

#endif
