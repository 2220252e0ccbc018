/* How often drafts were right: by source, by the length of the match they came from, by whether
 * earlier occurrences agreed about what follows, and by their place in the draft. Counts fade, so
 * that a record follows a text that changes.
 *
 * A sequence has its own record and shares one with all others of its engine. The shared record
 * begins with rates measured on ordinary text (record.c) and answers where a sequence has too few
 * observations of its own. Observations cost no rows: a drafter compares every draft with the
 * tokens that were sampled later, verified or not (drafter.h). */
#ifndef AVO_SPEC_RECORD_H
#define AVO_SPEC_RECORD_H

#include "spec/spec.h"
#include "spec/suffix.h"

#define RECORD_MATCHES 8 /* classes of match lengths: up to 1, 2, 3, 4, 6, 9, 15, and more */
#define RECORD_PLACES  4 /* first, second, third and later tokens of a draft */

/* Beside the votes of suffixes: a passage that was taken up again (passage.h). */
#define RECORD_RESUMED SUFFIX_VOTES
#define RECORD_VOTES   (SUFFIX_VOTES + 1)

typedef struct record_cell {
    float right, asked;
} record_cell;

typedef struct record {
    record_cell cell[DRAFT_KINDS][RECORD_MATCHES][RECORD_VOTES][RECORD_PLACES];
    float fade; /* of a count with each observation of its cell */
} record;

/* Without observations. */
void record_clear(record *own);
/* With the rates of ordinary text. */
void record_begin(record *shared);

/* Trusts what it begins with less: rates of lookups and models are multiplied. Text that a grammar
 * leaves no choice about is as sure as before. */
void record_doubt(record *shared, float factor);

/* Token number `place` (from 0) of a draft was right or wrong, and all before it were right. */
void record_note(record *record, const draft *draft, uint32_t place, bool right);

/* Fills draft->survival of draft->count tokens. */
void record_rate(const record *own, const record *shared, draft *draft);
/* Expected number of tokens that are right. */
float draft_worth(const draft *draft);

#endif
