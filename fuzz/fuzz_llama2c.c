/* A llama2.c file of any bytes: refused, or opened with every tensor byte readable. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_file file = {"tiny.bin", {data, size}};
    fuzz_source(&file, 1);
    return 0;
}
