/* tokenizer.json from any bytes; what opens must encode and decode. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON, .data = {data, size}, .name = "fuzz"};
    fuzz_open(&source);
    return 0;
}
