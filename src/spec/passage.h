/* A passage of the timeline that is being copied, and left for a word now and then: an edited text.
 *
 * A suffix ends where the copy differs from its source, and becomes long again only tokens later. A
 * passage remembers where in the source the copy was left, and proposes to go on behind the token
 * that was replaced. It belongs to the source `suffix`; the record keeps its drafts apart. */
#ifndef AVO_SPEC_PASSAGE_H
#define AVO_SPEC_PASSAGE_H

#include "spec/spec.h"

#define PASSAGE_RUN_LEAST  3 /* copied tokens that make a passage */
#define PASSAGE_ASTRAY_MAX 6 /* tokens of the copy's own after which the passage is over */

typedef struct passage {
    bool active;
    uint64_t next;   /* number of the source's token that is expected, of all tokens ever */
    uint32_t astray; /* tokens since the copy was left at `next`; 0: it is being copied */
} passage;

/* The newest `run` tokens of the timeline are a copy of those before number `next`. */
void passage_found(passage *passage, uint64_t next, uint32_t run);
/* The token came that has this number; all before it are in the timeline. */
void passage_follow(passage *passage, const draft_timeline *timeline, uint64_t number,
                    int32_t token);
/* Proposes to go on with the source: up to `most` tokens; returns how many. *match: 16 where the
 * copy goes on, else how far it is astray. */
uint32_t passage_propose(const passage *passage, const draft_timeline *timeline, uint32_t most,
                         int32_t *drafts, uint32_t *match);

#endif
