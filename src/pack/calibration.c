/* The file of activation statistics: everything is checked before it is believed. */
#include "pack/calibration.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

#define DATA_ALIGNMENT 64

/* ---- Reading ---- */

static avo_status bad(const calibration *c, const char *what, avo_error *error) {
    return status_fail(error, AVO_ERROR_FORMAT, "%s: invalid calibration file: %s", c->path, what);
}

static avo_status check_header(calibration *c, avo_error *error) {
    if (c->bytes.size < sizeof(c->header))
        return bad(c, "the file is too short", error);
    memcpy(&c->header, c->bytes.data, sizeof(c->header));
    if (memcmp(c->header.magic, CALIBRATION_MAGIC, sizeof(c->header.magic)) != 0)
        return bad(c, "wrong magic bytes", error);
    if (c->header.version != CALIBRATION_VERSION)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: version is %u, must be %u", c->path,
                           c->header.version, CALIBRATION_VERSION);
    calibration_header copy = c->header;
    copy.sum = 0;
    if (hash_bytes(&copy, sizeof(copy)) != c->header.sum)
        return bad(c, "checksum mismatch in the header", error);
    if (c->header.file_bytes != c->bytes.size)
        return bad(c, "the file size differs from the header's", error);
    if (c->header.reserved[0] != 0 || c->header.reserved[1] != 0)
        return bad(c, "reserved fields must be zero", error);
    if (c->header.entry_count > CALIBRATION_ENTRIES_MAX)
        return bad(c, "too many entries", error);
    return AVO_OK;
}

static avo_status check_entry(const calibration *c, const calibration_entry *entry,
                              uint64_t data_begin, avo_error *error) {
    if (memchr(entry->name, '\0', sizeof(entry->name)) == NULL || entry->name[0] == '\0')
        return bad(c, "a name is empty or not terminated", error);
    if (entry->k == 0 || entry->k > CALIBRATION_K_MAX || entry->reserved != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s: invalid channel count %u", c->path,
                           entry->name, entry->k);
    uint64_t bytes = calibration_bytes(entry->k);
    if (entry->offset % DATA_ALIGNMENT != 0 || entry->offset < data_begin ||
        entry->offset > c->bytes.size || bytes > c->bytes.size - entry->offset)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s: outside the file", c->path,
                           entry->name);
    return AVO_OK;
}

avo_status calibration_open_bytes(bytes_view bytes, const char *path, calibration *out,
                                  avo_error *error) {
    *out = (calibration){.bytes = bytes, .path = path};
    AVO_TRY(check_header(out, error));
    uint64_t index_bytes = (uint64_t)out->header.entry_count * sizeof(calibration_entry);
    if (index_bytes > bytes.size - sizeof(calibration_header))
        return bad(out, "the index is truncated", error);
    out->entries = (const calibration_entry *)(const void *)(bytes.data + sizeof(out->header));
    if (hash_bytes(out->entries, (size_t)index_bytes) != out->header.index_sum)
        return bad(out, "checksum mismatch in the index", error);
    for (uint32_t i = 0; i < out->header.entry_count; i++)
        AVO_TRY(
            check_entry(out, &out->entries[i], sizeof(calibration_header) + index_bytes, error));
    return AVO_OK;
}

avo_status calibration_open(const char *path, calibration *out, avo_error *error) {
    *out = (calibration){0};
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = calibration_open_bytes(map.bytes, path, out, error);
    out->map = map;
    if (status != AVO_OK)
        calibration_close(out);
    return status;
}

void calibration_close(calibration *calibration) {
    file_map_close(&calibration->map);
    memset(calibration, 0, sizeof(*calibration));
}

const calibration_entry *calibration_find(const calibration *calibration, const char *name) {
    for (uint32_t i = 0; i < calibration->header.entry_count; i++)
        if (strcmp(calibration->entries[i].name, name) == 0)
            return &calibration->entries[i];
    return NULL;
}

