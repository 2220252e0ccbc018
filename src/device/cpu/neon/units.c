/* Panels to units, type by type; the layouts are those of quant/panels.h. A zero point is
 * subtracted from the lowest bits as they are read; adding the upper ones then gives the number. */
#include "device/cpu/neon/vec16.h"

#include "base/checked.h"
#include "device/cpu/neon/units.h"

#define INLINE      static inline __attribute__((always_inline))
#define NIBBLE_UNIT 256 /* bytes: 4 nibble lines */
#define FIVE_UNIT   320 /* and a bit line */
#define SUPER_UNITS (Q4R_SUPER / PANEL_UNIT)

/* ---- Lines ---- */

typedef int8_t byte_line[PANEL_LINE_BYTES];

/* Two byte lines from one line of nibbles. */
INLINE void read_nibble_line(const uint8_t *at, int8_t zero, byte_line *out) {
    for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16) {
        uint8x16_t both = vld1q_u8(at + i);
        int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
        int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
        vst1q_s8(out[0] + i, vsubq_s8(low, vdupq_n_s8(zero)));
        vst1q_s8(out[1] + i, vsubq_s8(high, vdupq_n_s8(zero)));
    }
}

INLINE void read_nibbles(const uint8_t *at, int8_t zero, byte_line *out) {
    for (size_t line = 0; line < 4; line++)
        read_nibble_line(at + line * PANEL_LINE_BYTES, zero, out + 2 * line);
}

/* Adds `value` to the bytes whose bits are set in a bit line. */
INLINE void add_bits(const uint8_t *at, int8_t value, byte_line *out) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bits = vld1q_u8(bit);
    for (size_t line = 0; line < UNIT_LINES; line++)
        for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16, at += 2) {
            uint8x16_t mask = vtstq_u8(vcombine_u8(vdup_n_u8(at[0]), vdup_n_u8(at[1])), bits);
            int8x16_t more = vandq_s8(vreinterpretq_s8_u8(mask), vdupq_n_s8(value));
            vst1q_s8(out[line] + i, vaddq_s8(vld1q_s8(out[line] + i), more));
        }
}

/* 4 nibble lines and a bit line: 5 bits. */
INLINE void read_nibbles_bits(const uint8_t *at, int8_t zero, byte_line *out) {
    read_nibbles(at, zero, out);
    add_bits(at + 4 * PANEL_LINE_BYTES, 16, out);
}

/* Number `line` of the four byte lines that a two-bit line has. */
INLINE int8x16_t two_bits(const uint8_t *at, int line) {
    uint8x16_t shifted = vshlq_u8(vld1q_u8(at), vdupq_n_s8((int8_t)(-2 * line)));
    return vreinterpretq_s8_u8(vandq_u8(shifted, vdupq_n_u8(3)));
}

INLINE void read_pair_lines(const uint8_t *at, int8_t zero, byte_line *out) {
    for (int line = 0; line < UNIT_LINES; line++)
        for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16)
            vst1q_s8(out[line] + i,
                     vsubq_s8(two_bits(at + line / 4 * PANEL_LINE_BYTES + i, line % 4),
                              vdupq_n_s8(zero)));
}

/* The same as the upper bits of lines that have the lower four. */
INLINE void add_pair_lines(const uint8_t *at, byte_line *out) {
    for (int line = 0; line < UNIT_LINES; line++)
        for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16) {
            int8x16_t upper = two_bits(at + line / 4 * PANEL_LINE_BYTES + i, line % 4);
            vst1q_s8(out[line] + i, vaddq_s8(vld1q_s8(out[line] + i), vshlq_n_s8(upper, 4)));
        }
}

INLINE void read_codes(const uint8_t *at, const int8_t codebook[16], byte_line *out) {
    const int8x16_t codes = vld1q_s8(codebook);
    read_nibbles(at, 0, out);
    for (size_t line = 0; line < UNIT_LINES; line++)
        for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16) {
            uint8x16_t index = vreinterpretq_u8_s8(vld1q_s8(out[line] + i));
            vst1q_s8(out[line] + i, vqtbl1q_s8(codes, index));
        }
}

/* ---- Scales ---- */

