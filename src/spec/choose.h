/* How many draft tokens each sequence of a step verifies.
 *
 * A step that verifies takes longer and gives more tokens. Rows go to the likeliest drafts first,
 * over all sequences, and as many are taken as give the most expected tokens per nanosecond; none
 * if none pays. A draft is only as likely as all before it, so the likeliest rows of a sequence are
 * its first ones. Costs need not grow evenly with the rows (kernels have tile sizes), so every
 * number of rows is tried and not only the next one. */
#ifndef AVO_SPEC_CHOOSE_H
#define AVO_SPEC_CHOOSE_H

#include "spec/cost.h"
#include "spec/spec.h"

typedef struct choose_item {
    const float *survival; /* [most], falling */
    uint32_t most;
    uint32_t context; /* tokens that the first draft attends to, without itself */
    bool always;      /* all of them, as far as limits allow, whatever they are worth */
    uint32_t chosen;  /* the outcome */
} choose_item;

typedef struct choose_limits {
    uint32_t rows;      /* draft rows that the step has left */
    double step_ns_max; /* that a step with drafts may take; 0: any time */
    double tokens;      /* expected of the step without drafts */
    double other_ns;    /* of the step's time that is not spent for these tokens: prompts. With it,
                           a token would seem dear, and any draft worth its row */
} choose_limits;

/* `load` is the step without drafts. */
void choose_drafts(choose_item *items, uint32_t count, const choose_limits *limits,
                   const step_cost *cost, const step_load *load);

/* Whether any number of draft rows would raise the rate if nearly all of them were right. Where
 * none would, nobody need look for drafts. */
bool choose_may_pay(const choose_limits *limits, const step_cost *cost, const step_load *load);

/* Adds the draft row number `number` (from 0) of a sequence to a load. */
void choose_load(step_load *load, uint32_t context, uint32_t number);

#endif
