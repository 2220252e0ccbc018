/* Writing packed adapters. */
#include "adapters/packed_int.h"

#include "base/file.h"
#include "base/hash.h"
#include "formats/source.h"

#include <stdio.h>

const char *const packed_methods[PACKED_METHODS] = {"lora", "rslora", "dora"};
const char *const packed_kinds[PACKED_KINDS] = {"lora", "dora", "embedding",
                                                "full", "norm", "bias"};

static uint32_t number_of(const char *const *names, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return 0;
}

/* Everything in front of the data, in one piece of memory. */
typedef struct packed_head {
    packed_header *header;
    packed_array *arrays;
    packed_module *modules;
    char *names;
    size_t bytes;
} packed_head;

static bool of_base(const adapter_array *array, const adapter_view *view,
                    const adapter_delta *delta) {
    if (array->matrix == NULL)
        return true;
    if (array->part == PART_LOOK)
        return view->embedding.up.data == NULL;
    return array->part == PART_UP && delta != NULL && delta->down.data == NULL;
}

static void fill_array(const avo_adapter *adapter, const adapter_array *array, uint32_t index,
                       packed_head *head, const void **last, uint64_t *at) {
    const struct adapter_storage *storage = adapter->storage;
    adapter_view view = adapter->view;
    const adapter_delta *delta = site_delta(
        &view, array->layer == UINT32_MAX ? NULL : &storage->layers[array->layer], array->site);
    const void *data = array->matrix != NULL ? (const void *)array->matrix->data : *array->floats;
    if (data == NULL)
        return;
    packed_array *out = &head->arrays[head->header->array_count++];
    *out = (packed_array){.index = index, .k = 1};
    if (array->matrix != NULL) {
        out->type = (uint32_t)array->matrix->type;
        out->rows = array->matrix->rows;
        out->k = array->matrix->k;
        out->bytes = view_bytes(array->matrix);
        out->scale = array->part == PART_UP && delta != NULL ? delta->scale : 0.0f;
    } else {
        out->rows = array_floats(storage->base.view, array);
        out->bytes = sizeof(float) * (uint64_t)out->rows;
    }
    if (of_base(array, &view, delta))
        head->header->flags |= PACKED_OF_BASE;
    if (array->part == PART_DOWN && data == *last) {
        out->offset = head->arrays[head->header->array_count - 2].offset;
        return;
    }
    *at = (*at + 63) / 64 * 64;
    out->offset = *at;
    *at += out->bytes;
    *last = array->part == PART_DOWN ? data : NULL;
}

static void fill_modules(const avo_adapter *adapter, packed_head *head) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < adapter->modules_matched; i++) {
        const adapter_module *module = &adapter->modules[i];
        uint32_t bytes = (uint32_t)strlen(module->name);
        head->modules[i] =
            (packed_module){.index = adapter->storage->module_index[i],
                            .kind = number_of(packed_kinds, PACKED_KINDS, module->kind),
                            .rank = module->rank,
                            .name_at = at,
                            .name_bytes = bytes,
                            .scale = module->scale};
        memcpy(head->names + at, module->name, bytes);
        at += bytes;
    }
}

static void fill_header(const avo_adapter *adapter, const adapter_base *base, size_t names_bytes,
                        packed_header *header) {
    *header = (packed_header){.version = PACKED_VERSION,
                              .digest = {adapter->view.digest[0], adapter->view.digest[1]},
                              .base_digest = base->digest,
                              .flags = base->config->rope_interleaved ? PACKED_INTERLEAVED : 0,
                              .type = (uint32_t)(strcmp(adapter->type, "f32") == 0   ? QUANT_F32
                                                 : strcmp(adapter->type, "f16") == 0 ? QUANT_F16
                                                                                     : QUANT_Q8C),
                              .method = number_of(packed_methods, PACKED_METHODS, adapter->method),
                              .architecture = (uint32_t)base->config->architecture,
                              .layers = base->config->layers,
                              .width = base->config->width,
                              .vocabulary = base->config->vocabulary,
                              .module_count = adapter->modules_matched,
                              .modules_expected = adapter->modules_expected,
                              .embedding_scale = adapter->view.embedding.scale,
                              .names_bytes = (uint32_t)names_bytes};
    memcpy(header->magic, PACKED_MAGIC, sizeof(header->magic));
}

