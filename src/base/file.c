/* Mapping, joining paths, and writing through a temporary file. */
#include "base/file.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITER_BUFFER_BYTES ((size_t)1 << 20)
#define WRITER_NAMES_MAX    1000

static file_stamp stamp_of(const struct stat *info) {
    return (file_stamp){.device = (uint64_t)info->st_dev,
                        .inode = (uint64_t)info->st_ino,
                        .size = (uint64_t)info->st_size,
                        .seconds = info->st_mtim.tv_sec,
                        .nanoseconds = info->st_mtim.tv_nsec,
                        .changed_seconds = info->st_ctim.tv_sec,
                        .changed_nanoseconds = info->st_ctim.tv_nsec};
}

bool file_stamp_read(const char *path, file_stamp *stamp) {
    struct stat info;
    *stamp = (file_stamp){0};
    if (stat(path, &info) != 0)
        return false;
    *stamp = stamp_of(&info);
    return true;
}

bool file_was_written(const char *path, const file_stamp *stamp) {
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    file_stamp now = stamp_of(&info);
    return now.device == stamp->device && now.inode == stamp->inode &&
           (now.size != stamp->size || now.seconds != stamp->seconds ||
            now.nanoseconds != stamp->nanoseconds);
}

bool file_is_stamped(const char *path, const file_stamp *stamp) {
    file_stamp now;
    return file_stamp_read(path, &now) && now.device == stamp->device &&
           now.inode == stamp->inode && now.size == stamp->size && now.seconds == stamp->seconds &&
           now.nanoseconds == stamp->nanoseconds;
}

avo_status file_map_open(const char *path, file_map *map, avo_error *error) {
    *map = (file_map){0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return status_fail(error, errno == ENOENT ? AVO_ERROR_NOT_FOUND : AVO_ERROR_IO,
                           "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    avo_status status = AVO_OK;
    if (fstat(descriptor, &info) != 0) {
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = status_fail(error, AVO_ERROR_IO, "%s: not a regular file", path);
    } else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (data == MAP_FAILED)
            status = status_fail(error, errno == ENOMEM ? AVO_ERROR_MEMORY : AVO_ERROR_IO,
                                 "%s: cannot map: %s", path, strerror(errno));
        else
            map->bytes = (bytes_view){data, (size_t)info.st_size};
        map->stamp = stamp_of(&info);
    }
    close(descriptor);
    return status;
}

void file_map_close(file_map *map) {
    if (map->bytes.data != NULL)
        munmap((void *)(uintptr_t)map->bytes.data, map->bytes.size);
    map->bytes = (bytes_view){NULL, 0};
}

avo_status file_read_text(arena *arena, const char *path, size_t most, text_view *text,
                          avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = AVO_OK;
    char *copy = NULL;
    size_t bytes = map.bytes.size;
    if (bytes > most)
        status = status_fail(error, AVO_ERROR_LIMIT, "%s has %zu bytes, must have at most %zu",
                             path, bytes, most);
    else if ((copy = arena_copy_text(arena, (const char *)map.bytes.data, bytes)) == NULL)
        status = status_no_memory(error, path, bytes);
    *text = (text_view){copy, bytes};
    file_map_close(&map);
    return status;
}

void file_map_forget(const uint8_t *data, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void file_map_ask_huge(const file_map *map) {
    if (map->bytes.data != NULL)
        (void)madvise((void *)(uintptr_t)map->bytes.data, map->bytes.size, MADV_HUGEPAGE);
}

file_kind file_kind_of(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) /* what may not be looked at is there: opening it says why not */
        return errno == EACCES ? FILE_OTHER : FILE_MISSING;
    if (S_ISREG(info.st_mode))
        return FILE_REGULAR;
    return S_ISDIR(info.st_mode) ? FILE_FOLDER : FILE_OTHER;
}

bool file_is_same(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

avo_status file_join(char *path, size_t capacity, const char *folder, const char *name,
                     avo_error *error) {
    size_t folder_bytes = strlen(folder);
    const char *slash = folder_bytes > 0 && folder[folder_bytes - 1] == '/' ? "" : "/";
    int length = snprintf(path, capacity, "%s%s%s", folder, slash, name);
    if (length < 0 || (size_t)length >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the path is too long (at most %zu bytes): %.200s…", capacity - 1,
                           folder);
    return AVO_OK;
}

avo_status file_make_folder(const char *path, avo_error *error) {
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && file_kind_of(path) == FILE_FOLDER))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_IO, "%s: cannot create the folder: %s", path,
                       strerror(errno));
}

