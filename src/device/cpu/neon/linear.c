/* Products with NEON's sdot, as activation.h says. A panel is taken apart once into byte lines and
 * scales (units.h) in the scratch, F32 to F8C into floats; then the rows of x walk past it, four at
 * a time. A lane is an output; one line of four k times four numbers of a row is an sdot for every
 * four outputs. Rows, outputs and k of any number; sums in int32, then one float per output.
 *
 * Not timed: no machine with these instructions was at hand. `avocet bench --kernels --op linear
 * --device neon` measures it. */
#include "device/cpu/neon/vec16.h"

#include "base/checked.h"
#include "device/cpu/neon/neon_int.h"
#include "device/cpu/neon/units.h"
#include "device/cpu/with_count.h"

#include <assert.h>

#define INLINE    static inline __attribute__((always_inline))
#define TILE_ROWS 4
#define HALF      (PANEL_UNIT / 2)
#define A8R_UNITS (Q4R_SUPER / PANEL_UNIT)

/* ---- Integers ---- */

/* Adds the products of half a unit with each of `rows` rows, whose numbers begin at `x`. */
INLINE void add_half(const int rows, const neon_unit *unit, size_t half, const int8_t *x,
                     size_t stride, ivec16 *sum) {
    int8x16_t numbers[TILE_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        numbers[r] = vld1q_s8(x + (size_t)r * stride + half * HALF);
    const int8_t *line = unit->line[half * (UNIT_LINES / 2)];
#define ADD_LINE(n)                                                                                \
    _Pragma("GCC unroll 4") for (int i = 0; i < QUARTERS; i++) {                                   \
        int8x16_t four = vld1q_s8(line + (n)*PANEL_LINE_BYTES + 16 * i);                           \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) sum[r].q[i] =                       \
            vdotq_laneq_s32(sum[r].q[i], four, numbers[r], n);                                     \
    }
    ADD_LINE(0)
    ADD_LINE(1)
    ADD_LINE(2)
    ADD_LINE(3)
#undef ADD_LINE
}

INLINE void clear(const int rows, ivec16 *sum) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = iv_set(0);
}

INLINE void product_a8(const int rows, const bool sub_blocks, const bool minimum,
                       const neon_unit *units, const activation_view *x, vec16 *f) {
    for (size_t u = 0; u * PANEL_UNIT < x->k; u++) {
        ivec16 sum[TILE_ROWS];
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            if (sub_blocks || half == 0)
                clear(rows, sum);
            add_half(rows, &units[u], half, x->number + u * PANEL_UNIT, x->stride, sum);
            if (!sub_blocks && half == 0)
                continue;
            size_t block = sub_blocks ? half : 0;
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                size_t at = (size_t)r * x->scale_stride + u;
                float scale = x->scale[at];
                vec16 factor = v_mul(v_load(units[u].scale[block]), v_set(scale));
                f[r] = v_fma(v_from_int(sum[r]), factor, f[r]);
                if (!minimum)
                    continue;
                float of_x =
                    sub_blocks
                        ? scale * (float)x->integer_sum[(size_t)r * x->sum_stride + 2 * u + half]
                        : x->sum[at];
                f[r] = v_fma(v_load(units[u].minimum[block]), v_set(of_x), f[r]);
            }
        }
    }
}

INLINE void product_a16(const int rows, const bool by_row, const neon_unit *units,
                        const activation_view *x, vec16 *f) {
    for (size_t u = 0; u * PANEL_UNIT < x->k; u++) {
        ivec16 high[TILE_ROWS], low[TILE_ROWS];
        clear(rows, high);
        clear(rows, low);
        for (size_t half = 0; half < 2; half++) {
            add_half(rows, &units[u], half, x->number + u * PANEL_UNIT, x->stride, high);
            add_half(rows, &units[u], half, x->low + u * PANEL_UNIT, x->stride, low);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec16 scale = v_set(x->scale[(size_t)r * x->scale_stride + u]);
            ivec16 both = iv_add(iv_sub(iv_shift_left(high[r], 8), high[r]), low[r]);
            f[r] = v_fma(v_from_int(both), by_row ? scale : v_mul(v_load(units[u].scale[0]), scale),
                         f[r]);
        }
    }
}

INLINE void product_a8r(const int rows, const bool by_row, const neon_unit *units,
                        const activation_view *x, vec16 *f) {
    size_t count = ((size_t)x->k + PANEL_UNIT - 1) / PANEL_UNIT;
    for (size_t begin = 0; begin < count; begin += A8R_UNITS) {
        ivec16 sum[TILE_ROWS];
        clear(rows, sum);
        for (size_t u = begin; u < size_min(begin + A8R_UNITS, count); u++)
            for (size_t half = 0; half < 2; half++)
                add_half(rows, &units[u], half, x->number + u * PANEL_UNIT, x->stride, sum);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec16 scale = v_set(x->scale[(size_t)r * x->scale_stride + begin / A8R_UNITS]);
            f[r] = v_fma(v_from_int(sum[r]),
                         by_row ? scale : v_mul(v_load(units[begin].scale[0]), scale), f[r]);
        }
    }
}

/* ---- The end of a sum ---- */

