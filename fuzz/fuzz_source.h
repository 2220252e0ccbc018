/* What the entries of the model files share: open from memory, then use what was opened. */
#ifndef AVO_FUZZ_SOURCE_H
#define AVO_FUZZ_SOURCE_H

#include "formats/formats_int.h"

#include <stdlib.h>

static inline void fuzz_metadata(const gguf_metadata *metadata) {
    for (size_t i = 0; metadata != NULL && i < metadata->count; i++) {
        const gguf_value *value = &metadata->values[i];
        for (uint64_t j = 0; j < value->count && j < 64; j++) {
            int64_t integer;
            double number;
            bool boolean;
            text_view text = {NULL, 0};
            (void)gguf_integer(value, j, &integer);
            (void)gguf_number(value, j, &number);
            (void)gguf_boolean(value, j, &boolean);
            if (gguf_string(value, j, &text) && text.size > 0) {
                volatile char last = text.data[text.size - 1];
                (void)last;
            }
        }
    }
}

static inline void fuzz_source(const memory_file *files, size_t count) {
    model_source *source;
    avo_error error;
    if (source_open_memory(files, count, NULL, &source, &error) != AVO_OK) {
        if (source != NULL || error.text[0] == '\0')
            abort();
        return;
    }
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < source->tensor_count; i++)
        for (uint64_t j = 0; j < source->tensors[i].bytes; j++)
            sum += source->tensors[i].data[j];
    for (uint32_t i = 0; i < source->config.layers; i++)
        sum += source->config.layer_windowed[i] + source->config.layer_rotary[i];
    (void)sum;
    if (source->config.heads % source->config.kv_heads != 0)
        abort();
    (void)sum;
    fuzz_metadata(source->gguf);
    source_close(source);
}

#endif
