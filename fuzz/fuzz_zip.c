/* hub/zip on any bytes: what comes out is as long as was claimed. */
#include "hub/zip.h"

#include <stdlib.h>

#define OUTPUT_MAX ((uint64_t)4 << 20) /* enough to find faults, little enough to be fast */

static avo_status count(void *context, const void *data, size_t bytes, avo_error *error) {
    (void)data;
    uint64_t *total = context;
    *total += bytes;
    return *total > OUTPUT_MAX ? status_fail(error, AVO_ERROR_LIMIT, "enough") : AVO_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    zip_archive archive;
    avo_error error;
    arena_init(&arena, NULL, (size_t)64 << 20);
    if (zip_open(&arena, (bytes_view){data, size}, &archive, &error) == AVO_OK)
        for (size_t i = 0; i < archive.count && i < 16; i++) {
            uint64_t bytes = 0;
            if (hub_path_check(archive.entries[i].name, NULL) != AVO_OK)
                abort();
            if (zip_extract(&archive, &archive.entries[i], count, &bytes, &error) == AVO_OK &&
                bytes != archive.entries[i].bytes)
                abort();
        }
    arena_free(&arena);
    return 0;
}
