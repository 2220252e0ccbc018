/* hub/listing on any bytes as a hub's file list: every path that is kept passed the check. */
#include "hub/listing.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    avo_error error;
    char note[256];
    arena_init(&arena, NULL, (size_t)64 << 20);
    listing list = {.arena = &arena};
    const char *const pattern = "*[a-z]?.*";
    if (listing_parse(&list, (text_view){(const char *)data, size}, &error) == AVO_OK &&
        listing_finish(&list, &error) == AVO_OK) {
        for (size_t i = 0; i < list.count; i++)
            if (hub_path_check(list.files[i].path, NULL) != AVO_OK ||
                list.files[i].bytes > HUB_FILE_BYTES_MAX)
                abort();
        (void)!listing_choose(&list, NULL, 0, note, sizeof(note), &error);
        (void)!listing_choose(&list, &pattern, 1, note, sizeof(note), &error);
    }
    hub_model model;
    (void)!hub_manifest_parse(&arena, (text_view){(const char *)data, size}, "x", &model, &error);
    arena_free(&arena);
    return 0;
}