INLINE vec16 halves(const uint8_t *at) {
    return v_load_f16((const uint16_t *)(const void *)at);
}
/* 16 signed bytes. */
INLINE vec16 bytes(const uint8_t *at) {
    return v_from_int(iv_widen(vreinterpretq_s8_u8(vld1q_u8(at))));
}
INLINE vec16 unsigned_bytes(uint8x16_t x) {
    ivec16 wide = iv_and(iv_widen(vreinterpretq_s8_u8(x)), iv_set(0xff));
    return v_from_int(wide);
}
/* Minima are subtracted. */
INLINE void write_minimum(float *out, vec16 minimum) {
    v_store(out, v_from_bits(iv_add(v_bits(minimum), iv_set(INT32_MIN))));
}

/* ---- Blocks: the head is that of the unit's group ---- */

typedef struct block_kind {
    uint32_t group_units; /* units that share a head */
    uint32_t group_bytes; /* of a whole group */
    void (*read)(const uint8_t *group, size_t unit, neon_unit *out);
} block_kind;

static void read_q4_0(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, 8, out->line);
    v_store(out->scale[0], halves(group + 32 * unit));
}

static void read_q4_1(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles(group + 128 + unit * NIBBLE_UNIT, 0, out->line);
    v_store(out->scale[0], halves(group + 32 * unit));
    v_store(out->minimum[0], halves(group + 64 + 32 * unit));
}

static void read_q4b64(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, 8, out->line);
    v_store(out->scale[0], halves(group + 32 * (unit / 2)));
}

static void read_q4m64(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, 0, out->line);
    v_store(out->scale[0], halves(group));
    v_store(out->minimum[0], halves(group + 32));
}

static void read_q5_0(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles_bits(group + 64 + unit * FIVE_UNIT, 16, out->line);
    v_store(out->scale[0], halves(group + 32 * unit));
}

static void read_q5_1(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles_bits(group + 128 + unit * FIVE_UNIT, 0, out->line);
    v_store(out->scale[0], halves(group + 32 * unit));
    v_store(out->minimum[0], halves(group + 64 + 32 * unit));
}

static void read_iq4_nl(const uint8_t *group, size_t unit, neon_unit *out) {
    read_codes(group + 64 + unit * NIBBLE_UNIT, codebook_iq4, out->line);
    v_store(out->scale[0], halves(group + 32 * unit));
}

static void read_mxfp4(const uint8_t *group, size_t unit, neon_unit *out) {
    read_codes(group + 64 + unit * NIBBLE_UNIT, codebook_mxfp4, out->line);
    v_store(out->scale[0], v_load_bf16((const uint16_t *)(const void *)(group + 32 * unit)));
}

static void read_q8_0(const uint8_t *group, size_t unit, neon_unit *out) {
    memcpy(out->line, group + 64 + unit * sizeof(out->line), sizeof(out->line));
    v_store(out->scale[0], halves(group + 32 * unit));
}

/* ---- Super-blocks ---- */

#define SUPER_HEAD 320
#define Q2_K_UNIT  128 /* 2 two-bit lines */
#define Q3_K_UNIT  192 /* 2 two-bit lines, a bit line */
#define Q6_K_UNIT  384 /* 4 nibble lines, 2 two-bit lines */

static void read_iq4_xs(const uint8_t *group, size_t unit, neon_unit *out) {
    read_codes(group + 192 + unit * NIBBLE_UNIT, codebook_iq4, out->line);
    v_store(out->scale[0], v_mul(halves(group), bytes(group + 64 + 16 * unit)));
}

static void read_scale_minimum(const uint8_t *group, size_t unit, neon_unit *out) {
    vec16 scale = unsigned_bytes(vld1q_u8(group + 64 + 16 * unit));
    vec16 minimum = unsigned_bytes(vld1q_u8(group + 192 + 16 * unit));
    v_store(out->scale[0], v_mul(halves(group), scale));
    write_minimum(out->minimum[0], v_mul(halves(group + 32), minimum));
}

static void read_q4_k(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles(group + SUPER_HEAD + unit * NIBBLE_UNIT, 0, out->line);
    read_scale_minimum(group, unit, out);
}

