/* The temporary folder of one run. Where the child has a mount namespace, it mounts a small file
 * system of its own on it; elsewhere its files are on the disk, and the watch counts them. Landlock
 * then forbids folders in it, so that counting and removing are simple. */
#include "eval/code_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

avo_status code_folder_make(code_folder *folder, uid_t user, avo_error *error) {
    static const char name[] = "/tmp/avocet-code-XXXXXX";
    memcpy(folder->path, name, sizeof(name));
    folder->descriptor = -1;
    if (mkdtemp(folder->path) == NULL) {
        folder->path[0] = '\0';
        return status_fail(error, AVO_ERROR_IO, "code of a model: cannot make a folder in /tmp: %s",
                           strerror(errno));
    }
    folder->descriptor = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->descriptor >= 0) {
        /* Where this root may not name that user, the child's own identity owns the folder; a child
         * that cannot enter its folder says so. */
        if (user != geteuid())
            (void)!fchown(folder->descriptor, user, (gid_t)-1);
        return AVO_OK;
    }
    avo_status status =
        status_fail(error, AVO_ERROR_IO, "code of a model: %s: %s", folder->path, strerror(errno));
    code_folder_remove(folder);
    return status;
}

/* Calls `visit` with every file's name until it returns false. */
static bool walk(int descriptor, bool (*visit)(int folder, const char *name, void *context),
                 void *context) {
    int again = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = again < 0 ? NULL : fdopendir(again);
    if (opened == NULL) {
        code_descriptor_close(&again);
        return false;
    }
    bool going = true;
    for (struct dirent *entry; going && (entry = readdir(opened)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            going = visit(descriptor, entry->d_name, context);
    closedir(opened);
    return going;
}

typedef struct folder_size {
    uint64_t bytes, files;
} folder_size;

static bool count_file(int folder, const char *name, void *context) {
    folder_size *size = context;
    struct stat facts;
    if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) == 0)
        size->bytes += (uint64_t)facts.st_blocks * 512;
    return ++size->files <= CODE_FOLDER_FILES && size->bytes <= CODE_FOLDER_BYTES;
}

bool code_folder_is_full(const code_folder *folder) {
    folder_size size = {0};
    return !walk(folder->descriptor, count_file, &size);
}

static bool remove_file(int folder, const char *name, void *context) {
    (void)context;
    (void)!unlinkat(folder, name, 0);
    return true;
}

void code_folder_remove(code_folder *folder) {
    if (folder->descriptor >= 0)
        (void)walk(folder->descriptor, remove_file, NULL);
    code_descriptor_close(&folder->descriptor);
    if (folder->path[0] != '\0')
        (void)!rmdir(folder->path);
    folder->path[0] = '\0';
}
