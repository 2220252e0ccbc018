/* General matrix products against sums in double precision, and held to equal bits: for every
 * instruction set, 1, 2 and 3 threads (AVO_TEST_THREADS), rows alone and together, and weights that
 * are decoded while they are packed. Operands end at pages without access. */
#include "device/cpu/gemm.h"
#include "device/ops_cases.h"

#include "device/cpu/isa.h"

#include <float.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(AVO_TEST_EMULATED)
#define SHAPES_EVERY 4 /* slow there: a part of the shapes */
#else
#define SHAPES_EVERY 1
#endif

/* ---- Matrices ---- */

typedef struct matrix {
    float *data; /* guarded */
    size_t count;
    gemm_operand operand;
} matrix;

typedef enum form { FORM_ROWS, FORM_COLUMNS, FORM_STRIDED, FORMS } form;

/* rows × columns of noise in one of the forms; strides are larger than the matrix. */
static matrix matrix_take(form form, size_t rows, size_t columns, uint64_t stream) {
    gemm_operand operand = gemm_rows(NULL, columns + 3);
    if (form == FORM_COLUMNS)
        operand = gemm_columns(NULL, rows + 1);
    if (form == FORM_STRIDED)
        operand = (gemm_operand){.row_stride = 2 * columns + 5, .column_stride = 2};
    matrix m = {.operand = operand};
    if (rows == 0 || columns == 0)
        m.count = 1;
    else
        m.count = (rows - 1) * operand.row_stride + (columns - 1) * operand.column_stride + 1;
    m.data = guard_take(m.count * sizeof(float));
    fill_noise(stream, m.data, m.count);
    m.operand.data = m.data;
    return m;
}

static void matrix_give(const matrix *m) {
    guard_give(m->data, m->count * sizeof(float));
}

/* The weight, decoded as a whole: rows × k. */
static matrix decoded_take(const weight_view *weight, bool transposed) {
    matrix m = {.count = (size_t)weight->rows * weight->k};
    m.data = guard_take(m.count * sizeof(float));
    for (size_t row = 0; row < weight->rows; row++)
        weight_decode_row(weight, row, m.data + row * weight->k);
    m.operand = transposed ? gemm_columns(m.data, weight->k) : gemm_rows(m.data, weight->k);
    return m;
}

static float element(const gemm_operand *operand, size_t i, size_t j) {
    return operand->data[i * operand->row_stride + j * operand->column_stride];
}

static float rounded(float x) {
    return quant_bf16_to_f32(quant_f32_to_bf16(x));
}

/* ---- Teams and instruction sets ---- */

#define TEAMS 3
static team *teams[TEAMS]; /* of 1, 2 and 3 workers */

static int open_teams(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TEAMS; i++)
        assert_ok(team_open(NULL, i + 1, &teams[i], NULL));
    return 0;
}

static int close_teams(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TEAMS; i++)
        team_close(teams[i]);
    return 0;
}

/* "plain" and those of this machine; NULL behind the last. */
static const char *isa_name(size_t at) {
    return at == 0 ? "plain" : isa_at(at - 1) != NULL ? isa_at(at - 1)->name : NULL;
}

static gemm *open_isa(const char *isa, uint32_t threads) {
    gemm *g;
    avo_error error;
    assert_ok_error(gemm_open(NULL, isa, teams[threads - 1], &g, &error), &error);
    return g;
}

/* C of a call, from a copy of `before`, in guarded memory. */
static float *run(gemm *g, gemm_call call, const float *before) {
    size_t count = (call.m - 1) * call.c_stride + call.n;
    call.c = guard_take(count * sizeof(float));
    memcpy(call.c, before, count * sizeof(float));
    gemm_run(g, &call, 1);
    return call.c;
}

