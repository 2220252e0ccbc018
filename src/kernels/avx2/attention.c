/* Attention with AVX2: lanes/attend.h in tiles of 6 rows × 1 vector (12 registers of sums).
 * Products of bytes go through 16 bits: vpmaddubsw would saturate. */
#include "kernels/avx2/vec16.h"

#include "kernels/avx2/avx2_int.h"
#include "kernels/ops.h"

#include <string.h>

#define ATTEND_TILE_ROWS    6
#define ATTEND_TILE_VECTORS 1
#define ATTEND_BLOCK        12

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

static inline void quad_weights(const uint8_t *bytes, size_t words, uint32_t *out) {
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, bytes + 4 * i, sizeof(word));
        out[2 * i] = word & 0x00ff00ffu;
        out[2 * i + 1] = word >> 8 & 0x00ff00ffu;
    }
}

static inline quad_line quad_load(const bool keys, const uint8_t *line) {
    (void)keys; /* signed in both */
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
    (void)keys;
    __m256i low = _mm256_add_epi32(_mm256_madd_epi16(line.even.low, word.even),
                                   _mm256_madd_epi16(line.odd.low, word.odd));
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(line.even.high, word.even),
                                    _mm256_madd_epi16(line.odd.high, word.odd));
    return (ivec16){_mm256_add_epi32(sum.low, low), _mm256_add_epi32(sum.high, high)};
}

#include "kernels/lanes/attend.h"

void avx2_attention(op_table *table) {
    lanes_attention(table);
}
