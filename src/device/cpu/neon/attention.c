/* Attention with NEON: lanes/attend.h in tiles of 4 rows × 1 vector (16 registers of sums), and the
 * products of bytes by sdot. Not timed yet. */
#include "device/cpu/neon/vec16.h"

#include "device/cpu/neon/neon_int.h"

#define ATTEND_TILE_ROWS    4
#define ATTEND_TILE_VECTORS 1
#define ATTEND_BLOCK        8

/* 16 lanes of four signed bytes. Weights are unsigned, but sdot multiplies signed with signed: they
 * become signed by − 128, and `back`, 128 · the sum of each lane's bytes, puts that right. */
typedef struct quad_line {
    int8x16_t byte[QUARTERS];
    ivec16 back; /* of values alone */
} quad_line;
typedef int8x16_t quad_word; /* four bytes of a row, in every lane */

static inline int32_t quad_query(const uint8_t *bytes, size_t words, uint32_t *out) {
    memcpy(out, bytes, 4 * words);
    return 0;
}

static inline void quad_weights(const uint8_t *bytes, size_t words, uint32_t *out) {
    uint8_t *to = (uint8_t *)out;
    for (size_t i = 0; i < 4 * words; i++)
        to[i] = bytes[i] ^ 0x80;
}

static inline quad_line quad_load(const bool keys, const uint8_t *line) {
    quad_line out;
#pragma GCC unroll 4
    for (int i = 0; i < QUARTERS; i++) {
        out.byte[i] = vreinterpretq_s8_u8(vld1q_u8(line + 16 * i));
        out.back.q[i] = vdupq_n_s32(0);
        if (!keys)
            out.back.q[i] = vshlq_n_s32(vdotq_s32(vdupq_n_s32(0), out.byte[i], vdupq_n_s8(1)), 7);
    }
    return out;
}

static inline quad_word quad_broadcast(const uint32_t *words, size_t step) {
    return vreinterpretq_s8_u32(vdupq_n_u32(words[step]));
}

static inline ivec16 quad_add(const bool keys, ivec16 sum, quad_line line, quad_word word) {
    sum = keys ? sum : iv_add(sum, line.back);
    return EACH_QUARTER(ivec16, vdotq_s32(sum.q[quarter], line.byte[quarter], word));
}

#include "device/cpu/lanes/attend.h"

void neon_attention(op_table *table) {
    lanes_attention(table);
}

void neon_rotate(float *x, uint32_t count) {
    lanes_kv_rotate(x, count);
}
