/* GGUF metadata as the tokenizer and `inspect` read it. */
#ifndef AVO_FORMATS_GGUF_H
#define AVO_FORMATS_GGUF_H

#include "formats/source.h"

typedef enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12
} gguf_type;

typedef struct gguf_value {
    text_view key;
    gguf_type type;
    gguf_type item_type;           /* of an array */
    uint64_t count;                /* items of an array, else 1 */
    bytes_view data;               /* the value's bytes in the file; all of an array's items */
    const uint64_t *string_offset; /* array of strings: [count] offsets into data of each length */
} gguf_value;

struct gguf_metadata {
    const gguf_value *values;
    size_t count;
    name_index index;
    uint32_t version;
};

/* NULL when there is none. */
const gguf_value *gguf_find(const gguf_metadata *metadata, const char *key);

/* Item `index` (0 for a scalar) as …; false when the type does not convert without loss or the
 * index is out of range. Integers of all widths and bools convert to int64, floats to double. */
bool gguf_integer(const gguf_value *value, uint64_t index, int64_t *out);
bool gguf_number(const gguf_value *value, uint64_t index, double *out);
bool gguf_string(const gguf_value *value, uint64_t index, text_view *out);
bool gguf_boolean(const gguf_value *value, uint64_t index, bool *out);
const char *gguf_type_name(gguf_type type);

#endif