static void assert_same_bits(const char *what, const gemm_call *call, const float *c,
                             const float *wanted) {
    for (size_t i = 0; i < (call->m - 1) * call->c_stride + call->n; i++)
        if (memcmp(&c[i], &wanted[i], sizeof(float)) != 0)
            fail_msg("%s: %zu × %zu × %zu: row %zu column %zu is %a, not %a", what, call->m,
                     call->n, call->k, i / call->c_stride, i % call->c_stride, (double)c[i],
                     (double)wanted[i]);
}

/* ---- Sums ---- */

/* Every rounding is at most half a unit of the sum of magnitudes: k products, a few blocks. */
static void check_sums(const char *what, const gemm_call *call, const float *c,
                       const float *before) {
    bool brain = call->precision == GEMM_BF16;
    double unit = (double)FLT_EPSILON / 2 * (double)(call->k + call->k / GEMM_BLOCK_K + 4);
    for (size_t i = 0; i < call->m; i++)
        for (size_t j = 0; j < call->c_stride; j++) {
            size_t at = i * call->c_stride + j;
            if (j >= call->n) { /* between rows nothing is written */
                if (i + 1 < call->m)
                    assert_memory_equal(&c[at], &before[at], sizeof(float));
                continue;
            }
            double sum = call->add ? (double)before[at] : 0.0, size = fabs(sum);
            for (size_t k = 0; k < call->k; k++) {
                float a = element(&call->a, i, k), b = element(&call->b, k, j);
                double product =
                    brain ? (double)rounded(a) * (double)rounded(b) : (double)a * (double)b;
                sum += (double)call->scale * product;
                size += fabs((double)call->scale * product);
            }
            if (!(fabs((double)c[at] - sum) <= unit * size))
                fail_msg("%s: %zu × %zu × %zu: row %zu column %zu is %a, must be %a ± %a", what,
                         call->m, call->n, call->k, i, j, (double)c[at], sum, unit * size);
        }
}

typedef struct shape {
    size_t m, n, k;
} shape;

static const shape shapes[] = {
    {1, 1, 1},    {1, 16, 3},    {2, 17, 1},    {3, 5, 256},  {14, 32, 257}, {15, 33, 64},
    {6, 47, 100}, {31, 1, 300},  {29, 48, 513}, {64, 8, 77},  {8, 64, 300},  {100, 100, 8},
    {129, 35, 2}, {45, 130, 16}, {17, 15, 700}, {40, 31, 5},  {140, 70, 33}, {1, 300, 20},
    {200, 3, 9},  {5, 257, 260}, {33, 16, 512}, {16, 16, 16}, {7, 2, 1025},
};

static void check_case(const gemm_call *call, const float *before) {
    float *first = NULL;
    size_t bytes = ((call->m - 1) * call->c_stride + call->n) * sizeof(float);
    for (size_t isa = 0; isa_name(isa) != NULL; isa++) {
        gemm *g = open_isa(isa_name(isa), 1 + (uint32_t)(isa % TEAMS));
        float *c = run(g, *call, before);
        if (first == NULL)
            check_sums(isa_name(isa), call, c, before);
        else
            assert_same_bits(isa_name(isa), call, c, first);
        gemm_close(g);
        if (first == NULL)
            first = c;
        else
            guard_give(c, bytes);
    }
    guard_give(first, bytes);
}

static void check_shapes(gemm_precision precision) {
    for (size_t s = 0; s < COUNT(shapes); s += SHAPES_EVERY)
        for (int way = 0; way < 3; way++) {
            shape z = shapes[s];
            matrix a = matrix_take((form)((s + (size_t)way) % FORMS), z.m, z.k, 10 + s);
            matrix b = matrix_take((form)((s / 3 + (size_t)way) % FORMS), z.k, z.n, 90 + s);
            matrix before = matrix_take(FORM_ROWS, z.m, z.n, 170 + s);
            gemm_call call = {.m = z.m,
                              .n = z.n,
                              .k = z.k,
                              .a = a.operand,
                              .b = b.operand,
                              .c_stride = before.operand.row_stride,
                              .scale = way == 1 ? 1.0f : 0.37f,
                              .add = way > 0,
                              .precision = precision};
            check_case(&call, before.data);
            matrix_give(&a);
            matrix_give(&b);
            matrix_give(&before);
        }
}

