/* Tables of the laboratory, for people. */
#include "bench/grid.h"
#include "bench/speculate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct paper {
    const lab_options *options;
    const lab_result *result;
    grid grid;
    buffer *out;
} paper;

/* "12.3 ± 0.4"; "–" where there is none. */
static void cell_spread(paper *p, lab_spread value, double factor, int decimals) {
    if (isnan(value.mean))
        grid_cell(&p->grid, "–");
    else if (isnan(value.sd))
        grid_cell(&p->grid, "%.*f", decimals, value.mean * factor);
    else
        grid_cell(&p->grid, "%.*f ± %.*f", decimals, value.mean * factor, decimals,
                  value.sd * factor);
}

static void cell_median(paper *p, uint32_t config, uint32_t category) {
    double median = lab_median_of(p->options, p->result, config, category);
    if (isnan(median))
        grid_cell(&p->grid, "–");
    else
        grid_cell(&p->grid, "%.2f", median);
}

static void cell_share(paper *p, uint64_t part, uint64_t whole) {
    if (whole == 0)
        grid_cell(&p->grid, "–");
    else
        grid_cell(&p->grid, "%.1f", 100.0 * (double)part / (double)whole);
}

/* Source, controller, policy and K: the first four cells of a row. */
#define NAME_COLUMNS 3
static void cell_config(paper *p, const lab_config *config) {
    char source[LAB_SOURCE_MAX];
    snprintf(source, sizeof(source), "%s", config->source);
    for (char *at = source; *at != '\0'; at++)
        *at = *at == ',' ? '+' : *at;
    grid_cell(&p->grid, "%s", source);
    grid_cell(&p->grid, "%s", config->k == 0 ? "–" : draft_controller_name(config->controller));
    if (draft_policy_lossy(&config->policy))
        grid_cell(&p->grid, "%s:%g LOSSY", draft_policy_name(config->policy.kind),
                  config->policy.value);
    else
        grid_cell(&p->grid, "%s", config->k == 0 ? "–" : "exact");
    grid_cell(&p->grid, "%u", config->k);
}

static void begin(paper *p) {
    static const char *const names[] = {"source", "controller", "policy", "K"};
    grid_clear(&p->grid);
    grid_row(&p->grid);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        grid_cell(&p->grid, "%s", names[i]);
}

static avo_status end(paper *p, const char *title) {
    AVO_TRY(buffer_format(p->out, "\n%s\n", title));
    return grid_write(&p->grid, NAME_COLUMNS, p->out);
}

/* ---- Tables over configurations ---- */

static avo_status write_main(paper *p) {
    static const char *const titles[] = {"tokens/s", "speed-up",   "median",      "acceptance %",
                                         "ms/token", "memory MiB", "same bytes %"};
    static const double factors[LAB_FIGURES] = {1, 1, 100, 1, 1};
    static const int decimals[LAB_FIGURES] = {1, 2, 1, 2, 1};
    begin(p);
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        grid_cell(&p->grid, "%s", titles[i]);
    for (uint32_t i = 0; i < p->options->configs; i++) {
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        for (uint32_t figure = 0; figure < LAB_FIGURES; figure++) {
            cell_spread(p, lab_spread_of(p->options, p->result, i, LAB_ALL, (lab_figure)figure),
                        factors[figure], decimals[figure]);
            if (figure == LAB_SPEEDUP)
                cell_median(p, i, LAB_ALL);
        }
        grid_cell(&p->grid, "%.1f", 100 * lab_success(p->options, p->result, i));
    }
    return end(p, "All prompts (mean ± standard deviation over the iterations; median: of the "
                  "ratios of single answers)");
}

static avo_status write_categories(paper *p) {
    begin(p);
    for (uint32_t c = 0; c < p->result->categories; c++)
        grid_cell(&p->grid, "%s", p->result->category[c]);
    for (uint32_t i = 0; i < p->options->configs; i++) {
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        for (uint32_t c = 0; c < p->result->categories; c++)
            cell_spread(p,
                        lab_spread_of(p->options, p->result, i, c,
                                      i == 0 ? LAB_TOKENS_PER_SECOND : LAB_SPEEDUP),
                        1, i == 0 ? 1 : 2);
    }
    grid_row(&p->grid);
    grid_cell(&p->grid, "repetition %%");
    for (uint32_t i = 1; i <= NAME_COLUMNS; i++)
        grid_cell(&p->grid, "%s", "");
    for (uint32_t c = 0; c < p->result->categories; c++)
        grid_cell(&p->grid, "%.0f", 100 * p->result->repetition[c]);
    return end(p, "Speed-up by kind of prompt (K 0: tokens/s; repetition: runs of four tokens that "
                  "the answer had before)");
}

