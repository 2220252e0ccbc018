/* Panels of any type that can be encoded, without calibration. */
#ifndef AVO_TESTS_SUPPORT_ENCODE_H
#define AVO_TESTS_SUPPORT_ENCODE_H

#include "quant/feedback.h"

#include <stdlib.h>

/* `quick`: as PACK_EFFORT_NONE; otherwise by search. */
static inline void encode_panel(quant_type type, const float *source, size_t rows, size_t k,
                                bool quick, uint8_t *out) {
    if (!feedback_known(type)) {
        weight_encode_panel(type, source, rows, k, out);
        return;
    }
    float *scratch = malloc(feedback_scratch_floats(k) * sizeof(float));
    feedback_encode_panel(type, source, rows, k, NULL, quick, scratch, out, NULL);
    free(scratch);
}

#endif
