/* What is on disk: finding a model by name, listing, removing. */
#include "base/file.h"
#include "hub/hub_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEAR_EDITS_MAX 3

/* ---- List ---- */

static avo_status read_model(hub_models *models, const char *home, const char *folder,
                             hub_model *model, avo_error *error) {
    char path[HUB_PATH_MAX], name[HUB_NAME_MAX + 8];
    AVO_TRY(file_join(path, sizeof(path), home, folder, error));
    hub_folder_to_name(folder, name, sizeof(name));
    avo_error ignored;
    avo_status status = hub_manifest_read(&models->arena, path, model, &ignored);
    if (status == AVO_ERROR_MEMORY)
        return status_no_memory(error, "the list of models", 0);
    if (status != AVO_OK)
        *model = (hub_model){.source = "", .revision = "", .licence = "", .date = "", .path = ""};
    /* The folder is the truth: a manifest cannot pass for another model. */
    model->name = arena_copy_text(&models->arena, name, strlen(name));
    model->folder = arena_copy_text(&models->arena, path, strlen(path));
    char full[HUB_PATH_MAX];
    if (model->path[0] == '\0')
        snprintf(full, sizeof(full), "%s", path);
    else
        AVO_TRY(file_join(full, sizeof(full), path, model->path, error));
    model->path = arena_copy_text(&models->arena, full, strlen(full));
    if (model->name == NULL || model->folder == NULL || model->path == NULL)
        return status_no_memory(error, "the list of models", sizeof(full));
    return AVO_OK;
}

static int compare_models(const void *left, const void *right) {
    return strcmp(((const hub_model *)left)->name, ((const hub_model *)right)->name);
}

static bool is_model_folder(const char *home, const char *name) {
    char path[HUB_PATH_MAX], shown[HUB_NAME_MAX + 8];
    struct stat info;
    hub_folder_to_name(name, shown, sizeof(shown));
    return name[0] != '.' && hub_name_check(shown, NULL) == AVO_OK &&
           file_join(path, sizeof(path), home, name, NULL) == AVO_OK && lstat(path, &info) == 0 &&
           S_ISDIR(info.st_mode);
}

static const hub_model *find_model(const hub_models *models, const char *name, size_t bytes) {
    for (size_t i = 0; i < models->count; i++)
        if (strlen(models->items[i].name) == bytes &&
            memcmp(models->items[i].name, name, bytes) == 0)
            return &models->items[i];
    return NULL;
}

/* Room for one more. */
static avo_status grow(hub_models *models, size_t *capacity, avo_error *error) {
    if (models->count < *capacity)
        return AVO_OK;
    *capacity = *capacity == 0 ? 32 : *capacity * 2;
    hub_model *grown = arena_take_array(&models->arena, *capacity, sizeof(hub_model));
    if (grown == NULL)
        return status_no_memory(error, "the list of models", *capacity);
    if (models->count > 0)
        memcpy(grown, models->items, models->count * sizeof(hub_model));
    models->items = grown;
    return AVO_OK;
}

/* A model that comes with the program: listed unless a pulled one of its name is whole. */
static void add_bundled(hub_models *models, hub_model *model) {
    model->bundled = true;
    hub_model *pulled = (hub_model *)find_model(models, model->name, strlen(model->name));
    if (!model->complete || (pulled != NULL && pulled->complete))
        return;
    if (pulled != NULL)
        *pulled = *model;
    else
        models->items[models->count++] = *model;
}

static avo_status read_shelf(hub_models *models, size_t *capacity, const char *shelf, bool bundled,
                             avo_error *error) {
    DIR *folder = opendir(shelf);
    if (folder == NULL)
        return errno == ENOENT || bundled ? AVO_OK
                                          : status_fail(error, AVO_ERROR_IO, "%s: cannot read: %s",
                                                        shelf, strerror(errno));
    avo_status status = AVO_OK;
    for (struct dirent *entry; status == AVO_OK && (entry = readdir(folder)) != NULL;) {
        hub_model model;
        if (!is_model_folder(shelf, entry->d_name))
            continue;
        status = grow(models, capacity, error);
        AVO_THEN(status, read_model(models, shelf, entry->d_name, &model, error));
        if (status == AVO_OK && bundled)
            add_bundled(models, &model);
        else if (status == AVO_OK)
            models->items[models->count++] = model;
    }
    closedir(folder);
    return status;
}

