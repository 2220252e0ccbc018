/* Tables of the request-level benchmark. */
#include "bench/serving.h"

#include <stdio.h>

typedef struct spread_row {
    const char *name, *key;
    const serving_spread *spread;
} spread_row;

#define SPREADS 4
static void spread_rows(const serving_result *result, spread_row rows[SPREADS]) {
    rows[0] = (spread_row){"time to first token", "first_token", &result->first};
    rows[1] = (spread_row){"between two tokens", "between_tokens", &result->between};
    rows[2] = (spread_row){"whole request", "whole", &result->whole};
    rows[3] = (spread_row){"in the queue", "queue", &result->queue};
}

typedef struct figure {
    const char *key;
    double value;
} figure;

static double share(double part, double whole) {
    return whole > 0.0 ? part / whole : 0.0;
}

#define FIGURES 27
static size_t figures_of(const serving_options *options, const serving_result *result,
                         figure figures[FIGURES]) {
    const avo_scheduler_info *info = &result->info;
    double engine = info->step_seconds + info->busy_seconds;
    const figure all[] = {
        {"requests", result->requests},
        {"finished", result->finished},
        {"failed", result->failed},
        {"checked", result->checked},
        {"different", result->different},
        {"adapters", (double)result->adapters},
        {"adapters_used", (double)result->adapters_used},
        {"zipf", options->zipf},
        {"tenants", result->tenants},
        {"seconds", result->seconds},
        {"requests_per_second", share(result->finished, result->seconds)},
        {"new_tokens_per_second", share((double)info->new_tokens, result->seconds)},
        {"prompt_tokens_per_second", share((double)info->prompt_tokens, result->seconds)},
        {"tenant_fairness", result->tenant_fairness},
        {"adapter_fairness", result->adapter_fairness},
        {"prefix_hit_share", share((double)result->found_tokens, (double)result->prompt_tokens)},
        {"preemptions", (double)info->preemptions},
        {"recomputed_tokens", (double)info->recomputed_tokens},
        {"steps", (double)info->steps},
        {"tokens_per_step", share((double)(info->new_tokens), (double)info->steps)},
        {"step_share", share(info->step_seconds, result->seconds)},
        {"outside_steps_share", share(info->busy_seconds, engine)},
        {"tokenizer_share", share(info->tokenizer_seconds, result->seconds)},
        {"delivery_share", share(info->delivery_seconds, result->seconds)},
        {"prefill_steps", (double)info->prefill_steps},
        {"prefill_share", share(info->prefill_seconds, result->seconds)},
        {"prefill_threads", info->prefill_threads},
    };
    for (size_t i = 0; i < FIGURES; i++)
        figures[i] = all[i];
    return FIGURES;
}

static avo_status markdown_head(const char *model, const serving_options *options,
                                const serving_result *result, buffer *out) {
    AVO_TRY(buffer_format(out, "%s: %u requests, %zu adapters (%zu used", model, result->requests,
                          result->adapters, result->adapters_used));
    if (result->adapters > 0)
        AVO_TRY(buffer_format(out, ", Zipf %.2f", options->zipf));
    AVO_TRY(
        buffer_format(out, "), %u tenant%s, ", result->tenants, result->tenants == 1 ? "" : "s"));
    if (options->rate > 0.0)
        return buffer_format(out, "%.2f requests/s, seed %llu\n\n", options->rate,
                             (unsigned long long)options->seed);
    return buffer_format(out, "%u in flight, seed %llu\n\n", options->concurrency,
                         (unsigned long long)options->seed);
}

static avo_status markdown_check(const serving_result *result, buffer *out) {
    if (!result->checked)
        return AVO_OK;
    return buffer_format(out,
                         "\nRun one by one, the same requests gave %s (%u of %u differ) in %.1f s; "
                         "together they took %.1f s.\n",
                         result->different == 0 ? "the same bytes" : "OTHER BYTES",
                         result->different, result->finished, result->check_seconds,
                         result->seconds);
}

