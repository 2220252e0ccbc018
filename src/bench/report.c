/* From times to figures, and tables of them: Markdown for people, CSV and JSON for programs. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

const char *bench_kind_name(bench_kind kind) {
    switch (kind) {
    case BENCH_PREFILL:
        return "prefill";
    case BENCH_DECODE:
        return "decode";
    case BENCH_OPERATION:
        break;
    }
    return "operation";
}

/* Limits that were not measured are 0. */
static bool read_known(const bench_result *result) {
    return result->read_gbps > 0;
}

static bool arithmetic_known(const bench_result *result) {
    return result->integer_gops > 0 && result->floating_gops > 0;
}

/* NULL: no limit is known. */
static const char *bound_name(const bench_result *result) {
    if (!read_known(result) && !arithmetic_known(result))
        return NULL;
    return result->bound == LIMIT_READ ? "read" : "arithmetic";
}

/* ---- Figures ---- */

avo_status bench_results_next(bench_results *results, bench_result **next, avo_error *error) {
    if (results->count >= results->capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %zu measurements", results->capacity);
    *next = &results->item[results->count++];
    return AVO_OK;
}

double bench_median(double *values, uint32_t count) {
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            double swapped = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swapped;
        }
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void bench_conclude(const bench_sample *samples, uint32_t repeats, double tokens,
                    const limit_work *work, bench_result *result) {
    double seconds[BENCH_REPEATS_MAX], reading[BENCH_REPEATS_MAX], computing[BENCH_REPEATS_MAX];
    double read[BENCH_REPEATS_MAX], integer[BENCH_REPEATS_MAX], floating[BENCH_REPEATS_MAX];
    for (uint32_t i = 0; i < repeats; i++) {
        const machine_limits *limits = &samples[i].limits;
        seconds[i] = samples[i].seconds;
        limit_times shortest = limits_times(limits, work);
        reading[i] = shortest.reading / seconds[i];
        computing[i] = shortest.computing / seconds[i];
        read[i] = limits->read_bytes;
        integer[i] = limits->integer_operations;
        floating[i] = limits->floating_operations;
    }
    machine_limits usual = {.read_bytes = bench_median(read, repeats),
                            .integer_operations = bench_median(integer, repeats),
                            .floating_operations = bench_median(floating, repeats)};
    result->repeats = repeats;
    result->seconds = bench_median(seconds, repeats);
    result->tps = tokens / result->seconds;
    result->tps_low = tokens / seconds[repeats - 1];
    result->tps_high = tokens / seconds[0];
    result->gbps = work->bytes / result->seconds * 1e-9;
    result->gops = (work->integer_operations + work->floating_operations) / result->seconds * 1e-9;
    result->read_gbps = usual.read_bytes * 1e-9;
    result->integer_gops = usual.integer_operations * 1e-9;
    result->floating_gops = usual.floating_operations * 1e-9;
    result->read_share = read_known(result) ? bench_median(reading, repeats) : 0;
    result->arithmetic_share = arithmetic_known(result) ? bench_median(computing, repeats) : 0;
    result->bound = limits_bound(limits_times(&usual, work));
    if (!arithmetic_known(result) || !read_known(result))
        result->bound = arithmetic_known(result) ? LIMIT_ARITHMETIC : LIMIT_READ;
    result->share = result->bound == LIMIT_READ ? result->read_share : result->arithmetic_share;
}

/* ---- Markdown ---- */

/* Three digits that count, whatever the size. */
static const char *digits(double value, char text[24]) {
    int places = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : value >= 0.1 ? 3 : 4;
    snprintf(text, 24, "%.*f", places, value);
    return text;
}

static double spread_percent(const bench_result *r) {
    return 50 * (r->tps_high - r->tps_low) / r->tps;
}

static avo_status markdown_figures(const bench_result *r, buffer *out) {
    char gbps[24], gops[24], share[24];
    AVO_TRY(buffer_format(out, " %s | %s |", digits(r->gbps, gbps),
                          r->gops > 0 ? digits(r->gops, gops) : ""));
    if (bound_name(r) == NULL)
        return buffer_append_text(out, " |\n");
    return buffer_format(out, " %s %% of %s |\n", digits(100 * r->share, share), bound_name(r));
}

static avo_status markdown_row(const bench_result *r, buffer *out) {
    AVO_TRY(buffer_format(out, "| %s | %s | %s | %s | %u | %u | %u | %u | %u | %.2f | ± %.1f %% |",
                          r->model, r->backend, r->kv, bench_kind_name(r->kind), r->tokens,
                          r->batch, r->depth, r->threads, r->phases, r->tps, spread_percent(r)));
    return markdown_figures(r, out);
}

static avo_status markdown_operation(const bench_result *r, buffer *out) {
    char time[24], rate[24], read[24];
    AVO_TRY(buffer_format(out, "| %s | %s | %s | %u | %u | %u | %s | %s | ± %.1f %% | %s %% |",
                          r->model, r->backend, r->kv, r->tokens, r->depth, r->threads,
                          digits(r->seconds * 1e6, time), digits(r->tps, rate), spread_percent(r),
                          digits(100 * r->read_share, read)));
    return markdown_figures(r, out);
}

/* A table of the results that are operations, or of those that are not; nothing where none is. */
static avo_status markdown_table(const bench_results *results, bool operations, buffer *out) {
    bool begun = false;
    for (size_t i = 0; i < results->count; i++) {
        const bench_result *r = &results->item[i];
        if ((r->kind == BENCH_OPERATION) != operations)
            continue;
        if (!begun)
            AVO_TRY(buffer_append_text(
                out,
                operations
                    ? "\n| operation | back end | kv | rows | depth | threads | µs | rows/s | "
                      "spread | of read | GB/s | GOPS | share of the limit |\n"
                      "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
                    : "\n| model | back end | kv | kind | tokens | batch | depth | threads | "
                      "phases | tokens/s | spread | GB/s | GOPS | share of the limit |\n"
                      "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"));
        begun = true;
        AVO_TRY(operations ? markdown_operation(r, out) : markdown_row(r, out));
    }
    return AVO_OK;
}

static avo_status markdown_limit(const bench_result *r, const double read[2], buffer *out) {
    AVO_TRY(buffer_format(out, "limits of %s, %u thread%s:", r->backend, r->threads,
                          r->threads == 1 ? "" : "s"));
    if (bound_name(r) == NULL)
        return buffer_append_text(out, " unknown\n");
    if (read_known(r))
        AVO_TRY(buffer_format(out, " read %.1f to %.1f GB/s", read[0], read[1]));
    if (!arithmetic_known(r))
        return buffer_append_text(out, ", arithmetic unknown\n");
    return buffer_format(out, "%s int8 %.0f GOPS, f32 %.0f GFLOPS\n", read_known(r) ? "," : "",
                         r->integer_gops, r->floating_gops);
}

/* The limits, one line per back end and number of threads: the medians of all that were taken would
 * hide that they move, so that the range is shown. */
static avo_status markdown_limits(const bench_results *results, buffer *out) {
    for (size_t i = 0; i < results->count; i++) {
        const bench_result *first = &results->item[i];
        double read[2] = {first->read_gbps, first->read_gbps};
        bool seen = false;
        for (size_t j = 0; j < results->count; j++) {
            const bench_result *other = &results->item[j];
            if (other->threads != first->threads || strcmp(other->backend, first->backend) != 0)
                continue;
            seen |= j < i;
            read[0] = other->read_gbps < read[0] ? other->read_gbps : read[0];
            read[1] = other->read_gbps > read[1] ? other->read_gbps : read[1];
        }
        if (!seen)
            AVO_TRY(markdown_limit(first, read, out));
    }
    return AVO_OK;
}

avo_status bench_write_markdown(const bench_report *report, buffer *out) {
    AVO_TRY(buffer_format(out, "%s (%s), %u usable thread%s\n", report->cpu, report->features,
                          report->threads, report->threads == 1 ? "" : "s"));
    AVO_TRY(markdown_limits(report->results, out));
    AVO_TRY(markdown_table(report->results, false, out));
    return markdown_table(report->results, true, out);
}

/* ---- CSV ---- */

/* Quoted where it must be. */
static avo_status csv_text(const char *text, buffer *out) {
    if (strpbrk(text, ",\"\n") == NULL)
        return buffer_append_text(out, text);
    AVO_TRY(buffer_append_text(out, "\""));
    for (; *text != 0; text++)
        AVO_TRY(buffer_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1));
    return buffer_append_text(out, "\"");
}

