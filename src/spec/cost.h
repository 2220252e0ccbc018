/* What a step costs, learned from steps that were timed. The scheduler plans with it, and
 * speculation decides with it how many draft tokens are worth a row. Pure: no clock, no threads. */
#ifndef AVO_SPEC_COST_H
#define AVO_SPEC_COST_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds of a step. Its rows cost what a table says: a few rows are read from memory in the
 * time of one, many are arithmetic, and where one turns into the other depends on the machine and
 * on the types of the weights, with jumps at the kernels' tile sizes. Between the table's points
 * the cost is interpolated, beyond the last one it grows in proportion. The driver learns the
 * numbers from steps it has timed; the simulation has its own, with noise. */
#define STEP_COST_POINTS 17
extern const uint32_t step_cost_rows[STEP_COST_POINTS]; /* 1, 2, 3, 4, 5, 6, 8, 12, 16 … 512 */

typedef struct step_cost {
    double step[STEP_COST_POINTS]; /* of so many rows, whatever they are */
    double context_token;          /* each position that a row attends to */
    double draft_token;            /* the same of draft rows, which share K and V with the row that
                                      is verified with them */
    double adapter;                /* each distinct adapter in the step */
    double scored_row;             /* each row of a chunk that has logits, besides */
    double hope[STEP_COST_POINTS]; /* part by which a point is taken to be cheaper than it was */
    uint32_t learned;              /* bit i: steps have taught point i; the others follow */
} step_cost;

typedef struct step_load {
    uint32_t decode_rows, draft_rows, prefill_rows;
    uint32_t adapters;
    uint64_t context_tokens; /* of decode and prefill rows */
    uint64_t draft_tokens;   /* of draft rows */
    uint32_t scored_rows;    /* of the prefill rows */
} step_load;

static inline uint32_t step_load_rows(const step_load *load) {
    return load->decode_rows + load->draft_rows + load->prefill_rows;
}

/* A table through measured steps, in order of their rows; the rest of a cost is left as it is.
 * Before the first a step costs as much as there, behind the last it goes on as between the last
 * two. */
typedef struct step_cost_point {
    uint32_t rows;
    double ns;
} step_cost_point;
void step_cost_fit(step_cost *cost, const step_cost_point *points, size_t count);
/* The simplest table: a step of one row, what each row up to 16 adds, and each beyond. */
void step_cost_line(step_cost *cost, double step, double row, double many_row);

/* A step of so many rows, without context and adapters; 0 rows: 0. */
double step_cost_step(const step_cost *cost, uint32_t rows);
double step_cost_of(const step_cost *cost, const step_load *load);
/* Moves the numbers towards what a step took. */
void step_cost_learn(step_cost *cost, const step_load *load, double nanoseconds);
/* A step of so many rows was made. Steps of more rows, up to 16, are taken to be a little cheaper
 * until one is made, but never cheaper than fewer rows: one that was interrupted once would
 * otherwise keep its price for ever, because nobody chooses it and learns better. */
void step_cost_hope(step_cost *cost, uint32_t rows);
/* Everything takes `factor` times as long. */
void step_cost_scale(step_cost *cost, double factor);

#endif
