/* The models' folder: where it is, making and deleting folders in it, and one process at a time
 * per model. */
#include "base/file.h"
#include "hub/hub_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DELETE_DEPTH_MAX 32

avo_status hub_home(char *path, size_t capacity, avo_error *error) {
    const char *own = getenv("AVOCET_HOME");
    if (own != NULL && own[0] != '\0')
        return file_join(path, capacity, own, "models", error);
    const char *data = getenv("XDG_DATA_HOME");
    if (data != NULL && data[0] == '/') /* the specification says to ignore relative ones */
        return file_join(path, capacity, data, "avocet/models", error);
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/')
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "no folder for models: set AVOCET_HOME or HOME to an absolute path");
    return file_join(path, capacity, home, ".local/share/avocet/models", error);
}

avo_status hub_bundle(char *path, size_t capacity, avo_error *error) {
    return file_beside_program(path, capacity, "../share/avocet/models", error);
}

avo_status hub_model_folder(const char *name, char *path, size_t capacity, avo_error *error) {
    char home[HUB_PATH_MAX];
    char folder[2 * HUB_NAME_MAX + 4];
    AVO_TRY(hub_name_check(name, error));
    hub_name_to_folder(name, folder, sizeof(folder));
    AVO_TRY(hub_home(home, sizeof(home), error));
    return file_join(path, capacity, home, folder, error);
}

avo_status hub_write_failed(const char *path, int number, avo_error *error) {
    if (number == ENOSPC || number == EDQUOT)
        return status_fail(error, AVO_ERROR_FULL,
                           "%s: the disk is full; free space and run the same command again (it "
                           "resumes), or set AVOCET_HOME to a larger disk",
                           path);
    if (number == EACCES || number == EPERM || number == EROFS)
        return status_fail(error, AVO_ERROR_IO,
                           "%s: cannot write: %s; set AVOCET_HOME to a folder you may write to",
                           path, strerror(number));
    return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", path, strerror(number));
}

avo_status hub_make_folder(const char *path, avo_error *error) {
    char part[HUB_PATH_MAX];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof(part))
        return status_fail(error, AVO_ERROR_LIMIT, "the path is too long: %.200s…", path);
    memcpy(part, path, bytes + 1);
    for (size_t i = 1; i <= bytes; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST && file_kind_of(part) != FILE_FOLDER)
            return hub_write_failed(part, errno, error);
        if (i < bytes)
            part[i] = '/';
    }
    if (file_kind_of(path) != FILE_FOLDER)
        return hub_write_failed(path, ENOTDIR, error);
    return AVO_OK;
}

avo_status hub_make_parent(const char *path, avo_error *error) {
    char parent[HUB_PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return AVO_OK;
    size_t bytes = (size_t)(slash - path);
    if (bytes >= sizeof(parent))
        return status_fail(error, AVO_ERROR_LIMIT, "the path is too long: %.200s…", path);
    memcpy(parent, path, bytes);
    parent[bytes] = '\0';
    return hub_make_folder(parent, error);
}

/* Empties the folder behind `descriptor`, which is closed. Links are deleted, never followed. */
static avo_status empty_folder(int descriptor, const char *path, unsigned depth, uint64_t *freed,
                               avo_error *error) {
    DIR *folder = fdopendir(descriptor);
    if (folder == NULL) {
        close(descriptor);
        return status_fail(error, AVO_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    avo_status status = AVO_OK;
    for (struct dirent *entry; status == AVO_OK && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        struct stat info;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(dirfd(folder), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue; /* somebody else was faster */
        bool is_folder = S_ISDIR(info.st_mode);
        if (is_folder) {
            int below =
                openat(dirfd(folder), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (depth >= DELETE_DEPTH_MAX || below < 0) {
                if (below >= 0)
                    close(below);
                status = status_fail(error, AVO_ERROR_IO,
                                     "%s/%s: cannot open the folder to delete it", path, name);
                break;
            }
            status = empty_folder(below, path, depth + 1, freed, error);
        }
        if (status == AVO_OK && unlinkat(dirfd(folder), name, is_folder ? AT_REMOVEDIR : 0) != 0)
            status = status_fail(error, AVO_ERROR_IO, "%s/%s: cannot delete: %s", path, name,
                                 strerror(errno));
        else if (status == AVO_OK && S_ISREG(info.st_mode) && freed != NULL)
            *freed += (uint64_t)info.st_size;
    }
    closedir(folder);
    return status;
}

avo_status hub_delete_folder(const char *path, uint64_t *freed_bytes, avo_error *error) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) {
        if (errno == ENOENT)
            return AVO_OK;
        return status_fail(error, AVO_ERROR_IO, "%s: cannot open the folder to delete it: %s%s",
                           path, strerror(errno),
                           errno == ENOTDIR || errno == ELOOP ? " (it is a link or a file)" : "");
    }
    AVO_TRY(empty_folder(descriptor, path, 0, freed_bytes, error));
    if (rmdir(path) != 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot delete: %s", path, strerror(errno));
    return AVO_OK;
}

avo_status hub_check_room(const char *folder, uint64_t bytes, avo_error *error) {
    struct statvfs info;
    if (statvfs(folder, &info) != 0)
        return AVO_OK; /* the write itself will tell */
    uint64_t room;
    if (__builtin_mul_overflow((uint64_t)info.f_bavail, (uint64_t)info.f_frsize, &room) ||
        bytes <= room)
        return AVO_OK;
    return status_fail(
        error, AVO_ERROR_FULL,
        "%s: needs %.1f MiB, %.1f MiB are free; free space or set AVOCET_HOME to a larger disk",
        folder, (double)bytes / 1048576.0, (double)room / 1048576.0);
}

avo_status hub_try_lock(const char *name, int *lock, avo_error *error) {
    char path[HUB_PATH_MAX], folder[HUB_PATH_MAX], file[2 * HUB_NAME_MAX + 16];
    *lock = -1;
    AVO_TRY(hub_name_check(name, error));
    AVO_TRY(hub_home(path, sizeof(path), error));
    AVO_TRY(file_join(folder, sizeof(folder), path, ".locks", error));
    AVO_TRY(hub_make_folder(folder, error));
    hub_name_to_folder(name, file, sizeof(file));
    AVO_TRY(file_join(path, sizeof(path), folder, file, error));
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor < 0)
        return hub_write_failed(path, errno, error);
    while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        int number = errno;
        close(descriptor);
        if (number == EWOULDBLOCK)
            return AVO_OK;
        return status_fail(error, AVO_ERROR_IO, "%s: cannot lock: %s", path, strerror(number));
    }
    *lock = descriptor;
    return AVO_OK;
}

void hub_unlock(int lock) {
    if (lock >= 0)
        close(lock); /* the empty file stays: deleting it would let two in */
}
