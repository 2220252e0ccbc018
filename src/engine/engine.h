/* What neighbours may ask of an engine beyond the public interface: for measurements, and for the
 * scheduler. */
#ifndef AVO_ENGINE_ENGINE_H
#define AVO_ENGINE_ENGINE_H

#include "device/device.h"
#include "memory/kv.h"
#include "spec/cost.h"
#include "spec/drafter.h"

/* The model as this engine computes it, the device that does, and the KV pool. */
const model_view *engine_model_view(const avo_engine *engine);
const device_info *engine_device(const avo_engine *engine);
kv_pool *engine_kv(const avo_engine *engine);

/* Layers of a model that is divided between two devices, and what they take on one of them. */
typedef struct engine_part {
    const char *device; /* constant */
    uint32_t first_layer, layers;
    uint64_t mapped_bytes, copied_bytes, missing_bytes; /* of weights, as in weights_plan */
    uint64_t kv_bytes, scratch_bytes;
} engine_part;

/* avo_engine_plan with its reasons. */
typedef struct engine_plan_details {
    weights_plan weights; /* what becomes of the matrices */
    /* What the plan takes, mapped files included: of the host's memory, and of the device's where
     * it has memory of its own, else 0. */
    uint64_t host_bytes, device_bytes;
    uint64_t adapter_bytes; /* part of device_bytes for prepared adapters; 0: used in place */
    const char *host_limit; /* where avo_plan.host_available_bytes comes from */
    bool divides;           /* the model's layers are divided between two devices: … */
    engine_part part[DEVICE_PARTS];  /* … these; the second's memory is the device's … */
    uint64_t first_bytes;            /* … and the first's part of host_bytes */
    speculation_options speculation; /* kinds 0: off */
} engine_plan_details;
AVO_MUST_USE avo_status engine_plan_describe(const avo_model *model,
                                             const avo_engine_options *options, avo_plan *plan,
                                             engine_plan_details *details, avo_error *error);

/* Prepares the weights that an engine with these options will use, so that avo_engine_open finds
 * them in the model's store: for callers that have something else to do before they know all the
 * options, such as the context. Does nothing where nothing must be prepared or the device has
 * memory of its own. An engine with this context (0: the model's own) must fit into three quarters
 * of the free memory: one with a smaller context will fit too, and the rest is for what the caller
 * does meanwhile. Where it fails nothing is left behind, and avo_engine_open fails for the same
 * reason or does it all. */
AVO_MUST_USE avo_status engine_prepare(const avo_model *model, const avo_engine_options *options,
                                       avo_error *error);

/* Extends a timeline of computed tokens, whole pages of them, to `length` tokens: tokens and pages
 * are copies of the first page, so that memory is really taken and written and a step has as much
 * to read as after a prompt of that length, without the time that this would take. What is computed
 * from it makes no sense. AVO_ERROR_FULL where the pool is too small. */
AVO_MUST_USE avo_status engine_session_fill(avo_session *session, uint32_t length,
                                            avo_error *error);

/* ---- Draft tokens ---- */

/* A draft source for tests and experiments, asked instead of the engine's own (spec/spec.h): by
 * avo_generate, and by schedulers that open after this. It outlives its use. NULL: none. The engine
 * must not have been opened with speculation off. */
void engine_draft_from(avo_engine *engine, const draft_source *source);

/* ---- For the scheduler ---- */

/* Networks that draft; either may be NULL. */
typedef struct draft_sources {
    struct draft_model *model;
    struct draft_heads *heads;
} draft_sources;

/* What it was opened with, every 0 replaced. */
typedef struct engine_limits {
    const avo_model *model;
    const avo_allocator *allocator;
    uint32_t vocabulary;
    uint32_t context_max, sessions_max, rows_max, logits_max;
    uint32_t kv_pages;
    uint32_t threads; /* of the host that compute; 0: the device has none */
    uint32_t streams;
    avo_telemetry *telemetry; /* NULL: none */
    telemetry_track *track;   /* of the thread that leads; NULL: none */
    avo_log_function log;     /* NULL: nobody listens */
    void *log_context;
    speculation *speculation; /* NULL: off */
    draft_sources drafts;
} engine_limits;
engine_limits engine_limits_of(const avo_engine *engine);

/* ---- Streams ---- */

/* Two steps at a time: an engine with two streams has workers and scratch for each. One thread
 * keeps the books (sessions, pages, batches: everything but engine_step_compute); another one may
 * compute a batch of stream 1 that was begun, while the first one computes batches of stream 0. A
 * session that is in a batch of one stream can be in none of the other; nothing else may be done
 * with it until that batch has ended. */
