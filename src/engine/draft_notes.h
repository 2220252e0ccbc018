/* For the laboratory (`avocet speculate`): what each step of avo_generate did with its drafts, and
 * which controller decides. Nobody else includes this; an engine that is not observed reads no
 * clock for it. */
#ifndef AVO_ENGINE_DRAFT_NOTES_H
#define AVO_ENGINE_DRAFT_NOTES_H

#include "engine/engine.h"

/* One step that decoded. The step that ends the prefill is not noted. */
typedef struct draft_note {
    draft_kind kind;            /* of the drafts, where there are any */
    uint32_t drafted, accepted; /* draft tokens verified, and of these accepted */
    uint32_t rows;              /* that the step computed: drafted + 1 */
    uint32_t context;           /* tokens of the timeline before it */
    double predicted_ns;        /* of the step, by the table of costs before it learned from it */
    uint64_t draft_ns;          /* finding and choosing the drafts */
    uint64_t verify_ns;         /* the step */
    uint64_t host_ns;           /* the rest: laying out rows, sampling, text, the listener */
} draft_note;

typedef struct draft_observer {
    void (*step)(void *context, const draft_note *note);
    void *context;
} draft_observer;

/* Of avo_generate, from its next call on. The observer outlives its use. NULL: nobody. */
void engine_draft_observe(avo_engine *engine, const draft_observer *observer);
/* Who decides how many drafts are verified, from the next request on. Without speculation it does
 * nothing. */
void engine_draft_control(avo_engine *engine, draft_controller controller);
/* The costs that the choice by cost uses, as learned so far. */
const step_cost *engine_draft_cost(const avo_engine *engine);

#endif
