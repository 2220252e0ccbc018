/* From logits to a token. A draw is a pure function of (logits, options, seed, position), so the
 * same request gives the same text whatever else runs. Allocates only when opened.
 *
 * The order, as Hugging Face transformers chains its processors:
 *   1. bias           logit += bias
 *   2. repetition     of a token in prompt or output: positive logits / penalty, others × penalty
 *   3. presence, frequency   of a token in the output: logit −= presence + count × frequency
 *   4. temperature    0: the highest logit (lowest id of equals) is the choice, nothing below runs
 *   5. top-k          keeps the k highest, and what equals the k-th
 *   6. top-p          keeps the likeliest tokens until their sum reaches p (of what 5 left), at
 *                     least one; of equals at the border the lower ids stay
 *   7. min-p          keeps what is at least min_p times as likely as the likeliest
 *   8. typical        keeps the tokens whose surprise is nearest to the entropy (of what 7 left)
 *                     until their sum reaches p, and what is equally near as the last of them
 * Then one uniform number, a function of (seed, position), picks from what is left in order of ids.
 * Logprobs are those of the model's own distribution, before all of this.
 */
#ifndef AVO_SAMPLE_SAMPLE_H
#define AVO_SAMPLE_SAMPLE_H

#include "base/allocator.h"
#include "base/status.h"
#include "device/layer.h"

typedef struct sampler sampler;

/* Checks the options (a NaN, a negative, a bias for a token that does not exist: refused by name)
 * and allocates for this vocabulary. The options and their biases are copied. */
AVO_MUST_USE avo_status sampler_open(const avo_sampling *options, uint32_t vocabulary,
                                     const avo_allocator *allocator, sampler **out,
                                     avo_error *error);
void sampler_close(sampler *sampler);
/* The check alone. */
AVO_MUST_USE avo_status sampler_check(const avo_sampling *options, uint32_t vocabulary,
                                      avo_error *error);

/* The working memory of a draw is most of what a sampler takes. Samplers that are used one after
 * another, by one thread, may share it; it must outlive them. */
typedef struct sampler_room sampler_room;
AVO_MUST_USE avo_status sampler_room_open(uint32_t vocabulary, const avo_allocator *allocator,
                                          sampler_room **out, avo_error *error);
void sampler_room_close(sampler_room *room);
AVO_MUST_USE avo_status sampler_open_in(sampler_room *room, const avo_sampling *options,
                                        const avo_allocator *allocator, sampler **out,
                                        avo_error *error);

/* Tokens that penalties look at: the prompt first, then each token that was chosen. */
void sampler_see_prompt(sampler *sampler, const int32_t *tokens, size_t count);
void sampler_see_output(sampler *sampler, int32_t token);
/* As if it had seen none of either. */
void sampler_see_nothing(sampler *sampler);

typedef struct sample_choice {
    int32_t token;
    float logprob; /* of the distribution before bias, penalties, temperature and filters */
    const avo_logprob *top; /* [top_count], highest first; valid until the next draw */
    uint32_t top_count;
} sample_choice;

/* Ranges of the numbers in avo_sampling, minimum and maximum: every interface refuses what is
 * outside, and none refuses anything else. */
#define SAMPLING_TEMPERATURE 0, 1e6
#define SAMPLING_PROBABILITY 0, 1 /* top_p and min_p */
#define SAMPLING_TYPICAL     1e-6, 1
#define SAMPLING_REPETITION  1e-6, 1e6
#define SAMPLING_PENALTY     -1e6, 1e6 /* for presence and frequency */
#define SAMPLING_TOP_K_MAX   4294967294.0

/* `position` counts drawn tokens and keys the generator. Logits are not changed. A logit that is
 * NaN or +infinity, or all of them forbidden, is an error (AVO_ERROR_ARGUMENT). */
AVO_MUST_USE avo_status sampler_draw(sampler *sampler, const float *logits, uint64_t position,
                                     sample_choice *choice, avo_error *error);
/* The same with what the device has found of these logits: log-probabilities then have the bits of
 * sampler_draw_top and of scored prompts, whatever was needed to draw. */
AVO_MUST_USE avo_status sampler_draw_found(sampler *sampler, const float *logits,
                                           const logit_top *found, uint64_t position,
                                           sample_choice *choice, avo_error *error);

/* How many of the highest logits these options look at: greedy and top-k drawing without bias and
 * penalties need not see the others. 0: all. */
uint32_t sampler_top(const sampler *sampler);
/* sampler_draw from sampler_top's highest logits. *undecided: more tokens than fit here are equally
 * high as the last that counts, or some are broken; draw from all of them instead. */
void sampler_draw_top(sampler *sampler, const logit_top *top, uint64_t position,
                      sample_choice *choice, bool *undecided);

/* Where sampler_top is 0: how many of the highest are likely to decide a draw by top-p or min-p; 0:
 * these options need all. sampler_try_top draws as sampler_draw does, or is *undecided. */
uint32_t sampler_likely_top(const sampler *sampler);
void sampler_try_top(sampler *sampler, const logit_top *top, uint64_t position,
                     sample_choice *choice, bool *undecided);

/* ---- Allowed tokens alone (grammar.h) ---- */

/* Draws will be from allowed tokens; said before anybody asks for sampler_top. */
void sampler_constrain(sampler *sampler);
bool sampler_constrained(const sampler *sampler);
/* Those of the next draws: a bit for each token, which must stay until then; NULL: all. They count
 * behind bias and penalties, and before everything that filters. Logprobs do not know of them. */
void sampler_allow(sampler *sampler, const uint64_t *allowed);
/* Where sampler_draw_top was undecided because too few of the highest are allowed, without a look
 * at what is not: lists the allowed tokens, the caller fills in the logits of each, and the draw is
 * from these. 0: everything is allowed. Both arrays are the sampler's. */
uint32_t sampler_list_allowed(sampler *sampler, const int32_t **tokens, float **logits);
/* False: draw from all. */
bool sampler_draw_allowed(sampler *sampler, const logit_top *top, uint64_t position,
                          sample_choice *choice);

/* log Σ e^(logit − highest), where `highest` is the highest of them: a token's logprob is
 * logit − highest − this. */
double sample_log_sum(const float *logits, uint32_t vocabulary, float highest);

/* ---- Stop strings across token borders ---- */

#define STOP_STRINGS_MAX      64
#define STOP_STRING_BYTES_MAX 1024

typedef struct stop_matcher stop_matcher;
/* Strings are UTF-8 and not empty; they are copied. */
AVO_MUST_USE avo_status stop_matcher_open(const char *const *strings, size_t count,
                                          const avo_allocator *allocator, stop_matcher **out,
                                          avo_error *error);
void stop_matcher_close(stop_matcher *matcher);
/* Takes more text and releases what may be shown of all that was held and is new: everything before
 * a stop string (then *stopped, for good), and before what may still become one. The string that
 * ends first counts, of several that end together the longest, however the text is cut into pushes.
 * `released` points into the matcher and lives until the next push. Linear in the bytes. */
AVO_MUST_USE avo_status stop_matcher_push(stop_matcher *matcher, const char *text, size_t bytes,
                                          const char **released, size_t *released_bytes,
                                          bool *stopped, avo_error *error);
/* The end without a stop: what was held is text after all. */
void stop_matcher_finish(stop_matcher *matcher, const char **released, size_t *released_bytes);
/* The string that has stopped it, terminated, and which one that was; NULL: none has. Lives as long
 * as the matcher. */
const char *stop_matcher_found(const stop_matcher *matcher, size_t *index);

#endif
