/* Perplexity: which tokens are scored, and the sums. eval.h says how and why. */
#include "eval/eval_int.h"

#include "base/allocator.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

/* Sums over all scored tokens. */
typedef struct tally {
    const int32_t *tokens; /* of the window: tokens[position + 1] is what position predicts */
    uint32_t vocabulary;
    double sum, sum_of_squares; /* of −log p */
    uint64_t count;
} tally;

/* −log softmax(logits)[token]. */
static double surprise(const float *logits, uint32_t vocabulary, int32_t token) {
    float highest = logits[0];
    for (uint32_t i = 1; i < vocabulary; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    return sample_log_sum(logits, vocabulary, highest) - ((double)logits[token] - (double)highest);
}

static avo_status score(void *context, size_t position, const float *logits, avo_error *error) {
    tally *tally = context;
    double value = surprise(logits, tally->vocabulary, tally->tokens[position + 1]);
    if (isnan(value))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "the logits at position %zu are not numbers: the weights are broken",
                           position);
    tally->sum += value;
    tally->sum_of_squares += value * value;
    tally->count++;
    return AVO_OK;
}

static void conclude(const tally *tally, uint64_t windows, perplexity_result *result) {
    double count = (double)tally->count;
    double mean = tally->sum / count;
    double variance = tally->sum_of_squares / count - mean * mean;
    result->perplexity = exp(mean);
    result->error = variance > 0.0 && tally->count > 1
                        ? sqrt(variance / (count - 1.0)) * result->perplexity
                        : 0.0;
    result->tokens = tally->count;
    result->windows = windows;
}

static avo_status report(const eval_options *options, uint64_t done, uint64_t total,
                         avo_error *error) {
    if (options->progress == NULL ||
        options->progress(options->progress_context, "perplexity", done, total))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CANCELLED, "cancelled after %llu of %llu windows",
                       (unsigned long long)done, (unsigned long long)total);
}

static uint64_t at_most(uint64_t count, uint32_t maximum) {
    return maximum != 0 && count > maximum ? maximum : count;
}

/* Windows side by side. The window is copied, because its first token may be replaced; the last
 * token is only predicted, never computed. */
static avo_status side_by_side(scorer *scorer, const int32_t *tokens, size_t count,
                               const eval_options *options, int32_t *window, tally *tally,
                               perplexity_result *result, avo_error *error) {
    size_t context = options->context;
    uint64_t windows = at_most(count / context, options->windows_max);
    tally->tokens = window;
    for (uint64_t w = 0; w < windows; w++) {
        AVO_TRY(report(options, w, windows, error));
        memcpy(window, tokens + w * context, context * sizeof(*window));
        if (options->begin >= 0)
            window[0] = options->begin;
        AVO_TRY(scorer_window(scorer, window, context - 1, context / 2, score, tally, error));
    }
    conclude(tally, windows, result);
    return report(options, windows, windows, error);
}

static avo_status sliding(scorer *scorer, const int32_t *tokens, size_t count,
                          const eval_options *options, tally *tally, perplexity_result *result,
                          avo_error *error) {
    size_t context = options->context;
    size_t stride = options->stride;
    uint64_t all = count <= context ? 1 : (count - context + stride - 1) / stride + 1;
    uint64_t windows = at_most(all, options->windows_max);
    size_t scored = 1; /* tokens before this one need no more scoring */
    for (uint64_t w = 0; w < windows; w++) {
        AVO_TRY(report(options, w, windows, error));
        size_t begin = w * stride;
        size_t end = begin + context < count ? begin + context : count;
        tally->tokens = tokens + begin;
        AVO_TRY(scorer_window(scorer, tokens + begin, end - begin - 1, scored - 1 - begin, score,
                              tally, error));
        scored = end;
    }
    conclude(tally, windows, result);
    return report(options, windows, windows, error);
}

static avo_status check(size_t count, const eval_options *options, avo_error *error) {
    if (options->context < 4)
        return status_fail(error, AVO_ERROR_ARGUMENT, "windows of %u tokens; at least 4",
                           options->context);
    if (options->stride >= options->context)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a stride of %u tokens leaves gaps between windows of %u; make it "
                           "smaller than the window",
                           options->stride, options->context);
    size_t needed = options->stride == 0 ? options->context : 2;
    if (count < needed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the text has %zu tokens, but %zu are needed; take a longer text or a "
                           "smaller window",
                           count, needed);
    return AVO_OK;
}

avo_status eval_perplexity(const avo_model *model, const int32_t *tokens, size_t count,
                           const eval_options *options, perplexity_result *result,
                           avo_error *error) {
    *result = (perplexity_result){0};
    AVO_TRY(check(count, options, error));
    scorer scorer;
    AVO_TRY(scorer_open(&scorer, model, options, options->context, error));
    tally tally = {.vocabulary = scorer.vocabulary};
    avo_status status;
    if (options->stride != 0) {
        status = sliding(&scorer, tokens, count, options, &tally, result, error);
    } else {
        size_t bytes = options->context * sizeof(int32_t);
        int32_t *window = allocator_take(NULL, bytes);
        status = window == NULL
                     ? status_no_memory(error, "a window of tokens", bytes)
                     : side_by_side(&scorer, tokens, count, options, window, &tally, result, error);
        allocator_give(NULL, window, bytes);
    }
    scorer_close(&scorer);
    return status;
}
