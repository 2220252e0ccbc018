/* Rollouts of reinforcement learning: rl.c has the step, rollout.c samples. Private to the loop. */
#ifndef AVO_TRAIN_RL_H
#define AVO_TRAIN_RL_H

#include "base/arena.h"
#include "train/loss.h"
#include "train/run_int.h"

typedef struct rl_completion {
    train_sample sample;
    int32_t *tokens;  /* [context_max]: the prompt's, then the sampled ones */
    uint8_t *wanted;  /* [context_max]: 1 from prompt_count on */
    float *logprobs;  /* [context_max]: when sampled */
    float *reference; /* [context_max]: without the adapter; with beta only */
    uint32_t prompt_count, count;
    bool ended; /* by a stop token, which is part of it */
    bool finished;
    avo_error error; /* of its request */
} rl_completion;

/* Sums over the tokens of a step. */
typedef struct rl_sums {
    double loss, kl, entropy;
    uint64_t low, high, tokens;
} rl_sums;

typedef struct rl_state {
    arena arena; /* arrays below */
    arena texts; /* of one step */
    size_t prompts, completions;
    rl_completion *items; /* [completions], those of a prompt one behind the other */
    train_sequence *sequences;
    double *scores; /* [rewards][completions] */
    double *totals, *advantages;
    double *spread;  /* [prompts] */
    uint64_t tokens; /* sampled in this step */
    double rollout_seconds;
    uint64_t
        flat_steps; /* the last ones, in which no reward differed from what it is compared with */
    policy_options policy;
} rl_state;

/* Samples a group for the first prompt and rewards it. */
AVO_MUST_USE avo_status rl_preview(train_run_state *run, train_preview *preview);
/* Fills the items of a step. */
AVO_MUST_USE avo_status rl_rollout(train_run_state *run, rl_state *state, uint64_t step);
/* The completion as text, without stop tokens, terminated, in the arena. */
AVO_MUST_USE avo_status rl_text(train_run_state *run, arena *arena, const rl_completion *item,
                                const char **text);

#endif
