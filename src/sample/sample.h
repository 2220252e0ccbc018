/* From logits to a token. A draw is a pure function of (logits, options, seed, position), so the
 * same request gives the same text whatever else runs. Allocates only when opened.
 *
 * The order: bias, penalties, logprobs are taken of the model's own distribution before both;
 * temperature; top-k, typical, top-p, min-p, in this order (as Hugging Face transformers chains
 * them); then one uniform number picks.
 */
#ifndef AVO_SAMPLE_SAMPLE_H
#define AVO_SAMPLE_SAMPLE_H

#include "base/allocator.h"
#include "base/status.h"

typedef struct sampler sampler;

/* Checks the options (a NaN, a negative, a bias for a token that does not exist: refused by name)
 * and allocates for this vocabulary. */
AVO_MUST_USE avo_status sampler_open(const avo_sampling *options, uint32_t vocabulary,
                                     const avo_allocator *allocator, sampler **out,
                                     avo_error *error);
void sampler_close(sampler *sampler);

/* Tokens that penalties look at: the prompt first, then each token that was chosen. */
void sampler_see_prompt(sampler *sampler, const int32_t *tokens, size_t count);
void sampler_see_output(sampler *sampler, int32_t token);

typedef struct sample_choice {
    int32_t token;
    float logprob; /* of the distribution before bias, penalties, temperature and filters */
    const avo_logprob *top; /* [top_count], highest first; valid until the next draw */
    uint32_t top_count;
} sample_choice;

/* `position` counts drawn tokens and keys the generator. Logits are not changed. NaN logits are an
 * error (AVO_ERROR_ARGUMENT). */
AVO_MUST_USE avo_status sampler_draw(sampler *sampler, const float *logits, uint64_t position,
                                     sample_choice *choice, avo_error *error);

/* ---- Stop strings across token borders ---- */

#define STOP_STRINGS_MAX      64
#define STOP_STRING_BYTES_MAX 1024

typedef struct stop_matcher stop_matcher;
AVO_MUST_USE avo_status stop_matcher_open(const char *const *strings, size_t count,
                                          const avo_allocator *allocator, stop_matcher **out,
                                          avo_error *error);
void stop_matcher_close(stop_matcher *matcher);
/* Takes more text and says how much of all text so far may be shown: everything before a stop
 * string (then *stopped), and before what may still become one. Returns the bytes of `pending`
 * (held text followed by `text`, in a buffer of the matcher) that are released now. */
AVO_MUST_USE avo_status stop_matcher_push(stop_matcher *matcher, const char *text, size_t bytes,
                                          const char **released, size_t *released_bytes,
                                          bool *stopped, avo_error *error);
/* The end without a stop: what was held is text after all. */
void stop_matcher_finish(stop_matcher *matcher, const char **released, size_t *released_bytes);

#endif
