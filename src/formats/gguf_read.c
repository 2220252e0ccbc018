/* GGUF, versions 2 and 3: header, metadata, tensor infos, data; in one file or split.
 *
 *   "GGUF", u32 version, u64 tensor count, u64 metadata count, metadata (gguf_metadata.c),
 *   tensor infos: string name, u32 rank, u64 dimension[rank] (innermost first), u32 type,
 *                 u64 offset from the begin of the data,
 *   zeros up to a multiple of general.alignment (32), data.
 *
 * Split files carry split.no, split.count and split.tensors.count and are called
 * NAME-00001-of-0000N.gguf; the first has the metadata.
 */
#include "base/checked.h"
#include "formats/formats_int.h"

#include <stdio.h>

#define GGUF_ALIGNMENT     32
#define GGUF_ALIGNMENT_MAX (1 << 20)
#define GGUF_INFO_MIN      32 /* bytes of the shortest tensor info: an empty name of rank 1 */

/* The numbers of GGML's types that we do not decode, for messages. */
static const char *unsupported_type_name(uint32_t number) {
    static const struct {
        uint32_t number;
        const char *name;
    } names[] = {
        {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
        {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {29, "IQ1_M"},  {34, "TQ1_0"},
        {35, "TQ2_0"}, {40, "NVFP4"}, {41, "Q1_0"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].number == number)
            return names[i].name;
    return "unknown";
}

/* Block types have 64 + GGML's number (quant.h); the plain ones are listed. */
static const quant_info *type_from_ggml(uint32_t number) {
    switch (number) {
    case 0:
        return quant_info_of(QUANT_F32);
    case 1:
        return quant_info_of(QUANT_F16);
    case 24:
        return quant_info_of(QUANT_I8);
    case 25:
        return quant_info_of(QUANT_I16);
    case 26:
        return quant_info_of(QUANT_I32);
    case 27:
        return quant_info_of(QUANT_I64);
    case 28:
        return quant_info_of(QUANT_F64);
    case 30:
        return quant_info_of(QUANT_BF16);
    default:
        return number < 64 ? quant_info_of(number + 64) : NULL;
    }
}

typedef struct gguf_file {
    uint32_t index; /* in source->files */
    const char *path;
    cursor at;
    uint64_t tensors;
    uint64_t values;
    gguf_metadata *metadata;
    uint64_t alignment;
} gguf_file;

static avo_status read_header(gguf_file *file, avo_error *error) {
    uint32_t magic, version;
    if (!cursor_read_u32(&file->at, &magic) || !cursor_read_u32(&file->at, &version))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the GGUF header is truncated (%zu bytes)",
                           file->path, file->at.size);
    if (magic != 0x46554747)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: not a GGUF file", file->path);
    if (version > 0 && (version & 0xFFFF) == 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: the GGUF file is big-endian; convert it to little-endian",
                           file->path);
    if (version < 2 || version > 3)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: GGUF version is %u, must be 2 or 3",
                           file->path, version);
    if (!cursor_read_u64(&file->at, &file->tensors) || !cursor_read_u64(&file->at, &file->values))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the GGUF header is truncated (%zu bytes)",
                           file->path, file->at.size);
    if (file->tensors > cursor_left(&file->at) / GGUF_INFO_MIN)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %llu tensors cannot fit in the file's %zu bytes", file->path,
                           (unsigned long long)file->tensors, file->at.size);
    file->metadata->version = version;
    return AVO_OK;
}

static avo_status read_alignment(gguf_file *file, avo_error *error) {
    file->alignment = GGUF_ALIGNMENT;
    const gguf_value *value = gguf_find(file->metadata, "general.alignment");
    int64_t number;
    if (value == NULL)
        return AVO_OK;
    if (value->type != GGUF_U32 || !gguf_integer(value, 0, &number))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: general.alignment has type %s, must be u32", file->path,
                           gguf_type_name(value->type));
    if (number < 1 || number > GGUF_ALIGNMENT_MAX || (number & (number - 1)) != 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: general.alignment is %lld, must be a power of two up to %d",
                           file->path, (long long)number, GGUF_ALIGNMENT_MAX);
    file->alignment = (uint64_t)number;
    return AVO_OK;
}

static avo_status read_name(gguf_file *file, uint64_t number, text_view *name, avo_error *error) {
    uint64_t bytes;
    const uint8_t *data;
    if (!cursor_read_u64(&file->at, &bytes) || bytes > cursor_left(&file->at))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: name of tensor %llu passes the end of the file", file->path,
                           (unsigned long long)number);
    if (bytes == 0 || bytes > SOURCE_NAME_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: name of tensor %llu has %llu bytes, must have 1 to %d", file->path,
                           (unsigned long long)number, (unsigned long long)bytes, SOURCE_NAME_MAX);
    if (!cursor_take(&file->at, (size_t)bytes, &data))
        return AVO_ERROR_FORMAT; /* cannot be: checked above */
    *name = (text_view){(const char *)data, (size_t)bytes};
    return AVO_OK;
}

