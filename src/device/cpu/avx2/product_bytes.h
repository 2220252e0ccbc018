/* The product of unsigned bytes with x in int8, for types whose scales are floats per 32 or 16 k.
 * Families instantiate it with constants; nothing of `shape` is left at run time.
 *
 * Depth: vpmaddubsw adds two products, at most 2 · largest · 127, and saturates past 32767; so many
 * of them may be added in int16 before vpmaddwd widens: `depth` · 2 · largest · 127 ≤ 32767, that
 * is 8 for numbers up to 15, 4 up to 31, 2 up to 63. Zero points come off in int32.
 * Per 32 k, 8 outputs and a row with depth 8: 8 vpmaddubsw, 7 vpaddw, vpmaddwd, vcvtdq2ps, vmulps,
 * vfmadd, and one more for a zero point or a minimum.
 */
#ifndef AVO_DEVICE_CPU_AVX2_PRODUCT_BYTES_H
#define AVO_DEVICE_CPU_AVX2_PRODUCT_BYTES_H

#include "device/cpu/avx2/linear_int.h"

typedef struct byte_shape {
    int block_lines; /* 8: scales per 32 k, 4: per 16 k */
    int depth;
    bool zero;
    bool minimum;
} byte_shape;

#ifdef __AVXVNNI__
/* Integer sums of one block for `rows` rows: vpdpbusd adds four products at once, in int32. */
ALWAYS_INLINE void block_sums(const uint8_t *line, const byte_record *x, size_t first,
                              const int rows, const byte_shape shape, __m256i wide[TILE_ROWS][2]) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        wide[r][0] = wide[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < shape.block_lines; i++) {
        __m256i low = load_bytes(line + PANEL_LINE_BYTES * i);
        __m256i high = load_bytes(line + PANEL_LINE_BYTES * i + 32);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m256i four = broadcast4(x[r].number + 4 * (first + (size_t)i));
            wide[r][0] = held(_mm256_dpbusd_avx_epi32(wide[r][0], low, four));
            wide[r][1] = held(_mm256_dpbusd_avx_epi32(wide[r][1], high, four));
        }
    }
}
#else
/* Integer sums of one block for `rows` rows. */
ALWAYS_INLINE void block_sums(const uint8_t *line, const byte_record *x, size_t first,
                              const int rows, const byte_shape shape, __m256i wide[TILE_ROWS][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int begin = 0; begin < shape.block_lines; begin += shape.depth) {
        __m256i narrow[TILE_ROWS][2];
#pragma GCC unroll 8
        for (int i = begin; i < begin + shape.depth; i++) {
            __m256i low = load_bytes(line + PANEL_LINE_BYTES * i);
            __m256i high = load_bytes(line + PANEL_LINE_BYTES * i + 32);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i four = broadcast4(x[r].number + 4 * (first + (size_t)i));
                __m256i a = _mm256_maddubs_epi16(low, four);
                __m256i b = _mm256_maddubs_epi16(high, four);
                narrow[r][0] = held(i == begin ? a : _mm256_add_epi16(narrow[r][0], a));
                narrow[r][1] = held(i == begin ? b : _mm256_add_epi16(narrow[r][1], b));
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i sum = _mm256_madd_epi16(narrow[r][h], ones);
                wide[r][h] = begin == 0 ? sum : _mm256_add_epi32(wide[r][h], sum);
            }
    }
}
#endif

ALWAYS_INLINE void product_bytes(const byte_piece *w, const byte_record *x, size_t k, float *sums,
                                 const int rows, const byte_shape shape) {
    const size_t block_k = 4 * (size_t)shape.block_lines;
    const size_t unit_blocks = PANEL_UNIT / block_k;
    size_t units = piece_units(k);
    __m256 f[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            f[r][h] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS + 8 * h);
    for (size_t block = 0; block < units * unit_blocks; block++) {
        __m256i wide[TILE_ROWS][2];
        size_t line = block * (size_t)shape.block_lines;
        block_sums(w->line[line], x, line, rows, shape, wide);
        const float *scale = w->scale[block];
        const float *minimum = w->minimum[block];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m256 x_scale = _mm256_set1_ps(x[r].scale[block / unit_blocks]);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i integers = wide[r][h];
                if (shape.zero)
                    integers = _mm256_add_epi32(integers, broadcast4(&x[r].zero[block]));
                f[r][h] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers),
                                    _mm256_mul_ps(_mm256_load_ps(scale + 8 * h), x_scale), f[r][h]);
                if (shape.minimum)
                    f[r][h] = _mm256_fmadd_ps(_mm256_load_ps(minimum + 8 * h),
                                              _mm256_set1_ps(x[r].sum[block]), f[r][h]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            _mm256_store_ps(sums + r * QUANT_PANEL_ROWS + 8 * h, f[r][h]);
}

