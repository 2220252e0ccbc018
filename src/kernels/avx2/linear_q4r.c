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
 * Two Zen 4 cores, bench_linear avx2 q4r 5632 2048 1,2,4,8,16,512 2: one row 36 GB/s; 2, 4, 8, 16
 * rows in 1.05, 1.37, 2.44, 4.17 times its time; 512 rows 536 GOPS.
 */
#include "kernels/avx2/linear_int.h"

#include "base/checked.h"

#define PAIR_K       (2 * Q4R_SUB)
#define PAIRS        (Q4R_SUPER / PAIR_K)
#define PACKED_HEAD  PANEL_LINE_BYTES
#define PACKED_BYTES (3 * PANEL_LINE_BYTES + Q4R_SUPER / 8 * PANEL_LINE_BYTES)
#define PAIR_LINES   (PAIR_K / 4)
#define SUB_BYTES    (2 * PANEL_LINE_BYTES)

typedef struct q4r_piece {
    uint8_t line[PIECE_K / 4][PANEL_LINE_BYTES];
    int32_t multiplier[PAIRS][QUANT_PANEL_ROWS]; /* int16 of a, int16 of b */
    float scale[QUANT_PANEL_ROWS];
} __attribute__((aligned(64))) q4r_piece;

typedef struct q4r_record {
    int8_t number[PIECE_K];
    int32_t zero[PAIRS]; /* −8 · (sum of a), −8 · (sum of b), as int16 */
    float scale;
} __attribute__((aligned(64))) q4r_record;

static size_t sub_blocks(size_t k) {
    return (size_min(k, Q4R_SUPER) + Q4R_SUB - 1) / Q4R_SUB;
}

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

/* Two packed lines, of a and of b, for 8 outputs: four lines of both. */
ALWAYS_INLINE void split_lines(const uint8_t *a, const uint8_t *b, __m256i line[4]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    mixed_line mixed = mix_lines(a, b);
    line[0] = _mm256_and_si256(mixed.even, nibble);
    line[1] = _mm256_and_si256(mixed.odd, nibble);
    line[2] = _mm256_and_si256(_mm256_srli_epi16(mixed.even, 4), nibble);
    line[3] = _mm256_and_si256(_mm256_srli_epi16(mixed.odd, 4), nibble);
}

/* 4 packed lines, two of a and two of b, as 8 lines of both. */
ALWAYS_INLINE void unpack_pair(const uint8_t *a, const uint8_t *b, uint8_t *out) {
    for (size_t i = 0; i < 4; i++) { /* line i / 2, outputs 8 · (i % 2) … */
        __m256i line[4];
        split_lines(a + 32 * i, b + 32 * i, line);
        for (size_t j = 0; j < 4; j++)
            store_bytes(out + (i / 2 * 4 + j) * PANEL_LINE_BYTES + i % 2 * 32, line[j]);
    }
}

/* Multipliers of a pair: magnitudes from the nibbles of a byte, signs from two words. */
ALWAYS_INLINE void unpack_multipliers(const uint8_t *super, size_t pair, int32_t *out) {
    const uint8_t *magnitudes = super + PACKED_HEAD + pair * QUANT_PANEL_ROWS;
    __m256i signs = broadcast4(super + 32 + 4 * pair);
    __m256i bit = _mm256_setr_epi32(0x10001, 0x20002, 0x40004, 0x80008, 0x100010, 0x200020,
                                    0x400040, 0x800080);
    for (int i = 0; i < 2; i++) {
        __m256i byte = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)(magnitudes + 8 * i)));
        __m256i both = _mm256_or_si256(byte, _mm256_slli_epi32(byte, 12));
        both = _mm256_and_si256(both, _mm256_set1_epi32(0x000f000f));
        __m256i negative = _mm256_cmpeq_epi16(_mm256_and_si256(signs, bit), bit);
        both = _mm256_sub_epi16(_mm256_xor_si256(both, negative), negative);
        store_bytes(out + 8 * i, both);
        bit = _mm256_slli_epi16(bit, 8);
    }
}

