/* The safetensors writer; safetensors.c describes the format. */
#include "formats/safetensors.h"

#include "base/checked.h"
#include "base/json_writer.h"
#include "base/utf8.h"

#define HEADER_ALIGNMENT 8 /* of the data in the file, as the reference library writes it */

struct safetensors_writer {
    const avo_allocator *allocator;
    file_writer file;
    uint64_t file_bytes;
};

/* What opening needs and nothing later. */
typedef struct header_writer {
    const safetensors_content *content;
    const char *path;
    arena arena;         /* of the indexes of names */
    buffer text;         /* the JSON */
    json_writer json;    /* into `text` */
    uint64_t data_bytes; /* of the tensors so far */
    avo_error *error;
} header_writer;

static bool is_utf8(text_view text) {
    return utf8_valid_prefix(text.data, text.size) == text.size;
}

static avo_status bad_tensor(const header_writer *header, const safetensors_tensor *tensor,
                             const char *what) {
    return status_fail(header->error, AVO_ERROR_ARGUMENT, "%s: tensor \"%.*s\": %s", header->path,
                       TEXT_ARGUMENT(tensor->name), what);
}

static avo_status check_tensor(const header_writer *header, const safetensors_tensor *tensor) {
    if (tensor->name.size == 0 || tensor->name.size > SOURCE_NAME_MAX)
        return status_fail(header->error, AVO_ERROR_ARGUMENT,
                           "%s: tensor \"%.*s\": the name has %zu bytes, must have 1 to %d",
                           header->path, TEXT_ARGUMENT(tensor->name), tensor->name.size,
                           SOURCE_NAME_MAX);
    if (!is_utf8(tensor->name))
        return bad_tensor(header, tensor, "the name is not valid UTF-8");
    if (text_is(tensor->name, "__metadata__"))
        return bad_tensor(header, tensor, "the format reserves this name; choose another one");
    if (safetensors_dtype(tensor->type) == NULL)
        return status_fail(header->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.*s\": safetensors has no dtype for %s", header->path,
                           TEXT_ARGUMENT(tensor->name), quant_name(tensor->type));
    if (tensor->rank > SOURCE_RANK_MAX)
        return status_fail(header->error, AVO_ERROR_ARGUMENT,
                           "%s: tensor \"%.*s\" has %u dimensions, at most %d", header->path,
                           TEXT_ARGUMENT(tensor->name), tensor->rank, SOURCE_RANK_MAX);
    return AVO_OK;
}

/* Where the tensor's data begins and ends. */
static avo_status place_tensor(header_writer *header, const safetensors_tensor *tensor,
                               uint64_t *begin) {
    uint64_t elements = 1, element_bytes, bytes;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank; i++)
        fits = fits && tensor->shape[i] <= INT64_MAX &&
               u64_multiply(elements, tensor->shape[i], &elements) && elements <= INT64_MAX;
    *begin = header->data_bytes;
    if (!fits || !quant_run_bytes(tensor->type, elements, &bytes) ||
        !u64_add(*begin, bytes, &header->data_bytes) || header->data_bytes > INT64_MAX)
        return bad_tensor(header, tensor, "the shape is larger than any file");
    if (quant_run_bytes(tensor->type, 1, &element_bytes) && *begin % element_bytes != 0)
        return status_fail(header->error, AVO_ERROR_ARGUMENT,
                           "%s: tensor \"%.*s\" would begin at data offset %llu, which is no "
                           "multiple of its element size (%llu bytes); list tensors with wider "
                           "elements first",
                           header->path, TEXT_ARGUMENT(tensor->name), (unsigned long long)*begin,
                           (unsigned long long)element_bytes);
    return AVO_OK;
}

/* "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} */
static void write_tensor(json_writer *w, const safetensors_tensor *tensor, uint64_t begin,
                         uint64_t end) {
    json_key_text(w, tensor->name);
    json_object_begin(w);
    json_member_string(w, "dtype", safetensors_dtype(tensor->type));
    json_member_array_begin(w, "shape");
    for (uint32_t i = 0; i < tensor->rank; i++)
        json_u64(w, tensor->shape[i]);
    json_end(w);
    json_member_array_begin(w, "data_offsets");
    json_u64(w, begin);
    json_u64(w, end);
    json_end(w);
    json_end(w);
}

/* A failure while the text grows, named. */
static avo_status check_growth(const header_writer *header, avo_status status) {
    if (status == AVO_ERROR_LIMIT)
        return status_fail(header->error, status,
                           "%s: the safetensors header needs more than %d bytes; write fewer "
                           "tensors or less metadata",
                           header->path, SAFETENSORS_HEADER_BYTES_MAX);
    if (status != AVO_OK)
        return status_no_memory(header->error, "a safetensors header", header->text.size);
    return AVO_OK;
}

static avo_status open_index(header_writer *header, name_index *index, size_t count) {
    if (name_index_open(index, &header->arena, count) == AVO_OK)
        return AVO_OK;
    return status_no_memory(header->error, "an index of names", count * sizeof(uint32_t));
}

