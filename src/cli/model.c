/* From the MODEL that a user wrote to a path, a short name and an open model. */
#include "cli/cli.h"

#include "base/file.h"
#include "cli/engine_flags.h"
#include "engine/engine.h"
#include "hub/hub.h"
#include "model/model.h"

#include <string.h>

/* Names of models begin with a letter or digit and have no file's ending ("smollm2", "org/model");
 * with one of them a missing file is a missing file. */
static bool looks_like_path(const char *name) {
    static const char *const endings[] = {".gguf",        ".avo",  ".bin",
                                          ".safetensors", ".json", ".model"};
    if (name[0] == '/' || name[0] == '.')
        return true;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (text_ends(text_from(name), text_from(endings[i])))
            return true;
    return false;
}

avo_status cli_model_path(const char *name, char *path, size_t capacity, avo_error *error) {
    if (*name == '\0')
        return status_fail(error, AVO_ERROR_ARGUMENT, "the model name is empty");
    if (strlen(name) >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "the model path is too long (%zu bytes)",
                           strlen(name));
    if (file_kind_of(name) != FILE_MISSING) {
        memcpy(path, name, strlen(name) + 1);
        return AVO_OK;
    }
    avo_status status = hub_find(name, path, capacity, error);
    if (status == AVO_ERROR_NOT_FOUND && looks_like_path(name))
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%s: no such file; give a folder with safetensors, a .gguf, .avo or "
                           ".bin file, or a name shown by avocet list",
                           name);
    return status;
}

void cli_short_name(const char *path, char *name, size_t capacity) {
    static const char *const endings[] = {".gguf", ".avo", ".bin"};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(name, capacity, "%.*s", (int)(length - begin), path + begin);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        text_view text = text_from(name), ending = text_from(endings[i]);
        if (text.size > ending.size && text_ends(text, ending))
            name[text.size - ending.size] = '\0';
    }
}

static avo_status open_beside(const char *name, const avo_model *draft_of,
                              model_meanwhile meanwhile, void *context, avo_model **model,
                              avo_error *error) {
    char path[CLI_PATH_MAX], folder[CLI_PATH_MAX];
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.progress = cli_progress;
    options.draft_of = draft_of;
    if (draft_of != NULL && model_is_exit(name))
        return avo_model_open(name, &options, model, error);
    AVO_TRY(cli_panel_options(&options, folder, sizeof(folder), error));
    AVO_TRY(cli_model_path(name, path, sizeof(path), error));
    avo_status status = model_open_beside(path, &options, meanwhile, context, model, error);
    cli_progress_end();
    return status;
}

avo_status cli_model_open(const char *name, avo_model **model, avo_error *error) {
    return open_beside(name, NULL, NULL, NULL, model, error);
}

avo_status cli_draft_open(const char *name, const avo_model *target, avo_model **model,
                          avo_error *error) {
    return open_beside(name, target, NULL, NULL, model, error);
}

static void prepare(const avo_model *model, void *context) {
    avo_error error = {0};
    avo_status status = engine_prepare(model, context, &error);
    (void)status; /* the engine fails for the same reason, after what is wrong with the prompt */
}

avo_status cli_model_prepare(const char *name, const avo_engine_options *options, avo_model **model,
                             avo_error *error) {
    avo_engine_options own = *options;
    return open_beside(name, NULL, prepare, &own, model, error);
}