avo_status bench_serving_markdown(const char *model, const serving_options *options,
                                  const serving_result *result, buffer *out) {
    spread_row rows[SPREADS];
    spread_rows(result, rows);
    const avo_scheduler_info *info = &result->info;
    AVO_TRY(markdown_head(model, options, result, out));
    AVO_TRY(buffer_append_text(out, "| ms | mean | p50 | p90 | p95 | p99 | max |\n"
                                    "|---|---:|---:|---:|---:|---:|---:|\n"));
    for (size_t i = 0; i < SPREADS; i++) {
        const serving_spread *s = rows[i].spread;
        AVO_TRY(buffer_format(out, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
                              rows[i].name, s->mean * 1e3, s->p50 * 1e3, s->p90 * 1e3, s->p95 * 1e3,
                              s->p99 * 1e3, s->max * 1e3));
    }
    AVO_TRY(buffer_format(
        out,
        "\n%u of %u finished in %.2f s: %.2f requests/s, %.1f new and %.1f prompt tokens/s.\n"
        "Prefixes: %.1f %% of prompt tokens found. Preemptions: %llu, %llu tokens computed again.\n"
        "Fairness (Jain, time per token): tenants %.3f, adapters %.3f.\n"
        "Engine thread: %llu steps take %.1f %% of the time, %.2f new tokens each; drawing and "
        "planning %.2f %% of its work.\nTokenizer threads worked %.2f %% of the time, delivery "
        "%.2f %%.\n",
        result->finished, result->requests, result->seconds,
        share(result->finished, result->seconds), share((double)info->new_tokens, result->seconds),
        share((double)info->prompt_tokens, result->seconds),
        100.0 * share((double)result->found_tokens, (double)result->prompt_tokens),
        (unsigned long long)info->preemptions, (unsigned long long)info->recomputed_tokens,
        result->tenant_fairness, result->adapter_fairness, (unsigned long long)info->steps,
        100.0 * share(info->step_seconds, result->seconds),
        share((double)info->new_tokens, (double)info->steps),
        100.0 * share(info->busy_seconds, info->busy_seconds + info->step_seconds),
        100.0 * share(info->tokenizer_seconds, result->seconds),
        100.0 * share(info->delivery_seconds, result->seconds)));
    if (info->prefill_threads > 0)
        AVO_TRY(buffer_format(out,
                              "Cores: %s; prefill steps in parallel (%llu) took %.1f %% of the "
                              "time, the last one with %u threads.\n",
                              options->scheduler.cores, (unsigned long long)info->prefill_steps,
                              100.0 * share(info->prefill_seconds, result->seconds),
                              info->prefill_threads));
    return markdown_check(result, out);
}

avo_status bench_serving_csv(const char *model, const serving_options *options,
                             const serving_result *result, buffer *out) {
    spread_row rows[SPREADS];
    figure figures[FIGURES];
    spread_rows(result, rows);
    size_t count = figures_of(options, result, figures);
    AVO_TRY(buffer_append_text(out, "model"));
    for (size_t i = 0; i < count; i++)
        AVO_TRY(buffer_format(out, ",%s", figures[i].key));
    for (size_t i = 0; i < SPREADS; i++)
        AVO_TRY(buffer_format(out, ",%s_mean_ms,%s_p50_ms,%s_p90_ms,%s_p95_ms,%s_p99_ms,%s_max_ms",
                              rows[i].key, rows[i].key, rows[i].key, rows[i].key, rows[i].key,
                              rows[i].key));
    AVO_TRY(buffer_format(out, "\n%s", model));
    for (size_t i = 0; i < count; i++)
        AVO_TRY(buffer_format(out, ",%.9g", figures[i].value));
    for (size_t i = 0; i < SPREADS; i++) {
        const serving_spread *s = rows[i].spread;
        AVO_TRY(buffer_format(out, ",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g", s->mean * 1e3, s->p50 * 1e3,
                              s->p90 * 1e3, s->p95 * 1e3, s->p99 * 1e3, s->max * 1e3));
    }
    return buffer_append_text(out, "\n");
}

avo_status bench_serving_json(const char *model, const serving_options *options,
                              const serving_result *result, buffer *out) {
    spread_row rows[SPREADS];
    figure figures[FIGURES];
    spread_rows(result, rows);
    size_t count = figures_of(options, result, figures);
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "model", model);
    json_member_u64(&w, "seed", options->seed);
    for (size_t i = 0; i < count; i++)
        json_member_number(&w, figures[i].key, figures[i].value);
    for (size_t i = 0; i < SPREADS; i++) {
        const serving_spread *s = rows[i].spread;
        char key[32];
        snprintf(key, sizeof(key), "%s_ms", rows[i].key);
        json_member_object_begin(&w, key);
        json_member_significant(&w, "mean", s->mean * 1e3, 6);
        json_member_significant(&w, "p50", s->p50 * 1e3, 6);
        json_member_significant(&w, "p90", s->p90 * 1e3, 6);
        json_member_significant(&w, "p95", s->p95 * 1e3, 6);
        json_member_significant(&w, "p99", s->p99 * 1e3, 6);
        json_member_significant(&w, "max", s->max * 1e3, 6);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}
