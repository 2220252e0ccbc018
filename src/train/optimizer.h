/* Optimizers: AdamW for everything, Muon for matrices in pre-training. An optimizer owns the
 * moments (f32, as PyTorch keeps them) and changes the values of train_parameters in place. Called
 * by the training loop, once per step, after all gradients of the step are summed.
 *
 * AdamW computes in torch.optim.AdamW's order of operations. Muon is momentum with Nesterov's
 * correction, orthogonalised by five Newton-Schulz iterations in f32; its learning rate is
 * multiplied by √max(1, rows ÷ k), as torch.optim.Muon does. Parameters that are no matrices have
 * AdamW in either case.
 *
 * All sums have one order: results have the same bits for any number of threads. Opening fails
 * without memory; a step fails where a gradient is not finite, and then has changed nothing. */
#ifndef AVO_TRAIN_OPTIMIZER_H
#define AVO_TRAIN_OPTIMIZER_H

#include "base/allocator.h"
#include "base/team.h"
#include "train/parameters.h"

typedef enum optimizer_kind { OPTIMIZER_ADAMW, OPTIMIZER_MUON } optimizer_kind;

typedef enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE } schedule_kind;

typedef struct optimizer_options {
    const avo_allocator *allocator;
    team *team;
    optimizer_kind kind;
    double beta1, beta2, epsilon;
    double weight_decay; /* of matrices and of LoRA's A and B; none of vectors and embeddings */
    double clip;         /* largest global norm of the gradients; 0: not clipped */
    double lora_plus;    /* rate of B ÷ rate of A; 1: the same */
    double momentum;     /* of Muon */
    double muon_rate;    /* rate of Muon ÷ rate of AdamW */
} optimizer_options;

typedef struct optimizer optimizer;

AVO_MUST_USE avo_status optimizer_open(const optimizer_options *options,
                                       const train_parameters *parameters, optimizer **out,
                                       avo_error *error);
void optimizer_close(optimizer *optimizer);
/* Bytes of its moments and scratch. */
uint64_t optimizer_bytes(const optimizer_options *options, const train_parameters *parameters);

/* Step `step`, counted from 1, with the rate of that step. *norm: of the gradients before clipping.
 * AVO_ERROR_ARGUMENT: a gradient is not finite. */
AVO_MUST_USE avo_status optimizer_step(optimizer *optimizer, uint64_t step, double rate,
                                       double *norm, avo_error *error);

/* What a checkpoint keeps, in a fixed order: arrays of numbers, each belonging to a parameter.
 * False behind the last. */
typedef struct optimizer_state {
    const char *kind; /* "exp_avg", "exp_avg_sq", "momentum_buffer": PyTorch's names */
    const train_parameter *parameter;
    float *data; /* rows × k of the parameter; NULL: it has none of this kind */
} optimizer_state;
bool optimizer_state_at(optimizer *optimizer, uint32_t index, optimizer_state *state);

/* ---- Learning rates ---- */

typedef struct schedule {
    schedule_kind kind;
    double rate;
    uint64_t warmup, steps; /* of all steps, the first `warmup` rise to the rate */
    double end;             /* rate at the end ÷ rate; not of constant ones */
} schedule;
/* "constant", "linear", "cosine" */
const char *schedule_name(schedule_kind kind);
/* Of step `step`, counted from 1. As transformers' get_…_schedule_with_warmup: the first step has
 * the rate for 0 steps done, so with a warm-up it has rate 0. */
double schedule_rate(const schedule *schedule, uint64_t step);

#endif
