/* Matrix products as activation.h says, for every form and type: the specification, in plain C. A
 * panel is taken apart once into integers and scales (or floats) in the scratch, then every row of
 * x is walked past it. One accumulator per output, k ascending; every fmaf rounds once. */
#include "device/cpu/plain/plain_int.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>

#define LANES     QUANT_PANEL_ROWS
#define HALF      (PANEL_UNIT / 2)
#define A16_RADIX 255
#define A8R_UNITS (Q4R_SUPER / PANEL_UNIT)

static size_t unit_count(size_t k) {
    return (k + PANEL_UNIT - 1) / PANEL_UNIT;
}

/* Exact sums of products over half a unit, k = 16·half …, of every lane. */
static void integer_half(const panel_unit *unit, size_t half, const int8_t *number, int32_t *sum) {
    for (size_t i = half * HALF; i < (half + 1) * HALF; i++)
        for (size_t lane = 0; lane < LANES; lane++)
            sum[lane] += unit->number[i][lane] * number[i];
}

static void product_a8(const panel_unit *units, const linear_call *call, uint32_t row, float *f) {
    const activation_view *x = call->x;
    bool minimum = panels_minimum(call->weight->type);
    bool sub_blocks = panels_sub_blocks(call->weight->type);
    for (size_t u = 0; u < unit_count(x->k); u++) {
        const int8_t *number = x->number + row * x->stride + u * PANEL_UNIT;
        const int32_t *integer_sum = x->integer_sum + row * x->sum_stride + 2 * u;
        float scale = x->scale[row * x->scale_stride + u];
        float sum = x->sum[row * x->scale_stride + u];
        int32_t products[2][LANES] = {0};
        for (size_t half = 0; half < 2; half++)
            integer_half(&units[u], half, number, products[half]);
        for (size_t lane = 0; lane < LANES; lane++) {
            const float w[2] = {units[u].scale[0][lane] * scale, units[u].scale[1][lane] * scale};
            const float m[2] = {units[u].minimum[0][lane], units[u].minimum[1][lane]};
            if (!sub_blocks) {
                f[lane] = fmaf((float)(products[0][lane] + products[1][lane]), w[0], f[lane]);
                f[lane] = minimum ? fmaf(m[0], sum, f[lane]) : f[lane];
                continue;
            }
            for (size_t half = 0; half < 2; half++) {
                f[lane] = fmaf((float)products[half][lane], w[half], f[lane]);
                if (minimum)
                    f[lane] = fmaf(m[half], scale * (float)integer_sum[half], f[lane]);
            }
        }
    }
}

static void product_a16(const panel_unit *units, const linear_call *call, uint32_t row, float *f) {
    const activation_view *x = call->x;
    bool by_row = call->weight->type == QUANT_Q8C;
    for (size_t u = 0; u < unit_count(x->k); u++) {
        size_t at = row * x->stride + u * PANEL_UNIT;
        float scale = x->scale[row * x->scale_stride + u];
        int32_t high[LANES] = {0}, low[LANES] = {0};
        for (size_t half = 0; half < 2; half++) {
            integer_half(&units[u], half, x->number + at, high);
            integer_half(&units[u], half, x->low + at, low);
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            float product = (float)(A16_RADIX * high[lane] + low[lane]);
            f[lane] = fmaf(product, by_row ? scale : units[u].scale[0][lane] * scale, f[lane]);
        }
    }
    for (size_t lane = 0; by_row && lane < LANES; lane++)
        f[lane] *= units[0].scale[0][lane];
}

