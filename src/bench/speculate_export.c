/* Results of the laboratory for programs: JSON with everything, CSV with the single measurements.
 */
#include "base/json_writer.h"
#include "bench/speculate.h"

#include <math.h>
#include <stdio.h>

static const char *const figure_keys[LAB_FIGURES] = {"tokens_per_second", "speedup", "acceptance",
                                                     "latency_ms", "resident_mib"};

static void write_spreads(json_writer *w, const lab_options *options, const lab_result *result,
                          uint32_t config, uint32_t category) {
    for (uint32_t i = 0; i < LAB_FIGURES; i++) {
        lab_spread spread = lab_spread_of(options, result, config, category, (lab_figure)i);
        json_member_object_begin(w, figure_keys[i]);
        json_member_number(w, "mean", spread.mean);
        json_member_number(w, "sd", spread.sd);
        json_end(w);
    }
    json_member_number(w, "speedup_median", lab_median_of(options, result, config, category));
}

static void write_counts(json_writer *w, const char *key, const uint64_t *counts, uint32_t count) {
    json_member_array_begin(w, key);
    for (uint32_t i = 0; i < count; i++)
        json_u64(w, counts[i]);
    json_end(w);
}

static void write_steps(json_writer *w, const lab_steps *steps, uint32_t k) {
    json_member_u64(w, "steps", steps->steps);
    json_member_u64(w, "steps_with_drafts", steps->draft_steps);
    write_counts(w, "drafted_by_position", steps->drafted_at, k);
    write_counts(w, "accepted_by_position", steps->accepted_at, k);
    write_counts(w, "accepted_length", steps->length, k + 1);
    json_member_object_begin(w, "sources");
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++) {
        if (steps->kind_drafted[kind] == 0)
            continue;
        json_member_object_begin(w, draft_kind_name((draft_kind)kind));
        json_member_u64(w, "drafted", steps->kind_drafted[kind]);
        json_member_u64(w, "accepted", steps->kind_accepted[kind]);
        json_end(w);
    }
    json_end(w);
    json_member_number(w, "draft_seconds", steps->draft_seconds);
    json_member_number(w, "verify_seconds", steps->verify_seconds);
    json_member_number(w, "host_seconds", steps->host_seconds);
}

static void write_quality(json_writer *w, const lab_quality *quality) {
    json_member_object_begin(w, "quality");
    json_member_number(w, "different_tokens",
                       quality->tokens > 0 ? (double)quality->different / (double)quality->tokens
                                           : (double)NAN);
    json_member_number(w, "mean_logprob", quality->logprob / (double)quality->logprob_tokens);
    json_end(w);
}

static void write_config(json_writer *w, const lab_options *options, const lab_result *result,
                         uint32_t i) {
    const lab_config *config = &options->config[i];
    json_object_begin(w);
    json_member_string(w, "source", config->source);
    json_key(w, "controller");
    if (config->k == 0)
        json_null(w);
    else
        json_string(w, draft_controller_name(config->controller));
    json_member_string(w, "policy", draft_policy_name(config->policy.kind));
    json_member_number(w, "policy_value", config->policy.value);
    json_member_boolean(w, "lossy", draft_policy_lossy(&config->policy));
    json_member_u64(w, "k", config->k);
    json_member_number(w, "success", lab_success(options, result, i));
    write_spreads(w, options, result, i, LAB_ALL);
    json_member_object_begin(w, "categories");
    for (uint32_t c = 0; c < result->categories; c++) {
        json_member_object_begin(w, result->category[c]);
        write_spreads(w, options, result, i, c);
        json_end(w);
    }
    json_end(w);
    write_steps(w, &result->steps[i], config->k);
    write_quality(w, &result->quality[i]);
    json_end(w);
}

