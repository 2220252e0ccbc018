/* The zip reader. Layout (little-endian), read from the end:
 *   end record    "PK\5\6": disk numbers, entries, directory size and offset, comment
 *   Zip64         "PK\6\7" locator before it, "PK\6\6" record with 64-bit numbers
 *   directory     "PK\1\2" per entry: method, sum, sizes, name, offset of the local header
 *   local header  "PK\3\4": again name and extra field, whose lengths may differ, then the data
 * Only the directory is believed; the local header gives nothing but where the data begins. */
#include "hub/zip.h"

#include "base/checked.h"

#include <zlib.h>

#define END_BYTES         22
#define COMMENT_MAX       65535
#define DEFLATE_RATIO_MAX 1032 /* no deflate stream yields more per byte */
#define PIECE_BYTES       ((size_t)64 << 10)

typedef struct directory {
    uint64_t entries;
    uint64_t bytes;
    uint64_t offset;
} directory;

static avo_status zip_bad(avo_error *error, const char *what) {
    return status_fail(error, AVO_ERROR_FORMAT, "damaged zip archive: %s", what);
}

static avo_status find_zip64(bytes_view bytes, size_t end, directory *found, avo_error *error) {
    if (end < 20)
        return zip_bad(error, "the Zip64 locator is missing");
    cursor at = {bytes.data, end, end - 20};
    uint32_t signature, disk;
    uint64_t record, record_bytes, on_disk;
    if (!cursor_read_u32(&at, &signature) || signature != 0x07064b50 ||
        !cursor_read_u32(&at, &disk) || !cursor_read_u64(&at, &record) || record > end)
        return zip_bad(error, "the Zip64 locator is damaged");
    at.at = (size_t)record;
    if (!cursor_read_u32(&at, &signature) || signature != 0x06064b50 ||
        !cursor_read_u64(&at, &record_bytes) || !cursor_skip(&at, 12) ||
        !cursor_read_u64(&at, &on_disk) || !cursor_read_u64(&at, &found->entries) ||
        !cursor_read_u64(&at, &found->bytes) || !cursor_read_u64(&at, &found->offset))
        return zip_bad(error, "the Zip64 end record is damaged");
    return AVO_OK;
}

static avo_status find_directory(bytes_view bytes, directory *found, avo_error *error) {
    if (bytes.size < END_BYTES)
        return zip_bad(error, "the file is too short");
    size_t lowest = bytes.size > END_BYTES + COMMENT_MAX ? bytes.size - END_BYTES - COMMENT_MAX : 0;
    for (size_t end = bytes.size - END_BYTES + 1; end-- > lowest;) {
        cursor at = {bytes.data, bytes.size, end};
        uint32_t signature, directory_bytes, offset;
        uint16_t disk, first_disk, on_disk, entries, comment;
        if (!cursor_read_u32(&at, &signature) || signature != 0x06054b50)
            continue;
        if (!cursor_read_u16(&at, &disk) || !cursor_read_u16(&at, &first_disk) ||
            !cursor_read_u16(&at, &on_disk) || !cursor_read_u16(&at, &entries) ||
            !cursor_read_u32(&at, &directory_bytes) || !cursor_read_u32(&at, &offset) ||
            !cursor_read_u16(&at, &comment) || comment != cursor_left(&at))
            continue; /* these bytes stood in a comment */
        *found = (directory){entries, directory_bytes, offset};
        if (entries == UINT16_MAX || directory_bytes == UINT32_MAX || offset == UINT32_MAX)
            AVO_TRY(find_zip64(bytes, end, found, error));
        uint64_t directory_end;
        if (!u64_add(found->offset, found->bytes, &directory_end) || directory_end > end)
            return zip_bad(error, "the directory is outside the file");
        if (found->entries > HUB_FILES_MAX)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "the zip archive has %llu entries, must have at most %d",
                               (unsigned long long)found->entries, HUB_FILES_MAX);
        return AVO_OK;
    }
    return zip_bad(error, "the end record is missing");
}

/* The 64-bit numbers that stand in the extra field for those that are all ones. */
static bool read_extra(cursor extra, zip_entry *entry) {
    while (cursor_left(&extra) >= 4) {
        uint16_t kind, bytes;
        const uint8_t *data;
        if (!cursor_read_u16(&extra, &kind) || !cursor_read_u16(&extra, &bytes) ||
            !cursor_take(&extra, bytes, &data))
            return false;
        if (kind != 1)
            continue;
        cursor numbers = {data, bytes, 0};
        return (entry->bytes != UINT32_MAX || cursor_read_u64(&numbers, &entry->bytes)) &&
               (entry->packed_bytes != UINT32_MAX ||
                cursor_read_u64(&numbers, &entry->packed_bytes)) &&
               (entry->offset != UINT32_MAX || cursor_read_u64(&numbers, &entry->offset));
    }
    return true;
}

