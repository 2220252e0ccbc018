/* The packed file (.avoa), byte by byte. Little-endian.
 *
 *   packed_header     256 bytes
 *   packed_array      [array_count], ascending by `index` (the one order of arrays.c)
 *   packed_module     [module_count], in order of the forward pass
 *   names             of the modules, not terminated
 *   data              from `data_at` on, a multiple of 4096: every array at a multiple of 64, as
 * the kernels read it. Parts of a fused module name the same bytes as A.
 *
 * `head_sum` is XXH3-64 of the header with 0 in its place and of everything up to the end of the
 * names. The data are summed by the digest, which is that of the adapter: it is computed again when
 * the file is opened. Files of another version are refused (version 1 stated norms, which are
 * computed from the arrays now, and knew the base by another sum; version 2 had no Q8R).
 */
#ifndef AVO_ADAPTERS_PACKED_INT_H
#define AVO_ADAPTERS_PACKED_INT_H

#include "adapters/adapters_int.h"

#define PACKED_MAGIC   "AVOA"
#define PACKED_VERSION 3
#define PACKED_ALIGN   4096

enum {
    PACKED_OF_BASE = 1,    /* numbers depend on the base's weights: only that base fits */
    PACKED_INTERLEAVED = 2 /* rows of q and k lie as in GGUF's llamas */
};

typedef struct packed_header {
    char magic[4];
    uint32_t version;
    uint64_t head_sum;
    uint64_t file_bytes;
    uint64_t digest[2];
    uint64_t base_digest; /* source_digest: which model, not whether it is whole */
    uint32_t flags;
    uint32_t type;   /* adapter_options.type */
    uint32_t method; /* packed_methods */
    uint32_t architecture, layers, width, vocabulary;
    uint32_t array_count, module_count, modules_expected;
    float embedding_scale;
    uint32_t names_bytes;
    uint64_t data_at, data_bytes;
    uint8_t zero[256 - 112];
} packed_header;
_Static_assert(sizeof(packed_header) == 256, "the header is part of the format");

typedef struct packed_array {
    uint32_t index;
    uint32_t type;    /* 0 for floats */
    uint32_t rows, k; /* floats: count, 1 */
    float scale;      /* of the delta, with its `up` */
    uint32_t zero;
    uint64_t offset; /* from data_at */
    uint64_t bytes;
} packed_array;
_Static_assert(sizeof(packed_array) == 40, "arrays are part of the format");

typedef struct packed_module {
    uint32_t index; /* module_index of the base's configuration */
    uint32_t kind;  /* packed_kinds */
    uint32_t rank;
    uint32_t name_at, name_bytes;
    uint32_t zero;
    double scale;
} packed_module;
_Static_assert(sizeof(packed_module) == 32, "modules are part of the format");

#define PACKED_METHODS 3
#define PACKED_KINDS   6
extern const char *const packed_methods[PACKED_METHODS];
extern const char *const packed_kinds[PACKED_KINDS];

/* ---- Against the arrays (packed_check.c) ---- */

/* Every number of a matrix, or every scale. */
bool packed_is_finite(const weight_view *view);
/* Whether names, order, kinds, ranks and scales of the modules are those of the arrays, every
 * array belongs to one of them and none to two. The tables have been read. */
AVO_MUST_USE avo_status packed_check_modules(const avo_adapter *adapter,
                                             const packed_module *modules, bool *fit,
                                             avo_error *error);

#endif
