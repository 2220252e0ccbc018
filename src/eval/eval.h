/* Measuring a model: logits at every position, and perplexity.
 *
 * Perplexity by default counts exactly as llama.cpp's perplexity tool does, so that figures can be
 * compared: the text's tokens are cut into windows of `context` tokens that do not overlap, and a
 * rest is left out; where the tokenizer adds a begin token, the first token of every window is
 * replaced by it; the first half of a window is context only, and the tokens behind position
 * context / 2 are scored, context − context / 2 − 1 in each window. The error is the standard error
 * of the mean, carried through the exponential: perplexity × √(variance / (tokens − 1)).
 *
 * With a stride it is the sliding window of Hugging Face's documentation: windows of `context`
 * tokens begin `stride` tokens apart, and each scores only the tokens that no window before it has
 * scored; the very first token is never scored. Nothing is replaced and the rest is included.
 */
#ifndef AVO_EVAL_EVAL_H
#define AVO_EVAL_EVAL_H

#include "base/status.h"

typedef struct eval_options {
    uint32_t context;     /* of the engine; 0: as many tokens as are needed */
    uint32_t chunk;       /* rows of one step; 0: 256 at most */
    uint32_t stride;      /* perplexity only; 0: windows as llama.cpp */
    uint32_t windows_max; /* perplexity only; 0: all */
    int32_t begin; /* perplexity only: the begin token that tokenizing puts in front, −1: none */
    avo_progress_function progress; /* NULL: silent */
    void *progress_context;
    /* Threads, KV type, instruction set and placement; the evaluation sets sizes itself. Its `size`
     * need not be set. */
    avo_engine_options engine;
    const char *reference_kv_type; /* kl only: of the reference; NULL: as the model's */
} eval_options;

typedef struct perplexity_result {
    double perplexity;
    double error;
    uint64_t tokens;  /* scored */
    uint64_t windows; /* computed */
} perplexity_result;

/* `tokens` as the whole text gives them, begin token in front where the tokenizer adds one.
 * Fewer tokens than one window (2 with a stride): AVO_ERROR_ARGUMENT. */
AVO_MUST_USE avo_status eval_perplexity(const avo_model *model, const int32_t *tokens, size_t count,
                                        const eval_options *options, perplexity_result *result,
                                        avo_error *error);

/* How far a model's predictions are from those of a reference with the same vocabulary, over the
 * tokens that perplexity would score: KL(reference ‖ model) of each. Errors are standard errors of
 * the means; that of the ratio is of the paired differences, so it is far smaller than those of the
 * perplexities. Both models compute the same few rows in turn: no more than two blocks of logits
 * are held, and one float for each scored token. */
typedef struct kl_result {
    double mean, mean_error;
    double median, p99, max;
    double top1, top1_error; /* share of tokens where both have the same favourite */
    perplexity_result model, reference;
    double ratio, ratio_error; /* of the perplexities, model / reference */
} kl_result;

AVO_MUST_USE avo_status eval_kl(const avo_model *model, const avo_model *reference,
                                const int32_t *tokens, size_t count, const eval_options *options,
                                kl_result *result, avo_error *error);

/* Gets the logits of positions 0, 1, 2, … in turn, `vocabulary` floats each. */
typedef avo_status (*eval_logits_function)(void *context, const float *logits, uint32_t vocabulary,
                                           avo_error *error);
AVO_MUST_USE avo_status eval_logits(const avo_model *model, const int32_t *tokens, size_t count,
                                    const eval_options *options, eval_logits_function take,
                                    void *take_context, avo_error *error);

/* The same into a NumPy file, version 1.0: float32, shape (count, vocabulary). */
AVO_MUST_USE avo_status eval_logits_npy(const avo_model *model, const int32_t *tokens, size_t count,
                                        const eval_options *options, const char *path,
                                        avo_error *error);

#endif