static avo_status check_entry(const zip_entry *entry, uint16_t flags, uint64_t archive_bytes,
                              avo_error *error) {
    if ((flags & 0x2041) != 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "zip entry \"%.*s\" is encrypted",
                           TEXT_ARGUMENT(entry->name));
    if (entry->method != 0 && entry->method != 8)
        return status_fail(
            error, AVO_ERROR_UNSUPPORTED,
            "zip entry \"%.*s\" has compression method %u, must be stored or deflated",
            TEXT_ARGUMENT(entry->name), entry->method);
    uint64_t end;
    if (!u64_add(entry->offset, entry->packed_bytes, &end) || end > archive_bytes)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "zip entry \"%.*s\" is outside the file (offset %llu, %llu bytes)",
                           TEXT_ARGUMENT(entry->name), (unsigned long long)entry->offset,
                           (unsigned long long)entry->packed_bytes);
    bool possible = entry->method == 0 ? entry->bytes == entry->packed_bytes
                                       : entry->bytes / DEFLATE_RATIO_MAX <= entry->packed_bytes;
    if (!possible || entry->bytes > HUB_FILE_BYTES_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "zip entry \"%.*s\" claims %llu bytes from %llu compressed bytes, which "
                           "is not possible",
                           TEXT_ARGUMENT(entry->name), (unsigned long long)entry->bytes,
                           (unsigned long long)entry->packed_bytes);
    return AVO_OK;
}

static avo_status read_entry(cursor *at, uint64_t archive_bytes, zip_entry *entry, bool *is_folder,
                             avo_error *error) {
    uint32_t signature, packed, bytes, external, offset;
    uint16_t flags, name_bytes, extra_bytes, comment_bytes;
    const uint8_t *name, *extra;
    if (!cursor_read_u32(at, &signature) || signature != 0x02014b50 || !cursor_skip(at, 4) ||
        !cursor_read_u16(at, &flags) || !cursor_read_u16(at, &entry->method) ||
        !cursor_skip(at, 4) || !cursor_read_u32(at, &entry->crc) || !cursor_read_u32(at, &packed) ||
        !cursor_read_u32(at, &bytes) || !cursor_read_u16(at, &name_bytes) ||
        !cursor_read_u16(at, &extra_bytes) || !cursor_read_u16(at, &comment_bytes) ||
        !cursor_skip(at, 4) || !cursor_read_u32(at, &external) || !cursor_read_u32(at, &offset) ||
        !cursor_take(at, name_bytes, &name) || !cursor_take(at, extra_bytes, &extra) ||
        !cursor_skip(at, comment_bytes))
        return zip_bad(error, "the directory is truncated or damaged");
    entry->name = (text_view){(const char *)name, name_bytes};
    entry->bytes = bytes;
    entry->packed_bytes = packed;
    entry->offset = offset;
    if (!read_extra((cursor){extra, extra_bytes, 0}, entry))
        return zip_bad(error, "an extra field is damaged");
    *is_folder = name_bytes > 0 && name[name_bytes - 1] == '/';
    text_view checked = {entry->name.data, entry->name.size - *is_folder};
    AVO_TRY(hub_path_check(checked, error));
    if ((external >> 16 & 0170000) == 0120000)
        return status_fail(error, AVO_ERROR_FORMAT, "zip entry \"%.*s\" is a link",
                           TEXT_ARGUMENT(entry->name));
    return *is_folder ? AVO_OK : check_entry(entry, flags, archive_bytes, error);
}

avo_status zip_open(arena *arena, bytes_view bytes, zip_archive *archive, avo_error *error) {
    directory found = {0};
    *archive = (zip_archive){.bytes = bytes};
    AVO_TRY(find_directory(bytes, &found, error));
    if (found.entries == 0)
        return AVO_OK;
    archive->entries = arena_take_array(arena, (size_t)found.entries, sizeof(zip_entry));
    if (archive->entries == NULL)
        return status_no_memory(error, "a zip directory", found.entries * sizeof(zip_entry));
    cursor at = {bytes.data + found.offset, (size_t)found.bytes, 0};
    for (uint64_t i = 0; i < found.entries; i++) {
        zip_entry entry;
        bool is_folder = false;
        AVO_TRY(read_entry(&at, bytes.size, &entry, &is_folder, error));
        if (!is_folder)
            archive->entries[archive->count++] = entry;
    }
    return AVO_OK;
}

