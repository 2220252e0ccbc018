/* Tensor names. GGUF's are ours too; this maps Hugging Face names to them, so that everything above
 * (binding, packing) knows one set of names only. */
#ifndef AVO_FORMATS_NAMES_H
#define AVO_FORMATS_NAMES_H

#include "formats/source.h"

typedef enum name_result {
    NAME_UNKNOWN,
    NAME_IGNORED, /* known to carry no weights of ours: masks, rotation tables, vision */
    NAME_KNOWN
} name_result;

/* Writes the canonical name ("blk.0.attn_q.weight", "output_norm.weight") of a Hugging Face name.
 */
name_result names_canonical(source_architecture architecture, text_view hf_name, char *out,
                            size_t capacity);

/* "blk.12.rest": the number and the rest; false for any other name. */
bool names_split_layer(text_view name, uint32_t *layer, text_view *rest);

/* Whether layers of the architecture have experts. */
bool names_have_experts(source_architecture architecture);

/* "ffn_gate.7.weight" of a layer: a matrix of one expert; `part` 0: gate, 1: up, 2: down. */
bool names_split_expert(text_view name, uint32_t *part, uint32_t *expert);

/* Room for any canonical name. */
#define NAMES_CANONICAL_MAX (SOURCE_NAME_MAX + 32)
/* The canonical name of a source's tensor, whatever names the source uses: itself, or written to
 * `room`, which *name then points into. */
name_result names_of_tensor(const model_source *source, const source_tensor *tensor,
                            char room[NAMES_CANONICAL_MAX], text_view *name);
/* How a tensor with no place in its architecture is refused. */
AVO_MUST_USE avo_status names_no_place(const model_source *source, const source_tensor *tensor,
                                       avo_error *error);

#endif
