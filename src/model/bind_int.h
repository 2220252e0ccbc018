/* Inside bind*.c: from named tensors to views. */
#ifndef AVO_MODEL_BIND_INT_H
#define AVO_MODEL_BIND_INT_H

#include "model/model_int.h"

typedef struct binder {
    avo_model *model;
    const model_config *config;
    const architecture *architecture;
    tensor_slots slots;
    avo_error *error;
} binder;

/* The tensor with a role in a layer, which counts as used from now on; NULL: the file has none. */
const source_tensor *bind_take(binder *b, uint32_t layer, layer_role role);
AVO_MUST_USE avo_status bind_missing(binder *b, const char *what, uint32_t layer);
AVO_MUST_USE avo_status bind_bad_shape(binder *b, const source_tensor *tensor, uint64_t rows,
                                       uint64_t k);
/* Adds the tensor to the model's sums of parameters and bytes. */
void bind_count(binder *b, const source_tensor *tensor);
/* A norm, bias or the like as f32. */
AVO_MUST_USE avo_status bind_vector(binder *b, const source_tensor *tensor, uint64_t width,
                                    bool plus_one, const float **out);
AVO_MUST_USE avo_status bind_matrix(binder *b, const source_tensor *tensor, uint64_t rows,
                                    uint64_t k, bool transposed, weight_view *out);
AVO_MUST_USE avo_status bind_linear(binder *b, uint32_t layer, layer_role role,
                                    layer_role bias_role, bias_rule rule, uint64_t rows, uint64_t k,
                                    const char *what, linear_view *out);

/* bind_experts.c: router, experts and shared expert of a layer that has them. */
AVO_MUST_USE avo_status bind_experts(binder *b, uint32_t number, layer_view *layer);

#endif
