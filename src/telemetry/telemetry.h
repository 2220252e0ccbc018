/* Counters, histograms and spans, as those record who compute.
 *
 * Recording takes no lock, no memory and no system call but the clock's. A NULL handle records
 * nothing, so that whoever records need not ask. What is opened here (engines, tracks, sources) is
 * given memory then, and listed under a lock that only opening, closing and exporting take.
 *
 * Times are of clock_now_ns.
 */
#ifndef AVO_TELEMETRY_TELEMETRY_H
#define AVO_TELEMETRY_TELEMETRY_H

#include "base/status.h"

/* ---- Spans ---- */

/* Phases of a step come first: they are indices of their own. */
typedef enum span_kind {
    SPAN_EMBED,
    SPAN_ATTENTION_INPUT,
    SPAN_ATTENTION,
    SPAN_ATTENTION_OUTPUT,
    SPAN_FEED_FORWARD_INPUT,
    SPAN_FEED_FORWARD_OUTPUT,
    SPAN_HEAD,
    SPAN_PHASES,
    /* on the thread that does it */
    SPAN_STEP = SPAN_PHASES, /* a, b: rows that decode, rows of prompts; id: of the step */
    SPAN_PLAN,
    SPAN_SAMPLE,   /* a: tokens drawn */
    SPAN_TOKENISE, /* id: of the request; a: tokens */
    SPAN_DELIVER,  /* id: of the request; a: tokens */
    /* of a request, beside the threads; id: its number; a: the track of its steps */
    SPAN_QUEUE,
    SPAN_PREFILL, /* b: tokens of the prompt */
    SPAN_DECODE,  /* b: tokens of the answer */
    SPAN_KINDS
} span_kind;

typedef struct telemetry_span {
    uint64_t begin_ns, end_ns;
    uint64_t id;
    uint32_t a, b;
    span_kind kind;
} telemetry_span;

/* The ring of one thread: the newest spans stay. One writer at a time. */
typedef struct telemetry_track telemetry_track;

/* `name` is copied. */
AVO_MUST_USE avo_status telemetry_track_open(avo_telemetry *t, const char *name,
                                             telemetry_track **out, avo_error *error);
/* Its spans can be read until another track is opened. */
void telemetry_track_close(telemetry_track *track);
void telemetry_track_add(telemetry_track *track, const telemetry_span *span);
uint32_t telemetry_track_number(const telemetry_track *track);

/* Whether spans within steps are wanted now. */
bool telemetry_tracing(const avo_telemetry *t);

/* ---- Counters and histograms ---- */

/* Time of a stage and how often, beside its spans. */
typedef enum telemetry_stage {
    STAGE_TOKENISE, /* threads' wall time */
    STAGE_QUEUE,    /* requests' */
    STAGE_PREFILL,  /* steps with rows of prompts */
    STAGE_DECODE,   /* steps without */
    STAGE_SAMPLE,
    STAGE_DELIVER,
    STAGES
} telemetry_stage;
void telemetry_stage_add(avo_telemetry *t, telemetry_stage stage, uint64_t ns, uint64_t count);

/* What the last seconds had. */
typedef enum telemetry_rate { RATE_NEW_TOKENS, RATE_PROMPT_TOKENS, RATES } telemetry_rate;
void telemetry_rate_add(avo_telemetry *t, telemetry_rate rate, uint64_t amount, uint64_t now_ns);

typedef enum telemetry_time {
    TIME_FIRST_TOKEN, /* from submission */
    TIME_INTER_TOKEN,
    TIME_TOTAL,
    TIME_QUEUE,
    TIME_PREFILL,   /* from the first step to the first token */
    TIME_DECODE,    /* from the first token to the end */
    TIME_RUNNING,   /* from the first step to the end */
    TIME_PER_TOKEN, /* of a request: its decode time over its tokens but the first */
    TIMES
} telemetry_time;
void telemetry_time_add(avo_telemetry *t, telemetry_time time, uint64_t ns, uint64_t now_ns);

/* One verification of `drafted` draft tokens, of which the first `accepted` were right; 0 drafted:
 * none was made. */
#define TELEMETRY_DRAFTS_MAX 16
void telemetry_drafts_add(avo_telemetry *t, uint32_t drafted, uint32_t accepted);

/* ---- Requests ---- */

/* The number of an adapter's counters: 0 is the base, names beyond the limit share one. Names are
 * kept for good: ask once the adapter is known to be there. */
uint32_t telemetry_adapter(avo_telemetry *t, const char *name);
/* One more, or one less, of these runs now, or waits. */
void telemetry_running_add(avo_telemetry *t, uint32_t adapter, int change);
void telemetry_waiting_add(avo_telemetry *t, uint32_t adapter, int change);

typedef struct telemetry_request {
    uint64_t number;
    uint64_t submitted_ns, begun_ns, first_ns, over_ns; /* 0: never */
    uint32_t prompt_tokens, new_tokens;
    uint32_t new_tokens_max; /* asked for; 0: no limit */
    uint32_t adapter;
    avo_finish finish;
    bool failed; /* `finish` says nothing */
} telemetry_request;
/* A request is over: its times and tokens. */
void telemetry_request_over(avo_telemetry *t, const telemetry_request *request);

