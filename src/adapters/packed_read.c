/* Opening packed adapters: everything is checked against the file and against the base, then used
 * where it lies. */
#include "adapters/packed_int.h"

#include "base/checked.h"
#include "base/hash.h"

#include <math.h>

typedef struct packed_reader {
    avo_adapter *adapter;
    const adapter_base *base;
    bytes_view bytes;
    packed_header header;
    const packed_array *arrays;
    const packed_module *modules;
    const char *names;
    avo_error *error;
} packed_reader;

bool packed_is(bytes_view bytes) {
    return bytes.size >= 4 && memcmp(bytes.data, PACKED_MAGIC, 4) == 0;
}

static avo_status bad(const packed_reader *reader, const char *what) {
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: damaged packed adapter: %s",
                       reader->adapter->path, what);
}

/* ---- The head ---- */

static avo_status read_header(packed_reader *reader) {
    packed_header *header = &reader->header;
    if (reader->bytes.size < sizeof(*header))
        return bad(reader, "the header is truncated");
    memcpy(header, reader->bytes.data, sizeof(*header));
    if (header->version != PACKED_VERSION)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: packed format version is %u, must be %d; pack the adapter again",
                           reader->adapter->path, header->version, PACKED_VERSION);
    if (header->file_bytes != reader->bytes.size)
        return bad(reader, "the file size differs from the header's; the copy may be incomplete");
    uint64_t arrays = (uint64_t)header->array_count * sizeof(packed_array);
    uint64_t modules = (uint64_t)header->module_count * sizeof(packed_module);
    uint64_t end = sizeof(*header) + arrays + modules + header->names_bytes;
    uint64_t data_end;
    if (header->array_count > array_count(SOURCE_LAYERS_MAX) ||
        header->module_count > ADAPTER_MODULES_MAX || end > header->data_at ||
        header->data_at % PACKED_ALIGN != 0 ||
        !u64_add(header->data_at, header->data_bytes, &data_end) || data_end != reader->bytes.size)
        return bad(reader, "the tables do not fit in the file");
    reader->arrays = (const packed_array *)(const void *)(reader->bytes.data + sizeof(*header));
    reader->modules =
        (const packed_module *)(const void *)((const uint8_t *)reader->arrays + arrays);
    reader->names = (const char *)reader->modules + modules;
    packed_header unsummed = *header;
    unsummed.head_sum = 0;
    hash_stream stream;
    hash_stream_begin(&stream);
    hash_stream_add(&stream, &unsummed, sizeof(unsummed));
    hash_stream_add(&stream, reader->arrays, (size_t)(end - sizeof(*header)));
    if (hash_stream_sum(&stream) != header->head_sum)
        return bad(reader, "checksum mismatch in the header");
    return AVO_OK;
}

static avo_status check_base(const packed_reader *reader) {
    const packed_header *header = &reader->header;
    const model_config *config = reader->base->config;
    const char *path = reader->adapter->path;
    if (header->architecture != (uint32_t)config->architecture ||
        header->layers != config->layers || header->width != config->width ||
        header->vocabulary != config->vocabulary)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: packed for %s with %u layers, width %u, vocabulary %u; this model "
                           "is %s with %u, %u, %u",
                           path, source_architecture_name(header->architecture), header->layers,
                           header->width, header->vocabulary,
                           source_architecture_name(config->architecture), config->layers,
                           config->width, config->vocabulary);
    if (((header->flags & PACKED_INTERLEAVED) != 0) != config->rope_interleaved)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: packed for a model with another row order of q and k (GGUF or "
                           "not); pack the adapter for this model",
                           path);
    if ((header->flags & PACKED_OF_BASE) != 0 && header->base_digest != reader->base->digest)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: packed for another base model (%016llx, this one is %016llx) and "
                           "depends on its weights; pack the adapter for this model",
                           path, (unsigned long long)header->base_digest,
                           (unsigned long long)reader->base->digest);
    if (header->method >= PACKED_METHODS || !isfinite(header->embedding_scale))
        return bad(reader, "invalid method or embedding scale in the header");
    if (header->type != QUANT_Q8C && header->type != QUANT_F16 && header->type != QUANT_F32)
        return bad(reader, "invalid matrix type");
    return AVO_OK;
}

/* ---- Arrays ---- */

