/* Recording: requests, their times and tokens, adapters. */
#include "telemetry/telemetry_int.h"

#include "base/allocator.h"
#include "base/clock.h"

#include <string.h>

static void raise_by(_Atomic uint64_t *value, uint64_t amount) {
    atomic_fetch_add_explicit(value, amount, memory_order_relaxed);
}

void telemetry_stage_add(avo_telemetry *t, telemetry_stage stage, uint64_t ns, uint64_t count) {
    if (t == NULL)
        return;
    raise_by(&t->stages[stage].ns, ns);
    raise_by(&t->stages[stage].count, count);
}

void telemetry_rate_add(avo_telemetry *t, telemetry_rate rate, uint64_t amount, uint64_t now_ns) {
    if (t != NULL && amount > 0)
        rate_add(&t->rates[rate], amount, now_ns);
}

void telemetry_time_add(avo_telemetry *t, telemetry_time time, uint64_t ns, uint64_t now_ns) {
    if (t == NULL)
        return;
    histogram_add(&t->times[time], ns);
    if (t->latency[time] != NULL)
        window_add(t->latency[time], ns, now_ns);
}

/* ---- Adapters ---- */

/* Names beyond the table's end share its last entry. */
static uint32_t label_find(const avo_telemetry *t, const char *name, uint32_t count) {
    for (uint32_t i = 1; i < count; i++)
        if (strncmp(t->labels[i].name, name, TELEMETRY_NAME_BYTES - 1) == 0)
            return i;
    return 0;
}

uint32_t telemetry_adapter(avo_telemetry *t, const char *name) {
    if (t == NULL || name == NULL || name[0] == '\0')
        return 0;
    uint32_t found = label_find(t, name, atomic_load(&t->label_count));
    if (found > 0)
        return found;
    pthread_mutex_lock(&t->lock);
    uint32_t count = atomic_load(&t->label_count);
    found = label_find(t, name, count); /* somebody else may have been first */
    if (found == 0 && count <= t->options.adapters_max) {
        name_copy(t->labels[count].name, name);
        found = count;
        atomic_store(&t->label_count, count + 1);
    }
    pthread_mutex_unlock(&t->lock);
    return found > 0 ? found : t->options.adapters_max + 1;
}

void telemetry_running_add(avo_telemetry *t, uint32_t adapter, int change) {
    if (t != NULL)
        atomic_fetch_add_explicit(&t->labels[adapter].running, change, memory_order_relaxed);
}

void telemetry_waiting_add(avo_telemetry *t, uint32_t adapter, int change) {
    if (t != NULL)
        atomic_fetch_add_explicit(&t->labels[adapter].waiting, change, memory_order_relaxed);
}

/* ---- Requests ---- */

static finish_class class_of(avo_finish finish) {
    switch (finish) {
    case AVO_FINISH_STOP_TOKEN:
    case AVO_FINISH_STOP_STRING:
        return FINISH_STOP;
    case AVO_FINISH_REPETITION:
    case AVO_FINISH_LENGTH:
    case AVO_FINISH_CONTEXT:
        return FINISH_LENGTH;
    case AVO_FINISH_CANCELLED:
    case AVO_FINISH_DEADLINE:
        break;
    }
    return FINISH_ABORT;
}

void telemetry_request_over(avo_telemetry *t, const telemetry_request *request) {
    if (t == NULL)
        return;
    uint64_t now = request->over_ns;
    telemetry_label *label = &t->labels[request->adapter];
    raise_by(&label->requests, 1);
    raise_by(&label->new_tokens, request->new_tokens);
    if (request->begun_ns > 0) { /* one that never began has computed nothing of its prompt */
        raise_by(&label->prompt_tokens, request->prompt_tokens);
        histogram_add(&t->prompt_tokens, request->prompt_tokens);
        histogram_add(&t->new_tokens, request->new_tokens);
        if (request->new_tokens_max > 0)
            histogram_add(&t->asked_tokens, request->new_tokens_max);
    }
    if (request->failed)
        return;
    raise_by(&t->finished[class_of(request->finish)], 1);
    telemetry_time_add(t, TIME_TOTAL, now - request->submitted_ns, now);
    if (request->begun_ns > 0)
        telemetry_time_add(t, TIME_RUNNING, now - request->begun_ns, now);
    if (request->first_ns == 0)
        return;
    telemetry_time_add(t, TIME_DECODE, now - request->first_ns, now);
    if (request->new_tokens > 1)
        telemetry_time_add(t, TIME_PER_TOKEN, (now - request->first_ns) / (request->new_tokens - 1),
                           now);
}

/* ---- Speculation ---- */

