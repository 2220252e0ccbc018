/* adapter_config.json of any bytes, patterns among them, beside weights of q and v. */
#include "fuzz_adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char header[] =
        "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
        "\"shape\":[1,8],\"data_offsets\":[0,32]},"
        "\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\","
        "\"shape\":[8,1],\"data_offsets\":[32,64]}}";
    uint8_t weights[8 + sizeof(header) - 1 + 64] = {0};
    uint64_t bytes = sizeof(header) - 1;
    memcpy(weights, &bytes, sizeof(bytes));
    memcpy(weights + 8, header, sizeof(header) - 1);
    if (size == 0)
        return 0;
    fuzz_adapter((bytes_view){data, size}, (bytes_view){weights, sizeof(weights)});
    return 0;
}
