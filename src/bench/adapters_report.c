/* Tables of what adapters cost: Markdown, CSV, JSON. */
#include "bench/adapters.h"

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

static void json_row(json_writer *w, const bench_adapters_result *r) {
    json_object_begin(w);
    json_member_string(w, "backend", r->backend);
    json_member_string(w, "kind", bench_kind_name(r->kind));
    json_member_u64(w, "adapters", r->adapters);
    json_member_u64(w, "rank", r->rank);
    json_member_string(w, "targets", r->targets);
    json_member_u64(w, "batch", r->batch);
    json_member_u64(w, "tokens", r->tokens);
    json_member_u64(w, "threads", r->threads);
    json_member_u64(w, "repeats", r->repeats);
    json_member_number(w, "base_tps", r->base_tps);
    json_member_number(w, "tps", r->tps);
    json_member_number(w, "cost", r->cost);
    json_member_number(w, "cost_low", r->cost_low);
    json_member_number(w, "cost_high", r->cost_high);
    json_member_number(w, "floor", r->floor);
    json_end(w);
}

avo_status bench_adapters_json(const bench_report *machine, const char *model,
                               const bench_adapters_result *results, size_t count, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    bench_machine_json(&w, machine);
    json_member_string(&w, "model", model);
    json_member_array_begin(&w, "adapters");
    for (size_t i = 0; i < count; i++)
        json_row(&w, &results[i]);
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}
