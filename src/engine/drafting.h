/* Speculation of an engine: its options, whose drafts a request gets, and drafts of a sequence. The
 * lookups themselves, their record and the choice of rows are in spec/. */
#ifndef AVO_ENGINE_DRAFTING_H
#define AVO_ENGINE_DRAFTING_H

#include "engine/draft_heads.h"

/* Draft rows that a step has logits for, beyond one row of each session. */
#define DRAFT_LOGITS_MAX 48

/* Reads speculate, draft_tokens and draft_controller; context_max and drafters are left open. */
AVO_MUST_USE avo_status drafting_plan(const avo_engine_options *options, speculation_options *plan,
                                      avo_error *error);
/* Refuses a request's speculate and draft_tokens that mean nothing. */
AVO_MUST_USE avo_status drafting_check(const avo_request *request, avo_error *error);

/* The drafter of a checked request with this session, or NULL: none is free, or wanted. */
drafter *drafting_take(speculation *shared, const draft_sources *sources,
                       const avo_request *request, const avo_sampling *sampling,
                       avo_session *session);
/* Tokens of a prompt that are learned with the answer behind it. */
#define DRAFT_PROMPT_TOKENS 8u

/* The drafter may be NULL. */
void drafting_give(const draft_sources *sources, drafter *drafter);

/* Drafts for sequences that have accepted all of their timelines, of all those that the next step
 * may have drafts for. */
void drafting_propose(const draft_sources *sources, draft_request *requests, uint32_t count,
                      const draft_time *time);

#endif
