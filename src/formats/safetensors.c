/* safetensors: u64 header length, JSON header, data.
 *
 *   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, …,
 *    "__metadata__": {"key": "text", …}}
 *
 * Offsets count from the end of the header. As the format demands, the tensors cover the data
 * without overlap, gap or rest, and a range holds exactly the tensor's elements.
 */
#include "formats/safetensors.h"

#include "base/checked.h"
#include "formats/formats_int.h"

static const struct {
    const char *name;
    quant_type type;
} dtypes[] = {
    {"F64", QUANT_F64},   {"F32", QUANT_F32},         {"F16", QUANT_F16},
    {"BF16", QUANT_BF16}, {"F8_E4M3", QUANT_F8_E4M3}, {"F8_E5M2", QUANT_F8_E5M2},
    {"I8", QUANT_I8},     {"U8", QUANT_U8},           {"I16", QUANT_I16},
    {"U16", QUANT_U16},   {"I32", QUANT_I32},         {"U32", QUANT_U32},
    {"I64", QUANT_I64},   {"U64", QUANT_U64},         {"BOOL", QUANT_BOOL},
};

const char *safetensors_dtype(quant_type type) {
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (dtypes[i].type == type)
            return dtypes[i].name;
    return NULL;
}

typedef struct header_reader {
    model_source *source;
    uint32_t file;
    const char *path;
    bytes_view data; /* behind the header */
    avo_error *error;
} header_reader;

static avo_status bad_tensor(const header_reader *reader, text_view name, const char *field,
                             const char *what) {
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: tensor \"%.*s\": %s %s", reader->path,
                       TEXT_ARGUMENT(name), field, what);
}

static avo_status read_dtype(const header_reader *reader, const json_value *value,
                             source_tensor *tensor) {
    const json_value *name = json_find(value, "dtype");
    if (name == NULL || name->kind != JSON_STRING)
        return bad_tensor(reader, tensor->name, "dtype", "is missing or not a string");
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (text_is(name->string, dtypes[i].name)) {
            tensor->type = dtypes[i].type;
            return AVO_OK;
        }
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: tensor \"%.*s\": dtype \"%.*s\" is not supported", reader->path,
                       TEXT_ARGUMENT(tensor->name), TEXT_ARGUMENT(name->string));
}

static avo_status read_shape(const header_reader *reader, const json_value *value,
                             source_tensor *tensor) {
    const json_value *shape = json_find(value, "shape");
    if (shape == NULL || shape->kind != JSON_ARRAY)
        return bad_tensor(reader, tensor->name, "shape", "is missing or not an array");
    if (shape->array.count > SOURCE_RANK_MAX)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.*s\" has %zu dimensions, must have at most %d",
                           reader->path, TEXT_ARGUMENT(tensor->name), shape->array.count,
                           SOURCE_RANK_MAX);
    tensor->rank = (uint32_t)shape->array.count;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < SOURCE_RANK_MAX; i++)
        tensor->shape[i] = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_value *size = &shape->array.items[i];
        if (size->kind != JSON_INTEGER || size->integer < 0)
            return bad_tensor(reader, tensor->name, "shape",
                              "has an entry that is not a non-negative integer");
        tensor->shape[i] = (uint64_t)size->integer;
        if (!u64_multiply(elements, tensor->shape[i], &elements) || elements > INT64_MAX)
            return bad_tensor(reader, tensor->name, "shape", "is larger than any file");
    }
    return AVO_OK;
}

static avo_status read_range(const header_reader *reader, const json_value *value,
                             source_tensor *tensor) {
    const json_value *range = json_find(value, "data_offsets");
    const json_value *first = json_item(range, 0);
    const json_value *second = json_item(range, 1);
    if (second == NULL || range->array.count != 2 || first->kind != JSON_INTEGER ||
        second->kind != JSON_INTEGER)
        return bad_tensor(reader, tensor->name, "data_offsets", "are missing or not two integers");
    int64_t begin = first->integer;
    int64_t end = second->integer;
    if (begin < 0 || end < begin || (uint64_t)end > reader->data.size)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: tensor \"%.*s\": data_offsets [%lld, %lld] are outside the file's "
                           "%zu bytes of data; the download may be incomplete",
                           reader->path, TEXT_ARGUMENT(tensor->name), (long long)begin,
                           (long long)end, reader->data.size);
    uint64_t needed;
    if (!quant_run_bytes(tensor->type, source_tensor_elements(tensor), &needed) ||
        needed != (uint64_t)(end - begin))
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: tensor \"%.*s\": data_offsets span %lld bytes, but dtype and shape "
                           "need %llu",
                           reader->path, TEXT_ARGUMENT(tensor->name), (long long)(end - begin),
                           (unsigned long long)needed);
    tensor->data = reader->data.data + begin;
    tensor->bytes = needed;
    return AVO_OK;
}

