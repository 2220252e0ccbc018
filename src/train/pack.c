/* Samples into calls, in their order. */
#include "train/pack.h"

avo_status train_pack(const uint32_t *lengths, size_t count, uint32_t rows_max,
                      uint32_t sequences_max, size_t *ends, size_t *calls, avo_error *error) {
    uint64_t rows = 0;
    uint32_t sequences = 0;
    *calls = 0;
    if (sequences_max == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "a call must have at least one sequence");
    for (size_t i = 0; i < count; i++) {
        if (lengths[i] > rows_max)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "a sample has %u tokens, a call can have at most %u", lengths[i],
                               rows_max);
        if (i > 0 && (rows + lengths[i] > rows_max || sequences == sequences_max)) {
            ends[(*calls)++] = i;
            rows = sequences = 0;
        }
        rows += lengths[i];
        sequences++;
    }
    if (count > 0)
        ends[(*calls)++] = count;
    return AVO_OK;
}
