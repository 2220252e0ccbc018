/* A reader of zip archives (Python wheels) over mapped bytes: stored and deflated entries, Zip64.
 * Hostile archives are refused: names that leave the folder, sizes beyond the file or beyond what
 * deflate can yield, more entries than HUB_FILES_MAX, encryption, sums that do not match. */
#ifndef AVO_HUB_ZIP_H
#define AVO_HUB_ZIP_H

#include "hub/hub_int.h"

typedef struct zip_entry {
    text_view name; /* passed hub_path_check; points into the archive */
    uint64_t bytes;
    uint64_t packed_bytes;
    uint64_t offset; /* of the local header */
    uint32_t crc;
    uint16_t method; /* 0 stored, 8 deflated */
} zip_entry;

typedef struct zip_archive {
    bytes_view bytes;
    zip_entry *entries; /* files only, in the archive's order */
    size_t count;
} zip_archive;

/* `bytes` must outlive the archive; entries lie in the arena. */
AVO_MUST_USE avo_status zip_open(arena *arena, bytes_view bytes, zip_archive *archive,
                                 avo_error *error);

typedef avo_status (*zip_sink)(void *context, const void *data, size_t bytes, avo_error *error);
/* Gives exactly entry->bytes to the sink, in pieces, then checks the sum. */
AVO_MUST_USE avo_status zip_extract(const zip_archive *archive, const zip_entry *entry,
                                    zip_sink sink, void *context, avo_error *error);

#endif
