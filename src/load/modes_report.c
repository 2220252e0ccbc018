/* What the modes of a server gave: tables for people, JSON and CSV for programs. */
#include "base/json_writer.h"
#include "bench/grid.h"
#include "load/modes.h"

#include <math.h>
#include <string.h>

static void cell_spread(grid *grid, lab_spread value, double factor, int decimals) {
    if (isnan(value.mean))
        grid_cell(grid, "–");
    else if (isnan(value.sd))
        grid_cell(grid, "%.*f", decimals, value.mean * factor);
    else
        grid_cell(grid, "%.*f ± %.*f", decimals, value.mean * factor, decimals, value.sd * factor);
}

static lab_spread spread(const modes_result *result, uint32_t mode, uint32_t category,
                         lab_figure figure) {
    return lab_spread_of(&result->figures, &result->measured, mode, category, figure);
}

static avo_status write_main(const modes_result *result, grid *grid, buffer *out) {
    static const char *const titles[] = {"mode",           "tokens/s",     "ratio",
                                         "median",         "acceptance %", "ms/token",
                                         "first token ms", "same bytes %"};
    grid_clear(grid);
    grid_row(grid);
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        grid_cell(grid, "%s", titles[i]);
    for (uint32_t i = 0; i < result->figures.configs; i++) {
        grid_row(grid);
        grid_cell(grid, "%s", result->name[i]);
        cell_spread(grid, spread(result, i, LAB_ALL, LAB_TOKENS_PER_SECOND), 1, 1);
        cell_spread(grid, spread(result, i, LAB_ALL, LAB_SPEEDUP), 1, 2);
        grid_cell(grid, "%.2f", lab_median_of(&result->figures, &result->measured, i, LAB_ALL));
        cell_spread(grid, spread(result, i, LAB_ALL, LAB_ACCEPTANCE), 100, 1);
        cell_spread(grid, spread(result, i, LAB_ALL, LAB_LATENCY_MS), 1, 2);
        grid_cell(grid, "%.1f", result->first_seconds[i] * 1e3);
        grid_cell(grid, "%.1f", 100 * lab_success(&result->figures, &result->measured, i));
    }
    return grid_write(grid, 1, out);
}

static avo_status write_categories(const modes_result *result, grid *grid, buffer *out) {
    AVO_TRY(buffer_format(out, "\nRatio to %s by kind of prompt\n", result->name[0]));
    grid_clear(grid);
    grid_row(grid);
    grid_cell(grid, "mode");
    for (uint32_t c = 0; c < result->measured.categories; c++)
        grid_cell(grid, "%s", result->measured.category[c]);
    for (uint32_t i = 1; i < result->figures.configs; i++) {
        grid_row(grid);
        grid_cell(grid, "%s", result->name[i]);
        for (uint32_t c = 0; c < result->measured.categories; c++)
            cell_spread(grid, spread(result, i, c, LAB_SPEEDUP), 1, 2);
    }
    return grid_write(grid, 1, out);
}

avo_status modes_write_text(const modes_options *options, const modes_result *result, buffer *out) {
    grid grid;
    AVO_TRY(buffer_format(out,
                          "%s, %s: %zu prompts, %u iteration%s, up to %u new tokens, temperature "
                          "%g\n\n",
                          options->url, result->model, options->prompts->count, options->iterations,
                          options->iterations == 1 ? "" : "s", options->new_tokens,
                          (double)options->temperature));
    AVO_TRY(grid_open(&grid));
    avo_status status = write_main(result, &grid, out);
    if (result->figures.configs > 1 && status == AVO_OK)
        status = write_categories(result, &grid, out);
    grid_close(&grid);
    AVO_TRY(status);
    for (uint32_t i = 0; i < result->figures.configs; i++)
        if (strcmp(result->config[i].source, "off") != 0 && !result->counted[i])
            AVO_TRY(buffer_format(out,
                                  "\n%s: the server reported no draft tokens; it may ignore the "
                                  "field \"speculation\"\n",
                                  result->name[i]));
    if (result->failed > 0)
        AVO_TRY(buffer_format(out, "\n%u of %u requests failed, the first: %s\n", result->failed,
                              result->requests, result->failure));
    return AVO_OK;
}

/* ---- For programs ---- */

static void write_spreads(json_writer *w, const modes_result *result, uint32_t mode,
                          uint32_t category) {
    static const struct {
        const char *key;
        lab_figure figure;
    } figures[] = {{"tokens_per_second", LAB_TOKENS_PER_SECOND},
                   {"ratio", LAB_SPEEDUP},
                   {"acceptance", LAB_ACCEPTANCE},
                   {"latency_ms", LAB_LATENCY_MS}};
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        lab_spread value = spread(result, mode, category, figures[i].figure);
        json_member_object_begin(w, figures[i].key);
        json_member_number(w, "mean", value.mean);
        json_member_number(w, "sd", value.sd);
        json_end(w);
    }
    json_member_number(w, "ratio_median",
                       lab_median_of(&result->figures, &result->measured, mode, category));
}

avo_status modes_write_json(const modes_options *options, const modes_result *result, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "url", options->url);
    json_member_string(&w, "model", result->model);
    json_member_u64(&w, "prompts", options->prompts->count);
    json_member_u64(&w, "iterations", options->iterations);
    json_member_u64(&w, "requests", result->requests);
    json_member_u64(&w, "failed", result->failed);
    json_member_string(&w, "failure", result->failure);
    json_member_u64(&w, "different_answers", result->different);
    json_member_array_begin(&w, "modes");
    for (uint32_t i = 0; i < result->figures.configs; i++) {
        json_object_begin(&w);
        json_member_string(&w, "mode", result->name[i]);
        json_member_string(&w, "speculation", result->config[i].source);
        json_member_boolean(&w, "drafts_reported", result->counted[i]);
        json_member_number(&w, "success", lab_success(&result->figures, &result->measured, i));
        json_member_number(&w, "first_token_ms", result->first_seconds[i] * 1e3);
        write_spreads(&w, result, i, LAB_ALL);
        json_member_object_begin(&w, "categories");
        for (uint32_t c = 0; c < result->measured.categories; c++) {
            json_member_object_begin(&w, result->measured.category[c]);
            write_spreads(&w, result, i, c);
            json_end(&w);
        }
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

avo_status modes_write_csv(const modes_result *result, buffer *out) {
    AVO_TRY(buffer_append_text(out, "mode,category,iteration,answers,equal_answers,tokens,seconds,"
                                    "drafted,accepted\n"));
    for (uint32_t i = 0; i < result->figures.configs; i++)
        for (uint32_t c = 0; c < result->measured.categories; c++)
            for (uint32_t n = 0; n < result->figures.iterations; n++) {
                lab_sample s = lab_sample_of(&result->figures, &result->measured, i, c, n);
                AVO_TRY(buffer_format(out, "%s,%s,%u,%u,%u,%llu,", result->name[i],
                                      result->measured.category[c], n + 1, s.answers, s.equal,
                                      (unsigned long long)s.tokens));
                AVO_TRY(json_write_number(out, s.seconds));
                AVO_TRY(buffer_format(out, ",%llu,%llu\n", (unsigned long long)s.drafted,
                                      (unsigned long long)s.accepted));
            }
    return AVO_OK;
}
