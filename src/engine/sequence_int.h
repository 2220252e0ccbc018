/* Between the files of a sequence: when it may not end yet, and when it must. */
#ifndef AVO_ENGINE_SEQUENCE_INT_H
#define AVO_ENGINE_SEQUENCE_INT_H

#include "engine/sequence.h"

/* With a sampler: makes the mask of tokens that do not end the answer, while it is shorter than
 * min_new_tokens. */
AVO_MUST_USE avo_status sequence_hold(sequence *sequence, avo_error *error);
void sequence_let_go(sequence *sequence);
/* What may be drawn next of `allowed` (NULL: everything): all but ends while the answer is too
 * short, unless only ends are allowed. NULL: everything. */
const uint64_t *sequence_without_ends(const sequence *sequence, const uint64_t *allowed);

/* The tokens drawn last are a loop as the request describes it. Looks at the timeline alone. */
bool sequence_repeats(const sequence *sequence);

#endif
