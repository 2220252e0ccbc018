/* Merging: a model with adapters folded into its weights, as a new .avo file or folder. */
#ifndef AVO_PACK_MERGE_H
#define AVO_PACK_MERGE_H

#include "model/model.h"
#include "pack/pack.h"

/* Weights as in avo_session_options: what each adapter adds is multiplied and summed. Matrices are
 * rounded once, to options->type; `keep` is refused for a .avo, because what changes must be
 * rounded again. With options->folder all tensors, vectors too, become options->type (f32, f16,
 * bf16) or keep the types they have; the model must be in safetensors. A head that was the
 * embedding becomes a matrix of its own where one of both changes. A bias that the base model has
 * no place for is refused by name. */
AVO_MUST_USE avo_status pack_merge(const avo_model *model, const avo_adapter_use *uses,
                                   size_t count, const char *path, const pack_options *options,
                                   pack_report *report, avo_error *error);

#endif
