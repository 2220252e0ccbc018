/* Engines: their steps, the phases of these by worker, KV pages, and counters of the processor. */
#include "telemetry/telemetry_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Opening and closing ---- */

static avo_status open_workers(telemetry_engine *engine, avo_error *error) {
    avo_telemetry *t = engine->telemetry;
    uint32_t count = engine->facts.workers;
    engine->workers = allocator_take_array(t->allocator, count, sizeof(*engine->workers));
    if (engine->workers == NULL)
        return status_no_memory(error, "counters of worker threads",
                                count * sizeof(*engine->workers));
    bool first = engine->facts.lane == 0;
    AVO_TRY(telemetry_track_open(t, first ? "engine" : "prefill", &engine->leader, error));
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), first ? "worker %u" : "prefill worker %u", i);
        AVO_TRY(telemetry_track_open(t, name, &engine->workers[i].track, error));
    }
    /* Worker 0 is the thread that leads. */
    engine->workers[0].track->of = engine->leader->number;
    return AVO_OK;
}

static void close_workers(telemetry_engine *engine) {
    uint32_t count = engine->workers == NULL ? 0 : engine->facts.workers;
    for (uint32_t i = 0; i < count; i++)
        telemetry_track_close(engine->workers[i].track);
    telemetry_track_close(engine->leader);
    allocator_give(engine->telemetry->allocator, engine->workers, count * sizeof(*engine->workers));
    allocator_give(engine->telemetry->allocator, engine, sizeof(*engine));
}

/* After the file, unless it has a name already. */
static void name_model(avo_telemetry *t, const char *path) {
    if (path == NULL || t->name[0] != '\0')
        return;
    text_view name = file_last_part(path);
    memcpy(t->name, name.data, size_min(name.size, sizeof(t->name) - 1));
}

avo_status telemetry_engine_open(avo_telemetry *t, const telemetry_facts *facts,
                                 telemetry_engine **out, avo_error *error) {
    *out = NULL;
    if (t == NULL)
        return AVO_OK;
    telemetry_engine *engine = allocator_take_array(t->allocator, 1, sizeof(*engine));
    if (engine == NULL)
        return status_no_memory(error, "counters of an engine", sizeof(*engine));
    engine->telemetry = t;
    engine->facts = *facts;
    name_copy(engine->isa, facts->isa);
    engine->facts.isa = engine->facts.model_path = NULL;
    atomic_store(&engine->pages_free, facts->pages);
    avo_status status = open_workers(engine, error);
    if (status != AVO_OK) {
        close_workers(engine);
        return status;
    }
    pthread_mutex_lock(&t->lock);
    name_model(t, facts->model_path);
    engine->next = t->engines;
    t->engines = engine;
    pthread_mutex_unlock(&t->lock);
    *out = engine;
    return AVO_OK;
}

/* What it counted stays. */
static void keep_past(telemetry_engine *engine) {
    avo_telemetry *t = engine->telemetry;
    t->past_queried_tokens += atomic_look(&engine->queried_tokens);
    t->past_hit_tokens += atomic_look(&engine->hit_tokens);
    for (uint32_t worker = 0; worker < engine->facts.workers; worker++) {
        telemetry_worker *own = &engine->workers[worker];
        hardware_close(&own->hardware);
        for (int i = 0; i < SPAN_PHASES; i++) {
            t->past_phase_ns[i] += worker == 0 ? atomic_look(&own->phase_ns[i]) : 0;
            t->past_wait_ns[i] += atomic_look(&own->wait_ns[i]);
        }
        for (int i = 0; i < HARDWARE_EVENTS; i++)
            t->past_hardware[i] += atomic_look(&own->hardware.past[i]);
    }
}

