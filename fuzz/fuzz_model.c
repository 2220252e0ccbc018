/* A whole model of any bytes: refused, too large, or computed to the end of a short context. The
 * sums of a .avo are made right first. */
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    if (size >= sizeof(avo_header) && memcmp(copy, AVO_MAGIC, 8) == 0)
        avo_resum(copy, size);
    (void)model_run(copy, size);
    free(copy);
    return 0;
}
