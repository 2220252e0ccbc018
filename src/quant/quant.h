/* Numeric formats: numbers, sizes, exact decode, encode; and the layouts in which weight matrices
 * lie. Nothing above this module knows what a block looks like.
 *
 * A type says how numbers are coded along k; a layout says where they lie:
 *   ROWS     row after row, each a run of blocks along k: files as others write them.
 *   COLUMNS  transposed: k runs over the slow dimension (GPT-2's Conv1D). F32, F16, BF16 only.
 *   PANELS   16 output rows together (contract 1 in docs/architecture.md): a 64-byte line holds,
 *            for each of 16 rows, 4 bytes of consecutive k. The last panel is padded with zero
 *            rows, k with zeros to the type's step. Scales lie inside the panel, beside what they
 *            scale, so that a product reads it front to back; panels.h says where.
 */
#ifndef AVO_QUANT_QUANT_H
#define AVO_QUANT_QUANT_H

#include "base/status.h"

#include <string.h>

/* X(name, number, text, elements per block, bytes per block).
 * Numbers are written into .avo files: never reused, only added to. 0…63 plain numbers, 64 + the
 * GGML number for GGUF's types, from 128 on our own, which exist in PANELS only (block bytes 0). */
#define QUANT_TYPE_TABLE(X)                                                                        \
    X(QUANT_F32, 0, "f32", 1, 4)                                                                   \
    X(QUANT_F16, 1, "f16", 1, 2)                                                                   \
    X(QUANT_BF16, 2, "bf16", 1, 2)                                                                 \
    X(QUANT_F64, 3, "f64", 1, 8)                                                                   \
    X(QUANT_F8_E4M3, 4, "f8_e4m3", 1, 1)                                                           \
    X(QUANT_F8_E5M2, 5, "f8_e5m2", 1, 1)                                                           \
    X(QUANT_I8, 6, "i8", 1, 1)                                                                     \
    X(QUANT_U8, 7, "u8", 1, 1)                                                                     \
    X(QUANT_I16, 8, "i16", 1, 2)                                                                   \
    X(QUANT_U16, 9, "u16", 1, 2)                                                                   \
    X(QUANT_I32, 10, "i32", 1, 4)                                                                  \
    X(QUANT_U32, 11, "u32", 1, 4)                                                                  \
    X(QUANT_I64, 12, "i64", 1, 8)                                                                  \
    X(QUANT_U64, 13, "u64", 1, 8)                                                                  \
    X(QUANT_BOOL, 14, "bool", 1, 1)                                                                \
    X(QUANT_Q4_0, 66, "q4_0", 32, 18)                                                              \
    X(QUANT_Q4_1, 67, "q4_1", 32, 20)                                                              \
    X(QUANT_Q5_0, 70, "q5_0", 32, 22)                                                              \
    X(QUANT_Q5_1, 71, "q5_1", 32, 24)                                                              \
    X(QUANT_Q8_0, 72, "q8_0", 32, 34)                                                              \
    X(QUANT_Q2_K, 74, "q2_k", 256, 84)                                                             \
    X(QUANT_Q3_K, 75, "q3_k", 256, 110)                                                            \
    X(QUANT_Q4_K, 76, "q4_k", 256, 144)                                                            \
    X(QUANT_Q5_K, 77, "q5_k", 256, 176)                                                            \
    X(QUANT_Q6_K, 78, "q6_k", 256, 210)                                                            \
    X(QUANT_IQ4_NL, 84, "iq4_nl", 32, 18)                                                          \
    X(QUANT_IQ4_XS, 87, "iq4_xs", 256, 136)                                                        \
    X(QUANT_MXFP4, 103, "mxfp4", 32, 17)                                                           \
    X(QUANT_Q8C, 128, "q8c", 0, 0)     /* int8, one f32 scale per row */                           \
    X(QUANT_Q8B, 129, "q8b", 0, 0)     /* int8, one f16 scale per row and 32 k */                  \
    X(QUANT_Q4B64, 131, "q4b64", 0, 0) /* 4 bit, one f16 scale per row and 64 k */                 \
    X(QUANT_Q4M64, 132, "q4m64", 0, 0) /* 4 bit, f16 scale and minimum per row and 64 k */         \
    X(QUANT_Q4R, 133, "q4r", 0,                                                                    \
      0) /* rotated; 4 bit, f16 per row and 256 k, multiplier per 16 k */                          \
    X(QUANT_F8C, 134, "f8c", 0, 0) /* E4M3, one f32 scale per row */                               \
    X(QUANT_Q8R, 135, "q8r", 0, 0) /* rotated; int8, one f32 scale per row: adapters */
/* 130 was q4r without the rotation, before there was a release. */

typedef enum quant_type {
#define QUANT_TYPE_ENUM(name, number, text, elements, bytes) name = number,
    QUANT_TYPE_TABLE(QUANT_TYPE_ENUM)
#undef QUANT_TYPE_ENUM
} quant_type;

typedef enum quant_layout {
    QUANT_LAYOUT_ROWS = 0,
    QUANT_LAYOUT_COLUMNS = 1,
    QUANT_LAYOUT_PANELS = 2
} quant_layout;

