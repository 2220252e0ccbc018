/* Part of avocet.h, which includes it: training. The rules at the head of avocet.h hold here, too.
 */
#ifndef AVO_AVOCET_TRAIN_H
#define AVO_AVOCET_TRAIN_H

#ifndef AVOCET_H
#error "include avocet.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* After every step, and after every evaluation of valid data. */
typedef struct avo_train_event {
    size_t size; /* the library's sizeof */
    uint64_t step, steps;
    double loss;   /* of the step; with `evaluation` of the valid data */
    double reward; /* rl: the mean of the step; else NaN */
    double learning_rate;
    double tokens_per_second;
    double seconds_left; /* estimated from the steps so far */
    const char *metrics; /* the line of metrics.jsonl, a JSON object; valid during the call */
    bool evaluation;
} avo_train_event;
/* Returning false ends the run behind this step: it writes a checkpoint and its output and fails
 * with AVO_ERROR_CANCELLED. */
typedef bool (*avo_train_function)(void *context, const avo_train_event *event);

/* The adapter in the output folder is the one behind this step. */
typedef void (*avo_train_adapter_function)(void *context, uint64_t step);

/* A completion to be rewarded. Texts are terminated and valid during the call. */
typedef struct avo_train_completion {
    const char *prompt, *completion;
    const char *fields; /* the item of the data as a JSON object */
} avo_train_completion;

/* A reward of rl that the program computes: a finite number for each completion. Returning false
 * ends the run with an error. */
typedef struct avo_train_reward {
    const char *name;
    double weight;
    bool (*score)(void *context, const avo_train_completion *completions, size_t count,
                  double *scores);
    void *context;
} avo_train_reward;

/* A server for the time of the training, which answers with the adapter as it was a few steps ago
 * and without it: `avocet serve` in a process of its own. Its page shows the training. No request
 * changes a bit of the training, and a server that ends is a line of the log. */
typedef struct avo_train_server {
    size_t size;         /* sizeof(avo_train_server) */
    const char *address; /* "[HOST:]PORT"; NULL: 127.0.0.1:8080; port 0: any free one, which the log
                            says */
    const char *command; /* path of the program avocet; NULL: "avocet", found in PATH */
    const char *config;  /* file for its option --config; NULL: four requests at a time */
    uint32_t every;      /* steps between two versions of the adapter; 0: 10 */
} avo_train_server;
#define AVO_TRAIN_SERVER_INIT                                                                      \
    { sizeof(avo_train_server), NULL, NULL, NULL, 0 }

typedef struct avo_train_options {
    size_t size;        /* sizeof(avo_train_options) */
    const char *task;   /* "sft", "dpo", "rl", "pretrain" or "heads" */
    const char *output; /* folder for checkpoints, metrics and the result; made if needed */
    /* A JSON object with the settings of `avocet train`, at least "data": the names of its options,
     * with '_' or '-' (docs/train.md). Unknown names are refused. NULL: none. */
    const char *settings;
    bool resume; /* continue from the newest checkpoint in `output`, if there is one */
    const avo_train_reward *rewards; /* beside those of the settings */
    size_t reward_count;
    avo_train_function on_step; /* NULL: none */
    void *on_step_context;
    avo_progress_function progress; /* of reading the data; NULL: none */
    void *progress_context;
    avo_log_function log; /* what the run decides; NULL: none */
    void *log_context;
    /* Device, KV type and placement; sizes and threads are set by the run. NULL: defaults. */
    const avo_engine_options *engine;
    const avo_allocator *allocator; /* NULL: malloc */
    /* Called when `output` has a new adapter: with every checkpoint, and every `adapter_every`
     * steps (0: with checkpoints alone). The program can load it where it is used:
     * avo_registry_load, or a server's /v1/load_lora_adapter. NULL: none. Not called with "full",
     * "pretrain" and "heads". */
    avo_train_adapter_function on_adapter;
    void *on_adapter_context;
    uint32_t adapter_every;
    /* NULL: no server. Refused with "full", "pretrain" and "heads", which make no adapter. */
    const avo_train_server *server;
} avo_train_options;
#define AVO_TRAIN_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(avo_train_options), NULL, NULL, NULL, false, NULL, 0, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, 0, NULL                                                  \
    }

typedef struct avo_train_result {
    size_t size;               /* sizeof(avo_train_result), set by the caller */
    uint64_t first_step, step; /* the run continued behind the first and reached the second */
    uint64_t steps;            /* of the whole run */
    uint64_t tokens;           /* trained on, in all parts of the run */
    double loss;               /* of the last step; NaN: no step was done */
    double best_loss;          /* smallest loss of valid data; NaN: no evaluation */
    uint64_t best_step;
    double seconds; /* of this call */
} avo_train_result;
#define AVO_TRAIN_RESULT_INIT                                                                      \
    { sizeof(avo_train_result), 0, 0, 0, 0, 0.0, 0.0, 0, 0.0 }

/* Trains an adapter for the model, all of its weights ("full"), or draft heads for it ("heads"),
 * and writes the result to a folder. The model does not change. The same model, data and settings
 * give the same bytes, whatever the number of threads and however often the run was stopped and
 * resumed. Returns when the run has ended; `result` may be NULL, and is filled after a failure,
 * too. */
AVO_API AVO_MUST_USE avo_status avo_train_run(const avo_model *model,
                                              const avo_train_options *options,
                                              avo_train_result *result, avo_error *error);

#ifdef __cplusplus
}
#endif
#endif
