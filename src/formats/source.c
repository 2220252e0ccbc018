/* Opening by content, the files of a source, and the index of its tensors. */
#include "formats/source.h"

#include "base/checked.h"
#include "formats/formats_int.h"

#include <stdio.h>
#include <stdlib.h>

const char *source_format_name(source_format format) {
    static const char *const names[] = {"safetensors", "gguf", "llama2c", "avo"};
    return names[format];
}

const char *source_architecture_name(source_architecture architecture) {
    static const char *const names[ARCHITECTURE_COUNT] = {
        "llama", "mistral", "qwen2",    "qwen3",    "smollm3", "gemma3",     "phi3",   "gpt2",
        "opt",   "mixtral", "qwen2moe", "qwen3moe", "olmoe",   "granitemoe", "gpt-oss"};
    return (unsigned)architecture < ARCHITECTURE_COUNT ? names[architecture] : "?";
}

/* ---- Memory ---- */

avo_status source_take(model_source *source, size_t count, size_t size, const char *what,
                       void **items, avo_error *error) {
    *items = NULL;
    if (count == 0)
        return AVO_OK;
    *items = arena_take_array(&source->arena, count, size);
    if (*items == NULL)
        return status_fail(error, AVO_ERROR_MEMORY, "%s: out of memory for %s (%zu × %zu bytes)",
                           source->path, what, count, size);
    return AVO_OK;
}

avo_status source_copy_text(model_source *source, text_view text, const char **copy,
                            avo_error *error) {
    *copy = arena_copy_text(&source->arena, text.data, text.size);
    return *copy == NULL ? status_no_memory(error, "a name", text.size) : AVO_OK;
}

/* ---- Files ---- */

/* The last part of a path. */
static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static const memory_file *memory_find(const source_loader *loader, const char *name) {
    for (size_t i = 0; i < loader->memory_count; i++)
        if (strcmp(loader->memory[i].name, name) == 0)
            return &loader->memory[i];
    return NULL;
}

avo_status source_file_open(source_loader *loader, const char *path, uint32_t *index,
                            avo_error *error) {
    model_source *source = loader->source;
    if (source->file_count >= SOURCE_FILES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: more than %d files", source->path,
                           SOURCE_FILES_MAX);
    if (source->file_count == source->file_capacity) {
        uint32_t capacity = source->file_capacity == 0 ? 8 : source->file_capacity * 2;
        void *files;
        AVO_TRY(source_take(source, capacity, sizeof(source_file), "files", &files, error));
        if (source->file_count > 0)
            memcpy(files, source->files, source->file_count * sizeof(source_file));
        source->files = files;
        source->file_capacity = capacity;
    }
    source_file *file = &source->files[source->file_count];
    AVO_TRY(source_copy_text(source, text_from(path), &file->path, error));
    if (loader->memory != NULL) {
        const memory_file *found = memory_find(loader, base_name(path));
        if (found == NULL)
            return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no such file", path);
        file->map.bytes = found->bytes;
        file->borrowed = true;
    } else {
        AVO_TRY(file_map_open(path, &file->map, error));
        file->borrowed = false;
    }
    *index = source->file_count++;
    return AVO_OK;
}

avo_status source_file_beside(source_loader *loader, const char *name, uint32_t *index,
                              avo_error *error) {
    *index = SOURCE_NO_FILE;
    char path[4096];
    AVO_TRY(file_join(path, sizeof(path), loader->folder, name, error));
    bool there = loader->memory != NULL ? memory_find(loader, name) != NULL
                                        : file_kind_of(path) != FILE_MISSING;
    return there ? source_file_open(loader, path, index, error) : AVO_OK;
}

avo_status source_json(arena *arena, bytes_view bytes, const char *file, json_value *root,
                       avo_error *error) {
    avo_status status =
        json_parse(arena, (text_view){(const char *)bytes.data, bytes.size}, root, error);
    if (status == AVO_ERROR_MEMORY && arena->limit_hit)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: too many JSON values (%zu bytes of text)",
                           file, bytes.size);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", file);
}

/* ---- Tensors ---- */

avo_status source_tensors_reserve(model_source *source, uint64_t count, avo_error *error) {
    if (count > SOURCE_TENSORS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: %llu tensors, must be at most %d",
                           source->path, (unsigned long long)count, SOURCE_TENSORS_MAX);
    if (count <= source->tensor_capacity)
        return AVO_OK;
    /* Shard after shard adds its tensors: double, so that the arena holds few old copies. */
    uint64_t doubled = 2 * (uint64_t)source->tensor_capacity;
    if (count < doubled)
        count = doubled < SOURCE_TENSORS_MAX ? doubled : SOURCE_TENSORS_MAX;
    void *tensors;
    AVO_TRY(source_take(source, (size_t)count, sizeof(source_tensor), "tensors", &tensors, error));
    if (source->tensor_count > 0)
        memcpy(tensors, source->tensors, source->tensor_count * sizeof(source_tensor));
    source->tensors = tensors;
    source->tensor_capacity = (uint32_t)count;
    return AVO_OK;
}