void telemetry_drafts_add(avo_telemetry *t, uint32_t drafted, uint32_t accepted) {
    if (t == NULL || drafted == 0)
        return;
    raise_by(&t->drafts, 1);
    raise_by(&t->draft_tokens, drafted);
    for (uint32_t i = 0; i < accepted && i < TELEMETRY_DRAFTS_MAX; i++)
        raise_by(&t->accepted_at[i], 1);
}

uint64_t telemetry_accepted_drafts(avo_telemetry *t) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TELEMETRY_DRAFTS_MAX; i++)
        sum += atomic_look(&t->accepted_at[i]);
    return sum;
}

/* ---- Requests without a scheduler ---- */

uint64_t telemetry_alone_begin(avo_telemetry *t, uint32_t prompt_tokens) {
    if (t == NULL)
        return 0;
    raise_by(&t->alone.running, 1);
    raise_by(&t->alone.prompt_tokens, prompt_tokens);
    return atomic_fetch_add_explicit(&t->alone.submitted, 1, memory_order_relaxed) + 1;
}

void telemetry_alone_end(avo_telemetry *t, const telemetry_request *request) {
    if (t == NULL)
        return;
    atomic_fetch_sub_explicit(&t->alone.running, 1, memory_order_relaxed);
    if (request->failed)
        raise_by(&t->alone.failed, 1);
    else if (request->finish == AVO_FINISH_CANCELLED)
        raise_by(&t->alone.cancelled, 1);
    else if (request->finish == AVO_FINISH_DEADLINE)
        raise_by(&t->alone.expired, 1);
    else
        raise_by(&t->alone.finished, 1);
    telemetry_request_over(t, request);
}

void telemetry_alone_token(avo_telemetry *t) {
    if (t != NULL)
        raise_by(&t->alone.new_tokens, 1);
}

/* ---- Sources ---- */

avo_status telemetry_source_open(avo_telemetry *t,
                                 void (*read)(void *context, telemetry_counts *counts),
                                 void *context, telemetry_source **out, avo_error *error) {
    *out = NULL;
    if (t == NULL)
        return AVO_OK;
    telemetry_source *source = allocator_take_array(t->allocator, 1, sizeof(*source));
    if (source == NULL)
        return status_no_memory(error, "a source of counts", sizeof(*source));
    *source = (telemetry_source){.telemetry = t, .read = read, .context = context};
    pthread_mutex_lock(&t->lock);
    source->next = t->sources;
    t->sources = source;
    pthread_mutex_unlock(&t->lock);
    *out = source;
    return AVO_OK;
}

static void counts_add(telemetry_counts *sum, const telemetry_counts *more) {
    sum->running += more->running;
    sum->waiting += more->waiting;
    sum->adapters_max += more->adapters_max;
    sum->submitted += more->submitted;
    sum->finished += more->finished;
    sum->failed += more->failed;
    sum->cancelled += more->cancelled;
    sum->refused += more->refused;
    sum->expired += more->expired;
    sum->preemptions += more->preemptions;
    sum->prompt_tokens += more->prompt_tokens;
    sum->new_tokens += more->new_tokens;
    sum->reused_tokens += more->reused_tokens;
    sum->recomputed_tokens += more->recomputed_tokens;
}

void telemetry_source_close(telemetry_source *source) {
    if (source == NULL)
        return;
    avo_telemetry *t = source->telemetry;
    telemetry_counts last = {0};
    pthread_mutex_lock(&t->lock);
    source->read(source->context, &last);
    last.running = last.waiting = last.adapters_max = 0;
    counts_add(&t->past, &last);
    telemetry_source **at = &t->sources;
    while (*at != source)
        at = &(*at)->next;
    *at = source->next;
    pthread_mutex_unlock(&t->lock);
    allocator_give(t->allocator, source, sizeof(*source));
}

static void sum_requests(avo_telemetry *t, telemetry_counts *sum) {
    *sum = (telemetry_counts){.running = atomic_look(&t->alone.running),
                              .submitted = atomic_look(&t->alone.submitted),
                              .finished = atomic_look(&t->alone.finished),
                              .failed = atomic_look(&t->alone.failed),
                              .cancelled = atomic_look(&t->alone.cancelled),
                              .expired = atomic_look(&t->alone.expired),
                              .prompt_tokens = atomic_look(&t->alone.prompt_tokens),
                              .new_tokens = atomic_look(&t->alone.new_tokens)};
    counts_add(sum, &t->past);
    for (telemetry_source *source = t->sources; source != NULL; source = source->next) {
        telemetry_counts counts = {0};
        source->read(source->context, &counts);
        counts_add(sum, &counts);
    }
}

/* ---- Everything, for exporters ---- */

