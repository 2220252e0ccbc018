/* Packing: any model source, or random weights in a known shape, into one .avo file; or a model in
 * safetensors, changed, into a folder like its own.
 *
 * Matrices are converted panel by panel and written front to back, so that memory stays near what a
 * few panels take whatever the model's size; the bytes do not depend on the number of threads. */
#ifndef AVO_PACK_PACK_H
#define AVO_PACK_PACK_H

#include "formats/source.h"

/* X(name, text, type). What matrices become, the head and the embedding among them; norms, biases
 * and positions are always f32. An embedding that is no head is a table to look up (below).
 * Matrices of narrower types are the same for every role. `keep` is the source's own type, in
 * panels where it has them, every value to the bit. "q4" and "q8" are other names for q4r and q8b.
 */
#define PACK_TYPE_TABLE(X)                                                                         \
    X(PACK_F32, "f32", QUANT_F32)                                                                  \
    X(PACK_F16, "f16", QUANT_F16)                                                                  \
    X(PACK_BF16, "bf16", QUANT_BF16)                                                               \
    X(PACK_F8C, "f8c", QUANT_F8C)                                                                  \
    X(PACK_Q8, "q8b", QUANT_Q8B)                                                                   \
    X(PACK_Q8C, "q8c", QUANT_Q8C)                                                                  \
    X(PACK_Q5_0, "q5_0", QUANT_Q5_0)                                                               \
    X(PACK_Q5_1, "q5_1", QUANT_Q5_1)                                                               \
    X(PACK_Q4, "q4r", QUANT_Q4R)                                                                   \
    X(PACK_Q4_0, "q4_0", QUANT_Q4_0)                                                               \
    X(PACK_Q4_1, "q4_1", QUANT_Q4_1)                                                               \
    X(PACK_Q4B64, "q4b64", QUANT_Q4B64)                                                            \
    X(PACK_Q4M64, "q4m64", QUANT_Q4M64)                                                            \
    X(PACK_KEEP, "keep", QUANT_F32)

typedef enum pack_type {
#define PACK_TYPE_ENUM(name, text, type) name,
    PACK_TYPE_TABLE(PACK_TYPE_ENUM)
#undef PACK_TYPE_ENUM
        PACK_TYPE_COUNT
} pack_type;

const char *pack_type_name(pack_type type);
/* False when there is no such type. */
bool pack_type_by_name(const char *name, pack_type *type);

/* X(name, text, type). The table that tokens are looked up in. A token reads one row of it, so wide
 * rows cost room and no time; and there every error enters the model as it is. With a type of its
 * own it lies in rows, and the head of a model where both are one matrix is written beside it.
 * `auto`: f16 for 8 bits; plain numbers in their own type; narrower types are `shared`. */
#define PACK_LOOK_UP_TABLE(X)                                                                      \
    X(PACK_LOOK_UP_AUTO, "auto", QUANT_F32)                                                        \
    X(PACK_LOOK_UP_SHARED, "shared", QUANT_F32) /* as any matrix; the head's where it is that */   \
    X(PACK_LOOK_UP_F32, "f32", QUANT_F32)                                                          \
    X(PACK_LOOK_UP_F16, "f16", QUANT_F16)                                                          \
    X(PACK_LOOK_UP_BF16, "bf16", QUANT_BF16)                                                       \
    X(PACK_LOOK_UP_Q8_0, "q8_0", QUANT_Q8_0) /* k a multiple of 32, otherwise f16 */

typedef enum pack_look_up {
#define PACK_LOOK_UP_ENUM(name, text, type) name,
    PACK_LOOK_UP_TABLE(PACK_LOOK_UP_ENUM)
#undef PACK_LOOK_UP_ENUM
        PACK_LOOK_UP_COUNT
} pack_look_up;

/* False when there is no such name. */
bool pack_look_up_by_name(const char *name, pack_look_up *look_up);

/* How much work goes into rounding. */
typedef enum pack_effort {
    PACK_EFFORT_NONE,     /* to the nearest: random weights always are */
    PACK_EFFORT_SEARCH,   /* scales, minima and multipliers by search */
    PACK_EFFORT_FEEDBACK, /* and with calibration, error feedback (quant/feedback.h) */
    PACK_EFFORT_COUNT
} pack_effort;

