/* F32, F16, BF16, F8C: floats times floats, k after k, one fused multiply-add each.
 *
 * A piece of 256 k is decoded to floats (16 KB; F32 is read where it lies) and multiplied with all
 * rows of x, six at a time: 12 accumulators, two registers of weights, one of x. Up to six
 * rows alone are multiplied with weights decoded in registers.
 */
#include "device/cpu/avx2/linear_int.h"

#include "base/checked.h"

#include <assert.h>

#define FLOAT_TILE  6
#define FLOAT_CHUNK 96

typedef enum float_kind { KIND_F32, KIND_F16, KIND_BF16, KIND_F8C } float_kind;

/* k in one line. */
ALWAYS_INLINE size_t line_k(const float_kind kind) {
    return kind == KIND_F32 ? 1 : kind == KIND_F8C ? 4 : 2;
}

typedef struct float_pair {
    __m256 first, second;
} float_pair;

/* Two halves for each of 8 outputs, as two registers of 8 floats. Shuffling leaves the outputs as
 * 0 1 4 5 2 3 6 7, and so they stay until restore_order puts the sums right. */
ALWAYS_INLINE float_pair convert_pairs(__m256i halves) {
    __m256 a = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    __m256 b = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    return (float_pair){_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)};
}

static void restore_order(float *sums, size_t rows) {
    for (size_t i = 0; i < 2 * rows; i++, sums += 8) {
        __m256d shuffled = _mm256_castps_pd(_mm256_load_ps(sums));
        _mm256_store_ps(sums, _mm256_castpd_ps(_mm256_permute4x64_pd(shuffled, 0xd8)));
    }
}

/* E4M3 in the upper bytes of words, as halves 256 times smaller: subnormals cost nothing this way.
 * `nan`: the type's one NaN may be among them. */
ALWAYS_INLINE __m256i halves_of_e4m3(__m256i words, bool nan) {
    __m256i half = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xbf80));
    if (__builtin_expect(nan, 0)) {
        __m256i most = _mm256_set1_epi16(0x3f80);
        __m256i found = _mm256_cmpeq_epi16(_mm256_and_si256(half, most), most);
        half = _mm256_or_si256(half, _mm256_and_si256(found, _mm256_set1_epi16(0x7e00)));
    }
    return half;
}

/* 8 outputs of one line: out[line_k]. */
ALWAYS_INLINE void decode_line(const float_kind kind, const uint8_t *source, __m256 *out) {
    if (kind == KIND_F32) {
        out[0] = _mm256_load_ps((const float *)(const void *)source);
        return;
    }
    __m256i line = load_bytes(source);
    if (kind == KIND_F16) {
        float_pair pair = convert_pairs(line);
        out[0] = pair.first;
        out[1] = pair.second;
    } else if (kind == KIND_BF16) {
        out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(line, 16));
        out[1] = _mm256_castsi256_ps(_mm256_and_si256(line, _mm256_set1_epi32((int)0xffff0000u)));
    } else {
        const __m256 grow = _mm256_set1_ps(256.0f);
        __m256i magnitude = _mm256_or_si256(line, _mm256_set1_epi8(-128));
        bool nan = _mm256_movemask_epi8(_mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(-1))) != 0;
        float_pair even = convert_pairs(halves_of_e4m3(_mm256_slli_epi16(line, 8), nan));
        float_pair odd = convert_pairs(halves_of_e4m3(line, nan));
        out[0] = _mm256_mul_ps(even.first, grow);
        out[1] = _mm256_mul_ps(odd.first, grow);
        out[2] = _mm256_mul_ps(even.second, grow);
        out[3] = _mm256_mul_ps(odd.second, grow);
    }
}

/* ---- Up to six rows: decoded in registers ---- */

typedef __m256 few_sums[2][FLOAT_TILE][2]; /* [panel][row][half] */

/* One line of `panels` panels, its numbers [begin, end) of each output, with `rows` rows of x. */
ALWAYS_INLINE void multiply_line(const float_kind kind, const uint8_t *const *source,
                                 const float *x, size_t stride, size_t begin, size_t end,
                                 const int panels, const int rows, few_sums sum) {
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 w[4];
            decode_line(kind, source[p] + 32 * h, w);
#pragma GCC unroll 4
            for (size_t i = begin; i < end; i++)
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++)
                    sum[p][r][h] = _mm256_fmadd_ps(w[i], _mm256_set1_ps(x[(size_t)r * stride + i]),
                                                   sum[p][r][h]);
        }
}

ALWAYS_INLINE void few_panels(const float_kind kind, const uint8_t *panel, size_t panel_bytes,
                              const float *x, size_t stride, size_t k, const int panels,
                              const int rows, float *sums) {
    const size_t step = line_k(kind);
    const uint8_t *source[2] = {panel, panel + panel_bytes};
    few_sums sum;
    for (int p = 0; p < panels; p++)
        for (int r = 0; r < rows; r++)
            sum[p][r][0] = sum[p][r][1] = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + step <= k; i += step) {
        multiply_line(kind, source, x + i, stride, 0, step, panels, rows, sum);
        for (int p = 0; p < panels; p++) {
            fetch_lines(source[p], PREFETCH_AHEAD, 1);
            source[p] += PANEL_LINE_BYTES;
        }
    }
    for (size_t j = 0; i + j < k; j++) /* a last line that is not full */
        multiply_line(kind, source, x + i, stride, j, j + 1, panels, rows, sum);
    for (int p = 0; p < panels; p++)
        for (int r = 0; r < rows; r++)
            for (int h = 0; h < 2; h++)
                _mm256_store_ps(sums + (p * rows + r) * QUANT_PANEL_ROWS + 8 * h, sum[p][r][h]);
}