static void product_a8r(const panel_unit *units, const linear_call *call, uint32_t row, float *f) {
    const activation_view *x = call->x;
    bool by_row = call->weight->type == QUANT_Q8R;
    for (size_t begin = 0; begin < unit_count(x->k); begin += A8R_UNITS) {
        float scale = x->scale[row * x->scale_stride + begin / A8R_UNITS];
        int32_t sum[LANES] = {0};
        for (size_t u = begin; u < size_min(begin + A8R_UNITS, unit_count(x->k)); u++)
            for (size_t half = 0; half < 2; half++)
                integer_half(&units[u], half, x->number + row * x->stride + u * PANEL_UNIT, sum);
        for (size_t lane = 0; lane < LANES; lane++)
            f[lane] = fmaf((float)sum[lane], by_row ? scale : units[begin].scale[0][lane] * scale,
                           f[lane]);
    }
    for (size_t lane = 0; by_row && lane < LANES; lane++)
        f[lane] *= units[0].scale[0][lane];
}

static void product_float(const float *weights, const linear_call *call, uint32_t row, float *f) {
    const float *x = call->x->x + row * call->x->stride;
    for (size_t i = 0; i < call->x->k; i++)
        for (size_t lane = 0; lane < LANES; lane++)
            f[lane] = fmaf(weights[i * LANES + lane], x[i], f[lane]);
    if (call->weight->type == QUANT_F8C)
        for (size_t lane = 0; lane < LANES; lane++)
            f[lane] *= weights[call->x->k * LANES + lane];
}

/* F8C: the numbers without their scales, which come behind them. */
static void decode_f8c(const uint8_t *panel, size_t k, float *out) {
    for (size_t i = 0; i < k; i++)
        for (size_t lane = 0; lane < LANES; lane++)
            out[i * LANES + lane] =
                quant_f8_e4m3_to_f32(panel[i / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4]);
    memcpy(out + k * LANES, panel + (k + 3) / 4 * PANEL_LINE_BYTES, LANES * sizeof(float));
}

static void take_apart(const weight_view *weight, size_t panel, uint8_t *scratch) {
    uint64_t bytes = 0;
    bool known = weight_panel_bytes(weight->type, weight->k, &bytes);
    assert(known && weight->layout == QUANT_LAYOUT_PANELS);
    (void)known;
    const uint8_t *data = weight->data + panel * (size_t)bytes;
    if (weight->type == QUANT_F8C) {
        decode_f8c(data, weight->k, (float *)(void *)scratch);
    } else if (panels_form(weight->type) == PRODUCT_FLOAT) {
        weight_decode_panel(weight, panel, (float *)(void *)scratch);
    } else {
        panel_unit *units = (panel_unit *)(void *)scratch;
        for (size_t u = 0; u < unit_count(weight->k); u++)
            panel_unit_read(weight->type, data, weight->k, u, &units[u]);
    }
}

static void finish(const linear_call *call, size_t panel, uint32_t row, const float *f) {
    size_t first = panel * LANES;
    size_t count = size_min(call->weight->rows - first, LANES);
    float *out = call->out + row * call->out_stride + first;
    for (size_t lane = 0; lane < count; lane++) {
        float y = call->bias == NULL ? f[lane] : f[lane] + call->bias[first + lane];
        out[lane] = call->end == LINEAR_STORE ? y : fmaf(y, call->add_scale, out[lane]);
    }
}

void plain_linear(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    assert(call->x->form == panels_form(call->weight->type) && call->x->k == call->weight->k);
    for (size_t panel = first; panel < last; panel++) {
        take_apart(call->weight, panel, scratch);
        for (uint32_t row = 0; row < call->x->rows; row++) {
            float f[LANES] = {0};
            switch (call->x->form) {
            case PRODUCT_A8:
                product_a8((const panel_unit *)(const void *)scratch, call, row, f);
                break;
            case PRODUCT_A16:
                product_a16((const panel_unit *)(const void *)scratch, call, row, f);
                break;
            case PRODUCT_A8R:
                product_a8r((const panel_unit *)(const void *)scratch, call, row, f);
                break;
            default:
                product_float((const float *)(const void *)scratch, call, row, f);
            }
            finish(call, panel, row, f);
        }
    }
}
