/* Opening by content. */
#include "adapters/adapters_int.h"

#include "base/float_mode.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- One adapter from bytes ---- */

avo_status adapter_admit(const adapter_options *options, const avo_adapter *adapter, uint64_t more,
                         avo_error *error) {
    const struct adapter_storage *storage = adapter->storage;
    uint64_t bytes = sizeof(*adapter) + sizeof(*storage) + storage->arena.used_bytes + more;
    return options->admit == NULL ? AVO_OK : options->admit(options->admit_context, bytes, error);
}

/* A zip archive as PyTorch writes it, or the protocol byte of a pickle; not the length of a
 * safetensors header that looks like one. */
static bool is_pickle(bytes_view bytes) {
    if (bytes.size < 9 || bytes.data[8] == '{')
        return false;
    return memcmp(bytes.data, "PK\3\4", 4) == 0 ||
           (bytes.data[0] == 0x80 && bytes.data[1] >= 2 && bytes.data[1] <= 5);
}

static avo_status read_draft(avo_adapter *adapter, bytes_view config, bytes_view weights,
                             const adapter_options *options, arena *scratch, model_source **source,
                             avo_error *error) {
    const adapter_base *base = &adapter->storage->base;
    if (is_pickle(weights))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: refusing to read a Python pickle; save the adapter as safetensors",
                           adapter->path);
    AVO_TRY(source_open_tensors(weights, adapter->path, adapter->allocator, source, error));
    adapter_draft draft = {.base = base,
                           .path = adapter->path,
                           .arena = scratch,
                           .module_count = module_count(base->config)};
    draft.modules = arena_take_array(scratch, draft.module_count, sizeof(*draft.modules));
    if (draft.modules == NULL)
        return status_no_memory(error, "modules", draft.module_count * sizeof(*draft.modules));
    if ((*source)->format == SOURCE_GGUF) {
        AVO_TRY(gguf_adapter_read(&draft, *source, error));
    } else {
        if (config.size == 0)
            return status_fail(error, AVO_ERROR_NOT_FOUND,
                               "%s: this is one file of a PEFT adapter; give the folder that "
                               "contains " ADAPTER_CONFIG_NAME "",
                               adapter->path);
        peft_config peft;
        char shown[4096];
        AVO_TRY(file_join(shown, sizeof(shown), adapter->path, ADAPTER_CONFIG_NAME, error));
        AVO_TRY(peft_config_read(scratch, config, shown, &peft, error));
        AVO_TRY(peft_read(&draft, *source, &peft, adapter->allocator, error));
    }
    AVO_TRY(draft_check(&draft, error));
    return adapter_build(&draft, options, adapter, error);
}

static avo_status open_bytes(avo_adapter *adapter, bytes_view config, bytes_view weights,
                             const adapter_options *options, avo_error *error) {
    if (packed_is(weights)) {
        AVO_TRY(adapter_admit(options, adapter, weights.size, error));
        return packed_open(adapter, weights, error);
    }
    arena scratch;
    model_source *source = NULL;
    arena_init(&scratch, adapter->allocator, SIZE_MAX);
    avo_status status = read_draft(adapter, config, weights, options, &scratch, &source, error);
    source_close(source);
    arena_free(&scratch);
    AVO_TRY(status);
    const adapter_base *base = &adapter->storage->base;
    adapter->type = options->type == QUANT_Q8C ? "q8" : quant_name(options->type);
    adapter_sum_up(adapter, base->view->layers);
    adapter_digest(&adapter->view, base->view->layers, base->view, adapter->view.digest);
    return AVO_OK;
}

/* ---- The object ---- */

static void close_adapter(avo_adapter *adapter) {
    struct adapter_storage *storage = adapter->storage;
    const avo_allocator *allocator = adapter->allocator;
    if (storage != NULL) {
        region_close(&storage->region);
        file_map_close(&storage->map);
        (void)pthread_mutex_destroy(&storage->mutex);
        arena_free(&storage->arena);
        allocator_give(allocator, storage, sizeof(*storage));
    }
    allocator_give(allocator, adapter, sizeof(*adapter));
}