avo_status file_beside_program(char *path, size_t capacity, const char *below, avo_error *error) {
    char program[4096];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[bytes < 0 ? 0 : bytes] = '\0';
    char *slash = strrchr(program, '/');
    if (slash == NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "/proc/self/exe: cannot read which file this program is");
    *slash = '\0';
    for (; strncmp(below, "../", 3) == 0 && (slash = strrchr(program, '/')) != NULL; below += 3)
        *slash = '\0';
    return file_join(path, capacity, program, below, error);
}

text_view file_last_part(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return (text_view){path + begin, end - begin};
}

/* Where the file will stand: a link is followed, so that it goes on pointing there; a device, a
 * pipe or a folder is never replaced. */
static avo_status writer_target(file_writer *writer, const char *path, avo_error *error) {
    struct stat info;
    if (strlen(path) >= sizeof(writer->path))
        return status_fail(error, AVO_ERROR_LIMIT, "the path is too long: %.200s…", path);
    memcpy(writer->path, path, strlen(path) + 1);
    if (lstat(path, &info) != 0)
        return AVO_OK;
    if (S_ISLNK(info.st_mode)) {
        _Static_assert(sizeof(writer->path) >= PATH_MAX, "realpath writes up to PATH_MAX bytes");
        if (realpath(path, writer->path) == NULL)
            return status_fail(error, AVO_ERROR_IO, "%s: the link has no target; remove it", path);
    }
    if (stat(writer->path, &info) == 0 && !S_ISREG(info.st_mode))
        return status_fail(error, AVO_ERROR_IO,
                           "%s: exists and is not a regular file; not replaced", path);
    return AVO_OK;
}

avo_status file_writer_open(file_writer *writer, const char *given, avo_error *error) {
    memset(writer, 0, sizeof(*writer));
    writer->descriptor = -1;
    AVO_TRY(writer_target(writer, given, error));
    writer->pending = allocator_take(NULL, WRITER_BUFFER_BYTES);
    if (writer->pending == NULL)
        return status_no_memory(error, "a write buffer", WRITER_BUFFER_BYTES);
    leftover_remove(writer->path);
    /* The first name that is free: another writer of the same file is neither waited for nor
     * overwritten. */
    for (unsigned attempt = 0; attempt < WRITER_NAMES_MAX; attempt++) {
        leftover_name(writer->path, attempt, writer->temporary, sizeof(writer->temporary));
        writer->descriptor = open(writer->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (writer->descriptor >= 0 || errno != EEXIST)
            break;
    }
    if (writer->descriptor < 0) {
        avo_status status =
            status_fail(error, AVO_ERROR_IO, "%s: cannot create: %s", given, strerror(errno));
        allocator_give(NULL, writer->pending, WRITER_BUFFER_BYTES);
        writer->pending = NULL;
        return status;
    }
    leftover_hold(writer->descriptor);
    return AVO_OK;
}

static avo_status write_all(file_writer *writer, const uint8_t *data, size_t bytes,
                            avo_error *error) {
    while (bytes > 0) {
        ssize_t done = write(writer->descriptor, data, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", writer->path,
                               strerror(errno));
        data += done;
        bytes -= (size_t)done;
    }
    return AVO_OK;
}

static avo_status writer_flush(file_writer *writer, avo_error *error) {
    size_t bytes = writer->pending_bytes;
    writer->pending_bytes = 0;
    return write_all(writer, writer->pending, bytes, error);
}

avo_status file_writer_append(file_writer *writer, const void *data, size_t bytes,
                              avo_error *error) {
    if (bytes == 0)
        return AVO_OK;
    if (bytes > WRITER_BUFFER_BYTES - writer->pending_bytes)
        AVO_TRY(writer_flush(writer, error));
    if (bytes >= WRITER_BUFFER_BYTES) {
        AVO_TRY(write_all(writer, data, bytes, error));
    } else {
        memcpy(writer->pending + writer->pending_bytes, data, bytes);
        writer->pending_bytes += bytes;
    }
    writer->written += bytes;
    return AVO_OK;
}

avo_status file_writer_align(file_writer *writer, size_t alignment, avo_error *error) {
    static const uint8_t zeros[256];
    while (writer->written % alignment != 0) {
        uint64_t missing = alignment - writer->written % alignment;
        AVO_TRY(file_writer_append(writer, zeros, size_min((size_t)missing, sizeof(zeros)), error));
    }
    return AVO_OK;
}

avo_status file_writer_patch(file_writer *writer, uint64_t offset, const void *data, size_t bytes,
                             avo_error *error) {
    uint64_t end;
    if (!u64_add(offset, bytes, &end) || end > writer->written)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: cannot write %zu bytes at offset %llu, past the end (%llu)",
                           writer->path, bytes, (unsigned long long)offset,
                           (unsigned long long)writer->written);
    AVO_TRY(writer_flush(writer, error));
    const uint8_t *from = data;
    while (bytes > 0) {
        ssize_t done = pwrite(writer->descriptor, from, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", writer->temporary,
                               strerror(errno));
        from += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return AVO_OK;
}

/* A rename is on disk only once its folder is. The file stands there already, so a folder that
 * cannot be flushed (some network file systems) is no reason to call it a failure. */
static void flush_folder_of(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (slash == path)
        bytes = 1;
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    int descriptor = open(bytes == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}

avo_status file_writer_commit(file_writer *writer, avo_error *error) {
    avo_status status = writer_flush(writer, error);
    if (status == AVO_OK && fsync(writer->descriptor) != 0)
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot flush: %s", writer->temporary,
                             strerror(errno));
    if (status == AVO_OK && rename(writer->temporary, writer->path) != 0)
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot rename to %s: %s", writer->temporary,
                             writer->path, strerror(errno));
    if (status != AVO_OK) {
        file_writer_abort(writer);
        return status;
    }
    flush_folder_of(writer->path);
    close(writer->descriptor);
    writer->descriptor = -1;
    allocator_give(NULL, writer->pending, WRITER_BUFFER_BYTES);
    writer->pending = NULL;
    return AVO_OK;
}