static avo_status read_matrix(packed_reader *reader, const packed_array *packed,
                              const adapter_array *array) {
    bool look = array->part == PART_LOOK;
    bool typed =
        look ? packed->type == QUANT_F32 || packed->type == QUANT_F16 || packed->type == QUANT_Q8_0
             : packed->type == reader->header.type ||
                   (reader->header.type == QUANT_Q8C && packed->type == QUANT_Q8R &&
                    array->site != SITE_EMBEDDING);
    weight_view view = {.type = (quant_type)packed->type,
                        .layout = look ? QUANT_LAYOUT_ROWS : QUANT_LAYOUT_PANELS,
                        .rows = packed->rows,
                        .k = packed->k,
                        .data = reader->bytes.data + reader->header.data_at + packed->offset};
    uint64_t bytes;
    if (!typed || packed->rows == 0 || packed->k == 0 ||
        !weight_bytes(view.type, view.layout, view.rows, view.k, &bytes) || bytes != packed->bytes)
        return bad(reader, "type and size of an array do not match");
    if (!packed_is_finite(&view))
        return bad(reader, "a value is NaN or Inf");
    *array->matrix = view;
    return AVO_OK;
}

/* Every array has bytes of its own, behind those before it; only an A may be the one before it,
 * whole: kernels then compute it once. */
static bool well_placed(const packed_reader *reader, const packed_array *packed,
                        const packed_array *before, adapter_part part) {
    if (before == NULL || packed->offset >= before->offset + before->bytes)
        return true;
    adapter_array array = array_at(&reader->adapter->view, reader->adapter->storage->layers,
                                   reader->base->view->layers, before->index);
    return part == PART_DOWN && array.part == PART_DOWN && packed->offset == before->offset &&
           packed->bytes == before->bytes && packed->type == before->type &&
           packed->rows == before->rows && packed->k == before->k;
}

/* `before`: the array before it, checked; NULL: it is the first. */
static avo_status read_array(packed_reader *reader, const packed_array *packed,
                             const packed_array *before) {
    avo_adapter *adapter = reader->adapter;
    const model_view *base = reader->base->view;
    uint64_t end;
    if (packed->index >= array_count(base->layers))
        return bad(reader, "invalid array index");
    adapter_array array =
        array_at(&adapter->view, adapter->storage->layers, base->layers, packed->index);
    if (packed->offset % 64 != 0 || !u64_add(packed->offset, packed->bytes, &end) ||
        end > reader->header.data_bytes || !well_placed(reader, packed, before, array.part))
        return bad(reader, "invalid array offset");
    if (array.matrix != NULL) {
        AVO_TRY(read_matrix(reader, packed, &array));
        adapter_delta *delta = site_delta(
            &adapter->view,
            array.layer == UINT32_MAX ? NULL : &adapter->storage->layers[array.layer], array.site);
        if (delta != NULL && array.part == PART_UP)
            delta->scale = packed->scale;
        return isfinite(packed->scale) ? AVO_OK : bad(reader, "a scale is NaN or Inf");
    }
    uint32_t count = array_floats(base, &array);
    if (count == 0 || packed->rows != count || packed->bytes != sizeof(float) * (uint64_t)count)
        return bad(reader, "wrong size of an array of floats");
    *array.floats =
        (const float *)(const void *)(reader->bytes.data + reader->header.data_at + packed->offset);
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite((*array.floats)[i]))
            return bad(reader, "a value is NaN or Inf");
    return AVO_OK;
}

/* Halves must go together and fit the base; a gain goes with both. */
static bool delta_fits(const adapter_delta *delta, const linear_view *linear) {
    if (delta->gain != NULL && delta->down.data == NULL)
        return false;
    if (delta->up.data == NULL)
        return delta->down.data == NULL;
    if (linear == NULL || delta->up.rows != linear->weight.rows)
        return false;
    if (delta->down.data == NULL)
        return delta->up.k == linear->weight.k;
    return delta->down.k == linear->weight.k && delta->down.rows == delta->up.k &&
           delta->up.k <= ADAPTER_RANK_MAX;
}

static bool embedding_fits(const adapter_embedding *embedding, const weight_view *base) {
    if (embedding->look.data == NULL)
        return embedding->up.data == NULL;
    if (embedding->look.rows != base->rows)
        return false;
    if (embedding->up.data == NULL)
        return embedding->look.k == base->k;
    return embedding->up.rows == base->k && embedding->up.k == embedding->look.k &&
           embedding->up.k <= ADAPTER_RANK_MAX;
}

static avo_status check_shapes(packed_reader *reader) {
    static const adapter_site sites[] = {SITE_QUERY, SITE_KEY, SITE_VALUE, SITE_OUTPUT,
                                         SITE_GATE,  SITE_UP,  SITE_DOWN};
    avo_adapter *adapter = reader->adapter;
    const model_view *base = reader->base->view;
    for (uint32_t layer = 0; layer < base->layers; layer++)
        for (size_t i = 0; i < sizeof(sites) / sizeof(sites[0]); i++)
            if (!delta_fits(site_delta(&adapter->view, &adapter->storage->layers[layer], sites[i]),
                            site_linear(base, layer, sites[i])))
                return bad(reader, "a matrix does not fit the model");
    if (!delta_fits(&adapter->view.head, &base->head) ||
        !embedding_fits(&adapter->view.embedding, &base->embedding) ||
        (adapter->view.embedding.look.data != NULL && base->embedding_project.weight.data != NULL))
        return bad(reader, "the embedding or output head does not fit the model");
    return AVO_OK;
}

