/* A safetensors file of any bytes, beside a plain configuration. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char config[] = "{\"model_type\":\"llama\"}";
    memory_file files[] = {{"model.safetensors", {data, size}},
                           {"config.json", {(const uint8_t *)config, sizeof(config) - 1}}};
    fuzz_source(files, 2);
    return 0;
}
