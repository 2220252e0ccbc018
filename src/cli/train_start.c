/* The model that pre-training begins with: where MODEL is a configuration, a new one is made of it
 * in OUT/start; for a preview, in a temporary folder. */
#include "cli/train_int.h"

#include "base/file.h"
#include "train/init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static train_init_options options_of(const train_call *call, const char *config) {
    const train_settings *settings = &call->options.settings;
    return (train_init_options){.config = config,
                                .data = settings->data.items,
                                .data_count = settings->data.count,
                                .seed = settings->seed,
                                .progress = cli_progress};
}

static avo_status make(train_call *call, const char *config, const char *folder) {
    train_init_options options = options_of(call, config);
    train_init_info info;
    avo_status status = train_init(&options, folder, &info, &call->error);
    cli_progress_end();
    if (status == AVO_OK && !call->json)
        fprintf(stderr, "%s: a new model with %llu weights and %u tokens\n", folder,
                (unsigned long long)info.parameters, info.vocabulary);
    return status;
}

static avo_status make_temporary(train_call *call, const char *config, char *folder) {
    const char *parent = getenv("TMPDIR");
    snprintf(call->temporary, sizeof(call->temporary), "%s/avocet-train-XXXXXX",
             parent != NULL && parent[0] == '/' ? parent : "/tmp");
    if (mkdtemp(call->temporary) == NULL) {
        avo_status status = status_fail(&call->error, AVO_ERROR_IO, "%s: cannot create: %s",
                                        call->temporary, strerror(errno));
        call->temporary[0] = '\0';
        return status;
    }
    AVO_TRY(file_join(folder, CLI_PATH_MAX, call->temporary, "start", &call->error));
    return make(call, config, folder);
}

avo_status train_start_find(train_call *call, const char *name, char path[CLI_PATH_MAX]) {
    const char *output = call->options.output;
    if (call->options.settings.task != TRAIN_PRETRAIN || !train_init_is_config(name)) {
        snprintf(path, CLI_PATH_MAX, "%s", name);
        return AVO_OK;
    }
    if (call->dry_run)
        return make_temporary(call, name, path);
    AVO_TRY(file_join(path, CLI_PATH_MAX, output, "start", &call->error));
    bool exists = file_kind_of(path) == FILE_FOLDER;
    if (exists && !call->options.resume)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "%s is of an earlier run; continue that with --resume, or choose "
                           "another output",
                           path);
    AVO_TRY(train_lock_take(output, &call->lock, &call->error));
    call->options.locked = true;
    train_init_options options = options_of(call, name);
    if (exists)
        return train_init_compare(&options, path, &call->error);
    return make(call, name, path);
}

void train_start_clean(train_call *call) {
    char folder[CLI_PATH_MAX + 16];
    train_lock_release(&call->lock);
    if (call->temporary[0] == '\0')
        return;
    snprintf(folder, sizeof(folder), "%s/start", call->temporary);
    folder_remove(folder);
    (void)rmdir(call->temporary);
}