static avo_status find_data(const zip_archive *archive, const zip_entry *entry, bytes_view *data,
                            avo_error *error) {
    cursor at = {archive->bytes.data, archive->bytes.size, (size_t)entry->offset};
    uint32_t signature;
    uint16_t name_bytes, extra_bytes;
    if (!cursor_read_u32(&at, &signature) || signature != 0x04034b50 || !cursor_skip(&at, 22) ||
        !cursor_read_u16(&at, &name_bytes) || !cursor_read_u16(&at, &extra_bytes) ||
        !cursor_skip(&at, (size_t)name_bytes + extra_bytes) ||
        !cursor_take(&at, (size_t)entry->packed_bytes, &data->data))
        return status_fail(error, AVO_ERROR_FORMAT, "zip entry \"%.*s\" has a damaged header",
                           TEXT_ARGUMENT(entry->name));
    data->size = (size_t)entry->packed_bytes;
    return AVO_OK;
}

/* Where unpacked bytes pass: counted, summed, handed on. */
typedef struct outlet {
    const zip_entry *entry;
    zip_sink sink;
    void *context;
    uint64_t given;
    uint32_t crc;
} outlet;

static avo_status outlet_give(outlet *outlet, const uint8_t *data, size_t bytes, avo_error *error) {
    if (bytes > outlet->entry->bytes - outlet->given)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "zip entry \"%.*s\" decompresses to more than the %llu bytes it claims",
                           TEXT_ARGUMENT(outlet->entry->name),
                           (unsigned long long)outlet->entry->bytes);
    outlet->given += bytes;
    outlet->crc = (uint32_t)crc32_z(outlet->crc, data, bytes);
    return outlet->sink(outlet->context, data, bytes, error);
}

static avo_status give_stored(outlet *outlet, bytes_view data, avo_error *error) {
    for (size_t at = 0; at < data.size; at += PIECE_BYTES)
        AVO_TRY(outlet_give(outlet, data.data + at, size_min(PIECE_BYTES, data.size - at), error));
    return AVO_OK;
}

static avo_status give_inflated(outlet *outlet, bytes_view data, avo_error *error) {
    uint8_t *piece = allocator_take(NULL, PIECE_BYTES);
    z_stream stream = {0};
    if (piece == NULL || inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
        allocator_give(NULL, piece, PIECE_BYTES);
        return status_no_memory(error, "decompression", PIECE_BYTES);
    }
    avo_status status = AVO_OK;
    size_t taken = 0;
    for (int result = Z_OK; result == Z_OK && status == AVO_OK;) {
        if (stream.avail_in == 0 && taken < data.size) {
            size_t bytes = size_min(data.size - taken, (size_t)1 << 20);
            stream.next_in = (Bytef *)(uintptr_t)(data.data + taken);
            stream.avail_in = (uInt)bytes;
            taken += bytes;
        }
        stream.next_out = piece;
        stream.avail_out = (uInt)PIECE_BYTES;
        result = inflate(&stream, Z_NO_FLUSH);
        size_t bytes = PIECE_BYTES - stream.avail_out;
        if (result != Z_OK && result != Z_STREAM_END)
            status = status_fail(error, AVO_ERROR_FORMAT,
                                 "zip entry \"%.*s\": the compressed data is damaged or truncated",
                                 TEXT_ARGUMENT(outlet->entry->name));
        else if (bytes > 0)
            status = outlet_give(outlet, piece, bytes, error);
    }
    inflateEnd(&stream);
    allocator_give(NULL, piece, PIECE_BYTES);
    return status;
}

avo_status zip_extract(const zip_archive *archive, const zip_entry *entry, zip_sink sink,
                       void *context, avo_error *error) {
    bytes_view data = {NULL, 0};
    outlet outlet = {.entry = entry, .sink = sink, .context = context};
    AVO_TRY(find_data(archive, entry, &data, error));
    AVO_TRY(entry->method == 0 ? give_stored(&outlet, data, error)
                               : give_inflated(&outlet, data, error));
    if (outlet.given != entry->bytes || outlet.crc != entry->crc)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "zip entry \"%.*s\": got %llu bytes with CRC %08x, expected %llu with %08x",
            TEXT_ARGUMENT(entry->name), (unsigned long long)outlet.given, outlet.crc,
            (unsigned long long)entry->bytes, entry->crc);
    return AVO_OK;
}
