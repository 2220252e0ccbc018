/* The products of attention in 16 lanes: a line of a tile times one number of each row, line after
 * line. With keys a line is a dimension and lanes are positions, with values a line is a position
 * and lanes are dimensions; the loop is the same. Sums of up to ATTEND_TILE_ROWS rows ×
 * ATTEND_TILE_VECTORS vectors stay in registers; an ISA folder says how many, and how words of four
 * bytes are multiplied (quad_…); with ATTEND_OWN_VALUES it has its own product_values. No order of
 * additions depends on the tile. */
#ifndef AVO_DEVICE_CPU_LANES_ATTEND_PRODUCT_H
#define AVO_DEVICE_CPU_LANES_ATTEND_PRODUCT_H

#include "device/cpu/lanes/position.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define PRODUCT_SCALE_MIN    1e-37f /* scales are 0 or at least ATTEND_TINY / 255 */
#define PRODUCT_WORDS_STRIDE (LANES * sizeof(uint32_t)) /* bytes between rows of INT8 weights */

static inline void attend_fetch(const uint8_t *line) {
    __builtin_prefetch(line, 0, 2);
}

/* 16 numbers of a tile from element `at` on. */
ALWAYS_INLINE vec16 tile_load(const kv_type type, const uint8_t *tile, size_t at) {
    switch (type) {
    case KV_F16:
        return v_load_f16((const uint16_t *)(const void *)tile + at);
    case KV_BF16:
        return v_load_bf16((const uint16_t *)(const void *)tile + at);
    case KV_FP8:
        return v_load_fp8(tile + at);
    default:
        return v_load((const float *)(const void *)tile + at);
    }
}

typedef struct product_call {
    const uint8_t *a; /* floats, or words of bytes */
    size_t a_stride;  /* bytes between rows */
    uint32_t steps;
    const uint8_t *tile;
    size_t line;          /* elements (INT8: bytes) between steps */
    uint32_t first, last; /* vectors of a line */
    float *c;             /* [rows][c_stride]; INT8 keys: int32_t in place of floats */
    size_t c_stride;
    const float *scale;   /* [rows] of INT8 values */
    bool add;             /* to what is in c, else from 0 */
    const uint8_t *ahead; /* a line of 64 bytes is fetched from here on with every step; or NULL */
} product_call;

/* c[row][vector] += Σ_step a[row][step] · tile[step][vector], steps ascending. */
ALWAYS_INLINE void product_float(const kv_type type, const uint32_t rows, const uint32_t vectors,
                                 const product_call *call, uint32_t row, uint32_t vector) {
    vec16 sum[ATTEND_TILE_ROWS][ATTEND_TILE_VECTORS];
    float *c = call->c + row * call->c_stride + (size_t)vector * LANES;
    const uint8_t *a = call->a + row * call->a_stride;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = call->add ? v_load(c + r * call->c_stride + v * LANES) : v_zero();
    size_t at = (size_t)vector * LANES;
    const uint8_t *ahead = call->ahead;
    for (uint32_t step = 0; step < call->steps; step++, at += call->line) {
        vec16 line[ATTEND_TILE_VECTORS];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            line[v] = tile_load(type, call->tile, at + v * LANES);
        if (ahead != NULL)
            attend_fetch(ahead + (size_t)step * 64);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vec16 x = v_set(((const float *)(const void *)(a + r * call->a_stride))[step]);
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++)
                sum[r][v] = v_fma(line[v], x, sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            v_store(c + r * call->c_stride + v * LANES, sum[r][v]);
}

/* c[vector] += sum · scale, but c as it was, −0 included, where the scale is 0. Without a branch:
 * with one, gcc spills sums inside the loop before. */
ALWAYS_INLINE void product_add_scaled(float scale, ivec16 sum, float *c) {
    vec16 times = v_set(scale);
    vec16 old = v_load(c);
    vmask none = v_less(times, v_set(PRODUCT_SCALE_MIN));
    v_store(c, v_select(none, old, v_fma(v_from_int(sum), times, old)));
}

/* The same over bytes, four steps in a word; `keys`: the tile is signed and a signed too, sums
 * begin at the row's offset (behind its words), and c holds int32_t. Else a is unsigned, and the
 * sums times the row's scale are added to the floats in c. */
ALWAYS_INLINE void product_bytes(const bool keys, const uint32_t rows, const uint32_t vectors,
                                 const product_call *call, uint32_t row, uint32_t vector) {
    ivec16 sum[ATTEND_TILE_ROWS][ATTEND_TILE_VECTORS];
    /* Of values a constant, so that no register has to hold where each row begins. */
    const size_t a_stride = keys ? call->a_stride : PRODUCT_WORDS_STRIDE;
    const uint8_t *a = call->a + row * a_stride;
    float *c = call->c + row * call->c_stride + (size_t)vector * LANES;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        int32_t offset = 0;
        if (keys)
            memcpy(&offset, a + r * a_stride + a_stride - 64 + 4, sizeof(offset));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = iv_set(offset);
    }
    const uint8_t *tile = call->tile + (size_t)vector * 64;
    const uint8_t *ahead = call->ahead;
    for (uint32_t step = 0; step < call->steps; step++, tile += call->line) {
        quad_line line[ATTEND_TILE_VECTORS];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            line[v] = quad_load(keys, tile + (size_t)v * 64);
        if (ahead != NULL) {
            attend_fetch(ahead + (size_t)step * 64 * vectors);
            if (vectors > 1)
                attend_fetch(ahead + (size_t)step * 64 * vectors + 64);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            quad_word word =
                quad_broadcast((const uint32_t *)(const void *)(a + r * a_stride), step);
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++)
                sum[r][v] = quad_add(keys, sum[r][v], line[v], word);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++, c += call->c_stride)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            if (keys)
                iv_store((int32_t *)(void *)(c + v * LANES), sum[r][v]);
            else
                product_add_scaled(call->scale[row + r], sum[r][v], c + v * LANES);
        }
}

