/* The op tables that this machine allows against the plain one, bit for bit: products of every type
 * over odd shapes, quantised activations of every form; and the plain one against exact formulas.
 * Whatever a kernel reads or writes too far is a fault (guard pages). */
#include "device/ops_cases.h"
#include "support/op_tables.h"

#include <float.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(AVO_TEST_EMULATED)
#define SHAPES_EVERY 5 /* slow there: a part of the shapes */
#else
#define SHAPES_EVERY 1
#endif

enum { ROWS_MOST = 64 };

static const uint32_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 27, 33, 64};
static const uint32_t weight_rows[] = {1, 15, 16, 17, 33, 100};
static const uint32_t lengths[] = {1,   2,   4,   15,  16,  31,  32,  33,  64,   96,
                                   100, 128, 160, 256, 288, 320, 576, 768, 2080, 1536};
/* Types with super-blocks of 256 take these instead. */
static const uint32_t whole_lengths[] = {256, 512, 768, 2304};

static uint32_t length_at(quant_type type, size_t i) {
    uint64_t bytes;
    if (weight_panel_bytes(type, 288, &bytes))
        return i < COUNT(lengths) ? lengths[i] : 0;
    return i < COUNT(whole_lengths) ? whole_lengths[i] : 0;
}

/* One weight and ROWS_MOST rows of activations, with what plain C makes of them. */
typedef struct product_case {
    weight_view weight;
    float *bias;
    float *before; /* what LINEAR_ADD adds to */
    activation_view x;
    float *stored, *added; /* [ROWS_MOST][rows] with bias; by plain C */
    float *bare;           /* stored, without */
    uint8_t *scratch;
} product_case;

#define ADD_SCALE 0.37f

static float *floats_take(size_t count, uint64_t stream) {
    float *data = guard_take(count * sizeof(float));
    fill_noise(stream, data, count);
    return data;
}

static void run_plain(const op_table *plain, product_case *c, const float *bias, linear_end end,
                      float *out) {
    linear_call call = {&c->weight, bias, &c->x, out, c->weight.rows, end, ADD_SCALE};
    plain->linear[panel_index_of(c->weight.type)](&call, 0, weight_panels(&c->weight), c->scratch);
}

static product_case case_open(const op_table *plain, quant_type type, uint32_t rows, uint32_t k,
                              bool wild) {
    product_case c = {.weight = weight_take(type, rows, k, 1000 * type + k, wild)};
    size_t outputs = (size_t)ROWS_MOST * rows;
    c.bias = floats_take(rows, 3);
    c.before = floats_take(outputs, 4);
    c.scratch = scratch_take(k);
    c.x = activations_take(panels_form(type), ROWS_MOST, k);
    float *x = floats_take(k, 5);
    for (uint32_t row = 0; row < ROWS_MOST; row++) {
        fill_noise(100 + row, x, k);
        if (row % 8 == 7) /* a zero block, and one far larger than others */
            for (uint32_t i = 0; i < k; i++)
                x[i] *= i / 32 % 3 == 0 ? 0.0f : i / 32 % 3 == 1 ? 1000.0f : 1.0f;
        plain->quantise(x, &c.x, row, c.scratch);
    }
    guard_give(x, k * sizeof(float));
    c.stored = malloc(outputs * sizeof(float));
    c.bare = malloc(outputs * sizeof(float));
    c.added = malloc(outputs * sizeof(float));
    memcpy(c.added, c.before, outputs * sizeof(float));
    run_plain(plain, &c, c.bias, LINEAR_STORE, c.stored);
    run_plain(plain, &c, NULL, LINEAR_STORE, c.bare);
    run_plain(plain, &c, c.bias, LINEAR_ADD, c.added);
    return c;
}

static void case_close(product_case *c) {
    size_t outputs = (size_t)ROWS_MOST * c->weight.rows;
    guard_give(c->bias, c->weight.rows * sizeof(float));
    guard_give(c->before, outputs * sizeof(float));
    scratch_give(c->scratch, c->weight.k);
    activations_give(&c->x);
    free(c->stored);
    free(c->bare);
    free(c->added);
    weight_give(&c->weight);
}

