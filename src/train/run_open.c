/* Opening a run: data, sizes, core, optimizer. */
#include "train/micro.h"

#include "base/file.h"
#include "device/layer.h"
#include "formats/source.h"
#include "model/model.h"
#include "train/output.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONTEXT_DEFAULT 2048
#define ROWS_DEFAULT    1024
#define SEQUENCES_MAX   64

void run_log(const train_run_state *run, const char *format, ...) {
    char line[512];
    va_list arguments;
    if (run->options->log == NULL)
        return;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    run->options->log(run->options->log_context, line);
}

/* ---- Data ---- */

static train_data_use use_of(const train_settings *settings) {
    static const train_data_use uses[TRAIN_TASKS] = {TRAIN_FOR_SFT, TRAIN_FOR_DPO, TRAIN_FOR_RL,
                                                     TRAIN_FOR_PRETRAIN, TRAIN_FOR_HEADS};
    return settings->generate ? TRAIN_FOR_RL : uses[settings->task];
}

static avo_status open_split(train_run_state *run, const train_list *paths, const char *split,
                             train_data **data, train_data_info *info) {
    const train_settings *s = run->settings;
    train_data_options options = {.allocator = run->allocator,
                                  .use = use_of(s),
                                  .context_max = s->context,
                                  .cut = s->cut,
                                  .more = paths->items + 1,
                                  .more_count = paths->count - 1,
                                  .no_template = s->no_template,
                                  .system = s->system,
                                  .progress = run->options->progress,
                                  .progress_context = run->options->progress_context};
    AVO_TRY(train_data_open(run->model, paths->items[0], split, &options, data, run->error));
    *info = train_data_describe(*data);
    if (info->samples == 0)
        return status_fail(run->error, AVO_ERROR_FORMAT, "%s: no samples in split %s",
                           paths->items[0], split);
    return AVO_OK;
}

static avo_status open_data(train_run_state *run) {
    const train_settings *s = run->settings;
    avo_model_info model = AVO_MODEL_INFO_INIT;
    if (s->task == TRAIN_RL && run->options->reward_count == 0)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "missing reward: such as contains:dog, exact_match or command:PROGRAM");
    avo_model_describe(run->model, &model);
    if (s->context > model.context)
        return status_fail(run->error, AVO_ERROR_ARGUMENT, "context is %u, the model's is %u",
                           s->context, model.context);
    if (s->context == 0)
        run->own_settings.context =
            model.context < CONTEXT_DEFAULT ? model.context : CONTEXT_DEFAULT;
    if ((s->task == TRAIN_RL || s->generate) && s->answer >= s->context)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "answer is %u, must be below the context (%u): it leaves no room for "
                           "the prompt",
                           s->answer, s->context);
    AVO_TRY(open_split(run, &s->data, "train", &run->data, &run->info));
    if (s->eval_every == 0)
        return AVO_OK;
    const train_list valid = {.items = {s->valid}, .count = 1};
    bool file = s->valid != NULL && file_kind_of(s->valid) != FILE_FOLDER;
    avo_status status = open_split(run, s->valid != NULL ? &valid : &s->data,
                                   file ? "train" : "valid", &run->valid, &run->valid_info);
    if (status != AVO_OK)
        return status_prefix(run->error, status, "eval-every needs valid data");
    return AVO_OK;
}

/* ---- Sizes ---- */

