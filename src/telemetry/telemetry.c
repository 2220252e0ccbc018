/* Telemetry opened and closed: memory, borders of the histograms, and the list of tracks. */
#include "telemetry/telemetry_int.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/options.h"

#include <string.h>
#include <time.h>

/* ---- Borders; those that vLLM has for the same figure ---- */

#define MS ((uint64_t)1000000)
#define S  (1000 * MS)

static const uint64_t first_token_borders[] = {
    1 * MS,   5 * MS,   10 * MS,  20 * MS, 40 * MS,   60 * MS, 80 * MS,   100 * MS,
    250 * MS, 500 * MS, 750 * MS, 1 * S,   2500 * MS, 5 * S,   7500 * MS, 10 * S,
    20 * S,   40 * S,   80 * S,   160 * S, 640 * S,   2560 * S};
static const uint64_t inter_token_borders[] = {10 * MS,  25 * MS,  50 * MS,   75 * MS,  100 * MS,
                                               150 * MS, 200 * MS, 300 * MS,  400 * MS, 500 * MS,
                                               750 * MS, 1 * S,    2500 * MS, 5 * S,    7500 * MS,
                                               10 * S,   20 * S,   40 * S,    80 * S};
static const uint64_t request_borders[] = {
    300 * MS, 500 * MS, 800 * MS, 1 * S,   1500 * MS, 2 * S,    2500 * MS,
    5 * S,    10 * S,   15 * S,   20 * S,  30 * S,    40 * S,   50 * S,
    60 * S,   120 * S,  240 * S,  480 * S, 960 * S,   1920 * S, 7680 * S};
/* A step of a small model on a CPU takes a millisecond or two: half of vLLM's are beside it. */
static const uint64_t step_borders[] = {MS / 4,  MS / 2,  1 * MS,  3 * MS / 2, 2 * MS,   3 * MS,
                                        4 * MS,  6 * MS,  8 * MS,  10 * MS,    15 * MS,  20 * MS,
                                        30 * MS, 50 * MS, 75 * MS, 100 * MS,   200 * MS, 500 * MS,
                                        1 * S,   2 * S,   5 * S};
static const uint64_t step_token_borders[] = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
/* Those above the longest context are not shown. */
static const uint64_t request_token_borders[] = {
    1,    2,     5,     10,    20,     50,     100,    200,     500,     1000,    2000,
    5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000};

#define OPEN(histogram, borders)                                                                   \
    histogram_open(histogram, borders, (uint32_t)(sizeof(borders) / sizeof((borders)[0])))

static void open_histograms(avo_telemetry *t) {
    for (int i = 0; i < TIMES; i++)
        OPEN(&t->times[i], request_borders);
    OPEN(&t->times[TIME_FIRST_TOKEN], first_token_borders);
    OPEN(&t->times[TIME_INTER_TOKEN], inter_token_borders);
    OPEN(&t->times[TIME_PER_TOKEN], inter_token_borders);
    for (int i = 0; i < STEP_CLASSES; i++)
        OPEN(&t->steps[i], step_borders);
    OPEN(&t->step_tokens, step_token_borders);
    OPEN(&t->prompt_tokens, request_token_borders);
    OPEN(&t->new_tokens, request_token_borders);
    OPEN(&t->asked_tokens, request_token_borders);
}

/* ---- Opening ---- */

static void free_closed(avo_telemetry *t);

void name_copy(char name[TELEMETRY_NAME_BYTES], const char *text) {
    size_t bytes = strnlen(text, TELEMETRY_NAME_BYTES - 1);
    memcpy(name, text, bytes);
    name[bytes] = '\0';
}

static avo_status take_options(avo_telemetry_options *own, const avo_telemetry_options *given,
                               avo_error *error) {
    *own = (avo_telemetry_options)AVO_TELEMETRY_OPTIONS_INIT;
    AVO_TRY(options_take(own, sizeof(*own), given, "avo_telemetry_options", error));
    if (own->spans_max == 0)
        own->spans_max = TELEMETRY_SPANS_DEFAULT;
    if (own->adapters_max == 0)
        own->adapters_max = TELEMETRY_ADAPTERS_DEFAULT;
    if (own->spans_max > TELEMETRY_SPANS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "spans_max is %u, must be at most %u",
                           own->spans_max, TELEMETRY_SPANS_MAX);
    if (own->adapters_max > TELEMETRY_ADAPTERS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapters_max is %u, must be at most %u",
                           own->adapters_max, TELEMETRY_ADAPTERS_MAX);
    return AVO_OK;
}

static size_t labels_of(const avo_telemetry *t) {
    return (size_t)t->options.adapters_max + 2;
}

