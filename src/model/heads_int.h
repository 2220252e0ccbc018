/* Inside model/: reading a file of draft heads. heads_config.c has the fields, heads_tensors.c the
 * tensors, heads.c the object. */
#ifndef AVO_MODEL_HEADS_INT_H
#define AVO_MODEL_HEADS_INT_H

#include "model/heads.h"

/* The fields of avocet.heads, whatever the base model is. */
AVO_MUST_USE avo_status heads_config_parse(text_view text, const char *path,
                                           const avo_allocator *allocator, heads_config *config,
                                           avo_error *error);

/* A file while its tensors are read. */
typedef struct heads_reader {
    const model_source *source;
    const avo_model *model;
    avo_heads *heads;
    avo_error *error;
    uint32_t used; /* tensors that were taken */
    bool later;    /* rows of the output matrix are gathered when they are needed */
} heads_reader;

/* Tensors by name; the error names file, tensor, what was found and what must be. */
AVO_MUST_USE avo_status heads_take_norm(heads_reader *reader, const char *name, uint32_t rows,
                                        uint32_t width, const float **norm);
AVO_MUST_USE avo_status heads_take_frequent(heads_reader *reader);

/* Several matrices as one, in panels: `across` of them side by side (their inputs follow one
 * another), and `down` rows of such. names[row · across + column], without ".weight". */
typedef struct heads_matrix {
    const char *const *names;
    uint32_t down, across;
    uint32_t rows, k; /* of each */
} heads_matrix;
AVO_MUST_USE avo_status heads_take_matrix(heads_reader *reader, const heads_matrix *matrix,
                                          weight_view *out);
/* The rows of the model's output matrix for the frequent tokens. */
AVO_MUST_USE avo_status heads_gather(heads_reader *reader, weight_view *out);

#endif
