/* The walk of integer products over panels and pieces (linear_int.h), and what becomes of sums. */
#include "device/cpu/avx2/linear_int.h"

#include "base/checked.h"

#include <assert.h>

#define PIECE_BYTES_MAX 12288

/* Rows of one chunk: as even as they come, whole tiles. */
static size_t chunk_rows(size_t rows, size_t most) {
    if (rows == 0)
        return most; /* nothing to cut */
    size_t chunks = (rows + most - 1) / most;
    size_t even = (rows + chunks - 1) / chunks;
    return size_min((even + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, most);
}

/* y of 8 outputs; `whole`: all of them are there. Masked stores are slow enough to show. */
ALWAYS_INLINE void finish_half(const linear_call *call, size_t output, const bool whole,
                               __m256i lanes, __m256 y, float *out) {
    if (call->bias != NULL)
        y = _mm256_add_ps(y, whole ? _mm256_loadu_ps(call->bias + output)
                                   : _mm256_maskload_ps(call->bias + output, lanes));
    if (call->end == LINEAR_ADD)
        y = _mm256_fmadd_ps(y, _mm256_set1_ps(call->add_scale),
                            whole ? _mm256_loadu_ps(out) : _mm256_maskload_ps(out, lanes));
    if (whole)
        _mm256_storeu_ps(out, y);
    else
        _mm256_maskstore_ps(out, lanes, y);
}

ALWAYS_INLINE void finish_rows(const linear_call *call, size_t output, size_t row, size_t rows,
                               const float *sums, const float *scale, const bool whole) {
    int outputs = (int)size_min(call->weight->rows - output, QUANT_PANEL_ROWS);
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (size_t i = 0; i < rows; i++)
        for (int h = 0; h < 2; h++) {
            float *out = call->out + (row + i) * call->out_stride + output + 8 * h;
            __m256 y = _mm256_load_ps(sums + i * QUANT_PANEL_ROWS + 8 * h);
            __m256i lanes = _mm256_cmpgt_epi32(_mm256_set1_epi32(outputs - 8 * h), index);
            if (scale != NULL)
                y = _mm256_mul_ps(y, _mm256_load_ps(scale + 8 * h));
            if (whole || outputs > 8 * h)
                finish_half(call, output + 8 * (size_t)h, whole, lanes, y, out);
        }
}

void linear_finish(const linear_call *call, size_t panel, size_t row, size_t rows,
                   const float *sums, const float *scale) {
    size_t output = panel * QUANT_PANEL_ROWS;
    if (call->weight->rows - output >= QUANT_PANEL_ROWS)
        finish_rows(call, output, row, rows, sums, scale, true);
    else
        finish_rows(call, output, row, rows, sums, scale, false);
}

/* The records of 256 k lie together, row after row: tiles read them front to back. */
static void prepare_chunk(const linear_family *family, const activation_view *x, size_t row,
                          size_t rows, uint8_t *records) {
    for (size_t piece = 0; piece * PIECE_K < x->k; piece++)
        for (size_t i = 0; i < rows; i++, records += family->record_bytes)
            family->prepare(x, row + i, piece, records);
}

/* Where a worker keeps what. */
typedef struct walk {
    const linear_family *family;
    size_t k;
    size_t rows;
    const uint8_t *records;
    uint8_t *piece;
    float *sums; /* [rows][16] */
} walk;

/* Part `part` of `parts` of the packed lines of the next piece. Many rows compute so long that they
 * need not ask further ahead. Inline, because gcc removes calls of functions that only prefetch. */
ALWAYS_INLINE void fetch_part(const linear_family *family, const uint8_t *source, size_t part,
                              size_t parts) {
    size_t lines = family->packed_bytes / PANEL_LINE_BYTES;
    size_t begin = lines * part / parts, end = lines * (part + 1) / parts;
    const uint8_t *from = source + begin * PANEL_LINE_BYTES;
    if (parts <= 2)
        fetch_lines(from, family->packed_bytes, end - begin);
    else
        prefetch_lines(from + family->packed_bytes, end - begin);
}

/* One piece with all rows. Packed weights are asked for little by little while the piece before
 * them is multiplied; the records of x follow one another, and need not be asked for. */
static void piece_sums(const walk *walk, const uint8_t *source, size_t k, const uint8_t *records) {
    const linear_family *family = walk->family;
    size_t tiles = (walk->rows + TILE_ROWS - 1) / TILE_ROWS;
    size_t tile = 0;
    bool together = family->first != NULL;
    if (together) {
        family->first(source, records, k, family->packed_bytes, walk->piece, walk->sums, TILE_ROWS);
        tile = 1;
    } else {
        family->unpack(source, k, 0, walk->piece);
    }
    for (; tile < tiles; tile++) {
        size_t row = tile * TILE_ROWS;
        if (!together)
            fetch_part(family, source, tile, tiles);
        family->product(walk->piece, records + row * family->record_bytes, k,
                        walk->sums + row * QUANT_PANEL_ROWS, size_min(walk->rows - row, TILE_ROWS));
    }
}

/* The same for few rows, which must ask further ahead, and where the family can without storing
 * the unpacked piece. */
static void piece_sums_few(const walk *walk, const uint8_t *source, size_t k,
                           const uint8_t *records) {
    const linear_family *family = walk->family;
    if (family->few == NULL) {
        family->unpack(source, k, PREFETCH_AHEAD, walk->piece);
        family->product(walk->piece, records, k, walk->sums, walk->rows);
        return;
    }
    /* One tile, or two that are alike: FEW_MOST is less than three. */
    size_t each = walk->rows <= family->few_rows ? walk->rows : (walk->rows + 1) / 2;
    for (size_t row = 0; row < walk->rows; row += each)
        family->few(source, records + row * family->record_bytes, k, row == 0 ? PREFETCH_AHEAD : 0,
                    walk->piece, walk->sums + row * QUANT_PANEL_ROWS,
                    size_min(walk->rows - row, each));
}

static void panel_sums(const walk *walk, const uint8_t *panel) {
    const uint8_t *records = walk->records;
    size_t few = walk->family->few_rows == FEW_ROWS ? FEW_MOST : TILE_ROWS;
    memset(walk->sums, 0, walk->rows * QUANT_PANEL_ROWS * sizeof(float));
    for (size_t begin = 0; begin < walk->k; begin += PIECE_K) {
        if (walk->rows <= few)
            piece_sums_few(walk, panel, walk->k - begin, records);
        else
            piece_sums(walk, panel, walk->k - begin, records);
        panel += walk->family->packed_bytes;
        records += walk->rows * walk->family->record_bytes;
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
    uint8_t *records = scratch + BYTE_CHUNK * QUANT_PANEL_ROWS * sizeof(float) + PIECE_BYTES_MAX;
    walk walk = {.family = family,
                 .k = weight->k,
                 .records = records,
                 .sums = (float *)(void *)scratch,
                 .piece = scratch + BYTE_CHUNK * QUANT_PANEL_ROWS * sizeof(float)};
    size_t most = chunk_rows(x->rows, family->chunk);
    for (size_t row = 0; row < x->rows; row += most) {
        walk.rows = size_min(x->rows - row, most);
        prepare_chunk(family, x, row, walk.rows, records);
        for (size_t panel = first; panel < last; panel++) {
            const uint8_t *data = weight->data + panel * (size_t)panel_bytes;
            const uint8_t *scale = data + (size_t)panel_bytes - PANEL_LINE_BYTES;
            panel_sums(&walk, data);
            linear_finish(call, panel, row, walk.rows, walk.sums,
                          family->row_scales ? (const float *)(const void *)scale : NULL);
        }
    }
}
