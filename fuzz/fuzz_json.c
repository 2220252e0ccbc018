/* base/json on any bytes; what parses is written and must parse again. */
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    json_value root;
    avo_error error;
    arena_init(&arena, NULL, (size_t)64 << 20);
    if (json_parse(&arena, (text_view){(const char *)data, size}, &root, &error) == AVO_OK) {
        buffer out;
        buffer_init(&out, NULL, (size_t)64 << 20);
        json_value again;
        if (json_write_value(&out, &root) == AVO_OK &&
            json_parse(&arena, buffer_text(&out), &again, &error) != AVO_OK)
            abort();
        buffer_free(&out);
    }
    arena_free(&arena);
    return 0;
}
