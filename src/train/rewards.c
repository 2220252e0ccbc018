/* Opening the rewards of the settings. */
#include "train/rewards.h"

#include <math.h>
#include <string.h>

avo_status train_rewards_add(train_rewards *rewards, const train_reward *reward, avo_error *error) {
    if (rewards->count == TRAIN_REWARDS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %d rewards", TRAIN_REWARDS_MAX);
    if (reward->name == NULL || reward->score == NULL || !isfinite(reward->weight))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a reward needs a name, a function and a finite weight");
    rewards->items[rewards->count++] = *reward;
    return AVO_OK;
}

static avo_status score_contains(void *context, const train_reward_item *items, size_t count,
                                 double *scores, avo_error *error) {
    (void)error;
    for (size_t i = 0; i < count; i++)
        scores[i] = strstr(items[i].completion, context) != NULL ? 1.0 : 0.0;
    return AVO_OK;
}

avo_status train_rewards_open(train_rewards *rewards, const avo_model *model,
                              const train_settings *settings, avo_error *error) {
    (void)model;
    for (uint32_t i = 0; i < settings->rewards.count; i++) {
        const char *text = settings->rewards.items[i];
        if (strncmp(text, "contains:", 9) != 0)
            return status_fail(error, AVO_ERROR_UNSUPPORTED, "reward %s", text);
        AVO_TRY(train_rewards_add(
            rewards, &(train_reward){text, 1.0, score_contains, (void *)(uintptr_t)(text + 9)},
            error));
    }
    return AVO_OK;
}

void train_rewards_close(train_rewards *rewards) {
    (void)rewards;
}
