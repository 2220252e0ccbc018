/* Layouts: panels, rows, columns and slices all give the same numbers; sizes are checked. */
#include "support/support.h"

#include "base/random.h"
#include "quant/panels.h"
#include "support/encode.h"

#include <math.h>
#include <stdlib.h>

static const quant_type block_types[] = {
    QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_F64,  QUANT_F8_E4M3, QUANT_F8_E5M2, QUANT_I8,
    QUANT_U8,   QUANT_I16,  QUANT_U16,  QUANT_I32,  QUANT_U32,     QUANT_I64,     QUANT_U64,
    QUANT_BOOL, QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1,    QUANT_Q8_0,    QUANT_Q2_K,
    QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL,  QUANT_IQ4_XS,  QUANT_MXFP4};
/* Types that can be encoded. */
static const quant_type panel_types[] = {
    QUANT_F32,  QUANT_F16,  QUANT_BF16,  QUANT_Q8C,   QUANT_Q8B, QUANT_Q4R, QUANT_Q8_0,
    QUANT_Q4_0, QUANT_Q4_1, QUANT_Q4B64, QUANT_Q4M64, QUANT_F8C, QUANT_Q8R};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void fill_random(uint8_t *data, size_t bytes, uint64_t stream) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)random_at(7, stream, i).words[0];
}

/* Sums of uniforms: near enough to what weights look like. */
static void fill_weights(float *out, size_t count, uint64_t stream) {
    for (size_t i = 0; i < count; i++) {
        double sum = -2;
        for (uint64_t draw = 0; draw < 4; draw++)
            sum += random_uniform_at(7, stream, 4 * i + draw);
        out[i] = (float)(sum * 0.05);
    }
}

static void assert_bits(const float *a, const float *b, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %zu is %a, not %a", what, i, (double)a[i], (double)b[i]);
}

/* Every panel against every row; `rows` and `k` odd. */
static void check_panels(const weight_view *weight) {
    float *row = malloc(weight->k * sizeof(float));
    float *panel = malloc(weight->k * QUANT_PANEL_ROWS * sizeof(float));
    float *lane = malloc(weight->k * sizeof(float));
    float *block = malloc(weight->k * QUANT_PANEL_ROWS * sizeof(float));
    for (size_t p = 0; p < weight_panels(weight); p++) {
        weight_decode_panel(weight, p, panel);
        for (size_t begin = 0; begin < weight->k; begin += QUANT_BLOCK_MAX) {
            size_t count = (weight->k - begin) * (p % 2 + 1) / 2; /* to the end, or half of it */
            weight_decode_block(weight, p, begin, count, block);
            assert_bits(block, panel + begin * QUANT_PANEL_ROWS, count * QUANT_PANEL_ROWS,
                        quant_name(weight->type));
        }
        for (size_t r = 0; r < QUANT_PANEL_ROWS; r++) {
            for (size_t i = 0; i < weight->k; i++)
                lane[i] = panel[i * QUANT_PANEL_ROWS + r];
            if (p * QUANT_PANEL_ROWS + r < weight->rows)
                weight_decode_row(weight, p * QUANT_PANEL_ROWS + r, row);
            else
                memset(row, 0, weight->k * sizeof(float));
            assert_bits(lane, row, weight->k, quant_name(weight->type));
        }
    }
    free(row);
    free(panel);
    free(lane);
    free(block);
}

