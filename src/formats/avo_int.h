/* Inside the .avo reader and writer: the records of the small sections. */
#ifndef AVO_FORMATS_AVO_INT_H
#define AVO_FORMATS_AVO_INT_H

#include "base/buffer.h"
#include "formats/avo.h"

/* avo_records.c: each record from and to what model_source holds. */
AVO_MUST_USE avo_status avo_config_read(model_source *source, bytes_view section, avo_error *error);
AVO_MUST_USE avo_status avo_config_write(const model_config *config, buffer *out);
AVO_MUST_USE avo_status avo_generation_read(model_source *source, bytes_view section,
                                            avo_error *error);
AVO_MUST_USE avo_status avo_generation_write(const generation_defaults *defaults, buffer *out);
/* Checks all notes. */
AVO_MUST_USE avo_status avo_notes_read(model_source *source, bytes_view section, avo_error *error);
AVO_MUST_USE avo_status avo_notes_write(const avo_note *notes, uint32_t count, buffer *out);
/* Note `index` of a checked section. */
avo_note avo_notes_at(bytes_view section, uint32_t index);

/* Bytes, rows and k of an entry's tensor; false when type, layout and shape do not go together. */
bool avo_tensor_bytes(quant_type type, quant_layout layout, uint32_t rank, const uint64_t *shape,
                      uint64_t *bytes);

#endif
