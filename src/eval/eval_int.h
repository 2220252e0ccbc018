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

/* Called with the logits behind each scored token of a window, in order. */
typedef avo_status (*scorer_function)(void *context, size_t position, const float *logits,
                                      avo_error *error);

/* Forgets everything, computes tokens[0…count) and gives the logits of positions from
 * `first_scored` on. */
AVO_MUST_USE avo_status scorer_window(scorer *scorer, const int32_t *tokens, size_t count,
                                      size_t first_scored, scorer_function take, void *context,
                                      avo_error *error);

#endif
