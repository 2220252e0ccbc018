/* Activation statistics: for every matrix input of a model the second moments E[x xᵀ] of what a
 * text puts into it. `avocet calibrate` writes them, `avocet pack --calibrate` rounds by them.
 *
 * The file, little-endian:
 *   header    64 bytes (calibration_header)
 *   index     entry_count × 96 bytes (calibration_entry)
 *   data      of each entry, at a multiple of 64: the lower triangle of its k × k matrix, row after
 *             row, k (k + 1) / 2 floats
 * Names are those of inputs, not of tensors: "blk.3.attn" (query, key, value), "blk.3.attn_output",
 * "blk.3.ffn" (gate, up), "blk.3.ffn_down", "output", "project_in", "project_out".
 */
#ifndef AVO_PACK_CALIBRATION_H
#define AVO_PACK_CALIBRATION_H

#include "base/allocator.h"
#include "base/file.h"

#define CALIBRATION_MAGIC       "AVOCAL\r\n"
#define CALIBRATION_VERSION     1u
#define CALIBRATION_ENTRIES_MAX 65536u
#define CALIBRATION_K_MAX       262144u

typedef struct calibration_header {
    char magic[8];
    uint32_t version;
    uint32_t entry_count;
    uint64_t file_bytes;
    uint64_t tokens;    /* of the text that was computed */
    uint64_t index_sum; /* XXH3 */
    uint64_t reserved[2];
    uint64_t sum; /* of the header with this field 0 */
} calibration_header;
_Static_assert(sizeof(calibration_header) == 64, "the header is 64 bytes");

typedef struct calibration_entry {
    char name[64]; /* terminated */
    uint32_t k;
    uint32_t reserved; /* 0 */
    uint64_t offset;
    uint64_t samples; /* rows that were averaged */
    uint64_t sum;     /* XXH3 of the data */
} calibration_entry;
_Static_assert(sizeof(calibration_entry) == 96, "an entry is 96 bytes");

/* Bytes of an entry's data. */
static inline uint64_t calibration_bytes(uint32_t k) {
    return (uint64_t)k * ((uint64_t)k + 1) / 2 * sizeof(float);
}

/* ---- Reading ---- */

typedef struct calibration {
    file_map map;
    bytes_view bytes;
    const char *path; /* for messages; the caller's */
    calibration_header header;
    const calibration_entry *entries;
} calibration;

/* Checks header and index; the data are summed when they are read. */
AVO_MUST_USE avo_status calibration_open(const char *path, calibration *out, avo_error *error);
/* The same over bytes that somebody else keeps. */
AVO_MUST_USE avo_status calibration_open_bytes(bytes_view bytes, const char *path, calibration *out,
                                               avo_error *error);
void calibration_close(calibration *calibration);
/* NULL when there is none. */
const calibration_entry *calibration_find(const calibration *calibration, const char *name);
/* The whole symmetric matrix into moments[k][k]. Refuses damage and what cannot be second moments:
 * no finite numbers, a negative diagonal. */
AVO_MUST_USE avo_status calibration_read(const calibration *calibration,
                                         const calibration_entry *entry, float *moments,
                                         avo_error *error);

/* ---- Writing ---- */

typedef struct calibration_writer {
    file_writer file;
    calibration_entry *entries;
    uint32_t entry_count, written;
} calibration_writer;

/* `entries` has names and k, belongs to the caller and gets the rest. */
AVO_MUST_USE avo_status calibration_writer_open(calibration_writer *writer, const char *path,
                                                calibration_entry *entries, uint32_t count,
                                                avo_error *error);
/* The next entry: sums[k][k] of `samples` rows, of which the lower triangle is read. */
AVO_MUST_USE avo_status calibration_writer_add(calibration_writer *writer, const float *sums,
                                               uint64_t samples, avo_error *error);
AVO_MUST_USE avo_status calibration_writer_commit(calibration_writer *writer, uint64_t tokens,
                                                  avo_error *error);
void calibration_writer_abort(calibration_writer *writer);

#endif
