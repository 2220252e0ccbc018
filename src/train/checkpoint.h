/* Checkpoints: OUT/checkpoint-N/ holds everything that step N + 1 depends on. A checkpoint is
 * written into a hidden folder beside it, each file synced, and renamed: after a crash it is there
 * as a whole or not at all. The order of the data and all random numbers are functions of seed and
 * step, so they need no state of their own.
 *
 *   adapter_config.json, adapter_model.safetensors   or model.safetensors and what lies beside it,
 *                              or heads.safetensors in f32
 *   optimizer.safetensors      moments, as "exp_avg.NAME", "exp_avg_sq.NAME", …
 *   trainer_state.json         record.h
 *   training_state.json        step, tokens, best evaluation, settings; digests of the model's
 *                              weights, of the data, and of weights and moments of the checkpoint
 *
 * OUT/run.json has digests and settings from before the first step on, so that a run that has no
 * checkpoint yet is not taken for another one.
 *
 * Called by the loop. Fails where files cannot be written or do not fit the run; errors name the
 * folder and what differs. */
#ifndef AVO_TRAIN_CHECKPOINT_H
#define AVO_TRAIN_CHECKPOINT_H

#include "model/model.h"
#include "train/optimizer.h"
#include "train/record.h"
#include "train/settings.h"

#define CHECKPOINT_VERSION 1

/* What a run is, for comparison with a checkpoint's. */
typedef struct checkpoint_run {
    const avo_allocator *allocator;
    const avo_model *model;
    const train_settings *settings;
    const train_parameters *parameters;
    optimizer *optimizer;
    uint64_t steps;        /* of the whole run */
    uint64_t model_digest; /* of all weights of the base model: source_digest_whole */
    uint64_t data_digest[2];
} checkpoint_run;

typedef struct checkpoint_state {
    uint64_t step, tokens;
    double best; /* NAN: none */
    uint64_t best_step;
} checkpoint_state;

/* The path of the newest complete checkpoint in `folder` of a step below `below`; *step is 0 where
 * there is none. */
AVO_MUST_USE avo_status checkpoint_find(const char *folder, uint64_t below, char *path,
                                        size_t capacity, uint64_t *step, avo_error *error);
/* Removes what runs that were killed have left of checkpoints they wrote or removed. */
void checkpoint_clear(const char *folder);
/* Refuses a run that differs from the one that run.json is of; without that file every run is as
 * good. */
AVO_MUST_USE avo_status checkpoint_compare_begun(const checkpoint_run *run, const char *folder,
                                                 arena *arena, avo_error *error);
AVO_MUST_USE avo_status checkpoint_write_begun(const checkpoint_run *run, const char *folder,
                                               avo_error *error);
/* Writes OUT/checkpoint-N, over what may be there, and removes all but the newest `settings->keep`.
 */
AVO_MUST_USE avo_status checkpoint_write(const checkpoint_run *run, const char *folder,
                                         const checkpoint_state *state, const train_record *record,
                                         const record_state *trainer, avo_error *error);
/* Compares the checkpoint with the run and fills parameters, moments and state. `log_history` is
 * in `arena`. */
AVO_MUST_USE avo_status checkpoint_read(const checkpoint_run *run, const char *path, arena *arena,
                                        checkpoint_state *state, const json_value **log_history,
                                        avo_error *error);

#endif
