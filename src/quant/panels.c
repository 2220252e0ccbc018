/* PANELS of plain floats, and the choice among the types. */
#include "quant/panels_int.h"

#include "base/checked.h"
#include "quant/decode_int.h"

#include <assert.h>

bool panels_known(quant_type type) {
    switch ((int)type) {
    case QUANT_F32:
    case QUANT_F16:
    case QUANT_BF16:
    case QUANT_F8C:
    case QUANT_Q8C:
    case QUANT_Q4R:
    case QUANT_Q8R:
        return true;
    default:
        return panel_shape_of(type) != NULL;
    }
}

bool panels_bytes(quant_type type, uint64_t k, uint64_t *bytes) {
    if (k > UINT32_MAX)
        return false; /* weight_view's k; below, nothing can wrap */
    const panel_shape *shape = panel_shape_of(type);
    if (shape != NULL)
        return panels_group_bytes(shape, k, bytes);
    switch ((int)type) {
    case QUANT_F32:
        *bytes = k * PANEL_LINE_BYTES;
        return true;
    case QUANT_F16:
    case QUANT_BF16:
        *bytes = (k + 1) / 2 * PANEL_LINE_BYTES;
        return true;
    case QUANT_F8C:
    case QUANT_Q8C:
        return panels_row_scale_bytes(k, bytes);
    case QUANT_Q4R:
        return panels_q4r_bytes(k, bytes);
    case QUANT_Q8R:
        return panels_q8r_bytes(k, bytes);
    default:
        return false;
    }
}

product_form panels_form(quant_type type) {
    switch ((int)type) {
    case QUANT_F32:
    case QUANT_F16:
    case QUANT_BF16:
    case QUANT_F8C:
        return PRODUCT_FLOAT;
    case QUANT_Q8C:
    case QUANT_Q8B:
    case QUANT_Q8_0:
        return PRODUCT_A16;
    case QUANT_Q4R:
    case QUANT_Q8R:
        return PRODUCT_A8R;
    default:
        assert(panel_shape_of(type) != NULL);
        return PRODUCT_A8;
    }
}

bool panels_sub_blocks(quant_type type) {
    const panel_shape *shape = panel_shape_of(type);
    return shape != NULL && shape->sub_blocks;
}

bool panels_minimum(quant_type type) {
    const panel_shape *shape = panel_shape_of(type);
    return shape != NULL && shape->minimum;
}

void panel_unit_read(quant_type type, const uint8_t *panel, size_t k, size_t unit,
                     panel_unit *out) {
    assert(unit * PANEL_UNIT < k && panels_form(type) != PRODUCT_FLOAT);
    const panel_shape *shape = panel_shape_of(type);
    if (shape != NULL)
        panels_group_unit(shape, panel, unit, out);
    else if (type == QUANT_Q4R)
        panels_q4r_unit(panel, k, unit, out);
    else if (type == QUANT_Q8R)
        panels_q8r_unit(panel, k, unit, out);
    else
        panels_row_scale_unit(panel, k, unit, out);
}

/* Lines of 16-bit floats, two k each. */
static inline void decode_half_lines(bool brain, const uint8_t *panel, size_t k, float *out) {
    for (size_t line = 0; line < k / 2; line++) {
        const uint8_t *source = panel + line * PANEL_LINE_BYTES;
        float *first = out + line * 2 * QUANT_PANEL_ROWS;
        for (int row = 0; row < QUANT_PANEL_ROWS; row++) {
            uint32_t pair = load_u32(source + 4 * row);
            first[row] = brain ? float_from_bits(pair << 16) : half_to_float((uint16_t)pair);
            first[row + QUANT_PANEL_ROWS] =
                brain ? float_from_bits(pair & 0xffff0000u) : half_to_float((uint16_t)(pair >> 16));
        }
    }
    if (k % 2 != 0) {
        const uint8_t *source = panel + k / 2 * PANEL_LINE_BYTES;
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++) {
            uint16_t half = load_u16(source + 4 * row);
            out[(k - 1) * QUANT_PANEL_ROWS + row] =
                brain ? quant_bf16_to_f32(half) : half_to_float(half);
        }
    }
}

