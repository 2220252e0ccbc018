/* The .avo writer: lays everything out first (all sizes are known), writes front to back, and goes
 * back only for the sums. */
#include "formats/avo_int.h"

#include "base/checked.h"
#include "base/hash.h"
#include "formats/formats_int.h"

#define SECTIONS_BYTES_MAX ((size_t)AVO_TOKENIZER_MAX + ((size_t)64 << 20))

struct avo_writer {
    const avo_allocator *allocator;
    avo_content *content;
    avo_header header;
    file_writer file;
    uint32_t tensor;    /* being written; tensor_count: all are done */
    uint64_t tensor_at; /* bytes of it so far */
    hash_stream sum;
};

/* ---- Layout ---- */

static void fill_header(avo_writer *writer) {
    const model_config *config = writer->content->config;
    writer->header = (avo_header){
        .version = AVO_VERSION,
        .header_bytes = sizeof(avo_header),
        .architecture = config->architecture,
        .layers = config->layers,
        .width = config->width,
        .feed_forward = config->feed_forward,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_size = config->head_size,
        .vocabulary = config->vocabulary,
        .context = config->context,
        .tensor_count = writer->content->tensor_count,
    };
    memcpy(writer->header.magic, AVO_MAGIC, sizeof(writer->header.magic));
}

/* Offsets of all tensors from `at` on; the end of the file into *end. */
static avo_status lay_out_tensors(avo_content *content, uint64_t at, uint64_t *end,
                                  avo_error *error) {
    for (uint32_t i = 0; i < content->tensor_count; i++) {
        avo_content_tensor *tensor = &content->tensors[i];
        size_t step = tensor->new_page ? AVO_DATA_ALIGNMENT : AVO_TENSOR_ALIGNMENT;
        size_t offset = 0;
        if (!avo_tensor_bytes(tensor->type, tensor->layout, tensor->rank, tensor->shape,
                              &tensor->bytes) ||
            !size_round_up((size_t)at, step, &offset) || !u64_add(offset, tensor->bytes, &at) ||
            at > INT64_MAX)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "tensor %s: type %s, layout %d and shape [%llu, %llu] do not match",
                               tensor->name, quant_name(tensor->type), (int)tensor->layout,
                               (unsigned long long)tensor->shape[0],
                               (unsigned long long)tensor->shape[1]);
        tensor->offset = offset;
    }
    *end = at;
    return AVO_OK;
}

/* ---- Sections ---- */

static avo_status append_manifest(const avo_content *content, buffer *out) {
    uint32_t name_at = 0;
    for (uint32_t i = 0; i < content->tensor_count; i++) {
        const avo_content_tensor *tensor = &content->tensors[i];
        avo_tensor_entry entry = {
            .name_offset = name_at,
            .name_bytes = (uint32_t)strnlen(tensor->name, sizeof(tensor->name)),
            .type = tensor->type,
            .layout = tensor->layout,
            .rank = tensor->rank,
            .shape = {tensor->shape[0], tensor->shape[1]},
            .offset = tensor->offset,
            .bytes = tensor->bytes,
            .sum = tensor->sum,
        };
        name_at += entry.name_bytes;
        AVO_TRY(buffer_append(out, &entry, sizeof(entry)));
    }
    return AVO_OK;
}

static avo_status append_names(const avo_content *content, buffer *out) {
    for (uint32_t i = 0; i < content->tensor_count; i++)
        AVO_TRY(buffer_append_text(out, content->tensors[i].name));
    return AVO_OK;
}

static avo_status append_section(const avo_content *content, avo_section_kind kind, buffer *out) {
    switch (kind) {
    case AVO_MANIFEST:
        return append_manifest(content, out);
    case AVO_NAMES:
        return append_names(content, out);
    case AVO_CONFIG:
        return avo_config_write(content->config, out);
    case AVO_TOKENIZER:
        return buffer_append(out, content->tokenizer.data, content->tokenizer.size);
    case AVO_TEMPLATE:
        return buffer_append(out, content->chat_template.data, content->chat_template.size);
    case AVO_GENERATION:
        return avo_generation_write(content->generation, out);
    case AVO_NOTES:
        return avo_notes_write(content->notes, content->note_count, out);
    case AVO_SECTION_COUNT:
        break;
    }
    return AVO_OK;
}

/* All sections with their places and sums; `out` begins at the end of the header. */
static avo_status append_sections(avo_writer *writer, buffer *out) {
    static const char zeros[64];
    for (avo_section_kind kind = 0; kind < AVO_SECTION_COUNT; kind++) {
        size_t step = kind == AVO_TOKENIZER ? 64 : 8; /* its tables want cache lines */
        AVO_TRY(buffer_append(out, zeros, (step - out->size % step) % step));
        size_t begin = out->size;
        AVO_TRY(append_section(writer->content, kind, out));
        avo_section *section = &writer->header.section[kind];
        section->offset = sizeof(avo_header) + begin;
        section->bytes = out->size - begin;
        section->sum =
            hash_bytes(section->bytes == 0 ? NULL : out->data + begin, (size_t)section->bytes);
    }
    return AVO_OK;
}

static void sum_header(avo_writer *writer) {
    writer->header.sum = 0;
    writer->header.sum = hash_bytes(&writer->header, sizeof(writer->header));
}

