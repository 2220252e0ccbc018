/* A Chrome trace (JSON), which Perfetto reads, too: every track a thread with its spans, requests
 * as asynchronous spans of their own, arrows from where a request was tokenised to the plan that
 * began it. Written piece by piece, so that a long trace takes no memory. */
#include "telemetry/trace_int.h"

#include "base/allocator.h"
#include "base/clock.h"

#include <unistd.h>

#define PIECE_SPANS ((uint32_t)256)
#define PIECE_BYTES ((size_t)64 << 10)

static void flush(tracer *tracer) {
    buffer *text = tracer->json.out;
    if (tracer->json.status != AVO_OK || tracer->refused || text->size == 0)
        return;
    tracer->refused = !tracer->write(tracer->context, text->data, text->size);
    text->size = 0;
}

/* Begins an event, on a line of its own; the caller adds members and closes it. */
static json_writer *event(tracer *tracer, const char *phase, const char *name, uint32_t track) {
    json_writer *w = &tracer->json;
    if (w->out->size > PIECE_BYTES - 4096)
        flush(tracer);
    json_line_break(w, 0);
    json_object_begin(w);
    json_member_string(w, "ph", phase);
    json_member_string(w, "name", name);
    json_member_u64(w, "pid", 1);
    json_member_u64(w, "tid", track);
    return w;
}

