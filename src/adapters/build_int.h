/* Inside build*.c: the adapter while it is being made. */
#ifndef AVO_ADAPTERS_BUILD_INT_H
#define AVO_ADAPTERS_BUILD_INT_H

#include "adapters/adapters_int.h"

typedef struct builder {
    const adapter_draft *draft;
    avo_adapter *adapter;
    adapter_layer *layers;
    quant_type type;
    const avo_allocator *allocator;
    uint8_t *data; /* the region; NULL while sizes are summed */
    size_t at;
    /* While arrays are filled. */
    float *rows;  /* [16][k_max] */
    float *lanes; /* [k_max][16] of the base */
    size_t k_max;
} builder;

/* The module that fills a site, and the first of its rows that belong there; NULL: none. */
const module_draft *build_module(const builder *b, uint32_t layer, adapter_site site,
                                 uint32_t *first);
/* Writes every array that has a place (build_fill.c). */
AVO_MUST_USE avo_status build_fill(builder *b, avo_error *error);
/* The embedding's (build_embedding.c). */
AVO_MUST_USE avo_status build_embedding(builder *b, const module_draft *module, avo_error *error);

/* Row `row` of a tensor as floats; a number that is none is refused by name. */
AVO_MUST_USE avo_status build_row(const builder *b, const source_tensor *tensor, uint64_t row,
                                  uint64_t k, float *out, avo_error *error);
/* Row `row` of a weight that was trained as a whole, minus `base`, the model's own. */
AVO_MUST_USE avo_status build_difference(const builder *b, const module_draft *module, uint64_t row,
                                         uint64_t k, const float *base, float *out,
                                         avo_error *error);
/* All numbers of a vector. */
AVO_MUST_USE avo_status build_vector(const builder *b, const source_tensor *tensor, float *out,
                                     avo_error *error);
/* Refuses magnitudes that the type does not hold. */
AVO_MUST_USE avo_status build_fits(const builder *b, quant_type type, const source_tensor *tensor,
                                   const float *numbers, size_t count, avo_error *error);

#endif