/* Header and sections as bytes; offsets of tensors must be known for the second, final call. */
static avo_status build_front(avo_writer *writer, buffer *sections, avo_error *error) {
    buffer_init(sections, writer->allocator, SECTIONS_BYTES_MAX);
    avo_status status = append_sections(writer, sections);
    if (status != AVO_OK)
        status = status_fail(error, status, "%s: cannot write the sections before the tensors: %s",
                             writer->file.path, avo_status_text(status));
    return status;
}

/* ---- Writing ---- */

static avo_status write_front(avo_writer *writer, avo_error *error) {
    buffer sections;
    uint64_t end = 0;
    size_t data_offset = 0;
    /* Tensor offsets depend on the size of the sections, which does not depend on them. */
    avo_status status = build_front(writer, &sections, error);
    if (status == AVO_OK) {
        (void)size_round_up(sizeof(avo_header) + sections.size, AVO_DATA_ALIGNMENT, &data_offset);
        status = lay_out_tensors(writer->content, data_offset, &end, error);
    }
    writer->header.data_offset = data_offset;
    writer->header.file_bytes = end;
    AVO_THEN(status, file_writer_append(&writer->file, &writer->header, sizeof(avo_header), error));
    AVO_THEN(status, file_writer_append(&writer->file, sections.data, sections.size, error));
    buffer_free(&sections);
    return status;
}

avo_status avo_writer_open(const avo_allocator *allocator, const char *path, avo_content *content,
                           avo_writer **out, avo_error *error) {
    *out = NULL;
    avo_writer *writer = allocator_take_array(allocator, 1, sizeof(*writer));
    if (writer == NULL)
        return status_no_memory(error, "an .avo writer", sizeof(*writer));
    writer->allocator = allocator;
    writer->content = content;
    avo_status status = file_writer_open(&writer->file, path, error);
    if (status != AVO_OK) {
        allocator_give(allocator, writer, sizeof(*writer));
        return status;
    }
    fill_header(writer);
    status = config_check(content->config, path, error);
    AVO_THEN(status,
             generation_check(content->generation, content->config->vocabulary, path, error));
    AVO_THEN(status, write_front(writer, error));
    if (status != AVO_OK) {
        avo_writer_abort(writer);
        return status;
    }
    hash_stream_begin(&writer->sum);
    *out = writer;
    return AVO_OK;
}

uint64_t avo_writer_file_bytes(const avo_writer *writer) {
    return writer->header.file_bytes;
}

avo_status avo_writer_append(avo_writer *writer, const void *data, size_t bytes, avo_error *error) {
    avo_content *content = writer->content;
    if (bytes == 0)
        return AVO_OK;
    if (writer->tensor >= content->tensor_count ||
        bytes > content->tensors[writer->tensor].bytes - writer->tensor_at)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s: too many bytes written for tensor %u",
                           writer->file.path, writer->tensor);
    avo_content_tensor *tensor = &content->tensors[writer->tensor];
    if (writer->tensor_at == 0) {
        size_t step = (size_t)(tensor->new_page || writer->tensor == 0 ? AVO_DATA_ALIGNMENT
                                                                       : AVO_TENSOR_ALIGNMENT);
        AVO_TRY(file_writer_align(&writer->file, step, error));
    }
    AVO_TRY(file_writer_append(&writer->file, data, bytes, error));
    hash_stream_add(&writer->sum, data, bytes);
    writer->tensor_at += bytes;
    if (writer->tensor_at == tensor->bytes) {
        tensor->sum = hash_stream_sum(&writer->sum);
        hash_stream_begin(&writer->sum);
        writer->tensor++;
        writer->tensor_at = 0;
    }
    return AVO_OK;
}

static avo_status finish(avo_writer *writer, avo_error *error) {
    if (writer->tensor != writer->content->tensor_count ||
        writer->file.written != writer->header.file_bytes)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: incomplete: %llu of %llu bytes were written", writer->file.path,
                           (unsigned long long)writer->file.written,
                           (unsigned long long)writer->header.file_bytes);
    buffer manifest;
    buffer_init(&manifest, writer->allocator, SECTIONS_BYTES_MAX);
    avo_section *section = &writer->header.section[AVO_MANIFEST];
    avo_status status = append_manifest(writer->content, &manifest);
    if (status != AVO_OK)
        status = status_fail(error, status, "%s: cannot write the manifest: %s", writer->file.path,
                             avo_status_text(status));
    if (status == AVO_OK) {
        section->sum = hash_bytes(manifest.data, manifest.size);
        status =
            file_writer_patch(&writer->file, section->offset, manifest.data, manifest.size, error);
    }
    buffer_free(&manifest);
    if (status != AVO_OK)
        return status;
    sum_header(writer);
    return file_writer_patch(&writer->file, 0, &writer->header, sizeof(writer->header), error);
}

avo_status avo_writer_commit(avo_writer *writer, avo_error *error) {
    avo_status status = finish(writer, error);
    if (status == AVO_OK)
        status = file_writer_commit(&writer->file, error);
    else
        file_writer_abort(&writer->file);
    allocator_give(writer->allocator, writer, sizeof(*writer));
    return status;
}

void avo_writer_abort(avo_writer *writer) {
    if (writer == NULL)
        return;
    file_writer_abort(&writer->file);
    allocator_give(writer->allocator, writer, sizeof(*writer));
}
