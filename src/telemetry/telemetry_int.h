/* Inside telemetry/: what is counted, where it lies, and the exporters' parts. */
#ifndef AVO_TELEMETRY_TELEMETRY_INT_H
#define AVO_TELEMETRY_TELEMETRY_INT_H

#include "base/buffer.h"
#include "telemetry/hardware.h"
#include "telemetry/histogram.h"
#include "telemetry/ring.h"
#include "telemetry/telemetry.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- Limits ---- */
#define TELEMETRY_SPANS_DEFAULT    32768u
#define TELEMETRY_SPANS_MAX        (1u << 24)
#define TELEMETRY_ADAPTERS_DEFAULT 64u
#define TELEMETRY_ADAPTERS_MAX     4096u
#define TELEMETRY_NAME_BYTES       128 /* of adapters, models and tracks; longer ones are cut */
#define TELEMETRY_LATENCY_NS       ((uint64_t)60000000000)
#define TELEMETRY_RATE_NS          ((uint64_t)5000000000)

typedef struct telemetry_sum {
    _Atomic uint64_t ns, count;
} telemetry_sum;

/* ---- Tracks ---- */

struct telemetry_track {
    avo_telemetry *telemetry;
    telemetry_track *next;
    uint32_t number; /* in traces */
    bool closed;     /* nobody writes any more; its spans stay until another one is opened */
    /* The track beside whose spans these are shown; its own number otherwise. */
    _Atomic uint32_t of;
    char name[TELEMETRY_NAME_BYTES];
    span_ring ring;
    /* Under the lock: what a recording has taken so far, what was overwritten before it could, and
     * what it had no room for. */
    uint64_t record_from, record_lost, record_dropped;
    struct record_chunk *record_chunk;
};

/* ---- Adapters ---- */

typedef struct telemetry_label {
    char name[TELEMETRY_NAME_BYTES];
    _Atomic uint64_t requests, prompt_tokens, new_tokens;
    _Atomic int64_t running, waiting;
} telemetry_label;

/* ---- Engines ---- */

/* Written by one worker, read by exporters. */
typedef struct telemetry_worker {
    _Alignas(64) _Atomic uint64_t phase_ns[SPAN_PHASES];
    _Atomic uint64_t wait_ns[SPAN_PHASES];
    uint64_t waited_ns; /* so far; its own */
    telemetry_track *track;
    hardware_counters hardware;
} telemetry_worker;

/* Of the newest step. */
typedef struct telemetry_batch {
    _Atomic uint64_t end_ns;
    _Atomic uint32_t rows, decode_rows;
} telemetry_batch;

struct telemetry_engine {
    avo_telemetry *telemetry;
    telemetry_engine *next;
    telemetry_facts facts; /* its texts point at nothing of the caller's */
    char isa[TELEMETRY_NAME_BYTES];
    telemetry_track *leader; /* steps; phases of worker 0 are shown beside them */
    telemetry_worker *workers;
    uint64_t steps;
    telemetry_batch batch;
    _Atomic uint32_t pages_free, pages_cached, pages_used, pages_host;
    _Atomic uint64_t queried_tokens, hit_tokens, moved_out, moved_in;
    _Atomic int64_t leader_thread; /* whose cycles count as worker 0's */
};

struct telemetry_source {
    avo_telemetry *telemetry;
    telemetry_source *next;
    void (*read)(void *context, telemetry_counts *counts);
    void *context;
};

/* What there was when the last row of a history was written. */
typedef struct history_mark {
    uint64_t ns; /* 0: none was */
    uint64_t prompt_tokens, new_tokens, read_bytes, busy_ns;
} history_mark;

typedef enum finish_class { FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_CLASSES } finish_class;

typedef enum step_class { STEP_DECODE, STEP_PREFILL, STEP_MIXED, STEP_CLASSES } step_class;

struct avo_telemetry {
    const avo_allocator *allocator;
    avo_telemetry_options options; /* every 0 replaced; model_name points into name */
    uint64_t opened_ns;
    double opened_time; /* Unix */
    _Atomic int tracers;

