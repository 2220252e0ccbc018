/* Products in int16: the 8-bit types, whose x is two planes of int8 that make one int16 again, and
 * the types with the codebook of IQ4, whose numbers need all of int8.
 *
 * n = 255 · high + low is at most 32512 and fits int16, so vpmaddwd takes number · n of two k at
 * once into int32, exact: half the work of two planes of bytes. A line of the piece holds two k of
 * 16 outputs. int32: 32 k · 128 · 32512 = 1.3e8.
 * Per 32 k, 8 outputs and a row: 16 vpmaddwd, 15 vpaddd, vcvtdq2ps, vmulps, vfmadd.
 *
 * Up to four rows of the 8-bit types do without the piece: bytes are widened in registers, both
 * halves of a line at once, so that a broadcast serves two vpmaddwd. Per line (64 bytes) and with r
 * rows: 6 shifts, 4 · r vpmaddwd, 4 · r vpaddd, 2 + 2 · r loads; one row could take 58 GB/s a core.
 * Five to eight rows take 8 outputs at a time and keep float sums in memory, so that the integer
 * sums of all rows fit the registers and bytes are still widened once.
 *
 * Two Zen 4 cores, bench_linear avx2 q8b 5632 2048 1,2,4,8,16,512 2: one row 96 % of read; 2, 4
 * rows in 1.02, 1.31 times its time; 512 rows 277 GOPS.
 */
#include "device/cpu/avx2/unpack_lines.h"
#include "device/cpu/avx2/words.h"

/* ---- x ---- */

ALWAYS_INLINE void prepare_words(const activation_view *x, size_t row, size_t piece,
                                 word_record *out, const bool planes) {
    const int8_t *number = x->number + row * x->stride + piece * PIECE_K;
    const int8_t *low = planes ? x->low + row * x->stride + piece * PIECE_K : NULL;
    const float *scale = x->scale + row * x->scale_stride + piece * PIECE_UNITS;
    size_t units = piece_units(x->k - piece * PIECE_K);
    for (size_t i = 0; i < units * PANEL_UNIT; i += 16) {
        __m256i words = widen(number + i);
        if (planes)
            words =
                _mm256_add_epi16(_mm256_mullo_epi16(words, _mm256_set1_epi16(255)), widen(low + i));
        store_bytes(out->number + i, word_order(words));
    }
    memcpy(out->scale, scale, units * sizeof(float));
}

static void prepare_planes(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_words(x, row, piece, record, true);
}
static void prepare_bytes_as_words(const activation_view *x, size_t row, size_t piece,
                                   void *record) {
    prepare_words(x, row, piece, record, false);
}

/* ---- Weights ---- */

/* Four nibble lines through the codebook. */
ALWAYS_INLINE void unpack_iq4(const uint8_t *source, size_t ahead,
                              int16_t out[][2 * QUANT_PANEL_ROWS]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i table = table_of(codebook_iq4);
    fetch_lines(source, ahead, 4);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        for (size_t h = 0; h < 2; h++) {
            __m256i both = load_bytes(source + i * PANEL_LINE_BYTES + 32 * h);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
            __m256i low = _mm256_and_si256(both, nibble);
            unpack_words(_mm256_shuffle_epi8(table, low), out[4 * i] + 16 * h);
            unpack_words(_mm256_shuffle_epi8(table, high), out[4 * i + 2] + 16 * h);
        }
}

/* Groups of two units behind a line of scales: bytes, or nibbles of the codebook. */
ALWAYS_INLINE void unpack_groups(const uint8_t *source, size_t k, size_t ahead, word_piece *out,
                                 const bool nibbles) {
    size_t units = piece_units(k);
    const uint8_t *head = source;
    for (size_t unit = 0; unit < units; unit++) {
        if (unit % 2 == 0) {
            head = source;
            fetch_lines(head, ahead, 1);
            source += PANEL_LINE_BYTES;
        }
        convert_halves(head + 32 * (unit % 2), out->scale[unit]);
        if (nibbles)
            unpack_iq4(source, ahead, &out->line[unit * UNIT_WORD_LINES]);
        else
            unpack_byte_lines(source, ahead, 8, &out->line[unit * UNIT_WORD_LINES]);
        source += nibbles ? NIBBLE_UNIT_BYTES : 8 * PANEL_LINE_BYTES;
    }
}

static void unpack_q8(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    unpack_groups(source, k, ahead, piece, false);
}

static void unpack_iq4_nl(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    unpack_groups(source, k, ahead, piece, true);
}

