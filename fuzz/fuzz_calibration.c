/* pack/calibration on any bytes. Sums are made right first, so that what lies behind them is
 * reached too. */
#include "pack/calibration.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define K_MAX 512 /* of what is read out */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1); /* aligned, as a mapping is */
    float *moments = malloc((size_t)K_MAX * K_MAX * sizeof(float));
    if (copy == NULL || moments == NULL)
        abort();
    memcpy(copy, data, size);
    calibration_header header;
    if (size >= sizeof(header)) {
        memcpy(&header, copy, sizeof(header));
        uint64_t index = (uint64_t)header.entry_count * sizeof(calibration_entry);
        header.file_bytes = size;
        if (index <= size - sizeof(header))
            header.index_sum = hash_bytes(copy + sizeof(header), (size_t)index);
        header.sum = 0;
        header.sum = hash_bytes(&header, sizeof(header));
        memcpy(copy, &header, sizeof(header));
    }
    calibration opened;
    avo_error error;
    if (calibration_open_bytes((bytes_view){copy, size}, "fuzz", &opened, &error) == AVO_OK)
        for (uint32_t i = 0; i < opened.header.entry_count && i < 16; i++) {
            const calibration_entry *entry = &opened.entries[i];
            if (calibration_find(&opened, entry->name) == NULL)
                abort();
            if (entry->k <= K_MAX && calibration_read(&opened, entry, moments, &error) == AVO_OK &&
                !(moments[0] >= 0))
                abort();
        }
    free(copy);
    free(moments);
    return 0;
}
