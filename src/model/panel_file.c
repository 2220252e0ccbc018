/* Reading files of panels. */
#include "model/panel_file.h"

#include "base/checked.h"
#include "base/hash.h"

#include <string.h>

static uint32_t u32_at(const uint8_t *bytes, size_t offset) {
    uint32_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

static uint64_t u64_at(const uint8_t *bytes, size_t offset) {
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

static avo_status fail(const char *name, const char *field, uint64_t found, uint64_t expected,
                       avo_error *error) {
    return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is %llu, must be %llu", name, field,
                       (unsigned long long)found, (unsigned long long)expected);
}

static avo_status check_header(bytes_view bytes, const char *name, avo_error *error) {
    if (bytes.size < PANEL_HEADER_BYTES || memcmp(bytes.data, "AVOPANEL", 8) != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: not a file of panels", name);
    const uint8_t *header = bytes.data;
    if (u32_at(header, 8) != PANEL_FILE_VERSION)
        return fail(name, "version", u32_at(header, 8), PANEL_FILE_VERSION, error);
    if (u32_at(header, 12) != PANEL_HEADER_BYTES)
        return fail(name, "the header's length", u32_at(header, 12), PANEL_HEADER_BYTES, error);
    if (u64_at(header, 16) != bytes.size)
        return fail(name, "the file's length", bytes.size, u64_at(header, 16), error);
    uint64_t sum = hash_bytes(header, 120);
    if (u64_at(header, 120) != sum)
        return fail(name, "the header's sum", u64_at(header, 120), sum, error);
    return AVO_OK;
}

/* Lengths that follow from one another. */
static avo_status check_lengths(bytes_view bytes, const char *name, avo_error *error) {
    const uint8_t *header = bytes.data;
    uint64_t panels = u64_at(header, 32), path = u32_at(header, 88), pieces = u32_at(header, 84);
    if (u32_at(header, 80) != PANEL_PIECE_BYTES)
        return fail(name, "the length of a piece", u32_at(header, 80), PANEL_PIECE_BYTES, error);
    if (pieces < 1 || pieces > PANEL_PIECES_MAX ||
        panels > (uint64_t)PANEL_PIECES_MAX * PANEL_PIECE_BYTES || path > PANEL_PATH_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: too large", name);
    uint64_t expected = (panels + PANEL_PIECE_BYTES - 1) / PANEL_PIECE_BYTES;
    if (pieces != expected)
        return fail(name, "the number of pieces", pieces, expected, error);
    uint64_t front = (PANEL_HEADER_BYTES + 8 * pieces + path + 4095) / 4096 * 4096;
    if (u64_at(header, 24) != front)
        return fail(name, "the offset of the panels", u64_at(header, 24), front, error);
    if (front + panels != bytes.size)
        return fail(name, "the file's length", bytes.size, front + panels, error);
    uint64_t sum = hash_bytes(header + PANEL_HEADER_BYTES, (size_t)front - PANEL_HEADER_BYTES);
    if (u64_at(header, 112) != sum)
        return fail(name, "the sum of sums and path", u64_at(header, 112), sum, error);
    return AVO_OK;
}

avo_status panel_file_parse(bytes_view bytes, const char *name, panel_file *file,
                            avo_error *error) {
    *file = (panel_file){.pieces = 0};
    AVO_TRY(check_header(bytes, name, error));
    AVO_TRY(check_lengths(bytes, name, error));
    const uint8_t *header = bytes.data;
    file->layout.bytes = u64_at(header, 32);
    file->layout.key[0] = u64_at(header, 40);
    file->layout.key[1] = u64_at(header, 48);
    file->digest = u64_at(header, 56);
    file->stamps[0] = u64_at(header, 64);
    file->stamps[1] = u64_at(header, 72);
    file->pieces = u32_at(header, 84);
    file->sums = header + PANEL_HEADER_BYTES;
    file->path =
        (text_view){(const char *)file->sums + 8 * (size_t)file->pieces, u32_at(header, 88)};
    file->panels = header + u64_at(header, 24);
    return AVO_OK;
}

avo_status panel_file_check(const panel_file *file, const panel_origin *origin, const char *name,
                            avo_error *error) {
    if (file->path.size != strlen(origin->path) ||
        memcmp(file->path.data, origin->path, file->path.size) != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: made of another model", name);
    if (file->stamps[0] != origin->stamps[0] || file->stamps[1] != origin->stamps[1])
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: made before the model's files changed, or by another version",
                           name);
    if (file->digest != origin->digest)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the model's digest is %016llx, must be %016llx", name,
                           (unsigned long long)file->digest, (unsigned long long)origin->digest);
    return AVO_OK;
}

bool panel_file_is_right(const panel_file *file, uint32_t piece) {
    uint64_t begin = (uint64_t)piece * PANEL_PIECE_BYTES;
    uint64_t rest = file->layout.bytes - begin;
    size_t bytes = rest < PANEL_PIECE_BYTES ? (size_t)rest : PANEL_PIECE_BYTES;
    return hash_bytes(file->panels + begin, bytes) == u64_at(file->sums, 8 * (size_t)piece);
}
