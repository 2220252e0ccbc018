/* An adapter's file of any bytes: a GGUF, a packed one (its sum is made right first), or the
 * safetensors of a PEFT folder that targets everything. */
#include "adapters/packed_int.h"
#include "base/hash.h"
#include "fuzz_adapter.h"

static void sum_again(uint8_t *bytes, size_t size) {
    packed_header header;
    if (size < sizeof(header))
        return;
    memcpy(&header, bytes, sizeof(header));
    uint64_t end = sizeof(header) + (uint64_t)header.array_count * sizeof(packed_array) +
                   (uint64_t)header.module_count * sizeof(packed_module) + header.names_bytes;
    if (end > size)
        return;
    header.head_sum = 0;
    memcpy(bytes, &header, sizeof(header));
    header.head_sum = hash_bytes(bytes, (size_t)end);
    memcpy(bytes, &header, sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char config[] =
        "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":\".*(proj|tokens)\"}";
    uint8_t *copy = aligned_alloc(64, (size + 64) / 64 * 64);
    if (copy == NULL || size == 0) {
        free(copy);
        return 0;
    }
    memcpy(copy, data, size);
    bool packed = packed_is((bytes_view){copy, size});
    if (packed)
        sum_again(copy, size);
    bool gguf = size >= 4 && memcmp(copy, "GGUF", 4) == 0;
    bytes_view json = {(const uint8_t *)config, packed || gguf ? 0 : sizeof(config) - 1};
    fuzz_adapter(json, (bytes_view){copy, size});
    free(copy);
    return 0;
}
