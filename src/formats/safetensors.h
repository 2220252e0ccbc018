/* Writing safetensors: the header first, since all sizes are known, then the data of the tensors in
 * the order in which they were listed. The writer keeps no tensor in memory. The file appears under
 * its path when it is complete and on disk (base/file.h), or not at all.
 *
 * Reading is source_open and source_open_tensors (source.h).
 */
#ifndef AVO_FORMATS_SAFETENSORS_H
#define AVO_FORMATS_SAFETENSORS_H

#include "formats/source.h"

#define SAFETENSORS_HEADER_BYTES_MAX 100000000 /* the format's own limit */

/* "F32", "BF16", …; NULL for types that the format does not have. */
const char *safetensors_dtype(quant_type type);

typedef struct safetensors_tensor {
    text_view name; /* UTF-8, 1 to SOURCE_NAME_MAX bytes, unique */
    quant_type type;
    uint32_t rank;
    uint64_t shape[SOURCE_RANK_MAX]; /* outermost first; `rank` of them count */
} safetensors_tensor;

/* An entry of __metadata__. The libraries that load models look for "format": "pt". */
typedef struct safetensors_entry {
    text_view key, value; /* UTF-8; keys are unique */
} safetensors_entry;

/* What the file will hold. Only safetensors_writer_open reads it. */
typedef struct safetensors_content {
    const safetensors_tensor *tensors;
    size_t tensor_count;
    const safetensors_entry *metadata;
    size_t metadata_count;
} safetensors_content;

typedef struct safetensors_writer safetensors_writer;

/* Refuses what readers would refuse or could not use in place: too many tensors, duplicate, empty,
 * too long or invalid names, types without a dtype, and a tensor whose data would begin at an
 * offset that is no multiple of its element size (list tensors with wider elements first). */
AVO_MUST_USE avo_status safetensors_writer_open(const avo_allocator *allocator, const char *path,
                                                const safetensors_content *content,
                                                safetensors_writer **out, avo_error *error);
/* The next bytes of the data, in pieces of any size: a piece may end inside a tensor or continue
 * into the next one. Refuses more bytes than the tensors have. */
AVO_MUST_USE avo_status safetensors_writer_append(safetensors_writer *writer, const void *data,
                                                  size_t bytes, avo_error *error);
/* Both free the writer, whatever they return. Committing with data missing is refused. */
AVO_MUST_USE avo_status safetensors_writer_commit(safetensors_writer *writer, avo_error *error);
void safetensors_writer_abort(safetensors_writer *writer);

/* Of the whole file, known from the start. */
uint64_t safetensors_writer_file_bytes(const safetensors_writer *writer);

#endif