/* 256 k: f16 d, then a signed byte per block and output. */
static void unpack_iq4_xs(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    word_piece *out = piece;
    (void)k; /* a multiple of 256 */
    float d[QUANT_PANEL_ROWS] __attribute__((aligned(32)));
    convert_halves(source, d);
    fetch_lines(source, ahead, 3);
    const uint8_t *s = source + PANEL_LINE_BYTES;
    source += 3 * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += NIBBLE_UNIT_BYTES) {
        for (size_t h = 0; h < 2; h++, s += 8) {
            __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)s));
            _mm256_store_ps(out->scale[unit] + 8 * h,
                            _mm256_mul_ps(_mm256_load_ps(d + 8 * h), _mm256_cvtepi32_ps(bytes)));
        }
        unpack_iq4(source, ahead, &out->line[unit * UNIT_WORD_LINES]);
    }
}

/* Lines without heads; the last unit may have fewer, and x is zero behind k. Scales are the row's
 * and come at the end: here they are one. */
static void unpack_q8c(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    word_piece *out = piece;
    size_t units = piece_units(k);
    for (size_t unit = 0; unit < units; unit++, source += 8 * PANEL_LINE_BYTES) {
        int16_t(*to)[2 * QUANT_PANEL_ROWS] = &out->line[unit * UNIT_WORD_LINES];
        size_t left = k - unit * PANEL_UNIT;
        if (left >= PANEL_UNIT) {
            unpack_byte_lines(source, ahead, 8, to);
        } else {
            memset(to, 0, UNIT_WORD_LINES * sizeof(to[0]));
            unpack_byte_lines(source, ahead, (left + 3) / 4, to);
        }
        for (size_t h = 0; h < 2; h++)
            _mm256_store_ps(out->scale[unit] + 8 * h, _mm256_set1_ps(1.0f));
    }
}

/* ---- Products ---- */

ALWAYS_INLINE void product_words(const word_piece *w, const word_record *x, size_t k, float *sums,
                                 const int rows) {
    size_t units = piece_units(k);
    __m256 f[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            f[r][h] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS + 8 * h);
    for (size_t unit = 0; unit < units; unit++) {
        __m256i wide[TILE_ROWS][2];
        const int16_t(*line)[2 * QUANT_PANEL_ROWS] = &w->line[unit * UNIT_WORD_LINES];
#pragma GCC unroll 16
        for (int i = 0; i < UNIT_WORD_LINES; i++) {
            __m256i low = load_bytes(line[i]);
            __m256i high = load_bytes(line[i] + 16);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i two = broadcast4(x[r].number + unit * PANEL_UNIT + 2 * (size_t)i);
                wide[r][0] = add_words(i == 0 ? _mm256_setzero_si256() : wide[r][0], low, two);
                wide[r][1] = add_words(i == 0 ? _mm256_setzero_si256() : wide[r][1], high, two);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                f[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r][h]),
                                          _mm256_mul_ps(_mm256_load_ps(w->scale[unit] + 8 * h),
                                                        _mm256_set1_ps(x[r].scale[unit])),
                                          f[r][h]);
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            _mm256_store_ps(sums + r * QUANT_PANEL_ROWS + 8 * h, f[r][h]);
}

static void product(const void *w, const void *x, size_t k, float *sums,
                    size_t rows){WITH_COUNT_4(rows, count, product_words(w, x, k, sums, count))}

/* ---- Up to four rows of the 8-bit types: words stay in registers ---- */

/* 32 k; `lines` is 8 but for the last unit of a row. `halves`: 16 f16 scales or NULL. */
ALWAYS_INLINE void few_unit(const uint8_t *source, const uint8_t *halves, const word_record *x,
                            size_t unit, size_t lines, __m256 f[TILE_ROWS][2], const int rows) {
    word_sums wide;
    for (int r = 0; r < rows; r++)
        wide.half[r][0] = wide.half[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t i = 0; i < lines; i++)
        few_line(source + i * PANEL_LINE_BYTES, x, unit * PANEL_UNIT + 4 * i, &wide, rows);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 scale = _mm256_set1_ps(1.0f);
        if (halves != NULL)
            scale = _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)halves + h));
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            f[r][h] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide.half[r][h]),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[unit])), f[r][h]);
    }
}

/* `scaled`: groups of two units behind a line of scales; otherwise lines alone, the last unit of a
 * row perhaps with fewer. */