avo_status hub_list(hub_models *models, avo_error *error) {
    char shelf[HUB_PATH_MAX];
    size_t capacity = 0;
    *models = (hub_models){.items = NULL};
    arena_init(&models->arena, NULL, HUB_ARENA_LIMIT);
    avo_status status = hub_home(shelf, sizeof(shelf), error);
    AVO_THEN(status, read_shelf(models, &capacity, shelf, false, error));
    /* Accounts without a folder of their own can use what comes with the program. */
    if (status != AVO_ERROR_MEMORY && hub_bundle(shelf, sizeof(shelf), NULL) == AVO_OK) {
        size_t pulled = models->count;
        avo_status other = read_shelf(models, &capacity, shelf, true, error);
        if (other != AVO_OK || models->count > pulled)
            status = other;
    }
    if (status != AVO_OK) {
        hub_models_free(models);
        return status;
    }
    if (models->count > 1)
        qsort(models->items, models->count, sizeof(hub_model), compare_models);
    return AVO_OK;
}

void hub_models_free(hub_models *models) {
    arena_free(&models->arena);
    models->items = NULL;
    models->count = 0;
}

/* ---- Find ---- */

/* What to say about a name that is not here. */
static avo_status fail_missing(const hub_models *models, const char *name, avo_error *error) {
    if (hub_known_find(name) != NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "%s is not downloaded; run: avocet pull %s",
                           name, name);
    const char *near = NULL;
    size_t best = NEAR_EDITS_MAX + 1;
    for (size_t i = 0; i < models->count; i++) {
        size_t distance = hub_name_distance(name, models->items[i].name);
        if (distance < best) {
            best = distance;
            near = models->items[i].name;
        }
    }
    const char *near_known = NULL;
    for (const hub_known *known = hub_known_models; known->name != NULL; known++) {
        size_t distance = hub_name_distance(name, known->name);
        if (distance < best) {
            best = distance;
            near_known = known->name;
        }
    }
    if (near_known != NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%.200s: no such file or model; did you mean %s (avocet pull %s)?", name,
                           near_known, near_known);
    if (near != NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%.200s: no such file or model; did you mean %s?", name, near);
    bool from_hub = strchr(name, '/') != NULL && hub_name_check(name, NULL) == AVO_OK;
    return status_fail(
        error, AVO_ERROR_NOT_FOUND, "%.200s: no such file or model; %s%.200s%s", name,
        from_hub ? "avocet pull "
                 : "avocet list shows the names, avocet pull smollm2 downloads the default model",
        from_hub ? name : "", from_hub ? " downloads it from the hub" : "");
}

static avo_status give_path(const char *found, char *path, size_t capacity, avo_error *error) {
    if (strlen(found) >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "the path is too long: %.200s…", found);
    memcpy(path, found, strlen(found) + 1);
    return AVO_OK;
}

/* Several model files and none of them is the one: which there are. */
static avo_status fail_ambiguous(const hub_model *model, avo_error *error) {
    char names[512] = "";
    size_t at = 0;
    for (size_t i = 0; i < model->file_count; i++) {
        int written =
            snprintf(names + at, sizeof(names) - at, " %s/%s", model->name, model->files[i].path);
        if (written < 0 || (size_t)written >= sizeof(names) - at)
            break;
        at += (size_t)written;
    }
    names[at] = '\0';
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s contains several models; name one of:%s",
                       model->name, names);
}

static bool is_ambiguous(const hub_model *model) {
    size_t single = 0;
    for (size_t i = 0; i < model->file_count; i++) {
        text_view path = text_from(model->files[i].path);
        if (text_ends(path, TEXT_LITERAL(".safetensors")))
            return false;
        single += text_ends(path, TEXT_LITERAL(".gguf")) || text_ends(path, TEXT_LITERAL(".avo"));
    }
    return single > 1 && strcmp(model->path, model->folder) == 0;
}

