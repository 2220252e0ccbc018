/* A tokenizer from the metadata of any GGUF; what opens must encode and decode. */
#include "fuzz_tokenizer.h"

#include "formats/formats_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    avo_error error = {0};
    gguf_metadata metadata = {0};
    cursor cursor = cursor_over((bytes_view){data, size});
    uint32_t magic;
    uint64_t tensors;
    uint64_t count;
    if (!cursor_read_u32(&cursor, &magic) || !cursor_read_u32(&cursor, &metadata.version) ||
        !cursor_read_u64(&cursor, &tensors) || !cursor_read_u64(&cursor, &count))
        return 0;
    arena_init(&arena, &fuzz_allocator, FUZZ_MEMORY);
    if (gguf_metadata_read(&arena, &cursor, count, "fuzz", &metadata, &error) == AVO_OK) {
        tokenizer_source source = {
            .kind = TOKENIZER_SOURCE_GGUF, .metadata = &metadata, .name = "fuzz"};
        fuzz_open(&source);
    }
    arena_free(&arena);
    return 0;
}