static avo_status read_shape(gguf_file *file, source_tensor *tensor, avo_error *error) {
    if (!cursor_read_u32(&file->at, &tensor->rank))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor \"%.*s\" is truncated", file->path,
                           TEXT_ARGUMENT(tensor->name));
    if (tensor->rank < 1 || tensor->rank > SOURCE_RANK_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor \"%.*s\" has %u dimensions, must have 1 to %d", file->path,
                           TEXT_ARGUMENT(tensor->name), tensor->rank, SOURCE_RANK_MAX);
    for (uint32_t i = 0; i < SOURCE_RANK_MAX; i++)
        tensor->shape[i] = 1;
    uint64_t elements = 1;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (!cursor_read_u64(&file->at, &tensor->shape[i]))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor \"%.*s\" is truncated",
                               file->path, TEXT_ARGUMENT(tensor->name));
        if (tensor->shape[i] == 0 || !u64_multiply(elements, tensor->shape[i], &elements) ||
            elements > INT64_MAX)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: tensor \"%.*s\": dimension %u is %llu, which is 0 or makes the "
                               "tensor too large",
                               file->path, TEXT_ARGUMENT(tensor->name), tensor->rank - 1 - i,
                               (unsigned long long)tensor->shape[i]);
    }
    return AVO_OK;
}

/* Type and size; the offset goes into `offset` until the begin of the data is known. */
static avo_status read_info(gguf_file *file, uint64_t number, source_tensor *tensor,
                            uint64_t *offset, avo_error *error) {
    AVO_TRY(read_name(file, number, &tensor->name, error));
    AVO_TRY(read_shape(file, tensor, error));
    uint32_t type;
    if (!cursor_read_u32(&file->at, &type) || !cursor_read_u64(&file->at, offset))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor \"%.*s\" is truncated", file->path,
                           TEXT_ARGUMENT(tensor->name));
    const quant_info *info = type_from_ggml(type);
    if (info == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.*s\" has type %u (%s), which is not supported",
                           file->path, TEXT_ARGUMENT(tensor->name), type,
                           unsupported_type_name(type));
    uint64_t row = tensor->shape[tensor->rank - 1];
    if (row % info->block_elements != 0 ||
        !quant_run_bytes(info->type, source_tensor_elements(tensor), &tensor->bytes))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: tensor \"%.*s\": row length %llu must be a multiple of the %s block (%u)",
            file->path, TEXT_ARGUMENT(tensor->name), (unsigned long long)row, info->name,
            info->block_elements);
    tensor->type = info->type;
    tensor->layout = QUANT_LAYOUT_ROWS;
    tensor->file = file->index;
    return AVO_OK;
}

static avo_status place_tensor(const gguf_file *file, source_tensor *tensor, uint64_t offset,
                               uint64_t data_begin, avo_error *error) {
    uint64_t begin, end;
    if (offset % file->alignment != 0)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: tensor \"%.*s\": offset %llu must be a multiple of the alignment (%llu)",
            file->path, TEXT_ARGUMENT(tensor->name), (unsigned long long)offset,
            (unsigned long long)file->alignment);
    if (!u64_add(data_begin, offset, &begin) || !u64_add(begin, tensor->bytes, &end) ||
        end > file->at.size)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor \"%.*s\" (%llu bytes at offset %llu) passes the end of the "
                           "file (%zu bytes); the download may be incomplete",
                           file->path, TEXT_ARGUMENT(tensor->name),
                           (unsigned long long)tensor->bytes, (unsigned long long)offset,
                           file->at.size);
    tensor->data = file->at.data + begin;
    return AVO_OK;
}

static avo_status read_tensors(model_source *source, gguf_file *file, avo_error *error) {
    uint32_t first = source->tensor_count;
    AVO_TRY(source_tensors_reserve(source, first + file->tensors, error));
    size_t count = (size_t)file->tensors;
    const avo_allocator *allocator = source->arena.allocator;
    uint64_t *offsets = allocator_take_array(allocator, count + 1, sizeof(*offsets));
    if (offsets == NULL)
        return status_no_memory(error, "tensor offsets", count * sizeof(*offsets));
    avo_status status = AVO_OK;
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        status = read_info(file, i, &source->tensors[first + i], &offsets[i], error);
    size_t data_begin = 0;
    if (status == AVO_OK && !size_round_up(file->at.at, (size_t)file->alignment, &data_begin))
        status = AVO_ERROR_FORMAT; /* cannot be: the position is within the file */
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        status = place_tensor(file, &source->tensors[first + i], offsets[i], data_begin, error);
    allocator_give(allocator, offsets, (count + 1) * sizeof(*offsets));
    AVO_TRY(status);
    source->tensor_count += (uint32_t)count;
    bytes_view all = {file->at.data, file->at.size};
    return source_tensors_cover(source, first, all, false, file->path, error);
}