    /* Under the lock: lists, and what those have left who went. */
    pthread_mutex_t lock;
    char name[TELEMETRY_NAME_BYTES];
    uint32_t track_serial;
    telemetry_track *tracks;
    telemetry_engine *engines;
    telemetry_source *sources;
    telemetry_counts past; /* of sources that closed */
    uint64_t past_phase_ns[SPAN_PHASES], past_wait_ns[SPAN_PHASES];
    uint64_t past_queried_tokens, past_hit_tokens;
    uint64_t past_hardware[HARDWARE_EVENTS];
    history_mark history;
    bool recording;         /* a trace */
    uint32_t trace_writers; /* who look at tracks without the lock: none goes meanwhile */

    telemetry_sum stages[STAGES];
    histogram times[TIMES];
    histogram steps[STEP_CLASSES];
    histogram step_tokens, prompt_tokens, new_tokens, asked_tokens;
    window *latency[TIMES]; /* NULL: nobody shows its last seconds */
    rate rates[RATES];
    rate read_bytes, busy_ns; /* busy: while any step ran */
    /* Steps that run now (8 bits) and, above, since when that time was not counted yet:
     * nanoseconds since opened_ns. */
    _Atomic uint64_t busy;
    _Atomic uint64_t busy_total; /* nanoseconds */
    _Atomic uint64_t read_total;
    _Atomic uint64_t decode_rows, prefill_rows;
    _Atomic uint64_t finished[FINISH_CLASSES];
    /* Speculation: verifications, their draft tokens, and how often the one at each position was
     * accepted. */
    _Atomic uint64_t drafts, draft_tokens, accepted_at[TELEMETRY_DRAFTS_MAX];
    _Atomic double read_limit; /* bytes a second; 0: not measured */

    /* Requests of those that have no source. */
    struct {
        _Atomic uint64_t running, submitted, finished, failed, cancelled, expired;
        _Atomic uint64_t prompt_tokens, new_tokens;
    } alone;

    telemetry_label *labels; /* [adapters_max + 2]: base, adapters, other */
    _Atomic uint32_t label_count;
};

/* ---- Exporters: everything into `out`; the lock is held ---- */

AVO_MUST_USE avo_status export_prometheus(avo_telemetry *t, buffer *out);
AVO_MUST_USE avo_status export_json(avo_telemetry *t, buffer *out);
AVO_MUST_USE avo_status export_csv(avo_telemetry *t, buffer *out);

/* What is known only in parts, summed up. */
typedef struct telemetry_totals {
    telemetry_counts counts;
    uint64_t phase_ns[SPAN_PHASES], wait_ns[SPAN_PHASES]; /* of worker 0; of all workers */
    uint64_t pages, pages_free, pages_cached, pages_used, pages_host, page_tokens;
    uint64_t queried_tokens, hit_tokens, moved_out, moved_in;
    uint64_t weight_bytes, kv_bytes, scratch_bytes;
    uint32_t threads;
    uint32_t rows, decode_rows; /* of the newest step of each lane, where it is new */
    uint32_t context_max;       /* 0: not known */
    const char *isa;            /* of the newest engine; NULL: none is open */
    uint64_t hardware[HARDWARE_EVENTS];
    bool hardware_known[HARDWARE_EVENTS];
    char hardware_text[256]; /* why there is none; empty: there is, or nobody asked */
} telemetry_totals;
void telemetry_sum_up(avo_telemetry *t, telemetry_totals *totals);

/* Bytes a second that steps read while they ran, over the last seconds; negative: none ran. */
double telemetry_bandwidth(avo_telemetry *t, uint64_t now_ns);
/* Bytes a second that memory gives; 0: not measured. It was measured once, perhaps while others
 * read as well: where steps of half a second together read more, that is the limit from then on. */
#define TELEMETRY_LIMIT_NS 500000000u
double telemetry_limit(avo_telemetry *t, uint64_t now_ns);

/* Draft tokens accepted, of all positions. */
uint64_t telemetry_accepted_drafts(avo_telemetry *t);

const char *stage_name(telemetry_stage stage);
const char *phase_name(span_kind phase);
const char *span_name(span_kind kind);
const char *finish_class_name(finish_class finish);
const char *step_class_name(step_class step);

/* Copies a name, cut where it is too long. */
void name_copy(char name[TELEMETRY_NAME_BYTES], const char *text);

static inline uint64_t atomic_look(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

#endif
