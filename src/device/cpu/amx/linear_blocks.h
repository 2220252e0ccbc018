/* Products on tiles for types whose scale changes every 32 k (A8) and for 8-bit ones (A16). A type
 * is a function that unpacks; how its products run depends on its kind alone.
 *
 * Layout  one panel (16 outputs); BLOCK_PIECE k of it are unpacked to byte lines and float scales
 *         that stay in the first-level cache while all rows of x stream past.
 * Tile    16 rows × 16 outputs, whose 16 × 16 float sums stay in registers over the piece. A block
 *         of 32 k is one product of tiles of that depth: half of what the tile unit could do, but
 *         float work must follow each block: a conversion, a product and an fma per row, one more
 *         fma for minima. The products of block b + 2 are issued before the float work of block b.
 *         2 × 2 tiles, which load less, were slower: their integers and sums do not stay in
 *         registers and the first-level cache.
 * A16     two products a block, of the high and of the low bytes. 255 · high + low as float is one
 *         fma of the two as floats: both are exact, and it rounds once, as F(I) does.
 * Tails   the last tile of rows begins 16 before the end (amx_int.h); k up to whole units with
 *         zeros. Few rows go to AVX-512 (amx_int.h).
 * Sums    f[row][output], in the order of activation.h.
 * Rates   bench_linear amx q4_0,q4_1,q8_0 5632 2048 512 16, the machine as in linear_q4r.c: Q4_0
 *         4.1 TOPS, Q4_1 3.4, Q8_0 1.9; AVX-512 in the same run 2.1, 1.8 and 1.2.
 */
#ifndef AVO_DEVICE_CPU_AMX_LINEAR_BLOCKS_H
#define AVO_DEVICE_CPU_AMX_LINEAR_BLOCKS_H

#include "device/cpu/amx/amx_int.h"
#include "device/cpu/avx512/units.h"

#define BLOCK_PIECE 512 /* k: 8 KB of lines a panel */
#define BLOCKS_MAX  (BLOCK_PIECE / PANEL_UNIT)

/* A piece of a panel as a product reads it. */
typedef struct block_piece {
    int8_t lines[BLOCK_PIECE * QUANT_PANEL_ROWS];
    float scale[BLOCKS_MAX][QUANT_PANEL_ROWS];   /* per block; Q8C: [0] is of the row */
    float minimum[BLOCKS_MAX][QUANT_PANEL_ROWS]; /* where the kind has minima */
} block_piece;

/* Unpacks [begin, begin + count) of k; begin is a multiple of BLOCK_PIECE, count of 32 (what lies
 * behind k is zero). */
typedef void (*block_unpack)(const uint8_t *panel, size_t k, size_t begin, size_t count,
                             block_piece *out);

/* Units of a type, numbers with their zero point applied. */
AMX_INLINE void block_unpack_units(const a8_kind *kind, const uint8_t *panel, size_t begin,
                                   size_t count, block_piece *out) {
    const __m512i zero = _mm512_set1_epi8((char)kind->zero);
    for (size_t i = 0; i < count / PANEL_UNIT; i++) {
        size_t unit = begin / PANEL_UNIT + i;
        const uint8_t *group = panel + unit / kind->group_units * kind->group_bytes;
        a8_unit read;
        a8_prefetch(kind, group, unit % kind->group_units, TILE_ROWS_MAX);
        kind->read(group, unit % kind->group_units, &read);
        int8_t *lines = out->lines + i * PANEL_UNIT * QUANT_PANEL_ROWS;
#pragma GCC unroll 8
        for (int line = 0; line < 8; line++)
            _mm512_store_si512(lines + line * PANEL_LINE_BYTES,
                               _mm512_sub_epi8(read.line[line], zero));
        _mm512_store_ps(out->scale[i], read.scale[0]);
        if (kind->minimum)
            _mm512_store_ps(out->minimum[i], read.minimum[0]);
    }
}

/* A call, a range of panels, and how its type is unpacked. */
typedef struct block_job {
    const linear_call *call;
    size_t first, last;
    block_unpack unpack;
    uint8_t *scratch;
} block_job;

/* One function a kind. */
void block_linear_a8(const block_job *job);
void block_linear_a8_minimum(const block_job *job);
void block_linear_a16(const block_job *job);
void block_linear_a16_channel(const block_job *job);

AMX_INLINE void block_linear(const a8_kind *kind, const block_job *job) {
    if (kind->minimum)
        block_linear_a8_minimum(job);
    else
        block_linear_a8(job);
}

#endif
