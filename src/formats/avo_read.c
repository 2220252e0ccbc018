/* The .avo reader. Nothing is believed: sums first, because they say "damaged" best, then every
 * field against the file and the limits, because whoever makes a hostile file makes its sums too.
 */
#include "formats/avo_int.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "formats/formats_int.h"

static const char *const section_names[AVO_SECTION_COUNT] = {
    "manifest", "names", "config", "tokenizer", "template", "generation", "notes"};

/* Read and summed at opening; the others when asked for. */
static bool section_is_small(avo_section_kind kind) {
    return kind != AVO_TOKENIZER && kind != AVO_TEMPLATE;
}

static bytes_view section_bytes(const model_source *source, const avo_header *header,
                                avo_section_kind kind) {
    const uint8_t *data = source->files[0].map.bytes.data;
    return (bytes_view){data + header->section[kind].offset, (size_t)header->section[kind].bytes};
}

avo_header avo_source_header(const model_source *source) {
    avo_header header;
    memcpy(&header, source->files[0].map.bytes.data, sizeof(header));
    return header;
}

/* ---- Header ---- */

static avo_status read_header(const model_source *source, avo_header *header, avo_error *error) {
    bytes_view file = source->files[0].map.bytes;
    if (file.size < sizeof(*header))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: the file has %zu bytes, less than an .avo header (%zu); it is truncated",
            source->path, file.size, sizeof(*header));
    memcpy(header, file.data, sizeof(*header));
    if (memcmp(header->magic, AVO_MAGIC, sizeof(header->magic)) != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: not an .avo file: wrong magic bytes",
                           source->path);
    if (header->version != AVO_VERSION)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: .avo version is %u, this avocet reads version %u; pack the model "
                           "again or use a matching avocet",
                           source->path, header->version, AVO_VERSION);
    avo_header summed = *header;
    summed.sum = 0;
    if (hash_bytes(&summed, sizeof(summed)) != header->sum)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: header checksum mismatch: the file is damaged, copy or pack it again",
            source->path);
    if (header->header_bytes != sizeof(*header) || header->reserved != 0)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: header size is %u (must be 256) or its reserved field is %llx (must be 0)",
            source->path, header->header_bytes, (unsigned long long)header->reserved);
    if (header->file_bytes != file.size)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: the file has %zu bytes but its header says %llu: truncated or appended to",
            source->path, file.size, (unsigned long long)header->file_bytes);
    if (header->tensor_count == 0 || header->tensor_count > SOURCE_TENSORS_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor count is %u, must be 1 to %d",
                           source->path, header->tensor_count, SOURCE_TENSORS_MAX);
    if (header->data_offset % AVO_DATA_ALIGNMENT != 0 || header->data_offset > file.size)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: tensor data begins at %llu, must be inside the file and a multiple of %u",
            source->path, (unsigned long long)header->data_offset, AVO_DATA_ALIGNMENT);
    return AVO_OK;
}

static avo_status check_sections(const model_source *source, const avo_header *header,
                                 avo_error *error) {
    const uint64_t most[AVO_SECTION_COUNT] = {
        (uint64_t)header->tensor_count * sizeof(avo_tensor_entry),
        (uint64_t)header->tensor_count * SOURCE_NAME_MAX,
        (uint64_t)1 << 16,
        AVO_TOKENIZER_MAX,
        SOURCE_TEMPLATE_MAX,
        sizeof(avo_generation_record),
        AVO_NOTE_BYTES_MAX,
    };
    uint64_t at = sizeof(*header);
    for (int i = 0; i < AVO_SECTION_COUNT; i++) {
        const avo_section *section = &header->section[i];
        uint64_t end;
        if (section->offset % 8 != 0 || section->offset < at || section->bytes > most[i] ||
            !u64_add(section->offset, section->bytes, &end) || end > header->data_offset)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: %s section (%llu bytes at offset %llu) overlaps another "
                               "section, passes the tensor data or exceeds %llu bytes",
                               source->path, section_names[i], (unsigned long long)section->bytes,
                               (unsigned long long)section->offset, (unsigned long long)most[i]);
        at = end;
    }
    if (header->section[AVO_MANIFEST].bytes != most[AVO_MANIFEST])
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: manifest has %llu bytes, which does not match %u tensors",
                           source->path, (unsigned long long)header->section[AVO_MANIFEST].bytes,
                           header->tensor_count);
    for (avo_section_kind i = 0; i < AVO_SECTION_COUNT; i++) {
        bytes_view bytes = section_bytes(source, header, i);
        if (section_is_small(i) && hash_bytes(bytes.data, bytes.size) != header->section[i].sum)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: checksum mismatch in the %s section: the file is damaged, copy "
                               "or pack it again",
                               source->path, section_names[i]);
    }
    return AVO_OK;
}

