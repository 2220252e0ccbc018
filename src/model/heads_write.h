/* Inside model/: a file of draft heads while it is made, in memory (docs/heads.md). */
#ifndef AVO_MODEL_HEADS_WRITE_H
#define AVO_MODEL_HEADS_WRITE_H

#include "base/json_writer.h"
#include "model/heads_int.h"

/* How matrices are stored: F32, or blocks of 32 as I8 (QUANT_Q8_0) or U8 (QUANT_Q4_1). */
typedef struct heads_writer {
    const avo_allocator *allocator;
    avo_error *error;
    const char *path; /* where the numbers come from, for messages */
    quant_type type;
    buffer header, data;
    json_writer json;        /* into `header` */
    buffer scales, minimums; /* of the matrix at hand */
    buffer row;              /* floats */
} heads_writer;

void heads_writer_init(heads_writer *writer, const avo_allocator *allocator, const char *path,
                       quant_type type, avo_error *error);
void heads_writer_free(heads_writer *writer);

/* A matrix as `name`.weight. Its numbers are those of `from` (F32, F16, BF16), rows in the order of
 * `order` (NULL: as they are); `swap`: the two halves of its columns change places. */
typedef struct heads_numbers {
    const source_tensor *from;
    uint32_t rows, columns;
    const uint32_t *order;
    bool swap;
} heads_numbers;
AVO_MUST_USE avo_status heads_write_matrix(heads_writer *writer, const char *name,
                                           const heads_numbers *numbers);
/* One row as F32. */
AVO_MUST_USE avo_status heads_write_vector(heads_writer *writer, const char *name,
                                           const source_tensor *from, uint32_t count);
AVO_MUST_USE avo_status heads_write_tokens(heads_writer *writer, const int32_t *tokens,
                                           uint32_t count);
/* The whole file, with these fields, into `out`. */
AVO_MUST_USE avo_status heads_write_finish(heads_writer *writer, const heads_config *config,
                                           buffer *out);

#endif