static avo_status read_file(model_source *source, gguf_file *file, arena *arena, avo_error *error) {
    file->path = source->files[file->index].path;
    file->at = cursor_over(source_file_bytes(source, file->index));
    AVO_TRY(read_header(file, error));
    AVO_TRY(gguf_metadata_read(arena, &file->at, file->values, file->path, file->metadata, error));
    AVO_TRY(read_alignment(file, error));
    return read_tensors(source, file, error);
}

/* ---- Split files ---- */

static avo_status split_number(const gguf_metadata *metadata, const char *path, const char *key,
                               int64_t maximum, int64_t *number, avo_error *error) {
    const gguf_value *value = gguf_find(metadata, key);
    if (value == NULL)
        return AVO_OK;
    int64_t found;
    if (!gguf_integer(value, 0, &found) || found < 0 || found > maximum)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s must be an integer from 0 to %lld",
                           path, key, (long long)maximum);
    *number = found;
    return AVO_OK;
}

/* "…-00001-of-00003.gguf" with another number in it. */
static avo_status split_path(const char *first, int64_t number, int64_t count, char *path,
                             size_t capacity, avo_error *error) {
    char suffix[64];
    snprintf(suffix, sizeof(suffix), "-00001-of-%05lld.gguf", (long long)count);
    text_view text = text_from(first);
    if (!text_ends(text, text_from(suffix)))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the first of %lld split files must be named NAME%s", first,
                           (long long)count, suffix);
    int length =
        snprintf(path, capacity, "%.*s-%05lld-of-%05lld.gguf", (int)(text.size - strlen(suffix)),
                 first, (long long)number + 1, (long long)count);
    if (length < 0 || (size_t)length >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the path is too long", first);
    return AVO_OK;
}

static avo_status read_part(source_loader *loader, int64_t number, int64_t count,
                            avo_error *error) {
    model_source *source = loader->source;
    char path[4096];
    AVO_TRY(split_path(source->path, number, count, path, sizeof(path), error));
    gguf_metadata metadata = {0};
    gguf_file file = {.metadata = &metadata};
    AVO_TRY(source_file_open(loader, path, &file.index, error));
    arena temporary;
    arena_init(&temporary, source->arena.allocator, SIZE_MAX);
    avo_status status = read_file(source, &file, &temporary, error);
    int64_t no = -1, of = -1;
    AVO_THEN(status, split_number(&metadata, path, "split.no", SOURCE_FILES_MAX, &no, error));
    AVO_THEN(status, split_number(&metadata, path, "split.count", SOURCE_FILES_MAX, &of, error));
    if (status == AVO_OK && (no != number || of != count))
        status = status_fail(error, AVO_ERROR_FORMAT,
                             "%s: split.no is %lld of %lld, must be %lld of %lld", path,
                             (long long)no, (long long)of, (long long)number, (long long)count);
    arena_free(&temporary);
    return status;
}

static avo_status read_parts(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    const gguf_metadata *metadata = source->gguf;
    int64_t number = 0, count = 1, tensors = -1;
    AVO_TRY(split_number(metadata, source->path, "split.no", SOURCE_FILES_MAX, &number, error));
    AVO_TRY(split_number(metadata, source->path, "split.count", SOURCE_FILES_MAX, &count, error));
    AVO_TRY(split_number(metadata, source->path, "split.tensors.count", SOURCE_TENSORS_MAX,
                         &tensors, error));
    if (number != 0)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%s: this is part %lld of %lld; give the first part (-00001-of-%05lld.gguf)",
            source->path, (long long)number + 1, (long long)count, (long long)count);
    for (int64_t part = 1; part < count; part++)
        AVO_TRY(read_part(loader, part, count, error));
    if (tensors >= 0 && tensors != source->tensor_count)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: split.tensors.count is %lld, but the parts have %u tensors",
                           source->path, (long long)tensors, source->tensor_count);
    return AVO_OK;
}

avo_status gguf_source_open(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    source->format = SOURCE_GGUF;
    source->naming = SOURCE_NAMES_GGUF;
    void *metadata;
    AVO_TRY(source_take(source, 1, sizeof(gguf_metadata), "metadata", &metadata, error));
    source->gguf = metadata;
    gguf_file file = {.index = 0, .metadata = metadata};
    AVO_TRY(read_file(source, &file, &source->arena, error));
    if (loader->tensors_only)
        return source_tensors_index(source, error);
    AVO_TRY(read_parts(loader, error));
    AVO_TRY(source_tensors_index(source, error));
    return config_from_gguf(source, error);
}
