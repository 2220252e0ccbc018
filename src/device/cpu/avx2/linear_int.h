/* Inside avx2/: how every integer product walks. linear.c is the walk, families fill in its parts:
 *
 *   for up to `chunk` rows of x:
 *       prepare     each row and 256 k of it into a record in the order the product reads
 *       for every panel, every 256 k of it:
 *           unpack  the piece to lines of bytes (or int16) and float scales, 4 … 8 KB: first cache
 *           product the piece with all records, up to 4 rows at a time; sums stay in 64 bytes a row
 *           (some types unpack while they multiply the first 4)
 *       finish      bias, store or add
 *
 * A line of an unpacked piece is 64 bytes: 4 bytes for each of 16 outputs, as in panels.h, two
 * registers. The 4 bytes of x that meet them are broadcast.
 *
 * What bounds it on Zen 4 (3.7 GHz): vpmaddubsw, vpmaddwd and float multiplication take two of the
 * four pipes, additions any. Eight vpmaddubsw with the vpaddw that wait for them should take 4
 * cycles and take 4.9 in most orders (additions that wait occupy pipes that products
 * want): 371 to 387 GOPS a core before anything else is done. A loop of Q4R's instructions alone
 * (with a vpmaddwd and vpaddd for every eight, 6 loads for 8 products) takes 5.6 to 5.9 cycles for
 * eight, the product in the first cache 5.8. Tiles of 6 rows with unsigned x and centred weights
 * reach 300, but unpacking then costs so much more that 8 and 16 rows lose 3 to 10 %, 60 rows win 4
 * and 512 one.
 */
#ifndef AVO_DEVICE_CPU_AVX2_LINEAR_INT_H
#define AVO_DEVICE_CPU_AVX2_LINEAR_INT_H

#include "device/cpu/avx2/avx2_int.h"
#include "device/cpu/with_count.h"

#include <immintrin.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define PIECE_K     256
#define PIECE_UNITS (PIECE_K / PANEL_UNIT)
#define TILE_ROWS   4  /* rows of x that a product takes together */
#define FEW_ROWS    8  /* the same of those that unpack in registers, at most */
#define FEW_MOST    12 /* rows of a call up to which unpacking twice is no slower than storing */

/* Packed weights are asked for this far ahead of being unpacked. */
#define PREFETCH_AHEAD 2048
#define PREFETCH_FAR   8192 /* into the second cache */

/* One row of x, 256 k, for products of bytes. A type has a zero point or minima, not both. */
typedef struct byte_record {
    int8_t number[PIECE_K];
    float scale[PIECE_UNITS];
    union {
        int32_t zero[2 * PIECE_UNITS]; /* per block: what the zero point takes away */
        float sum[2 * PIECE_UNITS];    /* per block: what a minimum is multiplied with */
    };
} __attribute__((aligned(32))) byte_record;

/* The same for products of int16; words in the order 0 2 1 3 of every four (pair_lines). */
typedef struct word_record {
    int16_t number[PIECE_K];
    float scale[PIECE_UNITS];
} __attribute__((aligned(32))) word_record;

/* Unpacked weights: 16 outputs, 256 k. Blocks are of 32 or of 16 k. */
typedef struct byte_piece {
    uint8_t line[PIECE_K / 4][PANEL_LINE_BYTES];
    float scale[2 * PIECE_UNITS][QUANT_PANEL_ROWS];
    float minimum[2 * PIECE_UNITS][QUANT_PANEL_ROWS];
} __attribute__((aligned(64))) byte_piece;

typedef struct word_piece {
    int16_t line[PIECE_K / 2][2 * QUANT_PANEL_ROWS];
    float scale[PIECE_UNITS][QUANT_PANEL_ROWS];
} __attribute__((aligned(64))) word_piece;

/* `k` is what is left of the row at the piece's begin: 256 or more for all but the last. */
typedef void (*prepare_piece)(const activation_view *x, size_t row, size_t piece, void *record);
/* Asks for what lies `ahead` bytes behind each line that it reads; 0: for nothing. */
typedef void (*unpack_piece)(const uint8_t *source, size_t k, size_t ahead, void *piece);
/* sums[row][16] of 1 … TILE_ROWS rows continue. */
typedef void (*product_piece)(const void *piece, const void *records, size_t k, float *sums,
                              size_t rows);

/* Both at once, in registers, for one tile of rows: TILE_ROWS of `first`, `few_rows` of `few`. */
typedef void (*few_piece)(const uint8_t *source, const void *records, size_t k, size_t ahead,
                          void *piece, float *sums, size_t rows);

typedef struct linear_family {
    size_t packed_bytes; /* of 256 k in the panel */
    size_t record_bytes;
    size_t chunk;    /* rows of x whose records fit into the scratch */
    bool row_scales; /* f32 scales per output in the last line of the panel */
    prepare_piece prepare;
    unpack_piece unpack;
    product_piece product;
    few_piece few;   /* for up to `few_rows` rows; or NULL */
    size_t few_rows; /* TILE_ROWS or FEW_ROWS */
    few_piece first; /* for the first of several tiles: leaves the piece; or NULL: unpack does */
} linear_family;

