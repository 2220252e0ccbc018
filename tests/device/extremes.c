/* The largest numbers that integer products can meet, all at once: weights whose bits are all set
 * or all clear (and −128), activations of ±127 everywhere. Whatever saturates or wraps on the way
 * differs from plain C. */
#include "device/ops_cases.h"
#include "support/op_tables.h"

enum { ROWS_OF_X = 9, ROWS = 17, K = 512, UNITS = K / PANEL_UNIT };

/* Where the numbers of a panel lie. */
typedef struct number_lines {
    quant_type type;
    size_t head_lines, group_units, unit_lines;
} number_lines;

static const number_lines table[] = {
    {QUANT_Q8R, 0, 8, 8},  {QUANT_Q8C, 0, 2, 8},    {QUANT_Q8B, 1, 2, 8},    {QUANT_Q8_0, 1, 2, 8},
    {QUANT_Q4_0, 1, 2, 4}, {QUANT_Q4_1, 2, 2, 4},   {QUANT_Q4B64, 1, 4, 4},  {QUANT_Q4M64, 1, 2, 4},
    {QUANT_Q5_0, 1, 2, 5}, {QUANT_Q5_1, 2, 2, 5},   {QUANT_IQ4_NL, 1, 2, 4}, {QUANT_MXFP4, 1, 2, 4},
    {QUANT_Q2_K, 5, 8, 2}, {QUANT_Q3_K, 5, 8, 3},   {QUANT_Q4_K, 5, 8, 4},   {QUANT_Q5_K, 5, 8, 5},
    {QUANT_Q6_K, 5, 8, 6}, {QUANT_IQ4_XS, 3, 8, 4}, {QUANT_Q4R, 3, 8, 4}};

static void set_numbers(const number_lines *lines, const weight_view *weight, uint8_t byte) {
    uint8_t *to = (uint8_t *)(uintptr_t)weight->data;
    for (size_t panel = 0; panel < weight_panels(weight); panel++) {
        for (size_t unit = 0; unit < UNITS; unit++) {
            if (unit % lines->group_units == 0) {
                if (lines->type == QUANT_Q4R) /* multipliers of ±15 */
                    memset(to + PANEL_LINE_BYTES, 0xff, 2 * PANEL_LINE_BYTES);
                to += lines->head_lines * PANEL_LINE_BYTES;
            }
            memset(to, byte, lines->unit_lines * PANEL_LINE_BYTES);
            to += lines->unit_lines * PANEL_LINE_BYTES;
        }
        if (lines->type == QUANT_Q8C || lines->type == QUANT_Q8R)
            to += PANEL_LINE_BYTES;
    }
}

/* Row 0: all 127, row 1: all −127, then alternating every 1, 2, 4, … k. */
static int8_t number_at(uint32_t row, size_t i) {
    return row == 0 || (row > 1 && (i >> (row - 2)) % 2 == 0) ? 127 : -127;
}

static activation_view fill_activations(product_form form) {
    activation_view x = activations_take(form, ROWS_OF_X, K);
    for (uint32_t row = 0; row < ROWS_OF_X; row++) {
        for (size_t i = 0; i < x.scale_stride; i++)
            x.scale[row * x.scale_stride + i] = 0.0078f;
        for (size_t i = 0; i < x.stride; i++) {
            int8_t number = i < K ? number_at(row, i) : 0;
            x.number[row * x.stride + i] = number;
            if (x.low != NULL)
                x.low[row * x.stride + i] = number;
        }
        for (size_t block = 0; x.integer_sum != NULL && block < K / 16; block++) {
            int32_t sum = 0;
            for (size_t i = 0; i < 16; i++)
                sum += number_at(row, 16 * block + i);
            x.integer_sum[row * x.sum_stride + block] = sum;
        }
        for (size_t unit = 0; x.sum != NULL && unit < UNITS; unit++) {
            const int32_t *sums = x.integer_sum + row * x.sum_stride + 2 * unit;
            x.sum[row * x.scale_stride + unit] = 0.0078f * (float)(sums[0] + sums[1]);
        }
    }
    return x;
}

static void check_extremes(const op_table *tables, size_t count, const number_lines *lines,
                           uint8_t byte) {
    weight_view weight = weight_take(lines->type, ROWS, K, 7, false);
    set_numbers(lines, &weight, byte);
    activation_view x = fill_activations(panels_form(lines->type));
    uint8_t *scratch = scratch_take(K);
    float wanted[ROWS_OF_X * ROWS], got[ROWS_OF_X * ROWS];
    for (x.rows = 1; x.rows <= ROWS_OF_X; x.rows += 2)
        for (size_t t = 0; t < count; t++) {
            linear_call call = {.weight = &weight, .x = &x, .out_stride = ROWS};
            call.out = t == 0 ? wanted : got;
            tables[t].linear[panel_index_of(lines->type)](&call, 0, weight_panels(&weight),
                                                          scratch);
            if (t > 0 && memcmp(wanted, got, x.rows * ROWS * sizeof(float)) != 0)
                fail_msg("%s: %s, bytes %02x, %u rows", tables[t].name, quant_name(lines->type),
                         byte, x.rows);
        }
    x.rows = ROWS_OF_X;
    scratch_give(scratch, K);
    activations_give(&x);
    weight_give(&weight);
}

static void nothing_saturates(void **state) {
    (void)state;
    op_table tables[TEST_OP_TABLES];
    size_t count = test_op_tables(tables);
    static const uint8_t bytes[] = {0x00, 0xff, 0x80, 0x7f, 0x0f};
    for (size_t i = 0; i < COUNT(table); i++)
        for (size_t j = 0; j < COUNT(bytes); j++)
            check_extremes(tables, count, &table[i], bytes[j]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_saturates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
