/* What the files of the loop share: the state of a run, and what each task adds. */
#ifndef AVO_TRAIN_RUN_INT_H
#define AVO_TRAIN_RUN_INT_H

#include "train/checkpoint.h"
#include "train/core.h"
#include "train/lock.h"
#include "train/optimizer.h"
#include "train/record.h"
#include "train/rewards.h"
#include "train/run.h"

#define METRICS_MAX (2 * TRAIN_REWARDS_MAX + 32) /* mean and deviation of each, and the others */

/* The numbers of a step, in the order in which they are written. */
typedef struct train_metrics {
    struct {
        char name[96];
        double value;
    } items[METRICS_MAX];
    uint32_t count;
} train_metrics;
void metrics_add(train_metrics *metrics, const char *name, double value);

typedef struct train_run_state train_run_state;

/* A task's part of the loop. */
typedef struct train_task_code {
    avo_status (*open)(train_run_state *run);
    void (*close)(train_run_state *run);
    /* Everything of one step: passes, gradients, run_update. */
    avo_status (*step)(train_run_state *run, uint64_t step, train_metrics *metrics);
    /* Of the valid data: metrics, the first of which is eval_loss. NULL: not of this task. */
    avo_status (*evaluate)(train_run_state *run, train_metrics *metrics);
} train_task_code;
extern const train_task_code train_task_sft, train_task_dpo, train_task_rl, train_task_heads;

struct train_run_state {
    const train_run_options *options;
    const train_settings *settings; /* the run's own copy */
    const avo_allocator *allocator;
    const avo_model *model;
    train_settings own_settings;
    const train_task_code *task;
    train_data *data, *valid; /* valid: NULL where there is none */
    train_data_info info, valid_info;
    train_core *core;
    train_parameters *parameters;
    optimizer *optimizer;
    schedule schedule;
    train_record record;
    train_lock lock; /* on the output folder */
    train_serve serve;
    checkpoint_state state;
    uint64_t model_digest; /* source_digest_whole */
    uint64_t steps;
    /* Scratch of passes, for rows_max tokens and sequences_max sequences. */
    uint32_t rows_max, sequences_max, context_max;
    float *logprobs, *entropies, *coefficients;
    uint8_t *likeliest;
    /* Micro-batches (micro.h): the sum of their gradients, what other ranks have sent. */
    float *total, *gathered;
    size_t total_floats;
    double norm; /* of the gradients of the last update */
    double loss, reward;
    uint64_t step_tokens; /* of the step at hand */
    void *task_state;     /* of train_task_code */
    avo_error *error;
};

/* Whether the model answers prompts of the data. */
bool run_answers(const train_run_state *run);
#define HEADS_ANSWERS_AT_ONCE 16 /* more are faster, and take more KV pages */

/* The sample at a position of the endless row of shuffled epochs. */
uint64_t run_sample_index(const train_run_state *run, uint64_t position);

/* How many of the sequences from `first` on fit into one pass, in units of `unit` sequences that
 * must stay together; at least one unit. Nothing is padded, and sequences never see each other,
 * because each is a session of its own; a pass costs what its tokens cost, and a little for itself.
 *
 * Gradients are summed in the order of the samples (core.h), so passes take the samples in their
 * order, each as many as fit: no division that keeps the order has fewer passes. The bits of a step
 * thus depend on neither rows_max nor sequences_max, and a run may be resumed with other limits.
 * First-fit decreasing would need 10 to 15 % fewer passes where a pass has 1024 rows and samples
 * 150 to 250 tokens on average (7 % with 2048 rows), but its bits would depend on the limits. */
size_t run_pass_count(const train_run_state *run, const train_sequence *sequences, size_t count,
                      size_t first, size_t unit);
uint64_t run_rows(const train_sequence *sequences, size_t count);

/* Clips, changes the parameters and clears the gradients. `update` counts from 1. */
AVO_MUST_USE avo_status run_update(train_run_state *run, uint64_t step, uint64_t update);

void run_log(const train_run_state *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- run_open.c ---- */

/* Opens data, core and optimizer; a failure leaves what is open to run_close. */
AVO_MUST_USE avo_status run_open(train_run_state *run);
void run_close(train_run_state *run);
/* What those of a run are opened with. */
void run_core_options(const train_run_state *run, train_core_options *options);
void run_optimizer_options(const train_run_state *run, optimizer_options *options);
void run_init(train_run_state *run, const avo_model *model, const train_run_options *options,
              avo_error *error);

#endif
