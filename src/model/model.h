/* A model: source, tokenizer, template and the bound weights. One small file per architecture fills
 * the description from the configuration and names its tensors; bind.c finds them, checks every
 * shape and makes views; forward.c walks the description. */
#ifndef AVO_MODEL_MODEL_H
#define AVO_MODEL_MODEL_H

#include "formats/source.h"
#include "kernels/backend.h"
#include "tokenizer/template/template.h"
#include "tokenizer/tokenizer.h"

struct avo_model {
    const avo_allocator *allocator;
    arena arena; /* views, norms as f32, rotation tables */
    model_source *source;
    tokenizer *tokenizer;     /* NULL: the file has none */
    chat_template *template_; /* NULL: the file has none */
    model_view view;
    uint64_t parameters;
    uint64_t weight_bytes; /* of all bound tensors as stored */
    uint64_t repack_bytes; /* in the arena: converted at load */
};

/* Weights without tokenizer and template; for tools that need neither. */
AVO_MUST_USE avo_status model_bind(avo_model *model, uint32_t context_max, avo_error *error);

/* One step: embed, every layer's phases, head. */
void model_forward(const backend *backend, const step_view *step);

#endif
