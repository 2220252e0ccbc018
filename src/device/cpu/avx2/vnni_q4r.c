/* Q4R with AVX-VNNI, two ways to the same integers, as AVX-512 has them (avx512/linear_q4r.c):
 *
 *   up to 4 rows  numbers 0…15 against x per sub-block of 16 k, then one vpdpwssd by the
 *                 multiplier. Per 32 k, 8 outputs and a row: 8 vpdpbusd, 2 vpdpwssd
 *   7 and more    multiplier · (number − 8) + 128 as bytes, unpacked once per piece: 8 vpdpbusd
 *
 * and for 5 and 6 rows the kernel of AVX2 alone, which unpacks while it multiplies the first four.
 *
 * A sum of 16 begins at −8 · (sum of the 16 numbers of x) and ends as at most 16 · 8 · 127 = 16256
 * in magnitude, so that its lower word is all of it. Bytes are within 8…248: the sum of 256 k
 * begins at −128 · (sum of the numbers of x).
 */
#include "device/cpu/avx2/q4r.h"

/* Calls of more than one tile, but fewer rows than these, do not make up for the bytes: five rows
 * took 1.16 to 1.19 times as long as AVX2 alone takes, eight .96 to .99 (Zen 5; 1.1B). */
#define MAKE_BYTES_FROM 7

#define NUMBER_ZERO 8
#define BYTE_ZERO   128

typedef struct q4r_record {
    int8_t number[PIECE_K];
    int32_t begin[Q4R_SUBS]; /* −8 · (sum of a sub-block) */
    int32_t begin_all;       /* −128 · (sum of all) */
    float scale;
} __attribute__((aligned(32))) q4r_record;

static void prepare(const activation_view *x, size_t row, size_t piece, void *record) {
    q4r_record *out = record;
    const int8_t *number = x->number + row * x->stride + piece * PIECE_K;
    const int32_t *sum = x->integer_sum + row * x->sum_stride + piece * Q4R_SUBS;
    size_t subs = sub_blocks(x->k - piece * PIECE_K);
    int32_t all = 0;
    for (size_t at = 0; at < subs * Q4R_SUB; at += PANEL_UNIT)
        store_bytes(out->number + at, load_bytes(number + at));
    for (size_t sub = 0; sub < subs; sub++) {
        all += sum[sub];
        out->begin[sub] = -NUMBER_ZERO * sum[sub];
    }
    out->begin_all = -BYTE_ZERO * all;
    out->scale = x->scale[row * x->scale_stride + piece];
}

/* The integer sums of 256 k and 8 outputs to floats. */
ALWAYS_INLINE void add_sum(__m256i integers, __m256 weight_scale, const q4r_record *x, float *sum) {
    __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(x->scale));
    _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), scale, _mm256_load_ps(sum)));
}

/* ---- Few rows ---- */

