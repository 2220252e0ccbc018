/* Products with F32, F16, BF16, F8C. Few rows: several panels at a time (float.h), unpacked in
 * registers. More than 16: 16-bit and 8-bit types are unpacked to F32 once for all rows. */
#include "device/cpu/avx512/float.h"

#define FEW_ROWS   3
#define CHUNK_ROWS 4096

/* ---- Few rows ---- */

AVX512_INLINE void few_panels(const float_kind kind, const int count, const int panels,
                              const linear_call *call, size_t panel_bytes, size_t panel) {
    const activation_view *x = call->x;
    const float *rows[FEW_ROWS];
    for (int row = 0; row < count; row++)
        rows[row] = x->x + (size_t)row * x->stride;
    const uint8_t *data = call->weight->data + panel * panel_bytes;
    __m512 sum[TILE_ROWS_MAX];
    float_tile(kind, count, panels, data, panel_bytes, x->k, rows, sum);
    for (int p = 0; p < panels; p++) {
        __m512 *of_panel = sum + p * count;
        if (kind == FLOAT_F8C)
            for (int row = 0; row < count; row++)
                of_panel[row] = _mm512_mul_ps(of_panel[row],
                                              float_scales(data + (size_t)p * panel_bytes, x->k));
        product_finish(call, panel + (size_t)p, 0, (size_t)count, of_panel);
    }
}

AVX512_INLINE void few_rows(const float_kind kind, const int count, const int panels,
                            const linear_call *call, size_t panel_bytes, size_t first,
                            size_t last) {
    size_t panel = first;
    for (; panel + (size_t)panels <= last; panel += (size_t)panels)
        few_panels(kind, count, panels, call, panel_bytes, panel);
    for (; panel < last; panel++)
        few_panels(kind, count, 1, call, panel_bytes, panel);
}

/* ---- More ---- */

/* Sums of one panel with the lines of `kind`, which may be an unpacked one. */
AVX512_INLINE void tile_rows_of(const float_kind kind, const product *product, const uint8_t *lines,
                                size_t row, size_t rows, __m512 *sum) {
    const activation_view *x = product->call->x;
    int compiled = tile_compiled(rows);
    const float *source[TILE_ROWS_MAX];
    for (size_t i = 0; i < (size_t)compiled; i++)
        source[i] = x->x + (row + tile_row(i, rows)) * x->stride;
    switch (compiled) {
    case 1:
    case 2:
    case 3:
    case 4:
        for (size_t i = rows; i < 4; i++)
            source[i] = source[rows - 1];
        float_tile(kind, 4, 1, lines, 0, x->k, source, sum);
        break;
    case 6:
        float_tile(kind, 6, 1, lines, 0, x->k, source, sum);
        break;
    case 8:
        float_tile(kind, 8, 1, lines, 0, x->k, source, sum);
        break;
    case 10:
    case 12:
        for (size_t i = rows; i < 12; i++)
            source[i] = source[rows - 1];
        float_tile(kind, 12, 1, lines, 0, x->k, source, sum);
        break;
    default:
        for (size_t i = rows; i < 16; i++)
            source[i] = source[rows - 1];
        float_tile(kind, 16, 1, lines, 0, x->k, source, sum);
        break;
    }
}

static void tile_f32(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                     size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    tile_rows_of(FLOAT_F32, product, panel, row, rows, sum);
}

AVX512_INLINE void tile_either(const float_kind kind, const product *product, const uint8_t *panel,
                               const uint8_t *unpacked, size_t row, size_t rows, __m512 *sum) {
    if (unpacked != NULL)
        tile_f32(product, unpacked, NULL, row, rows, sum);
    else
        tile_rows_of(kind, product, panel, row, rows, sum);
    if (kind != FLOAT_F8C)
        return;
    __m512 scale = float_scales(panel, product->call->weight->k);
    for (size_t i = 0; i < rows; i++)
        sum[i] = _mm512_mul_ps(sum[i], scale);
}

AVX512_INLINE void unpack_lines(const float_kind kind, const product *product, const uint8_t *panel,
                                uint8_t *out) {
    size_t k = product->call->weight->k, step = float_step(kind);
    for (size_t at = 0; at < k; at += step, panel += PANEL_LINE_BYTES) {
        __m512 weight[STEP_MAX];
        _mm_prefetch((const char *)panel + PREFETCH_BYTES, _MM_HINT_T0);
        read_floats(kind, panel, weight);
        for (size_t i = 0; i < step; i++, out += PANEL_LINE_BYTES)
            _mm512_store_ps(out, weight[i]);
    }
}

/* Whole lines of the longest step. */
static size_t unpacked_bytes(const product *product) {
    return ((size_t)product->call->weight->k + STEP_MAX - 1) / STEP_MAX * STEP_MAX *
           PANEL_LINE_BYTES;
}

/* ---- The entries ---- */

AVX512_INLINE void linear_float(const float_kind kind, product_tile tile, product_unpack unpack,
                                const linear_call *call, size_t first, size_t last,
                                uint8_t *scratch) {
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(call->weight->type, call->weight->k, &panel_bytes))
        return;
    switch (call->x->rows) {
    case 1:
        few_rows(kind, 1, 4, call, panel_bytes, first, last);
        return;
    case 2:
        few_rows(kind, 2, 4, call, panel_bytes, first, last);
        return;
    case FEW_ROWS:
        few_rows(kind, FEW_ROWS, 4, call, panel_bytes, first, last);
        return;
    default:
        break;
    }
    product_kind whole = {.chunk_rows = CHUNK_ROWS,
                          .unpacked_bytes = unpacked_bytes,
                          .unpack = unpack,
                          .tile = tile,
                          .fused_rows = TILE_ROWS_MAX};
    product_run(&whole, call, first, last, scratch);
}

void linear_avx512_f32(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    linear_float(FLOAT_F32, tile_f32, NULL, call, first, last, scratch);
}

/* The entry of a type that is unpacked for many rows, with its tile and its unpacking. */
#define FLOAT_LINEAR(type, kind)                                                                   \
    static void tile_##type(const product *product, const uint8_t *panel, const uint8_t *unpacked, \
                            size_t row, size_t rows, __m512 *sum) {                                \
        tile_either(kind, product, panel, unpacked, row, rows, sum);                               \
    }                                                                                              \
    static void unpack_##type(const product *product, const uint8_t *panel, uint8_t *out) {        \
        unpack_lines(kind, product, panel, out);                                                   \
    }                                                                                              \
    void linear_avx512_##type(const linear_call *call, size_t first, size_t last,                  \
                              uint8_t *scratch) {                                                  \
        linear_float(kind, tile_##type, unpack_##type, call, first, last, scratch);                \
    }

FLOAT_LINEAR(f16, FLOAT_F16)
FLOAT_LINEAR(bf16, FLOAT_BF16)
FLOAT_LINEAR(f8c, FLOAT_F8C)