void panels_decode(quant_type type, const uint8_t *panel, size_t k, size_t begin, size_t count,
                   float *out) {
    const panel_shape *shape = panel_shape_of(type);
    if (shape != NULL) {
        panels_group_decode(shape, panel, begin, count, out);
        return;
    }
    switch ((int)type) {
    case QUANT_F32:
        memcpy(out, panel + begin * PANEL_LINE_BYTES, count * PANEL_LINE_BYTES);
        return;
    case QUANT_F16:
        decode_half_lines(false, panel + begin / 2 * PANEL_LINE_BYTES, count, out);
        return;
    case QUANT_BF16:
        decode_half_lines(true, panel + begin / 2 * PANEL_LINE_BYTES, count, out);
        return;
    case QUANT_F8C:
    case QUANT_Q8C:
        panels_row_scale_decode(type, panel, k, begin, count, out);
        return;
    case QUANT_Q4R:
        panels_q4r_decode(panel, k, begin, count, out);
        return;
    case QUANT_Q8R:
        panels_q8r_decode(panel, k, begin, count, out);
        return;
    default:
        assert(0 && "a type without panels");
    }
}

void panels_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out) {
    const panel_shape *shape = panel_shape_of(type);
    if (shape != NULL) {
        panels_group_decode_row(shape, panel, k, lane, out);
        return;
    }
    switch ((int)type) {
    case QUANT_F32:
        for (size_t i = 0; i < k; i++)
            memcpy(&out[i], panel + i * PANEL_LINE_BYTES + 4 * lane, sizeof(float));
        return;
    case QUANT_F16:
        for (size_t i = 0; i < k; i++)
            out[i] = load_half(panel + i / 2 * PANEL_LINE_BYTES + 4 * lane + i % 2 * 2);
        return;
    case QUANT_BF16:
        for (size_t i = 0; i < k; i++)
            out[i] = quant_bf16_to_f32(
                load_u16(panel + i / 2 * PANEL_LINE_BYTES + 4 * lane + i % 2 * 2));
        return;
    case QUANT_F8C:
    case QUANT_Q8C:
        panels_row_scale_decode_row(type, panel, k, lane, out);
        return;
    case QUANT_Q4R:
        panels_q4r_decode_row(panel, k, lane, out);
        return;
    case QUANT_Q8R:
        panels_q8r_decode_row(panel, k, lane, out);
        return;
    default:
        assert(0 && "a type without panels");
    }
}

void panels_clear(quant_type type, size_t k, uint8_t *out) {
    uint64_t bytes = 0;
    bool known = panels_bytes(type, k, &bytes);
    assert(known);
    (void)known;
    memset(out, 0, (size_t)bytes);
}

void panels_encode_plain(quant_type type, const float *source, size_t rows, size_t k,
                         uint8_t *out) {
    panels_clear(type, k, out);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < k; i++) {
            float number = source[row * k + i];
            if (type == QUANT_F32) {
                memcpy(out + i * PANEL_LINE_BYTES + 4 * row, &number, sizeof(number));
                continue;
            }
            uint16_t half =
                type == QUANT_F16 ? quant_f32_to_f16(number) : quant_f32_to_bf16(number);
            memcpy(out + i / 2 * PANEL_LINE_BYTES + 4 * row + i % 2 * 2, &half, sizeof(half));
        }
}

float weight_largest(quant_type type) {
    switch ((int)type) {
    case QUANT_F16:
    case QUANT_Q4_1:
    case QUANT_Q4M64:
    case QUANT_Q5_1:
        return 65504.0f;
    case QUANT_BF16:
        return 0x1.fep127f;
    case QUANT_Q8_0:
    case QUANT_Q8B:
        return 65504.0f * 127.0f;
    case QUANT_Q4_0:
    case QUANT_Q4B64:
        return 65504.0f * 7.0f;
    case QUANT_Q5_0:
        return 65504.0f * 15.0f;
    case QUANT_Q4R: /* the rotation of 256 k may gather 16 times the largest in one number */
        return 65504.0f * 120.0f / 16.0f;
    case QUANT_Q8R:
        return 0x1.fffffep127f / 65536.0f; /* sums of 256, of numbers 16 times as large */
    default:
        return 0x1.fffffep127f;
    }
}

bool weight_encodes(quant_type type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || type == QUANT_F8C ||
           type == QUANT_Q8C || type == QUANT_Q8R;
}

void weight_encode_panel(quant_type type, const float *source, size_t rows, size_t k,
                         uint8_t *out) {
    assert(rows >= 1 && rows <= QUANT_PANEL_ROWS && weight_encodes(type));
    if (type == QUANT_F8C)
        panels_f8c_encode(source, rows, k, out);
    else if (type == QUANT_Q8C)
        panels_q8c_encode(source, rows, k, out);
    else if (type == QUANT_Q8R)
        panels_q8r_encode(source, rows, k, out);
    else
        panels_encode_plain(type, source, rows, k, out);
}
