/* Q4R: 4 bit, rotated, a multiplier per 16 k, one float scale per 256 k.
 *
 * Two sub-blocks a and b of 16 k are multiplied together: a line holds, for each output, two
 * numbers of a and two of b, so that vpmaddubsw leaves sums of a in the even int16 and sums of b in
 * the odd ones; eight lines later one vpmaddwd with the pair of multipliers makes both int32.
 * The records of x are in the same order.
 * Depth: vpmaddubsw gives at most 2 · 15 · 127 = 3810, far from saturating. int16 begins with
 * −8 · (sum of the 16 numbers of x), so that it ends as the sum of 16 (number − 8) · x, at most
 * 16 · 8 · 127 = 16256; that it may wrap in between does not matter, for vpaddw is modular.
 * int32 is at most 256 · 15 · 8 · 127.
 * Per 32 k, 8 outputs and a row: 8 vpmaddubsw, 8 vpaddw, vpmaddwd, vpaddd.
 *
 * The first four rows are multiplied with lines that are still in registers, all 16 outputs at a
 * time, so that a word of x is read once for both halves; where more rows follow, they are stored
 * on the way. In the first cache (Zen 4), cycles per 32 k and 16 outputs: 46 for four rows with
 * lines in memory, 62 for four with unpacking; of vector instructions, 144 and 185.
 *
 * Two Zen 4 cores, bench_linear avx2 q4r 5632 2048 1,2,4,8,16,512 2: one row 35 GB/s; 2, 4, 8, 16
 * rows in 1.0, 1.17, 2.2, 4.0 times its time; 512 rows 566 GOPS.
 */
#include "device/cpu/avx2/q4r.h"

typedef struct q4r_record {
    int8_t number[PIECE_K];
    int32_t zero[PAIRS]; /* −8 · (sum of a), −8 · (sum of b), as int16 */
    float scale;
} __attribute__((aligned(64))) q4r_record;

/* Numbers of x: a0 a1 b0 b1 a2 a3 b2 b3 … of each pair of sub-blocks. */
static void prepare(const activation_view *x, size_t row, size_t piece, void *record) {
    q4r_record *out = record;
    const int8_t *number = x->number + row * x->stride + piece * PIECE_K;
    const int32_t *sum = x->integer_sum + row * x->sum_stride + piece * Q4R_SUBS;
    size_t left = x->stride - piece * PIECE_K; /* zero behind k, a multiple of 64 */
    const __m256i words = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0,
                                           1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    size_t subs = sub_blocks(x->k - piece * PIECE_K);
    for (size_t pair = 0; pair < PAIRS; pair++) {
        __m256i ab = _mm256_setzero_si256();
        if (pair * PAIR_K < left)
            ab = load_bytes(number + pair * PAIR_K);
        ab = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(ab, 0xd8), words);
        store_bytes(out->number + pair * PAIR_K, ab);
        int32_t a = 2 * pair < subs ? sum[2 * pair] : 0;
        int32_t b = 2 * pair + 1 < subs ? sum[2 * pair + 1] : 0;
        out->zero[pair] =
            (int32_t)((uint32_t)(-8 * a) & 0xffff) | (int32_t)((uint32_t)(-8 * b) << 16);
    }
    out->scale = x->scale[row * x->scale_stride + piece];
}

/* Words of a in the even places and words of b in the odd ones: reading b two bytes early, or a two
 * bytes late, is cheaper than shifting. Where there is no b, x is zero and a stands in for it, but
 * nothing may be read behind it. */
typedef struct mixed_line {
    __m256i even, odd;
} mixed_line;

ALWAYS_INLINE mixed_line mix_lines(const uint8_t *a, const uint8_t *b) {
    __m256i of_a = load_bytes(a);
    __m256i of_b = load_bytes(b);
    __m256i b_late = _mm256_loadu_si256((const __m256i *)(const void *)(b - 2));
    __m256i a_early = a == b ? _mm256_srli_epi32(of_a, 16)
                             : _mm256_loadu_si256((const __m256i *)(const void *)(a + 2));
    return (mixed_line){_mm256_blend_epi16(of_a, b_late, 0xaa),
                        _mm256_blend_epi16(a_early, of_b, 0xaa)};
}

/* 16-bit sums of two sub-blocks times their multipliers. */
ALWAYS_INLINE void add_pair(__m256i wide[TILE_ROWS][2], __m256i narrow[TILE_ROWS][2],
                            const int32_t *multiplier, const int rows) {
    __m256i low = load_bytes(multiplier);
    __m256i high = load_bytes(multiplier + 8);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        wide[r][0] = _mm256_add_epi32(wide[r][0], _mm256_madd_epi16(narrow[r][0], low));
        wide[r][1] = _mm256_add_epi32(wide[r][1], _mm256_madd_epi16(narrow[r][1], high));
    }
}

/* The sums of 256 k to floats. */
ALWAYS_INLINE void add_sums(__m256i wide[TILE_ROWS][2], const float *weight_scale,
                            const q4r_record *x, float *sums, const int rows) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            float *sum = sums + r * QUANT_PANEL_ROWS + 8 * i;
            __m256 scale =
                _mm256_mul_ps(_mm256_load_ps(weight_scale + 8 * i), _mm256_set1_ps(x[r].scale));
            _mm256_store_ps(
                sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r][i]), scale, _mm256_load_ps(sum)));
        }
}