/* The last `count` rows of x, so that reading past them is a fault; in two calls where there are
 * panels enough. `kind`: 0 stored with bias, 1 stored without, 2 added. */
static void check_call(const op_table *table, const product_case *c, uint32_t count, int kind) {
    uint32_t n = c->weight.rows, skipped = ROWS_MOST - count;
    size_t stride = n + (count % 3), panels = weight_panels(&c->weight);
    size_t bytes = ((count - 1) * stride + n) * sizeof(float);
    float *out = guard_take(bytes);
    const uint32_t poison = 0xA5A5A5A5u;
    for (uint32_t row = 0; kind == 2 && row < count; row++)
        memcpy(out + row * stride, c->before + (size_t)(skipped + row) * n, n * sizeof(float));
    activation_view x = activation_from(&c->x, skipped, 0);
    x.rows = count;
    linear_call call = {.weight = &c->weight,
                        .bias = kind == 1 ? NULL : c->bias,
                        .x = &x,
                        .out = out,
                        .out_stride = stride,
                        .end = kind == 2 ? LINEAR_ADD : LINEAR_STORE,
                        .add_scale = ADD_SCALE};
    linear_op linear = table->linear[panel_index_of(c->weight.type)];
    size_t border = panels * count % 7 % (panels + 1);
    memset(c->scratch, 0xFF, linear_scratch_bytes(c->weight.k));
    linear(&call, border, panels, c->scratch);
    linear(&call, 0, border, c->scratch);
    const float *wanted = kind == 0 ? c->stored : kind == 1 ? c->bare : c->added;
    for (uint32_t row = 0; row < count; row++) {
        for (uint32_t i = 0; i < n; i++)
            if (!same_float(out[row * stride + i], wanted[(size_t)(skipped + row) * n + i]))
                fail_msg("%s %s: %u × %u, %u rows, kind %d: row %u output %u is %a, not %a",
                         table->name, quant_name(c->weight.type), n, c->weight.k, count, kind, row,
                         i, (double)out[row * stride + i],
                         (double)wanted[(size_t)(skipped + row) * n + i]);
        if (row + 1 < count) /* nothing behind the last output */
            for (size_t i = n; i < stride; i++)
                assert_memory_equal(out + row * stride + i, &poison, sizeof(poison));
    }
    guard_give(out, bytes);
}

static void check_shape(const op_table *tables, size_t count, quant_type type, uint32_t rows,
                        uint32_t k, bool wild) {
    product_case c = case_open(&tables[0], type, rows, k, wild);
    for (size_t t = 0; t < count; t++)
        for (size_t r = 0; r < COUNT(row_counts); r++)
            /* plain C with itself: rows alone as among others */
            if (t > 0 || row_counts[r] == 1 || row_counts[r] == 17)
                check_call(&tables[t], &c, row_counts[r], (int)((r + rows + k) % 3));
    case_close(&c);
}

static void products_are_equal(void **state) {
    (void)state;
    op_table tables[TEST_PRODUCT_TABLES];
    size_t count = test_product_tables(tables), shape = 0;
    for (size_t t = 0; t < COUNT(all_types); t++)
        for (size_t i = 0; length_at(all_types[t], i) != 0; i++)
            for (size_t n = 0; n < 2; n++)
                if (shape++ % SHAPES_EVERY == 0)
                    check_shape(tables, count, all_types[t],
                                weight_rows[(i + n * 3) % COUNT(weight_rows)],
                                length_at(all_types[t], i), false);
    print_message("compared with plain:");
    for (size_t t = 1; t < count; t++)
        print_message("%s %s", t > 1 ? "," : "", tables[t].name);
    print_message("\n");
}