static void floats_are_summed(void **state) {
    (void)state;
    check_shapes(GEMM_F32);
}

static void bfloats_are_summed(void **state) {
    (void)state;
    check_shapes(GEMM_BF16);
}

/* ---- Equal bits ---- */

/* All rows in one call, rows one by one, columns in two parts; one to three threads. */
static void bits_depend_on_nothing(void **state) {
    (void)state;
    const shape z = {75, 83, 530};
    matrix a = matrix_take(FORM_ROWS, z.m, z.k, 1), b = matrix_take(FORM_COLUMNS, z.k, z.n, 2);
    float *before = calloc(z.m * z.n, sizeof(float)), *c = malloc(z.m * z.n * sizeof(float));
    for (size_t isa = 0; isa_name(isa) != NULL; isa++)
        for (int precision = GEMM_F32; precision <= GEMM_BF16; precision++) {
            gemm_call call = {.m = z.m,
                              .n = z.n,
                              .k = z.k,
                              .a = a.operand,
                              .b = b.operand,
                              .c_stride = z.n,
                              .scale = 0.7f,
                              .precision = (gemm_precision)precision};
            gemm *g = open_isa(isa_name(isa), 1);
            float *whole = run(g, call, before);
            gemm_close(g);
            for (uint32_t threads = 1; threads <= TEAMS; threads++) {
                g = open_isa(isa_name(isa), threads);
                gemm_call part[40];
                size_t parts = 0;
                for (size_t row = 0; row < z.m; row += threads + 2)
                    for (size_t column = 0; column < z.n; column += 37) {
                        gemm_call *p = &part[parts++];
                        *p = call;
                        p->m = z.m - row < threads + 2 ? z.m - row : threads + 2;
                        p->n = z.n - column < 37 ? z.n - column : 37;
                        p->a.data += row * p->a.row_stride;
                        p->b.data += column * p->b.column_stride;
                        p->c = c + row * z.n + column;
                        if (parts == COUNT(part)) {
                            gemm_run(g, part, parts);
                            parts = 0;
                        }
                    }
                gemm_run(g, part, parts);
                assert_same_bits(isa_name(isa), &call, c, whole);
                call.c = c;
                gemm_run(g, &call, 1);
                assert_same_bits(isa_name(isa), &call, c, whole);
                gemm_close(g);
            }
            guard_give(whole, z.m * z.n * sizeof(float));
        }
    free(before);
    free(c);
    matrix_give(&a);
    matrix_give(&b);
}

/* ---- Weights ---- */

/* The call with a weight against the call with its numbers, by every instruction set. */
static void check_weight(const char *what, gemm_call call, bool as_a, const weight_view *weight,
                         bool transposed) {
    gemm_operand *operand = as_a ? &call.a : &call.b;
    matrix decoded = decoded_take(weight, transposed);
    float *before = calloc(call.m * call.n, sizeof(float));
    size_t bytes = call.m * call.n * sizeof(float);
    call.c_stride = call.n;
    for (size_t isa = 0; isa_name(isa) != NULL; isa++) {
        gemm *g = open_isa(isa_name(isa), 1 + (uint32_t)(isa % TEAMS));
        *operand = decoded.operand;
        float *wanted = run(g, call, before);
        *operand = gemm_weight(weight, transposed);
        float *c = run(g, call, before);
        assert_same_bits(what, &call, c, wanted);
        guard_give(wanted, bytes);
        guard_give(c, bytes);
        gemm_close(g);
    }
    free(before);
    matrix_give(&decoded);
}

