/* Products of more rows than kernels take in one piece: every row has the bits that it has alone,
 * whatever piece it falls into, the last one of few rows included. */
#include "support/support.h"

#include "device/ops_cases.h"
#include "support/guard.h"
#include "support/op_tables.h"

#include <stdlib.h>
#include <string.h>

#define OUTPUTS 17
#define K       256

static const uint32_t counts[] = {97, 257, 513, 516, 529};
#define COUNT_MOST 529

static void run(const op_table *table, const weight_view *weight, const activation_view *all,
                uint32_t first, uint32_t rows, uint8_t *scratch, float *out) {
    activation_view x = activation_from(all, first, 0);
    x.rows = rows;
    linear_call call = {
        .weight = weight, .x = &x, .out = out, .out_stride = OUTPUTS, .end = LINEAR_STORE};
    memset(scratch, 0xFF, linear_scratch_bytes(K));
    table->linear[panel_index_of(weight->type)](&call, 0, weight_panels(weight), scratch);
}

static void check_type(const op_table *plain, const op_table *tables, size_t count,
                       quant_type type) {
    weight_view weight = weight_take(type, OUTPUTS, K, 77 + type, false);
    activation_view x = activations_take(panels_form(type), COUNT_MOST, K);
    uint8_t *scratch = scratch_take(K);
    float *row = malloc(K * sizeof(float));
    float *alone = malloc(COUNT_MOST * OUTPUTS * sizeof(float));
    float *out = malloc(COUNT_MOST * OUTPUTS * sizeof(float));
    for (uint32_t i = 0; i < COUNT_MOST; i++) {
        fill_noise(500 + i, row, K);
        plain->quantise(row, &x, i, scratch);
    }
    for (size_t t = 1; t < count; t++) {
        for (uint32_t i = 0; i < COUNT_MOST; i++)
            run(&tables[t], &weight, &x, i, 1, scratch, alone + (size_t)i * OUTPUTS);
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            run(&tables[t], &weight, &x, 0, counts[c], scratch, out);
            for (size_t i = 0; i < (size_t)counts[c] * OUTPUTS; i++)
                if (!same_float(out[i], alone[i]))
                    fail_msg("%s %s: row %zu of %u differs from the row alone", tables[t].name,
                             quant_name(type), i / OUTPUTS, counts[c]);
        }
    }
    free(row);
    free(alone);
    free(out);
    scratch_give(scratch, K);
    activations_give(&x);
    weight_give(&weight);
}

static void rows_are_those_alone(void **state) {
    (void)state;
    op_table tables[TEST_PRODUCT_TABLES];
    size_t count = test_product_tables(tables);
    static const quant_type types[] = {
#define TYPE_OF(name) QUANT_##name,
        PANEL_TYPE_TABLE(TYPE_OF)
#undef TYPE_OF
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        check_type(&tables[0], tables, count, types[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_those_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
