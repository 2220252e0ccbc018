/* Repack to panels keeps every value to the bit: all types, odd rows, all layouts; and one unit
 * read as integers gives the same values. */
#include "support/support.h"

#include "base/random.h"
#include "quant/panels.h"

#include <math.h>
#include <stdlib.h>

static const quant_type types[] = {
    QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_F64,  QUANT_F8_E4M3, QUANT_F8_E5M2, QUANT_I8,
    QUANT_U8,   QUANT_I16,  QUANT_U16,  QUANT_I32,  QUANT_U32,     QUANT_I64,     QUANT_U64,
    QUANT_BOOL, QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1,    QUANT_Q8_0,    QUANT_Q2_K,
    QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL,  QUANT_IQ4_XS,  QUANT_MXFP4};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Random bytes: every scale that there can be, the subnormal ones, infinities and NaN too. */
static void fill_random(uint8_t *data, size_t bytes, uint64_t stream) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)random_at(11, stream, i).words[0];
}

static void assert_bits(const float *a, const float *b, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %zu is %a, not %a", what, i, (double)a[i], (double)b[i]);
}

/* number · scale + minimum of every unit, rounded at each step, is what rows decode to. */
static void check_units(const weight_view *panels, const weight_view *wanted) {
    float *row = malloc(panels->k * sizeof(float)), *got = malloc(panels->k * sizeof(float));
    uint64_t panel_bytes;
    assert_true(weight_panel_bytes(panels->type, panels->k, &panel_bytes));
    for (size_t r = 0; r < panels->rows; r++) {
        const uint8_t *panel = panels->data + r / 16 * panel_bytes;
        for (size_t i = 0; i < panels->k; i++) {
            static panel_unit unit;
            if (i % PANEL_UNIT == 0)
                panel_unit_read(panels->type, panel, panels->k, i / PANEL_UNIT, &unit);
            size_t half = i % PANEL_UNIT / 16;
            got[i] = (float)unit.number[i % PANEL_UNIT][r % 16] * unit.scale[half][r % 16];
            if (panels_minimum(panels->type))
                got[i] += unit.minimum[half][r % 16];
            if (!panels_sub_blocks(panels->type))
                assert_memory_equal(unit.scale[0], unit.scale[1], sizeof(unit.scale[0]));
        }
        weight_decode_row(wanted, r, row);
        assert_bits(got, row, panels->k, "unit");
    }
    free(row);
    free(got);
}

/* Repacks into a block without a byte to spare, and compares rows and panels. */
static void check_repack(const weight_view *weight) {
    uint64_t bytes, panel_bytes;
    quant_type target = weight_repack_type(weight);
    assert_true(weight_panel_bytes(target, weight->k, &panel_bytes));
    assert_true(weight_bytes(target, QUANT_LAYOUT_PANELS, weight->rows, weight->k, &bytes));
    uint8_t *data = test_take_exact(bytes, 64);
    memset(data, 0xA5, bytes);
    for (size_t p = 0; p < weight_panels(weight); p++)
        weight_repack_panel(weight, p, target, data + p * panel_bytes);
    weight_view panels = {.type = target,
                          .layout = QUANT_LAYOUT_PANELS,
                          .rows = weight->rows,
                          .k = weight->k,
                          .data = data};
    float *a = malloc(weight->k * 16 * sizeof(float)), *b = malloc(weight->k * 16 * sizeof(float));
    for (size_t r = 0; r < weight->rows; r++) {
        weight_decode_row(weight, r, a);
        weight_decode_row(&panels, r, b);
        assert_bits(b, a, weight->k, quant_name(weight->type));
    }
    for (size_t p = 0; p < weight_panels(weight); p++) {
        weight_decode_panel(weight, p, a);
        weight_decode_panel(&panels, p, b);
        assert_bits(b, a, weight->k * 16, quant_name(weight->type));
        panels.rows = (uint32_t)weight_panels(weight) * 16; /* rows of the padding are zero */
        weight_decode_panel(&panels, p, b);
        panels.rows = weight->rows;
        for (size_t i = 0; i < weight->k * 16; i++)
            assert_true(p * 16 + i % 16 < weight->rows || b[i] == 0.0f);
    }
    if (panels_form(target) != PRODUCT_FLOAT)
        check_units(&panels, weight);
    /* panels of panels are a copy */
    uint8_t *copy = test_take_exact(panel_bytes, 64);
    weight_repack_panel(&panels, 0, target, copy);
    assert_memory_equal(copy, data, panel_bytes);
    free(copy);
    free(a);
    free(b);
    free(data);
}

static void rows_keep_their_values(void **state) {
    (void)state;
    const uint32_t shapes[][2] = {{1, 1}, {16, 37}, {35, 259}, {17, 512}, {3, 288}, {15, 1030}};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            uint32_t block = quant_info_of(types[t])->block_elements;
            uint32_t rows = shapes[s][0], k = (shapes[s][1] + block - 1) / block * block;
            uint64_t bytes;
            assert_true(weight_bytes(types[t], QUANT_LAYOUT_ROWS, rows, k, &bytes));
            uint8_t *data = malloc(bytes);
            fill_random(data, bytes, t * 16 + s);
            weight_view weight = {
                .type = types[t], .layout = QUANT_LAYOUT_ROWS, .rows = rows, .k = k, .data = data};
            check_repack(&weight);
            if (rows > 20) {
                weight_view slice = weight_slice(&weight, 3, rows - 5);
                check_repack(&slice);
            }
            free(data);
        }
}

