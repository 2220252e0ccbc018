/* Measuring what errors in a model's matrices cost, for `avocet pack --bits N --sensitivity TEXT`.
 */
#ifndef AVO_EVAL_SENSITIVITY_H
#define AVO_EVAL_SENSITIVITY_H

#include "pack/pack.h"

/* Packs the model at `path` again and again into the file `temporary`, which is gone afterwards:
 * one kind of matrix in 4 bits and the others in f16, then one band of layers; and compares each
 * with `reference`, the model itself, over a few windows of the text. `tokens` and `begin` as for
 * eval_perplexity. `options` has calibration, effort, threads, look-ups and progress. */
AVO_MUST_USE avo_status eval_sensitivity(const char *path, const avo_model *reference,
                                         const int32_t *tokens, size_t count, int32_t begin,
                                         const char *temporary, const pack_options *options,
                                         pack_sensitivity *found, avo_error *error);

#endif
