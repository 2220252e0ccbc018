/* One object: what a dashboard shows. Seconds, bytes and counts as numbers; what is not known is
 * null. docs/telemetry.md has its members. */
#include "telemetry/export_int.h"

#include "base/clock.h"

#include <math.h>
#include <time.h>

static void member(export_out *out, const char *name, double value) {
    out_format(out, "%s\"%s\":", out_begins(out, '{') ? "" : ",", name);
    out_number(out, value, "null");
}

static void count(export_out *out, const char *name, uint64_t value) {
    out_format(out, "%s\"%s\":%llu", out_begins(out, '{') ? "" : ",", name,
               (unsigned long long)value);
}

static void requests(export_out *out, const telemetry_counts *counts) {
    out_format(out, ",\"requests\":{");
    count(out, "running", counts->running);
    count(out, "waiting", counts->waiting);
    count(out, "submitted", counts->submitted);
    count(out, "finished", counts->finished);
    count(out, "failed", counts->failed);
    count(out, "cancelled", counts->cancelled);
    count(out, "refused", counts->refused);
    count(out, "expired", counts->expired);
    count(out, "preemptions", counts->preemptions);
    out_format(out, "},\"tokens\":{");
    count(out, "prompt", counts->prompt_tokens);
    count(out, "new", counts->new_tokens);
    count(out, "reused", counts->reused_tokens);
    count(out, "recomputed", counts->recomputed_tokens);
    out_format(out, "}");
}

/* Over the last seconds, or since it was opened where that is less. */
static double per_second(avo_telemetry *t, telemetry_rate rate, uint64_t now) {
    double span = clock_seconds(t->opened_ns, now);
    double most = (double)TELEMETRY_RATE_NS * 1e-9;
    span = span < most ? span : most;
    uint64_t amount = rate_read(&t->rates[rate], TELEMETRY_RATE_NS, now);
    return span > 0.0 ? (double)amount / span : 0.0;
}

static void rates(export_out *out, avo_telemetry *t, uint64_t now) {
    out_format(out, ",\"rates\":{");
    member(out, "new_tokens", per_second(t, RATE_NEW_TOKENS, now));
    member(out, "prompt_tokens", per_second(t, RATE_PROMPT_TOKENS, now));
    out_format(out, "}");
}

static void latency(export_out *out, avo_telemetry *t, const char *name, telemetry_time time,
                    uint64_t now) {
    window_quantiles seen = window_read(t->latency[time], TELEMETRY_LATENCY_NS, now);
    bool known = seen.count > 0;
    out_format(out, "%s\"%s\":{", out_begins(out, '{') ? "" : ",", name);
    member(out, "p50", known ? seen.p50 : NAN);
    member(out, "p90", known ? seen.p90 : NAN);
    member(out, "p99", known ? seen.p99 : NAN);
    count(out, "count", seen.count);
    out_format(out, "}");
}

static void latencies(export_out *out, avo_telemetry *t, uint64_t now) {
    out_format(out, ",\"latency\":{");
    latency(out, t, "first_token", TIME_FIRST_TOKEN, now);
    latency(out, t, "inter_token", TIME_INTER_TOKEN, now);
    latency(out, t, "queue", TIME_QUEUE, now);
    latency(out, t, "total", TIME_TOTAL, now);
    out_format(out, "}");
}

static void adapter(export_out *out, telemetry_label *label, bool first) {
    int64_t running = atomic_load_explicit(&label->running, memory_order_relaxed);
    out_format(out, first ? "{\"name\":" : ",{\"name\":");
    out_json_text(out, label->name);
    out_format(out, ",\"running\":%lld}", (long long)(running > 0 ? running : 0));
}

/* The base, and every adapter that has a request now. */
static void batch(export_out *out, avo_telemetry *t, const telemetry_totals *totals) {
    out_format(out, ",\"batch\":{");
    count(out, "rows", totals->rows);
    count(out, "decode", totals->decode_rows);
    count(out, "prefill", totals->rows - totals->decode_rows);
    out_format(out, ",\"adapters\":[");
    adapter(out, &t->labels[0], true);
    uint32_t named = atomic_load(&t->label_count), last = t->options.adapters_max + 1;
    for (uint32_t i = 1; i < named; i++)
        if (atomic_load(&t->labels[i].running) > 0)
            adapter(out, &t->labels[i], false);
    if (atomic_load(&t->labels[last].running) > 0)
        adapter(out, &t->labels[last], false);
    out_format(out, "]}");
}

