/* A Hugging Face folder whose JSON files hold any bytes. The first byte chooses which one; weights
 * are an empty file. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char weights[] = "\2\0\0\0\0\0\0\0{}";
    static const char config[] = "{\"model_type\":\"llama\"}";
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "model.safetensors.index.json"};
    if (size == 0)
        return 0;
    const char *name = names[data[0] % 4];
    memory_file files[] = {
        {"m-1-of-1.safetensors", {(const uint8_t *)weights, sizeof(weights) - 1}},
        {name, {data + 1, size - 1}},
        {"config.json", {(const uint8_t *)config, sizeof(config) - 1}}};
    fuzz_source(files, 3);
    return 0;
}