avo_status source_tensors_index(model_source *source, avo_error *error) {
    name_index *index = &source->tensor_index;
    if (name_index_open(index, &source->arena, source->tensor_count) != AVO_OK)
        return status_fail(error, AVO_ERROR_MEMORY, "%s: out of memory for an index of %u tensors",
                           source->path, source->tensor_count);
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        if (!name_index_add(index, NAME_COLUMN(source->tensors, source_tensor, name), i))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor \"%.*s\" appears twice",
                               source->files[tensor->file].path, TEXT_ARGUMENT(tensor->name));
    }
    return AVO_OK;
}

static int by_address(const void *left, const void *right) {
    const source_tensor *a = *(const source_tensor *const *)left;
    const source_tensor *b = *(const source_tensor *const *)right;
    if (a->data != b->data)
        return a->data < b->data ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

static avo_status cover_sorted(const source_tensor *const *sorted, uint32_t count, bytes_view data,
                               bool gapless, const char *path, avo_error *error) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const source_tensor *tensor = sorted[i];
        uint64_t begin = (uint64_t)(tensor->data - data.data);
        if (begin < at)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: tensor \"%.*s\" at data offset %llu overlaps another", path,
                               TEXT_ARGUMENT(tensor->name), (unsigned long long)begin);
        if (gapless && begin > at)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: the %llu bytes before tensor \"%.*s\" belong to no tensor",
                               path, (unsigned long long)(begin - at), TEXT_ARGUMENT(tensor->name));
        at = begin + tensor->bytes;
    }
    if (gapless && at != data.size)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %llu bytes at the end belong to no tensor",
                           path, (unsigned long long)(data.size - at));
    return AVO_OK;
}

avo_status source_tensors_cover(model_source *source, uint32_t first, bytes_view data, bool gapless,
                                const char *path, avo_error *error) {
    const avo_allocator *allocator = source->arena.allocator;
    uint32_t count = source->tensor_count - first;
    const source_tensor **sorted =
        allocator_take_array(allocator, (size_t)count + 1, sizeof(*sorted));
    if (sorted == NULL)
        return status_no_memory(error, "sorting tensors", count * sizeof(*sorted));
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &source->tensors[first + i];
    qsort(sorted, count, sizeof(*sorted), by_address);
    avo_status status = cover_sorted(sorted, count, data, gapless, path, error);
    allocator_give(allocator, sorted, ((size_t)count + 1) * sizeof(*sorted));
    return status;
}

const source_tensor *source_find(const model_source *source, text_view name) {
    size_t place = name_index_find(&source->tensor_index,
                                   NAME_COLUMN(source->tensors, source_tensor, name), name);
    return place == NAME_INDEX_NONE ? NULL : &source->tensors[place];
}

uint64_t source_tensor_elements(const source_tensor *tensor) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elements *= tensor->shape[i];
    return elements;
}

/* ---- Opening ---- */

static bool starts(bytes_view bytes, const char *magic, size_t size) {
    return bytes.size >= size && memcmp(bytes.data, magic, size) == 0;
}

/* Files that people try and that are none of ours: say what they are. */
static const char *known_stranger(bytes_view bytes) {
    static const struct {
        char magic[5];
        const char *what;
    } strangers[] = {
        {"PK\3\4", "a PyTorch or zip archive; convert it to safetensors or GGUF"},
        {"lmgg", "a GGML file older than GGUF; convert it to GGUF"},
        {"fmgg", "a GGML file older than GGUF; convert it to GGUF"},
        {"tjgg", "a GGML file older than GGUF; convert it to GGUF"},
        {"FUGG", "a big-endian GGUF; convert it to little-endian"},
        {"24ka", "a llama2.c file of version 1 or 2; only version 0 is supported"},
        {"\x80\2}q", "a Python pickle; convert it to safetensors"},
        {"vers", "a Git LFS pointer; fetch the file itself (git lfs pull)"},
    };
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
        if (starts(bytes, strangers[i].magic, 4))
            return strangers[i].what;
    return NULL;
}

static bool looks_like_safetensors(bytes_view bytes) {
    /* A length of at most 100 MB leaves the upper four bytes of its eight zero. */
    return bytes.size >= 8 && memcmp(bytes.data + 4, "\0\0\0\0", 4) == 0 &&
           (bytes.size == 8 || bytes.data[8] == '{');
}

