/* Inside quant/: the codecs of the PANELS layouts, by family. */
#ifndef AVO_QUANT_PANELS_INT_H
#define AVO_QUANT_PANELS_INT_H

#include "quant/panels.h"
#include "quant/search_q4r.h"

/* All 16 lanes of columns [begin, begin + count) as out[count][16]; begin is a multiple of
 * QUANT_BLOCK_MAX. */
void panels_decode(quant_type type, const uint8_t *panel, size_t k, size_t begin, size_t count,
                   float *out);
void panels_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out);
/* Zeros in the place of a whole panel, padding included, before an encoder fills it. */
void panels_clear(quant_type type, size_t k, uint8_t *out);
void panels_encode_plain(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

/* ---- Types made of groups: a head, then units of 32 k (panels_group.c) ---- */

/* Which lines make up a unit. */
typedef enum panel_lines {
    LINES_BYTE,        /* 8 byte lines, signed */
    LINES_NIBBLE,      /* 4 nibble lines */
    LINES_NIBBLE_BIT,  /* 4 nibble lines, 1 bit line */
    LINES_NIBBLE_PAIR, /* 4 nibble lines, 2 two-bit lines */
    LINES_PAIR,        /* 2 two-bit lines */
    LINES_PAIR_BIT     /* 2 two-bit lines, 1 bit line */
} panel_lines;

/* Scales and minima of unit `unit` of the group behind `head`. */
typedef void panel_scales(const uint8_t *head, size_t unit, panel_unit *out);

typedef struct panel_shape {
    quant_type type;
    uint16_t group;     /* k behind one head */
    uint8_t head_lines; /* 64 bytes each */
    uint8_t unit_lines;
    panel_lines lines;
    uint8_t zero;           /* is subtracted from the numbers */
    const int8_t *codebook; /* or they are indices into this */
    bool sub_blocks;
    bool minimum;
    bool whole; /* k is a multiple of the group, not padded to units */
    panel_scales *scales;
} panel_shape;

/* NULL for types without groups. */
const panel_shape *panel_shape_of(quant_type type);

static inline size_t panel_group_bytes(const panel_shape *shape) {
    return ((size_t)shape->head_lines + shape->group / PANEL_UNIT * (size_t)shape->unit_lines) *
           PANEL_LINE_BYTES;
}

/* Offset of the head of a unit's group, and of the unit itself. */
static inline size_t panel_head_at(const panel_shape *shape, size_t unit) {
    return unit / (shape->group / PANEL_UNIT) * panel_group_bytes(shape);
}

static inline size_t panel_unit_at(const panel_shape *shape, size_t unit) {
    size_t inside = unit % (shape->group / PANEL_UNIT);
    return panel_head_at(shape, unit) +
           (shape->head_lines + inside * shape->unit_lines) * PANEL_LINE_BYTES;
}

bool panels_group_bytes(const panel_shape *shape, uint64_t k, uint64_t *bytes);
void panels_group_unit(const panel_shape *shape, const uint8_t *panel, size_t unit,
                       panel_unit *out);
void panels_group_decode(const panel_shape *shape, const uint8_t *panel, size_t begin, size_t count,
                         float *out);
void panels_group_decode_row(const panel_shape *shape, const uint8_t *panel, size_t k, size_t lane,
                             float *out);

/* Scales and minima, for the table of shapes: panels_block.c, panels_k.c. */
panel_scales scales_block, scales_block_minimum, scales_block_brain, scales_block64;
panel_scales scales_block64_minimum, scales_k32, scales_k32_minimum, scales_k16, scales_k16_minimum;

/* ---- Others ---- */

/* panels_row_scale.c: Q8C and F8C, byte lines and one f32 scale per row */
bool panels_row_scale_bytes(uint64_t k, uint64_t *bytes);
void panels_row_scale_decode(quant_type type, const uint8_t *panel, size_t k, size_t begin,
                             size_t count, float *out);
void panels_row_scale_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane,
                                 float *out);
void panels_row_scale_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out);

/* encode_f8.c */
void panels_f8c_encode(const float *source, size_t rows, size_t k, uint8_t *out);
/* encode_q8.c */
void panels_q8c_encode(const float *source, size_t rows, size_t k, uint8_t *out);
void panels_q8r_encode(const float *source, size_t rows, size_t k, uint8_t *out);
/* One block of Q8_0 (GGUF's: f16 scale, 32 int8). */
void encode_q8_0_block(const float *source, uint8_t *out);

/* panels_q8r.c */
bool panels_q8r_bytes(uint64_t k, uint64_t *bytes);
void panels_q8r_decode(const uint8_t *panel, size_t k, size_t begin, size_t count, float *out);
void panels_q8r_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q8r_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out);

/* panels_q4r.c */
bool panels_q4r_bytes(uint64_t k, uint64_t *bytes);
void panels_q4r_decode(const uint8_t *panel, size_t k, size_t begin, size_t count, float *out);
void panels_q4r_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q4r_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out);
/* A super-block of `subs` sub-blocks for all 16 rows; returns its bytes. */
size_t panels_q4r_write_super(const q4r_super *found, size_t subs, uint8_t *super);

/* panels_write.c: single numbers and scales of types with blocks of 32 or 64 into a panel that was
 * cleared. The number has no zero point added; `minimum` is for the types that have one. */
void panels_write_number(quant_type type, uint8_t *panel, size_t k, size_t lane, int number);
void panels_write_scale(quant_type type, uint8_t *panel, size_t block, size_t lane, uint16_t scale,
                        uint16_t minimum);

#endif
