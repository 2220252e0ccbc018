/* Between the files of eval/: an engine with one session that is fed window by window. */
#ifndef AVO_EVAL_EVAL_INT_H
#define AVO_EVAL_EVAL_INT_H

#include "eval/eval.h"

typedef struct scorer {
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    uint32_t vocabulary;
    uint32_t rows_max;   /* of a step without logits */
    uint32_t scored_max; /* of a step with logits: bounded by the memory that logits take */
} scorer;

AVO_MUST_USE avo_status scorer_open(scorer *scorer, const avo_model *model,
                                    const eval_options *options, uint32_t context,
                                    avo_error *error);
void scorer_close(scorer *scorer);

/* ---- scorer.c ---- */

/* Called with the logits behind each scored token of a window, in order. */
typedef avo_status (*scorer_function)(void *context, size_t position, const float *logits,
                                      avo_error *error);

/* Forgets everything, computes tokens[0…count) and gives the logits of positions from
 * `first_scored` on. */
AVO_MUST_USE avo_status scorer_window(scorer *scorer, const int32_t *tokens, size_t count,
                                      size_t first_scored, scorer_function take, void *context,
                                      avo_error *error);

/* The same in pieces, for models that are fed side by side: forgets everything, then computes some
 * tokens, at most rows_max without logits and scored_max with. */
AVO_MUST_USE avo_status scorer_begin(scorer *scorer, avo_error *error);
AVO_MUST_USE avo_status scorer_compute(scorer *scorer, const int32_t *tokens, size_t count,
                                       bool scored, avo_error *error);
/* Behind token `index` of what was computed last. */
AVO_MUST_USE avo_status scorer_logits(const scorer *scorer, size_t index, const float **logits,
                                      avo_error *error);

/* ---- windows.c ---- */

/* Computes tokens[0…count) and scores the positions from `first_scored` on, each against the token
 * behind it: tokens[count] is there too. */
typedef avo_status (*window_function)(void *context, const int32_t *tokens, size_t count,
                                      size_t first_scored, avo_error *error);
/* Whether there is at least one window. */
AVO_MUST_USE avo_status windows_check(size_t count, const eval_options *options, avo_error *error);
AVO_MUST_USE avo_status windows_walk(const int32_t *tokens, size_t count,
                                     const eval_options *options, const char *what,
                                     window_function score, void *context, uint64_t *windows,
                                     avo_error *error);

/* ---- sums.c ---- */

typedef struct eval_sums {
    double sum, sum_of_squares;
    uint64_t count;
} eval_sums;
void eval_sums_add(eval_sums *sums, double value);
double eval_sums_mean(const eval_sums *sums);
/* The standard error of the mean. */
double eval_sums_error(const eval_sums *sums);

/* log Σ e^logit. */
double eval_normaliser(const float *logits, uint32_t vocabulary);
/* Refuses a NaN. */
AVO_MUST_USE avo_status eval_check_number(double value, size_t position, avo_error *error);

#endif
