/* How many drafts one sequence wants verified, by rules that do not know what rows cost. They are
 * what others use; the laboratory compares them with the choice by cost (choose.h), for which a
 * controller wants as many as there are. */
#ifndef AVO_SPEC_CONTROLLER_H
#define AVO_SPEC_CONTROLLER_H

#include "spec/spec.h"

typedef struct controller {
    draft_controller kind;
    uint32_t most;     /* --draft-tokens */
    uint32_t wanted;   /* now; may be 0 */
    float accepted;    /* moving average of accepted drafts in a step */
    float drafted;     /* likewise, of those that were verified */
    uint32_t idle;     /* proposals that were left out since the last try */
    uint32_t patience; /* of them before the next try; doubles while tries fail */
} controller;

void controller_begin(controller *controller, draft_controller kind, uint32_t most);
/* Drafts that may be verified in this step; called once for each step that has any. */
uint32_t controller_limit(controller *controller);
void controller_verified(controller *controller, uint32_t drafted, uint32_t accepted);
/* Whether the choice is its own and not one by cost. */
static inline bool controller_decides(const controller *controller) {
    return controller->kind != CONTROLLER_COST;
}

#endif
