/* From the MODEL that a user wrote to an open model. */
#include "cli/cli.h"

avo_status cli_model_open(const char *name, avo_model **model, avo_error *error) {
    char path[CLI_PATH_MAX];
    AVO_TRY(cli_model_path(name, path, sizeof(path), error));
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.progress = cli_progress;
    avo_status status = avo_model_open(path, &options, model, error);
    cli_progress_end();
    return status;
}