static avo_status write_medians(paper *p) {
    begin(p);
    for (uint32_t c = 0; c < p->result->categories; c++)
        grid_cell(&p->grid, "%s", p->result->category[c]);
    for (uint32_t i = 1; i < p->options->configs; i++) {
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        for (uint32_t c = 0; c < p->result->categories; c++)
            cell_median(p, i, c);
    }
    return end(p, "Median speed-up of single answers by kind of prompt");
}

static uint32_t largest_k(const paper *p) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->options->configs; i++)
        most = p->options->config[i].k > most ? p->options->config[i].k : most;
    return most;
}

static avo_status write_positions(paper *p) {
    uint32_t most = largest_k(p);
    begin(p);
    grid_cell(&p->grid, "tokens/step");
    for (uint32_t n = 1; n <= most; n++)
        grid_cell(&p->grid, "%u", n);
    for (uint32_t i = 1; i < p->options->configs; i++) {
        const lab_steps *steps = &p->result->steps[i];
        uint64_t accepted = steps->steps;
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        for (uint32_t n = 0; n < DRAFTS_MAX; n++)
            accepted += steps->accepted_at[n];
        grid_cell(&p->grid, "%.2f", steps->steps > 0 ? (double)accepted / (double)steps->steps : 0);
        for (uint32_t n = 0; n < most; n++)
            cell_share(p, steps->accepted_at[n], steps->drafted_at[n]);
    }
    return end(p, "Accepted drafts by position, % of those verified there");
}

static avo_status write_lengths(paper *p) {
    uint32_t most = largest_k(p);
    begin(p);
    grid_cell(&p->grid, "steps");
    grid_cell(&p->grid, "with drafts %%");
    for (uint32_t n = 0; n <= most; n++)
        grid_cell(&p->grid, "%u", n);
    for (uint32_t i = 1; i < p->options->configs; i++) {
        const lab_steps *steps = &p->result->steps[i];
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        grid_cell(&p->grid, "%llu", (unsigned long long)steps->steps);
        cell_share(p, steps->draft_steps, steps->steps);
        for (uint32_t n = 0; n <= most; n++)
            cell_share(p, steps->length[n], steps->draft_steps);
    }
    return end(p, "Accepted length, % of the steps that verified drafts");
}

static avo_status write_times(paper *p) {
    begin(p);
    grid_cell(&p->grid, "draft µs/step");
    grid_cell(&p->grid, "verify ms/step");
    grid_cell(&p->grid, "host µs/step");
    grid_cell(&p->grid, "draft %%");
    grid_cell(&p->grid, "verify %%");
    grid_cell(&p->grid, "host %%");
    for (uint32_t i = 0; i < p->options->configs; i++) {
        const lab_steps *s = &p->result->steps[i];
        double count = s->steps > 0 ? (double)s->steps : 1;
        double whole = s->draft_seconds + s->verify_seconds + s->host_seconds;
        whole = whole > 0 ? whole : 1;
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        grid_cell(&p->grid, "%.2f", s->draft_seconds * 1e6 / count);
        grid_cell(&p->grid, "%.3f", s->verify_seconds * 1e3 / count);
        grid_cell(&p->grid, "%.1f", s->host_seconds * 1e6 / count);
        grid_cell(&p->grid, "%.2f", 100 * s->draft_seconds / whole);
        grid_cell(&p->grid, "%.2f", 100 * s->verify_seconds / whole);
        grid_cell(&p->grid, "%.2f", 100 * s->host_seconds / whole);
    }
    return end(p, "Time of a step");
}

/* ---- Others ---- */