/* No rows, no panels: nothing is written. */
static void empty_calls_do_nothing(void **state) {
    (void)state;
    op_table tables[TEST_OP_TABLES];
    size_t count = test_op_tables(tables);
    for (size_t t = 0; t < COUNT(all_types); t++) {
        product_case c = case_open(&tables[0], all_types[t], 33, 512, false);
        for (size_t table = 0; table < count; table++) {
            float *out = guard_take(sizeof(float));
            activation_view x = c.x;
            linear_call call = {&c.weight, c.bias, &x, out, 33, LINEAR_ADD, ADD_SCALE};
            linear_op linear = tables[table].linear[panel_index_of(all_types[t])];
            *out = 7;
            linear(&call, 1, 1, c.scratch);
            x.rows = 0;
            linear(&call, 0, weight_panels(&c.weight), c.scratch);
            assert_true(*out == 7);
            guard_give(out, sizeof(float));
        }
        case_close(&c);
    }
}

/* Weights of any bits: infinite and NaN scales come out as infinities and NaN everywhere. */
static void wild_weights_are_equal(void **state) {
    (void)state;
    op_table tables[TEST_OP_TABLES];
    size_t count = test_op_tables(tables);
    for (size_t t = 0; t < COUNT(all_types); t++)
        check_shape(tables, count, all_types[t], 33, 512, true);
}

/* ---- Quantised activations ---- */

enum { KINDS = 8 };

/* Rows of every sort that may come. */
static void fill_row(int kind, float *x, uint32_t k) {
    fill_noise(40 + (uint64_t)kind, x, k);
    for (uint32_t i = 0; i < k; i++)
        switch (kind) {
        case 0: /* ordinary */
            break;
        case 1: /* around ACTIVATION_TINY, and subnormal */
            x[i] *= i / 32 % 2 == 0 ? 2e-30f : 1e-40f;
            break;
        case 2:
            x[i] = i % 2 == 0 ? 0.0f : -0.0f;
            break;
        case 3: /* huge */
            x[i] *= FLT_MAX;
            break;
        case 4:
            x[i] = i == k / 2 ? NAN : x[i];
            break;
        case 5:
            x[i] = i == k / 2 ? -INFINITY : x[i];
            break;
        case 6: /* halves: ties when the largest is 127 */
            x[i] = i % 32 == 0 ? 127.0f : (float)(int)(x[i] * 254.0f) * 0.5f;
            break;
        default: /* one number stands out */
            x[i] = i == k / 3 ? 1e4f : x[i];
        }
}

static void assert_same_bytes(const char *table, product_form form, uint32_t k, int kind,
                              const char *what, const void *got, const void *wanted, size_t bytes) {
    if (got != NULL && memcmp(got, wanted, bytes) != 0)
        fail_msg("%s: form %d, k %u, row of kind %d: %s differ", table, (int)form, k, kind, what);
}

static void check_quantised(const op_table *table, const activation_view *got,
                            const activation_view *wanted, int kind) {
    const char *name = table->name;
    product_form form = got->form;
    uint32_t k = got->k;
    size_t scales = form == PRODUCT_A8R ? (k + 255) / 256 : (k + 31) / 32;
    if (form == PRODUCT_FLOAT)
        for (size_t i = 0; i < got->stride; i++)
            assert_true(same_float(got->x[i], wanted->x[i]));
    assert_same_bytes(name, form, k, kind, "numbers", got->number, wanted->number, got->stride);
    assert_same_bytes(name, form, k, kind, "low numbers", got->low, wanted->low, got->stride);
    assert_same_bytes(name, form, k, kind, "integer sums", got->integer_sum, wanted->integer_sum,
                      ((size_t)k + 31) / 32 * 2 * sizeof(int32_t));
    for (size_t i = 0; form != PRODUCT_FLOAT && i < scales; i++)
        if (!same_float(got->scale[i], wanted->scale[i]) ||
            (form == PRODUCT_A8 && !same_float(got->sum[i], wanted->sum[i])))
            fail_msg("%s: form %d, k %u, row of kind %d: scale or sum %zu", name, (int)form, k,
                     kind, i);
}

