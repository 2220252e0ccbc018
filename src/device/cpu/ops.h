/* The table of operations below the phases: what one worker does on plain arrays. It begins as
 * plain C (plain/: the truth to the bit) and is overwritten entry by entry by what the CPU and
 * the operating system allow: avx2, avx512, amx; neon. All of them compute the same bits; how is
 * said in activation.h and, for attention, in attention.h.
 */
#ifndef AVO_DEVICE_CPU_OPS_H
#define AVO_DEVICE_CPU_OPS_H

#include "base/cpu.h"
#include "device/cpu/activation.h"
#include "device/cpu/attention.h"
#include "device/layer.h"

/* ---- Matrix products ---- */

typedef enum linear_end { LINEAR_STORE, LINEAR_ADD } linear_end;

typedef struct linear_call {
    const weight_view *weight; /* PANELS */
    const float *bias;         /* [weight rows] or NULL */
    const activation_view *x;  /* form: panels_form(weight type); k: the weight's; rows: any */
    float *out;                /* [x rows][out_stride], element 0 is output 0 of the weight */
    size_t out_stride;
    linear_end end;
    float add_scale;
} linear_call;

/* Outputs of the panels [first, last), for all rows of x. A panel that has to be unpacked is,
 * once for as many rows as a cache has room for: AVX2 40 to 96, AMX 512 (Q4R 256), AVX-512 all;
 * AVX-512 reads 8 bits as they lie, for one tile of rows after the other. Writes nothing past the
 * weight's last row and reads nothing past its last byte. `scratch` is linear_scratch_bytes(k)
 * bytes of this worker's own, at a multiple of 64. */
typedef void linear_function(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
typedef linear_function *linear_op;

/* A decoded panel, whatever form, and as many more as the second cache holds. */
static inline size_t linear_scratch_bytes(size_t k) {
    size_t padded = (k + 255) / 256 * 256;
    return padded * QUANT_PANEL_ROWS * (sizeof(float) + 2 * sizeof(int8_t)) + 524288;
}

/* Types that exist in PANELS, numbered densely for the table. */
#define PANEL_TYPE_TABLE(X)                                                                        \
    X(F32)                                                                                         \
    X(F16)                                                                                         \
    X(BF16)                                                                                        \
    X(F8C)                                                                                         \
    X(Q8C)                                                                                         \
    X(Q8B)                                                                                         \
    X(Q8_0)                                                                                        \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q4B64)                                                                                       \
    X(Q4M64)                                                                                       \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(IQ4_NL)                                                                                      \
    X(MXFP4)                                                                                       \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(IQ4_XS)                                                                                      \
    X(Q4R)                                                                                         \
    X(Q8R)
typedef enum panel_index {
#define PANEL_INDEX_ENUM(name) PANEL_##name,
    PANEL_TYPE_TABLE(PANEL_INDEX_ENUM) PANEL_INDEX_COUNT
#undef PANEL_INDEX_ENUM
} panel_index;
/* PANEL_INDEX_COUNT for a type without panels. */
panel_index panel_index_of(quant_type type);

/* ---- The table ---- */

typedef struct op_table {
    const char *name; /* of the last that overwrote entries: "plain", "avx2", … */
    linear_op linear[PANEL_INDEX_COUNT];
    /* From so many rows on products of few panels lose nothing: rows of x are read in place and not
     * laid out anew by every call. 0: never. */
    uint16_t small_rows[PANEL_INDEX_COUNT];
    /* One row of x in the view's form into row `row` of the view. `scratch`: as for linear. */
    void (*quantise)(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch);
    /* out may be x; NORM_NONE copies. */
    void (*norm)(const norm_view *norm, const float *x, uint32_t width, float *out);
    /* up = activation(gate) · up, or activation(up) where gate is NULL. */
    void (*activate)(activation_kind kind, const float *gate, float *up, size_t count);
    /* hidden = fma(x, scale, hidden) */
    void (*add_scaled)(const float *x, float scale, float *hidden, size_t count);
    /* logit = cap · tanh(logit · scale / cap); cap 0: logit · scale */
    void (*finish_logits)(float *logits, size_t count, float scale, float cap);
    /* Index of the largest of count > 0 logits, the first of equals; NaN never wins. */
    size_t (*largest)(const float *logits, size_t count);
    /* Σ e^(logit − offset), in 16 lanes and one tree. */
    float (*sum_exp)(const float *logits, size_t count, float offset);

    /* Attention, as attention.h says. */
    /* Rotates one head in place with the cosines and sines of its position. */
    void (*rotate)(const rotary_table *table, const float *cosine, const float *sine, float *head);
    /* kv_rotate and kv_tile_write, faster. */
    void (*kv_rotate)(float *x, uint32_t size);
    void (*kv_write)(kv_type type, uint32_t head_size, uint8_t *head, uint32_t slot,
                     const float *key, const float *value);
    /* One row (rotated already) into row `row` of what attend_call.query reads. */
    void (*attend_query)(kv_type type, uint32_t head_size, float factor, const float *x,
                         uint8_t *query, uint32_t row);
    void (*attend)(const attend_call *call);
    /* Joins a later split into `total`. */
    void (*attend_join)(uint32_t head_size, const float *part, float *total);
    void (*attend_finish)(kv_type type, uint32_t head_size, const float *total, float *out);
} op_table;

/* Plain C, for every entry. */
void ops_plain(op_table *table);
/* Each overwrites the entries that it is faster at; the caller has checked CPU and OS. */
void ops_avx2(op_table *table);
void ops_avx512(op_table *table);
void ops_amx(op_table *table);
void ops_neon(op_table *table);
/* The table of "plain" or of an instruction set by its name; false for another name, or where this
 * build or this machine does not have it. */
bool ops_of(const char *name, op_table *table);

#endif