static void pages(export_out *out, const telemetry_totals *totals) {
    out_format(out, ",\"kv\":{");
    count(out, "pages", totals->pages);
    count(out, "free", totals->pages_free);
    count(out, "cached", totals->pages_cached);
    count(out, "used", totals->pages_used);
    count(out, "page_tokens", totals->page_tokens);
    out_format(out, "},\"prefix\":{");
    count(out, "queried_tokens", totals->queried_tokens);
    count(out, "hit_tokens", totals->hit_tokens);
    out_format(out, "}");
}

static void stage(export_out *out, const char *name, uint64_t ns, uint64_t times) {
    out_format(out, "%s{\"name\":\"%s\",\"seconds\":", out_begins(out, '[') ? "" : ",", name);
    out_number(out, (double)ns * 1e-9, "null");
    out_format(out, ",\"count\":%llu}", (unsigned long long)times);
}

/* Phases as worker 0 sees them: together they are the steps. Waiting is that of all workers. */
static void stages(export_out *out, avo_telemetry *t, const telemetry_totals *totals) {
    uint64_t steps =
        atomic_look(&t->stages[STAGE_PREFILL].count) + atomic_look(&t->stages[STAGE_DECODE].count);
    uint64_t waited = 0;
    out_format(out, ",\"stages\":[");
    for (int i = 0; i < STAGES; i++)
        stage(out, stage_name((telemetry_stage)i), atomic_look(&t->stages[i].ns),
              atomic_look(&t->stages[i].count));
    for (int i = 0; i < SPAN_PHASES; i++) {
        stage(out, phase_name((span_kind)i), totals->phase_ns[i], steps);
        waited += totals->wait_ns[i];
    }
    /* Not the workers of all lanes: together they run on these threads. */
    uint32_t threads = totals->threads > 0 ? totals->threads : 1;
    stage(out, "wait", waited / threads, steps);
    out_format(out, "]");
}

static void resources(export_out *out, avo_telemetry *t, const telemetry_totals *totals,
                      uint64_t now) {
    double bandwidth = telemetry_bandwidth(t, now);
    double limit = telemetry_limit(t, now);
    out_format(out, ",\"memory\":{");
    count(out, "resident_bytes", process_facts_now().resident_bytes);
    count(out, "weight_bytes", totals->weight_bytes);
    count(out, "kv_bytes", totals->kv_bytes);
    count(out, "scratch_bytes", totals->scratch_bytes);
    out_format(out, "},\"bandwidth\":{");
    member(out, "bytes_per_second", bandwidth >= 0.0 ? bandwidth : NAN);
    member(out, "limit_bytes_per_second", limit > 0.0 ? limit : NAN);
    out_format(out, "},\"hardware\":{");
    for (int i = 0; i < HARDWARE_EVENTS; i++)
        member(out, hardware_name((hardware_event)i),
               totals->hardware_known[i] ? (double)totals->hardware[i] : NAN);
    out_format(out, ",\"reason\":");
    if (totals->hardware_text[0] != '\0')
        out_json_text(out, totals->hardware_text);
    else
        out_format(out, "null");
    out_format(out, "}");
}

avo_status export_json(avo_telemetry *t, buffer *text) {
    export_out out = {text, AVO_OK};
    telemetry_totals totals;
    telemetry_sum_up(t, &totals);
    uint64_t now = clock_now_ns();
    out_format(&out, "{\"time\":%lld,\"uptime\":", (long long)time(NULL));
    out_number(&out, clock_seconds(t->opened_ns, now), "null");
    out_format(&out, ",\"version\":\"%s\",\"model\":", avo_version());
    out_json_text(&out, t->name);
    out_format(&out, ",\"isa\":");
    if (totals.isa != NULL)
        out_json_text(&out, totals.isa);
    else
        out_format(&out, "null");
    if (totals.threads > 0)
        out_format(&out, ",\"threads\":%u", totals.threads);
    else
        out_format(&out, ",\"threads\":null");
    requests(&out, &totals.counts);
    rates(&out, t, now);
    latencies(&out, t, now);
    batch(&out, t, &totals);
    pages(&out, &totals);
    stages(&out, t, &totals);
    resources(&out, t, &totals, now);
    out_format(&out, "}\n");
    return out.status;
}
