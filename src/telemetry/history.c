/* A history as CSV: a row of all figures each time somebody asks for one, `avocet serve
 * --telemetry` every few seconds. Counters are totals since telemetry was opened; rates are those
 * since the row before; latencies those of the last 60 seconds. What is not known is empty.
 * docs/telemetry.md has the columns, which a test compares with this. */
#include "telemetry/export_int.h"
#include "telemetry/table.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define ROW_BYTES_MAX ((size_t)16 << 10)

/* Writes the header's names or the row's values: one walk for both, so that they cannot differ. */
typedef struct history_row {
    export_out out;
    bool header;
} history_row;

static void cell(history_row *row, const char *name, double value) {
    export_out *out = &row->out;
    out_format(out, "%s", out->text->size == 0 ? "" : ",");
    if (row->header)
        out_format(out, "%s", name);
    else
        out_number(out, value, "");
}

static void count(history_row *row, const char *name, uint64_t value) {
    cell(row, name, (double)value);
}

static void stamp(history_row *row) {
    time_t now = time(NULL);
    struct tm parts;
    char text[32];
    gmtime_r(&now, &parts);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    out_format(&row->out, "%s", row->header ? "time" : text);
}

static void requests(history_row *row, const telemetry_counts *counts) {
    count(row, "requests_running", counts->running);
    count(row, "requests_waiting", counts->waiting);
    count(row, "submitted_total", counts->submitted);
    count(row, "finished_total", counts->finished);
    count(row, "failed_total", counts->failed);
    count(row, "cancelled_total", counts->cancelled);
    count(row, "refused_total", counts->refused);
    count(row, "expired_total", counts->expired);
    count(row, "preemptions_total", counts->preemptions);
    count(row, "prompt_tokens_total", counts->prompt_tokens);
    count(row, "new_tokens_total", counts->new_tokens);
    count(row, "reused_tokens_total", counts->reused_tokens);
    count(row, "recomputed_tokens_total", counts->recomputed_tokens);
}

static void latency(history_row *row, avo_telemetry *t, const char *name, telemetry_time time,
                    uint64_t now) {
    window_quantiles seen = {0};
    if (!row->header)
        seen = window_read(t->latency[time], TELEMETRY_LATENCY_NS, now);
    const double values[] = {seen.p50, seen.p90, seen.p99};
    static const char *const quantiles[] = {"p50", "p90", "p99"};
    for (int i = 0; i < 3; i++) {
        char column[64];
        snprintf(column, sizeof(column), "%s_%s_seconds", name, quantiles[i]);
        cell(row, column, seen.count > 0 ? values[i] : NAN);
    }
}

static void steps(history_row *row, avo_telemetry *t, const telemetry_totals *totals) {
    char column[64];
    for (int i = 0; i < STAGES; i++) {
        snprintf(column, sizeof(column), "%s_seconds_total", stage_name((telemetry_stage)i));
        cell(row, column, row->header ? 0.0 : (double)atomic_look(&t->stages[i].ns) * 1e-9);
    }
    uint64_t prefill = row->header ? 0 : atomic_look(&t->stages[STAGE_PREFILL].count);
    uint64_t decode = row->header ? 0 : atomic_look(&t->stages[STAGE_DECODE].count);
    count(row, "prefill_steps_total", prefill);
    count(row, "decode_steps_total", decode);
    count(row, "prefill_rows_total", row->header ? 0 : atomic_look(&t->prefill_rows));
    count(row, "decode_rows_total", row->header ? 0 : atomic_look(&t->decode_rows));
    count(row, "drafts_total", row->header ? 0 : atomic_look(&t->drafts));
    count(row, "draft_tokens_total", row->header ? 0 : atomic_look(&t->draft_tokens));
    count(row, "accepted_draft_tokens_total", row->header ? 0 : telemetry_accepted_drafts(t));
    uint64_t waited = 0;
    for (int i = 0; i < SPAN_PHASES; i++) {
        snprintf(column, sizeof(column), "%s_phase_seconds_total", phase_name((span_kind)i));
        cell(row, column, (double)totals->phase_ns[i] * 1e-9);
        waited += totals->wait_ns[i];
    }
    cell(row, "wait_seconds_total", (double)waited * 1e-9);
}