static avo_status take_adapter(const adapter_base *base, const char *shown,
                               const avo_allocator *allocator, avo_adapter **out,
                               avo_error *error) {
    avo_adapter *adapter = allocator_take_array(allocator, 1, sizeof(*adapter));
    if (adapter == NULL)
        return status_no_memory(error, "an adapter", sizeof(*adapter));
    adapter->allocator = allocator;
    adapter->references = 1;
    adapter->close = close_adapter;
    adapter->config = base->config;
    adapter->storage = allocator_take_array(allocator, 1, sizeof(*adapter->storage));
    if (adapter->storage == NULL || pthread_mutex_init(&adapter->storage->mutex, NULL) != 0) {
        allocator_give(allocator, adapter->storage, sizeof(*adapter->storage));
        allocator_give(allocator, adapter, sizeof(*adapter));
        return status_no_memory(error, "an adapter", sizeof(*adapter->storage));
    }
    arena_init(&adapter->storage->arena, allocator, SIZE_MAX);
    adapter->storage->base = *base;
    adapter->path = arena_copy_text(&adapter->storage->arena, shown, strlen(shown));
    if (adapter->path == NULL) {
        close_adapter(adapter);
        return status_no_memory(error, "a path", strlen(shown));
    }
    *out = adapter;
    return AVO_OK;
}

static avo_status check_options(const adapter_options *given, adapter_options *own,
                                avo_error *error) {
    *own = given == NULL ? (adapter_options){.type = QUANT_Q8C} : *given;
    if (own->type == QUANT_Q8C || own->type == QUANT_F16 || own->type == QUANT_F32)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "adapter type must be q8, f16 or f32, not %s",
                       quant_name(own->type));
}

static void count_memory(avo_adapter *adapter) {
    const struct adapter_storage *storage = adapter->storage;
    adapter->memory_bytes =
        sizeof(*adapter) + sizeof(*storage) + storage->arena.used_bytes + storage->region.bytes;
}

avo_status adapter_open_memory(const adapter_base *base, bytes_view config, bytes_view weights,
                               const char *shown, const adapter_options *options,
                               const avo_allocator *allocator, avo_adapter **out,
                               avo_error *error) {
    *out = NULL;
    adapter_options own;
    avo_adapter *adapter = NULL;
    AVO_TRY(check_options(options, &own, error));
    AVO_TRY(take_adapter(base, shown, allocator, &adapter, error));
    float_mode mode;
    float_mode_enter(&mode);
    avo_status status = open_bytes(adapter, config, weights, &own, error);
    float_mode_leave(&mode);
    if (status != AVO_OK) {
        close_adapter(adapter);
        return status;
    }
    count_memory(adapter);
    *out = adapter;
    return AVO_OK;
}

/* ---- Files ---- */

avo_status adapter_no_config(const char *shown, avo_error *error) {
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "%s: the folder has no " ADAPTER_CONFIG_NAME "; it is not a PEFT adapter",
                       shown);
}

avo_status adapter_no_weights(const char *shown, bool pickle, avo_error *error) {
    return pickle ? status_fail(error, AVO_ERROR_UNSUPPORTED,
                                "%s: refusing to read " ADAPTER_PICKLE_NAME
                                ", a Python pickle; save the adapter as safetensors",
                                shown)
                  : status_fail(error, AVO_ERROR_NOT_FOUND,
                                "%s: the folder has no " ADAPTER_WEIGHTS_NAME, shown);
}

/* What fails is named as the caller knows it, and not as it is opened. */
static avo_status map_file(const char *path, const char *shown, file_map *map, avo_error *error) {
    avo_error own = {0};
    avo_status status = file_map_open(path, map, &own);
    if (status == AVO_OK)
        return AVO_OK;
    size_t known = strlen(path);
    return strncmp(own.text, path, known) == 0
               ? status_fail(error, status, "%s%s", shown, own.text + known)
               : status_fail(error, status, "%s", own.text);
}

/* A packed file is used where it lies, and remembered by its real name: the one it was opened by
 * may be a descriptor's, or one of a folder that the process leaves. */
static avo_status keep_map(avo_adapter *adapter, const char *path, file_map *map,
                           avo_error *error) {
    char real[PATH_MAX];
    struct adapter_storage *storage = adapter->storage;
    if (realpath(path, real) != NULL) {
        storage->map_path = arena_copy_text(&storage->arena, real, strlen(real));
        if (storage->map_path == NULL)
            return status_no_memory(error, "a path", strlen(real));
        count_memory(adapter);
    }
    storage->map = *map;
    adapter->map_key = hash_bytes(&map->stamp, sizeof(map->stamp)) | 1;
    *map = (file_map){0};
    return AVO_OK;
}

/* After all has been read. */
static bool files_changed(const adapter_files *files, const file_map *config,
                          const file_map *weights) {
    char config_now[4096], weights_now[4096];
    avo_error error;
    if (files->folder == NULL)
        return file_was_written(files->weights, &weights->stamp);
    return file_join(config_now, sizeof(config_now), files->folder, ADAPTER_CONFIG_NAME, &error) !=
               AVO_OK ||
           file_join(weights_now, sizeof(weights_now), files->folder, ADAPTER_WEIGHTS_NAME,
                     &error) != AVO_OK ||
           !file_is_stamped(config_now, &config->stamp) ||
           !file_is_stamped(weights_now, &weights->stamp);
}

