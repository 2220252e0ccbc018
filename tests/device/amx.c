/* The AMX kernels on emulated tiles (emulated/amx_tiles.h), against plain C, bit for bit: so their
 * logic is tested on every machine with AVX-512, whether it has tiles or not. What is read or
 * written too far is a fault (guard pages). */
#include "device/emulated/amx_tiles.h"
#include "device/ops_cases.h"

static op_table plain;
static op_table amx;

static int make_tables(void **state) {
    (void)state;
    cpu_features features = cpu_features_detect();
    if (!features.avx512_vnni) {
        print_message("SKIPPED: the AMX kernels need AVX-512 VNNI beside the emulated tiles\n");
        exit(77);
    }
    ops_plain(&plain);
    amx = plain;
    ops_amx(&amx);
    return 0;
}

/* ---- One product ---- */

typedef struct shape {
    quant_type type;
    uint32_t rows, outputs, k;
} shape;

typedef struct product {
    weight_view weight;
    activation_view x;
    float *bias;
    uint8_t *scratch;
    size_t cells, stride;
} product;

static product product_open(shape of, uint64_t stream) {
    product made = {.weight = weight_take(of.type, of.outputs, of.k, stream, false),
                    .x = activations_take(panels_form(of.type), of.rows, of.k),
                    .bias = guard_take(of.outputs * sizeof(float)),
                    .scratch = scratch_take(of.k),
                    .stride = of.outputs + stream % 3};
    made.cells = (of.rows - 1) * made.stride + of.outputs;
    fill_noise(stream + 1, made.bias, of.outputs);
    float *x = guard_take(of.k * sizeof(float));
    for (uint32_t row = 0; row < of.rows; row++) {
        fill_noise(stream + 2 + row, x, of.k);
        plain.quantise(x, &made.x, row, made.scratch);
    }
    guard_give(x, of.k * sizeof(float));
    return made;
}

static void product_close(product *made) {
    guard_give(made->bias, made->weight.rows * sizeof(float));
    scratch_give(made->scratch, made->weight.k);
    activations_give(&made->x);
    weight_give(&made->weight);
}

/* All panels, in two calls cut at `cut`, into a fresh array of the cells alone. */
static float *multiply(const op_table *table, const product *with, unsigned variant, size_t cut) {
    float *out = guard_take(with->cells * sizeof(float));
    fill_noise(9, out, with->cells);
    linear_call call = {.weight = &with->weight,
                        .bias = variant & 2 ? with->bias : NULL,
                        .x = &with->x,
                        .out = out,
                        .out_stride = with->stride,
                        .end = variant & 1 ? LINEAR_ADD : LINEAR_STORE,
                        .add_scale = 0.75f};
    linear_op op = table->linear[panel_index_of(with->weight.type)];
    memset(with->scratch, 0xff, linear_scratch_bytes(with->weight.k));
    op(&call, 0, cut, with->scratch);
    op(&call, cut, weight_panels(&with->weight), with->scratch);
    return out;
}

static void check_shape(shape of, uint64_t stream) {
    product with = product_open(of, stream);
    unsigned variant = (unsigned)stream % 4;
    float *expected = multiply(&plain, &with, variant, 0);
    float *got = multiply(&amx, &with, variant, stream % (weight_panels(&with.weight) + 1));
    for (size_t i = 0; i < with.cells; i++)
        if (!same_float(got[i], expected[i]))
            fail_msg("%s, %u rows, %u × %u, variant %u: cell %zu is %a, not %a",
                     quant_name(of.type), of.rows, of.outputs, of.k, variant, i, (double)got[i],
                     (double)expected[i]);
    guard_give(expected, with.cells * sizeof(float));
    guard_give(got, with.cells * sizeof(float));
    product_close(&with);
    assert_int_equal(emulated.configuration.palette, 0); /* no tiles left behind */
}

/* Entries that AMX has made its own, at every height of tiles and odd widths. */
static void same_bits_as_plain(void **state) {
    (void)state;
    static const uint32_t rows[] = {1,  4,  5,  7,  8,  9,  11, 13, 15, 16,
                                    17, 23, 24, 31, 32, 33, 47, 48, 65};
    static const uint32_t lengths[] = {32, 288, 576, 1056, 100, 512};
    static const uint32_t outputs[] = {1, 16, 30, 48, 71};
    size_t own = 0;
    for (size_t t = 0; t < COUNT(all_types); t++) {
        quant_type type = all_types[t];
        if (amx.linear[panel_index_of(type)] == plain.linear[panel_index_of(type)])
            continue;
        own++;
        for (size_t i = 0; i < COUNT(rows); i++) {
            uint64_t bytes;
            uint32_t k = lengths[(i + t) % COUNT(lengths)];
            if (!weight_panel_bytes(type, k, &bytes))
                k = i % 2 == 0 ? 256 : 768;
            check_shape((shape){type, rows[i], outputs[(i + t) % COUNT(outputs)], k}, t * 100 + i);
        }
    }
    assert_true(own > 0 && emulated.products > 0);
    assert_true(emulated.released > 0);
}

/* Past the rows whose sums are kept together. */
static void many_rows(void **state) {
    (void)state;
    check_shape((shape){QUANT_Q4R, 529, 20, 272}, 5);
    check_shape((shape){QUANT_Q4_1, 521, 20, 96}, 6);
}

/* No rows, and no panels: nothing is touched, and no tiles stay configured. */
static void empty_calls(void **state) {
    (void)state;
    product with = product_open((shape){QUANT_Q4R, 40, 33, 64}, 7);
    float out = 7;
    linear_call call = {&with.weight, NULL, &with.x, &out, with.stride, LINEAR_STORE, 1.0f};
    amx.linear[PANEL_Q4R](&call, 1, 1, with.scratch);
    with.x.rows = 0;
    amx.linear[PANEL_Q4R](&call, 0, 3, with.scratch);
    assert_true(out == 7);
    assert_int_equal(emulated.configuration.palette, 0);
    with.x.rows = 40;
    product_close(&with);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_plain),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(empty_calls),
    };
    return cmocka_run_group_tests_name("device/cpu/amx", tests, make_tables, NULL);
}