static avo_status build_metadata(header_writer *header) {
    const safetensors_content *content = header->content;
    const safetensors_entry *entries = content->metadata;
    if (content->metadata_count == 0)
        return AVO_OK;
    name_index index;
    AVO_TRY(open_index(header, &index, content->metadata_count));
    for (size_t i = 0; i < content->metadata_count; i++) {
        if (!is_utf8(entries[i].key) || !is_utf8(entries[i].value))
            return status_fail(header->error, AVO_ERROR_ARGUMENT,
                               "%s: metadata \"%.*s\" is not valid UTF-8", header->path,
                               TEXT_ARGUMENT(entries[i].key));
        if (!name_index_add(&index, NAME_COLUMN(entries, safetensors_entry, key), i))
            return status_fail(header->error, AVO_ERROR_ARGUMENT,
                               "%s: metadata \"%.*s\" appears twice", header->path,
                               TEXT_ARGUMENT(entries[i].key));
    }
    json_member_object_begin(&header->json, "__metadata__");
    for (size_t i = 0; i < content->metadata_count; i++) {
        json_key_text(&header->json, entries[i].key);
        json_text(&header->json, entries[i].value);
    }
    json_end(&header->json);
    return AVO_OK;
}

static avo_status build_tensors(header_writer *header) {
    const safetensors_content *content = header->content;
    const safetensors_tensor *tensors = content->tensors;
    if (content->tensor_count > SOURCE_TENSORS_MAX)
        return status_fail(header->error, AVO_ERROR_LIMIT, "%s: %zu tensors, at most %d",
                           header->path, content->tensor_count, SOURCE_TENSORS_MAX);
    name_index index;
    AVO_TRY(open_index(header, &index, content->tensor_count));
    for (size_t i = 0; i < content->tensor_count; i++) {
        uint64_t begin;
        AVO_TRY(check_tensor(header, &tensors[i]));
        if (!name_index_add(&index, NAME_COLUMN(tensors, safetensors_tensor, name), i))
            return bad_tensor(header, &tensors[i], "the name appears twice");
        AVO_TRY(place_tensor(header, &tensors[i], &begin));
        write_tensor(&header->json, &tensors[i], begin, header->data_bytes);
    }
    return AVO_OK;
}

/* The whole JSON with spaces behind it, so that the data begins at a multiple of 8. */
static avo_status build_header(header_writer *header) {
    static const char spaces[HEADER_ALIGNMENT] = "        ";
    header->json = json_writer_of(&header->text);
    json_object_begin(&header->json);
    AVO_TRY(build_metadata(header));
    AVO_TRY(build_tensors(header));
    json_end(&header->json);
    AVO_TRY(check_growth(header, json_writer_status(&header->json)));
    size_t padding = (HEADER_ALIGNMENT - header->text.size % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    return check_growth(header, buffer_append(&header->text, spaces, padding));
}

static avo_status write_header(safetensors_writer *writer, const header_writer *header,
                               avo_error *error) {
    uint64_t length = header->text.size;
    if (!u64_add(sizeof(length) + length, header->data_bytes, &writer->file_bytes) ||
        writer->file_bytes > INT64_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s: %llu bytes of data fit no file",
                           header->path, (unsigned long long)header->data_bytes);
    AVO_TRY(file_writer_append(&writer->file, &length, sizeof(length), error));
    return file_writer_append(&writer->file, header->text.data, header->text.size, error);
}

static avo_status open_file(safetensors_writer *writer, const header_writer *header,
                            avo_error *error) {
    AVO_TRY(file_writer_open(&writer->file, header->path, error));
    avo_status status = write_header(writer, header, error);
    if (status != AVO_OK)
        file_writer_abort(&writer->file);
    return status;
}

avo_status safetensors_writer_open(const avo_allocator *allocator, const char *path,
                                   const safetensors_content *content, safetensors_writer **out,
                                   avo_error *error) {
    *out = NULL;
    safetensors_writer *writer = allocator_take_array(allocator, 1, sizeof(*writer));
    if (writer == NULL)
        return status_no_memory(error, "a safetensors writer", sizeof(*writer));
    writer->allocator = allocator;
    header_writer header = {.content = content, .path = path, .error = error};
    arena_init(&header.arena, allocator, SIZE_MAX);
    buffer_init(&header.text, allocator, SAFETENSORS_HEADER_BYTES_MAX);
    avo_status status = build_header(&header);
    AVO_THEN(status, open_file(writer, &header, error));
    buffer_free(&header.text);
    arena_free(&header.arena);
    if (status != AVO_OK)
        allocator_give(allocator, writer, sizeof(*writer));
    else
        *out = writer;
    return status;
}

uint64_t safetensors_writer_file_bytes(const safetensors_writer *writer) {
    return writer->file_bytes;
}

avo_status safetensors_writer_append(safetensors_writer *writer, const void *data, size_t bytes,
                                     avo_error *error) {
    if (bytes > writer->file_bytes - writer->file.written)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: %zu bytes after %llu of %llu: more data than the tensors have",
                           writer->file.path, bytes, (unsigned long long)writer->file.written,
                           (unsigned long long)writer->file_bytes);
    return file_writer_append(&writer->file, data, bytes, error);
}

avo_status safetensors_writer_commit(safetensors_writer *writer, avo_error *error) {
    avo_status status = AVO_OK;
    if (writer->file.written != writer->file_bytes)
        status = status_fail(error, AVO_ERROR_ARGUMENT,
                             "%s: %llu of %llu bytes were written: data of tensors is missing",
                             writer->file.path, (unsigned long long)writer->file.written,
                             (unsigned long long)writer->file_bytes);
    if (status != AVO_OK) {
        safetensors_writer_abort(writer);
        return status;
    }
    status = file_writer_commit(&writer->file, error);
    allocator_give(writer->allocator, writer, sizeof(*writer));
    return status;
}

void safetensors_writer_abort(safetensors_writer *writer) {
    if (writer == NULL)
        return;
    file_writer_abort(&writer->file);
    allocator_give(writer->allocator, writer, sizeof(*writer));
}
