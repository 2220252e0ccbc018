/* Perplexity: sums over what windows.c chooses. eval.h says what is counted. */
#include "eval/eval_int.h"

#include <math.h>

typedef struct perplexity_run {
    scorer scorer;
    const int32_t *tokens; /* of the window: tokens[position + 1] is what position predicts */
    eval_sums sums;        /* of −log p */
} perplexity_run;

static avo_status score(void *context, size_t position, const float *logits, avo_error *error) {
    perplexity_run *run = context;
    double value =
        eval_normaliser(logits, run->scorer.vocabulary) - logits[run->tokens[position + 1]];
    AVO_TRY(eval_check_number(value, position, error));
    eval_sums_add(&run->sums, value);
    return AVO_OK;
}

static avo_status score_window(void *context, const int32_t *tokens, size_t count,
                               size_t first_scored, avo_error *error) {
    perplexity_run *run = context;
    run->tokens = tokens;
    return scorer_window(&run->scorer, tokens, count, first_scored, score, run, error);
}

avo_status eval_perplexity(const avo_model *model, const int32_t *tokens, size_t count,
                           const eval_options *options, perplexity_result *result,
                           avo_error *error) {
    *result = (perplexity_result){0};
    AVO_TRY(windows_check(count, options, error));
    perplexity_run run = {0};
    AVO_TRY(scorer_open(&run.scorer, model, options, options->context, error));
    avo_status status = windows_walk(tokens, count, options, "perplexity", score_window, &run,
                                     &result->windows, error);
    scorer_close(&run.scorer);
    AVO_TRY(status);
    result->perplexity = exp(eval_sums_mean(&run.sums));
    result->error = eval_sums_error(&run.sums) * result->perplexity;
    result->tokens = run.sums.count;
    return AVO_OK;
}