static avo_status read_tensor(const header_reader *reader, const json_member *member) {
    model_source *source = reader->source;
    source_tensor *tensor = &source->tensors[source->tensor_count];
    *tensor = (source_tensor){.layout = QUANT_LAYOUT_ROWS, .file = reader->file};
    tensor->name = member->key;
    if (member->key.size == 0 || member->key.size > SOURCE_NAME_MAX)
        return bad_tensor(reader, member->key, "the name", "must have 1 to 256 bytes");
    if (member->value.kind != JSON_OBJECT)
        return bad_tensor(reader, member->key, "the entry", "is not an object");
    AVO_TRY(read_dtype(reader, &member->value, tensor));
    AVO_TRY(read_shape(reader, &member->value, tensor));
    AVO_TRY(read_range(reader, &member->value, tensor));
    /* The tree goes; the name stays. */
    const char *name;
    AVO_TRY(source_copy_text(source, member->key, &name, reader->error));
    tensor->name = (text_view){name, member->key.size};
    source->tensor_count++;
    return AVO_OK;
}

static avo_status read_metadata(const header_reader *reader, const json_value *metadata) {
    bool good = metadata->kind == JSON_OBJECT;
    for (size_t i = 0; good && i < metadata->object.count; i++)
        good = metadata->object.members[i].value.kind == JSON_STRING;
    if (!good)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: __metadata__ is not an object of strings", reader->path);
    const json_value *heads = json_find(metadata, "avocet.heads");
    if (heads == NULL)
        return AVO_OK;
    const char *copy;
    AVO_TRY(source_copy_text(reader->source, heads->string, &copy, reader->error));
    reader->source->heads = (text_view){copy, heads->string.size};
    return AVO_OK;
}

static avo_status read_entries(const header_reader *reader, const json_value *root) {
    model_source *source = reader->source;
    if (root->kind != JSON_OBJECT)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: the header is not a JSON object",
                           reader->path);
    uint32_t first = source->tensor_count;
    AVO_TRY(source_tensors_reserve(source, first + (uint64_t)root->object.count, reader->error));
    for (size_t i = 0; i < root->object.count; i++) {
        const json_member *member = &root->object.members[i];
        if (text_is(member->key, "__metadata__"))
            AVO_TRY(read_metadata(reader, &member->value));
        else
            AVO_TRY(read_tensor(reader, member));
    }
    return source_tensors_cover(source, first, reader->data, true, reader->path, reader->error);
}

/* One mapped file: its tensors are appended to the source's. */
static avo_status read_file(model_source *source, uint32_t file, avo_error *error) {
    const char *path = source->files[file].path;
    cursor at = cursor_over(source_file_bytes(source, file));
    uint64_t header;
    const uint8_t *text;
    if (!cursor_read_u64(&at, &header))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the file is too short (%zu bytes) for safetensors", path, at.size);
    if (header < 2 || header > SAFETENSORS_HEADER_BYTES_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: safetensors header has %llu bytes, must have 2 to %d", path,
                           (unsigned long long)header, SAFETENSORS_HEADER_BYTES_MAX);
    if (!cursor_take(&at, (size_t)header, &text))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: safetensors header (%llu bytes) passes the end of the file (%zu bytes)", path,
            (unsigned long long)header, at.size);
    if (text[0] != '{')
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the safetensors header does not begin with '{'", path);
    header_reader reader = {.source = source,
                            .file = file,
                            .path = path,
                            .data = {at.data + at.at, cursor_left(&at)},
                            .error = error};
    arena tree;
    arena_init(&tree, source->arena.allocator, SOURCE_HEADER_TREE_MAX);
    json_value root;
    avo_status status = source_json(&tree, (bytes_view){text, (size_t)header}, path, &root, error);
    AVO_THEN(status, read_entries(&reader, &root));
    arena_free(&tree);
    return status;
}

/* ---- Shards ---- */

/* A plain file name: nothing that could leave the folder. */
static bool shard_name_is_plain(text_view name) {
    if (name.size == 0 || name.size > 255 || name.data[0] == '.')
        return false;
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] == '/' || name.data[i] == '\\' || (unsigned char)name.data[i] < 0x20)
            return false;
    return text_ends(name, TEXT_LITERAL(".safetensors"));
}

typedef struct shard_list {
    text_view name[SOURCE_FILES_MAX];
    uint32_t file[SOURCE_FILES_MAX];
    uint32_t count;
} shard_list;