static void quantised_rows_are_equal(void **state) {
    (void)state;
    op_table tables[TEST_OP_TABLES];
    size_t count = test_op_tables(tables);
    for (int form = 0; form < PRODUCT_FORMS; form++)
        for (size_t l = 0; l < COUNT(lengths); l++) {
            uint32_t k = lengths[l];
            float *x = guard_take(k * sizeof(float));
            uint8_t *scratch = scratch_take(k);
            activation_view wanted = activations_take((product_form)form, 1, k);
            for (int kind = 0; kind < KINDS; kind++) {
                fill_row(kind, x, k);
                tables[0].quantise(x, &wanted, 0, scratch);
                for (size_t t = 1; t < count; t++) {
                    activation_view got = activations_take((product_form)form, 1, k);
                    tables[t].quantise(x, &got, 0, scratch);
                    check_quantised(&tables[t], &got, &wanted, kind);
                    activations_give(&got);
                }
            }
            activations_give(&wanted);
            scratch_give(scratch, k);
            guard_give(x, k * sizeof(float));
        }
}

/* Rows of a view do not disturb each other, and lay where activation_lay says. */
static void views_hold_their_rows(void **state) {
    (void)state;
    op_table tables[TEST_OP_TABLES];
    size_t count = test_op_tables(tables);
    enum { K = 300, ROWS = 3 };
    float x[ROWS][K];
    for (size_t t = 0; t < count; t++)
        for (int form = 0; form < PRODUCT_FORMS; form++) {
            uint8_t *block = test_take_exact(activation_bytes(ROWS, K), 64);
            uint8_t *scratch = scratch_take(K);
            activation_view all = activation_lay((product_form)form, ROWS, K, block);
            for (uint32_t row = ROWS; row-- > 0;) {
                fill_noise(60 + row, x[row], K);
                tables[t].quantise(x[row], &all, row, scratch);
            }
            for (uint32_t row = 0; row < ROWS; row++) {
                activation_view one = activations_take((product_form)form, 1, K), same = all;
                tables[0].quantise(x[row], &one, 0, scratch);
                same.x = all.x == NULL ? NULL : all.x + row * all.stride;
                same.number = all.number == NULL ? NULL : all.number + row * all.stride;
                same.low = all.low == NULL ? NULL : all.low + row * all.stride;
                same.scale = all.scale == NULL ? NULL : all.scale + row * all.scale_stride;
                same.sum = all.sum == NULL ? NULL : all.sum + row * all.scale_stride;
                same.integer_sum =
                    all.integer_sum == NULL ? NULL : all.integer_sum + row * all.sum_stride;
                check_quantised(&tables[t], &same, &one, 100 + (int)row);
                activations_give(&one);
            }
            scratch_give(scratch, K);
            free(block);
        }
}

/* ---- Plain C against exact formulas ---- */

/* What a form may lose of one number of a block whose largest is `largest`: half a step, and a
 * little for the rounding of the quotient. */
static double form_step(product_form form, double largest) {
    double steps = form == PRODUCT_A16 ? 32512.0 : 127.0;
    return form == PRODUCT_FLOAT ? 0 : largest / steps * 0.5001;
}

