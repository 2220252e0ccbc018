/* Draft tokens of a smaller model. It is an engine of its own, whose steps
 * never run at the same time as the target's and use the same workers. Every drafter has a session
 * in it, which follows the timeline of its sequence.
 *
 * A draft is sampled with the sequence's own sampler, seed and position: both models pick with the
 * same random number, so that equal distributions give equal tokens at any temperature. A model
 * with other tokens follows the text of the timeline (draft_text.h) and guesses greedily. A failure
 * here costs the drafts of one step and nothing else. */
#ifndef AVO_ENGINE_DRAFT_MODEL_H
#define AVO_ENGINE_DRAFT_MODEL_H

#include "engine/engine.h"
#include "engine/sequence.h"

typedef struct draft_model draft_model;

/* Options of its engine, for plans: those of the target's that it shares, the rest its own. */
avo_engine_options draft_model_engine(const avo_engine_options *target, const avo_model *model,
                                      uint32_t context_max, uint64_t kv_tokens, uint32_t drafters);

typedef struct draft_model_options {
    const avo_model *target, *model;  /* both outlive it */
    avo_engine *beside;               /* the target's engine */
    const avo_engine_options *engine; /* of the target: device, threads and placement */
    uint32_t drafters;
    uint32_t context_max;
    uint64_t kv_tokens;
} draft_model_options;

/* The models have other tokens, and text in common at most. */
bool draft_model_by_text(const avo_model *target, const avo_model *model);

/* Refused: a model whose tokens are not those of the target, where one of them has no tokenizer. */
AVO_MUST_USE avo_status draft_model_open(const draft_model_options *options, draft_model **out,
                                         avo_error *error);
void draft_model_close(draft_model *model);

/* One sequence whose next tokens are wanted. */
typedef struct draft_request {
    const sequence *sequence;
    drafter *drafter;
    draft_timeline timeline; /* of a sequence without a ring */
    uint32_t most;
    draft *draft;  /* the outcome: kind MODEL, with grades */
    bool no_reuse; /* of what other sequences have computed */
    bool going;    /* between steps */
} draft_request;

#define DRAFT_VERIFY_LEAST 0.06 /* of a token: what verifying a draft is taken to cost at least */

typedef struct draft_time {
    double token_ns; /* what a token of the target takes without drafts */
    double row_ns;   /* what a row more adds to a step of the target */
    double left_ns;  /* for computing drafts; 0: any time */
    bool hopeless;   /* no draft pays, however sure: only those count that are always verified */
} draft_time;

/* What a draft must survive to pay, where a pass for `count` of them takes so long. */
static inline double draft_time_least(const draft_time *time, double pass_ns, uint32_t count) {
    double verify = time->row_ns / time->token_ns;
    return pass_ns / count / time->token_ns +
           (verify > DRAFT_VERIFY_LEAST ? verify : DRAFT_VERIFY_LEAST);
}

/* Drafts for all of them together that use this source and have no draft yet (draft->count 0). A
 * draft that is unlikely to save more than it costs is not begun, nor one that has no time. */
void draft_model_propose(draft_model *model, draft_request *requests, uint32_t count,
                         const draft_time *time);
/* Workers of its steps (engine_stream_resize). */
void draft_model_resize(draft_model *model, uint32_t threads);
/* Tests: tokens that its sessions found in its prefix cache. */
uint64_t draft_model_hits(const draft_model *model);
/* Tests: steps are taken to cost this much, whatever they take. 0: learned. */
void draft_model_assume(draft_model *model, double step_ns);
/* The drafter has ended: its session is free. */
void draft_model_forget(draft_model *model, const drafter *drafter);

#endif