/* Counts of somebody who has them anyway: a scheduler. */
typedef struct telemetry_counts {
    uint64_t running, waiting;
    uint64_t adapters_max; /* different ones that can be computed together; 0: not known */
    uint64_t submitted, finished, failed, cancelled, refused, expired, preemptions;
    uint64_t prompt_tokens, new_tokens, reused_tokens, recomputed_tokens;
} telemetry_counts;

/* Asked by whoever exports. Closing asks it a last time, so that what was counted stays. */
typedef struct telemetry_source telemetry_source;
AVO_MUST_USE avo_status telemetry_source_open(avo_telemetry *t,
                                              void (*read)(void *context, telemetry_counts *counts),
                                              void *context, telemetry_source **out,
                                              avo_error *error);
void telemetry_source_close(telemetry_source *source);
/* Counts of whoever has no source: one request that began, drew a token, or ended. Gives its
 * number. */
uint64_t telemetry_alone_begin(avo_telemetry *t, uint32_t prompt_tokens);
void telemetry_alone_token(avo_telemetry *t);
void telemetry_alone_end(avo_telemetry *t, const telemetry_request *request);

/* ---- Engines ---- */

#define TELEMETRY_WINDOWS_MAX 4 /* kinds of layers that see different lengths */

typedef struct telemetry_facts {
    const char *model_path;
    const char *isa;
    uint32_t workers; /* threads that compute a step */
    uint32_t threads; /* that this adds to those of the process; 0: others count them */
    uint32_t pages, page_tokens;
    uint64_t weight_bytes, kv_bytes, scratch_bytes;
    /* What a step reads: matrices, the head where logits are wanted, and of K and V for each
     * position that a session's rows see. */
    uint64_t step_bytes, head_bytes;
    uint32_t context_max; /* of a session */
    uint32_t lane;        /* 0: the first, whose leader plans and draws; others have names of it */
    struct {
        uint32_t window; /* 0: all */
        uint64_t position_bytes;
    } seen[TELEMETRY_WINDOWS_MAX];
} telemetry_facts;

/* A team that computes steps; an engine with two lanes has two. */
typedef struct telemetry_engine telemetry_engine;
AVO_MUST_USE avo_status telemetry_engine_open(avo_telemetry *t, const telemetry_facts *facts,
                                              telemetry_engine **out, avo_error *error);
void telemetry_engine_close(telemetry_engine *engine);
/* For spans of the thread that leads the engine. */
telemetry_track *telemetry_engine_track(telemetry_engine *engine);
/* Cycles and the like of the calling thread count as those of a worker from now on; nothing where
 * they do not count anyway. What counts, or why nothing does, in words; always terminated. */
void telemetry_engine_count(telemetry_engine *engine, uint32_t worker);
void telemetry_engine_hardware(const telemetry_engine *engine, char *text, size_t capacity);

/* What the machine can read, bytes a second. */
void telemetry_engine_limit(telemetry_engine *engine, double bytes_per_second);

typedef struct telemetry_pages {
    uint32_t free, cached, used;
    uint32_t host; /* cached in the host's memory */
    uint64_t queried_tokens, hit_tokens;
    uint64_t moved_out, moved_in; /* pages, to the host's memory and back */
} telemetry_pages;
void telemetry_engine_pages(telemetry_engine *engine, const telemetry_pages *pages);

typedef struct telemetry_step {
    uint64_t begin_ns, end_ns;
    uint32_t rows, decode_rows;
    uint64_t read_bytes;
} telemetry_step;
/* The step that begins now; its time, for whom telemetry_engine_step is told of it. Steps of two
 * lanes may overlap: what they read a second is counted over the time in which any of them ran. */
uint64_t telemetry_engine_begin(telemetry_engine *engine);
void telemetry_engine_step(telemetry_engine *engine, const telemetry_step *step);
/* Of K and V, bytes that rows of one session read whose last one sees `length` positions and whose
 * first one sees `rows` − 1 less. */
uint64_t telemetry_engine_reads(const telemetry_engine *engine, uint32_t length, uint32_t rows);
uint64_t telemetry_engine_weights(const telemetry_engine *engine, bool head);

/* ---- Phases of a step, by each of its workers ---- */

/* A worker has computed its part of a phase since `begin_ns`. */
typedef struct telemetry_phase {
    span_kind kind;
    uint32_t layer, worker;
    uint64_t begin_ns;
    uint64_t waited_ns; /* that the worker has waited for others since its stream was opened */
    bool tracing;       /* a span is wanted, too; the same for all workers of a step */
} telemetry_phase;
void telemetry_engine_phase(telemetry_engine *engine, const telemetry_phase *phase);

/* What the first workers of all engines have spent in phases so far. */
void telemetry_phase_times(avo_telemetry *t, uint64_t ns[SPAN_PHASES]);

#endif
