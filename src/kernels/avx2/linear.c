/* The walk of integer products over panels and pieces (linear_int.h), and what becomes of sums. */
#include "kernels/avx2/linear_int.h"

#include "base/checked.h"

#include <assert.h>

#define PIECE_BYTES_MAX 16384

/* Rows of one chunk: as even as they come, whole tiles. */
static size_t chunk_rows(size_t rows, size_t most) {
    size_t chunks = (rows + most - 1) / most;
    size_t even = (rows + chunks - 1) / chunks;
    return size_min((even + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, most);
}

ALWAYS_INLINE void finish_half(const linear_call *call, size_t output, __m256i lanes, __m256 y,
                               float *out) {
    if (call->bias != NULL)
        y = _mm256_add_ps(y, _mm256_maskload_ps(call->bias + output, lanes));
    if (call->end == LINEAR_ADD)
        y = _mm256_fmadd_ps(y, _mm256_set1_ps(call->add_scale), _mm256_maskload_ps(out, lanes));
    _mm256_maskstore_ps(out, lanes, y);
}

void linear_finish(const linear_call *call, size_t panel, size_t row, size_t rows,
                   const float *sums, const float *scale) {
    size_t output = panel * QUANT_PANEL_ROWS;
    int outputs = (int)size_min(call->weight->rows - output, QUANT_PANEL_ROWS);
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(outputs), index);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(outputs - 8), index);
    for (size_t i = 0; i < rows; i++) {
        float *out = call->out + (row + i) * call->out_stride + output;
        __m256 y0 = _mm256_load_ps(sums + i * QUANT_PANEL_ROWS);
        __m256 y1 = _mm256_load_ps(sums + i * QUANT_PANEL_ROWS + 8);
        if (scale != NULL) {
            y0 = _mm256_mul_ps(y0, _mm256_load_ps(scale));
            y1 = _mm256_mul_ps(y1, _mm256_load_ps(scale + 8));
        }
        finish_half(call, output, low, y0, out);
        if (outputs > 8)
            finish_half(call, output + 8, high, y1, out + 8);
    }
}

/* The records of 256 k lie together, row after row: tiles read them front to back. */
static void prepare_chunk(const linear_family *family, const activation_view *x, size_t row,
                          size_t rows, uint8_t *records) {
    for (size_t piece = 0; piece * PIECE_K < x->k; piece++)
        for (size_t i = 0; i < rows; i++, records += family->record_bytes)
            family->prepare(x, row + i, piece, records);
}

static void panel_sums(const linear_family *family, const uint8_t *panel, size_t k,
                       const uint8_t *records, size_t rows, void *piece, float *sums) {
    memset(sums, 0, rows * QUANT_PANEL_ROWS * sizeof(float));
    for (size_t begin = 0; begin < k; begin += PIECE_K, panel += family->packed_bytes) {
        family->unpack(panel, k - begin, piece);
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            size_t tile = size_min(rows - i, TILE_ROWS);
            const uint8_t *next = records + tile * family->record_bytes;
            for (size_t at = 0; at < tile * family->record_bytes; at += PANEL_LINE_BYTES)
                _mm_prefetch((const char *)next + at, _MM_HINT_T0);
            family->product(piece, records, k - begin, sums + i * QUANT_PANEL_ROWS, tile);
            records = next;
        }
    }
}

void linear_pieces(const linear_family *family, const linear_call *call, size_t first, size_t last,
                   uint8_t *scratch) {
    const weight_view *weight = call->weight;
    const activation_view *x = call->x;
    uint64_t panel_bytes = 0;
    bool known = panels_bytes(weight->type, weight->k, &panel_bytes);
    assert(known && x->k == weight->k);
    (void)known;
    float *sums = (float *)(void *)scratch;
    uint8_t *piece = scratch + BYTE_CHUNK * QUANT_PANEL_ROWS * sizeof(float);
    uint8_t *records = piece + PIECE_BYTES_MAX;
    size_t most = chunk_rows(x->rows, family->chunk);
    for (size_t row = 0; row < x->rows; row += most) {
        size_t rows = size_min(x->rows - row, most);
        prepare_chunk(family, x, row, rows, records);
        for (size_t panel = first; panel < last; panel++) {
            const uint8_t *data = weight->data + panel * (size_t)panel_bytes;
            const uint8_t *scale = data + (weight->k + 3) / 4 * PANEL_LINE_BYTES;
            panel_sums(family, data, weight->k, records, rows, piece, sums);
            linear_finish(call, panel, row, rows, sums,
                          family->row_scales ? (const float *)(const void *)scale : NULL);
        }
    }
}
