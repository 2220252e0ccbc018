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
    arena arena;
    avo_error error;
} train_call;

/* Runs and reports; train_show.c. */
AVO_MUST_USE avo_status train_show_run(train_call *call, const avo_model *model);
AVO_MUST_USE avo_status train_show_preview(train_call *call, const avo_model *model);

#endif