static void rows_and_panels_agree(void **state) {
    (void)state;
    const uint32_t shapes[][2] = {{1, 1}, {16, 37}, {35, 259}, {17, 512}, {3, 288}};
    for (size_t t = 0; t < COUNT(block_types); t++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            uint32_t block = quant_info_of(block_types[t])->block_elements;
            uint32_t k = (shapes[s][1] + block - 1) / block * block;
            uint64_t bytes;
            assert_true(weight_bytes(block_types[t], QUANT_LAYOUT_ROWS, shapes[s][0], k, &bytes));
            uint8_t *data = malloc(bytes);
            fill_random(data, bytes, t);
            weight_view weight = {.type = block_types[t],
                                  .layout = QUANT_LAYOUT_ROWS,
                                  .rows = shapes[s][0],
                                  .k = k,
                                  .data = data};
            check_panels(&weight);
            /* a row is a run */
            float *row = malloc(k * sizeof(float)), *run = malloc(k * sizeof(float));
            uint32_t last = shapes[s][0] - 1;
            weight_decode_row(&weight, last, row);
            quant_decode(block_types[t], data + bytes / shapes[s][0] * last, k, run);
            assert_bits(row, run, k, "row");
            free(row);
            free(run);
            free(data);
        }
}

static void columns_are_transposed_rows(void **state) {
    (void)state;
    enum { ROWS = 37, K = 19 };
    for (size_t t = 0; t < 3; t++) {
        size_t element = quant_info_of(block_types[t])->block_bytes;
        uint8_t by_rows[ROWS * K * 4], by_columns[ROWS * K * 4];
        fill_random(by_rows, sizeof(by_rows), 50 + t);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < K; i++)
                memcpy(by_columns + (i * ROWS + r) * element, by_rows + (r * K + i) * element,
                       element);
        weight_view rows = {.type = block_types[t],
                            .layout = QUANT_LAYOUT_ROWS,
                            .rows = ROWS,
                            .k = K,
                            .data = by_rows};
        weight_view columns = {.type = block_types[t],
                               .layout = QUANT_LAYOUT_COLUMNS,
                               .rows = ROWS,
                               .k = K,
                               .data = by_columns};
        check_panels(&columns);
        weight_view rows_slice = weight_slice(&rows, 5, 30), slice = weight_slice(&columns, 5, 30);
        check_panels(&slice);
        slice = weight_slice(&slice, 3, 20);
        rows_slice = weight_slice(&rows_slice, 3, 20);
        float a[K], b[K];
        for (size_t r = 0; r < 20; r++) {
            weight_decode_row(&rows_slice, r, a);
            weight_decode_row(&slice, r, b);
            assert_bits(a, b, K, "slice of columns");
            weight_decode_row(&rows, r + 8, b);
            assert_bits(a, b, K, "slice of rows");
        }
    }
}

static uint8_t *encode_matrix(quant_type type, const float *source, uint32_t rows, uint32_t k,
                              uint64_t *bytes) {
    uint64_t panel_bytes;
    assert_true(weight_bytes(type, QUANT_LAYOUT_PANELS, rows, k, bytes));
    assert_true(weight_panel_bytes(type, k, &panel_bytes));
    assert_int_equal(panel_bytes % 64, 0);
    uint8_t *data = malloc(*bytes);
    memset(data, 0xA5, *bytes);
    for (uint32_t first = 0; first < rows; first += 16)
        encode_panel(type, source + (size_t)first * k, rows - first < 16 ? rows - first : 16, k,
                     false, data + first / 16 * panel_bytes);
    return data;
}

