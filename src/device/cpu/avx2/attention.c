/* Attention with AVX2: lanes/attend.h in tiles of 6 rows × 1 vector (12 registers of sums).
 * vpmaddubsw would saturate with whole bytes. Keys go through 16 bits: numbers of both sides are
 * extended, those of a query once. Weights, which are unsigned, are cut into two digits of 4 bits
 * instead, so that values are multiplied as they lie: 8 · 2 · 15 · 128 = 30720 is the most that
 * 16 bits hold of a page. (Cutting a query as well makes as many products, and was slower.)
 *
 * Zen 4, first cache, 8 rows, 64 wide, cycles per row and page of 32: keys 92, values 87 (92
 * through 16 bits; one row 110 in place of 165), all 272 (303). Two products
 * for every 32 numbers take 128 at two a cycle.
 */
#include "device/cpu/avx2/vec16.h"

#include "device/cpu/avx2/avx2_int.h"
#include "device/cpu/ops.h"

#include <string.h>

#define ATTEND_TILE_ROWS    6
#define ATTEND_TILE_VECTORS 1
#define ATTEND_BLOCK        12
#define ATTEND_OWN_VALUES   1
#define PAGE_WORDS          (KV_PAGE_TOKENS / 4)
#define VALUE_ROWS          3 /* rows whose sums of both digits stay in registers */

/* A line of 16 lanes of four signed bytes: the first and third of each lane, the second and fourth,
 * as 16 bits. */
typedef struct quad_line {
    ivec16 even, odd;
} quad_line;
typedef struct quad_word {
    __m256i even, odd;
} quad_word;

/* Words of bytes 0 and 2 and of bytes 1 and 3, in turn. */
static inline int32_t quad_query(const uint8_t *bytes, size_t words, uint32_t *out) {
    for (size_t i = 0; i < words; i++) {
        int16_t halves[4] = {(int8_t)bytes[4 * i], (int8_t)bytes[4 * i + 2],
                             (int8_t)bytes[4 * i + 1], (int8_t)bytes[4 * i + 3]};
        memcpy(out + 2 * i, halves, sizeof(halves));
    }
    return 0;
}

/* Of the 32 weights of a page the digits of 16, then those of 1. */
static inline void quad_weights(const uint8_t *bytes, size_t words, uint32_t *out) {
    (void)words; /* a page */
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m128i *halves = (const __m128i *)(const void *)bytes; /* as they have been stored */
    __m256i weights = _mm256_set_m128i(_mm_loadu_si128(halves + 1), _mm_loadu_si128(halves));
    _mm256_store_si256((__m256i *)(void *)out,
                       _mm256_and_si256(_mm256_srli_epi16(weights, 4), nibble));
    _mm256_store_si256((__m256i *)(void *)(out + PAGE_WORDS), _mm256_and_si256(weights, nibble));
}

static inline quad_line quad_load(const bool keys, const uint8_t *line) {
    (void)keys; /* they are */
    ivec16 bytes = iv_load((const int32_t *)(const void *)line);
    return (quad_line){.even = {_mm256_srai_epi16(_mm256_slli_epi16(bytes.low, 8), 8),
                                _mm256_srai_epi16(_mm256_slli_epi16(bytes.high, 8), 8)},
                       .odd = {_mm256_srai_epi16(bytes.low, 8), _mm256_srai_epi16(bytes.high, 8)}};
}

static inline quad_word quad_broadcast(const uint32_t *words, size_t step) {
    return (quad_word){_mm256_set1_epi32((int)words[2 * step]),
                       _mm256_set1_epi32((int)words[2 * step + 1])};
}

static inline ivec16 quad_add(const bool keys, ivec16 sum, quad_line line, quad_word word) {
    (void)keys; /* they are */
    __m256i low = _mm256_add_epi32(_mm256_madd_epi16(line.even.low, word.even),
                                   _mm256_madd_epi16(line.odd.low, word.odd));
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(line.even.high, word.even),
                                    _mm256_madd_epi16(line.odd.high, word.odd));
    return (ivec16){_mm256_add_epi32(sum.low, low), _mm256_add_epi32(sum.high, high)};
}

#include "device/cpu/lanes/attend_product.h"

/* Adds in the accumulator's own register: compilers would rather gather products and add later. */
ALWAYS_INLINE __m256i add_digit(__m256i sum, __m256i digit, __m256i line) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(digit, line));
    __asm__("" : "+x"(sum));
    return sum;
}

/* A page of values for 16 dimensions, some rows. */
ALWAYS_INLINE void value_vector(const uint32_t rows, const product_call *call, uint32_t row,
                                uint32_t vector) {
    const uint32_t *a = (const uint32_t *)(const void *)(call->a + row * call->a_stride);
    const uint8_t *tile = call->tile + (size_t)vector * 64;
    __m256i high[VALUE_ROWS][2], low[VALUE_ROWS][2];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
        high[r][0] = high[r][1] = low[r][0] = low[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t step = 0; step < PAGE_WORDS; step++) {
        const __m256i *line = (const __m256i *)(const void *)(tile + step * call->line);
        __m256i first = _mm256_load_si256(line);
        __m256i second = _mm256_load_si256(line + 1);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++) {
            __m256i digit = _mm256_set1_epi32((int)a[r * LANES + step]);
            high[r][0] = add_digit(high[r][0], digit, first);
            high[r][1] = add_digit(high[r][1], digit, second);
            digit = _mm256_set1_epi32((int)a[r * LANES + PAGE_WORDS + step]);
            low[r][0] = add_digit(low[r][0], digit, first);
            low[r][1] = add_digit(low[r][1], digit, second);
        }
    }
    const __m256i high_digit = _mm256_set1_epi16(16);
    const __m256i low_digit = _mm256_set1_epi16(1);
    float *c = call->c + row * call->c_stride + (size_t)vector * LANES;
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++, c += call->c_stride) {
        ivec16 sum = {_mm256_add_epi32(_mm256_madd_epi16(high[r][0], high_digit),
                                       _mm256_madd_epi16(low[r][0], low_digit)),
                      _mm256_add_epi32(_mm256_madd_epi16(high[r][1], high_digit),
                                       _mm256_madd_epi16(low[r][1], low_digit))};
        product_add_scaled(call->scale[row + r], sum, c);
    }
}

/* The next page's lines are asked for by the first rows, as many as have been read. */
ALWAYS_INLINE void value_rows(const uint32_t rows, const product_call *call, uint32_t row) {
    for (uint32_t vector = call->first; vector < call->last; vector++) {
        if (row == 0 && call->ahead != NULL)
            for (size_t step = 0; step < PAGE_WORDS; step++)
                attend_fetch(call->ahead + (vector * PAGE_WORDS + step) * 64);
        value_vector(rows, call, row, vector);
    }
}

static __attribute__((noinline)) void product_values(uint32_t rows, const product_call *call) {
    uint32_t parts = (rows + VALUE_ROWS - 1) / VALUE_ROWS;
    for (uint32_t row = 0; row < rows; parts--) {
        uint32_t count = (rows - row + parts - 1) / parts;
        if (count == 3)
            value_rows(3, call, row);
        else if (count == 2)
            value_rows(2, call, row);
        else
            value_rows(1, call, row);
        row += count;
    }
}

#include "device/cpu/lanes/attend.h"

void avx2_attention(op_table *table) {
    lanes_attention(table);
}
