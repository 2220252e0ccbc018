/* Makes the sums and the size of a .avo right, whatever else is wrong in it: who makes a hostile
 * file makes its sums too, and fuzzing shall get past them. */
#ifndef AVO_FUZZ_AVO_H
#define AVO_FUZZ_AVO_H

#include "base/hash.h"
#include "formats/avo.h"

static inline void avo_resum(uint8_t *bytes, size_t size) {
    avo_header header;
    if (size < sizeof(header))
        return;
    memcpy(&header, bytes, sizeof(header));
    for (int i = 0; i < AVO_SECTION_COUNT; i++)
        if (header.section[i].offset <= size &&
            header.section[i].bytes <= size - header.section[i].offset)
            header.section[i].sum =
                hash_bytes(bytes + header.section[i].offset, (size_t)header.section[i].bytes);
    header.file_bytes = size;
    header.sum = 0;
    header.sum = hash_bytes(&header, sizeof(header));
    memcpy(bytes, &header, sizeof(header));
}

#endif
