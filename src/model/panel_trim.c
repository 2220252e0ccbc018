/* The size of the folder of panels: the files that were used longest ago give way. */
#include "model/panel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILES_MAX 4096 /* of a folder that are looked at, and that are deleted at once */

static bool ends(const char *name, const char *ending) {
    return text_ends(text_from(name), text_from(ending));
}

/* What a writer holds stays: its lock tells. */
static void drop_left_over(int folder, const char *name) {
    int descriptor = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0)
        return;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(folder, name, 0);
    close(descriptor);
}

typedef struct survey {
    uint64_t bytes;
    char oldest[256]; /* empty: there is none */
    struct timespec used;
} survey;

static bool is_older(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static void see(survey *survey, const char *name, const struct stat *info) {
    survey->bytes += (uint64_t)info->st_size;
    if (survey->oldest[0] != '\0' && !is_older(&info->st_mtim, &survey->used))
        return;
    snprintf(survey->oldest, sizeof(survey->oldest), "%s", name);
    survey->used = info->st_mtim;
}

/* Size and oldest file of a folder but `name`. */
static void look(DIR *folder, const char *name, survey *out) {
    *out = (survey){.bytes = 0};
    rewinddir(folder);
    struct dirent *entry;
    for (uint32_t i = 0; i < FILES_MAX && (entry = readdir(folder)) != NULL; i++) {
        struct stat info;
        if (entry->d_name[0] == '.' && ends(entry->d_name, PANEL_CACHE_ENDING ".part"))
            drop_left_over(dirfd(folder), entry->d_name);
        if (entry->d_name[0] != '.' && ends(entry->d_name, PANEL_CACHE_ENDING) &&
            strcmp(entry->d_name, name) != 0 &&
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode))
            see(out, entry->d_name, &info);
    }
}

static bool is_free(const char *folder, uint64_t bytes) {
    struct statvfs info;
    uint64_t available;
    if (statvfs(folder, &info) != 0 ||
        __builtin_mul_overflow((uint64_t)info.f_bavail, (uint64_t)info.f_frsize, &available))
        return true; /* the write itself will tell */
    return bytes <= available / 2;
}

bool panel_cache_trim(const char *path, const char *name, uint64_t bytes, uint64_t bytes_max) {
    if (bytes > bytes_max)
        return false;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return false;
    survey found;
    look(folder, name, &found);
    for (uint32_t i = 0; i < FILES_MAX && found.bytes > bytes_max - bytes; i++) {
        if (found.oldest[0] == '\0' || unlinkat(dirfd(folder), found.oldest, 0) != 0)
            break;
        look(folder, name, &found);
    }
    closedir(folder);
    return found.bytes <= bytes_max - bytes && is_free(path, bytes);
}
