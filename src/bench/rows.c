/* What stands between the products of a step: quantising, norms, the activation. Rows of one step
 * lie in the caches, so that shares of what memory reads may pass 100 %. */
#include "bench/operations_int.h"

#include <stdio.h>

#define NUMBERS ((size_t)4 << 20) /* that one time goes through, so that the clock sees it */

typedef struct rows_case {
    operation_bench *bench;
    activation_view x;
    norm_view norm;
    uint32_t rows, k;
    size_t times;
} rows_case;

static void quantise_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    size_t first, last;
    team_share(one->rows, worker, workers, &first, &last);
    for (size_t time = 0; time < one->times; time++)
        for (size_t row = first; row < last; row++)
            bench->table->quantise(bench->source + row * one->k, &one->x, (uint32_t)row,
                                   bench->scratch.data + worker * bench->scratch_bytes);
}

static void norm_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    size_t first, last;
    team_share(one->rows, worker, workers, &first, &last);
    for (size_t time = 0; time < one->times; time++)
        for (size_t row = first; row < last; row++)
            bench->table->norm(&one->norm, bench->source + row * one->k, one->k,
                               bench->second + row * one->k);
}

/* Applied again and again, what is gated must neither vanish nor grow: silu of this is 1. */
#define SILU_ONE 1.27846454f

static void activate_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    size_t first, last;
    team_share((size_t)one->rows * one->k / 16, worker, workers, &first, &last);
    for (size_t time = 0; time < one->times; time++)
        bench->table->activate(ACTIVATION_SILU, bench->second + first * 16,
                               bench->source + first * 16, (last - first) * 16);
}

avo_status operation_rows(operation_bench *bench, uint32_t rows, uint32_t k, avo_error *error) {
    static const struct {
        const char *name;
        team_task task;
        product_form form;
        double reads;
    } kinds[OPERATION_ROWS_CASES] = {
        {"quantise int8 per 32", quantise_rows, PRODUCT_A8, 1},
        {"quantise int16 per 32", quantise_rows, PRODUCT_A16, 1},
        {"quantise rotated int8 per 256", quantise_rows, PRODUCT_A8R, 1},
        {"norm rms", norm_rows, PRODUCT_FLOAT, 2},
        {"activate silu", activate_rows, PRODUCT_FLOAT, 2},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t times = NUMBERS / ((size_t)rows * k);
        rows_case one = {.bench = bench,
                         .x = activation_lay(kinds[i].form, rows, k, bench->activations.data),
                         .norm = {NORM_RMS, 1e-5f, bench->source, NULL},
                         .rows = rows,
                         .k = k,
                         .times = times > 0 ? times : 1};
        for (size_t j = 0; j < (size_t)rows * k; j++) /* the norm fills it itself */
            bench->second[j] = SILU_ONE;
        char name[64];
        snprintf(name, sizeof(name), "%s, %u wide", kinds[i].name, k);
        operation_case line = {.name = name,
                               .kv = "",
                               .rows = rows,
                               .times = (double)one.times,
                               .work = {.bytes = kinds[i].reads * (double)rows * k * sizeof(float)},
                               .task = kinds[i].task,
                               .context = &one};
        AVO_TRY(operation_measure(bench, &line, error));
    }
    return AVO_OK;
}
