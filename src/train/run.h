/* A training run from end to end: data → passes → loss → gradients → optimizer, with checkpoints,
 * evaluations and everything that the output folder holds. Called by cli/ and by the public
 * interface (public.c), once per run, from one thread.
 *
 * A run is a function of model, data and settings: the same ones give the same bytes in the output,
 * whatever the number of threads and the size of passes, and however often the run was stopped and
 * resumed. */
#ifndef AVO_TRAIN_RUN_H
#define AVO_TRAIN_RUN_H

#include "device/ranks/transport.h"
#include "train/data.h"
#include "train/serve.h"
#include "train/settings.h"

#define TRAIN_REWARDS_MAX (2 * TRAIN_LIST_MAX)

typedef struct train_step_info {
    uint64_t step, steps;
    double loss;   /* of the step */
    double reward; /* RL: the mean; else NAN */
    double rate;   /* learning rate */
    double tokens_per_second, seconds_left;
    const char *metrics; /* the line of metrics.jsonl, terminated */
    bool evaluation;     /* the line is of an evaluation; `loss` is that of the valid data */
} train_step_info;

/* One completion to be rewarded. Texts are terminated. */
typedef struct train_reward_item {
    const char *prompt, *completion;
    const json_value *fields; /* of the data's item */
} train_reward_item;

/* A reward that the caller computes, beside those of the settings: one number for each item. */
typedef struct train_reward {
    const char *name;
    double weight;
    avo_status (*score)(void *context, const train_reward_item *items, size_t count, double *scores,
                        avo_error *error);
    void *context;
} train_reward;

typedef struct train_run_options {
    const avo_allocator *allocator;
    train_settings settings;   /* train_settings_finish was called */
    const char *output;        /* folder; made if needed */
    bool resume;               /* from the newest checkpoint in it, or from the start without one */
    bool locked;               /* the caller holds the folder's lock (lock.h) */
    avo_engine_options engine; /* device, threads, KV type and placement */
    /* The other ranks of a job that train the same model on the same data (micro.h); rank 0 alone
     * writes files and reports. NULL: this process alone. */
    transport *transport;
    uint64_t rank_timeout_ns; /* that a rank may keep the others waiting */
    const train_reward *rewards;
    size_t reward_count;
    /* After every step and evaluation. False: the run writes a checkpoint and its output and ends
     * with AVO_ERROR_CANCELLED. */
    bool (*on_step)(void *context, const train_step_info *info);
    void *on_step_context;
    /* After the output folder has got another adapter: with every checkpoint, and every
     * `renew_every` steps (0: with checkpoints alone). Not called with all weights. */
    void (*on_adapter)(void *context, uint64_t step);
    void *on_adapter_context;
    uint32_t renew_every;
    /* A server that has the adapter while it is trained, with every checkpoint and every
     * `serve_every` steps. Model, output, device and allocator are the run's own. NULL: none. */
    const train_serve_options *serve;
    uint32_t serve_every;
    avo_progress_function progress; /* of reading data and of references; NULL: silent */
    void *progress_context;
    avo_log_function log; /* what the run decides; NULL: silent */
    void *log_context;
} train_run_options;

typedef struct train_summary {
    uint64_t first_step, step, steps; /* resumed behind; reached; wanted */
    uint64_t tokens;                  /* seen, in all parts of the run */
    double loss;                      /* of the last step; NAN: no step was done */
    double best;                      /* smallest eval_loss; NAN: none */
    uint64_t best_step;
    double seconds; /* of this part */
} train_summary;

AVO_MUST_USE avo_status train_run(const avo_model *model, const train_run_options *options,
                                  train_summary *summary, avo_error *error);

/* What a run would do. */
typedef struct train_preview {
    train_data_info data;
    char keys[256]; /* what data.keys points at: the data is closed again */
    uint64_t valid_samples;
    uint64_t steps, parameters;
    uint64_t core_bytes, optimizer_bytes; /* memory beside the model's own weights */
    double tokens_per_step;
    double seconds_per_step; /* as measured on the first samples; NAN: not measured, since the model
                                answers prompts */
    /* RL: the first of the completions that were sampled for the first prompt, as far as there is
     * room; its total, and the scores in the order of the options' rewards. */
    char completion[2048];
    size_t completions, rewards;
    double reward, scores[TRAIN_REWARDS_MAX];
    bool rewards_differ; /* among the completions */
} train_preview;
/* Reads the data, opens everything and computes one pass forward and backward, or samples and
 * rewards a group of completions (RL). Writes nothing.
 * `sample` (may be NULL) gets the tokens of the first sample, valid during the call. */
AVO_MUST_USE avo_status train_dry_run(const avo_model *model, const train_run_options *options,
                                      train_preview *preview,
                                      void (*sample)(void *context, const train_sample *sample),
                                      void *sample_context, avo_error *error);

#endif
