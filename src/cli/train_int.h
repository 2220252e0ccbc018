/* What the files of `avocet train` share. */
#ifndef AVO_CLI_TRAIN_INT_H
#define AVO_CLI_TRAIN_INT_H

#include "cli/cli.h"
#include "cli/engine_flags.h"
#include "load/live_adapter.h"
#include "train/lock.h"
#include "train/rewards.h"
#include "train/run.h"

#define TRAIN_LIST_OPTIONS 4

/* A running server that gets the adapter while it is trained: train_publish.c. */
typedef struct train_publisher {
    const char *target;      /* URL[=NAME] of --publish; NULL: none */
    const char *path;        /* of --publish-path: the output folder as the server sees it */
    const char *key;         /* of --publish-key */
    const char *authorities; /* of --publish-ca */
    char url[1024], name[CLI_ADAPTER_NAME_MAX];
    char folder[CLI_PATH_MAX]; /* the output folder's absolute path */
    live_adapter adapter;      /* points at these */
    bool published;            /* once at least */
    avo_error last;            /* the failure that was told; no text: none, or it is over */
} train_publisher;

typedef struct train_call {
    train_run_options options;
    train_rewards rewards;
    const char *model, *config; /* as they were given */
    train_publisher publisher;
    train_serve_options serve; /* of --serve; no address: no server */
    bool dry_run, json;
    double rank_timeout_s;
    train_lock lock;              /* on the output, where a new model is made in it */
    char temporary[CLI_PATH_MAX]; /* folder of a preview's new model; empty: none */
    arena arena;
    avo_error error;
} train_call;

/* The path of the model that `name` means; train_start.c. */
AVO_MUST_USE avo_status train_start_find(train_call *call, const char *name,
                                         char path[CLI_PATH_MAX]);
void train_start_clean(train_call *call);

/* Joins the other ranks where mpirun has started this process; train_ranks.c. */
AVO_MUST_USE avo_status train_ranks_begin(train_call *call);
/* train_start_find by rank 0; the others wait until what it makes is there. */
AVO_MUST_USE avo_status train_ranks_start(train_call *call, const char *name,
                                          char path[CLI_PATH_MAX]);
/* Whether this process reports. */
bool train_ranks_leads(const train_call *call);

/* Checks the options of --publish and finds the output folder, before a model is opened.
 * train_publish.c. */
AVO_MUST_USE avo_status train_publish_check(train_call *call);
/* Asks the server what it serves and publishes from now on. Errors of the server are warnings, here
 * and later. `model` is the one that is trained. */
void train_publish_begin(train_call *call, const avo_model *model);

/* Runs and reports; train_show.c. */
AVO_MUST_USE avo_status train_show_run(train_call *call, const avo_model *model);
AVO_MUST_USE avo_status train_show_preview(train_call *call, const avo_model *model);

#endif
