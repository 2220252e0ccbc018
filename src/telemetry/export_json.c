/* One object: what a dashboard shows. Seconds, bytes and counts as numbers; what is not known is
 * null. docs/telemetry.md has its members. */
#include "telemetry/export_int.h"

#include "base/clock.h"
#include "base/json_writer.h"

#include <math.h>
#include <time.h>

static void requests(json_writer *w, const telemetry_counts *counts) {
    json_member_object_begin(w, "requests");
    json_member_u64(w, "running", counts->running);
    json_member_u64(w, "waiting", counts->waiting);
    json_member_u64(w, "submitted", counts->submitted);
    json_member_u64(w, "finished", counts->finished);
    json_member_u64(w, "failed", counts->failed);
    json_member_u64(w, "cancelled", counts->cancelled);
    json_member_u64(w, "refused", counts->refused);
    json_member_u64(w, "expired", counts->expired);
    json_member_u64(w, "preemptions", counts->preemptions);
    json_end(w);
    json_member_object_begin(w, "tokens");
    json_member_u64(w, "prompt", counts->prompt_tokens);
    json_member_u64(w, "new", counts->new_tokens);
    json_member_u64(w, "reused", counts->reused_tokens);
    json_member_u64(w, "recomputed", counts->recomputed_tokens);
    json_end(w);
}

/* By position as far as any was accepted. */
static void speculation(json_writer *w, avo_telemetry *t) {
    uint32_t positions = TELEMETRY_DRAFTS_MAX;
    while (positions > 0 && atomic_look(&t->accepted_at[positions - 1]) == 0)
        positions--;
    json_member_object_begin(w, "speculation");
    json_member_u64(w, "drafts", atomic_look(&t->drafts));
    json_member_u64(w, "draft_tokens", atomic_look(&t->draft_tokens));
    json_member_u64(w, "accepted_tokens", telemetry_accepted_drafts(t));
    json_member_array_begin(w, "accepted_by_position");
    for (uint32_t i = 0; i < positions; i++)
        json_u64(w, atomic_look(&t->accepted_at[i]));
    json_end(w);
    json_end(w);
}

/* Over the last seconds, or since it was opened where that is less. */
static double per_second(avo_telemetry *t, telemetry_rate rate, uint64_t now) {
    double span = clock_seconds(t->opened_ns, now);
    double most = (double)TELEMETRY_RATE_NS * 1e-9;
    span = span < most ? span : most;
    uint64_t amount = rate_read(&t->rates[rate], TELEMETRY_RATE_NS, now);
    return span > 0.0 ? (double)amount / span : 0.0;
}

static void rates(json_writer *w, avo_telemetry *t, uint64_t now) {
    json_member_object_begin(w, "rates");
    json_member_number(w, "new_tokens", per_second(t, RATE_NEW_TOKENS, now));
    json_member_number(w, "prompt_tokens", per_second(t, RATE_PROMPT_TOKENS, now));
    json_end(w);
}

static void latency(json_writer *w, avo_telemetry *t, const char *name, telemetry_time time,
                    uint64_t now) {
    window_quantiles seen = window_read(t->latency[time], TELEMETRY_LATENCY_NS, now);
    bool known = seen.count > 0;
    json_member_object_begin(w, name);
    json_member_number(w, "p50", known ? seen.p50 : NAN);
    json_member_number(w, "p90", known ? seen.p90 : NAN);
    json_member_number(w, "p99", known ? seen.p99 : NAN);
    json_member_u64(w, "count", seen.count);
    json_end(w);
}

static void latencies(json_writer *w, avo_telemetry *t, uint64_t now) {
    json_member_object_begin(w, "latency");
    latency(w, t, "first_token", TIME_FIRST_TOKEN, now);
    latency(w, t, "inter_token", TIME_INTER_TOKEN, now);
    latency(w, t, "queue", TIME_QUEUE, now);
    latency(w, t, "total", TIME_TOTAL, now);
    json_end(w);
}

static void adapter(json_writer *w, telemetry_label *label) {
    int64_t running = atomic_load_explicit(&label->running, memory_order_relaxed);
    json_object_begin(w);
    json_member_string(w, "name", label->name);
    json_member_i64(w, "running", running > 0 ? running : 0);
    json_end(w);
}

/* The base, and every adapter that has a request now. */
static void batch(json_writer *w, avo_telemetry *t, const telemetry_totals *totals) {
    json_member_object_begin(w, "batch");
    json_member_u64(w, "rows", totals->rows);
    json_member_u64(w, "decode", totals->decode_rows);
    json_member_u64(w, "prefill", totals->rows - totals->decode_rows);
    json_member_array_begin(w, "adapters");
    adapter(w, &t->labels[0]);
    uint32_t named = atomic_load(&t->label_count), last = t->options.adapters_max + 1;
    for (uint32_t i = 1; i < named; i++)
        if (atomic_load(&t->labels[i].running) > 0)
            adapter(w, &t->labels[i]);
    if (atomic_load(&t->labels[last].running) > 0)
        adapter(w, &t->labels[last]);
    json_end(w);
    json_end(w);
}