/* Two panels for one row, which would wait for its two accumulators otherwise. */
ALWAYS_INLINE void few_rows(const float_kind kind, const uint8_t *panel, size_t panel_bytes,
                            const float *x, size_t stride, size_t k, size_t panels, size_t rows,
                            float *sums) {
    if (panels == 2) {
        few_panels(kind, panel, panel_bytes, x, stride, k, 2, 1, sums);
        return;
    }
    WITH_COUNT_6(rows, count, few_panels(kind, panel, 0, x, stride, k, 1, count, sums))
}

/* ---- Many rows ---- */

ALWAYS_INLINE void decode_piece(const float_kind kind, const uint8_t *source, size_t k,
                                float *out) {
    const size_t step = line_k(kind);
    for (size_t i = 0; i < k; i += step, source += PANEL_LINE_BYTES) {
        fetch_lines(source, PREFETCH_AHEAD, 1);
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            __m256 w[4];
            decode_line(kind, source + 32 * h, w);
#pragma GCC unroll 4
            for (size_t j = 0; j < step; j++)
                _mm256_store_ps(out + (i + j) * QUANT_PANEL_ROWS + 8 * h, w[j]);
        }
    }
}

ALWAYS_INLINE void product_floats(const float *w, size_t k, const float *x, size_t stride,
                                  float *sums, const int rows) {
    __m256 f[FLOAT_TILE][2];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        f[r][0] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS);
        f[r][1] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS + 8);
    }
    for (size_t i = 0; i < k; i++, w += QUANT_PANEL_ROWS) {
        __m256 low = _mm256_load_ps(w);
        __m256 high = _mm256_load_ps(w + 8);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m256 one = _mm256_set1_ps(x[(size_t)r * stride + i]);
            f[r][0] = _mm256_fmadd_ps(low, one, f[r][0]);
            f[r][1] = _mm256_fmadd_ps(high, one, f[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_store_ps(sums + r * QUANT_PANEL_ROWS, f[r][0]);
        _mm256_store_ps(sums + r * QUANT_PANEL_ROWS + 8, f[r][1]);
    }
}

static void product_tile(const float *w, size_t k, const float *x, size_t stride, float *sums,
                         size_t rows){
    WITH_COUNT_6(rows, count, product_floats(w, k, x, stride, sums, count))}

ALWAYS_INLINE void panel_rows(const float_kind kind, const uint8_t *panel, const float *x,
                              size_t stride, size_t k, size_t rows, float *piece, float *sums) {
    memset(sums, 0, rows * QUANT_PANEL_ROWS * sizeof(float));
    for (size_t begin = 0; begin < k; begin += PIECE_K) {
        size_t count = size_min(k - begin, PIECE_K);
        const uint8_t *source = panel + begin / line_k(kind) * PANEL_LINE_BYTES;
        const float *w = (const float *)(const void *)source;
        if (kind != KIND_F32) {
            decode_piece(kind, source, count, piece);
            w = piece;
        }
        for (size_t i = 0; i < rows; i += FLOAT_TILE)
            product_tile(w, count, x + i * stride + begin, stride, sums + i * QUANT_PANEL_ROWS,
                         size_min(rows - i, FLOAT_TILE));
    }
}

/* ---- The walk ---- */

ALWAYS_INLINE void linear_floats(const linear_call *call, size_t first, size_t last,
                                 uint8_t *scratch, const float_kind kind) {
    const weight_view *weight = call->weight;
    const activation_view *x = call->x;
    uint64_t bytes = 0;
    bool known = panels_bytes(weight->type, weight->k, &bytes);
    assert(known && x->k == weight->k);
    (void)known;
    size_t k = weight->k;
    float *sums = (float *)(void *)scratch;
    float *piece = sums + FLOAT_CHUNK * QUANT_PANEL_ROWS;
    size_t scale_at = (k + 3) / 4 * PANEL_LINE_BYTES;
    for (size_t row = 0; row < x->rows; row += FLOAT_CHUNK) {
        size_t rows = size_min(x->rows - row, FLOAT_CHUNK);
        const float *from = x->x + row * x->stride;
        for (size_t panel = first; panel < last;) {
            const uint8_t *data = weight->data + panel * (size_t)bytes;
            size_t panels = rows == 1 && last - panel >= 2 ? 2 : 1;
            if (rows <= FLOAT_TILE)
                few_rows(kind, data, (size_t)bytes, from, x->stride, k, panels, rows, sums);
            else
                panel_rows(kind, data, from, x->stride, k, rows, piece, sums);
            if (kind == KIND_F16 || kind == KIND_F8C)
                restore_order(sums, panels * rows);
            for (size_t p = 0; p < panels; p++, panel++, data += bytes)
                linear_finish(call, panel, row, rows, sums + p * rows * QUANT_PANEL_ROWS,
                              kind == KIND_F8C ? (const float *)(const void *)(data + scale_at)
                                               : NULL);
        }
    }
}

void avx2_linear_f32(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    linear_floats(call, first, last, scratch, KIND_F32);
}
void avx2_linear_f16(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    linear_floats(call, first, last, scratch, KIND_F16);
}
void avx2_linear_bf16(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    linear_floats(call, first, last, scratch, KIND_BF16);
}
void avx2_linear_f8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    linear_floats(call, first, last, scratch, KIND_F8C);
}
