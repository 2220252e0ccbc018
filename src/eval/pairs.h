/* Two models on the same items: how often each alone is right, the difference of their scores with
 * its 95 % interval, and how likely a difference at least as large is when both are equally good.
 *
 * Both answer the same items, so the error of the difference comes from the items where they differ
 * and is far smaller than that of either score. Pairs of several tasks can be added up. */
#ifndef AVO_EVAL_PAIRS_H
#define AVO_EVAL_PAIRS_H

#include "base/json_writer.h"

typedef struct eval_pairs {
    uint64_t items;
    uint64_t gained; /* right with the model, wrong with the other */
    uint64_t lost;   /* the other way */
    double sum, other_sum;
    double difference, difference_squares; /* sums over the items */
} eval_pairs;

/* Scores of one item. */
void pairs_add(eval_pairs *pairs, double score, double other);
void pairs_merge(eval_pairs *pairs, const eval_pairs *more);

typedef struct pairs_result {
    double score, other; /* means */
    double difference;   /* score − other */
    double low, high;    /* 95 % interval of it; of one item the numbers are NaN */
    double p;            /* McNemar's exact test, two-sided */
} pairs_result;

pairs_result pairs_conclude(const eval_pairs *pairs);
/* The members of an object. */
void pairs_write(json_writer *w, const eval_pairs *pairs);

#endif
