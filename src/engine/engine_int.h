/* Inside engine/: the structures behind the public names. */
#ifndef AVO_ENGINE_ENGINE_INT_H
#define AVO_ENGINE_ENGINE_INT_H

#include "adapters/adapters.h"
#include "base/arena.h"
#include "engine/engine.h"
#include "memory/kv.h"
#include "model/model.h"
#include "telemetry/telemetry.h"

/* ---- Limits ---- */
#define ENGINE_SESSIONS_MAX   65536
#define ENGINE_ROWS_MAX       65536
#define ENGINE_ROWS_DEFAULT   512
#define ENGINE_RANK_DEFAULT   256 /* sum of the ranks of one session's adapters */
#define ENGINE_RANK_MAX       (AVO_ADAPTERS_MAX * ADAPTER_RANK_MAX)
#define ENGINE_HEAD_ROWS      64 /* that are scored together: the head is read once for all */
#define ENGINE_ADAPTERS_IDLE  8  /* that stay prepared though no session uses them */
#define ENGINE_ADAPTERS_PART  16 /* of the device's memory, for prepared adapters, at most … */
#define ENGINE_ADAPTERS_BYTES ((uint64_t)256 << 20)

typedef struct draft_model draft_model; /* draft_model.h */
typedef struct draft_heads draft_heads; /* draft_heads.h */

/* Options with every 0 replaced, and what they cost. */
typedef struct engine_plan {
    uint32_t threads; /* of the host; 0: the device has none */
    uint32_t context_max, sessions_max, rows_max, logits_max, kv_pages, rope_context;
    uint32_t adapter_rank_max;
    uint32_t streams;   /* steps that are computed at the same time */
    uint32_t head_rows; /* rows that the head computes together: logits_max or, scoring, more */
    kv_type kv_type;
    device_info device;         /* what it says about itself; names are constant strings */
    const char *device_from;    /* constant, as in avo_plan */
    const char *arithmetic_why; /* the same */
    uint32_t taps, tap[DEVICE_TAPS_MAX];
    speculation_options speculation; /* kinds 0: off */
    weights_plan weights;
    /* Where the device divides the model (device.divides): each device's layers. Weights, KV and
     * scratch below are those of the device itself, the other one's are part of the host's. */
    engine_part part[DEVICE_PARTS];
    uint64_t converted_bytes;         /* of weights, by the host when the model was opened */
    uint64_t kv_bytes, scratch_bytes; /* of the device */
    uint64_t stream_bytes;            /* of the scratch, for a second stream */
    uint64_t adapter_bytes; /* of the device: adapters stay prepared within it; 0: used in place */
    uint64_t session_bytes; /* of the host … */
    uint64_t draft_bytes;   /* … of these, for speculation … */
    uint64_t kv_host_bytes; /* … and for cached KV pages that left the device */
    uint32_t kv_host_pages;
    uint64_t available_bytes; /* for what is not there yet; host and device together
                                 where they share memory, else of the device */
    const char *limit;        /* where that number comes from */
    uint64_t host_available_bytes;
    const char *host_limit;
    avo_log_function log; /* NULL: nobody listens */
    void *log_context;
    avo_telemetry *telemetry; /* NULL: none */
} engine_plan;

/* Opens the device that the options ask for and plans with it. */
AVO_MUST_USE avo_status engine_plan_make(const avo_model *model, const avo_engine_options *options,
                                         device **device, engine_plan *plan, avo_error *error);
/* What the stream number `index` is opened with. */
stream_shape engine_stream_shape(const avo_model *model, const engine_plan *plan, uint32_t index);

/* avo_engine_open of an engine that computes only while `beside` does not: their first streams
 * share workers where both devices are CPUs. It is closed first. */
AVO_MUST_USE avo_status engine_open_beside(const avo_model *model,
                                           const avo_engine_options *options, avo_engine *beside,
                                           avo_engine **engine, avo_error *error);

/* One of the steps that are computed at the same time. Model and pages are common to all streams, a
 * session is in one of them at a time. */