avo_status adapter_open_files(const adapter_base *base, adapter_files *files,
                              const adapter_options *options, const avo_allocator *allocator,
                              avo_adapter **out, avo_error *error) {
    *out = NULL;
    file_map config = {0}, weights = {0};
    if (files->config != NULL)
        AVO_TRY(map_file(files->config, files->config_shown, &config, error));
    if (files->config != NULL && config.bytes.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the file is empty", files->config_shown);
    avo_status status = map_file(files->weights, files->weights_shown, &weights, error);
    if (status == AVO_OK && weights.bytes.size == 0)
        status =
            status_fail(error, AVO_ERROR_FORMAT, "%s: the weights file is empty", files->shown);
    AVO_THEN(status, adapter_open_memory(base, config.bytes, weights.bytes, files->shown, options,
                                         allocator, out, error));
    files->changed = weights.bytes.size > 0 && files_changed(files, &config, &weights);
    if (files->changed) /* whatever came of it */
        status = status_fail(error, AVO_ERROR_FORMAT,
                             "%s: changed while it was read; write a new file and rename it",
                             files->shown);
    if (status == AVO_OK && packed_is(weights.bytes))
        status = keep_map(*out, files->weights, &weights, error);
    if (status != AVO_OK) {
        adapter_release(*out);
        *out = NULL;
    }
    file_map_close(&weights);
    file_map_close(&config);
    return status;
}

avo_status adapter_check_file(const avo_adapter *adapter, avo_error *error) {
    const struct adapter_storage *storage = adapter->storage;
    if (storage == NULL || storage->map_path == NULL ||
        !file_was_written(storage->map_path, &storage->map.stamp))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: changed on disk since it was opened; load it again (write a new file "
                       "and rename it, as `avocet adapter pack` does)",
                       adapter->path);
}

/* A folder is resolved once, so that both files are of one and the same, whatever a link on the way
 * to it means a moment later. */
static avo_status open_folder(const adapter_base *base, const char *path, int descriptor,
                              adapter_files *files, const adapter_options *options,
                              const avo_allocator *allocator, avo_adapter **out, avo_error *error) {
    char place[32], config[4096], weights[4096], config_shown[4096], weights_shown[4096];
    snprintf(place, sizeof(place), "/proc/self/fd/%d", descriptor);
    files->folder = file_kind_of(place) == FILE_FOLDER ? place : path; /* where there is no /proc */
    AVO_TRY(file_join(config, sizeof(config), files->folder, ADAPTER_CONFIG_NAME, error));
    AVO_TRY(file_join(weights, sizeof(weights), files->folder, ADAPTER_WEIGHTS_NAME, error));
    AVO_TRY(file_join(config_shown, sizeof(config_shown), path, ADAPTER_CONFIG_NAME, error));
    AVO_TRY(file_join(weights_shown, sizeof(weights_shown), path, ADAPTER_WEIGHTS_NAME, error));
    if (file_kind_of(config) == FILE_MISSING)
        return adapter_no_config(path, error);
    if (file_kind_of(weights) == FILE_MISSING) {
        char pickle[4096];
        AVO_TRY(file_join(pickle, sizeof(pickle), files->folder, ADAPTER_PICKLE_NAME, error));
        return adapter_no_weights(path, file_kind_of(pickle) != FILE_MISSING, error);
    }
    files->config = config;
    files->config_shown = config_shown;
    files->weights = weights;
    files->weights_shown = weights_shown;
    return adapter_open_files(base, files, options, allocator, out, error);
}

static avo_status open_once(const adapter_base *base, const char *path,
                            const adapter_options *options, const avo_allocator *allocator,
                            bool *changed, avo_adapter **out, avo_error *error) {
    adapter_files files = {.shown = path, .weights = path, .weights_shown = path};
    avo_status status;
    int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        status = open_folder(base, path, folder, &files, options, allocator, out, error);
        (void)close(folder);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        status = file_kind_of(path) == FILE_MISSING
                     ? status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no such file or folder", path)
                     : adapter_open_files(base, &files, options, allocator, out, error);
    } else {
        status = status_fail(error, AVO_ERROR_IO, "%s: %s", path, strerror(errno));
    }
    *changed = files.changed;
    return status;
}

avo_status adapter_open(const adapter_base *base, const char *path, const adapter_options *options,
                        const avo_allocator *allocator, avo_adapter **out, avo_error *error) {
    *out = NULL;
    bool changed = false;
    avo_status status = open_once(base, path, options, allocator, &changed, out, error);
    return changed ? open_once(base, path, options, allocator, &changed, out, error) : status;
}
