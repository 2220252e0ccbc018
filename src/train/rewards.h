/* The rewards of a run: those that a program adds, and those that its settings describe
 * (eval/reward.h). */
#ifndef AVO_TRAIN_REWARDS_H
#define AVO_TRAIN_REWARDS_H

#include "eval/reward.h"
#include "train/run.h"

/* One that the settings describe. */
typedef struct train_described {
    const avo_allocator *allocator;
    reward *reward;
    char name[72];
} train_described;

/* Begins as {0} but for the allocator; must not move while it is open. */
typedef struct train_rewards {
    const avo_allocator *allocator;
    train_reward items[TRAIN_REWARDS_MAX];
    size_t count;
    train_described described[TRAIN_LIST_MAX];
    size_t described_count;
} train_rewards;

AVO_MUST_USE avo_status train_rewards_add(train_rewards *rewards, const train_reward *reward,
                                          avo_error *error);
/* Opens those of the settings; without any it does nothing. */
AVO_MUST_USE avo_status train_rewards_open(train_rewards *rewards, const avo_model *model,
                                           const train_settings *settings, avo_error *error);
void train_rewards_close(train_rewards *rewards);

#endif
