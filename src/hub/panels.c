/* Repacked weights of models on disk (model/panel_cache.h): where, how large, and away with them.
 */
#include "hub/hub_int.h"
#include "model/panel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

avo_status hub_panel_folder(char *path, size_t capacity, avo_error *error) {
    const char *own = getenv("AVOCET_HOME");
    if (own != NULL && own[0] != '\0')
        return file_join(path, capacity, own, "panels", error);
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache != NULL && cache[0] == '/')
        return file_join(path, capacity, cache, "avocet/panels", error);
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/')
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "no folder for panels: set AVOCET_HOME or HOME to an absolute path");
    return file_join(path, capacity, home, ".cache/avocet/panels", error);
}

/* The file of a model at `path`; 0 bytes: there is none. */
static uint64_t find_file(const char *path, char *file, size_t capacity) {
    char folder[HUB_PATH_MAX], real[PATH_MAX], name[48];
    struct stat info;
    if (realpath(path, real) == NULL || hub_panel_folder(folder, sizeof(folder), NULL) != AVO_OK)
        return 0;
    panel_cache_name(real, name);
    bool there = file_join(file, capacity, folder, name, NULL) == AVO_OK &&
                 lstat(file, &info) == 0 && S_ISREG(info.st_mode);
    return there ? (uint64_t)info.st_size : 0;
}

/* Of the folder or file that is the model, or of one of its files. */
static uint64_t visit(const hub_model *model, bool remove) {
    char path[HUB_PATH_MAX], file[HUB_PATH_MAX];
    uint64_t bytes = find_file(model->path, file, sizeof(file)), sum = bytes;
    if (bytes > 0 && remove)
        (void)unlink(file);
    for (size_t i = 0; i < model->file_count; i++) {
        if (file_join(path, sizeof(path), model->folder, model->files[i].path, NULL) != AVO_OK ||
            strcmp(path, model->path) == 0)
            continue;
        bytes = find_file(path, file, sizeof(file));
        if (bytes > 0 && remove)
            (void)unlink(file);
        sum += bytes;
    }
    return sum;
}

uint64_t hub_panel_bytes(const hub_model *model) {
    return visit(model, false);
}

uint64_t hub_panels_remove(const hub_model *model) {
    return visit(model, true);
}

static avo_status walk(bool remove, uint64_t *bytes, avo_error *error) {
    char path[HUB_PATH_MAX];
    struct stat info;
    *bytes = 0;
    AVO_TRY(hub_panel_folder(path, sizeof(path), error));
    DIR *folder = opendir(path);
    if (folder == NULL)
        return AVO_OK;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        text_view name = text_from(entry->d_name);
        if ((text_ends(name, TEXT_LITERAL(PANEL_CACHE_ENDING)) ||
             text_ends(name, TEXT_LITERAL(PANEL_CACHE_ENDING ".part"))) &&
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode) && (!remove || unlinkat(dirfd(folder), entry->d_name, 0) == 0))
            *bytes += (uint64_t)info.st_size;
    }
    closedir(folder);
    return AVO_OK;
}

avo_status hub_panels_size(uint64_t *bytes, avo_error *error) {
    return walk(false, bytes, error);
}

avo_status hub_panels_remove_all(uint64_t *bytes, avo_error *error) {
    return walk(true, bytes, error);
}
