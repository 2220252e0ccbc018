/* Packing: any model source, or random weights in a known shape, into one .avo file.
 *
 * Matrices are converted panel by panel and written front to back, so that memory stays near what a
 * few panels take whatever the model's size; the bytes do not depend on the number of threads. */
#ifndef AVO_PACK_PACK_H
#define AVO_PACK_PACK_H

#include "formats/source.h"

/* X(name, text). What matrices become; norms, biases and positions are always f32.
 *   f32, f16, bf16  panels of that type; an embedding that is no head lies in rows
 *   q8   Q8B, q8c  Q8C; an embedding that is no head: Q8_0 in rows (f16 where k is no multiple
 *        of 32)
 *   q4   Q4R; head and embedding as with q8
 *   keep the source's own type: plain ones in panels, GGUF's blocks byte for byte in rows */
#define PACK_TYPE_TABLE(X)                                                                         \
    X(PACK_F32, "f32")                                                                             \
    X(PACK_F16, "f16")                                                                             \
    X(PACK_BF16, "bf16")                                                                           \
    X(PACK_Q8, "q8")                                                                               \
    X(PACK_Q8C, "q8c")                                                                             \
    X(PACK_Q4, "q4")                                                                               \
    X(PACK_KEEP, "keep")

typedef enum pack_type {
#define PACK_TYPE_ENUM(name, text) name,
    PACK_TYPE_TABLE(PACK_TYPE_ENUM)
#undef PACK_TYPE_ENUM
        PACK_TYPE_COUNT
} pack_type;

const char *pack_type_name(pack_type type);
/* False when there is no such type. */
bool pack_type_by_name(const char *name, pack_type *type);

typedef struct pack_options {
    pack_type type;
    uint32_t threads;               /* 0: as many as this process may really use */
    const avo_allocator *allocator; /* NULL: malloc */
    avo_progress_function progress; /* NULL: silent */
    void *progress_context;
} pack_options;

typedef struct pack_report {
    uint64_t file_bytes;
    uint64_t parameters;
    uint64_t weight_bytes; /* of all tensors */
    uint32_t tensors;
} pack_report;

/* The file appears under `path` whole or not at all. A weight that is no finite number, or too
 * large for the type, is an error that names it. */
AVO_MUST_USE avo_status pack_source(const model_source *source, const char *path,
                                    const pack_options *options, pack_report *report,
                                    avo_error *error);
/* Opens `model` and packs it; refuses to write over one of its files. */
AVO_MUST_USE avo_status pack_file(const char *model, const char *path, const pack_options *options,
                                  pack_report *report, avo_error *error);
/* Random weights for measurements: the same bytes for the same shape, type and seed. */
AVO_MUST_USE avo_status pack_random(const char *shape, uint64_t seed, const char *path,
                                    const pack_options *options, pack_report *report,
                                    avo_error *error);
/* "tinyllama-1.1b, …" */
const char *pack_shapes_text(void);

#endif