typedef struct engine_stream {
    device_stream *stream;
    uint64_t step_serial;        /* of the newest step: whose results the stream holds */
    telemetry_engine *telemetry; /* NULL: none */
} engine_stream;

/* An adapter as the device reads it. It is known by its contents, as in session_adapters_key: the
 * avo_adapter that it was made of may be closed, and opened again. */
typedef struct engine_adapter {
    uint64_t digest[2], map_key;
    device_adapter prepared; /* view NULL: this entry is free */
    uint32_t sessions;       /* that use it; 0: idle, the next session may want it */
    uint64_t idle_since;     /* avo_engine.adapter_releases then */
} engine_adapter;

struct avo_engine {
    const avo_allocator *allocator;
    const avo_model *model;
    engine_plan plan;
    arena arena;     /* rotation tables */
    model_view view; /* the model's as the device has it, with rotation tables for this context */
    device *device;
    device_weights *weights;
    const step_observer *observer; /* observe.h; NULL: nobody looks */
    speculation *speculation;      /* NULL: off */
    draft_model *draft_model;      /* NULL: none */
    draft_heads *draft_heads;      /* NULL: none */
    avo_engine *beside;            /* whose workers its first stream uses; NULL: its own */
    step_cost cost;                /* of steps of avo_generate */
    const struct draft_observer *draft_observer; /* draft_notes.h; NULL: nobody looks */
    const struct draft_policy *draft_policy;     /* draft_policy.h; NULL: exact */
    engine_stream stream[DEVICE_STREAMS_MAX];
    engine_adapter *adapters; /* [adapters_max]; NULL where the device uses them in place */
    uint32_t adapters_max;
    uint64_t adapter_releases;
    kv_pool *kv;
    kv_events *kv_events;    /* what the prefix index does, for gateways; NULL: nobody listens */
    uint32_t sessions;       /* open now */
    uint32_t batches;        /* of callers, open now */
    bool led;                /* by a scheduler: nobody else may open either */
    avo_session *session;    /* [sessions_max] */
    int32_t *session_tokens; /* [sessions_max][context_max] */
    uint32_t *session_pages; /* [sessions_max][pages of a context] */
    avo_session *session_closed; /* a list */
    avo_batch *ring_batch;       /* for what turns of a ring compute again */
    uint64_t session_serial;     /* of the newest session */
};

/* An adapter of a session, which holds a reference of it. */
typedef struct session_adapter {
    avo_adapter *adapter;
    const adapter_view *view; /* as the device reads it */
    float weight;
} session_adapter;

struct avo_session {
    avo_engine *engine;
    uint64_t serial; /* unlike its address, never used again */
    kv_table table;
    int32_t *tokens;   /* [context_max] the timeline */
    uint32_t count;    /* tokens of the timeline */
    uint32_t computed; /* of these, how many have K and V: all but the last one drawn */
    avo_batch *batch;  /* the batch that waits to extend it, or NULL */
    session_adapter adapters[AVO_ADAPTERS_MAX]; /* sorted by digest */
    uint32_t adapter_count;
    prefix_root root; /* under which its pages are known */
    uint16_t label;   /* of its adapters, in the engine's KV events */
    bool alone;       /* its pages are not for others: they were not computed by this engine */
    bool open;
    uint32_t ring_window, ring_keep; /* 0: no ring */
    uint64_t forgotten;              /* tokens that turns have left out, behind ring_keep */
    uint32_t heads_drafter;          /* number + 1 of the drafter that reads its taps; 0: none */
    avo_session *next_closed;
};

static inline draft_sources engine_drafts(const avo_engine *engine) {
    return (draft_sources){engine->draft_model, engine->draft_heads};
}

/* ---- Telemetry ---- */

AVO_MUST_USE avo_status engine_telemetry_open(avo_engine *engine, avo_error *error);
void engine_telemetry_close(avo_engine *engine);
/* A batch was computed, by the thread that leads its stream. */
void engine_telemetry_step(const avo_batch *batch, uint64_t begin_ns);
/* How many KV pages are free, cached and used. By the thread that drives the engine, since no other
 * one may change pages: counts are stored in the order in which they changed. */