static avo_status write_costs(paper *p) {
    const lab_cost *cost = p->result->cost;
    grid_clear(&p->grid);
    grid_row(&p->grid);
    static const char *const titles[] = {"rows",          "steps",      "measured ms",
                                         "predicted ms",  "learned ms", "T/T(1) measured",
                                         "T/T(1) learned"};
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        grid_cell(&p->grid, "%s", titles[i]);
    for (uint32_t rows = 1; rows <= LAB_ROWS_MAX; rows++) {
        if (cost[rows].steps == 0)
            continue;
        grid_row(&p->grid);
        grid_cell(&p->grid, "%u", rows);
        grid_cell(&p->grid, "%llu", (unsigned long long)cost[rows].steps);
        grid_cell(&p->grid, "%.3f", cost[rows].measured_ns * 1e-6);
        grid_cell(&p->grid, "%.3f", cost[rows].predicted_ns * 1e-6);
        grid_cell(&p->grid, "%.3f", cost[rows].learned_ns * 1e-6);
        grid_cell(&p->grid, "%.2f", cost[rows].measured_ns / cost[1].measured_ns);
        grid_cell(&p->grid, "%.2f", cost[rows].learned_ns / cost[1].learned_ns);
    }
    AVO_TRY(buffer_append_text(
        p->out, "\nCost of a step by rows (predicted: before each step, with its context; learned: "
                "the table at the end, without context)\n"));
    return grid_write(&p->grid, 0, p->out);
}

static bool any_lossy(const lab_options *options) {
    for (uint32_t i = 0; i < options->configs; i++)
        if (draft_policy_lossy(&options->config[i].policy))
            return true;
    return false;
}

static avo_status write_quality(paper *p) {
    begin(p);
    grid_cell(&p->grid, "different tokens %%");
    grid_cell(&p->grid, "mean logprob");
    grid_cell(&p->grid, "exact");
    const lab_quality *exact = &p->result->quality[0];
    for (uint32_t i = 1; i < p->options->configs; i++) {
        const lab_quality *quality = &p->result->quality[i];
        if (!draft_policy_lossy(&p->options->config[i].policy))
            continue;
        grid_row(&p->grid);
        cell_config(p, &p->options->config[i]);
        cell_share(p, quality->different, quality->tokens);
        grid_cell(&p->grid, "%.4f", quality->logprob / (double)quality->logprob_tokens);
        grid_cell(&p->grid, "%.4f", exact->logprob / (double)exact->logprob_tokens);
    }
    return end(p, "LOSSY policies: these answers are not the model's own (compared with K 0)");
}

static avo_status write_memory(paper *p) {
    const lab_result *r = p->result;
    uint64_t most = 0, tokens = 0;
    for (size_t i = 0; i < r->memory_count; i++) {
        most = r->memory[i].resident_bytes > most ? r->memory[i].resident_bytes : most;
        tokens = r->memory[i].kv_tokens > tokens ? r->memory[i].kv_tokens : tokens;
    }
    if (r->memory_count < 2)
        return AVO_OK;
    return buffer_format(
        p->out,
        "\nMemory: %.1f MiB resident before the engine opened, %.1f MiB after, "
        "%.1f MiB at most, %.1f MiB at the end; KV pages for at most %llu tokens\n",
        (double)r->memory[0].resident_bytes / 1048576.0,
        (double)r->memory[1].resident_bytes / 1048576.0, (double)most / 1048576.0,
        (double)r->memory[r->memory_count - 1].resident_bytes / 1048576.0,
        (unsigned long long)tokens);
}

static avo_status write_all(paper *p, const char *model) {
    const lab_options *o = p->options;
    AVO_TRY(buffer_format(p->out,
                          "%s on %s, %u threads: %zu prompts, %u iteration%s, up to %u new tokens, "
                          "temperature %g, %.0f s\n",
                          model, p->result->device, p->result->threads, o->prompts->count,
                          o->iterations, o->iterations == 1 ? "" : "s", o->new_tokens,
                          (double)o->temperature, p->result->seconds));
    if (o->clients > 0)
        AVO_TRY(buffer_format(p->out,
                              "%u clients of one scheduler: tokens/s of all together, prompts "
                              "included; median: of the rates of single answers\n",
                              o->clients));
    AVO_TRY(write_main(p));
    if (o->clients > 0)
        return write_memory(p);
    AVO_TRY(write_categories(p));
    if (o->configs > 1) {
        AVO_TRY(write_medians(p));
        AVO_TRY(write_positions(p));
        AVO_TRY(write_lengths(p));
    }
    AVO_TRY(write_times(p));
    AVO_TRY(write_costs(p));
    if (any_lossy(o))
        AVO_TRY(write_quality(p));
    return write_memory(p);
}

avo_status lab_write_text(const char *model, const lab_options *options, const lab_result *result,
                          buffer *out) {
    paper p = {.options = options, .result = result, .out = out};
    AVO_TRY(grid_open(&p.grid));
    avo_status status = write_all(&p, model);
    grid_close(&p.grid);
    return status;
}
