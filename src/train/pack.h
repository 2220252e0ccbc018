/* Packing: which samples of an optimizer step go into one call of train_forward. Nothing is padded,
 * and sequences never see each other, because each is a session of its own; a call costs what its
 * tokens cost, and a little for itself. Called by the training loop.
 *
 * Gradients are summed in the order of the samples (core.h), so calls take the samples in their
 * order, each as many as fit: no division that keeps the order has fewer calls. The bits of a step
 * thus depend on neither rows_max nor sequences_max, and a run may be resumed with other limits.
 * First-fit decreasing would need 10 to 15 % fewer calls where a call has 1024 rows and samples 150
 * to 250 tokens on average (7 % with 2048 rows), but its bits would depend on the limits. */
#ifndef AVO_TRAIN_PACK_H
#define AVO_TRAIN_PACK_H

#include "base/status.h"

/* Call i takes the samples from ends[i − 1] (0 for the first) to ends[i] − 1; `ends` has `count`
 * items. A sample of more tokens than rows_max is refused. */
AVO_MUST_USE avo_status train_pack(const uint32_t *lengths, size_t count, uint32_t rows_max,
                                   uint32_t sequences_max, size_t *ends, size_t *calls,
                                   avo_error *error);

#endif
