/* avo_train_run: the public interface of training (include/avocet/train.h). */
#include "base/options.h"
#include "train/rewards.h"
#include "train/run.h"

#include <math.h>
#include <string.h>

#define SETTINGS_BYTES_MAX ((size_t)1 << 20)

typedef struct public_run {
    avo_train_options options;
    const avo_allocator *allocator;
    arena arena; /* settings, rewards */
    train_settings settings;
    avo_error *error;
} public_run;

static bool on_step(void *context, const train_step_info *info) {
    const public_run *run = context;
    avo_train_event event = {.size = sizeof(event),
                             .step = info->step,
                             .steps = info->steps,
                             .loss = info->loss,
                             .reward = info->reward,
                             .learning_rate = info->rate,
                             .tokens_per_second = info->tokens_per_second,
                             .seconds_left = info->seconds_left,
                             .metrics = info->metrics,
                             .evaluation = info->evaluation};
    return run->options.on_step(run->options.on_step_context, &event);
}

/* ---- Rewards ---- */

typedef struct public_reward {
    const avo_train_reward *reward;
    const avo_allocator *allocator;
} public_reward;

static avo_status score_items(const avo_train_reward *reward, const train_reward_item *items,
                              size_t count, arena *arena, double *scores, avo_error *error) {
    avo_train_completion *shown = arena_take_array(arena, count, sizeof(*shown));
    if (shown == NULL)
        return status_no_memory(error, "completions", count * sizeof(*shown));
    for (size_t i = 0; i < count; i++) {
        buffer text;
        buffer_init(&text, arena->allocator, (size_t)64 << 20);
        avo_status status = json_write_value(&text, items[i].fields);
        const char *fields = status == AVO_OK ? arena_copy_text(arena, text.data, text.size) : NULL;
        buffer_free(&text);
        if (fields == NULL)
            return status_no_memory(error, "the fields of a completion", 0);
        shown[i] = (avo_train_completion){items[i].prompt, items[i].completion, fields};
    }
    if (!reward->score(reward->context, shown, count, scores))
        return status_fail(error, AVO_ERROR_CANCELLED, "the function failed");
    return AVO_OK;
}

static avo_status score_public(void *context, const train_reward_item *items, size_t count,
                               double *scores, avo_error *error) {
    const public_reward *own = context;
    arena arena;
    arena_init(&arena, own->allocator, SIZE_MAX);
    avo_status status = score_items(own->reward, items, count, &arena, scores, error);
    arena_free(&arena);
    return status;
}

/* Those of the caller; settings' own come behind them. */
static avo_status take_rewards(public_run *run, train_rewards *rewards) {
    for (size_t i = 0; i < run->options.reward_count; i++) {
        const avo_train_reward *reward = &run->options.rewards[i];
        public_reward *own = arena_take(&run->arena, sizeof(*own));
        if (own == NULL)
            return status_no_memory(run->error, "rewards", sizeof(*own));
        *own = (public_reward){reward, run->allocator};
        AVO_TRY(train_rewards_add(
            rewards, &(train_reward){reward->name, reward->weight, score_public, own}, run->error));
    }
    return AVO_OK;
}

/* ---- Settings ---- */

static avo_status find_task(const char *name, train_task *task, avo_error *error) {
    for (int i = 0; i < TRAIN_TASKS; i++) {
        *task = (train_task)i;
        if (name != NULL && strcmp(name, train_task_name(*task)) == 0)
            return AVO_OK;
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "task is \"%.40s\", must be sft, dpo, rl, pretrain or heads",
                       name != NULL ? name : "");
}