/* The weight at each side of a product, plain and transposed, with 19 other rows or columns. */
static void check_sides(const weight_view *weight, gemm_precision precision) {
    const size_t others = 19;
    for (int side = 0; side < 4; side++) {
        bool as_a = side / 2 != 0, transposed = side % 2 != 0;
        size_t rows = transposed ? weight->k : weight->rows;
        size_t columns = transposed ? weight->rows : weight->k;
        gemm_call call = {.m = as_a ? rows : others,
                          .n = as_a ? others : columns,
                          .k = as_a ? columns : rows,
                          .scale = 1.0f,
                          .precision = precision};
        matrix other = as_a ? matrix_take(FORM_ROWS, columns, others, 5)
                            : matrix_take(FORM_ROWS, others, rows, 5);
        *(as_a ? &call.b : &call.a) = other.operand;
        check_weight(quant_name(weight->type), call, as_a, weight, transposed);
        matrix_give(&other);
    }
}

static void panels_are_decoded(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT(all_types); t++) {
        uint64_t bytes;
        bool whole = !weight_panel_bytes(all_types[t], 288, &bytes);
        weight_view weight = weight_take(all_types[t], 37, whole ? 512 : 288, 7 + t, false);
        check_sides(&weight, GEMM_F32);
        if (t % 4 == 0)
            check_sides(&weight, GEMM_BF16);
        weight_give(&weight);
        if (whole || t % SHAPES_EVERY != 0)
            continue;
        weight = weight_take(all_types[t], 273, 48, 9 + t, false); /* two blocks of rows */
        check_sides(&weight, GEMM_F32);
        weight_give(&weight);
    }
}

static void other_layouts_are_decoded(void **state) {
    (void)state;
    const quant_type types[] = {QUANT_F32, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_1};
    for (size_t t = 0; t < COUNT(types); t++)
        for (int layout = QUANT_LAYOUT_ROWS; layout <= QUANT_LAYOUT_COLUMNS; layout++) {
            weight_view weight = {
                .type = types[t], .layout = (quant_layout)layout, .rows = 37, .k = 320};
            uint64_t bytes;
            if (!weight_bytes(types[t], weight.layout, weight.rows, weight.k, &bytes))
                continue;
            uint8_t *data = guard_take((size_t)bytes);
            const quant_info *info = quant_info_of(types[t]);
            if (types[t] == QUANT_F32)
                fill_noise(3, (float *)(void *)data, (size_t)bytes / sizeof(float));
            else if (types[t] == QUANT_BF16)
                for (size_t i = 0; i < bytes; i += 2) {
                    uint16_t half = quant_f32_to_bf16((float)(i % 97) - 48.0f);
                    memcpy(data + i, &half, sizeof(half));
                }
            else
                for (uint64_t i = 0; i < bytes / info->block_bytes; i++)
                    fill_block(info, 3, i, false, data + i * info->block_bytes);
            weight.data = data;
            check_sides(&weight, GEMM_F32);
            guard_give(data, (size_t)bytes);
        }
}

/* ---- Limits ---- */

/* More than the shared scratch holds: pieces of n, and of k. */
static void large_products_are_cut(void **state) {
    (void)state;
    const shape large[] = {{3, 2100, 1100}, {2, 40, 9000}};
    gemm *best = open_isa(NULL, 3), *plain = open_isa("plain", 1);
    for (size_t i = 0; i < COUNT(large); i++) {
        shape z = large[i];
        matrix a = matrix_take(FORM_ROWS, z.m, z.k, 1), b = matrix_take(FORM_COLUMNS, z.k, z.n, 2);
        float *before = calloc(z.m * z.n, sizeof(float));
        gemm_call call = {.m = z.m,
                          .n = z.n,
                          .k = z.k,
                          .a = a.operand,
                          .b = b.operand,
                          .c_stride = z.n,
                          .scale = -1.5f,
                          .add = i > 0};
        float *wanted = run(plain, call, before), *c = run(best, call, before);
        check_sums("plain", &call, wanted, before);
        assert_same_bits(gemm_isa(best), &call, c, wanted);
        guard_give(wanted, z.m * z.n * sizeof(float));
        guard_give(c, z.m * z.n * sizeof(float));
        free(before);
        matrix_give(&a);
        matrix_give(&b);
    }
    gemm_close(best);
    gemm_close(plain);
}