static avo_status read_arrays(packed_reader *reader) {
    avo_adapter *adapter = reader->adapter;
    struct adapter_storage *storage = adapter->storage;
    uint32_t layers = reader->base->view->layers;
    storage->layers = arena_take_array(&storage->arena, layers, sizeof(*storage->layers));
    if (storage->layers == NULL)
        return status_no_memory(reader->error, "layers", layers * sizeof(*storage->layers));
    adapter->view.layer = storage->layers;
    adapter->view.embedding.scale = reader->header.embedding_scale;
    if (reader->header.array_count == 0)
        return bad(reader, "the adapter is empty");
    packed_array before = {0};
    for (uint32_t i = 0; i < reader->header.array_count; i++) {
        packed_array packed = reader->arrays[i]; /* a copy: the file may change while it is read */
        if (i > 0 && packed.index <= before.index)
            return bad(reader, "the arrays are out of order");
        AVO_TRY(read_array(reader, &packed, i > 0 ? &before : NULL));
        before = packed;
    }
    return check_shapes(reader);
}

/* ---- Modules ---- */

/* Names are shown to people: what could move their cursor is no name. */
static bool name_is_plain(const char *name, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return bytes > 0;
}

static avo_status read_modules(packed_reader *reader) {
    avo_adapter *adapter = reader->adapter;
    struct adapter_storage *storage = adapter->storage;
    uint32_t count = reader->header.module_count;
    if (count == 0)
        return bad(reader, "there are no modules");
    storage->modules = arena_take_array(&storage->arena, count, sizeof(*storage->modules));
    storage->module_index = arena_take_array(&storage->arena, count, sizeof(uint32_t));
    storage->norms = arena_take_array(&storage->arena, count, sizeof(double));
    if (storage->modules == NULL || storage->module_index == NULL || storage->norms == NULL)
        return status_no_memory(reader->error, "modules", count * sizeof(*storage->modules));
    for (uint32_t i = 0; i < count; i++) {
        packed_module from;
        memcpy(&from, &reader->modules[i], sizeof(from));
        if (from.index >= module_count(reader->base->config) || from.kind >= PACKED_KINDS ||
            from.rank > ADAPTER_RANK_MAX || from.name_bytes > ADAPTER_NAME_MAX ||
            (uint64_t)from.name_at + from.name_bytes > reader->header.names_bytes ||
            !name_is_plain(reader->names + from.name_at, from.name_bytes) || !isfinite(from.scale))
            return bad(reader, "invalid module entry");
        const char *name =
            arena_copy_text(&storage->arena, reader->names + from.name_at, from.name_bytes);
        if (name == NULL)
            return status_no_memory(reader->error, "a name", from.name_bytes);
        storage->modules[i] = (adapter_module){
            .name = name, .kind = packed_kinds[from.kind], .rank = from.rank, .scale = from.scale};
        storage->module_index[i] = from.index;
    }
    adapter->modules = storage->modules;
    adapter->modules_matched = count;
    adapter->modules_expected = reader->header.modules_expected;
    bool fit = false;
    AVO_TRY(packed_check_modules(adapter, reader->modules, &fit, reader->error));
    return fit && adapter->modules_expected == count
               ? AVO_OK
               : bad(reader, "modules and arrays do not match");
}

avo_status packed_open(avo_adapter *adapter, bytes_view bytes, avo_error *error) {
    packed_reader reader = {
        .adapter = adapter, .base = &adapter->storage->base, .bytes = bytes, .error = error};
    AVO_TRY(read_header(&reader));
    AVO_TRY(check_base(&reader));
    AVO_TRY(read_arrays(&reader));
    AVO_TRY(read_modules(&reader));
    adapter->method = packed_methods[reader.header.method];
    adapter->type = reader.header.type == QUANT_Q8C ? "q8" : quant_name(reader.header.type);
    const model_view *base = reader.base->view;
    adapter_sum_up(adapter, base->layers);
    if (adapter->view.gains && strcmp(adapter->method, "dora") != 0)
        return bad(&reader, "DoRA magnitudes, but the method is not DoRA");
    adapter_digest(&adapter->view, base->layers, base, adapter->view.digest);
    if (adapter->view.digest[0] != reader.header.digest[0] ||
        adapter->view.digest[1] != reader.header.digest[1])
        return bad(&reader, "checksum mismatch in the values");
    return AVO_OK;
}