/* A sub-block; the upper words of `multiplier` are zero. */
ALWAYS_INLINE void few_sub(const uint8_t *source, const __m256i multiplier[2], const q4r_record *x,
                           size_t sub, __m256i total[TILE_ROWS][2], const int rows) {
    __m256i sum[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = broadcast4(&x[r].begin[sub]);
    add_nibbles(source, 2, x->number + sub * Q4R_SUB, sizeof(*x), rows, sum);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            total[r][h] = _mm256_dpwssd_avx_epi32(total[r][h], sum[r][h], multiplier[h]);
}

ALWAYS_INLINE void few_rows(const uint8_t *source, const q4r_record *x, size_t k, size_t ahead,
                            q4r_piece *piece, float *sums, const int rows) {
    size_t subs = sub_blocks(k);
    size_t head = subs <= Q4R_SUBS / 2 ? 2 : 3;
    fetch_lines(source, ahead, head);
    convert_halves(source, piece->scale);
    unpack_multipliers(source, subs, piece->multiplier);
    source += head * PANEL_LINE_BYTES;
    __m256i total[TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        total[r][0] = total[r][1] = _mm256_setzero_si256();
    for (size_t sub = 0; sub < subs; sub += 2, source += 2 * SUB_BYTES) {
        __m256i even[2], odd[2];
        for (int h = 0; h < 2; h++) {
            __m256i both = load_bytes(piece->multiplier[sub / 2] + 8 * h);
            even[h] = _mm256_and_si256(both, _mm256_set1_epi32(0xffff));
            odd[h] = _mm256_srli_epi32(both, 16);
        }
        fetch_lines(source, ahead, 4);
        few_sub(source, even, x, sub, total, rows);
        if (sub + 1 < subs)
            few_sub(source + SUB_BYTES, odd, x, sub + 1, total, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++)
            add_sum(total[r][h], _mm256_load_ps(piece->scale + 8 * h), x + r,
                    sums + r * QUANT_PANEL_ROWS + 8 * h);
}

static void few(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                float *sums, size_t rows){
    WITH_COUNT_4(rows, count, few_rows(source, x, k, ahead, piece, sums, count))}

/* ---- Many ---- */

/* Lines of a sub-block, for 8 outputs whose multiplier stands in both words. Two numbers are
 * multiplied at once in a word: (256 · b + a) · m + 257 · c is 256 · (b · m + c) + (a · m + c), and
 * with c = 128 − 8 · m neither byte carries into the other. */
ALWAYS_INLINE void unpack_sub(const uint8_t *source, __m256i multiplier, uint8_t *line) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i offset =
        _mm256_add_epi16(_mm256_mullo_epi16(multiplier, _mm256_set1_epi16(-NUMBER_ZERO * 257)),
                         _mm256_set1_epi16((short)(BYTE_ZERO * 257)));
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        __m256i both = load_bytes(source + i * PANEL_LINE_BYTES);
        __m256i low = _mm256_and_si256(both, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        uint8_t *to = line + 2 * i * PANEL_LINE_BYTES;
        store_bytes(to, _mm256_add_epi16(_mm256_mullo_epi16(low, multiplier), offset));
        store_bytes(to + PANEL_LINE_BYTES,
                    _mm256_add_epi16(_mm256_mullo_epi16(high, multiplier), offset));
    }
}

static void unpack(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    q4r_piece *out = piece;
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi8(2));
    size_t subs = sub_blocks(k);
    size_t head = subs <= Q4R_SUBS / 2 ? 2 : 3;
    fetch_lines(source, ahead, head);
    convert_halves(source, out->scale);
    unpack_multipliers(source, subs, out->multiplier);
    source += head * PANEL_LINE_BYTES;
    for (size_t sub = 0; sub < subs; sub++, source += SUB_BYTES) {
        fetch_lines(source, ahead, 2);
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            __m256i both = load_bytes(out->multiplier[sub / 2] + 8 * h);
            __m256i words = _mm256_shuffle_epi8(both, sub % 2 == 0 ? first : second);
            unpack_sub(source + 32 * h, words, out->line[4 * sub] + 32 * h);
        }
    }
}

ALWAYS_INLINE void product_rows(const q4r_piece *w, const q4r_record *x, size_t k, float *sums,
                                const int rows) {
    size_t lines = sub_blocks(k) * (Q4R_SUB / 4);
    __m256i low[TILE_ROWS], high[TILE_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        low[r] = high[r] = broadcast4(&x[r].begin_all);
    for (size_t begin = 0; begin < lines; begin += 4)
#pragma GCC unroll 4
        for (size_t i = begin; i < begin + 4; i++) {
            __m256i first = load_bytes(w->line[i]), second = load_bytes(w->line[i] + 32);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i four = broadcast4(x[r].number + 4 * i);
                low[r] = held(_mm256_dpbusd_avx_epi32(low[r], first, four));
                high[r] = held(_mm256_dpbusd_avx_epi32(high[r], second, four));
            }
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *sum = sums + r * QUANT_PANEL_ROWS;
        add_sum(low[r], _mm256_load_ps(w->scale), x + r, sum);
        add_sum(high[r], _mm256_load_ps(w->scale + 8), x + r, sum + 8);
    }
}

static void product(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    WITH_COUNT_4(rows, count, product_rows(w, x, k, sums, count))
}

static void pieces(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = PACKED_BYTES,
                                         .record_bytes = sizeof(q4r_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack,
                                         .product = product,
                                         .few = few,
                                         .few_rows = TILE_ROWS};
    linear_pieces(&family, call, first, last, scratch);
}

void avx2_vnni_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    size_t rows = call->x->rows;
    if (rows >= MAKE_BYTES_FROM || rows <= TILE_ROWS)
        pieces(call, first, last, scratch);
    else
        avx2_linear_q4r(call, first, last, scratch);
}
