/* The commit that turns verified parts into a model, wholly or not at all: when a step fails, the
 * model that was there before is there again.
 *
 * The new manifest is written beside first. Then the old one is set aside, so that a power cut
 * leaves a folder that counts as incomplete and never a mixture that counts as whole; the parts
 * take their places; and the new manifest appears last. A file that is replaced waits under the
 * name of its ETag, which is of no use any more.
 */
#include "base/file.h"
#include "hub/hub_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static avo_status flush_file(const char *path, avo_error *error) {
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    int result = fsync(descriptor);
    int number = errno;
    close(descriptor);
    return result == 0 ? AVO_OK : hub_write_failed(path, number, error);
}

static bool is_wanted(const pull *pull, const char *path) {
    for (size_t i = 0; i < pull->file_count; i++)
        if (strcmp(pull->files[i].file.path, path) == 0)
            return true;
    return false;
}

static avo_status prepare_manifest(pull *pull, file_writer *writer, avo_error *error) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    hub_file *files = arena_take_array(&pull->arena, pull->file_count, sizeof(hub_file));
    if (files == NULL)
        return status_no_memory(error, "a manifest", pull->file_count * sizeof(hub_file));
    for (size_t i = 0; i < pull->file_count; i++)
        files[i] = pull->files[i].file;
    hub_model model = {
        .name = pull->name,
        .source = pull->source,
        .revision = pull->revision,
        .licence = pull->licence,
        .date = date,
        .path = hub_choose_model_file(files, pull->file_count),
        .files = files,
        .file_count = pull->file_count,
    };
    return hub_manifest_prepare(pull->folder, &model, writer, error);
}

static avo_status install(const pull_file *file, avo_error *error) {
    struct stat info;
    (void)unlink(file->etag_path);
    bool replaces = lstat(file->final_path, &info) == 0 && !S_ISDIR(info.st_mode);
    if (replaces && rename(file->final_path, file->etag_path) != 0)
        return hub_write_failed(file->final_path, errno, error);
    if (rename(file->part_path, file->final_path) == 0)
        return AVO_OK;
    int number = errno;
    if (replaces)
        (void)rename(file->etag_path, file->final_path);
    return hub_write_failed(file->final_path, number, error);
}

static void take_back(const pull_file *file) {
    (void)rename(file->final_path, file->part_path);
    (void)rename(file->etag_path, file->final_path); /* fails where nothing was replaced */
}

/* All files, then the manifest; when anything fails, what was done is undone. */
static avo_status install_all(pull *pull, file_writer *manifest, avo_error *error) {
    avo_status status = AVO_OK;
    size_t count = 0;
    for (; count < pull->file_count && status == AVO_OK; count++)
        if (!pull->files[count].present)
            status = install(&pull->files[count], error);
    if (status == AVO_OK) {
        status = file_writer_commit(manifest, error);
    } else {
        file_writer_abort(manifest);
        count--; /* the one that failed */
    }
    while (status != AVO_OK && count > 0)
        if (!pull->files[--count].present)
            take_back(&pull->files[count]);
    return status;
}

/* What the old model had and the new one has not. */
static void drop_old(const pull *pull) {
    for (size_t i = 0; i < pull->file_count; i++)
        (void)unlink(pull->files[i].etag_path);
    for (size_t i = 0; pull->has_old && i < pull->old.file_count; i++) {
        char path[HUB_PATH_MAX];
        if (!is_wanted(pull, pull->old.files[i].path) &&
            file_join(path, sizeof(path), pull->folder, pull->old.files[i].path, NULL) == AVO_OK)
            (void)unlink(path);
    }
}

avo_status pull_commit(pull *pull, avo_error *error) {
    char manifest[HUB_PATH_MAX], aside[HUB_PATH_MAX];
    AVO_TRY(file_join(manifest, sizeof(manifest), pull->folder, HUB_MANIFEST_NAME, error));
    AVO_TRY(file_join(aside, sizeof(aside), pull->folder, HUB_MANIFEST_NAME ".part", error));
    for (size_t i = 0; i < pull->file_count; i++)
        if (!pull->files[i].present)
            AVO_TRY(flush_file(pull->files[i].part_path, error));
    file_writer writer;
    AVO_TRY(prepare_manifest(pull, &writer, error));
    bool moved = rename(manifest, aside) == 0;
    if (!moved && errno != ENOENT) {
        int number = errno;
        file_writer_abort(&writer);
        return hub_write_failed(manifest, number, error);
    }
    avo_status status = install_all(pull, &writer, error);
    if (status != AVO_OK) {
        if (moved)
            (void)rename(aside, manifest);
        return status;
    }
    drop_old(pull);
    (void)unlink(aside);
    return AVO_OK;
}
