/* Drafts for the sequences of one engine.
 *
 * `speculation` is what they share: options, the record of all sequences, the corpus of earlier
 * answers, and a fixed number of drafters, all allocated when it opens. A `drafter` belongs to one
 * sequence while it runs. It reads the sequence's timeline, looks the newest tokens up, and
 * proposes what followed them before.
 *
 * A drafter learns from the timeline alone: every proposal is kept and compared with the tokens
 * that the sequence samples later, whether they were verified as drafts or not. So it knows how
 * good its drafts would be while none of them is verified. Only drafts that a model computes are
 * tried again now and then.
 *
 * One thread, that which leads the engine, uses all of this. */
#ifndef AVO_SPEC_DRAFTER_H
#define AVO_SPEC_DRAFTER_H

#include "base/allocator.h"
#include "spec/corpus.h"
#include "spec/record.h"

typedef struct speculation speculation;
typedef struct drafter drafter;

typedef struct speculation_options {
    draft_kinds kinds;           /* sources that requests may use */
    bool automatic;              /* nobody named them: those of auto that there are */
    uint32_t draft_tokens;       /* most of one sequence in one step; 1 to DRAFTS_MAX */
    draft_controller controller; /* of requests that name none */
    uint32_t drafters;           /* sequences at a time, at most DRAFTERS_MAX */
    uint32_t context_max;        /* tokens of a timeline */
    corpus_options corpus;       /* of earlier answers; tokens_max 0: none */
} speculation_options;

uint64_t speculation_bytes(const speculation_options *options);
AVO_MUST_USE avo_status speculation_open(const speculation_options *options,
                                         const avo_allocator *allocator, speculation **out,
                                         avo_error *error);
void speculation_close(speculation *shared);
/* NULL: none. It is asked first, and its drafts are always verified. */
void speculation_custom(speculation *shared, const draft_source *source);
/* The controller of drafters that are taken from now on. */
void speculation_control(speculation *shared, draft_controller controller);
/* NULL: none. */
corpus *speculation_corpus(speculation *shared);

/* What one request asks for. */
typedef struct drafter_options {
    draft_kinds kinds;
    uint32_t draft_tokens; /* 0: those of speculation_options, which is also the most */
    corpus_key key;        /* whose earlier answers it may see */
    float temperature;     /* drafts are right less often where it is high */
} drafter_options;

/* NULL: all are taken, or the request wants no drafts. */
drafter *drafter_take(speculation *shared, const drafter_options *options);
/* NULL is allowed. */
void drafter_give(drafter *drafter);
/* Which sources it asks. */
bool drafter_uses(const drafter *drafter, draft_kind kind);

/* Its number, below speculation_options.drafters. */
uint32_t drafter_number(const drafter *drafter);

/* Looks up what may follow, up to `most` tokens, before models are asked: they need not draft where
 * a lookup is likely to be right. drafter_propose does it where nobody has. */
void drafter_look(drafter *drafter, const draft_timeline *timeline, uint32_t most);
/* Proposes up to `most` tokens. `given` (may be NULL) is a draft that the caller computed by other
 * means, with tokens, count, kind and match set; the better one by the record is returned in `out`,
 * with its survival. No drafts: out->count is 0. */
void drafter_propose(drafter *drafter, const draft_timeline *timeline, const draft *given,
                     uint32_t most, draft *out);
/* Fills the survival of a draft that a source is still extending. */
void drafter_rate(const drafter *drafter, draft *draft);
/* Most drafts of a step that the request wants. */
uint32_t drafter_limit(const drafter *drafter);
/* Its controller is a rule without costs, which verifies what there is. */
bool drafter_decides(const drafter *drafter);
/* Its drafts are verified whatever rows cost: such a controller decides, or a source of the
 * program's own drafts. */
bool drafter_insists(const drafter *drafter);
/* Asked once for each step: whether a model should draft. Not where `least`, the survival that pays
 * for a draft, is out of reach, lookups do well, or the one at hand is expected to give about as
 * much. Else it should while the first token of its drafts was right more often than `least`; where
 * it was not, it is tried now and then: tries are paid from 0.4 % of the estimated time of steps,
 * but for those behind a try that was right, which are not counted. */
bool drafter_try_model(drafter *drafter, double least);
/* Whether a draft that a model computes should have one more token: the last one survives with this
 * probability, and the next one is right about as often as the first tokens of drafts. */
bool drafter_goes_on(const drafter *drafter, double survival, double least);
/* The model has tokens of the timeline to read before it can draft: the next step tries again. */
void drafter_model_behind(drafter *drafter);
/* Of `drafted` tokens that were verified `accepted` were right: for controllers. */
void drafter_verified(drafter *drafter, uint32_t drafted, uint32_t accepted);
/* The answer has ended: `count` tokens, with the last ones of its prompt in front of them, are
 * added to the corpus of its tenant. */
void drafter_learn(drafter *drafter, const int32_t *tokens, uint32_t count);

#endif