static void encoded_panels_decode(void **state) {
    (void)state;
    /* The largest relative squared error that each type may have on these numbers. */
    const double bounds[] = {0,     1e-6,  1e-5,  1e-4,  3e-5,  .0056, 4e-5,
                             .0061, .0046, .0076, .0060, .0007, 1e-4};
    const uint32_t shapes[][2] = {{1, 1},   {16, 256}, {33, 288}, {20, 576},
                                  {17, 31}, {48, 100}, {16, 2},   {5, 33}};
    for (size_t t = 0; t < COUNT(panel_types); t++) {
        double error = 0, energy = 0;
        for (size_t s = 0; s < COUNT(shapes); s++) {
            uint32_t rows = shapes[s][0], k = shapes[s][1];
            float *source = malloc((size_t)rows * k * sizeof(float));
            fill_weights(source, (size_t)rows * k, s);
            uint64_t bytes;
            uint8_t *data = encode_matrix(panel_types[t], source, rows, k, &bytes);
            weight_view weight = {.type = panel_types[t],
                                  .layout = QUANT_LAYOUT_PANELS,
                                  .rows = rows,
                                  .k = k,
                                  .data = data};
            check_panels(&weight);
            float *row = malloc(k * sizeof(float));
            for (uint32_t r = 0; r < rows; r++) {
                weight_decode_row(&weight, r, row);
                for (uint32_t i = 0; i < k; i++) {
                    double wanted = source[(size_t)r * k + i];
                    error += (row[i] - wanted) * (row[i] - wanted);
                    energy += wanted * wanted;
                }
            }
            if (rows > 16) {
                weight_view slice = weight_slice(&weight, 16, rows - 16);
                check_panels(&slice);
                slice = weight_slice(&weight, 0, 9);
                check_panels(&slice); /* lanes past the slice are zero */
            }
            free(row);
            free(source);
            free(data);
        }
        print_message("%-5s relative squared error %.6f\n", quant_name(panel_types[t]),
                      error / energy);
        assert_true(error / energy <= bounds[t]);
    }
}

/* Zeros, numbers too small for an f16 scale, and the largest that a type takes. Decoded numbers
 * stay near their blocks' largest; Q4R's errors are those of other numbers too, so half more. */
static void encode_survives_extremes(void **state) {
    (void)state;
    const float values[] = {0, 1e-45f, 1e-12f, 3e-6f, 1e3f, 7e6f, 3e38f};
    for (size_t t = 0; t < COUNT(panel_types); t++)
        for (size_t v = 0; v < COUNT(values); v++) {
            float source[16 * 40], row[40];
            float value = fminf(values[v], weight_largest(panel_types[t]));
            for (size_t i = 0; i < COUNT(source); i++)
                source[i] = i % 3 == 0 ? value : i % 3 == 1 ? -value : value / 2;
            uint64_t bytes;
            uint8_t *data = encode_matrix(panel_types[t], source, 16, 40, &bytes);
            weight_view weight = {.type = panel_types[t],
                                  .layout = QUANT_LAYOUT_PANELS,
                                  .rows = 16,
                                  .k = 40,
                                  .data = data};
            check_panels(&weight);
            weight_decode_row(&weight, 0, row);
            for (size_t i = 0; i < 40; i++) {
                assert_true(isfinite(row[i]));
                float most = panel_types[t] == QUANT_Q4R ? 1.5f : 1.0625f;
                assert_true(fabsf(row[i]) / most <= value + 1e-30f);
            }
            free(data);
        }
}

/* Blocks that a type holds exactly come back exactly; blocks of one value too. */
static void exact_blocks_are_found(void **state) {
    (void)state;
    float source[64], row[64];
    uint8_t panel[64 * 16];
    const quant_type types[] = {QUANT_Q4_0, QUANT_Q4_1, QUANT_Q4B64, QUANT_Q4M64};
    for (size_t t = 0; t < COUNT(types); t++)
        for (int sign = -1; sign <= 1; sign++) {
            for (int i = 0; i < 64; i++)
                source[i] = 0.25f * (float)(sign * (i % 16 - 8));
            if (sign == 0 && panels_minimum(types[t]))
                for (int i = 0; i < 64; i++)
                    source[i] = 0.375f;
            encode_panel(types[t], source, 1, 64, false, panel);
            weight_view weight = {
                .type = types[t], .layout = QUANT_LAYOUT_PANELS, .rows = 1, .k = 64, .data = panel};
            weight_decode_row(&weight, 0, row);
            for (int i = 0; i < 64; i++)
                assert_true(row[i] == source[i]);
        }
}