avo_status calibration_read(const calibration *c, const calibration_entry *entry, float *moments,
                            avo_error *error) {
    const uint8_t *data = c->bytes.data + entry->offset;
    size_t bytes = (size_t)calibration_bytes(entry->k);
    if (hash_bytes(data, bytes) != entry->sum)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %s: checksum mismatch; the file is damaged", c->path, entry->name);
    size_t k = entry->k;
    bool good = true;
    for (size_t row = 0; row < k; row++) {
        memcpy(moments + row * k, data, (row + 1) * sizeof(float));
        data += (row + 1) * sizeof(float);
        for (size_t i = 0; i <= row; i++) {
            good &= isfinite(moments[row * k + i]) != 0;
            moments[i * k + row] = moments[row * k + i];
        }
        good &= moments[row * k + row] >= 0.0f;
    }
    if (c->map.bytes.data != NULL)
        file_map_forget(c->bytes.data + entry->offset, bytes);
    if (!good)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s: not valid second moments", c->path,
                           entry->name);
    return AVO_OK;
}

/* ---- Writing ---- */

avo_status calibration_writer_open(calibration_writer *writer, const char *path,
                                   calibration_entry *entries, uint32_t count, avo_error *error) {
    *writer = (calibration_writer){.entries = entries, .entry_count = count};
    uint64_t offset = sizeof(calibration_header) + (uint64_t)count * sizeof(calibration_entry);
    for (uint32_t i = 0; i < count; i++) {
        offset = (offset + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
        entries[i].offset = offset;
        offset += calibration_bytes(entries[i].k);
    }
    AVO_TRY(file_writer_open(&writer->file, path, error));
    calibration_header header = {0};
    avo_status status = file_writer_append(&writer->file, &header, sizeof(header), error);
    AVO_THEN(status, file_writer_append(&writer->file, entries, count * sizeof(*entries), error));
    if (status != AVO_OK)
        file_writer_abort(&writer->file);
    return status;
}

avo_status calibration_writer_add(calibration_writer *writer, const float *sums, uint64_t samples,
                                  avo_error *error) {
    calibration_entry *entry = &writer->entries[writer->written++];
    size_t k = entry->k;
    float scale = samples > 0 ? 1.0f / (float)samples : 0.0f;
    hash_stream stream;
    hash_stream_begin(&stream);
    AVO_TRY(file_writer_align(&writer->file, DATA_ALIGNMENT, error));
    float piece[1024];
    for (size_t row = 0; row < k; row++)
        for (size_t begin = 0; begin <= row; begin += 1024) {
            size_t count = row + 1 - begin < 1024 ? row + 1 - begin : 1024;
            for (size_t i = 0; i < count; i++)
                piece[i] = sums[row * k + begin + i] * scale;
            hash_stream_add(&stream, piece, count * sizeof(float));
            AVO_TRY(file_writer_append(&writer->file, piece, count * sizeof(float), error));
        }
    entry->samples = samples;
    entry->sum = hash_stream_sum(&stream);
    return AVO_OK;
}

avo_status calibration_writer_commit(calibration_writer *writer, uint64_t tokens,
                                     avo_error *error) {
    size_t index_bytes = writer->entry_count * sizeof(calibration_entry);
    calibration_header header = {.version = CALIBRATION_VERSION,
                                 .entry_count = writer->entry_count,
                                 .file_bytes = writer->file.written,
                                 .tokens = tokens,
                                 .index_sum = hash_bytes(writer->entries, index_bytes)};
    memcpy(header.magic, CALIBRATION_MAGIC, sizeof(header.magic));
    header.sum = hash_bytes(&header, sizeof(header));
    avo_status status = file_writer_patch(&writer->file, 0, &header, sizeof(header), error);
    if (status == AVO_OK)
        status =
            file_writer_patch(&writer->file, sizeof(header), writer->entries, index_bytes, error);
    if (status == AVO_OK)
        return file_writer_commit(&writer->file, error);
    file_writer_abort(&writer->file);
    return status;
}

void calibration_writer_abort(calibration_writer *writer) {
    file_writer_abort(&writer->file);
}