void engine_telemetry_pages(avo_engine *engine);

/* One answer that no scheduler leads. All of these do nothing where there is no telemetry. */
typedef struct answer_notes {
    avo_telemetry *telemetry; /* NULL: none */
    telemetry_track *track;
    telemetry_request request;
    uint64_t last_ns; /* of the newest token */
} answer_notes;
void answer_notes_begin(answer_notes *notes, const avo_session *session, size_t prompt_tokens);
/* What was done since `begin_ns`. */
void answer_notes_stage(answer_notes *notes, span_kind kind, uint64_t begin_ns);
void answer_notes_token(answer_notes *notes);
void answer_notes_end(answer_notes *notes, avo_finish finish, bool failed);

/* No scheduler leads it. */
AVO_MUST_USE avo_status engine_check_free(const avo_engine *engine, avo_error *error);

/* ---- Sessions ---- */

/* Bytes of all sessions that a plan has; false when they wrap. */
bool sessions_bytes(const engine_plan *plan, uint64_t *bytes);
AVO_MUST_USE avo_status sessions_open(avo_engine *engine, avo_error *error);
void sessions_close(avo_engine *engine);
/* It waits in no batch; it is empty besides. */
AVO_MUST_USE avo_status session_check_idle(const avo_session *session, avo_error *error);
AVO_MUST_USE avo_status session_check_empty(const avo_session *session, avo_error *error);
/* Pages to write K and V of tokens below `length`. AVO_ERROR_FULL without text: there are too few.
 * Where the device fails, tokens of a page that it lost are owed again. */
AVO_MUST_USE avo_status session_take_pages(avo_session *session, uint32_t length, avo_error *error);
/* Lets others find the pages that are full now. */
void session_publish(avo_session *session);
/* Makes tokens part of the timeline, to be computed by whatever comes next. The caller has seen
 * that they fit; a ring makes them fit. */
void session_append(avo_session *session, const int32_t *tokens, size_t count);
/* Behind a step with drafts, when `computed` says how many of its rows were accepted: gives back
 * the pages of the others and lets other sessions find the full ones. */
void session_settle(avo_session *session);
/* Computes up to `rows` of the tokens that the timeline owes, by a step of their own. */
AVO_MUST_USE avo_status session_catch_up(avo_session *session, uint32_t rows, avo_error *error);

/* ---- Ring mode ---- */

/* Refuses what makes no ring. */
AVO_MUST_USE avo_status ring_check(const avo_engine *engine, const avo_session_options *options,
                                   avo_error *error);
/* What adding tokens does to a timeline. */
typedef struct ring_turn {
    uint32_t length;    /* after it */
    uint64_t forgotten; /* tokens, behind the kept ones; 0: no turn */
    size_t since;       /* tokens added since the last turn */
} ring_turn;
ring_turn ring_measure(const avo_session *session, size_t count);
/* Does it. What is left of the timeline's own tokens is the timeline now, the new ones that stay
 * lie behind its end; returns how many these are. */
uint32_t ring_lay(avo_session *session, const int32_t *tokens, size_t count, const ring_turn *turn);

/* ---- Adapters ---- */

/* The engine's list of prepared adapters; none where the device uses them in place. */
AVO_MUST_USE avo_status engine_adapters_open(avo_engine *engine, avo_error *error);
void engine_adapters_close(avo_engine *engine);

/* Lists the adapters that the options name in the session, in their order, or says why it cannot.
 * Enough for session_adapters_key; holds and prepares nothing. */
AVO_MUST_USE avo_status session_adapters_list(avo_session *session,
                                              const avo_session_options *options, avo_error *error);
/* The same, prepared for the device and with references of them; after a failure, too,
 * session_adapters_give gives back what was taken. */
AVO_MUST_USE avo_status session_adapters_take(avo_session *session,
                                              const avo_session_options *options, avo_error *error);