void telemetry_engine_close(telemetry_engine *engine) {
    if (engine == NULL)
        return;
    avo_telemetry *t = engine->telemetry;
    pthread_mutex_lock(&t->lock);
    keep_past(engine);
    telemetry_engine **at = &t->engines;
    while (*at != engine)
        at = &(*at)->next;
    *at = engine->next;
    pthread_mutex_unlock(&t->lock);
    close_workers(engine);
}

telemetry_track *telemetry_engine_track(telemetry_engine *engine) {
    return engine == NULL ? NULL : engine->leader;
}

/* ---- Counters of the processor ---- */

void telemetry_engine_count(telemetry_engine *engine, uint32_t worker) {
    if (engine == NULL || !engine->telemetry->options.hardware)
        return;
    if (worker == 0) { /* any thread may lead, one after the other */
        int64_t self = (int64_t)syscall(SYS_gettid);
        if (atomic_exchange(&engine->leader_thread, self) == self)
            return;
    }
    pthread_mutex_lock(&engine->telemetry->lock); /* nobody reads while it changes */
    hardware_open(&engine->workers[worker].hardware);
    pthread_mutex_unlock(&engine->telemetry->lock);
}

void telemetry_engine_hardware(const telemetry_engine *engine, char *text, size_t capacity) {
    snprintf(text, capacity, "no hardware counters: not requested");
    if (engine == NULL || !engine->telemetry->options.hardware)
        return;
    size_t used = 0;
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        if (atomic_load(&engine->workers[0].hardware.descriptor[i]) == 0 || used >= capacity)
            continue;
        int wrote =
            snprintf(text + used, capacity - used, "%s%s", used == 0 ? "hardware counters: " : ", ",
                     hardware_name((hardware_event)i));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (used == 0)
        hardware_reason(atomic_load(&engine->workers[0].hardware.failure), text, capacity);
}

/* ---- Steps ---- */

void telemetry_engine_limit(telemetry_engine *engine, double bytes_per_second) {
    if (engine != NULL)
        atomic_store(&engine->telemetry->read_limit, bytes_per_second);
}

void telemetry_engine_pages(telemetry_engine *engine, const telemetry_pages *pages) {
    if (engine == NULL)
        return;
    atomic_store_explicit(&engine->pages_free, pages->free, memory_order_relaxed);
    atomic_store_explicit(&engine->pages_cached, pages->cached, memory_order_relaxed);
    atomic_store_explicit(&engine->pages_used, pages->used, memory_order_relaxed);
    atomic_store_explicit(&engine->queried_tokens, pages->queried_tokens, memory_order_relaxed);
    atomic_store_explicit(&engine->hit_tokens, pages->hit_tokens, memory_order_relaxed);
    atomic_store_explicit(&engine->pages_host, pages->host, memory_order_relaxed);
    atomic_store_explicit(&engine->moved_out, pages->moved_out, memory_order_relaxed);
    atomic_store_explicit(&engine->moved_in, pages->moved_in, memory_order_relaxed);
}

uint64_t telemetry_engine_weights(const telemetry_engine *engine, bool head) {
    return engine->facts.step_bytes + (head ? engine->facts.head_bytes : 0);
}

uint64_t telemetry_engine_reads(const telemetry_engine *engine, uint32_t length, uint32_t rows) {
    uint64_t bytes = 0;
    for (int i = 0; i < TELEMETRY_WINDOWS_MAX; i++) {
        uint64_t window = engine->facts.seen[i].window;
        uint64_t most = window == 0 ? length : window + rows - 1;
        bytes += (length < most ? length : most) * engine->facts.seen[i].position_bytes;
    }
    return bytes;
}

/* ---- Time in which steps ran ---- */

#define BUSY_COUNT_BITS 8
#define BUSY_COUNT_MASK ((uint64_t)255)

static uint64_t busy_time(const avo_telemetry *t, uint64_t ns) {
    return ns > t->opened_ns ? ns - t->opened_ns : 0;
}