/* The record of one row for blocks of 32 k (`wide_blocks`) or 16 k: with a zero point, or (0) with
 * minima. */
ALWAYS_INLINE void prepare_bytes(const activation_view *x, size_t row, size_t piece, void *record,
                                 const bool wide_blocks, const int32_t zero_point) {
    byte_record *out = record;
    const int8_t *number = x->number + row * x->stride + piece * PIECE_K;
    const int32_t *integer_sum = x->integer_sum + row * x->sum_stride + piece * 2 * PIECE_UNITS;
    const float *scale = x->scale + row * x->scale_stride + piece * PIECE_UNITS;
    const float *sum = x->sum + row * x->scale_stride + piece * PIECE_UNITS;
    size_t units = piece_units(x->k - piece * PIECE_K);
    for (size_t unit = 0; unit < units; unit++) {
        store_bytes(out->number + unit * PANEL_UNIT, load_bytes(number + unit * PANEL_UNIT));
        out->scale[unit] = scale[unit];
        int32_t first = integer_sum[2 * unit];
        int32_t second = integer_sum[2 * unit + 1];
        if (wide_blocks && zero_point != 0) {
            out->zero[unit] = -zero_point * (first + second);
        } else if (wide_blocks) {
            out->sum[unit] = sum[unit];
        } else if (zero_point != 0) {
            out->zero[2 * unit] = -zero_point * first;
            out->zero[2 * unit + 1] = -zero_point * second;
        } else {
            out->sum[2 * unit] = scale[unit] * (float)first;
            out->sum[2 * unit + 1] = scale[unit] * (float)second;
        }
    }
}

ALWAYS_INLINE void product_bytes_tile(const void *w, const void *x, size_t k, float *sums,
                                      size_t rows, const byte_shape shape) {
    WITH_COUNT_4(rows, count, product_bytes(w, x, k, sums, count, shape))
}

/* ---- Up to FEW_ROWS rows: nibbles unpacked in registers, 8 outputs at a time ---- */

/* Where the nibble lines of a piece lie: `head_lines` before every `group_units` units. */
typedef struct nibble_layout {
    size_t group_units;
    size_t head_lines;
} nibble_layout;

ALWAYS_INLINE size_t nibbles_at(size_t unit, const nibble_layout layout) {
    return ((unit / layout.group_units + 1) * layout.head_lines + 4 * unit) * PANEL_LINE_BYTES;
}

#ifndef __AVXVNNI__
/* Integer sums of one unit; depth 8. */
ALWAYS_INLINE void few_unit(const uint8_t *source, const byte_record *x, size_t unit,
                            const int rows, __m256i wide[FEW_ROWS]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i narrow[FEW_ROWS];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        __m256i both = load_bytes(source + i * PANEL_LINE_BYTES);
        __m256i low = _mm256_and_si256(both, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int8_t *number = x[r].number + unit * PANEL_UNIT + 8 * i;
            __m256i first = _mm256_maddubs_epi16(low, broadcast4(number));
            narrow[r] = held(i == 0 ? first : _mm256_add_epi16(narrow[r], first));
            narrow[r] = held(
                _mm256_add_epi16(narrow[r], _mm256_maddubs_epi16(high, broadcast4(number + 4))));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        wide[r] = _mm256_madd_epi16(narrow[r], _mm256_set1_epi16(1));
}

/* The float sums of more than four rows stay in memory: registers are taken by the integers. */
ALWAYS_INLINE void few_half(const uint8_t *source, const byte_record *x, size_t k, size_t ahead,
                            const byte_piece *scales, float *sums, const int rows,
                            const nibble_layout layout, const byte_shape shape, const int half) {
    const bool held_in_registers = rows <= 4;
    __m256 f[FEW_ROWS];
    size_t units = piece_units(k);
    for (int r = 0; held_in_registers && r < rows; r++)
        f[r] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS + 8 * half);
    for (size_t unit = 0; unit < units; unit++) {
        __m256i wide[FEW_ROWS];
        const uint8_t *lines = source + nibbles_at(unit, layout);
        fetch_lines(lines + half * 2 * PANEL_LINE_BYTES, ahead, 2);
        few_unit(lines + 32 * half, x, unit, rows, wide);
        __m256 scale = _mm256_load_ps(scales->scale[unit] + 8 * half);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            float *sum = sums + r * QUANT_PANEL_ROWS + 8 * half;
            if (!held_in_registers)
                f[r] = _mm256_load_ps(sum);
            if (shape.zero)
                wide[r] = _mm256_add_epi32(wide[r], broadcast4(&x[r].zero[unit]));
            f[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]),
                                   _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[unit])), f[r]);
            if (shape.minimum)
                f[r] = _mm256_fmadd_ps(_mm256_load_ps(scales->minimum[unit] + 8 * half),
                                       _mm256_set1_ps(x[r].sum[unit]), f[r]);
            if (!held_in_registers)
                _mm256_store_ps(sum, f[r]);
        }
    }
    for (int r = 0; held_in_registers && r < rows; r++)
        _mm256_store_ps(sums + r * QUANT_PANEL_ROWS + 8 * half, f[r]);
}