/* Microseconds, exact to the nanosecond. */
static void member_us(json_writer *w, const char *key, uint64_t ns) {
    json_key(w, key);
    json_raw_format(w, "%llu.%03u", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static bool is_request(span_kind kind) {
    return kind == SPAN_QUEUE || kind == SPAN_PREFILL || kind == SPAN_DECODE;
}

/* Relative to when telemetry was opened, so that times are short. */
static uint64_t since_open(const tracer *tracer, uint64_t ns) {
    return ns > tracer->t->opened_ns ? ns - tracer->t->opened_ns : 0;
}

static void arrow(tracer *tracer, const char *phase, const telemetry_span *span, uint32_t track,
                  uint64_t ns) {
    json_writer *w = event(tracer, phase, "request", track);
    member_us(w, "ts", since_open(tracer, ns));
    json_member_string(w, "cat", "flow");
    json_member_u64(w, "id", span->id);
    if (phase[0] == 'f')
        json_member_string(w, "bp", "e");
    json_end(w);
}

static void write_request(tracer *tracer, const telemetry_span *span) {
    const char *name = span_name(span->kind);
    json_writer *w = event(tracer, "b", name, span->a);
    member_us(w, "ts", since_open(tracer, span->begin_ns));
    json_member_string(w, "cat", "request");
    json_member_u64(w, "id", span->id);
    json_member_object_begin(w, "args");
    json_member_u64(w, "request", span->id);
    if (span->kind != SPAN_QUEUE)
        json_member_u64(w, "tokens", span->b);
    json_end(w);
    json_end(w);
    w = event(tracer, "e", name, span->a);
    member_us(w, "ts", since_open(tracer, span->end_ns));
    json_member_string(w, "cat", "request");
    json_member_u64(w, "id", span->id);
    json_end(w);
    if (span->kind == SPAN_QUEUE)
        arrow(tracer, "f", span, span->a, span->end_ns);
}

static void write_arguments(json_writer *w, const telemetry_span *span) {
    bool phase = span->kind < SPAN_PHASES, step = span->kind == SPAN_STEP;
    json_member_string(w, "cat", phase ? "phase" : step ? "step" : "stage");
    json_member_object_begin(w, "args");
    if (phase) {
        json_member_u64(w, "layer", span->a);
        member_us(w, "wait_us", span->id);
    } else if (step) {
        json_member_u64(w, "step", span->id);
        json_member_u64(w, "decode", span->a);
        json_member_u64(w, "prefill", span->b);
    } else {
        if (span->kind == SPAN_TOKENISE || span->kind == SPAN_DELIVER)
            json_member_u64(w, "request", span->id);
        json_member_u64(w, "tokens", span->a);
    }
    json_end(w);
}

void trace_span(tracer *tracer, uint32_t track, const telemetry_span *span) {
    if (span->end_ns < tracer->from_ns || span->kind >= SPAN_KINDS)
        return;
    if (is_request(span->kind)) {
        write_request(tracer, span);
        return;
    }
    json_writer *w = event(tracer, "X", span_name(span->kind), track);
    member_us(w, "ts", since_open(tracer, span->begin_ns));
    member_us(w, "dur", span->end_ns - span->begin_ns);
    write_arguments(w, span);
    json_end(w);
    if (span->kind == SPAN_TOKENISE)
        arrow(tracer, "s", span, track, span->begin_ns);
}

void trace_track(tracer *tracer, const telemetry_track *track) {
    if (track->of != track->number)
        return;
    json_writer *w = event(tracer, "M", "thread_name", track->number);
    json_member_object_begin(w, "args");
    json_member_string(w, "name", track->name);
    json_end(w);
    json_end(w);
    w = event(tracer, "M", "thread_sort_index", track->number);
    json_member_object_begin(w, "args");
    json_member_u64(w, "sort_index", track->number);
    json_end(w);
    json_end(w);
}

void trace_lost(tracer *tracer, const char *what, const telemetry_track *track, uint64_t count) {
    json_writer *w = event(tracer, "M", what, track->of);
    json_member_object_begin(w, "args");
    json_member_string(w, "track", track->name);
    json_member_u64(w, "count", count);
    json_end(w);
    json_end(w);
}

static void write_track(tracer *tracer, telemetry_track *track) {
    telemetry_span spans[PIECE_SPANS];
    uint64_t from = 0, seen = 0;
    trace_track(tracer, track);
    uint64_t written = atomic_load(&track->ring.written); /* no more: others write on */
    while (from < written && tracer->json.status == AVO_OK && !tracer->refused) {
        uint32_t count = span_ring_read(&track->ring, &from, spans, PIECE_SPANS);
        if (count == 0)
            break;
        seen += count;
        for (uint32_t i = 0; i < count; i++)
            trace_span(tracer, track->of, &spans[i]);
    }
    if (written > seen) /* the oldest have been overwritten: whoever looks shall know */
        trace_lost(tracer, "spans_overwritten", track, written - seen);
}

void trace_begin(tracer *tracer) {
    json_writer *w = &tracer->json;
    json_object_begin(w);
    json_member_string(w, "displayTimeUnit", "ms");
    json_member_object_begin(w, "otherData");
    json_member_string(w, "version", avo_version());
    json_member_string(w, "model", tracer->t->name);
    json_end(w);
    json_member_array_begin(w, "traceEvents");
    event(tracer, "M", "process_name", 0);
    json_member_object_begin(w, "args");
    json_member_string(w, "name", "avocet");
    json_end(w);
    json_end(w);
}

avo_status trace_end(tracer *tracer, avo_error *error) {
    json_writer *w = &tracer->json;
    json_line_break(w, 0);
    json_end(w);
    json_end(w);
    json_writer_note(w, buffer_append(w->out, "\n", 1));
    flush(tracer);
    buffer_free(w->out);
    avo_status status = json_writer_status(w);
    if (status != AVO_OK)
        return status_fail(error, status, "trace: %s", avo_status_text(status));
    if (tracer->refused)
        return status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the export was cancelled");
    return AVO_OK;
}

void trace_open(tracer *tracer, avo_telemetry *t, buffer *text, avo_write_function write,
                void *context) {
    buffer_init(text, t->allocator, 2 * PIECE_BYTES);
    *tracer =
        (struct tracer){.t = t, .json = json_writer_of(text), .write = write, .context = context};
}

/* ---- All that the rings have ---- */

/* Tracks as they are now, which stay until trace_leave. Whoever opens or closes an engine, or asks
 * for metrics, needs the lock, and must not wait for a reader of the trace. */
typedef struct track_list {
    telemetry_track **tracks;
    size_t count;
} track_list;

static avo_status trace_enter(tracer *tracer, track_list *list, avo_error *error) {
    avo_telemetry *t = tracer->t;
    avo_status status = AVO_OK;
    *list = (track_list){NULL, 0};
    pthread_mutex_lock(&t->lock);
    trace_begin(tracer); /* the name; too short to be handed over here */
    for (const telemetry_track *track = t->tracks; track != NULL; track = track->next)
        list->count++;
    if (list->count > 0)
        list->tracks = allocator_take_array(t->allocator, list->count, sizeof(*list->tracks));
    if (list->count > 0 && list->tracks == NULL)
        status = status_no_memory(error, "a trace", list->count * sizeof(*list->tracks));
    size_t at = 0;
    for (telemetry_track *track = t->tracks; track != NULL && status == AVO_OK; track = track->next)
        list->tracks[at++] = track;
    t->trace_writers += status == AVO_OK;
    pthread_mutex_unlock(&t->lock);
    return status;
}

static void trace_leave(avo_telemetry *t, const track_list *list) {
    pthread_mutex_lock(&t->lock);
    t->trace_writers--;
    pthread_mutex_unlock(&t->lock);
    allocator_give(t->allocator, list->tracks, list->count * sizeof(*list->tracks));
}

avo_status avo_telemetry_trace_write(avo_telemetry *t, double seconds, avo_write_function write,
                                     void *context, avo_error *error) {
    if (!(seconds > 0.0))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "trace duration is %g seconds, must be more than 0", seconds);
    buffer text;
    tracer tracer;
    trace_open(&tracer, t, &text, write, context);
    uint64_t now = clock_now_ns();
    double most = (double)now * 1e-9;
    tracer.from_ns = seconds < most ? now - (uint64_t)(seconds * 1e9) : 0;
    track_list list;
    avo_status status = trace_enter(&tracer, &list, error);
    if (status != AVO_OK) {
        buffer_free(&text);
        return status;
    }
    for (size_t i = 0; i < list.count; i++)
        write_track(&tracer, list.tracks[i]);
    trace_leave(t, &list);
    return trace_end(&tracer, error);
}