/* The same adapters for another session of the engine: a fork. */
void session_adapters_share(const avo_session *from, avo_session *to);
void session_adapters_give(avo_session *session);
/* What K and V depend on: digests, keys of maps and weights, [SESSION_ADAPTERS_KEY_BYTES] at most;
 * how many bytes it took. */
#define SESSION_ADAPTERS_KEY_BYTES (AVO_ADAPTERS_MAX * (3 * sizeof(uint64_t) + sizeof(float)))
size_t session_adapters_key(const avo_session *session, uint8_t *key);

typedef struct batch_entry {
    avo_session *session; /* NULL: closed meanwhile */
    uint64_t serial;
    uint32_t rows;
    uint32_t
        drafts; /* of these, the last ones: not part of the timeline before they are accepted */
    uint32_t logit_first;
    uint32_t logit_count;
} batch_entry;

struct avo_batch {
    avo_engine *engine;
    bool counted; /* among the engine's */
    engine_stream *stream;
    avo_error error;
    bool computed;        /* by a step; must be cleared before it is filled again */
    uint64_t step_serial; /* of that step */
    bool session_closed;  /* one of its sessions went away */
    batch_entry *entries; /* [sessions_max] */
    batch_entry *sorted;  /* [sessions_max] room for putting them into order */
    batch_segment *segments;
    uint32_t entry_count;
    int32_t *token;
    uint32_t *position;
    uint32_t *row_segment;
    uint32_t *logit_row;
    uint32_t rows;
    uint32_t logit_rows;
    adapter_run *run; /* [sessions_max · AVO_ADAPTERS_MAX] of the step at hand */
    float *factor;    /* [rows_max · AVO_ADAPTERS_MAX] of these runs */
    uint32_t runs;
    bool gains;             /* an adapter of these has gains */
    uint64_t adapter_bytes; /* that these runs read, each adapter once for its run */
    uint32_t top;           /* highest logits wanted of each scored row; 0: all of them */
    bool whole;             /* all of them are wanted too */
    bool logits_whole;      /* the newest step wrote them all */
    bool scored;            /* rows were scored since: its own logits are gone */
    avo_error lost;         /* work behind the step failed, and with it all of its results */
    uint32_t *score_row;    /* [rows_max] rows that are scored or looked at behind the step */
};

/* Bytes of one batch. */
uint64_t batch_bytes(const engine_plan *plan);
/* Before a step: where sessions have adapters, entries and rows are put into an order in which rows
 * under the same adapters stand together, and the runs are made. Allocates nothing. */
void batch_arrange(avo_batch *batch);
/* The rows of a step, or of work behind it; points into the batch. */
batch_view batch_rows(const avo_batch *batch);
/* Computes `work` with these rows and waits for it. A failure is in batch->error, and no result of
 * the step can be read any more: what a device leaves of it is not known. */
AVO_MUST_USE avo_status batch_compute(avo_batch *batch, device_work work, const batch_view *rows,
                                      const step_observer *observer);
/* An error if there are none to be read any more. */
AVO_MUST_USE avo_status batch_results(const avo_batch *batch, avo_error *error);
/* Lays the rows of an entry behind those of the entries before it. */
void batch_lay_rows(avo_batch *batch, uint32_t entry);

/* Every token is in the vocabulary; the batch's error says which is not. */
AVO_MUST_USE avo_status batch_check_tokens(avo_batch *batch, const int32_t *tokens, size_t count);
/* For those who draw inside the engine: the highest logits of a session's scored token number
 * `index`, for which the batch asked (`top`). */
AVO_MUST_USE avo_status batch_top(const avo_batch *batch, const avo_session *session, size_t index,
                                  const logit_top **top, avo_error *error);
/* All its logits; where the step wrote only the highest, its head is computed once more. */
AVO_MUST_USE avo_status batch_logits(avo_batch *batch, const avo_session *session, size_t index,
                                     const float **logits, avo_error *error);
/* Those of some tokens alone, into `chosen` [count]. */
AVO_MUST_USE avo_status batch_chosen(avo_batch *batch, const avo_session *session, size_t index,
                                     const int32_t *tokens, uint32_t count, float *chosen,
                                     avo_error *error);

#endif