static double block_largest(const float *x, size_t k, size_t at, size_t block) {
    double largest = 0;
    for (size_t i = at / block * block; i < k && i < (at / block + 1) * block; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

static void quantised_rows_are_close(void **state) {
    (void)state;
    op_table plain;
    ops_plain(&plain);
    enum { K = 300, PADDED = 304 };
    for (int form = PRODUCT_A8; form < PRODUCT_FORMS; form++) {
        size_t block = form == PRODUCT_A8R ? 256 : 32;
        activation_view view = activations_take((product_form)form, 1, K);
        uint8_t *scratch = scratch_take(K);
        float x[PADDED] = {0};
        fill_noise(77, x, K);
        plain.quantise(x, &view, 0, scratch);
        if (form == PRODUCT_A8R)
            quant_rotate(x, PADDED, 1);
        int32_t sum16 = 0, sum32 = 0;
        for (size_t i = 0; i < (form == PRODUCT_A8R ? PADDED : K); i++) {
            int number = view.number[i];
            if (form == PRODUCT_A16)
                number = 255 * number + view.low[i];
            double value = (double)view.scale[i / block] * number;
            assert_true(fabs(value - x[i]) <=
                        form_step((product_form)form, block_largest(x, PADDED, i, block)));
            sum16 = (i % 16 == 0 ? 0 : sum16) + number;
            sum32 = (i % 32 == 0 ? 0 : sum32) + number;
            if (form != PRODUCT_A16 && i % 16 == 15)
                assert_int_equal(view.integer_sum[i / 16], sum16);
            if (form == PRODUCT_A8 && i % 32 == 31)
                assert_true(view.sum[i / 32] == view.scale[i / 32] * (float)sum32);
        }
        scratch_give(scratch, K);
        activations_give(&view);
    }
}

/* |plain − exact| over decoded weights in double precision: what the activations lose, times the
 * weights, and rounding of single operations: 2^-20 of the sum of magnitudes. Of Q4R both sides are
 * taken rotated, as its products are. */
static void products_are_close(void **state) {
    (void)state;
    op_table plain;
    ops_plain(&plain);
    enum { ROWS = 20, K = 768 };
    float *row = malloc(K * sizeof(float)), *x = malloc(K * sizeof(float));
    float *before = malloc(K * sizeof(float));
    for (size_t t = 0; t < COUNT(all_types); t++) {
        quant_type type = all_types[t];
        product_form form = panels_form(type);
        weight_view weight = weight_take(type, ROWS, K, 7 + t, false);
        activation_view view = activations_take(form, 1, K);
        uint8_t *scratch = scratch_take(K);
        float out[ROWS];
        fill_noise(5, before, K);
        plain.quantise(before, &view, 0, scratch);
        linear_call call = {&weight, NULL, &view, out, ROWS, LINEAR_STORE, 1.0f};
        plain.linear[panel_index_of(type)](&call, 0, weight_panels(&weight), scratch);
        double worst = 0;
        for (size_t r = 0; r < ROWS; r++) {
            size_t block = form == PRODUCT_A8R ? 256 : 32;
            double exact = 0, size = 0, lost = 0;
            weight_decode_row(&weight, r, row);
            for (size_t i = 0; i < K; i++) {
                exact += (double)row[i] * before[i];
                size += fabs((double)row[i] * before[i]);
            }
            memcpy(x, before, K * sizeof(float));
            if (form == PRODUCT_A8R) {
                quant_rotate(row, K, 1);
                quant_rotate(x, K, 1);
            }
            for (size_t i = 0; i < K; i++)
                lost += fabs((double)row[i]) * form_step(form, block_largest(x, K, i, block));
            /* minima cancel what scales add: four times the values for those types */
            double rounding = (panels_minimum(type) ? 0x1p-18 : 0x1p-20) * size;
            assert_true(fabs(out[r] - exact) <= lost + rounding);
            worst = fmax(worst, fabs(out[r] - exact) / size);
        }
        print_message("%-7s worst error of 20 sums, relative to their magnitudes: %.1e\n",
                      quant_name(type), worst);
        weight_give(&weight);
        activations_give(&view);
        scratch_give(scratch, K);
    }
    free(row);
    free(x);
    free(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_rows_are_close), cmocka_unit_test(products_are_close),
        cmocka_unit_test(quantised_rows_are_equal), cmocka_unit_test(views_hold_their_rows),
        cmocka_unit_test(products_are_equal),       cmocka_unit_test(wild_weights_are_equal),
        cmocka_unit_test(empty_calls_do_nothing),
    };
    return cmocka_run_group_tests_name("device/ops", tests, NULL, NULL);
}