static avo_status open_file(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    uint32_t index;
    AVO_TRY(source_file_open(loader, source->path, &index, error));
    bytes_view bytes = source_file_bytes(source, index);
    if (bytes.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the file is empty", source->path);
    if (starts(bytes, "GGUF", 4))
        return gguf_source_open(loader, error);
    if (loader->tensors_only)
        return looks_like_safetensors(bytes)
                   ? safetensors_source_open(loader, error)
                   : status_fail(error, AVO_ERROR_FORMAT, "%s: not a safetensors or GGUF file",
                                 source->path);
    if (starts(bytes, "AVO", 3) || (bytes.size >= 4 && memcmp(bytes.data + 1, "AVO", 3) == 0))
        return avo_source_open(source, error);
    const char *stranger = known_stranger(bytes);
    if (stranger != NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: the file is %s", source->path,
                           stranger);
    if (looks_like_safetensors(bytes))
        return safetensors_source_open(loader, error);
    return llama2c_source_open(loader, error);
}

/* "a/b/c" → "a/b", "c" → "." */
static avo_status folder_of(model_source *source, const char *path, const char **folder,
                            avo_error *error) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return source_copy_text(source, TEXT_LITERAL("."), folder, error);
    size_t bytes = slash == path ? 1 : (size_t)(slash - path);
    return source_copy_text(source, (text_view){path, bytes}, folder, error);
}

static avo_status open_path(source_loader *loader, const char *path, avo_error *error) {
    model_source *source = loader->source;
    AVO_TRY(source_copy_text(source, text_from(path), &source->path, error));
    file_kind kind = loader->memory != NULL ? FILE_REGULAR : file_kind_of(path);
    if (kind == FILE_MISSING)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no such file or folder", path);
    if (kind == FILE_FOLDER) {
        loader->folder = source->path;
        return safetensors_folder_open(loader, error);
    }
    AVO_TRY(folder_of(source, path, &loader->folder, error));
    return open_file(loader, error);
}

static avo_status open_with(source_loader *loader, const char *path, const avo_allocator *allocator,
                            model_source **out, avo_error *error) {
    *out = NULL;
    model_source *source = allocator_take_array(allocator, 1, sizeof(model_source));
    if (source == NULL)
        return status_no_memory(error, "a model source", sizeof(model_source));
    arena_init(&source->arena, allocator, SIZE_MAX);
    generation_defaults_init(&source->generation);
    loader->source = source;
    avo_status status = open_path(loader, path, error);
    if (status != AVO_OK) {
        source_close(source);
        return status;
    }
    *out = source;
    return AVO_OK;
}

avo_status source_open(const char *path, const avo_allocator *allocator, model_source **source,
                       avo_error *error) {
    source_loader loader = {0};
    return open_with(&loader, path, allocator, source, error);
}

avo_status source_open_memory(const memory_file *files, size_t count,
                              const avo_allocator *allocator, model_source **source,
                              avo_error *error) {
    source_loader loader = {.memory = files, .memory_count = count};
    return open_with(&loader, files[0].name, allocator, source, error);
}

avo_status source_open_tensors(bytes_view bytes, const char *name, const avo_allocator *allocator,
                               model_source **source, avo_error *error) {
    memory_file file = {base_name(name), bytes};
    source_loader loader = {.memory = &file, .memory_count = 1, .tensors_only = true};
    return open_with(&loader, name, allocator, source, error);
}

void source_close(model_source *source) {
    if (source == NULL)
        return;
    for (uint32_t i = 0; i < source->file_count; i++)
        if (!source->files[i].borrowed)
            file_map_close(&source->files[i].map);
    const avo_allocator *allocator = source->arena.allocator;
    arena_free(&source->arena);
    allocator_give(allocator, source, sizeof(model_source));
}

void source_forget(const model_source *source) {
    for (uint32_t i = 0; i < source->file_count; i++)
        if (!source->files[i].borrowed)
            file_map_forget(source->files[i].map.bytes.data, source->files[i].map.bytes.size);
}

void source_ask_huge(const model_source *source) {
    for (uint32_t i = 0; i < source->file_count; i++)
        if (!source->files[i].borrowed)
            file_map_ask_huge(&source->files[i].map);
}

avo_status source_spare(const model_source *source, const char *path, avo_error *error) {
    for (uint32_t i = 0; i < source->file_count; i++)
        if (!source->files[i].borrowed && file_is_same(source->files[i].path, path))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "%s: is a file of the model itself; choose another output", path);
    return AVO_OK;
}
