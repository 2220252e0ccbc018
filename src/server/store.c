/* The store's table, and its files on disk. */
#include "server/store.h"

#include "base/json_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES      4200
#define FACTS_BYTES_MAX ((size_t)16 << 10)
#define PREFIX          "file-"

struct store {
    pthread_mutex_t lock;
    char *folder;
    uint64_t bytes, bytes_max;
    store_file *files; /* [STORE_FILES_MAX], of which count, in order of creation */
    size_t count;
};

/* ---- Paths ---- */

static void path_of(const store *store, const char *id, const char *suffix,
                    char path[static PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s%s", store->folder, id, suffix);
}

const char *store_folder(const store *store) {
    return store->folder;
}

/* ---- Descriptions ---- */

static avo_status write_facts(const store *store, const store_file *file, avo_error *error) {
    buffer out;
    char path[PATH_BYTES];
    buffer_init(&out, NULL, FACTS_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "id", file->id);
    json_member_string(&w, "owner", file->owner);
    json_member_string(&w, "name", file->name);
    json_member_string(&w, "purpose", file->purpose);
    json_member_i64(&w, "created", file->created);
    json_member_i64(&w, "expires", file->expires);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    path_of(store, file->id, ".json", path);
    status = status != AVO_OK ? status_no_memory(error, "a file's description", out.size)
                              : file_write(path, out.data, out.size, error);
    buffer_free(&out);
    return status;
}

static bool copy_text(const json_value *object, const char *name, char *out, size_t capacity) {
    const json_value *value = json_find(object, name);
    if (value == NULL || value->kind != JSON_STRING || value->string.size >= capacity ||
        memchr(value->string.data, '\0', value->string.size) != NULL)
        return false;
    memcpy(out, value->string.data, value->string.size);
    out[value->string.size] = '\0';
    return true;
}

static bool read_facts(const store *store, const char *id, store_file *file) {
    char path[PATH_BYTES];
    arena arena;
    text_view text;
    json_value root;
    struct stat facts;
    arena_init(&arena, NULL, 16 * FACTS_BYTES_MAX);
    path_of(store, id, ".json", path);
    bool good = file_read_text(&arena, path, FACTS_BYTES_MAX, &text, NULL) == AVO_OK &&
                json_parse(&arena, text, &root, NULL) == AVO_OK && root.kind == JSON_OBJECT &&
                copy_text(&root, "id", file->id, sizeof(file->id)) &&
                copy_text(&root, "owner", file->owner, sizeof(file->owner)) &&
                copy_text(&root, "name", file->name, sizeof(file->name)) &&
                copy_text(&root, "purpose", file->purpose, sizeof(file->purpose)) &&
                json_get_integer(&root, "created", 0, INT64_MAX, &file->created, NULL) == AVO_OK &&
                json_get_integer(&root, "expires", 0, INT64_MAX, &file->expires, NULL) == AVO_OK &&
                strcmp(file->id, id) == 0;
    arena_free(&arena);
    path_of(store, id, "", path);
    good = good && stat(path, &facts) == 0 && S_ISREG(facts.st_mode);
    file->bytes = good ? (uint64_t)facts.st_size : 0;
    return good;
}

/* ---- Opening ---- */

static int by_creation(const void *a, const void *b) {
    const store_file *left = a, *right = b;
    if (left->created != right->created)
        return left->created < right->created ? -1 : 1;
    return strcmp(left->id, right->id);
}

static void remove_files(const store *store, const char *id) {
    char path[PATH_BYTES];
    path_of(store, id, ".json", path); /* first: what is left without it is removed at the start */
    (void)unlink(path);
    path_of(store, id, "", path);
    (void)unlink(path);
}

/* "file-ID" of this store: letters and digits. */
static bool is_id(const char *name) {
    size_t size = strlen(name), prefix = strlen(PREFIX);
    return strncmp(name, PREFIX, prefix) == 0 && size > prefix && size < STORE_ID_MAX &&
           strspn(name + prefix, "0123456789abcdef") == size - prefix;
}

/* Bytes without a description were being uploaded when the server stopped. */
static void look_at(store *store, const char *name, uint32_t *damaged) {
    char path[PATH_BYTES];
    if (!is_id(name))
        return;
    store_file *file = &store->files[store->count];
    memset(file, 0, sizeof(*file));
    path_of(store, name, ".json", path);
    if (file_kind_of(path) == FILE_MISSING) {
        remove_files(store, name);
    } else if (store->count < STORE_FILES_MAX && read_facts(store, name, file)) {
        store->bytes += file->bytes;
        store->count++;
    } else {
        ++*damaged;
    }
}

avo_status store_open(const char *folder, uint64_t bytes_max, store **out, uint32_t *damaged,
                      avo_error *error) {
    store *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "the store", sizeof(*opened));
    pthread_mutex_init(&opened->lock, NULL);
    opened->folder = strdup(folder);
    opened->files = calloc(STORE_FILES_MAX + 1, sizeof(*opened->files));
    opened->bytes_max = bytes_max;
    DIR *list = opened->folder == NULL || opened->files == NULL ? NULL : opendir(folder);
    if (list == NULL) {
        avo_status status =
            opened->files == NULL || opened->folder == NULL
                ? status_no_memory(error, "the store", STORE_FILES_MAX * sizeof(store_file))
                : status_fail(error, AVO_ERROR_IO, "%s: %s", folder, strerror(errno));
        store_close(opened);
        return status;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        look_at(opened, entry->d_name, damaged);
    closedir(list);
    qsort(opened->files, opened->count, sizeof(*opened->files), by_creation);
    *out = opened;
    return AVO_OK;
}

void store_close(store *store) {
    if (store == NULL)
        return;
    pthread_mutex_destroy(&store->lock);
    free(store->files);
    free(store->folder);
    free(store);
}

/* ---- The table; the lock is held ---- */

static store_file *find(store *store, const char *id) {
    for (size_t i = 0; i < store->count; i++)
        if (strcmp(store->files[i].id, id) == 0)
            return &store->files[i];
    return NULL;
}

static avo_status take_room(store *store, const char *owner, uint64_t bytes, bool fresh,
                            avo_error *error) {
    uint64_t own = bytes;
    size_t files = fresh;
    for (size_t i = 0; i < store->count; i++)
        if (strcmp(store->files[i].owner, owner) == 0) {
            own += store->files[i].bytes;
            files++;
        }
    if (store->count + fresh > STORE_FILES_MAX || files > STORE_KEY_FILES_MAX)
        return status_fail(error, AVO_ERROR_FULL,
                           "there are too many files (at most %d, %d of one key); delete some",
                           STORE_FILES_MAX, STORE_KEY_FILES_MAX);
    bool shared = owner[0] != '\0';
    if (store->bytes + bytes > store->bytes_max || (shared && own > store->bytes_max / 2))
        return status_fail(error, AVO_ERROR_FULL,
                           "no room for %llu bytes: all files together may have %llu, those of "
                           "one key half of it; delete some",
                           (unsigned long long)bytes, (unsigned long long)store->bytes_max);
    store->bytes += bytes;
    return AVO_OK;
}

static void forget(store *store, store_file *file) {
    size_t at = (size_t)(file - store->files);
    store->bytes -= file->bytes;
    store->count--;
    memmove(file, file + 1, (store->count - at) * sizeof(*file));
}

/* ---- Files ---- */

/* The bytes first: a description stands for a whole file. */
avo_status store_add(store *store, const store_file *facts, text_view data, avo_error *error) {
    char path[PATH_BYTES];
    if (data.size > STORE_FILE_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the file has %zu bytes, must have at most %llu",
                           data.size, (unsigned long long)STORE_FILE_BYTES_MAX);
    pthread_mutex_lock(&store->lock);
    avo_status status = take_room(store, facts->owner, data.size, true, error);
    if (status == AVO_OK) { /* its place; nobody knows its id yet */
        store->files[store->count] = *facts;
        store->files[store->count].bytes = data.size;
        store->count++;
    }
    pthread_mutex_unlock(&store->lock);
    AVO_TRY(status);
    path_of(store, facts->id, "", path);
    status = file_write(path, data.size == 0 ? "" : data.data, data.size, error);
    AVO_THEN(status, write_facts(store, facts, error));
    if (status != AVO_OK)
        (void)store_remove(store, facts->owner, facts->id);
    return status;
}

static avo_status append_bytes(const char *path, text_view data, avo_error *error) {
    int descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    size_t at = 0;
    while (descriptor >= 0 && at < data.size) {
        ssize_t written = write(descriptor, data.data + at, data.size - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        at += (size_t)written;
    }
    avo_status status = AVO_OK;
    if (descriptor < 0 || at < data.size)
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

avo_status store_append(store *store, const char *id, text_view data, avo_error *error) {
    char path[PATH_BYTES];
    pthread_mutex_lock(&store->lock);
    store_file *file = find(store, id);
    avo_status status = file == NULL ? status_fail(error, AVO_ERROR_NOT_FOUND, "no file %s", id)
                                     : take_room(store, file->owner, data.size, false, error);
    if (status == AVO_OK && file->bytes + data.size > STORE_FILE_BYTES_MAX) {
        store->bytes -= data.size;
        status = status_fail(error, AVO_ERROR_FULL, "a file has at most %llu bytes",
                             (unsigned long long)STORE_FILE_BYTES_MAX);
    }
    if (status == AVO_OK)
        file->bytes += data.size;
    pthread_mutex_unlock(&store->lock);
    AVO_TRY(status);
    path_of(store, id, "", path);
    return append_bytes(path, data, error);
}

avo_status store_cut(store *store, const char *id, uint64_t bytes, avo_error *error) {
    char path[PATH_BYTES];
    path_of(store, id, "", path);
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    int fault = descriptor < 0 ? -1 : ftruncate(descriptor, (off_t)bytes);
    avo_status status = AVO_OK;
    if (fault != 0)
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot cut: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    AVO_TRY(status);
    pthread_mutex_lock(&store->lock);
    store_file *file = find(store, id);
    if (file != NULL) {
        store->bytes = store->bytes - file->bytes + bytes;
        file->bytes = bytes;
    }
    pthread_mutex_unlock(&store->lock);
    return AVO_OK;
}

bool store_find(store *store, const char *owner, const char *id, store_file *found) {
    pthread_mutex_lock(&store->lock);
    const store_file *file = find(store, id);
    bool there = file != NULL && strcmp(file->owner, owner) == 0;
    if (there)
        *found = *file;
    pthread_mutex_unlock(&store->lock);
    return there;
}

avo_status store_map(store *store, const char *id, file_map *map, avo_error *error) {
    char path[PATH_BYTES];
    path_of(store, id, "", path);
    return file_map_open(path, map, error);
}

bool store_remove(store *store, const char *owner, const char *id) {
    pthread_mutex_lock(&store->lock);
    store_file *file = find(store, id);
    bool there = file != NULL && strcmp(file->owner, owner) == 0;
    if (there) {
        remove_files(store, id);
        forget(store, file);
    }
    pthread_mutex_unlock(&store->lock);
    return there;
}

int64_t store_expire(store *store, int64_t now, bool (*keep)(void *context, const char *id),
                     void *context) {
    int64_t next = 0;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->count;) {
        store_file *file = &store->files[i];
        if (file->expires <= now && !keep(context, file->id)) {
            remove_files(store, file->id);
            forget(store, file);
            continue;
        }
        if (file->expires > now && (next == 0 || file->expires < next))
            next = file->expires;
        i++;
    }
    pthread_mutex_unlock(&store->lock);
    return next;
}

bool store_list(store *store, const char *owner, const char *purpose, const char *after,
                size_t index, store_file *found) {
    bool there = false, behind = after == NULL;
    pthread_mutex_lock(&store->lock);
    for (size_t i = store->count; i > 0 && !there; i--) {
        const store_file *file = &store->files[i - 1];
        if (strcmp(file->owner, owner) != 0)
            continue;
        if (behind && (purpose == NULL || strcmp(file->purpose, purpose) == 0) && index-- == 0) {
            *found = *file;
            there = true;
        }
        behind = behind || strcmp(file->id, after) == 0;
    }
    pthread_mutex_unlock(&store->lock);
    return there;
}
