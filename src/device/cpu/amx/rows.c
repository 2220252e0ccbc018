/* What all products on tiles share: the configuration, and the way from sums to outputs. */
#include "device/cpu/amx/amx_int.h"

tile_configuration amx_configuration(size_t height, size_t depth, int weights) {
    tile_configuration made = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        bool activation = tile >= 4 && tile < weights;
        made.rows[tile] = (uint8_t)(tile < weights ? height : depth / 4);
        made.row_bytes[tile] = (uint16_t)(activation ? depth : 64);
    }
    return made;
}

void amx_finish(const linear_call *call, size_t panel, const amx_rows *rows, const float *sums,
                size_t stride) {
    size_t output = panel * QUANT_PANEL_ROWS;
    size_t outputs = call->weight->rows - output;
    __mmask16 lanes = (__mmask16)(outputs >= 16 ? 0xffff : (1u << outputs) - 1);
    __m512 bias = _mm512_setzero_ps();
    if (call->bias != NULL)
        bias = _mm512_maskz_loadu_ps(lanes, call->bias + output);
    __m512 add_scale = _mm512_set1_ps(call->add_scale);
    size_t done = rows->first;
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t begin = amx_rows_begin(rows, tile);
        const float *from = sums + tile * AMX_TILE_ROWS * stride;
        for (; done < begin + rows->height; done++) {
            __m512 y = _mm512_load_ps(from + (done - begin) * stride);
            float *out = call->out + done * call->out_stride + output;
            if (call->bias != NULL)
                y = _mm512_add_ps(y, bias);
            if (call->end == LINEAR_ADD)
                y = _mm512_fmadd_ps(y, add_scale, _mm512_maskz_loadu_ps(lanes, out));
            _mm512_mask_storeu_ps(out, lanes, y);
        }
    }
}
