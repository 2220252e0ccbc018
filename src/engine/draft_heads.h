/* Drafts of trained heads (model/heads.h, docs/heads.md): Medusa heads, EAGLE layers, a distilled
 * draft. Their networks run on devices of their own, beside the target's first stream and with its
 * workers, between two of its steps.
 *
 * Medusa and EAGLE read hidden states that the target's steps leave (*taps*). After each step the
 * engine copies those of the rows that a drafter may want into the drafter's ring: the newest rows
 * of a prompt, and every decoded row. Rows of drafts that were rejected are overwritten by the step
 * that computes their positions again. Of a prompt, layers are fed the last rows only, and after
 * the first token was sampled, so that it comes as early as without heads.
 *
 * Heads decline to draft where a tap is missing: behind a prefix from the cache until one row was
 * computed, in rings, where no drafter is free. A failure costs the drafts of one step and nothing
 * else. The thread that leads the engine uses all of this. */
#ifndef AVO_ENGINE_DRAFT_HEADS_H
#define AVO_ENGINE_DRAFT_HEADS_H

#include "engine/draft_model.h"
#include "model/heads.h"

typedef struct draft_heads draft_heads;

/* Which of the options' heads the plan's sources use; refuses two of one kind, and heads of another
 * model. NULL where a kind has none. */
typedef struct heads_choice {
    const avo_heads *of[HEADS_KINDS];
} heads_choice;
AVO_MUST_USE avo_status draft_heads_choose(const avo_model *model,
                                           const avo_engine_options *options, draft_kinds kinds,
                                           heads_choice *choice, avo_error *error);
static inline bool heads_chosen(const heads_choice *choice) {
    return choice->of[HEADS_MEDUSA] != NULL || choice->of[HEADS_EAGLE] != NULL ||
           choice->of[HEADS_LAYERS] != NULL;
}
draft_kind draft_heads_kind(heads_kind kind);

/* Adds the layers whose hidden states the heads read to `tap`, which ascends and has room for
 * DEVICE_TAPS_MAX; false: there are too many. */
bool draft_heads_taps(const heads_choice *choice, uint32_t *tap, uint32_t *taps);

typedef struct draft_heads_options {
    avo_engine *target;
    const avo_engine_options *engine;
    heads_choice heads;
    uint32_t drafters;
    /* draft_heads_bytes: the target's device and the shape of its first stream. */
    const device *device;
    const stream_shape *lender;
} draft_heads_options;

/* Host and device memory of such heads, the files' weights included. */
uint64_t draft_heads_bytes(const avo_model *model, const draft_heads_options *options);
AVO_MUST_USE avo_status draft_heads_open(const draft_heads_options *options, draft_heads **out,
                                         avo_error *error);
void draft_heads_close(draft_heads *heads);

/* From now on steps with this session leave their taps for the drafter, which has none yet. */
void draft_heads_attach(draft_heads *heads, const drafter *drafter, avo_session *session);
void draft_heads_forget(draft_heads *heads, const drafter *drafter);
/* Behind a step: copies the taps of its rows. */
void draft_heads_see(draft_heads *heads, const avo_batch *batch);

/* As draft_model_propose: drafts for requests that use heads and have no draft yet. */
void draft_heads_propose(draft_heads *heads, draft_request *requests, uint32_t count,
                         const draft_time *time);
void draft_heads_resize(draft_heads *heads, uint32_t threads);

/* ---- Tests ---- */

/* A pass is taken to cost this much. 0: learned. */
void draft_heads_assume(draft_heads *heads, double pass_ns);

#endif