static avo_status read_settings(public_run *run) {
    json_value root;
    train_task task;
    AVO_TRY(find_task(run->options.task, &task, run->error));
    train_settings_init(&run->settings, task);
    const char *text = run->options.settings;
    if (text != NULL) {
        if (strlen(text) > SETTINGS_BYTES_MAX)
            return status_fail(run->error, AVO_ERROR_LIMIT, "settings of more than 1 MiB");
        avo_status status = json_parse(&run->arena, text_from(text), &root, run->error);
        if (status != AVO_OK)
            return status_prefix(run->error, status, "settings");
        AVO_TRY(
            train_settings_read(&run->settings, &root, false, &run->arena, "settings", run->error));
    }
    AVO_TRY(train_settings_finish(&run->settings, run->error));
    if (run->options.adapter_every > 0 && run->options.on_adapter == NULL)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "adapter_every is %u, but on_adapter is missing",
                           run->options.adapter_every);
    if (run->options.output == NULL || run->options.output[0] == '\0')
        return status_fail(run->error, AVO_ERROR_ARGUMENT, "output is missing: a folder");
    return AVO_OK;
}

/* ---- The run ---- */

static avo_status take_server(const public_run *run, train_run_options *options,
                              train_serve_options *serve) {
    avo_train_server server = AVO_TRAIN_SERVER_INIT;
    if (run->options.server == NULL)
        return AVO_OK;
    AVO_TRY(
        options_take(&server, sizeof(server), run->options.server, "avo_train_server", run->error));
    *serve = (train_serve_options){
        .address = server.address, .command = server.command, .config = server.config};
    options->serve = serve;
    options->serve_every = server.every > 0 ? server.every : TRAIN_SERVE_EVERY;
    return AVO_OK;
}

static avo_status run_with(public_run *run, const avo_model *model, train_rewards *rewards,
                           train_summary *summary) {
    train_serve_options serve;
    AVO_TRY(take_rewards(run, rewards));
    AVO_TRY(train_rewards_open(rewards, model, &run->settings, run->error));
    const avo_train_options *given = &run->options;
    train_run_options options = {.allocator = run->allocator,
                                 .settings = run->settings,
                                 .output = given->output,
                                 .resume = given->resume,
                                 .engine = AVO_ENGINE_OPTIONS_INIT,
                                 .rewards = rewards->items,
                                 .reward_count = rewards->count,
                                 .on_step = given->on_step != NULL ? on_step : NULL,
                                 .on_step_context = run,
                                 .on_adapter = given->on_adapter,
                                 .on_adapter_context = given->on_adapter_context,
                                 .renew_every = given->adapter_every,
                                 .progress = given->progress,
                                 .progress_context = given->progress_context,
                                 .log = given->log,
                                 .log_context = given->log_context};
    AVO_TRY(options_take(&options.engine, sizeof(options.engine), given->engine,
                         "avo_engine_options", run->error));
    AVO_TRY(take_server(run, &options, &serve));
    return train_run(model, &options, summary, run->error);
}

avo_status avo_train_run(const avo_model *model, const avo_train_options *options,
                         avo_train_result *result, avo_error *error) {
    public_run run = {.options = AVO_TRAIN_OPTIONS_INIT, .error = error};
    train_summary summary = {.loss = NAN, .best = NAN};
    AVO_TRY(options_take(&run.options, sizeof(run.options), options, "avo_train_options", error));
    run.allocator = run.options.allocator;
    arena_init(&run.arena, run.allocator, SIZE_MAX);
    avo_status status = read_settings(&run);
    if (status == AVO_OK) {
        train_rewards rewards = {.allocator = run.allocator};
        status = run_with(&run, model, &rewards, &summary);
        train_rewards_close(&rewards);
    }
    arena_free(&run.arena);
    avo_train_result own = {.size = sizeof(own),
                            .first_step = summary.first_step,
                            .step = summary.step,
                            .steps = summary.steps,
                            .tokens = summary.tokens,
                            .loss = summary.loss,
                            .best_loss = summary.best,
                            .best_step = summary.best_step,
                            .seconds = summary.seconds};
    if (result != NULL)
        options_give(result, &own, sizeof(own));
    return status;
}
