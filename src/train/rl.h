/* Reinforcement learning: rl.c has the step, rollout.c samples completions, for heads_answers.c,
 * too. Private to the loop. */
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

/* ---- Answers of the model to prompts of the data (rollout.c) ---- */

typedef struct rollout_options {
    rl_completion *items; /* [count], begun */
    size_t count;
    float temperature;
    uint64_t stream, first; /* of base/random.h: item i has the seed of first + i */
} rollout_options;
/* Arrays of an item but for `reference`. */
AVO_MUST_USE avo_status rollout_take(train_run_state *run, arena *arena, rl_completion *item);
/* The prompt of a sample. */
void rollout_begin(const train_data *data, uint64_t index, rl_completion *item);
/* Answers all of them, each with at most settings->answer tokens. */
AVO_MUST_USE avo_status rollout_run(train_run_state *run, const rollout_options *options,
                                    arena *arena);

/* Samples a group for the first prompt and rewards it. */
AVO_MUST_USE avo_status rl_preview(train_run_state *run, train_preview *preview);

/* Fills the items of a step. */
AVO_MUST_USE avo_status rl_rollout(train_run_state *run, rl_state *state, uint64_t step);
/* The completion as text, without stop tokens, terminated, in the arena. */
AVO_MUST_USE avo_status rl_text(train_run_state *run, arena *arena, const rl_completion *item,
                                const char **text);

#endif