static void columns_keep_their_values(void **state) {
    (void)state;
    const uint32_t shapes[][2] = {{37, 19}, {16, 64}, {1, 3}, {48, 1}};
    for (size_t t = 0; t < 3; t++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            uint32_t rows = shapes[s][0], k = shapes[s][1];
            uint64_t bytes;
            assert_true(weight_bytes(types[t], QUANT_LAYOUT_COLUMNS, rows, k, &bytes));
            uint8_t *data = malloc(bytes);
            fill_random(data, bytes, 900 + t * 16 + s);
            weight_view weight = {.type = types[t],
                                  .layout = QUANT_LAYOUT_COLUMNS,
                                  .rows = rows,
                                  .k = k,
                                  .data = data};
            check_repack(&weight);
            if (rows > 20) {
                weight_view slice = weight_slice(&weight, 5, rows - 9);
                check_repack(&slice);
            }
            free(data);
        }
}

/* What random bytes may miss: every scale of MXFP4, both zeros, −128. */
static void extremes_keep_their_values(void **state) {
    (void)state;
    enum { BLOCKS = 256 };
    uint8_t *data = malloc(BLOCKS * 17);
    for (size_t block = 0; block < BLOCKS; block++) {
        data[block * 17] = (uint8_t)block;
        for (size_t i = 0; i < 16; i++)
            data[block * 17 + 1 + i] = (uint8_t)(i * 16 + 15 - i);
    }
    weight_view mxfp4 = {.type = QUANT_MXFP4,
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = 1,
                         .k = BLOCKS * 32,
                         .data = data};
    check_repack(&mxfp4);
    mxfp4 = (weight_view){
        .type = QUANT_MXFP4, .layout = QUANT_LAYOUT_ROWS, .rows = BLOCKS, .k = 32, .data = data};
    check_repack(&mxfp4);
    free(data);
    const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x3c00, 0xbc00};
    data = malloc(COUNT(scales) * 34);
    for (size_t block = 0; block < COUNT(scales); block++) {
        memcpy(data + block * 34, &scales[block], 2);
        for (size_t i = 0; i < 32; i++)
            data[block * 34 + 2 + i] = (uint8_t)(i < 2 ? 0x80 : i < 4 ? 0 : 0x7f + i);
    }
    weight_view q8 = {.type = QUANT_Q8_0,
                      .layout = QUANT_LAYOUT_ROWS,
                      .rows = COUNT(scales),
                      .k = 32,
                      .data = data};
    check_repack(&q8);
    float row[32];
    weight_decode_row(&q8, 7, row);
    assert_true(row[0] == 128.0f && signbit(row[2]));
    for (size_t block = 0; block < COUNT(scales); block++) /* the same bytes as F16 */
        memcpy(data + 2 * block, &scales[block], 2);
    weight_view halves = {.type = QUANT_F16,
                          .layout = QUANT_LAYOUT_ROWS,
                          .rows = COUNT(scales),
                          .k = 1,
                          .data = data};
    check_repack(&halves);
    free(data);
}

/* How large panels are, beside 16 rows of the source. */
static void sizes_are_as_documented(void **state) {
    (void)state;
    static const struct {
        quant_type type;
        uint64_t k, lines;
    } cases[] = {{QUANT_Q4_0, 64, 9},    {QUANT_Q4_0, 96, 14},    {QUANT_Q4_0, 33, 9},
                 {QUANT_Q4_1, 64, 10},   {QUANT_Q4_1, 32, 6},     {QUANT_Q4B64, 128, 17},
                 {QUANT_Q4B64, 160, 22}, {QUANT_Q4M64, 64, 9},    {QUANT_Q4M64, 1, 5},
                 {QUANT_Q5_0, 64, 11},   {QUANT_Q5_1, 64, 12},    {QUANT_Q8_0, 64, 17},
                 {QUANT_IQ4_NL, 64, 9},  {QUANT_MXFP4, 64, 9},    {QUANT_Q2_K, 256, 21},
                 {QUANT_Q3_K, 256, 29},  {QUANT_Q4_K, 256, 37},   {QUANT_Q5_K, 256, 45},
                 {QUANT_Q6_K, 512, 106}, {QUANT_IQ4_XS, 256, 35}, {QUANT_F8C, 7, 3}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes;
        assert_true(panels_known(cases[i].type));
        assert_true(weight_panel_bytes(cases[i].type, cases[i].k, &bytes));
        if (bytes != cases[i].lines * 64)
            fail_msg("%s: %zu lines", quant_name(cases[i].type), (size_t)bytes / 64);
    }
    const quant_type whole[] = {QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K,
                                QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_XS};
    uint64_t bytes;
    for (size_t i = 0; i < COUNT(whole); i++)
        assert_false(weight_panel_bytes(whole[i], 288, &bytes));
    assert_false(weight_panel_bytes(QUANT_I8, 288, &bytes) || panels_known(QUANT_F64));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_their_values),
        cmocka_unit_test(columns_keep_their_values),
        cmocka_unit_test(extremes_keep_their_values),
        cmocka_unit_test(sizes_are_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