static avo_status take_head(const avo_adapter *adapter, arena *arena, size_t *names_bytes,
                            packed_head *head, avo_error *error) {
    uint32_t arrays = array_count(adapter->storage->base.view->layers);
    *names_bytes = 0;
    for (uint32_t i = 0; i < adapter->modules_matched; i++)
        *names_bytes += strlen(adapter->modules[i].name);
    head->header = arena_take(arena, sizeof(*head->header));
    head->arrays = arena_take_array(arena, arrays, sizeof(*head->arrays));
    head->modules = arena_take_array(arena, adapter->modules_matched, sizeof(*head->modules));
    head->names = arena_take(arena, *names_bytes + 1);
    if (head->header == NULL || head->arrays == NULL || head->modules == NULL ||
        head->names == NULL)
        return status_no_memory(error, "the header of a packed adapter",
                                arrays * sizeof(*head->arrays));
    return AVO_OK;
}

static void sum_head(packed_head *head, size_t names_bytes) {
    packed_header *header = head->header;
    hash_stream stream;
    hash_stream_begin(&stream);
    hash_stream_add(&stream, header, sizeof(*header));
    hash_stream_add(&stream, head->arrays, header->array_count * sizeof(*head->arrays));
    hash_stream_add(&stream, head->modules, header->module_count * sizeof(*head->modules));
    hash_stream_add(&stream, head->names, names_bytes);
    header->head_sum = hash_stream_sum(&stream);
}

static avo_status append_all(const avo_adapter *adapter, const packed_head *head,
                             size_t names_bytes, file_writer *writer, avo_error *error) {
    const packed_header *header = head->header;
    AVO_TRY(file_writer_append(writer, header, sizeof(*header), error));
    AVO_TRY(file_writer_append(writer, head->arrays, header->array_count * sizeof(packed_array),
                               error));
    AVO_TRY(file_writer_append(writer, head->modules, header->module_count * sizeof(packed_module),
                               error));
    AVO_TRY(file_writer_append(writer, head->names, names_bytes, error));
    AVO_TRY(file_writer_align(writer, PACKED_ALIGN, error));
    adapter_view view = adapter->view;
    uint64_t end = 0;
    for (uint32_t i = 0; i < header->array_count; i++) {
        const packed_array *array = &head->arrays[i];
        adapter_array from =
            array_at(&view, adapter->storage->layers, header->layers, array->index);
        if (i > 0 && array->offset < end)
            continue; /* shared */
        AVO_TRY(file_writer_align(writer, 64, error));
        AVO_TRY(file_writer_append(
            writer, from.matrix != NULL ? (const void *)from.matrix->data : *from.floats,
            (size_t)array->bytes, error));
        end = array->offset + array->bytes;
    }
    return AVO_OK;
}

/* Refuses to write over what the adapter was read from, or its base. */
static avo_status spare_sources(const avo_adapter *adapter, const char *path, avo_error *error) {
    static const char *const names[] = {"", "/adapter_config.json", "/adapter_model.safetensors"};
    const adapter_base *base = &adapter->storage->base;
    char own[4096];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int length = snprintf(own, sizeof(own), "%s%s", adapter->path, names[i]);
        if (length > 0 && (size_t)length < sizeof(own) && file_is_same(own, path))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "%s: is a file of the adapter itself; choose another output", path);
    }
    return base->source == NULL ? AVO_OK : source_spare(base->source, path, error);
}

avo_status adapter_write(const avo_adapter *adapter, const char *path, avo_error *error) {
    if (adapter->storage == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: the adapter was not opened from a file and cannot be packed",
                           adapter->path);
    AVO_TRY(spare_sources(adapter, path, error));
    const adapter_base *base = &adapter->storage->base;
    arena arena;
    arena_init(&arena, adapter->allocator, SIZE_MAX);
    packed_head head = {0};
    size_t names_bytes;
    uint64_t at = 0;
    const void *last = NULL;
    avo_status status = take_head(adapter, &arena, &names_bytes, &head, error);
    if (status == AVO_OK) {
        fill_header(adapter, base, names_bytes, head.header);
        adapter_view view = adapter->view;
        for (uint32_t i = 0; i < array_count(base->view->layers); i++) {
            adapter_array array = array_at(&view, adapter->storage->layers, base->view->layers, i);
            fill_array(adapter, &array, i, &head, &last, &at);
        }
        fill_modules(adapter, &head);
        uint64_t begin = sizeof(packed_header) + head.header->array_count * sizeof(packed_array) +
                         head.header->module_count * sizeof(packed_module) + names_bytes;
        head.header->data_at = (begin + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
        head.header->data_bytes = at;
        head.header->file_bytes = head.header->data_at + at;
        sum_head(&head, names_bytes);
        file_writer writer;
        status = file_writer_open(&writer, path, error);
        if (status == AVO_OK) {
            status = append_all(adapter, &head, names_bytes, &writer, error);
            if (status == AVO_OK)
                status = file_writer_commit(&writer, error);
            else
                file_writer_abort(&writer);
        }
    }
    arena_free(&arena);
    return status;
}
