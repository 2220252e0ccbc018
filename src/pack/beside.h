/* The files beside the weights of a model in safetensors: config.json with what has changed, and
 * copies of the tokenizer's and others. Called by those who write a folder with new weights. */
#ifndef AVO_PACK_BESIDE_H
#define AVO_PACK_BESIDE_H

#include "formats/source.h"

typedef struct pack_beside {
    const avo_allocator *allocator;
    const model_source *source; /* in safetensors */
    const char *dtype;          /* of all tensors now: "float32"; NULL: as they were */
    bool untied;                /* the head was the embedding and is no longer */
} pack_beside;

AVO_MUST_USE avo_status pack_write_beside(const pack_beside *beside, const char *folder,
                                          avo_error *error);

#endif
