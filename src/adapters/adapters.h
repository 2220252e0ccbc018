/* Adapters on disk and in memory: PEFT folders, GGUF adapters and our own packed files become one
 * adapter_view that kernels read. An adapter is one version of one set of weights: immutable,
 * counted, alive as long as somebody uses it. Which names mean which adapter is the registry's
 * business (registry.h).
 *
 * Nothing is taken on trust: every tensor must find its matrix, every matrix that the configuration
 * targets must have its tensors, shapes and ranks must agree, numbers must be finite. What does not
 * fit is refused by name; the base model is never served silently in its place.
 */
#ifndef AVO_ADAPTERS_ADAPTERS_H
#define AVO_ADAPTERS_ADAPTERS_H

#include "base/allocator.h"
#include "device/layer.h"
#include "formats/source.h"

/* ---- Limits ---- */
#define ADAPTER_MODULES_MAX 16384
#define ADAPTER_NAME_MAX    256

/* What an adapter is opened for. All of it belongs to the model and outlives the adapter. */
typedef struct adapter_base {
    const model_config *config;
    const model_view *view; /* weights as the file has them, any layout: for DoRA's norms, trained
                               matrices (as differences), merging */
    uint64_t digest;        /* source_digest; a packed adapter that depends on base weights names
                               the base it was made for */
    const model_source *source; /* whose files nobody writes over; NULL: of no file */
} adapter_base;
/* Where config->rope_interleaved, the rows of q and k of a llama lie in another order than PEFT's
 * (i and i + half of a head beside each other): B, magnitudes and biases of these are reordered. */

/* One matrix, norm or table that the adapter changes, for those who look. */
typedef struct adapter_module {
    const char *name; /* "model.layers.0.self_attn.q_proj" */
    const char *kind; /* "lora", "dora", "embedding", "full", "norm", "bias" */
    uint32_t rank;    /* 0: no low rank */
    double scale;
} adapter_module;

struct avo_adapter {
    const avo_allocator *allocator;
    uint32_t references;                 /* atomic */
    void (*close)(avo_adapter *adapter); /* what the last reference given back does: whoever made
                                            the adapter knows what it owns */
    const model_config *config;          /* the base's: an engine of another model refuses it */
    adapter_view view;
    const char *path;
    const char *type;   /* "q8", "f16", "f32": how matrices are stored for computing */
    const char *method; /* "lora", "rslora", "dora" */
    uint32_t modules_matched, modules_expected;
    const adapter_module *modules;   /* [modules_matched] in order of the forward pass */
    bool idle;                       /* all that it adds is zero: the base answers */
    uint64_t bytes;                  /* read by a step that uses it */
    uint64_t memory_bytes;           /* taken from the allocator; mapped files do not count */
    struct adapter_storage *storage; /* arena, region, mapped file */
    uint64_t map_key; /* 0, or of a mapped file: which one, as it was when opened. Where it is
                         written over, what is computed with it then is not what its digest says,
                         and must not be found by whoever opens the file again */
};

typedef struct adapter_options {
    quant_type type; /* QUANT_Q8C (default: of 8 bits), QUANT_F16, QUANT_F32 */
    /* NULL, or asked once with the bytes that the adapter will have, before they are taken or its
     * numbers read; a failure ends the opening. */
    avo_status (*admit)(void *context, uint64_t bytes, avo_error *error);
    void *admit_context;
} adapter_options;

/* What a matrix of `k` inputs is kept as under that type. The halves of low rank are multiplied
 * with activations of 8 bits, as the base's are (docs/adapters.md says what that loses): Q8R; but B
 * of a rank up to ADAPTER_RANK_PADDED, which the rotation would pad to twice its bytes, and what is
 * trained as a whole have Q8C. */
#define ADAPTER_RANK_PADDED 8
static inline quant_type adapter_half_type(quant_type type, uint32_t k) {
    return type == QUANT_Q8C && k > ADAPTER_RANK_PADDED ? QUANT_Q8R : type;
}

/* A folder with adapter_config.json and adapter_model.safetensors, a GGUF adapter, or a packed
 * file. One reference belongs to the caller. */
AVO_MUST_USE avo_status adapter_open(const adapter_base *base, const char *path,
                                     const adapter_options *options, const avo_allocator *allocator,
                                     avo_adapter **out, avo_error *error);
/* Another reference, and giving one back: the last one closes. Any thread. */
avo_adapter *adapter_share(avo_adapter *adapter);
void adapter_release(avo_adapter *adapter);

/* AVO_ERROR_FORMAT when the packed file that the adapter reads where it lies was written or cut
 * since it was opened: its numbers are no longer those of its digest. Adapters of other files are
 * copies and never change. For whoever is about to use it. */
AVO_MUST_USE avo_status adapter_check_file(const avo_adapter *adapter, avo_error *error);

/* Frobenius norm of what module `index` adds to the base's weights, scale included, as stored for
 * computing. Computed when first asked for and kept; any thread. */
double adapter_module_norm(const avo_adapter *adapter, uint32_t index);

/* The kernels' own layout in a file that is mapped and used where it lies. */
AVO_MUST_USE avo_status adapter_write(const avo_adapter *adapter, const char *path,
                                      avo_error *error);

/* ---- Merging: the same changes, made to the weights (merge.c) ----
 * W' = (1 + Σ factor · (gain − 1)) · W + Σ factor · scale · up · down over all adapters, so gains
 * are summed and multiplied first. Rows [first, first + rows) as floats [rows][k]; `first` is a
 * multiple of 16, `rows` at most 16. */

/* Floats of scratch for matrices and embeddings of this k. */
size_t adapter_merge_floats(uint32_t k);
/* total[i] += factor · (gain − 1). */
void adapter_merge_gains(const adapter_delta *delta, float factor, uint32_t first, uint32_t rows,
                         float *total);
void adapter_merge_rows(const adapter_delta *delta, float factor, uint32_t first, uint32_t rows,
                        float *weights, float *scratch);
void adapter_merge_bias(const adapter_delta *delta, float factor, uint32_t count, float *bias);
void adapter_merge_embedding(const adapter_embedding *embedding, float factor, uint32_t first,
                             uint32_t rows, float *weights, float *scratch);

#endif
