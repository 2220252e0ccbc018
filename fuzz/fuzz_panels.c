/* Files of panels on any bytes, their sums made right first; what is accepted is read to its last
 * byte. */
#include "base/hash.h"
#include "model/panel_file.h"

#include <stdlib.h>
#include <string.h>

static void put_sum(uint8_t *bytes, size_t offset, uint64_t sum) {
    memcpy(bytes + offset, &sum, sizeof(sum));
}

static void make_right(uint8_t *bytes, size_t size) {
    uint64_t front;
    if (size < PANEL_HEADER_BYTES)
        return;
    memcpy(&front, bytes + 24, sizeof(front));
    if (front >= PANEL_HEADER_BYTES && front <= size)
        put_sum(bytes, 112,
                hash_bytes(bytes + PANEL_HEADER_BYTES, (size_t)front - PANEL_HEADER_BYTES));
    put_sum(bytes, 120, hash_bytes(bytes, 120));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const panel_origin origin = {.path = "/m", .digest = 1, .stamps = {2, 3}};
    panel_file file;
    avo_error error;
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    make_right(copy, size);
    if (panel_file_parse((bytes_view){copy, size}, "fuzz", &file, &error) == AVO_OK) {
        (void)!panel_file_check(&file, &origin, "fuzz", &error);
        for (uint32_t i = 0; i < file.pieces; i++)
            (void)panel_file_is_right(&file, i);
    }
    free(copy);
    return 0;
}