/* The numbers that stand in both. */
static avo_status check_numbers(const model_source *source, const avo_header *header,
                                avo_error *error) {
    const model_config *config = &source->config;
    const struct {
        const char *name;
        uint32_t in_header, in_config;
    } numbers[] = {
        {"architecture", header->architecture, config->architecture},
        {"layers", header->layers, config->layers},
        {"width", header->width, config->width},
        {"feed_forward", header->feed_forward, config->feed_forward},
        {"heads", header->heads, config->heads},
        {"kv_heads", header->kv_heads, config->kv_heads},
        {"head_size", header->head_size, config->head_size},
        {"vocabulary", header->vocabulary, config->vocabulary},
        {"context", header->context, config->context},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].in_header != numbers[i].in_config)
            return status_fail(
                error, AVO_ERROR_FORMAT, "%s: %s is %u in the header but %u in the configuration",
                source->path, numbers[i].name, numbers[i].in_header, numbers[i].in_config);
    return AVO_OK;
}

/* ---- Tensors ---- */

bool avo_tensor_bytes(quant_type type, quant_layout layout, uint32_t rank, const uint64_t *shape,
                      uint64_t *bytes) {
    if (layout != QUANT_LAYOUT_ROWS && layout != QUANT_LAYOUT_PANELS)
        return false;
    if (shape[0] == 0 || shape[0] > UINT32_MAX || shape[1] == 0 || shape[1] > UINT32_MAX)
        return false;
    if (rank == 1)
        return layout == QUANT_LAYOUT_ROWS && shape[1] == 1 &&
               weight_bytes(type, layout, 1, shape[0], bytes);
    return rank == 2 && weight_bytes(type, layout, shape[0], shape[1], bytes);
}

/* Names of tensors are letters, digits and "._-". */
static bool name_is_good(text_view name) {
    if (name.size == 0 || name.size >= SOURCE_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}

static avo_status read_name(const model_source *source, const avo_header *header,
                            const avo_tensor_entry *entry, uint32_t index, text_view *name,
                            avo_error *error) {
    bytes_view names = section_bytes(source, header, AVO_NAMES);
    if (entry->name_offset > names.size || entry->name_bytes > names.size - entry->name_offset)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: name of tensor %u (%u bytes at offset %u) passes the end of the "
                           "name section (%zu bytes)",
                           source->path, index, entry->name_bytes, entry->name_offset, names.size);
    *name = (text_view){(const char *)names.data + entry->name_offset, entry->name_bytes};
    if (!name_is_good(*name))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: name of tensor %u is empty, too long or not printable text",
                           source->path, index);
    return AVO_OK;
}

static avo_status read_tensor(model_source *source, const avo_header *header, uint32_t index,
                              uint64_t *at, avo_error *error) {
    avo_tensor_entry entry;
    memcpy(&entry, section_bytes(source, header, AVO_MANIFEST).data + index * sizeof(entry),
           sizeof(entry));
    text_view name;
    AVO_TRY(read_name(source, header, &entry, index, &name, error));
    if (quant_info_of(entry.type) == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s: unknown type %u; use a newer avocet", source->path,
                           TEXT_ARGUMENT(name), entry.type);
    uint64_t bytes, end;
    if (entry.reserved != 0 || !avo_tensor_bytes((quant_type)entry.type, (quant_layout)entry.layout,
                                                 entry.rank, entry.shape, &bytes))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: tensor %.*s: type %s, layout %u, rank %u and shape [%llu, %llu] do not match",
            source->path, TEXT_ARGUMENT(name), quant_name(entry.type), entry.layout, entry.rank,
            (unsigned long long)entry.shape[0], (unsigned long long)entry.shape[1]);
    if (bytes != entry.bytes)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s has %llu bytes, its shape needs %llu", source->path,
                           TEXT_ARGUMENT(name), (unsigned long long)entry.bytes,
                           (unsigned long long)bytes);
    if (entry.offset % AVO_TENSOR_ALIGNMENT != 0 || entry.offset < *at ||
        !u64_add(entry.offset, bytes, &end) || end > header->file_bytes)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s (%llu bytes at offset %llu) is misaligned, overlaps "
                           "the previous tensor or passes the end of the file",
                           source->path, TEXT_ARGUMENT(name), (unsigned long long)bytes,
                           (unsigned long long)entry.offset);
    *at = end;
    source->tensors[source->tensor_count++] = (source_tensor){
        .name = name,
        .type = (quant_type)entry.type,
        .layout = (quant_layout)entry.layout,
        .rank = entry.rank,
        .shape = {entry.shape[0], entry.shape[1], 1, 1},
        .data = source->files[0].map.bytes.data + entry.offset,
        .bytes = bytes,
        .file = 0,
    };
    return AVO_OK;
}

static avo_status read_tensors(model_source *source, const avo_header *header, avo_error *error) {
    AVO_TRY(source_tensors_reserve(source, header->tensor_count, error));
    uint64_t at = header->data_offset;
    for (uint32_t i = 0; i < header->tensor_count; i++)
        AVO_TRY(read_tensor(source, header, i, &at, error));
    if (header->file_bytes != at)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %llu unexpected bytes after the last tensor", source->path,
                           (unsigned long long)(header->file_bytes - at));
    return source_tensors_index(source, error);
}