/* What --bits weighs errors by: the divergence when a kind of matrix ("ffn_down", all layers of it)
 * loses its whole output, extrapolated from little; and a factor for bands of layers, 1 on average.
 */
#define PACK_KINDS_MAX 16
#define PACK_BANDS_MAX 6
typedef struct pack_sensitivity {
    uint32_t kinds;
    struct {
        char name[24];
        double weight;
    } kind[PACK_KINDS_MAX];
    uint32_t bands; /* layer l of n is in band l · bands / n */
    double band[PACK_BANDS_MAX];
} pack_sensitivity;

/* Changes weights on their way: merging (merge.h). Any thread. */
typedef struct pack_change {
    const void *context;
    /* Whether tensor `name` ("blk.0.attn_q.weight"; fused ones come in their parts) changes. */
    bool (*changes)(const void *context, const char *name);
    /* Rows [first, first + rows) as floats [rows][k]: 16 at most; a vector is one row. `scratch`
     * has adapter_merge_floats(k). */
    void (*apply)(const void *context, const char *name, uint32_t first, uint32_t rows, uint32_t k,
                  float *numbers, float *scratch);
} pack_change;

typedef struct pack_options {
    pack_type type;
    bool folder; /* a Hugging Face folder in the place of a .avo file: folder.c */
    double bits; /* 0: `type` for all; otherwise a type for each matrix, so that the whole, but for
                    a table with a type of its own, has so many bits per weight at most */
    pack_look_up look_up; /* random weights: auto only, and those that are tied stay so */
    /* "ffn_down=q8,blk.0.=f16": matrices whose name has this in it become that; the last that fits
     * counts. NULL: none. */
    const char *tensors;
    pack_effort effort;
    const pack_sensitivity *sensitivity; /* NULL: that of a small Llama */
    const char *calibration;             /* a file of `avocet calibrate`; NULL: none */
    uint32_t threads;                    /* 0: as many as this process may really use */
    const avo_allocator *allocator;      /* NULL: malloc */
    const pack_change *change;           /* NULL: none. Not with `keep` or bits */
    avo_progress_function progress;      /* NULL: silent */
    void *progress_context;
} pack_options;

/* What the matrices of one kind ("ffn_down", "token_embd") and type have become. */
#define PACK_GROUPS_MAX 64
typedef struct pack_group {
    char name[32];
    quant_type type;
    uint32_t tensors;
    uint64_t weights, bytes;
    /* Squared error of the outputs as a part of their square, by calibration where there is one
     * (otherwise of the weights), times the weights: a sum over tensors. */
    double error;
} pack_group;

typedef struct pack_report {
    uint32_t groups;
    pack_group group[PACK_GROUPS_MAX];
    uint64_t file_bytes;
    uint64_t parameters;   /* of the model: a table beside its head is counted once */
    uint64_t weight_bytes; /* of all tensors */
    /* What every token reads, whole: all but tables to look up and positions. */
    uint64_t read_parameters, read_bytes;
    uint32_t tensors;
} pack_report;

/* The file appears under `path` whole or not at all. A weight that is no finite number, or too
 * large for the type, is an error that names it. */
AVO_MUST_USE avo_status pack_source(const model_source *source, const char *path,
                                    const pack_options *options, pack_report *report,
                                    avo_error *error);
/* Opens `model` and packs it; refuses to write over one of its files or the calibration. */
AVO_MUST_USE avo_status pack_file(const char *model, const char *path, const pack_options *options,
                                  pack_report *report, avo_error *error);
/* The kinds of matrices ("ffn_down") that pack_options.tensors could name in the file which
 * pack_file would write, in the order of a forward pass. */
typedef struct pack_kinds {
    uint32_t count;
    char name[PACK_KINDS_MAX][24];
} pack_kinds;
AVO_MUST_USE avo_status pack_list_kinds(const char *model, const pack_options *options,
                                        pack_kinds *kinds, avo_error *error);
/* Random weights for measurements: the same bytes for the same shape, type and seed. */
AVO_MUST_USE avo_status pack_random(const char *shape, uint64_t seed, const char *path,
                                    const pack_options *options, pack_report *report,
                                    avo_error *error);
/* "tinyllama-1.1b, …" */
const char *pack_shapes_text(void);

#endif