static avo_status open_parts(avo_telemetry *t, avo_error *error) {
    static const telemetry_time shown[] = {TIME_FIRST_TOKEN, TIME_INTER_TOKEN, TIME_QUEUE,
                                           TIME_TOTAL};
    t->labels = allocator_take_array(t->allocator, labels_of(t), sizeof(*t->labels));
    if (t->labels == NULL)
        return status_no_memory(error, "counters of adapters", labels_of(t) * sizeof(*t->labels));
    name_copy(t->labels[0].name, "base");
    name_copy(t->labels[labels_of(t) - 1].name, "other");
    atomic_store(&t->label_count, 1);
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        t->latency[shown[i]] = allocator_take_array(t->allocator, 1, sizeof(window));
        if (t->latency[shown[i]] == NULL)
            return status_no_memory(error, "a window of latencies", sizeof(window));
    }
    return AVO_OK;
}

avo_status avo_telemetry_open(const avo_telemetry_options *options, const avo_allocator *allocator,
                              avo_telemetry **out, avo_error *error) {
    *out = NULL;
    avo_telemetry_options own;
    AVO_TRY(take_options(&own, options, error));
    avo_telemetry *t = allocator_take_array(allocator, 1, sizeof(*t));
    if (t == NULL)
        return status_no_memory(error, "telemetry", sizeof(*t));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->allocator = allocator;
    t->options = own;
    t->options.model_name = NULL;
    t->opened_ns = clock_now_ns();
    t->opened_time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    pthread_mutex_init(&t->lock, NULL);
    if (own.model_name != NULL)
        name_copy(t->name, own.model_name);
    open_histograms(t);
    avo_status status = open_parts(t, error);
    if (status != AVO_OK) {
        avo_telemetry_close(t);
        return status;
    }
    *out = t;
    return AVO_OK;
}

void avo_telemetry_close(avo_telemetry *t) {
    if (t == NULL)
        return;
    free_closed(t);
    for (int i = 0; i < TIMES; i++)
        allocator_give(t->allocator, t->latency[i], sizeof(window));
    allocator_give(t->allocator, t->labels, labels_of(t) * sizeof(*t->labels));
    pthread_mutex_destroy(&t->lock);
    allocator_give(t->allocator, t, sizeof(*t));
}

/* ---- Tracing ---- */

void avo_telemetry_trace_begin(avo_telemetry *t) {
    atomic_fetch_add(&t->tracers, 1);
}

void avo_telemetry_trace_end(avo_telemetry *t) {
    atomic_fetch_sub(&t->tracers, 1);
}

bool telemetry_tracing(const avo_telemetry *t) {
    return t != NULL && atomic_load_explicit(&t->tracers, memory_order_relaxed) > 0;
}

/* ---- Tracks ---- */

static void track_free(telemetry_track *track) {
    avo_telemetry *t = track->telemetry;
    span_ring_close(&track->ring, t->allocator);
    allocator_give(t->allocator, track, sizeof(*track));
}

/* Those that nobody writes to: an engine that has closed can still be looked at, until the next one
 * opens. Where somebody does look, they wait for one that opens later. */
static void free_closed(avo_telemetry *t) {
    pthread_mutex_lock(&t->lock);
    for (telemetry_track **at = &t->tracks; t->trace_writers == 0 && *at != NULL;) {
        telemetry_track *track = *at;
        if (!track->closed) {
            at = &track->next;
            continue;
        }
        *at = track->next;
        track_free(track);
    }
    pthread_mutex_unlock(&t->lock);
}

avo_status telemetry_track_open(avo_telemetry *t, const char *name, telemetry_track **out,
                                avo_error *error) {
    *out = NULL;
    if (t == NULL)
        return AVO_OK;
    free_closed(t);
    telemetry_track *track = allocator_take_array(t->allocator, 1, sizeof(*track));
    if (track == NULL)
        return status_no_memory(error, "a track", sizeof(*track));
    track->telemetry = t;
    name_copy(track->name, name);
    avo_status status = span_ring_open(&track->ring, t->options.spans_max, t->allocator, error);
    if (status != AVO_OK) {
        allocator_give(t->allocator, track, sizeof(*track));
        return status;
    }
    pthread_mutex_lock(&t->lock);
    track->number = ++t->track_serial;
    track->of = track->number;
    telemetry_track **last = &t->tracks;
    while (*last != NULL)
        last = &(*last)->next;
    *last = track;
    pthread_mutex_unlock(&t->lock);
    *out = track;
    return AVO_OK;
}

void telemetry_track_close(telemetry_track *track) {
    if (track == NULL)
        return;
    avo_telemetry *t = track->telemetry;
    pthread_mutex_lock(&t->lock);
    track->closed = true;
    pthread_mutex_unlock(&t->lock);
}

void telemetry_track_add(telemetry_track *track, const telemetry_span *span) {
    if (track != NULL)
        span_ring_add(&track->ring, span);
}

uint32_t telemetry_track_number(const telemetry_track *track) {
    return track == NULL ? 0 : track->number;
}
