/* A trace of the seconds to come. Rings hold the newest spans only, a second's or less of a fast
 * model, so they are emptied into memory again and again while it lasts: nothing but copies, which
 * disturb those who compute as little as can be. The text is made when the time is over. */
#include "telemetry/trace_int.h"

#include "base/allocator.h"
#include "base/clock.h"

#include <time.h>

#define CHUNK_SPANS ((uint32_t)4096)
#define TICK_NS     10000000

/* Spans of one track, in order. */
typedef struct record_chunk {
    struct record_chunk *next;
    uint32_t track; /* beside whose they are shown */
    uint32_t count;
    telemetry_span spans[CHUNK_SPANS];
} record_chunk;

typedef struct recording {
    avo_telemetry *t;
    record_chunk *chunks; /* the newest first */
    uint64_t spans, spans_max;
} recording;

/* Where the track's next spans go; NULL: there is no memory. */
static record_chunk *chunk_of(recording *r, telemetry_track *track) {
    record_chunk *at = track->record_chunk;
    if (at != NULL && at->count < CHUNK_SPANS)
        return at;
    at = allocator_take(r->t->allocator, sizeof(*at));
    if (at != NULL) {
        at->next = r->chunks;
        at->track = track->of;
        at->count = 0;
        r->chunks = track->record_chunk = at;
    }
    return at;
}

static void recording_free(recording *r) {
    for (record_chunk *at = r->chunks; at != NULL;) {
        record_chunk *next = at->next;
        allocator_give(r->t->allocator, at, sizeof(*at));
        at = next;
    }
}

/* Everything that the track has had since the last look. What was overwritten before, or has no
 * room, is counted. */
static void take_track(recording *r, telemetry_track *track) {
    uint64_t written = atomic_load(&track->ring.written); /* no more: others write on */
    while (track->record_from < written) {
        uint64_t room = r->spans_max - r->spans, before = track->record_from;
        record_chunk *at = room == 0 ? NULL : chunk_of(r, track);
        if (at == NULL) {
            track->record_dropped += written - before;
            track->record_from = written;
            return;
        }
        uint32_t most = CHUNK_SPANS - at->count;
        most = room < most ? (uint32_t)room : most;
        uint32_t got =
            span_ring_read(&track->ring, &track->record_from, at->spans + at->count, most);
        if (got == 0)
            return;
        at->count += got;
        r->spans += got;
        track->record_lost += track->record_from - before - got;
    }
}

static void take_all(recording *r) {
    pthread_mutex_lock(&r->t->lock);
    for (telemetry_track *track = r->t->tracks; track != NULL; track = track->next)
        take_track(r, track);
    pthread_mutex_unlock(&r->t->lock);
}

/* False: somebody else records. */
static bool begin(avo_telemetry *t) {
    pthread_mutex_lock(&t->lock);
    bool good = !t->recording;
    t->recording = true;
    for (telemetry_track *track = t->tracks; good && track != NULL; track = track->next) {
        track->record_from = atomic_load(&track->ring.written);
        track->record_lost = track->record_dropped = 0;
        track->record_chunk = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    if (good)
        avo_telemetry_trace_begin(t);
    return good;
}

/* Tracks that opened meanwhile know of it, too. */
static void end(avo_telemetry *t) {
    pthread_mutex_lock(&t->lock);
    t->recording = false;
    for (telemetry_track *track = t->tracks; track != NULL; track = track->next)
        track->record_chunk = NULL;
    pthread_mutex_unlock(&t->lock);
}

static avo_status write_all(recording *r, uint64_t begin_ns, avo_write_function write,
                            void *context, avo_error *error) {
    buffer text;
    tracer tracer;
    trace_open(&tracer, r->t, &text, write, context);
    tracer.from_ns = begin_ns;
    pthread_mutex_lock(&r->t->lock);
    trace_begin(&tracer);
    for (const telemetry_track *track = r->t->tracks; track != NULL; track = track->next) {
        trace_track(&tracer, track);
        if (track->record_lost > 0)
            trace_lost(&tracer, "spans_overwritten", track, track->record_lost);
        if (track->record_dropped > 0)
            trace_lost(&tracer, "spans_dropped", track, track->record_dropped);
    }
    pthread_mutex_unlock(&r->t->lock);
    for (const record_chunk *at = r->chunks; at != NULL && !tracer.refused; at = at->next)
        for (uint32_t i = 0; i < at->count; i++)
            trace_span(&tracer, at->track, &at->spans[i]);
    return trace_end(&tracer, error);
}

avo_status avo_telemetry_trace_record(avo_telemetry *t, double seconds, uint64_t spans_max,
                                      const avo_trace_reader *reader, avo_error *error) {
    if (!(seconds > 0.0))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "trace duration is %g seconds, must be more than 0", seconds);
    if (!begin(t))
        return status_fail(error, AVO_ERROR_LIMIT, "another trace is being recorded");
    recording r = {.t = t, .spans_max = spans_max > 0 ? spans_max : UINT64_MAX};
    const struct timespec tick = {0, TICK_NS};
    uint64_t begin_ns = clock_now_ns();
    bool wanted = true;
    while (wanted && clock_seconds(begin_ns, clock_now_ns()) < seconds) {
        nanosleep(&tick, NULL);
        take_all(&r);
        wanted = reader->wanted == NULL || reader->wanted(reader->context);
    }
    avo_telemetry_trace_end(t);
    take_all(&r);
    avo_status status =
        wanted ? write_all(&r, begin_ns, reader->write, reader->context, error)
               : status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the export was cancelled");
    end(t);
    recording_free(&r);
    return status;
}
