/* The model that pre-training begins with: where MODEL is a configuration, a new one is made of it
 * in OUT/start; for a preview, in a temporary folder. */
#include "cli/train_int.h"

#include "base/file.h"
#include "train/init.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static avo_status make(train_call *call, const char *config, const char *folder) {
    train_init_options options = {.config = config,
                                  .data = call->options.settings.data,
                                  .seed = call->options.settings.seed,
                                  .progress = cli_progress};
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
    if (exists && call->options.resume)
        return AVO_OK;
    if (exists)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "%s is of an earlier run; continue that with --resume, or choose "
                           "another output",
                           path);
    AVO_TRY(file_make_folder(output, &call->error));
    return make(call, name, path);
}

void train_start_clean(train_call *call) {
    char folder[CLI_PATH_MAX + 16];
    if (call->temporary[0] == '\0')
        return;
    snprintf(folder, sizeof(folder), "%s/start", call->temporary);
    DIR *opened = opendir(folder);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;)
        (void)unlinkat(dirfd(opened), entry->d_name, 0);
    if (opened != NULL)
        (void)closedir(opened);
    (void)rmdir(folder);
    (void)rmdir(call->temporary);
}
