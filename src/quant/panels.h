/* The PANELS layouts, byte by byte. For quant/ itself and for the kernels that read them; nobody
 * else needs to know.
 *
 * A panel is a multiple of 64 bytes, begins at a multiple of 64 and holds 16 rows (outputs) for all
 * of k. A line is 64 bytes: the four bytes at 4·r belong to row r. Inside 32 k (a unit):
 *   byte lines     8: line n holds k = 4n … 4n + 3
 *   nibble lines   4: line n holds k = 8n … 8n + 3 in the low nibbles, 8n + 4 … 8n + 7 in the high
 *                  ones: a mask and a shift give two byte lines in order
 *   two-bit lines  2: byte b of line h holds, in bits 2i and 2i + 1, byte b of byte line 4h + i
 *   bit line       1: eight masks of 64 bits: bit b of mask i belongs to byte b of byte line i
 * Numbers are unsigned there; a zero point is subtracted or a codebook applied afterwards.
 *
 * Plain numbers: lines only.
 *   F32        line n holds k = n                      step 1
 *   F16, BF16  line n holds k = 2n, 2n + 1             step 2
 *   F8C        byte lines (E4M3), then one line with 16 f32 scales; step 4. Value: scale · number.
 *
 * 8 bit. Numbers are signed (two's complement) in their bytes.
 *   Q8C        byte lines, then one line with 16 f32 scales; step 4.
 *   Q8R        the same of a matrix that is first rotated along k by quant_rotate, as Q4R's is;
 *              step 16.
 *   Q8_0, Q8B  groups of 64 k: a line with 2 × 16 f16 scales (of the first and the second 32 k),
 *              then 16 byte lines. The last group may have 32 k: its second scales are zero and it
 *              has 8 byte lines. Step 32. Q8B has −127 … 127; Q8_0 may have −128 as well.
 *
 * Blocks. "d × 2" is a line with 2 × 16 f16: of the first and of the second block of the group. A
 * group is its head, then its units in order. The last group may hold fewer units: the head is
 * whole (scales of blocks that are not there are zero), units that are not there are left out.
 * k is padded to whole units.
 *   type     group  head                     unit                      value
 *   Q4_0     64     d × 2                    4 nibble lines            d · (q − 8)
 *   Q4_1     64     d × 2, m × 2             4 nibble lines            d · q + m
 *   Q4B64    128    d × 2 (blocks of 64)     4 nibble lines            d · (q − 8)
 *   Q4M64    64     d, m (one line)          4 nibble lines            d · q + m
 *   Q5_0     64     d × 2                    4 nibble, 1 bit line      d · (q − 16)
 *   Q5_1     64     d × 2, m × 2             4 nibble, 1 bit line      d · q + m
 *   IQ4_NL   64     d × 2                    4 nibble lines            d · codebook_iq4[q]
 *   MXFP4    64     d × 2, as bf16           4 nibble lines            d · codebook_mxfp4[q]
 *              (codebook_mxfp4 has whole numbers, twice the format's: d is half the block's scale)
 *
 * Super-blocks of 256 k; k is a multiple of 256. First line: 16 f16 d, then 16 f16 dmin or zeros.
 * "s[8]" is 8 × 16 bytes (2 lines): byte 16·b + r is of block b (32 k) and row r; "s[16]" 4 lines,
 * blocks of 16 k.
 *   Q4_K     d dmin, s[8], m[8] (unsigned)   4 nibble lines            d·s · q − dmin·m
 *   Q5_K     d dmin, s[8], m[8] (unsigned)   4 nibble, 1 bit line      d·s · q − dmin·m
 *   Q6_K     d, s[16] (signed)               4 nibble, 2 two-bit lines d·s · (q − 32)
 *   Q3_K     d, s[16] (signed)               2 two-bit, 1 bit line     d·s · (q − 4)
 *   Q2_K     d dmin, s[16] (low nibble the scale, high nibble the minimum)
 *                                            2 two-bit lines           d·s · q − dmin·m
 *   IQ4_XS   d, s[8] (signed)                4 nibble lines            d·s · codebook_iq4[q]
 *
 *   Q4R   our own 4 bit, 4.375 bits a weight: the matrix is first rotated along k by quant_rotate
 *         (the kernels rotate activations instead of rotating back). Super-blocks of 256 k, the
 *         last one shorter (a multiple of 16):
 *           64 bytes: 16 f16 scales, then 16 words of 16 signs: bit r of word s set: the
 *             multiplier of sub-block s in row r is negative;
 *           ⌈sub-blocks / 2⌉ × 16 bytes, rounded up to lines: magnitudes 0…15; the byte at 16·j + r
 *             has those of sub-blocks 2j (low nibble) and 2j + 1 of row r;
 *           2 nibble lines per sub-block of 16 k, each number + 8, so 0…15.
 *         Rotated value: scale · (multiplier · (number − 8)). The product in brackets is an integer
 *         of at most 120 in magnitude: it fits int8, so 256 k are summed in integers. Step 16.
 *         Head first, because the multipliers are needed before the numbers they multiply.
 */
#ifndef AVO_QUANT_PANELS_H
#define AVO_QUANT_PANELS_H

#include "quant/quant.h"

#define PANEL_LINE_BYTES 64
#define PANEL_UNIT       32 /* k that integer kernels take together */

#define Q8B_BLOCK 32

#define Q4R_SUPER         256
#define Q4R_SUB           16
#define Q4R_SUBS          (Q4R_SUPER / Q4R_SUB)
#define Q4R_MAGNITUDE_MAX 15

extern const int8_t codebook_iq4[16];
extern const int8_t codebook_mxfp4[16];

/* Whether the type exists in PANELS. */
bool panels_known(quant_type type);
/* Bytes of one panel; false for other types or when the size wraps. */
bool panels_bytes(quant_type type, uint64_t k, uint64_t *bytes);

/* One unit of an integer type as plain integers, for whatever wants to compute as the kernels do
 * and need not be fast: number · scale + minimum is the (for Q4R and Q8R: rotated) value, exact in
 * the sense that one rounding of each operation gives what weight_decode_panel gives. */
typedef struct panel_unit {
    int16_t number[PANEL_UNIT][QUANT_PANEL_ROWS]; /* zero point, codebook, multiplier applied */
    float scale[2][QUANT_PANEL_ROWS];             /* of the first and the second 16 k */
    float minimum[2][QUANT_PANEL_ROWS];           /* 0 where the type has none */
} panel_unit;
void panel_unit_read(quant_type type, const uint8_t *panel, size_t k, size_t unit, panel_unit *out);

/* How products read a type: what form activations must have (device/cpu/activation.h). */
typedef enum product_form {
    PRODUCT_FLOAT, /* F32, F16, BF16, F8C: floats */
    PRODUCT_A8,    /* blocks of 32 or 16: int8, one scale per 32 k */
    PRODUCT_A16,   /* 8 bit: two int8 planes, one scale per 32 k */
    PRODUCT_A8R,   /* Q4R, Q8R: rotated, int8, one scale per 256 k */
    PRODUCT_FORMS
} product_form;
product_form panels_form(quant_type type);
/* Integer types: whether scales change inside 32 k (16-k blocks), and whether there are minima. */
bool panels_sub_blocks(quant_type type);
bool panels_minimum(quant_type type);

#endif