static void read_q5_k(const uint8_t *group, size_t unit, neon_unit *out) {
    read_nibbles_bits(group + SUPER_HEAD + unit * FIVE_UNIT, 0, out->line);
    read_scale_minimum(group, unit, out);
}

static void read_q2_k(const uint8_t *group, size_t unit, neon_unit *out) {
    read_pair_lines(group + SUPER_HEAD + unit * Q2_K_UNIT, 0, out->line);
    for (size_t half = 0; half < 2; half++) {
        uint8x16_t both = vld1q_u8(group + 64 + 16 * (2 * unit + half));
        vec16 scale = unsigned_bytes(vandq_u8(both, vdupq_n_u8(15)));
        vec16 minimum = unsigned_bytes(vshrq_n_u8(both, 4));
        v_store(out->scale[half], v_mul(halves(group), scale));
        write_minimum(out->minimum[half], v_mul(halves(group + 32), minimum));
    }
}

static void read_signed_scales(const uint8_t *group, size_t unit, neon_unit *out) {
    for (size_t half = 0; half < 2; half++)
        v_store(out->scale[half], v_mul(halves(group), bytes(group + 64 + 16 * (2 * unit + half))));
}

static void read_q3_k(const uint8_t *group, size_t unit, neon_unit *out) {
    const uint8_t *at = group + SUPER_HEAD + unit * Q3_K_UNIT;
    read_pair_lines(at, 4, out->line);
    add_bits(at + 2 * PANEL_LINE_BYTES, 4, out->line);
    read_signed_scales(group, unit, out);
}

static void read_q6_k(const uint8_t *group, size_t unit, neon_unit *out) {
    const uint8_t *at = group + SUPER_HEAD + unit * Q6_K_UNIT;
    read_nibbles(at, 32, out->line);
    add_pair_lines(at + 4 * PANEL_LINE_BYTES, out->line);
    read_signed_scales(group, unit, out);
}

static block_kind kind_of(quant_type type) {
    switch ((int)type) {
    case QUANT_Q4_0:
        return (block_kind){2, 64 + 2 * NIBBLE_UNIT, read_q4_0};
    case QUANT_Q4_1:
        return (block_kind){2, 128 + 2 * NIBBLE_UNIT, read_q4_1};
    case QUANT_Q4B64:
        return (block_kind){4, 64 + 4 * NIBBLE_UNIT, read_q4b64};
    case QUANT_Q4M64:
        return (block_kind){2, 64 + 2 * NIBBLE_UNIT, read_q4m64};
    case QUANT_Q5_0:
        return (block_kind){2, 64 + 2 * FIVE_UNIT, read_q5_0};
    case QUANT_Q5_1:
        return (block_kind){2, 128 + 2 * FIVE_UNIT, read_q5_1};
    case QUANT_IQ4_NL:
        return (block_kind){2, 64 + 2 * NIBBLE_UNIT, read_iq4_nl};
    case QUANT_MXFP4:
        return (block_kind){2, 64 + 2 * NIBBLE_UNIT, read_mxfp4};
    case QUANT_IQ4_XS:
        return (block_kind){SUPER_UNITS, 192 + SUPER_UNITS * NIBBLE_UNIT, read_iq4_xs};
    case QUANT_Q4_K:
        return (block_kind){SUPER_UNITS, SUPER_HEAD + SUPER_UNITS * NIBBLE_UNIT, read_q4_k};
    case QUANT_Q5_K:
        return (block_kind){SUPER_UNITS, SUPER_HEAD + SUPER_UNITS * FIVE_UNIT, read_q5_k};
    case QUANT_Q2_K:
        return (block_kind){SUPER_UNITS, SUPER_HEAD + SUPER_UNITS * Q2_K_UNIT, read_q2_k};
    case QUANT_Q3_K:
        return (block_kind){SUPER_UNITS, SUPER_HEAD + SUPER_UNITS * Q3_K_UNIT, read_q3_k};
    case QUANT_Q6_K:
        return (block_kind){SUPER_UNITS, SUPER_HEAD + SUPER_UNITS * Q6_K_UNIT, read_q6_k};
    default: /* Q8_0, Q8B */
        return (block_kind){2, 64 + 2 * PANEL_UNIT * QUANT_PANEL_ROWS, read_q8_0};
    }
}