uint64_t telemetry_engine_begin(telemetry_engine *engine) {
    if (engine == NULL)
        return 0;
    avo_telemetry *t = engine->telemetry;
    uint64_t now = clock_now_ns(), before = atomic_look(&t->busy), after;
    do {
        uint64_t count = before & BUSY_COUNT_MASK;
        uint64_t since = count == 0 ? busy_time(t, now) : before >> BUSY_COUNT_BITS;
        after = since << BUSY_COUNT_BITS | (count + 1);
    } while (!atomic_compare_exchange_weak(&t->busy, &before, after));
    return now;
}

/* A step has ended: what was not counted yet, up to now. Whoever still runs is counted from here.
 */
static uint64_t busy_end(avo_telemetry *t, uint64_t end_ns) {
    uint64_t end = busy_time(t, end_ns), before = atomic_look(&t->busy), after, since;
    do {
        since = before >> BUSY_COUNT_BITS;
        uint64_t count = before & BUSY_COUNT_MASK;
        after = (end > since ? end : since) << BUSY_COUNT_BITS | (count > 0 ? count - 1 : 0);
    } while (!atomic_compare_exchange_weak(&t->busy, &before, after));
    return end > since ? end - since : 0;
}

void telemetry_engine_step(telemetry_engine *engine, const telemetry_step *step) {
    if (engine == NULL)
        return;
    avo_telemetry *t = engine->telemetry;
    uint64_t ns = step->end_ns - step->begin_ns;
    uint32_t prefill = step->rows - step->decode_rows;
    step_class class = prefill == 0             ? STEP_DECODE
                       : step->decode_rows == 0 ? STEP_PREFILL
                                                : STEP_MIXED;
    histogram_add(&t->steps[class], ns);
    histogram_add(&t->step_tokens, step->rows);
    telemetry_stage_add(t, prefill > 0 ? STAGE_PREFILL : STAGE_DECODE, ns, 1);
    uint64_t busy = busy_end(t, step->end_ns);
    rate_add(&t->busy_ns, busy, step->end_ns);
    atomic_fetch_add_explicit(&t->busy_total, busy, memory_order_relaxed);
    rate_add(&t->read_bytes, step->read_bytes, step->end_ns);
    atomic_fetch_add_explicit(&t->read_total, step->read_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->decode_rows, step->decode_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->prefill_rows, prefill, memory_order_relaxed);
    atomic_store_explicit(&engine->batch.rows, step->rows, memory_order_relaxed);
    atomic_store_explicit(&engine->batch.decode_rows, step->decode_rows, memory_order_relaxed);
    atomic_store_explicit(&engine->batch.end_ns, step->end_ns, memory_order_relaxed);
    telemetry_track_add(engine->leader, &(telemetry_span){.kind = SPAN_STEP,
                                                          .begin_ns = step->begin_ns,
                                                          .end_ns = step->end_ns,
                                                          .id = ++engine->steps,
                                                          .a = step->decode_rows,
                                                          .b = prefill});
}

/* ---- Phases ---- */

/* Only this worker writes these. */
static void add_own(_Atomic uint64_t *value, uint64_t amount) {
    uint64_t before = atomic_load_explicit(value, memory_order_relaxed);
    atomic_store_explicit(value, before + amount, memory_order_relaxed);
}

void telemetry_engine_phase(telemetry_engine *engine, const telemetry_phase *phase) {
    telemetry_worker *own = &engine->workers[phase->worker];
    uint64_t now = clock_now_ns();
    uint64_t wait = phase->waited_ns - own->waited_ns;
    own->waited_ns = phase->waited_ns;
    add_own(&own->phase_ns[phase->kind], now - phase->begin_ns + wait);
    add_own(&own->wait_ns[phase->kind], wait);
    if (phase->tracing)
        span_ring_add(&own->track->ring, &(telemetry_span){.kind = phase->kind,
                                                           .begin_ns = phase->begin_ns,
                                                           .end_ns = now,
                                                           .id = wait,
                                                           .a = phase->layer});
}
