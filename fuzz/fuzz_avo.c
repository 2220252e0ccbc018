/* The .avo reader on any bytes. Sums are made right first, so that the checks behind them are what
 * is tested; whatever opens is read to its last byte. */
#include "fuzz_avo.h"

#include "formats/formats_int.h"

#include <stdlib.h>

static void touch(const model_source *source) {
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        uint32_t rows = tensor->rank == 1 ? 1 : (uint32_t)tensor->shape[0];
        uint32_t k = (uint32_t)(tensor->rank == 1 ? tensor->shape[0] : tensor->shape[1]);
        weight_view view = {.type = tensor->type,
                            .layout = tensor->layout,
                            .rows = rows,
                            .k = k,
                            .data = tensor->data};
        float *row = malloc((size_t)k * sizeof(float));
        if (row == NULL)
            continue;
        weight_decode_row(&view, rows - 1, row);
        sum += row[k - 1] > 0;
        free(row);
    }
    for (uint32_t i = 0; i < source->config.layers; i++)
        sum += source->config.layer_windowed[i] + source->config.layer_rotary[i];
    for (uint32_t i = 0; i < avo_source_note_count(source); i++)
        sum += avo_source_note(source, i).value.size;
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    avo_resum(copy, size);
    memory_file file = {"fuzz.avo", {copy, size}};
    model_source *source;
    avo_error error;
    if (source_open_memory(&file, 1, NULL, &source, &error) == AVO_OK) {
        if (source->format == SOURCE_AVO) {
            touch(source);
            (void)!avo_source_verify(source, NULL, NULL, &error);
        }
        source_close(source);
    }
    free(copy);
    return 0;
}