static avo_status find_in(const hub_models *models, const char *name, char *path, size_t capacity,
                          avo_error *error) {
    const hub_model *model = find_model(models, name, strlen(name));
    if (model != NULL && !model->complete)
        return status_fail(
            error, AVO_ERROR_NOT_FOUND,
            "%s is incomplete because its pull was interrupted; run avocet pull again", name);
    if (model != NULL && is_ambiguous(model))
        return fail_ambiguous(model, error);
    if (model != NULL)
        return give_path(model->path, path, capacity, error);
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        model = find_model(models, name, (size_t)(slash - name));
        for (size_t i = 0; model != NULL && i < model->file_count; i++)
            if (strcmp(model->files[i].path, slash + 1) == 0)
                return file_join(path, capacity, model->folder, slash + 1, error);
    }
    return fail_missing(models, name, error);
}

/* The model of the binary is on the shelf, and it is this binary's. */
static bool is_current(const hub_models *models, const hub_known *known) {
    const hub_model *model = find_model(models, known->name, strlen(known->name));
    return model != NULL && model->complete && model->file_count == 1 &&
           strcmp(model->files[0].sha256, known->sha256) == 0;
}

avo_status hub_find(const char *name, char *path, size_t capacity, avo_error *error) {
    if (file_kind_of(name) != FILE_MISSING)
        return give_path(name, path, capacity, error);
    hub_models models;
    AVO_TRY(hub_list(&models, error));
    const hub_known *known = hub_known_find(name);
    if (known != NULL && known->embedded != NULL && !is_current(&models, known)) {
        hub_pull_options options = HUB_PULL_OPTIONS_INIT;
        hub_pulled pulled;
        hub_models_free(&models);
        options.source = name;
        AVO_TRY(hub_pull(&options, &pulled, error));
        return give_path(pulled.path, path, capacity, error);
    }
    avo_status status = find_in(&models, name, path, capacity, error);
    hub_models_free(&models);
    return status;
}

/* ---- Remove ---- */

/* Before the model, whose real path names the file. */
static uint64_t remove_panels(const char *name) {
    hub_models models;
    if (hub_list(&models, NULL) != AVO_OK)
        return 0;
    const hub_model *model = find_model(&models, name, strlen(name));
    uint64_t freed = model != NULL ? hub_panels_remove(model) : 0;
    hub_models_free(&models);
    return freed;
}

/* There is no folder of that name among the pulled models. */
static avo_status fail_not_pulled(const char *name, avo_error *error) {
    hub_models models;
    AVO_TRY(hub_list(&models, error));
    const hub_model *model = find_model(&models, name, strlen(name));
    avo_status status;
    if (model != NULL && model->bundled)
        status = status_fail(error, AVO_ERROR_NOT_FOUND,
                             "%s comes with this installation and was not downloaded; delete %s to "
                             "remove it",
                             name, model->folder);
    else if (hub_known_find(name) != NULL)
        status = status_fail(error, AVO_ERROR_NOT_FOUND, "%s is not downloaded; nothing to remove",
                             name);
    else
        status = fail_missing(&models, name, error);
    hub_models_free(&models);
    return status;
}

avo_status hub_remove(const char *name, uint64_t *freed_bytes, avo_error *error) {
    char folder[HUB_PATH_MAX];
    *freed_bytes = 0;
    AVO_TRY(hub_model_folder(name, folder, sizeof(folder), error));
    struct stat info;
    if (lstat(folder, &info) != 0)
        return fail_not_pulled(name, error);
    int lock = -1;
    AVO_TRY(hub_try_lock(name, &lock, error));
    if (lock < 0)
        return status_fail(error, AVO_ERROR_FULL, "%s is being pulled right now; try again later",
                           name);
    uint64_t panels = remove_panels(name);
    avo_status status = hub_delete_folder(folder, freed_bytes, error);
    *freed_bytes += panels;
    hub_unlock(lock);
    return status;
}
