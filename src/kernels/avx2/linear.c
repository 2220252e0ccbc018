/* The walk of integer products over panels and pieces (linear_int.h), and what becomes of sums. */
#include "kernels/avx2/linear_int.h"

#include "base/checked.h"

#include <assert.h>

#define PIECE_BYTES_MAX 12288
#define PANELS_TOGETHER 2

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

/* Where a worker keeps what: two panels at a time, so that records read from the second cache serve
 * both. */
typedef struct walk {
    const linear_family *family;
    size_t k;
    size_t panel_bytes;
    size_t rows;
    const uint8_t *records;
    uint8_t *piece[PANELS_TOGETHER];
    float *sums[PANELS_TOGETHER];
} walk;

/* Part `part` of `parts` of the packed lines of the next piece. */
static void prefetch_part(const uint8_t *next, size_t bytes, size_t part, size_t parts) {
    size_t lines = bytes / PANEL_LINE_BYTES;
    size_t begin = lines * part / parts, end = lines * (part + 1) / parts;
    prefetch_lines(next + begin * PANEL_LINE_BYTES, end - begin);
}

/* The next tile of rows with one panel; the first tile unpacks the piece. */
static void tile_sums(const walk *walk, size_t p, const uint8_t *source, size_t k,
                      const uint8_t *records, size_t tile, size_t tiles) {
    const linear_family *family = walk->family;
    size_t rows = size_min(walk->rows - tile * TILE_ROWS, TILE_ROWS);
    size_t ahead = tiles == 1 ? PREFETCH_AHEAD : 0;
    float *sums = walk->sums[p] + tile * TILE_ROWS * QUANT_PANEL_ROWS;
    if (tiles > 1)
        prefetch_part(source + family->packed_bytes, family->packed_bytes, tile, tiles);
    if (tiles == 1 && family->few != NULL) {
        family->few(source, records, k, ahead, walk->piece[p], sums, rows);
        return;
    }
    if (tile == 0)
        family->unpack(source, k, ahead, walk->piece[p]);
    family->product(walk->piece[p], records, k, sums, rows);
}

/* Sums of `panels` panels, side by side. With many rows, packed weights are asked for little by
 * little while the piece before is multiplied; with few, as far ahead as it takes. */
static void panel_sums(const walk *walk, const uint8_t *panel, size_t panels) {
    const linear_family *family = walk->family;
    size_t tiles = (walk->rows + TILE_ROWS - 1) / TILE_ROWS;
    const uint8_t *records = walk->records;
    for (size_t p = 0; p < panels; p++)
        memset(walk->sums[p], 0, walk->rows * QUANT_PANEL_ROWS * sizeof(float));
    for (size_t begin = 0; begin < walk->k; begin += PIECE_K, panel += family->packed_bytes)
        for (size_t tile = 0; tile < tiles; tile++) {
            size_t rows = size_min(walk->rows - tile * TILE_ROWS, TILE_ROWS);
            const uint8_t *next = records + rows * family->record_bytes;
            prefetch_lines(next, rows * family->record_bytes / PANEL_LINE_BYTES);
            for (size_t p = 0; p < panels; p++)
                tile_sums(walk, p, panel + p * walk->panel_bytes, walk->k - begin, records, tile,
                          tiles);
            records = next;
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
    walk walk = {.family = family, .k = weight->k, .panel_bytes = (size_t)panel_bytes};
    for (size_t p = 0; p < PANELS_TOGETHER; p++) {
        walk.sums[p] = (float *)(void *)scratch;
        walk.piece[p] = scratch + BYTE_CHUNK * QUANT_PANEL_ROWS * sizeof(float);
        scratch = walk.piece[p] + PIECE_BYTES_MAX;
    }
    walk.records = scratch;
    size_t most = chunk_rows(x->rows, family->chunk);
    for (size_t row = 0; row < x->rows; row += most) {
        walk.rows = size_min(x->rows - row, most);
        prepare_chunk(family, x, row, walk.rows, scratch);
        for (size_t panel = first; panel < last;) {
            const uint8_t *data = weight->data + panel * walk.panel_bytes;
            size_t together = walk.rows > TILE_ROWS ? size_min(last - panel, PANELS_TOGETHER) : 1;
            panel_sums(&walk, data, together);
            for (size_t p = 0; p < together; p++, panel++, data += panel_bytes) {
                const uint8_t *scale = data + (weight->k + 3) / 4 * PANEL_LINE_BYTES;
                linear_finish(call, panel, row, walk.rows, walk.sums[p],
                              family->row_scales ? (const float *)(const void *)scale : NULL);
            }
        }
    }
}
