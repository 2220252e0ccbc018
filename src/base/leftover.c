/* Temporaries are ".NAME.part-PID-ATTEMPT". A killed process cannot remove its own, so the next
 * writer of NAME does. */
#include "base/leftover.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int folder_bytes(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (int)(slash + 1 - path);
}

/* What all temporaries of `path` begin with, without the folder. */
static void prefix_of(const char *path, char *out, size_t capacity) {
    snprintf(out, capacity, ".%.200s.part-", path + folder_bytes(path));
}

void leftover_name(const char *path, unsigned attempt, char *out, size_t capacity) {
    char prefix[256];
    prefix_of(path, prefix, sizeof(prefix));
    snprintf(out, capacity, "%.*s%s%ld-%u", folder_bytes(path), path, prefix, (long)getpid(),
             attempt);
}

void leftover_hold(int descriptor) {
    (void)flock(descriptor, LOCK_EX | LOCK_NB); /* where there are no locks, the PID must do */
}

/* Digits up to `end`, as they are printed; false: something else. */
static bool read_digits(const char **at, char end, long *number) {
    const char *from = *at;
    *number = 0;
    for (; **at >= '0' && **at <= '9' && *at - from < 9; (*at)++)
        *number = *number * 10 + (**at - '0');
    return *at > from && (from[0] != '0' || *at == from + 1) && **at == end;
}

/* A temporary with this prefix whose process does not exist. */
static bool is_left(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    long process, attempt;
    if (strncmp(name, prefix, length) != 0)
        return false;
    const char *at = name + length;
    if (!read_digits(&at, '-', &process) || process < 1)
        return false;
    at++;
    return read_digits(&at, '\0', &attempt) && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void remove_one(int folder, const char *name) {
    int descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (descriptor < 0)
        return;
    if (fstat(descriptor, &info) == 0 && info.st_uid == geteuid() &&
        (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) &&
        flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        if (S_ISDIR(info.st_mode))
            folder_empty(descriptor);
        (void)unlinkat(folder, name, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
    }
    close(descriptor);
}

void leftover_remove(const char *path) {
    char folder[4096] = ".", prefix[256];
    int bytes = folder_bytes(path);
    if (bytes > 0 && (size_t)bytes < sizeof(folder))
        snprintf(folder, sizeof(folder), "%.*s", bytes, path);
    prefix_of(path, prefix, sizeof(prefix));
    DIR *opened = opendir(folder);
    if (opened == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;)
        if (is_left(entry->d_name, prefix))
            remove_one(dirfd(opened), entry->d_name);
    closedir(opened);
}