#define BYTE_CHUNK 48
#define WORD_CHUNK 40 /* 40 · 544 · k / 256 = 85 · k bytes of records */

/* Members of the families with records of this kind. */
#define BYTE_RECORDS .record_bytes = sizeof(byte_record), .chunk = BYTE_CHUNK
#define WORD_RECORDS .record_bytes = sizeof(word_record), .chunk = WORD_CHUNK

/* The entry of a type with its family. Files of products are compiled twice, the second time with
 * AVX-VNNI (vnni_*.c), for entries of their own. */
#ifdef __AVXVNNI__
#define LINEAR_NAME(type) avx2_vnni_linear_##type
#else
#define LINEAR_NAME(type) avx2_linear_##type
#endif
#define LINEAR_ENTRY(type, ...)                                                                    \
    void LINEAR_NAME(type)(const linear_call *call, size_t first, size_t last, uint8_t *scratch) { \
        static const linear_family family = {__VA_ARGS__};                                         \
        linear_pieces(&family, call, first, last, scratch);                                        \
    }

void linear_pieces(const linear_family *family, const linear_call *call, size_t first, size_t last,
                   uint8_t *scratch);
/* `rows` rows of x from `row` on, outputs of one panel: y from sums[row][16]; `scale` per output or
 * NULL. */
void linear_finish(const linear_call *call, size_t panel, size_t row, size_t rows,
                   const float *sums, const float *scale);

/* ---- What families share ---- */

ALWAYS_INLINE __m256i load_bytes(const void *source) {
    return _mm256_load_si256((const __m256i *)source);
}

ALWAYS_INLINE void store_bytes(void *to, __m256i bytes) {
    _mm256_store_si256((__m256i *)to, bytes);
}

ALWAYS_INLINE __m256i broadcast4(const void *source) {
    int32_t four;
    memcpy(&four, source, sizeof(four));
    return _mm256_set1_epi32(four);
}

/* An accumulator that stays in its register: compilers would rather gather the products of many
 * lines and add them up later, by way of the stack. */
ALWAYS_INLINE __m256i held(__m256i accumulator) {
    __asm__("" : "+x"(accumulator));
    return accumulator;
}

/* sum + products of words, two and two. */
ALWAYS_INLINE __m256i add_words(__m256i sum, __m256i a, __m256i b) {
#ifdef __AVXVNNI__
    return held(_mm256_dpwssd_avx_epi32(sum, a, b));
#else
    return held(_mm256_add_epi32(sum, _mm256_madd_epi16(a, b)));
#endif
}

#ifdef __AVXVNNI__
/* `lines` nibble lines, 8 k of 16 outputs each, against `rows` rows whose numbers begin at `number`
 * and then every `stride` bytes. */
ALWAYS_INLINE void add_nibbles(const uint8_t *source, const int lines, const int8_t *number,
                               const size_t stride, const int rows, __m256i sum[TILE_ROWS][2]) {
    const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * lines; i++) {
        __m256i first = load_bytes(source + i / 2 * PANEL_LINE_BYTES);
        __m256i second = load_bytes(source + i / 2 * PANEL_LINE_BYTES + 32);
        first = _mm256_and_si256(i % 2 == 0 ? first : _mm256_srli_epi16(first, 4), nibble);
        second = _mm256_and_si256(i % 2 == 0 ? second : _mm256_srli_epi16(second, 4), nibble);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m256i four = broadcast4(number + (size_t)r * stride + 4 * i);
            sum[r][0] = held(_mm256_dpbusd_avx_epi32(sum[r][0], first, four));
            sum[r][1] = held(_mm256_dpbusd_avx_epi32(sum[r][1], second, four));
        }
    }
}
#endif

ALWAYS_INLINE void prefetch_lines(const uint8_t *source, size_t lines) {
    for (size_t i = 0; i < lines; i++)
        _mm_prefetch((const char *)source + i * PANEL_LINE_BYTES, _MM_HINT_T0);
}

/* Asks for the lines `ahead` bytes behind these, and further ahead for the second cache: the first
 * has few open requests, and memory idles while rows compute between two of them. 0: nothing. */
ALWAYS_INLINE void fetch_lines(const uint8_t *source, size_t ahead, size_t lines) {
    for (size_t i = 0; ahead != 0 && i < lines; i++) {
        const char *line = (const char *)source + i * PANEL_LINE_BYTES;
        _mm_prefetch(line + PREFETCH_FAR, _MM_HINT_T1);
        _mm_prefetch(line + ahead, _MM_HINT_T0);
    }
}

/* Units of a piece that has `k` left. */
ALWAYS_INLINE size_t piece_units(size_t k) {
    return k >= PIECE_K ? PIECE_UNITS : (k + PANEL_UNIT - 1) / PANEL_UNIT;
}

/* 16 f16 as 16 floats. */
ALWAYS_INLINE void convert_halves(const uint8_t *source, float *out) {
    for (int i = 0; i < 2; i++)
        _mm256_store_ps(out + 8 * i,
                        _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)source + i)));
}

#endif
