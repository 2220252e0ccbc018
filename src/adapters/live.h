/* LoRA whose numbers change: the adapter that training writes into and that the engine serves at
 * the same time. Its halves are f32 panels in memory; adapter_live_set rewrites them in place, and
 * adapter_live_seal gives the adapter the digest of its new numbers, so that neither the prefix
 * cache nor a device's copy of the old ones is found again. Only train/ uses it. No session may be
 * open with the adapter while its numbers change. */
#ifndef AVO_ADAPTERS_LIVE_H
#define AVO_ADAPTERS_LIVE_H

#include "adapters/adapters.h"

/* ---- Limits ---- */
#define ADAPTER_LIVE_TARGETS_MAX 256

#define ADAPTER_MODULE_MATRICES 3 /* of a fused module: query, key and value */

/* A module that is trained, as PEFT names it. */
typedef struct adapter_live_module {
    const char *name; /* "model.layers.0.self_attn.q_proj" */
    uint32_t layer;   /* 0 for the head */
    uint32_t rows, k; /* of the module, all of its matrices */
    uint32_t matrices;
    adapter_matrix matrix[ADAPTER_MODULE_MATRICES]; /* their rows lie one behind the other */
    uint32_t first[ADAPTER_MODULE_MATRICES];        /* row of the module where each begins */
    /* [rows] the row of PEFT's B that belongs to a row of the base, which may store the rows of q
     * and k in another order; NULL: the same one. */
    const uint32_t *order;
} adapter_live_module;

typedef struct adapter_live_options {
    uint32_t rank; /* 1…ADAPTER_RANK_MAX */
    float scale;   /* of B·A */
    bool gains;    /* DoRA */
    /* Names of modules, whole or their last parts; "all-linear" alone: every matrix of the layers.
     * One that matches nothing, or the embedding, is refused. */
    const char *const *targets;
    size_t target_count;
} adapter_live_options;

/* Whether `parts` is the whole name or its last parts, as an entry of target_modules means it. */
bool adapter_name_ends(text_view name, text_view parts);
/* How many modules of a model of this configuration have names that end so. */
uint32_t adapter_names_ending(const model_config *config, text_view parts);

/* What adapter_config.json of a PEFT folder says of all modules. Refused where some modules have
 * ranks or alphas of their own: training has one of each. */
typedef struct adapter_live_config {
    uint32_t rank;
    double alpha;
    bool rslora, dora;
} adapter_live_config;
/* `path`: of the file. */
AVO_MUST_USE avo_status adapter_live_read_config(const char *path, const avo_allocator *allocator,
                                                 adapter_live_config *out, avo_error *error);

/* All numbers are 0 (gains 1). One reference belongs to the caller. */
AVO_MUST_USE avo_status adapter_live_open(const adapter_base *base,
                                          const adapter_live_options *options,
                                          const avo_allocator *allocator, avo_adapter **out,
                                          avo_error *error);
/* In the order of the forward pass. */
const adapter_live_module *adapter_live_modules(const avo_adapter *adapter, uint32_t *count);
/* a: [rank][k]; b: [rows][rank] in PEFT's order; gain: [rows] in the base's order, with gains. */
void adapter_live_set(avo_adapter *adapter, uint32_t module, const float *a, const float *b,
                      const float *gain);
void adapter_live_seal(avo_adapter *adapter);

#endif