void file_writer_abort(file_writer *writer) {
    if (writer->descriptor >= 0) {
        close(writer->descriptor);
        unlink(writer->temporary);
    }
    writer->descriptor = -1;
    allocator_give(NULL, writer->pending, WRITER_BUFFER_BYTES);
    writer->pending = NULL;
}

avo_status file_write(const char *path, const void *data, size_t bytes, avo_error *error) {
    file_writer writer;
    AVO_TRY(file_writer_open(&writer, path, error));
    avo_status status = file_writer_append(&writer, data, bytes, error);
    if (status == AVO_OK)
        return file_writer_commit(&writer, error);
    file_writer_abort(&writer);
    return status;
}

/* ---- Folders ---- */

/* True for a folder without entries. */
static bool folder_is_empty(const char *path) {
    DIR *opened = opendir(path);
    if (opened == NULL)
        return false;
    bool empty = true;
    for (struct dirent *entry; empty && (entry = readdir(opened)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(opened);
    return empty;
}

void folder_empty(int descriptor) {
    DIR *opened = fdopendir(dup(descriptor));
    if (opened == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;)
        (void)unlinkat(descriptor, entry->d_name, 0);
    closedir(opened);
}

void folder_remove(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor >= 0) {
        folder_empty(descriptor);
        close(descriptor);
    }
    (void)rmdir(path);
}

avo_status folder_writer_open(folder_writer *writer, const char *given, avo_error *error) {
    memset(writer, 0, sizeof(*writer));
    size_t bytes = strlen(given);
    while (bytes > 1 && given[bytes - 1] == '/')
        bytes--;
    if (bytes == 0 || bytes >= sizeof(writer->path))
        return status_fail(error, AVO_ERROR_LIMIT, "a path of %zu bytes, must have 1 to %zu", bytes,
                           sizeof(writer->path) - 1);
    memcpy(writer->path, given, bytes);
    struct stat info;
    /* The real path of what exists, since a link or "." cannot be renamed over. */
    if (lstat(writer->path, &info) == 0 &&
        (!folder_is_empty(given) || realpath(given, writer->path) == NULL))
        return status_fail(error, AVO_ERROR_IO,
                           "%s: exists and is not an empty folder; choose another output", given);
    leftover_remove(writer->path);
    for (unsigned attempt = 0; attempt < WRITER_NAMES_MAX; attempt++) {
        leftover_name(writer->path, attempt, writer->temporary, sizeof(writer->temporary));
        if (mkdir(writer->temporary, 0777) == 0) {
            writer->held = open(writer->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (writer->held >= 0)
                leftover_hold(writer->held);
            return AVO_OK;
        }
        if (errno != EEXIST)
            break;
    }
    avo_status status =
        status_fail(error, AVO_ERROR_IO, "%s: cannot create: %s", given, strerror(errno));
    writer->temporary[0] = '\0';
    return status;
}

static void folder_let_go(folder_writer *writer) {
    if (writer->held >= 0)
        close(writer->held);
    writer->temporary[0] = '\0';
}

avo_status folder_writer_commit(folder_writer *writer, avo_error *error) {
    if (rename(writer->temporary, writer->path) != 0) {
        avo_status status = status_fail(error, AVO_ERROR_IO, "%s: cannot rename to %s: %s",
                                        writer->temporary, writer->path, strerror(errno));
        folder_writer_abort(writer);
        return status;
    }
    folder_let_go(writer);
    flush_folder_of(writer->path);
    return AVO_OK;
}

void folder_writer_abort(folder_writer *writer) {
    if (writer->temporary[0] == '\0')
        return;
    folder_remove(writer->temporary);
    folder_let_go(writer);
}