static void write_costs(json_writer *w, const lab_result *result) {
    json_member_array_begin(w, "cost");
    for (uint32_t rows = 1; rows <= LAB_ROWS_MAX; rows++) {
        const lab_cost *cost = &result->cost[rows];
        json_object_begin(w);
        json_member_u64(w, "rows", rows);
        json_member_u64(w, "steps", cost->steps);
        json_member_number(w, "measured_ns", cost->steps > 0 ? cost->measured_ns : (double)NAN);
        json_member_number(w, "predicted_ns", cost->steps > 0 ? cost->predicted_ns : (double)NAN);
        json_member_number(w, "learned_ns", cost->learned_ns);
        json_end(w);
    }
    json_end(w);
}

static void write_memory(json_writer *w, const lab_result *result) {
    json_member_array_begin(w, "memory");
    for (size_t i = 0; i < result->memory_count; i++) {
        json_object_begin(w);
        json_member_fixed(w, "seconds", result->memory[i].seconds, 3);
        json_member_u64(w, "resident_bytes", result->memory[i].resident_bytes);
        json_member_u64(w, "kv_tokens", result->memory[i].kv_tokens);
        json_end(w);
    }
    json_end(w);
}

avo_status lab_write_json(const char *model, const lab_options *options, const lab_result *result,
                          buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "model", model);
    json_member_u64(&w, "clients", options->clients);
    json_member_string(&w, "device", result->device);
    json_member_u64(&w, "threads", result->threads);
    json_member_u64(&w, "prompts", options->prompts->count);
    json_member_u64(&w, "iterations", options->iterations);
    json_member_u64(&w, "new_tokens_max", options->new_tokens);
    json_member_float(&w, "temperature", options->temperature);
    json_member_u64(&w, "different_answers", result->different);
    json_member_object_begin(&w, "repetition");
    for (uint32_t c = 0; c < result->categories; c++)
        json_member_number(&w, result->category[c], result->repetition[c]);
    json_end(&w);
    json_member_array_begin(&w, "configurations");
    for (uint32_t i = 0; i < options->configs; i++)
        write_config(&w, options, result, i);
    json_end(&w);
    write_costs(&w, result);
    write_memory(&w, result);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

/* ---- CSV ---- */

static avo_status write_line(const lab_options *options, const lab_result *result, uint32_t i,
                             uint32_t category, uint32_t iteration, buffer *out) {
    const lab_config *config = &options->config[i];
    lab_sample s = lab_sample_of(options, result, i, category, iteration);
    char source[LAB_SOURCE_MAX];
    snprintf(source, sizeof(source), "%s", config->source);
    for (char *at = source; *at != '\0'; at++)
        *at = *at == ',' ? '+' : *at;
    AVO_TRY(buffer_format(out, "%s,%s,%s,", source,
                          config->k == 0 ? "" : draft_controller_name(config->controller),
                          draft_policy_name(config->policy.kind)));
    AVO_TRY(json_write_number(out, config->policy.value));
    AVO_TRY(buffer_format(out, ",%d,%u,%s,%u,%u,%u,%llu,", draft_policy_lossy(&config->policy),
                          config->k, result->category[category], iteration + 1, s.answers, s.equal,
                          (unsigned long long)s.tokens));
    AVO_TRY(json_write_number(out, s.seconds));
    return buffer_format(out, ",%llu,%llu,%llu\n", (unsigned long long)s.drafted,
                         (unsigned long long)s.accepted, (unsigned long long)s.resident_bytes);
}

avo_status lab_write_csv(const lab_options *options, const lab_result *result, buffer *out) {
    AVO_TRY(buffer_append_text(out, "source,controller,policy,policy_value,lossy,k,category,"
                                    "iteration,answers,equal_answers,tokens,seconds,"
                                    "drafted,accepted,resident_bytes\n"));
    for (uint32_t i = 0; i < options->configs; i++)
        for (uint32_t c = 0; c < result->categories; c++)
            for (uint32_t n = 0; n < options->iterations; n++)
                AVO_TRY(write_line(options, result, i, c, n, out));
    return AVO_OK;
}