static void resources(history_row *row, avo_telemetry *t, const telemetry_totals *totals) {
    process_facts process = {0};
    if (!row->header)
        process = process_facts_now();
    double limit = row->header ? 0.0 : telemetry_limit(t, clock_now_ns());
    count(row, "kv_pages_free", totals->pages_free);
    count(row, "kv_pages_cached", totals->pages_cached);
    count(row, "kv_pages_used", totals->pages_used);
    count(row, "prefix_queried_tokens_total", totals->queried_tokens);
    count(row, "prefix_hit_tokens_total", totals->hit_tokens);
    count(row, "resident_bytes", process.resident_bytes);
    cell(row, "cpu_seconds_total", process.cpu_seconds);
    count(row, "read_bytes_total", row->header ? 0 : atomic_look(&t->read_total));
    cell(row, "read_limit_bytes_per_second", limit > 0.0 ? limit : NAN);
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        char column[64];
        snprintf(column, sizeof(column), "%s_total", hardware_name((hardware_event)i));
        cell(row, column, totals->hardware_known[i] ? (double)totals->hardware[i] : NAN);
    }
}

/* Since the row before. */
static void rates(history_row *row, avo_telemetry *t, const telemetry_totals *totals,
                  uint64_t now) {
    history_mark mark = {0}, before = {0};
    double seconds = 0.0, busy = 0.0;
    if (!row->header) {
        before = t->history;
        mark = (history_mark){.ns = now,
                              .prompt_tokens = totals->counts.prompt_tokens,
                              .new_tokens = totals->counts.new_tokens,
                              .read_bytes = atomic_look(&t->read_total),
                              .busy_ns = atomic_look(&t->busy_total)};
        t->history = mark;
        seconds = clock_seconds(before.ns > 0 ? before.ns : t->opened_ns, now);
        busy = (double)(mark.busy_ns - before.busy_ns) * 1e-9;
    }
    bool time = seconds > 0.0;
    double prompt = (double)(mark.prompt_tokens - before.prompt_tokens);
    double fresh = (double)(mark.new_tokens - before.new_tokens);
    double bytes = (double)(mark.read_bytes - before.read_bytes);
    cell(row, "prompt_tokens_per_second", time ? prompt / seconds : NAN);
    cell(row, "new_tokens_per_second", time ? fresh / seconds : NAN);
    cell(row, "busy_share", time ? busy / seconds : NAN);
    cell(row, "read_bytes_per_second", busy > 0.0 ? bytes / busy : NAN);
}

static void walk(history_row *row, avo_telemetry *t, const telemetry_totals *totals) {
    uint64_t now = clock_now_ns();
    stamp(row);
    cell(row, "uptime_seconds", row->header ? 0.0 : clock_seconds(t->opened_ns, now));
    rates(row, t, totals, now);
    requests(row, &totals->counts);
    latency(row, t, "first_token", TIME_FIRST_TOKEN, now);
    latency(row, t, "inter_token", TIME_INTER_TOKEN, now);
    latency(row, t, "queue", TIME_QUEUE, now);
    latency(row, t, "request", TIME_TOTAL, now);
    steps(row, t, totals);
    resources(row, t, totals);
    out_format(&row->out, "\n");
}

static avo_status write_line(avo_telemetry *t, bool header, buffer *text) {
    history_row row = {.out = {text, AVO_OK}, .header = header};
    telemetry_totals totals = {0};
    if (header) {
        walk(&row, t, &totals);
        return row.out.status;
    }
    pthread_mutex_lock(&t->lock);
    telemetry_sum_up(t, &totals);
    walk(&row, t, &totals);
    pthread_mutex_unlock(&t->lock);
    return row.out.status;
}

avo_status avo_telemetry_history(avo_telemetry *t, const char *path, uint64_t bytes_max,
                                 avo_error *error) {
    buffer header, row;
    buffer_init(&header, NULL, ROW_BYTES_MAX);
    buffer_init(&row, NULL, ROW_BYTES_MAX);
    avo_status status = write_line(NULL, true, &header);
    if (status == AVO_OK && t != NULL)
        status = write_line(t, false, &row);
    if (status != AVO_OK)
        status = status_fail(error, status, "telemetry: %s", avo_status_text(status));
    else
        status = table_append(&(table_file){.path = path,
                                            .header = buffer_text(&header),
                                            .bytes_max = bytes_max,
                                            .first = t == NULL},
                              buffer_text(&row), error);
    buffer_free(&row);
    buffer_free(&header);
    return status;
}