INLINE void finish(const int rows, const linear_call *call, size_t panel, size_t row, vec16 *f) {
    size_t output = panel * QUANT_PANEL_ROWS;
    size_t count = size_min(call->weight->rows - output, LANES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *out = call->out + (row + (size_t)r) * call->out_stride + output;
        vec16 y = f[r];
        if (call->bias != NULL)
            y = v_add(y, v_load_part(call->bias + output, count));
        if (call->end == LINEAR_ADD)
            y = v_fma(y, v_set(call->add_scale), v_load_part(out, count));
        if (count == LANES)
            v_store(out, y);
        else
            v_store_part(out, y, count);
    }
}

INLINE void scale_all(const int rows, const float *scale, vec16 *f) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        f[r] = v_mul(f[r], v_load(scale));
}

/* ---- Rows ---- */

INLINE void integer_rows(const int rows, const linear_call *call, size_t panel, uint32_t row,
                         const neon_unit *units) {
    quant_type type = call->weight->type;
    activation_view x = activation_from(call->x, row, 0);
    bool by_row = type == QUANT_Q8C || type == QUANT_Q8R;
    vec16 f[TILE_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        f[r] = v_zero();
    if (x.form == PRODUCT_A16)
        product_a16(rows, by_row, units, &x, f);
    else if (x.form == PRODUCT_A8R)
        product_a8r(rows, by_row, units, &x, f);
    else if (!panels_sub_blocks(type))
        product_a8(rows, false, panels_minimum(type), units, &x, f);
    else
        product_a8(rows, true, panels_minimum(type), units, &x, f);
    if (by_row)
        scale_all(rows, units[0].scale[0], f);
    finish(rows, call, panel, row, f);
}

static const uint8_t *panel_data(const weight_view *weight, size_t panel) {
    uint64_t bytes = 0;
    bool known = weight_panel_bytes(weight->type, weight->k, &bytes);
    assert(known && weight->layout == QUANT_LAYOUT_PANELS);
    (void)known;
    return weight->data + panel * (size_t)bytes;
}

void neon_linear_integer(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    const weight_view *weight = call->weight;
    neon_unit *units = (neon_unit *)(void *)scratch;
    assert(call->x->form == panels_form(weight->type) && call->x->k == weight->k);
    for (size_t panel = first; panel < last; panel++) {
        neon_units_read(weight->type, panel_data(weight, panel), weight->k, units);
        for (uint32_t row = 0; row < call->x->rows; row += TILE_ROWS)
            WITH_COUNT_4(call->x->rows - row, rows, integer_rows(rows, call, panel, row, units))
    }
}

/* ---- Floats ---- */

/* The type's one NaN, 0x7f without its sign, is not among what v_load_fp8 reads. */
static vec16 e4m3(const uint8_t *line, size_t at) {
    uint8_t byte[LANES];
    float nan[LANES];
    bool any = false;
    for (size_t lane = 0; lane < LANES; lane++) {
        byte[lane] = line[4 * lane + at];
        any = any || (byte[lane] & 0x7f) == 0x7f;
    }
    if (!any)
        return v_load_fp8(byte);
    for (size_t lane = 0; lane < LANES; lane++)
        nan[lane] = quant_f8_e4m3_to_f32(byte[lane]);
    return v_load(nan);
}

/* [k][16] floats. */
static void decode(quant_type type, const uint8_t *panel, size_t k, float *out) {
    for (size_t i = 0; i < k; i++, out += LANES) {
        if (type == QUANT_F32) {
            v_store(out, v_load((const float *)(const void *)panel + i * LANES));
        } else if (type == QUANT_F8C) {
            v_store(out, e4m3(panel + i / 4 * PANEL_LINE_BYTES, i % 4));
        } else {
            uint16_t column[LANES];
            const uint16_t *line = (const uint16_t *)(const void *)panel + i / 2 * 2 * LANES;
            uint16x8x2_t low = vld2q_u16(line), high = vld2q_u16(line + LANES);
            vst1q_u16(column, low.val[i % 2]);
            vst1q_u16(column + 8, high.val[i % 2]);
            v_store(out, type == QUANT_F16 ? v_load_f16(column) : v_load_bf16(column));
        }
    }
}

INLINE void float_rows(const int rows, const linear_call *call, size_t panel, uint32_t row,
                       const float *weights, const float *scale) {
    const activation_view *x = call->x;
    const float *numbers = x->x + row * x->stride;
    vec16 f[TILE_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        f[r] = v_zero();
    for (size_t i = 0; i < x->k; i++) {
        vec16 w = v_load(weights + i * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            f[r] = v_fma(w, v_set(numbers[(size_t)r * x->stride + i]), f[r]);
    }
    if (scale != NULL)
        scale_all(rows, scale, f);
    finish(rows, call, panel, row, f);
}

void neon_linear_float(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    const weight_view *weight = call->weight;
    float *weights = (float *)(void *)scratch;
    assert(call->x->form == PRODUCT_FLOAT && call->x->k == weight->k);
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *data = panel_data(weight, panel);
        const uint8_t *scale = data + ((size_t)weight->k + 3) / 4 * PANEL_LINE_BYTES; /* of F8C */
        decode(weight->type, data, weight->k, weights);
        for (uint32_t row = 0; row < call->x->rows; row += TILE_ROWS)
            WITH_COUNT_4(
                call->x->rows - row, rows,
                float_rows(rows, call, panel, row, weights,
                           weight->type == QUANT_F8C ? (const float *)(const void *)scale : NULL))
    }
}