/* Nothing where it is not known. */
static avo_status csv_known(double value, const char *format, bool known, buffer *out) {
    char text[32] = "";
    if (known)
        snprintf(text, sizeof(text), format[0] == 'f' ? "%.4f" : "%.6g", value);
    return buffer_format(out, "%s,", text);
}

static avo_status csv_limits(const bench_result *r, buffer *out) {
    const char *bound = bound_name(r);
    AVO_TRY(csv_known(r->share, "f", bound != NULL, out));
    AVO_TRY(buffer_format(out, "%s,", bound == NULL ? "" : bound));
    AVO_TRY(csv_known(r->read_gbps, "g", read_known(r), out));
    AVO_TRY(csv_known(r->integer_gops, "g", arithmetic_known(r), out));
    return csv_known(r->floating_gops, "g", arithmetic_known(r), out);
}

avo_status bench_write_csv(const bench_report *report, buffer *out) {
    AVO_TRY(buffer_append_text(
        out, "model,backend,kv,kind,tokens,batch,depth,threads,repeats,seconds,tps,tps_low,"
             "tps_high,gbps,gops,share,bound,read_gbps,integer_gops,floating_gops,cpu\n"));
    for (size_t i = 0; i < report->results->count; i++) {
        const bench_result *r = &report->results->item[i];
        AVO_TRY(csv_text(r->model, out));
        AVO_TRY(buffer_format(out, ",%s,%s,%s,%u,%u,%u,%u,%u,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,",
                              r->backend, r->kv, bench_kind_name(r->kind), r->tokens, r->batch,
                              r->depth, r->threads, r->repeats, r->seconds, r->tps, r->tps_low,
                              r->tps_high, r->gbps, r->gops));
        AVO_TRY(csv_limits(r, out));
        AVO_TRY(csv_text(report->cpu, out));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

/* ---- JSON ---- */

static void json_known(json_writer *w, const char *name, double value, bool known) {
    if (known)
        json_member_number(w, name, value);
    else
        json_member_null(w, name);
}

/* Null: not known. */
static void json_limits(json_writer *w, const bench_result *r) {
    json_known(w, "share", r->share, bound_name(r) != NULL);
    json_known(w, "read_share", r->read_share, read_known(r));
    json_known(w, "arithmetic_share", r->arithmetic_share, arithmetic_known(r));
    json_known(w, "read_gbps", r->read_gbps, read_known(r));
    json_known(w, "integer_gops", r->integer_gops, arithmetic_known(r));
    json_known(w, "floating_gops", r->floating_gops, arithmetic_known(r));
}

static void json_row(json_writer *w, const bench_result *r) {
    json_object_begin(w);
    json_member_string(w, "model", r->model);
    json_member_string(w, "backend", r->backend);
    json_member_string(w, "kv", r->kv);
    json_member_string(w, "kind", bench_kind_name(r->kind));
    json_member_u64(w, "tokens", r->tokens);
    json_member_u64(w, "batch", r->batch);
    json_member_u64(w, "depth", r->depth);
    json_member_u64(w, "threads", r->threads);
    json_member_u64(w, "phases", r->phases);
    json_member_u64(w, "repeats", r->repeats);
    if (bound_name(r) != NULL)
        json_member_string(w, "bound", bound_name(r));
    else
        json_member_null(w, "bound");
    json_member_number(w, "seconds", r->seconds);
    json_member_number(w, "tps", r->tps);
    json_member_number(w, "tps_low", r->tps_low);
    json_member_number(w, "tps_high", r->tps_high);
    json_member_number(w, "spread", (r->tps_high - r->tps_low) / r->tps);
    json_member_number(w, "gbps", r->gbps);
    json_member_number(w, "gops", r->gops);
    json_limits(w, r);
    json_end(w);
}

void bench_machine_json(json_writer *w, const bench_report *report) {
    json_member_object_begin(w, "machine");
    json_member_string(w, "cpu", report->cpu);
    json_member_string(w, "features", report->features);
    json_member_u64(w, "threads", report->threads);
    json_end(w);
}

avo_status bench_write_json(const bench_report *report, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    bench_machine_json(&w, report);
    json_member_array_begin(&w, "results");
    for (size_t i = 0; i < report->results->count; i++)
        json_row(&w, &report->results->item[i]);
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}