ALWAYS_INLINE void product_rows(const q4r_piece *w, const q4r_record *x, size_t k, float *sums,
                                const int rows) {
    size_t pairs = (sub_blocks(k) + 1) / 2;
    __m256i wide[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        wide[r][0] = wide[r][1] = _mm256_setzero_si256();
    for (size_t pair = 0; pair < pairs; pair++) {
        __m256i narrow[TILE_ROWS][2];
        const uint8_t *line = w->line[pair * PAIR_LINES];
        for (int r = 0; r < rows; r++)
            narrow[r][0] = narrow[r][1] = broadcast4(&x[r].zero[pair]);
#pragma GCC unroll 8
        for (int i = 0; i < PAIR_LINES; i++) {
            __m256i low = load_bytes(line + PANEL_LINE_BYTES * i);
            __m256i high = load_bytes(line + PANEL_LINE_BYTES * i + 32);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i four = broadcast4(x[r].number + pair * PAIR_K + 4 * i);
                narrow[r][0] =
                    held(_mm256_add_epi16(narrow[r][0], _mm256_maddubs_epi16(low, four)));
                narrow[r][1] =
                    held(_mm256_add_epi16(narrow[r][1], _mm256_maddubs_epi16(high, four)));
            }
        }
        add_pair(wide, narrow, w->multiplier[pair], rows);
    }
    add_sums(wide, w->scale, x, sums, rows);
}

static void product(const void *w, const void *x, size_t k, float *sums,
                    size_t rows){WITH_COUNT_4(rows, count, product_rows(w, x, k, sums, count))}

/* ---- The first tile of rows: unpacked in registers, and kept for the others ---- */

/* Two lines of 8 outputs each with the words of x that meet them. */
ALWAYS_INLINE void add_line(__m256i narrow[TILE_ROWS][2], const q4r_record *x, size_t at,
                            __m256i low, __m256i high, const int rows) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        __m256i four = broadcast4(x[r].number + at);
        narrow[r][0] = held(_mm256_add_epi16(narrow[r][0], _mm256_maddubs_epi16(low, four)));
        narrow[r][1] = held(_mm256_add_epi16(narrow[r][1], _mm256_maddubs_epi16(high, four)));
    }
}

/* Lines j and j + 2 of a packed one: the low and the high nibbles of words that are mixed. */
ALWAYS_INLINE void first_lines(__m256i narrow[TILE_ROWS][2], const q4r_record *x, size_t at,
                               __m256i low, __m256i high, uint8_t *line, const bool keep,
                               const int rows) {
    const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 2
    for (size_t j = 0; j < 2; j++) {
        __m256i low_line = _mm256_and_si256(low, nibble);
        __m256i high_line = _mm256_and_si256(high, nibble);
        if (keep) {
            store_bytes(line + 2 * j * PANEL_LINE_BYTES, low_line);
            store_bytes(line + 2 * j * PANEL_LINE_BYTES + 32, high_line);
        }
        add_line(narrow, x, at + 8 * j, low_line, high_line, rows);
        low = _mm256_srli_epi16(low, 4);
        high = _mm256_srli_epi16(high, 4);
    }
}

ALWAYS_INLINE void first_rows(const uint8_t *source, const q4r_record *x, size_t k, size_t ahead,
                              q4r_piece *piece, float *sums, const bool keep, const int rows) {
    size_t subs = sub_blocks(k);
    size_t head = subs <= Q4R_SUBS / 2 ? 2 : 3;
    convert_halves(source, piece->scale);
    fetch_lines(source, ahead, head);
    unpack_multipliers(source, subs, piece->multiplier);
    const uint8_t *lines = source + head * PANEL_LINE_BYTES;
    __m256i wide[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        wide[r][0] = wide[r][1] = _mm256_setzero_si256();
    for (size_t pair = 0; pair < (subs + 1) / 2; pair++) {
        const uint8_t *a = lines + 2 * pair * SUB_BYTES;
        const uint8_t *b = 2 * pair + 1 < subs ? a + SUB_BYTES : a; /* x is zero there */
        __m256i narrow[TILE_ROWS][2];
        fetch_lines(a, ahead, 4);
        for (int r = 0; r < rows; r++)
            narrow[r][0] = narrow[r][1] = broadcast4(&x[r].zero[pair]);
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            mixed_line low = mix_lines(a + i * PANEL_LINE_BYTES, b + i * PANEL_LINE_BYTES);
            mixed_line high =
                mix_lines(a + i * PANEL_LINE_BYTES + 32, b + i * PANEL_LINE_BYTES + 32);
            uint8_t *line = piece->line[pair * PAIR_LINES + 4 * i];
            size_t at = pair * PAIR_K + 16 * i;
            first_lines(narrow, x, at, low.even, high.even, line, keep, rows);
            first_lines(narrow, x, at + 4, low.odd, high.odd, line + PANEL_LINE_BYTES, keep, rows);
        }
        add_pair(wide, narrow, piece->multiplier[pair], rows);
    }
    add_sums(wide, piece->scale, x, sums, rows);
}

static void few(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                float *sums, size_t rows) {
    WITH_COUNT_4(rows, count, first_rows(source, x, k, ahead, piece, sums, false, count))
}

static void first_tile(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                       float *sums, size_t rows) {
    (void)rows; /* a whole tile */
    first_rows(source, x, k, ahead, piece, sums, true, TILE_ROWS);
}

LINEAR_ENTRY(q4r, .packed_bytes = PACKED_BYTES, .record_bytes = sizeof(q4r_record),
             .chunk = BYTE_CHUNK, .prepare = prepare, .product = product, .few = few,
             .few_rows = TILE_ROWS, .first = first_tile)
