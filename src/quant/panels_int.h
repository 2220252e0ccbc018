/* The PANELS layouts, byte by byte, for the folder itself.
 *
 * A panel is a multiple of 64 bytes and holds 16 rows. A line is 64 bytes: the four bytes at 4·r
 * belong to row r. With n lines before it, a line holds
 *   F32        k = n
 *   F16, BF16  k = 2n, 2n + 1
 *   int8       k = 4n … 4n + 3
 *   4 bit      k = 8n … 8n + 3 in the low nibbles, 8n + 4 … 8n + 7 in the high ones: a mask and a
 *              shift give two lines of int8 in the order of the int8 layout.
 * k is padded with zeros to the step of the type.
 *
 *   F32, F16, BF16  lines only; step 1, 2, 2.
 *   Q8C   lines, then one line with 16 f32 scales (used once, at the end); step 4.
 *         Value: scale · q, q in −127…127.
 *   Q8B   groups of 64 k: a line of 2 × 16 f16 scales (of the first and the second 32 k), then 16
 *         lines, which are just one AMX tile. The last group may be of 32 k: its second scales are
 *         zero and it has 8 lines; step 32. Value: scale · q, q in −127…127.
 *   Q4S   super-blocks of 256 k, the last one shorter (a multiple of 16):
 *           64 bytes: 16 f16 scales, then 16 words of 16 signs: bit r of word s set: the
 *             multiplier of sub-block s in row r is negative;
 *           ⌈sub-blocks / 2⌉ × 16 bytes, rounded up to lines: magnitudes 0…15; the byte at 16·j + r
 *             has those of sub-blocks 2j (low nibble) and 2j + 1 of row r;
 *           2 lines of 4-bit numbers per sub-block of 16 k, each number + 8, so 0…15.
 *         Value: scale · (multiplier · (number − 8)). The product in brackets is an integer of at
 *         most 120 in magnitude: it fits int8, so a back end may sum 256 k in integers. Step 16.
 *         Head first, because the multipliers are needed before the numbers they multiply.
 */
#ifndef AVO_QUANT_PANELS_INT_H
#define AVO_QUANT_PANELS_INT_H

#include "quant/quant.h"

#define PANEL_LINE_BYTES 64

#define Q8B_BLOCK 32
#define Q8B_GROUP 64

#define Q4S_SUPER         256
#define Q4S_SUB           16
#define Q4S_SUBS          (Q4S_SUPER / Q4S_SUB)
#define Q4S_MAGNITUDE_MAX 15

/* Whether the type exists in PANELS. */
bool panels_known(quant_type type);
/* Bytes of one panel; false for other types or when the size wraps. */
bool panels_bytes(quant_type type, uint64_t k, uint64_t *bytes);
/* All 16 lanes as out[k][16]. */
void panels_decode(quant_type type, const uint8_t *panel, size_t k, float *out);
void panels_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_encode_plain(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

/* panels_q8.c */
bool panels_q8_bytes(quant_type type, uint64_t k, uint64_t *bytes);
void panels_q8_decode(quant_type type, const uint8_t *panel, size_t k, float *out);
void panels_q8_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q8_encode(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

/* One block of Q8_0 (GGUF's: f16 scale, 32 int8), with the scale chosen as for Q8B. */
void encode_q8_0_block(const float *source, uint8_t *out);

/* panels_q4s.c */
bool panels_q4s_bytes(uint64_t k, uint64_t *bytes);
void panels_q4s_decode(const uint8_t *panel, size_t k, float *out);
void panels_q4s_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q4s_encode(const float *source, size_t rows, size_t k, uint8_t *out);

#endif