AVO_MUST_USE avo_status engine_batch_open(avo_engine *engine, uint32_t stream, avo_batch **batch,
                                          avo_error *error);
/* With how many threads the stream's next steps are computed: in stream 0 at most all, in stream 1
 * at most all but one, both together at most all. While nobody computes in it. */
void engine_stream_resize(avo_engine *engine, uint32_t stream, uint32_t threads);
/* Phases of the last step in stream 0, which the device's workers wait for one after another; 0:
 * the device does not say. */
uint32_t engine_step_phases(const avo_engine *engine);

/* avo_step in three parts; begin, compute, end. Where computing fails (the batch's error says why),
 * it is not ended: clearing the batch then leaves its sessions as they were before. */
AVO_MUST_USE avo_status engine_step_begin(avo_batch *batch);
AVO_MUST_USE avo_status engine_step_compute(avo_batch *batch);
void engine_step_end(avo_batch *batch);

/* What steps of the engine cost before any was timed: a guess from the size of its model. */
step_cost engine_cost_guess(const avo_engine *engine);

/* avo_batch_add of tokens of which the last `drafts` may turn out to be wrong: they have logits, as
 * the token before them has, and become part of the timeline as far as a sequence accepts them
 * (sequence.h). No ring may turn within them. */
AVO_MUST_USE avo_status engine_batch_add_drafts(avo_batch *batch, avo_session *session,
                                                const int32_t *tokens, size_t count,
                                                uint32_t drafts);

/* Pages for the first `length` tokens of a session that is in no batch, before they come. A batch
 * that adds no more than that then finds its pages. AVO_ERROR_FULL: there are none now, try again
 * when others have given theirs back. Any other status is a failure, of the device that copies and
 * clears pages: waiting does not help. */
AVO_MUST_USE avo_status engine_session_reserve(avo_session *session, uint32_t length,
                                               avo_error *error);

/* Until engine_leave only those who call engine_… open batches and sessions. Refused where somebody
 * leads it already, and where sessions or batches are open. */
AVO_MUST_USE avo_status engine_lead(avo_engine *engine, avo_error *error);
void engine_leave(avo_engine *engine);
AVO_MUST_USE avo_status engine_session_open(avo_engine *engine, const avo_session_options *options,
                                            avo_session **session, avo_error *error);

/* ---- For training ---- */

/* Rows of the newest step once more through the head: `rows` are numbers of rows of the step, at
 * most engine_head_rows of them, `next` a token of each whose logit is wanted. *found: [count], as
 * long as the engine computes nothing else. With `whole` (at most engine_limits.logits_max rows)
 * all their logits can be read, too. The sums are those that sampled tokens have. */
uint32_t engine_head_rows(const avo_engine *engine);
AVO_MUST_USE avo_status engine_batch_head(avo_batch *batch, const uint32_t *rows, uint32_t count,
                                          const int32_t *next, bool whole, const logit_top **found,
                                          avo_error *error);
AVO_MUST_USE avo_status engine_batch_head_logits(avo_batch *batch, uint32_t index,
                                                 const float **logits, avo_error *error);
/* Hidden states of all rows of the newest step before `layer`, which the engine taps; until another
 * layer is read. */
AVO_MUST_USE avo_status engine_batch_hidden(avo_batch *batch, uint32_t layer, const float **rows,
                                            avo_error *error);
/* The log-probability of `next`, as every part of the engine computes it. */
AVO_MUST_USE avo_status engine_logprob(const logit_top *found, float *logprob, avo_error *error);
/* Its pages are not for other sessions, and it finds none of theirs: an empty session. */
void engine_session_keep_private(avo_session *session);
/* Forgets all cached prefixes: the weights have changed. */
void engine_forget_prefixes(avo_engine *engine);
/* Whether steps read adapters where they are, so that they need not stay open behind the step. */
bool engine_adapters_in_place(const avo_engine *engine);

/* ---- Events of the prefix cache ---- */

/* Opens the engine's log of events, which it owns; before any session is open. */
AVO_MUST_USE avo_status engine_kv_events_open(avo_engine *engine, avo_error *error);
/* NULL: not opened. */
kv_events *engine_kv_events(const avo_engine *engine);
/* What the blocks of a session are labelled with: names of its adapters, "" for none. */
void engine_session_label(avo_session *session, const char *adapters);

/* Tokens of a prompt that a session with these adapters and this salt would find in the prefix
 * cache now (avo_session_reuse); nothing is taken. */
uint32_t engine_prefix_peek(avo_engine *engine, const avo_session_options *options,
                            const int32_t *tokens, uint32_t count);

#endif