static void unpack(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    q4r_piece *out = piece;
    size_t subs = sub_blocks(k);
    const uint8_t *lines = source + PACKED_HEAD + (subs <= Q4R_SUBS / 2 ? 1 : 2) * PANEL_LINE_BYTES;
    convert_halves(source, out->scale);
    prefetch_lines(source + ahead, 3);
    for (size_t pair = 0; pair < (subs + 1) / 2; pair++) {
        const uint8_t *a = lines + 2 * pair * SUB_BYTES;
        const uint8_t *b = 2 * pair + 1 < subs ? a + SUB_BYTES : a; /* x is zero there */
        unpack_multipliers(source, pair, out->multiplier[pair]);
        prefetch_lines(a + ahead, 4);
        unpack_pair(a, b, out->line[pair * PAIR_LINES]);
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
        __m256i low = load_bytes(w->multiplier[pair]);
        __m256i high = load_bytes(w->multiplier[pair] + 8);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            wide[r][0] = _mm256_add_epi32(wide[r][0], _mm256_madd_epi16(narrow[r][0], low));
            wide[r][1] = _mm256_add_epi32(wide[r][1], _mm256_madd_epi16(narrow[r][1], high));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            float *sum = sums + r * QUANT_PANEL_ROWS + 8 * i;
            __m256 scale =
                _mm256_mul_ps(_mm256_load_ps(w->scale + 8 * i), _mm256_set1_ps(x[r].scale));
            _mm256_store_ps(
                sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r][i]), scale, _mm256_load_ps(sum)));
        }
}

static void product(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    switch (rows) {
    case 1:
        product_rows(w, x, k, sums, 1);
        return;
    case 2:
        product_rows(w, x, k, sums, 2);
        return;
    case 3:
        product_rows(w, x, k, sums, 3);
        return;
    default:
        product_rows(w, x, k, sums, 4);
    }
}

/* ---- Up to four rows alone: unpacked in registers, 8 outputs at a time ---- */

ALWAYS_INLINE void few_half(const uint8_t *lines, const q4r_record *x, size_t subs, size_t ahead,
                            q4r_piece *piece, const int half, float *sums, const int rows) {
    __m256i wide[TILE_ROWS];
    for (int r = 0; r < rows; r++)
        wide[r] = _mm256_setzero_si256();
    for (size_t pair = 0; pair < (subs + 1) / 2; pair++) {
        const uint8_t *a = lines + 2 * pair * SUB_BYTES + 32 * half;
        const uint8_t *b = 2 * pair + 1 < subs ? a + SUB_BYTES : a; /* x is zero there */
        __m256i narrow[TILE_ROWS];
        prefetch_lines(a + ahead + half * SUB_BYTES, 2);
        for (int r = 0; r < rows; r++)
            narrow[r] = broadcast4(&x[r].zero[pair]);
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            __m256i line[4];
            split_lines(a + i * PANEL_LINE_BYTES, b + i * PANEL_LINE_BYTES, line);
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) {
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    narrow[r] = held(_mm256_add_epi16(
                        narrow[r],
                        _mm256_maddubs_epi16(
                            line[j], broadcast4(x[r].number + pair * PAIR_K + 16 * i + 4 * j))));
            }
        }
        __m256i multiplier = load_bytes(piece->multiplier[pair] + 8 * half);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            wide[r] = _mm256_add_epi32(wide[r], _mm256_madd_epi16(narrow[r], multiplier));
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *sum = sums + r * QUANT_PANEL_ROWS + 8 * half;
        __m256 scale =
            _mm256_mul_ps(_mm256_load_ps(piece->scale + 8 * half), _mm256_set1_ps(x[r].scale));
        _mm256_store_ps(sum,
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]), scale, _mm256_load_ps(sum)));
    }
}

ALWAYS_INLINE void few_rows(const uint8_t *source, const q4r_record *x, size_t k, size_t ahead,
                            q4r_piece *piece, float *sums, const int rows) {
    size_t subs = sub_blocks(k);
    size_t head = subs <= Q4R_SUBS / 2 ? 2 : 3;
    convert_halves(source, piece->scale);
    prefetch_lines(source + ahead, head);
    for (size_t pair = 0; pair < (subs + 1) / 2; pair++)
        unpack_multipliers(source, pair, piece->multiplier[pair]);
    source += head * PANEL_LINE_BYTES;
    few_half(source, x, subs, ahead, piece, 0, sums, rows);
    few_half(source, x, subs, ahead, piece, 1, sums, rows);
}

static void few(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                float *sums, size_t rows) {
    switch (rows) {
    case 1:
        few_rows(source, x, k, ahead, piece, sums, 1);
        return;
    case 2:
        few_rows(source, x, k, ahead, piece, sums, 2);
        return;
    case 3:
        few_rows(source, x, k, ahead, piece, sums, 3);
        return;
    default:
        few_rows(source, x, k, ahead, piece, sums, 4);
    }
}

void avx2_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = PACKED_BYTES,
                                         .record_bytes = sizeof(q4r_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack,
                                         .product = product,
                                         .few = few};
    linear_pieces(&family, call, first, last, scratch);
}
