/* Panels and rows of one call, in the order that the caches like.
 *
 * Few rows: panel after panel, unpacked in registers, read once. Many rows: a few panels are
 * unpacked into the second cache; then every tile of rows meets all of them, while its rows of x
 * lie in the first.
 */
#include "device/cpu/avx512/tile.h"

/* Lanes of the panel that are rows of the weight. */
static __mmask16 panel_lanes(const weight_view *weight, size_t panel) {
    return lanes_left(weight->rows - panel * QUANT_PANEL_ROWS);
}

void product_fetch_out(const linear_call *call, size_t panel, size_t row, size_t rows) {
    const float *out = call->out + row * call->out_stride + panel * QUANT_PANEL_ROWS;
    for (size_t i = 0; i < rows; i++)
        _mm_prefetch((const char *)(out + i * call->out_stride), _MM_HINT_T0);
}

void product_finish(const linear_call *call, size_t panel, size_t row, size_t rows,
                    const __m512 *sum) {
    size_t at = panel * QUANT_PANEL_ROWS;
    __mmask16 lanes = panel_lanes(call->weight, panel);
    float *out = call->out + row * call->out_stride + at;
    __m512 bias = _mm512_setzero_ps();
    if (call->bias != NULL)
        bias = _mm512_maskz_loadu_ps(lanes, call->bias + at);
    for (size_t i = 0; i < rows; i++, out += call->out_stride) {
        __m512 y = call->bias != NULL ? _mm512_add_ps(sum[i], bias) : sum[i];
        if (call->end == LINEAR_ADD)
            y = _mm512_fmadd_ps(y, _mm512_set1_ps(call->add_scale),
                                _mm512_maskz_loadu_ps(lanes, out));
        _mm512_mask_storeu_ps(out, lanes, y);
    }
}

/* Panels [panel, panel + panels), unpacked or as they lie, times all rows of the chunk. */
static void run_panels(const product *product, size_t panel, size_t panels, size_t rows,
                       size_t unpacked_bytes) {
    const linear_call *call = product->call;
    const uint8_t *data = call->weight->data + panel * product->panel_bytes;
    if (unpacked_bytes > 0)
        for (size_t i = 0; i < panels; i++)
            product->kind->unpack(product, data + i * product->panel_bytes,
                                  product->unpacked + i * unpacked_bytes);
    for (size_t done = 0, here; done < rows; done += here) {
        here = tile_rows(rows - done);
        for (size_t i = 0; i < panels; i++) {
            __m512 sum[TILE_ROWS_MAX];
            product_fetch_out(call, panel + i, product->chunk + done, here);
            product->kind->tile(product, data + i * product->panel_bytes,
                                unpacked_bytes > 0 ? product->unpacked + i * unpacked_bytes : NULL,
                                product->chunk + done, here, sum);
            product_finish(call, panel + i, product->chunk + done, here, sum);
        }
    }
}

void product_run(const product_kind *kind, const linear_call *call, size_t first, size_t last,
                 uint8_t *scratch) {
    const weight_view *weight = call->weight;
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(weight->type, weight->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    product product = {.kind = kind, .call = call, .panel_bytes = panel_bytes, .table = scratch};
    product.table_stride = kind->table_stride != NULL ? kind->table_stride(&product) : 0;
    size_t rows_max = call->x->rows < kind->chunk_rows ? call->x->rows : kind->chunk_rows;
    size_t table_bytes = rows_max * product.table_stride * 4;
    product.unpacked = scratch + table_bytes;
    /* NULL: a type that is never unpacked. */
    size_t unpacked_bytes = kind->unpack != NULL ? kind->unpacked_bytes(&product) : 0;
    size_t together = PANELS_TOGETHER;
    if (unpacked_bytes > 0) {
        size_t fitting = (linear_scratch_bytes(weight->k) - table_bytes) / unpacked_bytes;
        together = fitting < together ? fitting : together;
    }
    for (size_t chunk = 0; chunk < call->x->rows; chunk += kind->chunk_rows) {
        size_t rows = call->x->rows - chunk;
        if (rows > kind->chunk_rows)
            rows = kind->chunk_rows;
        product.chunk = chunk;
        if (kind->fill != NULL)
            kind->fill(&product, rows);
        size_t unpacked = rows > kind->fused_rows ? unpacked_bytes : 0;
        for (size_t panel = first; panel < last; panel += together)
            run_panels(&product, panel, last - panel < together ? last - panel : together, rows,
                       unpacked);
    }
}