static void sums_of_nothing(void **state) {
    (void)state;
    float a[4] = {1, 2, 3, 4}, c[4] = {5, 6, 7, 8};
    gemm *g = open_isa(NULL, 2);
    gemm_call call = {.m = 2,
                      .n = 1,
                      .k = 0,
                      .a = gemm_rows(a, 1),
                      .b = gemm_rows(a, 1),
                      .c = c,
                      .c_stride = 2,
                      .scale = 1.0f,
                      .add = true};
    gemm_run(g, NULL, 0);
    gemm_run(g, &call, 1);
    assert_true(c[0] == 5 && c[1] == 6 && c[2] == 7);
    call.add = false;
    gemm_run(g, &call, 1);
    assert_true(c[0] == 0 && c[1] == 6 && c[2] == 0 && c[3] == 8);
    call.m = 0;
    call.k = 1;
    gemm_run(g, &call, 1);
    call.m = 2;
    call.n = 0;
    gemm_run(g, &call, 1);
    assert_true(c[1] == 6 && c[3] == 8);
    gemm_close(g);
}

/* NaN and infinity reach the elements that they belong to, and no others. */
static void numbers_stay_in_their_places(void **state) {
    (void)state;
    for (size_t isa = 0; isa_name(isa) != NULL; isa++) {
        gemm *g = open_isa(isa_name(isa), 2);
        enum { M = 20, N = 20, K = 5 };
        float a[M * K], b[K * N], c[M * N];
        fill_noise(1, a, M * K);
        fill_noise(2, b, K * N);
        a[3 * K + 2] = NAN;
        b[4 * N + 17] = INFINITY;
        gemm_call call = {.m = M,
                          .n = N,
                          .k = K,
                          .a = gemm_rows(a, K),
                          .b = gemm_rows(b, N),
                          .c = c,
                          .c_stride = N,
                          .scale = 1.0f};
        for (int precision = GEMM_F32; precision <= GEMM_BF16; precision++) {
            call.precision = (gemm_precision)precision;
            gemm_run(g, &call, 1);
            for (size_t i = 0; i < M; i++)
                for (size_t j = 0; j < N; j++)
                    assert_true(i == 3    ? isnan(c[i * N + j])
                                : j == 17 ? !isfinite(c[i * N + j])
                                          : isfinite(c[i * N + j]));
        }
        gemm_close(g);
    }
}

static void opening_can_fail(void **state) {
    (void)state;
    avo_error error;
    gemm *g;
    assert_refused(gemm_open(NULL, "avx9", teams[0], &g, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "'avx9'");
    assert_null(g);
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        avo_status status = gemm_open(&allocator.allocator, NULL, teams[2], &g, &error);
        size_t most = allocator.peak_bytes;
        if (status == AVO_OK) {
            assert_true(most <= GEMM_SHARED_BYTES + 3 * GEMM_WORKER_BYTES + 65536);
            gemm_close(g);
        } else {
            assert_int_equal(status, AVO_ERROR_MEMORY);
            assert_null(g);
        }
        assert_int_equal(allocator.live, 0);
        if (status == AVO_OK)
            return;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_summed),         cmocka_unit_test(bfloats_are_summed),
        cmocka_unit_test(bits_depend_on_nothing),    cmocka_unit_test(panels_are_decoded),
        cmocka_unit_test(other_layouts_are_decoded), cmocka_unit_test(large_products_are_cut),
        cmocka_unit_test(sums_of_nothing),           cmocka_unit_test(numbers_stay_in_their_places),
        cmocka_unit_test(opening_can_fail),
    };
    return cmocka_run_group_tests(tests, open_teams, close_teams);
}
