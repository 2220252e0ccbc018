/* Opening the rewards of the settings. */
#include "train/rewards.h"

#include <math.h>
#include <stdio.h>
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

/* ---- Those that settings describe ---- */

static avo_status score_described(void *context, const train_reward_item *items, size_t count,
                                  double *scores, avo_error *error) {
    train_described *own = context;
    const avo_allocator *allocator = own->allocator;
    reward_item *given = allocator_take_array(allocator, count, sizeof(*given));
    float *found = allocator_take_array(allocator, count, sizeof(*found));
    avo_status status = AVO_OK;
    if (given == NULL || found == NULL)
        status = status_no_memory(error, "completions", count * sizeof(*given));
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        given[i] = (reward_item){items[i].prompt, items[i].completion, items[i].fields};
    AVO_THEN(status, reward_score(own->reward, given, count, found, error));
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        scores[i] = (double)found[i];
    allocator_give(allocator, given, count * sizeof(*given));
    allocator_give(allocator, found, count * sizeof(*found));
    return status;
}

static avo_status count_tokens(void *context, const char *text, uint64_t *count, avo_error *error) {
    size_t tokens = 0;
    avo_status status =
        avo_tokenize(context, text, strlen(text), AVO_TOKENIZE_PLAIN, NULL, 0, &tokens, error);
    *count = tokens;
    return status == AVO_ERROR_LIMIT ? AVO_OK : status; /* the count is all that is wanted */
}

/* A line of text, or a JSON object as text. */
static avo_status open_one(const char *text, const reward_options *options, reward **out,
                           avo_error *error) {
    json_value description;
    arena arena;
    if (text[0] != '{')
        return reward_open_text(text_from(text), options, out, error);
    arena_init(&arena, options->allocator, SIZE_MAX);
    avo_status status = json_parse(&arena, text_from(text), &description, error);
    AVO_THEN(status, reward_open(&description, options, out, error));
    arena_free(&arena);
    return status;
}

/* Two rewards of one kind get numbers: "contains", "contains-2". */
static void name_it(train_rewards *rewards, train_described *own) {
    const char *name = reward_name(own->reward);
    uint32_t same = 1;
    for (size_t i = 0; i < rewards->described_count; i++)
        same += strcmp(reward_name(rewards->described[i].reward), name) == 0;
    if (same == 1)
        snprintf(own->name, sizeof(own->name), "%s", name);
    else
        snprintf(own->name, sizeof(own->name), "%s-%u", name, same);
}

avo_status train_rewards_open(train_rewards *rewards, const avo_model *model,
                              const train_settings *settings, avo_error *error) {
    reward_options options = {
        .allocator = rewards->allocator,
        .count_tokens = count_tokens,
        .tokens_context = (void *)(uintptr_t)model,
        .code = {.interpreter = settings->python, .unsafe = settings->unsafe}};
    for (uint32_t i = 0; i < settings->rewards.count; i++) {
        train_described *own = &rewards->described[rewards->described_count];
        own->allocator = rewards->allocator;
        AVO_TRY(open_one(settings->rewards.items[i], &options, &own->reward, error));
        name_it(rewards, own);
        rewards->described_count++;
        train_reward reward = {own->name, reward_weight(own->reward), score_described, own};
        AVO_TRY(train_rewards_add(rewards, &reward, error));
    }
    return AVO_OK;
}

void train_rewards_close(train_rewards *rewards) {
    while (rewards->described_count > 0)
        reward_close(rewards->described[--rewards->described_count].reward);
}