typedef enum tile_kind { TILE_FLOAT, TILE_KEYS, TILE_VALUES } tile_kind;

ALWAYS_INLINE void product_rows(const tile_kind kind, const kv_type type, const uint32_t rows,
                                const product_call *call, uint32_t row) {
    product_call pass = *call;
    uint32_t vector = call->first;
    for (; vector + ATTEND_TILE_VECTORS <= call->last; vector += ATTEND_TILE_VECTORS) {
        if (kind == TILE_FLOAT)
            product_float(type, rows, ATTEND_TILE_VECTORS, &pass, row, vector);
        else
            product_bytes(kind == TILE_KEYS, rows, ATTEND_TILE_VECTORS, &pass, row, vector);
        if (pass.ahead != NULL)
            pass.ahead += (size_t)call->steps * 64 * (kind == TILE_FLOAT ? 1 : ATTEND_TILE_VECTORS);
    }
    for (; ATTEND_TILE_VECTORS > 1 && vector < call->last; vector++) {
        if (kind == TILE_FLOAT)
            product_float(type, rows, 1, &pass, row, vector);
        else
            product_bytes(kind == TILE_KEYS, rows, 1, &pass, row, vector);
    }
}

/* All of up to ATTEND_BLOCK rows, in equal parts that there are registers for. */
ALWAYS_INLINE void product(const tile_kind kind, const kv_type type, uint32_t rows,
                           const product_call *call) {
    product_call pass = *call;
    uint32_t parts = (rows + ATTEND_TILE_ROWS - 1) / ATTEND_TILE_ROWS;
    for (uint32_t row = 0; row < rows; parts--) {
        uint32_t count = parts == 1 ? rows - row : (rows - row + parts - 1) / parts;
        switch (count) {
        case 1:
            product_rows(kind, type, 1, &pass, row);
            break;
        case 2:
            product_rows(kind, type, 2, &pass, row);
            break;
        case 3:
            product_rows(kind, type, 3, &pass, row);
            break;
        case 4:
            product_rows(kind, type, 4, &pass, row);
            break;
        case 5:
            if (ATTEND_TILE_ROWS >= 5)
                product_rows(kind, type, 5, &pass, row);
            break;
        case 6:
            if (ATTEND_TILE_ROWS >= 6)
                product_rows(kind, type, 6, &pass, row);
            break;
        case 7:
            if (ATTEND_TILE_ROWS >= 7)
                product_rows(kind, type, 7, &pass, row);
            break;
        default:
            if (ATTEND_TILE_ROWS >= 8)
                product_rows(kind, type, 8, &pass, row);
            break;
        }
        pass.ahead = NULL;
        row += count;
    }
}

/* One body each, so that the walk over pages stays small. */
static __attribute__((noinline)) void product_f32(uint32_t rows, const product_call *call) {
    product(TILE_FLOAT, KV_F32, rows, call);
}
static __attribute__((noinline)) void product_f16(uint32_t rows, const product_call *call) {
    product(TILE_FLOAT, KV_F16, rows, call);
}
static __attribute__((noinline)) void product_bf16(uint32_t rows, const product_call *call) {
    product(TILE_FLOAT, KV_BF16, rows, call);
}
static __attribute__((noinline)) void product_fp8(uint32_t rows, const product_call *call) {
    product(TILE_FLOAT, KV_FP8, rows, call);
}
static __attribute__((noinline)) void product_keys(uint32_t rows, const product_call *call) {
    product(TILE_KEYS, KV_INT8, rows, call);
}
#ifndef ATTEND_OWN_VALUES
static __attribute__((noinline)) void product_values(uint32_t rows, const product_call *call) {
    product(TILE_VALUES, KV_INT8, rows, call);
}
#endif

/* Rows of floats times a tile of floats, or of what is stored as such. */
ALWAYS_INLINE void product_of(const kv_type stored, uint32_t rows, const product_call *call) {
    switch (stored) {
    case KV_F16:
        product_f16(rows, call);
        break;
    case KV_BF16:
        product_bf16(rows, call);
        break;
    case KV_FP8:
        product_fp8(rows, call);
        break;
    default:
        product_f32(rows, call);
        break;
    }
}

#endif
