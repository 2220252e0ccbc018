/* Attention with AVX-512: lanes/attend.h in tiles of 8 rows × 2 vectors (16 sums in registers), and
 * the products of bytes by vpdpbusd. */
#include "device/cpu/avx512/vec16.h"

#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/ops.h"

#include <string.h>

#define ATTEND_TILE_ROWS    8
#define ATTEND_TILE_VECTORS 2
#define ATTEND_BLOCK        8

typedef __m512i quad_line; /* 16 lanes of four bytes */
typedef __m512i quad_word; /* four bytes of a row, in every lane */

/* vpdpbusd multiplies unsigned with signed. Keys become unsigned by + 128; what that adds to a sum,
 * 128 · Σ q, is taken away where the sum begins. */
static inline int32_t quad_query(const uint8_t *bytes, size_t words, uint32_t *out) {
    int32_t sum = 0;
    for (size_t i = 0; i < 4 * words; i++)
        sum += (int8_t)bytes[i];
    memcpy(out, bytes, 4 * words);
    return -128 * sum;
}

/* In the pieces in which they have been stored: a load of both would wait for both stores. */
static inline void quad_weights(const uint8_t *bytes, size_t words, uint32_t *out) {
    for (size_t i = 0; i < words; i += 4)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(bytes + 4 * i)));
}

static inline quad_line quad_load(const bool keys, const uint8_t *line) {
    __m512i bytes = _mm512_loadu_si512(line);
    return keys ? _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80)) : bytes;
}

static inline quad_word quad_broadcast(const uint32_t *words, size_t step) {
    return _mm512_set1_epi32((int)words[step]);
}

/* In the sum's own register: gcc would move and spill sums of values inside their loop. */
static inline ivec16 quad_add(const bool keys, ivec16 sum, quad_line line, quad_word word) {
    sum = keys ? _mm512_dpbusd_epi32(sum, line, word) : _mm512_dpbusd_epi32(sum, word, line);
    __asm__("" : "+v"(sum));
    return sum;
}

#include "device/cpu/lanes/attend.h"

void avx512_attention(op_table *table) {
    lanes_attention(table);
}
