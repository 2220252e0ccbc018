/* What the files of `avocet train` share. */
#ifndef AVO_CLI_TRAIN_INT_H
#define AVO_CLI_TRAIN_INT_H

#include "cli/cli.h"
#include "cli/engine_flags.h"
#include "load/live_adapter.h"
#include "train/rewards.h"
#include "train/run.h"

#define TRAIN_LIST_OPTIONS 4

/* A running server that gets the adapter while it is trained. */
typedef struct train_publisher {
    const char *target; /* URL[=NAME] of --publish; NULL: none */
    const char *path;   /* of --publish-path: the output folder as the server sees it */
    const char *key;    /* of --publish-key */
    char url[1024], name[CLI_ADAPTER_NAME_MAX], folder[CLI_PATH_MAX];
    live_adapter adapter; /* points at these */
    bool open, published; /* once at least */
    avo_error last;       /* the failure that was told; status AVO_OK: none, or over */
} train_publisher;

typedef struct train_call {
    train_run_options options;
    train_rewards rewards;
    const char *config;
    train_publisher publisher;
    bool dry_run, json;
    char temporary[CLI_PATH_MAX]; /* folder of a preview's new model; empty: none */
    arena arena;
    avo_error error;
} train_call;

/* The path of the model that `name` means; train_start.c. */
AVO_MUST_USE avo_status train_start_find(train_call *call, const char *name,
                                         char path[CLI_PATH_MAX]);
void train_start_clean(train_call *call);

/* Checks what was given, then asks the server what it serves; what is wrong there is a warning, as
 * everything later. `model` is the one that is trained. train_publish.c. */
AVO_MUST_USE avo_status train_publish_open(train_call *call, const avo_model *model);

/* Runs and reports; train_show.c. */
AVO_MUST_USE avo_status train_show_run(train_call *call, const avo_model *model);
AVO_MUST_USE avo_status train_show_preview(train_call *call, const avo_model *model);

#endif
