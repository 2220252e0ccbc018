/* What the files of `avocet train` share. */
#ifndef AVO_CLI_TRAIN_INT_H
#define AVO_CLI_TRAIN_INT_H

#include "cli/cli.h"
#include "cli/engine_flags.h"
#include "train/rewards.h"
#include "train/run.h"

#define TRAIN_LIST_OPTIONS 4

typedef struct train_call {
    train_run_options options;
    train_rewards rewards;
    const char *config;
    bool dry_run, json;
    char temporary[CLI_PATH_MAX]; /* folder of a preview's new model; empty: none */
    arena arena;
    avo_error error;
} train_call;

/* The path of the model that `name` means; train_start.c. */
AVO_MUST_USE avo_status train_start_find(train_call *call, const char *name,
                                         char path[CLI_PATH_MAX]);
void train_start_clean(train_call *call);

/* Runs and reports; train_show.c. */
AVO_MUST_USE avo_status train_show_run(train_call *call, const avo_model *model);
AVO_MUST_USE avo_status train_show_preview(train_call *call, const avo_model *model);

#endif