static avo_status shard_open(source_loader *loader, text_view name, const char *index_path,
                             shard_list *shards, uint32_t *shard, avo_error *error) {
    for (uint32_t i = shards->count; i-- > 0;) /* neighbours mostly share one */
        if (text_equal(shards->name[i], name)) {
            *shard = i;
            return AVO_OK;
        }
    if (!shard_name_is_plain(name))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: weight_map names \"%.*s\", which is not a plain *.safetensors file name",
            index_path, TEXT_ARGUMENT(name));
    if (shards->count == SOURCE_FILES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: more than %d shards", index_path,
                           SOURCE_FILES_MAX);
    char terminated[256];
    memcpy(terminated, name.data, name.size);
    terminated[name.size] = '\0';
    uint32_t file;
    AVO_TRY(source_file_beside(loader, terminated, &file, error));
    if (file == SOURCE_NO_FILE)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%s: shard %s is missing; the download may be incomplete", index_path,
                           terminated);
    AVO_TRY(read_file(loader->source, file, error));
    *shard = shards->count++;
    shards->name[*shard] = name;
    shards->file[*shard] = file;
    return AVO_OK;
}

static avo_status read_weight_map(source_loader *loader, const json_value *root,
                                  const char *index_path, shard_list *shards, avo_error *error) {
    model_source *source = loader->source;
    const json_value *map = json_find(root, "weight_map");
    if (map == NULL || map->kind != JSON_OBJECT || map->object.count == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: weight_map is missing or not an object",
                           index_path);
    uint32_t shard;
    for (size_t i = 0; i < map->object.count; i++) {
        const json_member *member = &map->object.members[i];
        if (member->value.kind != JSON_STRING)
            return status_fail(error, AVO_ERROR_FORMAT, "%s: weight_map[\"%.*s\"] is not a string",
                               index_path, TEXT_ARGUMENT(member->key));
        AVO_TRY(shard_open(loader, member->value.string, index_path, shards, &shard, error));
    }
    AVO_TRY(source_tensors_index(source, error));
    for (size_t i = 0; i < map->object.count; i++) {
        const json_member *member = &map->object.members[i];
        AVO_TRY(shard_open(loader, member->value.string, index_path, shards, &shard, error));
        const source_tensor *tensor = source_find(source, member->key);
        if (tensor == NULL || tensor->file != shards->file[shard])
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: weight_map says tensor \"%.*s\" is in %.*s, but it is not",
                               index_path, TEXT_ARGUMENT(member->key),
                               TEXT_ARGUMENT(member->value.string));
    }
    return AVO_OK;
}

static avo_status read_sharded(source_loader *loader, uint32_t index, avo_error *error) {
    model_source *source = loader->source;
    const avo_allocator *allocator = source->arena.allocator;
    const char *path = source->files[index].path;
    shard_list *shards = allocator_take_array(allocator, 1, sizeof(*shards));
    if (shards == NULL)
        return status_no_memory(error, "a list of shards", sizeof(*shards));
    arena tree;
    arena_init(&tree, allocator, SOURCE_INDEX_TREE_MAX);
    json_value root;
    avo_status status = source_json(&tree, source_file_bytes(source, index), path, &root, error);
    AVO_THEN(status, read_weight_map(loader, &root, path, shards, error));
    arena_free(&tree);
    allocator_give(allocator, shards, sizeof(*shards));
    return status;
}

/* ---- Opening ---- */

static void begin(model_source *source) {
    source->format = SOURCE_SAFETENSORS;
    source->naming = SOURCE_NAMES_HF;
}

avo_status safetensors_source_open(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    begin(source);
    /* One shard of several stands for all of them. */
    uint32_t index = SOURCE_NO_FILE;
    if (!loader->tensors_only && strstr(source->path, "-of-") != NULL)
        AVO_TRY(source_file_beside(loader, "model.safetensors.index.json", &index, error));
    if (index != SOURCE_NO_FILE) {
        AVO_TRY(read_sharded(loader, index, error));
    } else {
        AVO_TRY(read_file(source, 0, error));
        AVO_TRY(source_tensors_index(source, error));
    }
    return loader->tensors_only ? AVO_OK : hf_folder_read(loader, error);
}

static avo_status no_model(source_loader *loader, avo_error *error) {
    uint32_t adapter;
    AVO_TRY(source_file_beside(loader, "adapter_config.json", &adapter, error));
    return status_fail(
        error, AVO_ERROR_NOT_FOUND,
        "%s: the folder has neither model.safetensors nor model.safetensors.index.json; %s",
        loader->source->path,
        adapter != SOURCE_NO_FILE ? "it is an adapter: give the model that it was trained for, and "
                                    "this folder as adapter "
                                    "(--adapter)"
                                  : "for a .gguf, .avo or .bin model give the file");
}

avo_status safetensors_folder_open(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    begin(source);
    uint32_t file;
    AVO_TRY(source_file_beside(loader, "model.safetensors.index.json", &file, error));
    if (file != SOURCE_NO_FILE) {
        AVO_TRY(read_sharded(loader, file, error));
        return hf_folder_read(loader, error);
    }
    AVO_TRY(source_file_beside(loader, "model.safetensors", &file, error));
    if (file == SOURCE_NO_FILE)
        return no_model(loader, error);
    AVO_TRY(read_file(source, file, error));
    AVO_TRY(source_tensors_index(source, error));
    return hf_folder_read(loader, error);
}