ALWAYS_INLINE void few_rows(const uint8_t *source, const word_record *x, size_t k, size_t ahead,
                            float *sums, const int rows, const bool scaled) {
    size_t units = piece_units(k);
    const uint8_t *head = source;
    __m256 f[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            f[r][h] = _mm256_load_ps(sums + r * QUANT_PANEL_ROWS + 8 * h);
    for (size_t unit = 0; unit < units; unit++, source += 8 * PANEL_LINE_BYTES) {
        if (scaled && unit % 2 == 0) {
            head = source;
            fetch_lines(head, ahead, 1);
            source += PANEL_LINE_BYTES;
        }
        fetch_lines(source, ahead, 8);
        if (scaled || k - unit * PANEL_UNIT >= PANEL_UNIT)
            few_unit(source, scaled ? head + 32 * (unit % 2) : NULL, x, unit, 8, f, rows);
        else
            few_unit(source, NULL, x, unit, (k - unit * PANEL_UNIT + 3) / 4, f, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            _mm256_store_ps(sums + r * QUANT_PANEL_ROWS + 8 * h, f[r][h]);
}

/* ---- Up to eight: the same for 8 outputs at a time, float sums in memory ---- */

ALWAYS_INLINE void half_unit(const uint8_t *source, const uint8_t *halves, const word_record *x,
                             size_t unit, size_t lines, float *sums, const int rows) {
    __m256i wide[FEW_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        wide[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t i = 0; i < lines; i++) {
        __m256i bytes = load_bytes(source + i * PANEL_LINE_BYTES);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
        __m256i odd = _mm256_srai_epi16(bytes, 8);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int16_t *number = x[r].number + unit * PANEL_UNIT + 4 * i;
            wide[r] = add_words(wide[r], even, broadcast4(number));
            wide[r] = add_words(wide[r], odd, broadcast4(number + 2));
        }
    }
    __m256 scale = _mm256_set1_ps(1.0f);
    if (halves != NULL)
        scale = _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)halves));
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        float *sum = sums + r * QUANT_PANEL_ROWS;
        __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[unit]));
        _mm256_store_ps(sum,
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]), both, _mm256_load_ps(sum)));
    }
}

ALWAYS_INLINE void half_rows(const uint8_t *source, const word_record *x, size_t k, size_t ahead,
                             float *sums, const int rows, const bool scaled) {
    size_t units = piece_units(k);
    const uint8_t *head = source;
    for (size_t unit = 0; unit < units; unit++, source += 8 * PANEL_LINE_BYTES) {
        if (scaled && unit % 2 == 0) {
            head = source;
            fetch_lines(head, ahead, 1);
            source += PANEL_LINE_BYTES;
        }
        size_t left = k - unit * PANEL_UNIT;
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            const uint8_t *half = source + 32 * h;
            float *out = sums + 8 * h;
            fetch_lines(source + 4 * h * PANEL_LINE_BYTES, ahead, 4);
            if (scaled || left >= PANEL_UNIT)
                half_unit(half, scaled ? head + 32 * (unit % 2) + 16 * h : NULL, x, unit, 8, out,
                          rows);
            else
                half_unit(half, NULL, x, unit, (left + 3) / 4, out, rows);
        }
    }
}

ALWAYS_INLINE void few(const uint8_t *source, const void *x, size_t k, size_t ahead, float *sums,
                       size_t rows, const bool scaled) {
    if (rows <= TILE_ROWS)
        WITH_COUNT_4(rows, count, few_rows(source, x, k, ahead, sums, count, scaled))
    else
        WITH_COUNT_OF_4(rows, 5, 6, 7, 8, count,
                        half_rows(source, x, k, ahead, sums, count, scaled))
}

static void few_q8(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                   float *sums, size_t rows) {
    (void)piece;
    few(source, x, k, ahead, sums, rows, true);
}

static void few_q8c(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                    float *sums, size_t rows) {
    (void)piece;
    few(source, x, k, ahead, sums, rows, false);
}

/* Q8_0 and Q8B. */
LINEAR_ENTRY(q8, .packed_bytes = 68 * PANEL_LINE_BYTES, WORD_RECORDS, .prepare = prepare_planes,
             .unpack = unpack_q8, .product = product, .few = few_q8, .few_rows = FEW_ROWS)
LINEAR_ENTRY(q8c, .packed_bytes = 64 * PANEL_LINE_BYTES, WORD_RECORDS, .row_scales = true,
             .prepare = prepare_planes, .unpack = unpack_q8c, .product = product, .few = few_q8c,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(iq4_nl, .packed_bytes = 36 * PANEL_LINE_BYTES, WORD_RECORDS,
             .prepare = prepare_bytes_as_words, .unpack = unpack_iq4_nl, .product = product)
LINEAR_ENTRY(iq4_xs, .packed_bytes = 35 * PANEL_LINE_BYTES, WORD_RECORDS,
             .prepare = prepare_bytes_as_words, .unpack = unpack_iq4_xs, .product = product)