/* ---- Q8C, Q8R: byte lines, then one line of scales ---- */

/* k is padded to whole steps: 4 of Q8C, 16 of Q8R. */
static void read_by_row(const uint8_t *panel, size_t k, size_t step, neon_unit *units) {
    size_t lines = (k + step - 1) / step * (step / 4);
    for (size_t line = 0; line < lines; line += UNIT_LINES, units++) {
        size_t bytes_here = size_min(lines - line, UNIT_LINES) * PANEL_LINE_BYTES;
        memcpy(units->line, panel + line * PANEL_LINE_BYTES, bytes_here);
        memset((uint8_t *)units->line + bytes_here, 0, sizeof(units->line) - bytes_here);
        memcpy(units->scale[0], panel + lines * PANEL_LINE_BYTES, sizeof(units->scale[0]));
    }
}

/* ---- Q4R ---- */

/* The multipliers of sub-block `sub` for all outputs. */
INLINE int8x16_t multipliers(const uint8_t *super, size_t sub) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8_t *sign = super + 32 + 2 * sub;
    uint8x16_t both = vld1q_u8(super + 64 + sub / 2 * 16);
    uint8x16_t magnitude = sub % 2 == 0 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    uint8x16_t negative =
        vtstq_u8(vcombine_u8(vdup_n_u8(sign[0]), vdup_n_u8(sign[1])), vld1q_u8(bit));
    int8x16_t number = vreinterpretq_s8_u8(magnitude);
    return vbslq_s8(negative, vnegq_s8(number), number);
}

/* 16 k: four byte lines, each output's numbers times its multiplier. */
INLINE void read_q4r_sub(const uint8_t *super, const uint8_t *lines, size_t sub, byte_line *out) {
    static const uint8_t output[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    int8x16_t multiplier = multipliers(super, sub);
    for (size_t line = 0; line < 2; line++)
        read_nibble_line(lines + (2 * sub + line) * PANEL_LINE_BYTES, 8, out + 2 * line);
    for (size_t i = 0; i < PANEL_LINE_BYTES; i += 16) {
        uint8x16_t which = vaddq_u8(vld1q_u8(output), vdupq_n_u8((uint8_t)(i / 4)));
        int8x16_t spread = vqtbl1q_s8(multiplier, which);
        for (size_t line = 0; line < 4; line++)
            vst1q_s8(out[line] + i, vmulq_s8(vld1q_s8(out[line] + i), spread));
    }
}

static void read_q4r(const uint8_t *super, size_t k, neon_unit *units) {
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t subs = (size_min(k - begin, Q4R_SUPER) + Q4R_SUB - 1) / Q4R_SUB;
        size_t magnitudes = (subs + 1) / 2 * 16;
        const uint8_t *lines =
            super + 64 + (magnitudes + PANEL_LINE_BYTES - 1) / PANEL_LINE_BYTES * PANEL_LINE_BYTES;
        vec16 scale = halves(super);
        for (size_t sub = 0; sub < subs; sub++) {
            neon_unit *unit = &units[(begin / Q4R_SUB + sub) / 2];
            read_q4r_sub(super, lines, sub, unit->line + sub % 2 * (UNIT_LINES / 2));
            v_store(unit->scale[0], scale);
        }
        if (subs % 2 != 0)
            memset(units[(begin / Q4R_SUB + subs) / 2].line + UNIT_LINES / 2, 0,
                   sizeof(units->line) / 2);
        super = lines + 2 * subs * PANEL_LINE_BYTES;
    }
}

/* ---- All ---- */

void neon_units_read(quant_type type, const uint8_t *panel, size_t k, neon_unit *units) {
    if (type == QUANT_Q4R) {
        read_q4r(panel, k, units);
    } else if (type == QUANT_Q8C || type == QUANT_Q8R) {
        read_by_row(panel, k, type == QUANT_Q8C ? 4 : Q4R_SUB, units);
    } else {
        block_kind kind = kind_of(type);
        for (size_t unit = 0; unit * PANEL_UNIT < k; unit++)
            kind.read(panel + unit / kind.group_units * kind.group_bytes, unit % kind.group_units,
                      &units[unit]);
    }
}