ALWAYS_INLINE void few_halves(const uint8_t *source, const byte_record *x, size_t k, size_t ahead,
                              const byte_piece *scales, float *sums, const int rows,
                              const nibble_layout layout, const byte_shape shape) {
    few_half(source, x, k, ahead, scales, sums, rows, layout, shape, 0);
    few_half(source, x, k, ahead, scales, sums, rows, layout, shape, 1);
}

#else
/* With AVX-VNNI all 16 outputs and up to four rows at a time: eight outputs and eight rows would
 * take a load for every product, and Zen 5 does as many loads in a cycle as products (two). More
 * than four rows are two tiles, for which nibbles are unpacked twice. */
ALWAYS_INLINE void few_unit(const uint8_t *source, const byte_record *x, size_t unit,
                            const int rows, const byte_shape shape, __m256i wide[TILE_ROWS][2]) {
    for (int r = 0; r < rows; r++)
        wide[r][0] = wide[r][1] =
            shape.zero ? broadcast4(&x[r].zero[unit]) : _mm256_setzero_si256();
    add_nibbles(source, 4, x->number + unit * PANEL_UNIT, sizeof(*x), rows, wide);
}

ALWAYS_INLINE void few_tile(const uint8_t *lines, const byte_record *x, size_t unit,
                            const byte_piece *scales, float *sums, const int rows,
                            const byte_shape shape) {
    __m256i wide[TILE_ROWS][2];
    few_unit(lines, x, unit, rows, shape, wide);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            float *sum = sums + r * QUANT_PANEL_ROWS + 8 * h;
            __m256 both = _mm256_mul_ps(_mm256_load_ps(scales->scale[unit] + 8 * h),
                                        _mm256_set1_ps(x[r].scale[unit]));
            __m256 f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r][h]), both, _mm256_load_ps(sum));
            if (shape.minimum)
                f = _mm256_fmadd_ps(_mm256_load_ps(scales->minimum[unit] + 8 * h),
                                    _mm256_set1_ps(x[r].sum[unit]), f);
            _mm256_store_ps(sum, f);
        }
}

ALWAYS_INLINE void few_halves(const uint8_t *source, const byte_record *x, size_t k, size_t ahead,
                              const byte_piece *scales, float *sums, const int rows,
                              const nibble_layout layout, const byte_shape shape) {
    const int first = rows <= TILE_ROWS ? rows : (rows + 1) / 2;
    size_t units = piece_units(k);
    for (size_t unit = 0; unit < units; unit++) {
        const uint8_t *lines = source + nibbles_at(unit, layout);
        fetch_lines(lines, ahead, 4);
        few_tile(lines, x, unit, scales, sums, first, shape);
        if (first < rows)
            few_tile(lines, x + first, unit, scales, sums + first * QUANT_PANEL_ROWS, rows - first,
                     shape);
    }
}
#endif

/* The scales (and minima) of the piece have been written; its lines are not used. */
ALWAYS_INLINE void few_nibbles(const uint8_t *source, const void *x, size_t k, size_t ahead,
                               const byte_piece *scales, float *sums, size_t rows,
                               const nibble_layout layout, const byte_shape shape) {
    WITH_COUNT_8(rows, count, few_halves(source, x, k, ahead, scales, sums, count, layout, shape))
}

/* The shapes that more than one type has (product_bytes.c). */
#ifdef __AVXVNNI__
#define product_nibble_minimum product_nibble_minimum_vnni
#define product_five_minimum   product_five_minimum_vnni
#endif
void product_nibble_minimum(const void *w, const void *x, size_t k, float *sums, size_t rows);
void product_five_minimum(const void *w, const void *x, size_t k, float *sums, size_t rows);

#endif