#define STEP_NEW_NS ((uint64_t)1000000000) /* an older step is no longer the batch of now */

static void sum_batch(const telemetry_engine *engine, telemetry_totals *totals) {
    uint64_t end = atomic_look(&engine->batch.end_ns), now = clock_now_ns();
    if (end == 0 || (now > end && now - end >= STEP_NEW_NS))
        return;
    uint32_t rows = atomic_load(&engine->batch.rows);
    uint32_t decode = atomic_load(&engine->batch.decode_rows);
    totals->rows += rows;
    totals->decode_rows += decode < rows ? decode : rows;
}

static void sum_engine(const telemetry_engine *engine, telemetry_totals *totals) {
    const telemetry_facts *facts = &engine->facts;
    sum_batch(engine, totals);
    if (facts->context_max > totals->context_max)
        totals->context_max = facts->context_max;
    totals->threads += facts->threads;
    totals->isa = engine->isa;
    totals->pages += facts->pages;
    if (facts->page_tokens > 0)
        totals->page_tokens = facts->page_tokens;
    totals->pages_free += atomic_load(&engine->pages_free);
    totals->pages_cached += atomic_load(&engine->pages_cached);
    totals->pages_used += atomic_load(&engine->pages_used);
    totals->queried_tokens += atomic_look(&engine->queried_tokens);
    totals->hit_tokens += atomic_look(&engine->hit_tokens);
    totals->pages_host += atomic_load(&engine->pages_host);
    totals->moved_out += atomic_look(&engine->moved_out);
    totals->moved_in += atomic_look(&engine->moved_in);
    totals->weight_bytes += facts->weight_bytes;
    totals->kv_bytes += facts->kv_bytes;
    totals->scratch_bytes += facts->scratch_bytes;
    for (int i = 0; i < SPAN_PHASES; i++)
        totals->phase_ns[i] += atomic_look(&engine->workers[0].phase_ns[i]);
    for (uint32_t worker = 0; worker < facts->workers; worker++) {
        const telemetry_worker *own = &engine->workers[worker];
        for (int i = 0; i < SPAN_PHASES; i++)
            totals->wait_ns[i] += atomic_look(&own->wait_ns[i]);
        for (int i = 0; i < HARDWARE_EVENTS; i++) {
            uint64_t value;
            if (!hardware_read(&own->hardware, (hardware_event)i, &value))
                continue;
            totals->hardware[i] += value;
            totals->hardware_known[i] = true;
        }
    }
    if (engine->telemetry->options.hardware && !totals->hardware_known[HARDWARE_CYCLES])
        telemetry_engine_hardware(engine, totals->hardware_text, sizeof(totals->hardware_text));
}

void telemetry_sum_up(avo_telemetry *t, telemetry_totals *totals) {
    *totals = (telemetry_totals){.queried_tokens = t->past_queried_tokens,
                                 .hit_tokens = t->past_hit_tokens};
    sum_requests(t, &totals->counts);
    for (int i = 0; i < SPAN_PHASES; i++) {
        totals->phase_ns[i] = t->past_phase_ns[i];
        totals->wait_ns[i] = t->past_wait_ns[i];
    }
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        totals->hardware[i] = t->past_hardware[i];
        totals->hardware_known[i] = t->past_hardware[i] > 0;
    }
    for (telemetry_engine *engine = t->engines; engine != NULL; engine = engine->next)
        sum_engine(engine, totals);
}

void telemetry_phase_times(avo_telemetry *t, uint64_t ns[SPAN_PHASES]) {
    telemetry_totals totals;
    pthread_mutex_lock(&t->lock);
    telemetry_sum_up(t, &totals);
    pthread_mutex_unlock(&t->lock);
    memcpy(ns, totals.phase_ns, sizeof(totals.phase_ns));
}

double telemetry_bandwidth(avo_telemetry *t, uint64_t now_ns) {
    uint64_t ns = rate_read(&t->busy_ns, TELEMETRY_RATE_NS, now_ns);
    uint64_t bytes = rate_read(&t->read_bytes, TELEMETRY_RATE_NS, now_ns);
    return ns == 0 ? -1.0 : (double)bytes * 1e9 / (double)ns;
}

double telemetry_limit(avo_telemetry *t, uint64_t now_ns) {
    double limit = atomic_load(&t->read_limit);
    double seen = telemetry_bandwidth(t, now_ns);
    if (limit <= 0.0 || rate_read(&t->busy_ns, TELEMETRY_RATE_NS, now_ns) < TELEMETRY_LIMIT_NS)
        return limit;
    while (seen > limit && !atomic_compare_exchange_weak(&t->read_limit, &limit, seen))
        continue;
    return seen > limit ? seen : limit;
}
