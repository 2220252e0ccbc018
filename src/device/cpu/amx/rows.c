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

/* Bias, then store or add. */
AMX_INLINE void finish_row(const linear_call *call, __m512 y, __m512 bias, __mmask16 lanes,
                           float *out) {
    if (call->bias != NULL)
        y = _mm512_add_ps(y, bias);
    if (call->end == LINEAR_ADD)
        y = _mm512_fmadd_ps(y, _mm512_set1_ps(call->add_scale), _mm512_maskz_loadu_ps(lanes, out));
    _mm512_mask_storeu_ps(out, lanes, y);
}

void amx_finish(const linear_call *call, size_t panel, size_t panels, const amx_rows *rows,
                const float *sums, size_t stride) {
    __mmask16 lanes[2];
    __m512 bias[2];
    for (size_t i = 0; i < 2; i++) {
        size_t output = (panel + i) * QUANT_PANEL_ROWS;
        size_t outputs =
            call->weight->rows > output && i < panels ? call->weight->rows - output : 0;
        lanes[i] = (__mmask16)(outputs >= 16 ? 0xffff : (1u << outputs) - 1);
        bias[i] = _mm512_maskz_loadu_ps(call->bias == NULL ? 0 : lanes[i], call->bias + output);
    }
    size_t done = rows->first;
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t begin = amx_rows_begin(rows, tile);
        const float *from = sums + tile * AMX_TILE_ROWS * stride;
        for (; done < begin + rows->height; done++) {
            const float *sum = from + (done - begin) * stride;
            float *out = call->out + done * call->out_stride + panel * QUANT_PANEL_ROWS;
            finish_row(call, _mm512_load_ps(sum), bias[0], lanes[0], out);
            if (panels > 1)
                finish_row(call, _mm512_load_ps(sum + QUANT_PANEL_ROWS), bias[1], lanes[1],
                           out + QUANT_PANEL_ROWS);
        }
    }
}
