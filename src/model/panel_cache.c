/* Finding, checking and writing a model's panels on disk. */
#include "model/panel_cache.h"

#include "base/allocator.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct panel_cache {
    const avo_allocator *allocator;
    const model_source *source;
    panel_cache_options options;
    char folder[PANEL_PATH_MAX], file_path[PANEL_PATH_MAX];
    char model_path[PANEL_PATH_MAX];
    panel_origin origin; /* without a digest before it is needed */
    weights_keeper keeper;
    file_map map; /* of a file that was made from this model */
    panel_file file;
    atomic_bool rejected;
    /* The writer: used by its thread, and by close once the thread has ended. */
    panel_writer writer;
    bool writing; /* there is a writer, and it has not failed and is not done */
    pthread_t thread;
    bool offered, started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_bool begun, stopped; /* set under the mutex */
};

static void note(const panel_cache *cache, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(const panel_cache *cache, const char *format, ...) {
    char line[PANEL_PATH_MAX + 256];
    if (cache->options.log == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    cache->options.log(cache->options.log_context, line);
}

void panel_cache_name(const char *path, char name[48]) {
    uint64_t key[2];
    hash_key_wide_seeded(path, strlen(path), 0, key);
    snprintf(name, 48, "%016" PRIx64 "%016" PRIx64 PANEL_CACHE_ENDING, key[1], key[0]);
}

/* ---- The model ---- */

/* The files as they were when they were opened, and the program that repacks. */
static void take_stamps(panel_cache *cache) {
    hash_stream stream;
    const model_source *source = cache->source;
    hash_wide_begin(&stream);
    hash_stream_add(&stream, avo_version(), strlen(avo_version()) + 1);
    for (uint32_t i = 0; i < source->file_count; i++) {
        const source_file *file = &source->files[i];
        const file_stamp *stamp = &file->map.stamp;
        const uint64_t numbers[] = {stamp->device,
                                    stamp->inode,
                                    stamp->size,
                                    (uint64_t)stamp->seconds,
                                    (uint64_t)stamp->nanoseconds,
                                    (uint64_t)stamp->changed_seconds,
                                    (uint64_t)stamp->changed_nanoseconds};
        hash_stream_add(&stream, file->path, strlen(file->path) + 1);
        hash_stream_add(&stream, numbers, sizeof(numbers));
    }
    hash_wide_sum(&stream, cache->origin.stamps);
}

static bool name_everything(panel_cache *cache) {
    char name[48], real[PATH_MAX];
    avo_error error;
    if (realpath(cache->source->path, real) == NULL || strlen(real) >= sizeof(cache->model_path) ||
        strlen(cache->options.folder) >= sizeof(cache->folder))
        return false;
    memcpy(cache->model_path, real, strlen(real) + 1);
    memcpy(cache->folder, cache->options.folder, strlen(cache->options.folder) + 1);
    cache->options.folder = cache->folder;
    cache->origin.path = cache->model_path;
    panel_cache_name(real, name);
    return file_join(cache->file_path, sizeof(cache->file_path), cache->folder, name, &error) ==
           AVO_OK;
}

/* ---- Finding ---- */

/* A file of somebody else, or one that others can write, may hold anything. */
static bool is_ours(const panel_cache *cache) {
    struct stat info;
    if (lstat(cache->file_path, &info) != 0)
        return false;
    bool ours = S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
                (info.st_mode & 022) == 0;
    if (!ours)
        note(cache, "panels: %s is not a file that only its user can write; ignored",
             cache->file_path);
    return ours;
}

static avo_status read_file(panel_cache *cache, avo_error *error) {
    AVO_TRY(panel_file_parse(cache->map.bytes, cache->file_path, &cache->file, error));
    cache->origin.digest = source_digest(cache->source);
    return panel_file_check(&cache->file, &cache->origin, cache->file_path, error);
}

static void find_file(panel_cache *cache) {
    avo_error error;
    if (!is_ours(cache))
        return;
    avo_status status = file_map_open(cache->file_path, &cache->map, &error);
    AVO_THEN(status, read_file(cache, &error));
    if (status == AVO_OK) {
        file_map_ask_huge(&cache->map);
        (void)utimensat(AT_FDCWD, cache->file_path, NULL, AT_SYMLINK_NOFOLLOW); /* used now */
        note(cache, "panels: found %s (%llu MiB)", cache->file_path,
             (unsigned long long)cache->file.layout.bytes >> 20);
        return;
    }
    note(cache, "panels: %s; ignored", error.text);
    file_map_close(&cache->map);
}

static const uint8_t *find(void *context, const weights_layout *layout) {
    const panel_cache *cache = context;
    const weights_layout *own = &cache->file.layout;
    if (cache->map.bytes.data == NULL || atomic_load(&cache->rejected))
        return NULL;
    bool same = own->bytes == layout->bytes && own->key[0] == layout->key[0] &&
                own->key[1] == layout->key[1];
    return same ? cache->file.panels : NULL;
}

static uint32_t pieces(void *context) {
    const panel_cache *cache = context;
    return cache->file.pieces;
}

static bool is_right(void *context, uint32_t piece) {
    const panel_cache *cache = context;
    return panel_file_is_right(&cache->file, piece);
}

static void reject(void *context) {
    panel_cache *cache = context;
    atomic_store(&cache->rejected, true);
    note(cache, "panels: %s: a sum of its panels is wrong; ignored", cache->file_path);
}

/* ---- Writing ---- */

static bool make_folder(const char *path) {
    char part[PANEL_PATH_MAX];
    size_t bytes = strlen(path);
    memcpy(part, path, bytes + 1);
    for (size_t i = 1; i <= bytes; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char end = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST && file_kind_of(part) != FILE_FOLDER)
            return false;
        part[i] = end;
    }
    return true;
}

static bool make_room(const panel_cache *cache) {
    uint64_t bytes;
    const char *name = strrchr(cache->file_path, '/') + 1;
    if (!panel_file_bytes(&cache->origin, &cache->writer.layout, &bytes))
        return false;
    if (!make_folder(cache->folder)) {
        note(cache, "panels: %s: cannot create the folder: %s; not kept", cache->folder,
             strerror(errno));
        return false;
    }
    if (panel_cache_trim(cache->folder, name, bytes, cache->options.bytes_max))
        return true;
    note(cache, "panels: %s: %llu MiB do not fit the cache or the disk; not kept", cache->folder,
         (unsigned long long)bytes >> 20);
    return false;
}

/* One piece; the first one makes room. */
static void write_step(panel_cache *cache) {
    panel_writer *writer = &cache->writer;
    avo_error error = {0};
    bool done = false;
    if (writer->descriptor < 0 && !make_room(cache)) {
        cache->writing = false;
        return;
    }
    avo_status status = panel_writer_step(writer, &done, &error);
    cache->writing = status == AVO_OK && !done;
    if (done)
        note(cache, "panels: wrote %s (%llu MiB)", writer->path,
             (unsigned long long)writer->layout.bytes >> 20);
    else if (status != AVO_OK)
        note(cache, "panels: %s; not kept", error.text);
    if (status != AVO_OK)
        panel_writer_close(writer);
}

static void *write_behind(void *context) {
    panel_cache *cache = context;
    struct sched_param none = {0};
    pthread_mutex_lock(&cache->mutex);
    while (!atomic_load(&cache->begun) && !atomic_load(&cache->stopped))
        pthread_cond_wait(&cache->changed, &cache->mutex);
    pthread_mutex_unlock(&cache->mutex);
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    while (cache->writing && !atomic_load(&cache->stopped))
        write_step(cache);
    return NULL;
}

static void offer(void *context, const weights_layout *layout, const uint8_t *data) {
    panel_cache *cache = context;
    avo_error error;
    if (cache->options.bytes_max == 0 || layout->bytes < cache->options.bytes_min || cache->offered)
        return;
    cache->offered = true;
    if (cache->origin.digest == 0)
        cache->origin.digest = source_digest(cache->source);
    if (panel_writer_open(&cache->writer, cache->allocator, &cache->origin, layout, data,
                          cache->file_path, &error) != AVO_OK) {
        note(cache, "panels: %s; not kept", error.text);
        return;
    }
    cache->writing = true;
    cache->started = pthread_create(&cache->thread, NULL, write_behind, cache) == 0;
}

static void set(panel_cache *cache, atomic_bool *flag) {
    pthread_mutex_lock(&cache->mutex);
    atomic_store(flag, true);
    pthread_cond_signal(&cache->changed);
    pthread_mutex_unlock(&cache->mutex);
}

void panel_cache_begin(panel_cache *cache) {
    if (cache != NULL && !atomic_load_explicit(&cache->begun, memory_order_relaxed))
        set(cache, &cache->begun);
}

/* ---- The object ---- */

panel_cache *panel_cache_open(const avo_allocator *allocator, const model_source *source,
                              const panel_cache_options *options) {
    panel_cache *cache = allocator_take_array(allocator, 1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->allocator = allocator;
    cache->source = source;
    cache->options = *options;
    cache->writer.descriptor = -1;
    if (!name_everything(cache)) {
        allocator_give(allocator, cache, sizeof(*cache));
        return NULL;
    }
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->changed, NULL);
    cache->keeper = (weights_keeper){find, pieces, is_right, reject, offer, cache};
    take_stamps(cache);
    find_file(cache);
    return cache;
}

const weights_keeper *panel_cache_keeper(const panel_cache *cache) {
    return cache != NULL ? &cache->keeper : NULL;
}

void panel_cache_close(panel_cache *cache) {
    if (cache == NULL)
        return;
    set(cache, &cache->stopped);
    if (cache->started)
        pthread_join(cache->thread, NULL);
    while (cache->writing && atomic_load(&cache->begun)) /* at this thread's priority */
        write_step(cache);
    panel_writer_close(&cache->writer);
    file_map_close(&cache->map);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->mutex);
    allocator_give(cache->allocator, cache, sizeof(*cache));
}
