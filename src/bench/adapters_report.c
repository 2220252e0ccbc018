/* Tables of what adapters cost: Markdown, CSV, JSON. */
#include "bench/adapters.h"

#include "base/json.h"

#define NOISE 0.1 /* between the quartiles of a cost, past which it is said */

avo_status bench_adapters_markdown(const bench_report *machine, const char *model,
                                   const bench_adapters_result *results, size_t count,
                                   buffer *out) {
    AVO_TRY(buffer_format(out, "%s (%s), %u usable thread%s; %s\n\n", machine->cpu,
                          machine->features, machine->threads, machine->threads == 1 ? "" : "s",
                          model));
    AVO_TRY(buffer_append_text(
        out, "| kind | adapters | rank | targets | batch | tokens | threads | tokens/s without | "
             "with | cost | half of the turns | floor | cost − floor |\n"
             "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"));
    bool noisy = false;
    for (size_t i = 0; i < count; i++) {
        const bench_adapters_result *r = &results[i];
        AVO_TRY(buffer_format(
            out,
            "| %s | %u | %u | %s | %u | %u | %u | %.2f | %.2f | %.1f %% | %.1f … %.1f %% | "
            "%.1f %% | %+.1f |\n",
            bench_kind_name(r->kind), r->adapters, r->rank, r->targets, r->batch, r->tokens,
            r->threads, r->base_tps, r->tps, 100 * r->cost, 100 * r->cost_low, 100 * r->cost_high,
            100 * r->floor, 100 * (r->cost - r->floor)));
        noisy = noisy || r->cost_high - r->cost_low > NOISE;
    }
    if (noisy)
        AVO_TRY(buffer_append_text(
            out,
            "\nThe machine was not idle: half of the rounds of a row differ by more than 10 "
            "percentage points.\nUse more rounds (-r), shorter ones (-n), and stop other work.\n"));
    return AVO_OK;
}

avo_status bench_adapters_csv(const bench_report *machine, const char *model,
                              const bench_adapters_result *results, size_t count, buffer *out) {
    (void)machine;
    AVO_TRY(buffer_append_text(out, "model,backend,kind,adapters,rank,targets,batch,tokens,threads,"
                                    "repeats,base_tps,tps,cost,cost_low,cost_high,floor\n"));
    for (size_t i = 0; i < count; i++) {
        const bench_adapters_result *r = &results[i];
        AVO_TRY(buffer_format(out, "%s,%s,%s,%u,%u,%s,%u,%u,%u,%u,%.6g,%.6g,%.5f,%.5f,%.5f,%.5f\n",
                              model, r->backend, bench_kind_name(r->kind), r->adapters, r->rank,
                              r->targets, r->batch, r->tokens, r->threads, r->repeats, r->base_tps,
                              r->tps, r->cost, r->cost_low, r->cost_high, r->floor));
    }
    return AVO_OK;
}

static avo_status json_row(const bench_adapters_result *r, buffer *out) {
    AVO_TRY(buffer_format(out,
                          "{\"backend\":\"%s\",\"kind\":\"%s\",\"adapters\":%u,\"rank\":%u,"
                          "\"targets\":\"%s\",\"batch\":%u,\"tokens\":%u,\"threads\":%u,"
                          "\"repeats\":%u",
                          r->backend, bench_kind_name(r->kind), r->adapters, r->rank, r->targets,
                          r->batch, r->tokens, r->threads, r->repeats));
    const struct {
        const char *key;
        double value;
    } figures[] = {{"base_tps", r->base_tps},   {"tps", r->tps},
                   {"cost", r->cost},           {"cost_low", r->cost_low},
                   {"cost_high", r->cost_high}, {"floor", r->floor}};
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        AVO_TRY(buffer_format(out, ",\"%s\":", figures[i].key));
        AVO_TRY(json_write_number(out, figures[i].value));
    }
    return buffer_append_text(out, "}");
}

avo_status bench_adapters_json(const bench_report *machine, const char *model,
                               const bench_adapters_result *results, size_t count, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"machine\":{\"cpu\":"));
    AVO_TRY(json_write_string(out, text_from(machine->cpu)));
    AVO_TRY(buffer_append_text(out, ",\"features\":"));
    AVO_TRY(json_write_string(out, text_from(machine->features)));
    AVO_TRY(buffer_format(out, ",\"threads\":%u},\"model\":", machine->threads));
    AVO_TRY(json_write_string(out, text_from(model)));
    AVO_TRY(buffer_append_text(out, ",\"adapters\":["));
    for (size_t i = 0; i < count; i++) {
        AVO_TRY(buffer_append_text(out, i == 0 ? "" : ","));
        AVO_TRY(json_row(&results[i], out));
    }
    return buffer_append_text(out, "]}");
}
