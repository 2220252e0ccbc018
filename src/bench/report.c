/* From times to figures, and tables of them: Markdown for people, CSV and JSON for programs. */
#include "bench/bench.h"

#include "base/json.h"

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

static const char *bound_name(const bench_result *result) {
    return result->bound == LIMIT_READ ? "read" : "arithmetic";
}

static void sort(double *values, uint32_t count) {
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            double swapped = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swapped;
        }
}

void bench_conclude(double *seconds, uint32_t repeats, double tokens, const limit_work *work,
                    const machine_limits *limits, bench_result *result) {
    sort(seconds, repeats);
    double median = (seconds[(repeats - 1) / 2] + seconds[repeats / 2]) / 2;
    result->repeats = repeats;
    result->seconds = median;
    result->tps = tokens / median;
    result->tps_low = tokens / seconds[repeats - 1];
    result->tps_high = tokens / seconds[0];
    result->gbps = work->bytes / median * 1e-9;
    result->gops = (work->integer_operations + work->floating_operations) / median * 1e-9;
    result->share = limits_shortest(limits, work, &result->bound) / median;
    result->read_gbps = limits->read_bytes * 1e-9;
    result->integer_gops = limits->integer_operations * 1e-9;
    result->floating_gops = limits->floating_operations * 1e-9;
}

/* ---- Markdown ---- */

static avo_status markdown_row(const bench_result *r, buffer *out) {
    return buffer_format(out,
                         "| %s | %s | %s | %s | %u | %u | %u | %u | %.2f | ± %.1f %% | %.2f | %.1f "
                         "| %.1f %% of %s |\n",
                         r->model, r->backend, r->kv, bench_kind_name(r->kind), r->tokens, r->batch,
                         r->depth, r->threads, r->tps, 50 * (r->tps_high - r->tps_low) / r->tps,
                         r->gbps, r->gops, 100 * r->share, bound_name(r));
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
            AVO_TRY(buffer_format(out,
                                  "limits of %s, %u thread%s: read %.1f to %.1f GB/s, int8 %.0f "
                                  "GOPS, f32 %.0f GFLOPS\n",
                                  first->backend, first->threads, first->threads == 1 ? "" : "s",
                                  read[0], read[1], first->integer_gops, first->floating_gops));
    }
    return AVO_OK;
}

avo_status bench_write_markdown(const bench_report *report, buffer *out) {
    AVO_TRY(buffer_format(out, "%s (%s), %u usable thread%s\n", report->cpu, report->features,
                          report->threads, report->threads == 1 ? "" : "s"));
    AVO_TRY(markdown_limits(report->results, out));
    AVO_TRY(buffer_append_text(
        out, "\n| model | back end | kv | kind | tokens | batch | depth | threads | tokens/s | "
             "spread | GB/s | GOPS | share of the limit |\n"
             "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"));
    for (size_t i = 0; i < report->results->count; i++)
        AVO_TRY(markdown_row(&report->results->item[i], out));
    return AVO_OK;
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

avo_status bench_write_csv(const bench_report *report, buffer *out) {
    AVO_TRY(buffer_append_text(
        out, "model,backend,kv,kind,tokens,batch,depth,threads,repeats,seconds,tps,tps_low,"
             "tps_high,gbps,gops,share,bound,read_gbps,integer_gops,floating_gops,cpu\n"));
    for (size_t i = 0; i < report->results->count; i++) {
        const bench_result *r = &report->results->item[i];
        AVO_TRY(csv_text(r->model, out));
        AVO_TRY(buffer_format(
            out, ",%s,%s,%s,%u,%u,%u,%u,%u,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.4f,%s,%.6g,%.6g,%.6g,",
            r->backend, r->kv, bench_kind_name(r->kind), r->tokens, r->batch, r->depth, r->threads,
            r->repeats, r->seconds, r->tps, r->tps_low, r->tps_high, r->gbps, r->gops, r->share,
            bound_name(r), r->read_gbps, r->integer_gops, r->floating_gops));
        AVO_TRY(csv_text(report->cpu, out));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

/* ---- JSON ---- */

typedef struct json_figure {
    const char *key;
    double value;
} json_figure;

static avo_status json_row(const bench_result *r, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"model\":"));
    AVO_TRY(json_write_string(out, text_from(r->model)));
    AVO_TRY(buffer_format(out,
                          ",\"backend\":\"%s\",\"kv\":\"%s\",\"kind\":\"%s\",\"tokens\":%u,"
                          "\"batch\":%u,\"depth\":%u,\"threads\":%u,\"repeats\":%u,\"bound\":"
                          "\"%s\"",
                          r->backend, r->kv, bench_kind_name(r->kind), r->tokens, r->batch,
                          r->depth, r->threads, r->repeats, bound_name(r)));
    const json_figure figures[] = {
        {"seconds", r->seconds},
        {"tps", r->tps},
        {"tps_low", r->tps_low},
        {"tps_high", r->tps_high},
        {"spread", (r->tps_high - r->tps_low) / r->tps},
        {"gbps", r->gbps},
        {"gops", r->gops},
        {"share", r->share},
        {"read_gbps", r->read_gbps},
        {"integer_gops", r->integer_gops},
        {"floating_gops", r->floating_gops},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        AVO_TRY(buffer_format(out, ",\"%s\":", figures[i].key));
        AVO_TRY(json_write_number(out, figures[i].value));
    }
    return buffer_append_text(out, "}");
}

avo_status bench_write_json(const bench_report *report, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"machine\":{\"cpu\":"));
    AVO_TRY(json_write_string(out, text_from(report->cpu)));
    AVO_TRY(buffer_append_text(out, ",\"features\":"));
    AVO_TRY(json_write_string(out, text_from(report->features)));
    AVO_TRY(buffer_format(out, ",\"threads\":%u},\"results\":[", report->threads));
    for (size_t i = 0; i < report->results->count; i++) {
        AVO_TRY(buffer_append_text(out, i == 0 ? "" : ","));
        AVO_TRY(json_row(&report->results->item[i], out));
    }
    return buffer_append_text(out, "]}");
}