static void pages(json_writer *w, const telemetry_totals *totals) {
    json_member_object_begin(w, "kv");
    json_member_u64(w, "pages", totals->pages);
    json_member_u64(w, "free", totals->pages_free);
    json_member_u64(w, "cached", totals->pages_cached);
    json_member_u64(w, "used", totals->pages_used);
    json_member_u64(w, "page_tokens", totals->page_tokens);
    json_member_u64(w, "host", totals->pages_host);
    json_member_u64(w, "moved_out", totals->moved_out);
    json_member_u64(w, "moved_in", totals->moved_in);
    json_end(w);
    json_member_object_begin(w, "prefix");
    json_member_u64(w, "queried_tokens", totals->queried_tokens);
    json_member_u64(w, "hit_tokens", totals->hit_tokens);
    json_end(w);
}

static void stage(json_writer *w, const char *name, uint64_t ns, uint64_t times) {
    json_object_begin(w);
    json_member_string(w, "name", name);
    json_member_number(w, "seconds", (double)ns * 1e-9);
    json_member_u64(w, "count", times);
    json_end(w);
}

/* Phases as worker 0 sees them: together they are the steps. Waiting is that of all workers. */
static void stages(json_writer *w, avo_telemetry *t, const telemetry_totals *totals) {
    uint64_t steps =
        atomic_look(&t->stages[STAGE_PREFILL].count) + atomic_look(&t->stages[STAGE_DECODE].count);
    uint64_t waited = 0;
    json_member_array_begin(w, "stages");
    for (int i = 0; i < STAGES; i++)
        stage(w, stage_name((telemetry_stage)i), atomic_look(&t->stages[i].ns),
              atomic_look(&t->stages[i].count));
    for (int i = 0; i < SPAN_PHASES; i++) {
        stage(w, phase_name((span_kind)i), totals->phase_ns[i], steps);
        waited += totals->wait_ns[i];
    }
    /* Not the workers of all lanes: together they run on these threads. */
    uint32_t threads = totals->threads > 0 ? totals->threads : 1;
    stage(w, "wait", waited / threads, steps);
    json_end(w);
}

static void resources(json_writer *w, avo_telemetry *t, const telemetry_totals *totals,
                      uint64_t now) {
    double bandwidth = telemetry_bandwidth(t, now);
    double limit = telemetry_limit(t, now);
    json_member_object_begin(w, "memory");
    json_member_u64(w, "resident_bytes", process_facts_now().resident_bytes);
    json_member_u64(w, "weight_bytes", totals->weight_bytes);
    json_member_u64(w, "kv_bytes", totals->kv_bytes);
    json_member_u64(w, "scratch_bytes", totals->scratch_bytes);
    json_end(w);
    json_member_object_begin(w, "bandwidth");
    json_member_number(w, "bytes_per_second", bandwidth >= 0.0 ? bandwidth : NAN);
    json_member_number(w, "limit_bytes_per_second", limit > 0.0 ? limit : NAN);
    json_end(w);
    json_member_object_begin(w, "hardware");
    for (int i = 0; i < HARDWARE_EVENTS; i++)
        json_member_number(w, hardware_name((hardware_event)i),
                           totals->hardware_known[i] ? (double)totals->hardware[i] : NAN);
    bool reasoned = totals->hardware_text[0] != '\0';
    json_member_string(w, "reason", reasoned ? totals->hardware_text : NULL);
    json_end(w);
}

avo_status export_json(avo_telemetry *t, buffer *text) {
    json_writer w = json_writer_of(text);
    telemetry_totals totals;
    telemetry_sum_up(t, &totals);
    uint64_t now = clock_now_ns();
    json_object_begin(&w);
    json_member_i64(&w, "time", time(NULL));
    json_member_number(&w, "uptime", clock_seconds(t->opened_ns, now));
    json_member_string(&w, "version", avo_version());
    json_member_string(&w, "model", t->name);
    json_member_string(&w, "isa", totals.isa);
    if (totals.threads > 0)
        json_member_u64(&w, "threads", totals.threads);
    else
        json_member_null(&w, "threads");
    requests(&w, &totals.counts);
    speculation(&w, t);
    rates(&w, t, now);
    latencies(&w, t, now);
    batch(&w, t, &totals);
    pages(&w, &totals);
    stages(&w, t, &totals);
    resources(&w, t, &totals, now);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append(text, "\n", 1);
}