static void bytes_of_e4m3_there_and_back(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        float number = quant_f8_e4m3_to_f32((uint8_t)byte);
        assert_int_equal(quant_f32_to_f8_e4m3(number), byte);
        if ((byte & 0x7f) >= 0x7e)
            continue;
        float next = quant_f8_e4m3_to_f32((uint8_t)(byte + 1)), middle = (number + next) / 2;
        assert_int_equal(quant_f32_to_f8_e4m3(middle), byte % 2 == 0 ? byte : byte + 1);
        assert_int_equal(quant_f32_to_f8_e4m3(nextafterf(middle, number)), byte);
        assert_int_equal(quant_f32_to_f8_e4m3(nextafterf(middle, next)), byte + 1);
    }
    assert_int_equal(quant_f32_to_f8_e4m3(1e9f), 0x7e);
    assert_int_equal(quant_f32_to_f8_e4m3(-INFINITY), 0xfe);
    assert_int_equal(quant_f32_to_f8_e4m3(1e-30f), 0);
}

/* ROWS: plain types keep what they can hold, Q8_0 is as good as Q8B. */
static void runs_encode(void **state) {
    (void)state;
    const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0};
    const double bounds[] = {0, 1e-6, 1e-5, 4e-5};
    float source[512], decoded[512];
    fill_weights(source, 512, 3);
    for (size_t t = 0; t < COUNT(types); t++) {
        uint8_t data[512 * 4];
        double error = 0, energy = 0;
        quant_encode(types[t], source, 512, data);
        quant_decode(types[t], data, 512, decoded);
        for (size_t i = 0; i < 512; i++) {
            error += pow((double)decoded[i] - source[i], 2);
            energy += pow(source[i], 2);
        }
        assert_true(error / energy <= bounds[t]);
    }
}

static void sizes_are_refused(void **state) {
    (void)state;
    uint64_t bytes;
    assert_false(weight_bytes(QUANT_F8_E5M2, QUANT_LAYOUT_PANELS, 16, 32, &bytes));
    assert_false(weight_bytes(QUANT_Q4_K, QUANT_LAYOUT_PANELS, 16, 32, &bytes));
    assert_false(weight_bytes(QUANT_Q4_0, QUANT_LAYOUT_COLUMNS, 16, 32, &bytes));
    assert_false(weight_bytes(QUANT_Q4R, QUANT_LAYOUT_ROWS, 16, 256, &bytes));
    assert_false(weight_bytes(QUANT_Q4_0, QUANT_LAYOUT_ROWS, 16, 33, &bytes));
    assert_false(weight_bytes(QUANT_F32, QUANT_LAYOUT_ROWS, UINT64_MAX / 8, 3, &bytes));
    assert_false(weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, UINT64_MAX, 1, &bytes));
    assert_false(weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, UINT64_MAX - 15, 64, &bytes));
    assert_false(weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, 1, UINT64_MAX, &bytes));
    assert_false(weight_bytes(QUANT_F32, (quant_layout)7, 1, 1, &bytes));
    assert_true(weight_bytes(QUANT_Q4R, QUANT_LAYOUT_PANELS, 16, 256, &bytes));
    assert_int_equal(bytes, 2240); /* 4.375 bits per weight */
    assert_true(weight_bytes(QUANT_Q4R, QUANT_LAYOUT_PANELS, 17, 576, &bytes));
    assert_int_equal(bytes, 2 * 5120);
    assert_true(weight_bytes(QUANT_Q8B, QUANT_LAYOUT_PANELS, 16, 96, &bytes));
    assert_int_equal(bytes, 26 * 64);
    assert_true(weight_bytes(QUANT_Q8C, QUANT_LAYOUT_PANELS, 1, 5, &bytes));
    assert_int_equal(bytes, 3 * 64);
    assert_true(weight_bytes(QUANT_BF16, QUANT_LAYOUT_PANELS, 16, 3, &bytes));
    assert_int_equal(bytes, 2 * 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_panels_agree),
        cmocka_unit_test(columns_are_transposed_rows),
        cmocka_unit_test(encoded_panels_decode),
        cmocka_unit_test(encode_survives_extremes),
        cmocka_unit_test(exact_blocks_are_found),
        cmocka_unit_test(bytes_of_e4m3_there_and_back),
        cmocka_unit_test(runs_encode),
        cmocka_unit_test(sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