/* ---- The source ---- */

static avo_status read_template(model_source *source, const avo_header *header, avo_error *error) {
    bytes_view text = section_bytes(source, header, AVO_TEMPLATE);
    source->chat_template = (text_view){(const char *)text.data, text.size};
    if (utf8_valid_prefix((const char *)text.data, text.size) != text.size)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the chat template is not valid UTF-8",
                           source->path);
    return AVO_OK;
}

avo_status avo_source_open(model_source *source, avo_error *error) {
    avo_header header;
    source->format = SOURCE_AVO;
    source->naming = SOURCE_NAMES_GGUF;
    AVO_TRY(read_header(source, &header, error));
    AVO_TRY(check_sections(source, &header, error));
    AVO_TRY(avo_config_read(source, section_bytes(source, &header, AVO_CONFIG), error));
    AVO_TRY(check_numbers(source, &header, error));
    AVO_TRY(avo_generation_read(source, section_bytes(source, &header, AVO_GENERATION), error));
    AVO_TRY(avo_notes_read(source, section_bytes(source, &header, AVO_NOTES), error));
    AVO_TRY(read_template(source, &header, error));
    bytes_view image = section_bytes(source, &header, AVO_TOKENIZER);
    source->tokenizer = (tokenizer_source){
        .kind = image.size > 0 ? TOKENIZER_SOURCE_IMAGE : TOKENIZER_SOURCE_NONE,
        .data = image,
        .vocabulary = source->config.vocabulary,
        .name = source->path,
    };
    return read_tensors(source, &header, error);
}

uint32_t avo_source_note_count(const model_source *source) {
    avo_header header = avo_source_header(source);
    cursor at = cursor_over(section_bytes(source, &header, AVO_NOTES));
    uint32_t count = 0;
    return cursor_read_u32(&at, &count) ? count : 0;
}

avo_note avo_source_note(const model_source *source, uint32_t index) {
    avo_header header = avo_source_header(source);
    return avo_notes_at(section_bytes(source, &header, AVO_NOTES), index);
}

/* Lower-case digits, as avocet pack writes them. */
static bool read_digest(text_view text, uint64_t *digest) {
    *digest = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        bool letter = c >= 'a' && c <= 'f';
        if (!letter && !(c >= '0' && c <= '9'))
            return false;
        *digest = *digest << 4 | (uint64_t)(letter ? c - 'a' + 10 : c - '0');
    }
    return text.size == AVO_ORIGIN_BYTES;
}

uint64_t avo_source_origin(const model_source *source) {
    uint64_t digest;
    for (uint32_t i = 0; i < avo_source_note_count(source); i++) {
        avo_note note = avo_source_note(source, i);
        if (text_is(note.key, AVO_ORIGIN_KEY) && read_digest(note.value, &digest))
            return digest;
    }
    return 0;
}

/* ---- Sums on request ---- */

#define VERIFY_PIECE ((size_t)4 << 20)

avo_status avo_source_verify(const model_source *source, avo_progress_function progress,
                             void *context, avo_error *error) {
    avo_header header = avo_source_header(source);
    for (avo_section_kind i = 0; i < AVO_SECTION_COUNT; i++) {
        bytes_view bytes = section_bytes(source, &header, i);
        if (hash_bytes(bytes.data, bytes.size) != header.section[i].sum)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: checksum mismatch in the %s section: the file is damaged, copy "
                               "or pack it again",
                               source->path, section_names[i]);
    }
    bytes_view manifest = section_bytes(source, &header, AVO_MANIFEST);
    uint64_t total = header.file_bytes - header.data_offset, done = 0;
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        avo_tensor_entry entry;
        memcpy(&entry, manifest.data + i * sizeof(entry), sizeof(entry));
        hash_stream sum;
        hash_stream_begin(&sum);
        for (uint64_t at = 0; at < tensor->bytes; at += VERIFY_PIECE) {
            size_t bytes = size_min((size_t)(tensor->bytes - at), VERIFY_PIECE);
            hash_stream_add(&sum, tensor->data + at, bytes);
            if (!source->files[0].borrowed)
                file_map_forget(tensor->data + at, bytes);
            done += bytes;
            if (progress != NULL && !progress(context, "verifying", done, total))
                return status_fail(error, AVO_ERROR_CANCELLED, "%s: verification was cancelled",
                                   source->path);
        }
        if (hash_stream_sum(&sum) != entry.sum)
            return status_fail(
                error, AVO_ERROR_FORMAT,
                "%s: checksum mismatch in tensor %.*s: the file is damaged, copy or pack it again",
                source->path, TEXT_ARGUMENT(tensor->name));
    }
    return AVO_OK;
}