static uint32_t smaller(uint64_t a, uint32_t b) {
    return a < b ? (uint32_t)a : b;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

bool run_answers(const train_run_state *run) {
    return run->settings->task == TRAIN_RL || run->info.kind == TRAIN_DATA_PROMPT ||
           run->valid_info.kind == TRAIN_DATA_PROMPT;
}

static avo_status choose_sizes(train_run_state *run) {
    const train_settings *s = run->settings;
    uint32_t longest = larger(run->info.longest, run->valid_info.longest);
    uint64_t least_sequences = 1;
    uint64_t sequences = s->batch;
    uint32_t unit = 1;
    if (run_answers(run)) {
        if (s->answer >= s->context || longest > s->context - s->answer)
            return status_fail(run->error, AVO_ERROR_CONTEXT,
                               "the longest prompt has %u tokens, which leaves no room for an "
                               "answer of %u in a context of %u",
                               longest, s->answer, s->context);
        longest += s->answer;
        sequences *= s->task == TRAIN_RL ? s->group : 1;
        least_sequences = s->task == TRAIN_RL ? 1 : HEADS_ANSWERS_AT_ONCE;
    } else if (s->task == TRAIN_DPO) {
        unit = 2;
        sequences *= 2;
    }
    run->context_max = larger(longest, 2);
    if ((uint64_t)run->context_max * unit > UINT32_MAX / 2)
        return status_fail(run->error, AVO_ERROR_LIMIT, "samples of %u tokens are too long",
                           run->context_max);
    uint32_t least = run->context_max * unit;
    if (s->rows > 0 && s->rows < least)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "rows is %u, must be at least %u: the longest sample%s", s->rows, least,
                           unit == 2 ? " and its counterpart" : "");
    run->rows_max = larger(s->rows > 0 ? s->rows : ROWS_DEFAULT, least);
    run->sequences_max = larger(smaller(sequences, SEQUENCES_MAX), unit);
    run->sequences_max = larger(run->sequences_max, (uint32_t)least_sequences);
    return AVO_OK;
}

/* ---- Steps ---- */

static avo_status find_schedule(const train_run_state *run, schedule_kind *kind) {
    for (int i = SCHEDULE_CONSTANT; i <= SCHEDULE_COSINE; i++) {
        *kind = (schedule_kind)i;
        if (strcmp(run->settings->schedule, schedule_name(*kind)) == 0)
            return AVO_OK;
    }
    return status_fail(run->error, AVO_ERROR_ARGUMENT,
                       "schedule is %.40s, must be constant, linear or cosine",
                       run->settings->schedule);
}

static avo_status choose_steps(train_run_state *run) {
    const train_settings *s = run->settings;
    run->steps = s->steps;
    if (s->steps == 0) {
        double steps = ceil((double)run->info.samples * s->epochs / (double)s->batch);
        run->steps = steps < 1.0 ? 1 : (uint64_t)steps;
    }
    schedule_kind kind;
    AVO_TRY(find_schedule(run, &kind));
    if (s->warmup > run->steps)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "warmup is %u, must be at most the number of steps (%llu)", s->warmup,
                           (unsigned long long)run->steps);
    run->schedule = (schedule){
        .kind = kind, .rate = s->lr, .warmup = s->warmup, .steps = run->steps, .end = s->end_lr};
    return AVO_OK;
}

/* ---- Core and optimizer ---- */

/* Tokens of the KV pool that sampling needs for as many completions as there are sequences of a
 * pass at once; with fewer they would wait for one another. */
static uint64_t rollout_tokens(const train_run_state *run) {
    uint64_t completions = (uint64_t)run->settings->batch * run->settings->group;
    if (run->settings->task == TRAIN_HEADS)
        completions = HEADS_ANSWERS_AT_ONCE;
    return (uint64_t)smaller(completions, run->sequences_max) *
           ((uint64_t)run->context_max + KV_PAGE_TOKENS);
}

static heads_kind heads_kind_of(const train_settings *s) {
    for (heads_kind kind = 0; s->kind != NULL && kind < HEADS_KINDS; kind++)
        if (strcmp(s->kind, heads_kind_name(kind)) == 0)
            return kind;
    return HEADS_MEDUSA; /* other tasks */
}

static train_method method_of(const train_settings *s) {
    if (s->task == TRAIN_HEADS)
        return TRAIN_DRAFT_HEADS;
    return s->full ? TRAIN_FULL : TRAIN_LORA;
}

void run_core_options(const train_run_state *run, train_core_options *options) {
    static const char *const all[] = {"all-linear"};
    const train_settings *s = run->settings;
    *options = (train_core_options){.allocator = run->allocator,
                                    .method = method_of(s),
                                    .rank = s->rank,
                                    .alpha = s->alpha,
                                    .rslora = s->rslora,
                                    .dora = s->dora,
                                    .targets = s->targets.count > 0 ? s->targets.items : all,
                                    .target_count = s->targets.count > 0 ? s->targets.count : 1,
                                    .resume = s->adapter,
                                    .seed = s->seed,
                                    .heads = {.kind = heads_kind_of(s),
                                              .drafts = s->drafts,
                                              .tokens = s->frequent,
                                              .window = s->window,
                                              .teacher = s->teacher,
                                              .depth = s->depth},
                                    .bfloat16 = s->bf16,
                                    .rows_max = run->rows_max,
                                    .sequences_max = run->sequences_max,
                                    .context_max = run->context_max,
                                    .engine = run->options->engine};
    options->engine.threads = s->threads;
    if (run_answers(run) && options->engine.kv_tokens < rollout_tokens(run))
        options->engine.kv_tokens = rollout_tokens(run);
    if (options->engine.speculate == NULL)
        options->engine.speculate = "off";
}