/* "rows", "columns", "panels" */
const char *quant_layout_name(quant_layout layout);

#define QUANT_PANEL_ROWS 16
#define QUANT_BLOCK_MAX  256 /* elements of the longest block */

typedef struct quant_info {
    quant_type type;
    const char *name;
    uint32_t block_elements; /* 0 where the type exists in PANELS only */
    uint32_t block_bytes;
} quant_info;

/* NULL for a number that is no type. */
const quant_info *quant_info_of(uint32_t type);
/* "q4_1", or "?" for no type. */
const char *quant_name(uint32_t type);

/* ---- Runs of blocks ---- */

/* Bytes of `elements` numbers; false when the type has no blocks, the count is no multiple of the
 * block, or the product wraps. */
bool quant_run_bytes(quant_type type, uint64_t elements, uint64_t *bytes);
/* Exact decode; `elements` is a multiple of the block. Bit-equal to the `gguf` package. */
void quant_decode(quant_type type, const uint8_t *source, size_t elements, float *out);
/* To ROWS: F32, F16, BF16 (nearest, ties to even) and Q8_0 (rows of embeddings; elements a multiple
 * of 32). Numbers as in weight_encode_panel. */
void quant_encode(quant_type type, const float *source, size_t elements, uint8_t *out);

float quant_f16_to_f32(uint16_t half);
uint16_t quant_f32_to_f16(float number);
static inline float quant_bf16_to_f32(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}
uint16_t quant_f32_to_bf16(float number);
float quant_f8_e4m3_to_f32(uint8_t byte);
/* Nearest, ties to even; at most ±448. */
uint8_t quant_f32_to_f8_e4m3(float number);

/* Rotates x[k][lanes] along k, in place: blocks of 256, then of 128, 64, 32 and 16 for the rest; k
 * is a multiple of 16. Orthonormal and its own inverse (up to rounding). */
void quant_rotate(float *x, size_t k, size_t lanes);
/* What the sums of a block of 16, 32, 64, 128 or 256 are multiplied with: 1 / √count. */
float quant_rotate_scale(size_t count);

/* ---- Weight matrices ---- */

/* A matrix where it lies. Immutable, owned by somebody else. */
typedef struct weight_view {
    quant_type type;
    quant_layout layout;
    uint32_t rows; /* outputs */
    uint32_t k;    /* inputs */
    /* Where this is a range of rows of a larger matrix (the key's part of a fused qkv, a rank's
     * shard): rows [row_first, row_first + rows) of rows_whole. 0: it is the whole. */
    uint32_t row_first, rows_whole;
    const uint8_t *data; /* of its first row */
} weight_view;

/* Bytes of a matrix; false when type and layout do not go together, k does not fit the block, or
 * the product wraps. */
bool weight_bytes(quant_type type, quant_layout layout, uint64_t rows, uint64_t k, uint64_t *bytes);
/* Distance between panels of a PANELS matrix (a multiple of 64). */
bool weight_panel_bytes(quant_type type, uint64_t k, uint64_t *bytes);

static inline size_t weight_panels(const weight_view *weight) {
    return ((size_t)weight->rows + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS;
}

/* The same matrix: not only the same first byte. */
static inline bool weight_same(const weight_view *a, const weight_view *b) {
    return a->data == b->data && a->type == b->type && a->layout == b->layout &&
           a->rows == b->rows && a->k == b->k;
}

/* Rows [first, first + rows) as a view of their own; in PANELS, `first` is a multiple of 16. */
weight_view weight_slice(const weight_view *weight, uint32_t first, uint32_t rows);

/* The panel as out[k][16]: lane = row; rows past the end are zero. Exact. */
void weight_decode_panel(const weight_view *weight, size_t panel, float *out);
/* Columns [begin, begin + count) of the panel as out[count][16]; begin is a multiple of
 * QUANT_BLOCK_MAX. The same bits. */
void weight_decode_block(const weight_view *weight, size_t panel, size_t begin, size_t count,
                         float *out);
/* One row as out[k]; equal to its lane of the panel. */
void weight_decode_row(const weight_view *weight, size_t row, float *out);

/* The type a matrix has in PANELS when nothing of its values may be lost: its own where it has
 * panels (all of GGUF's), F8C for E4M3, otherwise F16 or F32. */
quant_type weight_repack_type(const weight_view *weight);
/* Panel `panel` of a matrix in any layout as panel of type `target`, which is its repack type:
 * weight_panel_bytes(target, k) bytes at `out`. Decodes to the same bits. */
void weight_repack_panel(const weight_view *weight, size_t panel, quant_type target, uint8_t *out);

/* The largest magnitude that encoding keeps: 65504 for F16, 65504 · 120 / 16 for Q4R, … */
float weight_largest(quant_type type);
/* Whether weight_encode_panel knows the type: F32, F16, BF16, F8C, Q8C and Q8R. Those with a scale
 * per block are feedback.h's. */
bool weight_encodes(quant_type type);
/* Encodes up to 16 rows (rows × k floats, row after row) as one panel of weight_panel_bytes bytes.
 * Numbers are finite and at most weight_largest. */
void weight_encode_panel(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

#endif
