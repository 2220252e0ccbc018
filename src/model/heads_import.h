/* Draft heads of other projects (docs/heads.md): folders of Medusa, EAGLE, EAGLE-2 and EAGLE-3, as
 * their own scripts, SpecForge and speculators write them. Every tensor of a folder must be one
 * that is computed or one that is known to be of no use; everything else is refused by name. */
#ifndef AVO_MODEL_HEADS_IMPORT_H
#define AVO_MODEL_HEADS_IMPORT_H

#include "base/buffer.h"
#include "model/heads.h"

/* Appends a file of docs/heads.md to `out`, for the base model `model`. Matrices become F32, or
 * blocks of 8 or 4 bits: QUANT_F32, QUANT_Q8_0, QUANT_Q4_1. */
AVO_MUST_USE avo_status heads_import(const avo_model *model, const char *folder, quant_type type,
                                     buffer *out, avo_error *error);

/* The same for files that lie in memory; `folder` is for messages. */
AVO_MUST_USE avo_status heads_import_memory(const avo_model *model, const char *folder,
                                            text_view config, bytes_view weights, quant_type type,
                                            buffer *out, avo_error *error);

#endif