static avo_status open_core(train_run_state *run) {
    train_core_options options;
    run_core_options(run, &options);
    AVO_TRY(train_core_open(run->model, &options, &run->core, run->error));
    run->parameters = train_core_parameters(run->core);
    return AVO_OK;
}

void run_optimizer_options(const train_run_state *run, optimizer_options *options) {
    const train_settings *s = run->settings;
    *options = (optimizer_options){.allocator = run->allocator,
                                   .team = train_core_team(run->core),
                                   .kind = strcmp(s->optimizer, "muon") == 0 ? OPTIMIZER_MUON
                                                                             : OPTIMIZER_ADAMW,
                                   .beta1 = s->beta1,
                                   .beta2 = s->beta2,
                                   .epsilon = s->epsilon,
                                   .weight_decay = s->weight_decay,
                                   .clip = s->clip,
                                   .lora_plus = s->lora_plus,
                                   .momentum = 0.95,
                                   .muon_rate = s->lr > 0.0 ? s->muon_lr / s->lr : 0.0};
}

static avo_status open_optimizer(train_run_state *run) {
    optimizer_options options;
    run_optimizer_options(run, &options);
    return optimizer_open(&options, run->parameters, &run->optimizer, run->error);
}

static avo_status take_scratch(train_run_state *run) {
    size_t rows = run->rows_max;
    run->logprobs = allocator_take_array(run->allocator, rows, sizeof(float));
    run->entropies = allocator_take_array(run->allocator, rows, sizeof(float));
    run->coefficients = allocator_take_array(run->allocator, rows, sizeof(float));
    run->likeliest = allocator_take(run->allocator, rows);
    if (run->logprobs == NULL || run->entropies == NULL || run->coefficients == NULL ||
        run->likeliest == NULL)
        return status_no_memory(run->error, "log-probabilities", rows * sizeof(float));
    return AVO_OK;
}

avo_status run_open(train_run_state *run) {
    static const train_task_code *const codes[TRAIN_TASKS] = {
        &train_task_sft, &train_task_dpo, &train_task_rl, &train_task_sft, &train_task_heads};
    run->task = codes[run->settings->task];
    AVO_TRY(output_check(run->model, run->settings, run->error));
    AVO_TRY(open_data(run));
    AVO_TRY(choose_sizes(run));
    AVO_TRY(choose_steps(run));
    AVO_TRY(open_core(run));
    AVO_TRY(open_optimizer(run));
    AVO_TRY(micro_open(run));
    return take_scratch(run);
}

void run_close(train_run_state *run) {
    size_t bytes = run->rows_max * sizeof(float);
    micro_close(run);
    if (run->task_state != NULL)
        run->task->close(run);
    allocator_give(run->allocator, run->logprobs, bytes);
    allocator_give(run->allocator, run->entropies, bytes);
    allocator_give(run->allocator, run->coefficients, bytes);
    allocator_give(run->allocator, run->likeliest, run->rows_max);
    optimizer_close(run->optimizer);
    train_core_close(run->core);
    train_data_close(run->valid);
    train_data_close(run->data);
}

void run_init(train_run_state *run, const avo_model *model, const train_run_options *options,
              avo_error *error) {
    *run = (train_run_state){.options = options,
                             .allocator = options->allocator,
                             .model = model,
                             .own_settings = options->settings,
                             .record = {.descriptor = -1},
                             .lock = {.descriptor = -1},
                             .serve = {.connection = -1},
                             .loss = NAN,
                             .reward = NAN,
                             .error = error};
    run->settings = &run->own_settings;
    if (micro_count(run) > 1 && run->own_settings.micro_batch == 0)
        run->own_settings.micro_batch = 1;
}
