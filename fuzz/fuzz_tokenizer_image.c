/* A compiled tokenizer from any bytes: nothing in it may be trusted. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_allocate(NULL, size, 64);
    if (copy == NULL)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    tokenizer_source source = {
        .kind = TOKENIZER_SOURCE_IMAGE, .data = {copy, size}, .name = "fuzz"};
    fuzz_open(&source);
    free(copy);
    return 0;
}
