/* Policy gradients: for each prompt of a step a group of completions is sampled from the model as
 * it is now, rewarded, and compared within the group. Sampling is serving: the core's engine and
 * adapter, temperature 1 and no filters, so that the log-probabilities of sampled tokens are those
 * that the training pass computes. That they are, to the bit, is checked for every token. */
#include "train/rl.h"

#include "base/random.h"
#include "train/loss.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Memory ---- */

static avo_status take_arrays(train_run_state *run, rl_state *s) {
    size_t n = s->completions;
    s->items = arena_take_array(&s->arena, n, sizeof(*s->items));
    s->sequences = arena_take_array(&s->arena, n, sizeof(*s->sequences));
    s->advantages = arena_take_array(&s->arena, n, sizeof(*s->advantages));
    s->totals = arena_take_array(&s->arena, n, sizeof(*s->totals));
    s->scores = arena_take_array(&s->arena, n * run->options->reward_count, sizeof(*s->scores));
    s->spread = arena_take_array(&s->arena, s->prompts, sizeof(*s->spread));
    if (s->items == NULL || s->sequences == NULL || s->advantages == NULL || s->totals == NULL ||
        s->scores == NULL || s->spread == NULL)
        return status_no_memory(run->error, "completions", n * sizeof(*s->items));
    for (size_t i = 0; i < n; i++) {
        rl_completion *item = &s->items[i];
        AVO_TRY(rollout_take(run, &s->arena, item));
        item->reference = arena_take_array(&s->arena, run->context_max, sizeof(float));
        if (item->reference == NULL)
            return status_no_memory(run->error, "completions", run->context_max * sizeof(float));
    }
    return AVO_OK;
}

static avo_status kind_of(const char *name, policy_kind *kind, avo_error *error) {
    for (int i = POLICY_GRPO; i <= POLICY_REINFORCE; i++) {
        *kind = (policy_kind)i;
        if (strcmp(name, policy_name(*kind)) == 0)
            return AVO_OK;
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "loss is %.40s, for rl must be grpo, dr_grpo, dapo, rloo or reinforce",
                       name);
}

static avo_status rl_open(train_run_state *run) {
    const train_settings *settings = run->settings;
    policy_kind kind;
    AVO_TRY(kind_of(settings->loss, &kind, run->error));
    rl_state *s = allocator_take(run->allocator, sizeof(*s));
    if (s == NULL)
        return status_no_memory(run->error, "completions", sizeof(*s));
    *s = (rl_state){
        .prompts = settings->batch,
        .completions = (size_t)settings->batch * settings->group,
        .policy = {.kind = kind,
                   .scale = strcmp(settings->scale, "group") == 0 ||
                            (strcmp(settings->scale, "auto") == 0 && kind == POLICY_GRPO),
                   .epsilon_low = settings->epsilon_low,
                   .epsilon_high = settings->epsilon_high,
                   .beta = settings->beta}};
    arena_init(&s->arena, run->allocator, SIZE_MAX);
    arena_init(&s->texts, run->allocator, SIZE_MAX);
    run->task_state = s;
    return take_arrays(run, s);
}

static void rl_close(train_run_state *run) {
    rl_state *s = run->task_state;
    arena_free(&s->arena);
    arena_free(&s->texts);
    allocator_give(run->allocator, s, sizeof(*s));
    run->task_state = NULL;
}

/* ---- Rewards ---- */

static avo_status score(train_run_state *run, rl_state *s) {
    size_t n = s->completions;
    arena_reset(&s->texts);
    train_reward_item *items = arena_take_array(&s->texts, n, sizeof(*items));
    if (items == NULL)
        return status_no_memory(run->error, "completions", n * sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        const rl_completion *item = &s->items[i];
        items[i] =
            (train_reward_item){.prompt = item->sample.prompt, .fields = item->sample.fields};
        AVO_TRY(rl_text(run, &s->texts, item, &items[i].completion));
        s->totals[i] = 0.0;
    }
    for (size_t r = 0; r < run->options->reward_count; r++) {
        const train_reward *reward = &run->options->rewards[r];
        double *scores = s->scores + r * n;
        avo_status status = reward->score(reward->context, items, n, scores, run->error);
        if (status != AVO_OK)
            return status_prefix(run->error, status, "reward %s", reward->name);
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(scores[i]))
                return status_fail(run->error, AVO_ERROR_ARGUMENT,
                                   "reward %s: completion %zu has %g, must be a finite number",
                                   reward->name, i + 1, scores[i]);
            s->totals[i] += reward->weight * scores[i];
        }
    }
    return AVO_OK;
}

/* ---- Passes ---- */

/* Every token must have the bits that it was sampled with. */
static avo_status compare(const train_run_state *run, const rl_state *s, size_t first, size_t taken,
                          uint64_t step) {
    const float *logprobs = run->logprobs;
    for (size_t i = first; i < first + taken; i++) {
        const rl_completion *item = &s->items[i];
        for (uint32_t t = item->prompt_count; t < item->count; t++)
            if (memcmp(&logprobs[t], &item->logprobs[t], sizeof(float)) != 0)
                return status_fail(
                    run->error, AVO_ERROR_DEVICE,
                    "step %" PRIu64 ": prompt %zu, completion %zu, position %u: the "
                    "log-probability of token %d was %.9g when sampled and is %.9g in training; "
                    "both must be equal to the bit",
                    step, i / run->settings->group + 1, i % run->settings->group + 1, t,
                    item->tokens[t], (double)item->logprobs[t], (double)logprobs[t]);
        logprobs += item->count;
    }
    return AVO_OK;
}

/* Of the model without the adapter, for the KL guard. */
static avo_status compute_reference(train_run_state *run, rl_state *s) {
    size_t n = s->completions;
    const train_scores scores = {.logprobs = run->logprobs};
    for (size_t first = 0, taken; first < n; first += taken) {
        taken = run_pass_count(run, s->sequences, n, first, 1);
        AVO_TRY(train_forward(run->core, s->sequences + first, taken, TRAIN_PASS_BASE, &scores,
                              run->error));
        const float *logprobs = run->logprobs;
        for (size_t i = first; i < first + taken; logprobs += s->items[i++].count)
            memcpy(s->items[i].reference, logprobs, s->items[i].count * sizeof(float));
    }
    return AVO_OK;
}

/* Losses and coefficients of one pass; false in *any where all coefficients are 0. */
static void add_pass(train_run_state *run, const rl_state *s, size_t first, size_t taken,
                     rl_sums *sums, bool *any) {
    size_t at = 0;
    *any = false;
    for (size_t i = first; i < first + taken; i++) {
        const rl_completion *item = &s->items[i];
        uint32_t length = item->count - item->prompt_count;
        double weight = policy_token_weight(s->policy.kind, s->completions, s->tokens, length,
                                            run->settings->answer);
        for (uint32_t t = 0; t < item->count; t++, at++) {
            run->coefficients[at] = 0.0f;
            if (t < item->prompt_count)
                continue;
            policy_result result =
                policy_token(&s->policy, s->advantages[i], (double)run->logprobs[at],
                             (double)item->logprobs[t], (double)item->reference[t]);
            run->coefficients[at] = (float)(result.gradient * weight);
            *any = *any || run->coefficients[at] != 0.0f;
            sums->loss += result.loss * weight;
            sums->kl += result.kl;
            sums->low += result.low;
            sums->high += result.high;
            sums->entropy += (double)run->entropies[at];
            sums->tokens++;
        }
    }
}

/* One update from the step's completions. */
static avo_status update(train_run_state *run, rl_state *s, uint64_t step, uint32_t iteration,
                         rl_sums *sums) {
    size_t n = s->completions;
    uint32_t iterations = run->settings->iterations;
    const train_scores scores = {.logprobs = run->logprobs, .entropies = run->entropies};
    for (size_t first = 0, taken; first < n; first += taken) {
        bool any;
        taken = run_pass_count(run, s->sequences, n, first, 1);
        AVO_TRY(train_forward(run->core, s->sequences + first, taken, TRAIN_PASS_LEARN, &scores,
                              run->error));
        if (iteration == 0)
            AVO_TRY(compare(run, s, first, taken, step));
        add_pass(run, s, first, taken, sums, &any);
        if (any)
            AVO_TRY(train_backward(run->core, run->coefficients, run->error));
    }
    return run_update(run, step, (step - 1) * iterations + iteration + 1);
}

/* ---- Metrics ---- */

static double mean_of(const double *values, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static double deviation_of(const double *values, size_t count) {
    double mean = mean_of(values, count), sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(sum / (double)(count - 1)) : 0.0;
}

static void add_lengths(const rl_state *s, train_metrics *metrics) {
    uint32_t least = UINT32_MAX, most = 0;
    uint64_t total = 0, ended_total = 0, ended = 0;
    for (size_t i = 0; i < s->completions; i++) {
        uint32_t length = s->items[i].count - s->items[i].prompt_count;
        least = length < least ? length : least;
        most = length > most ? length : most;
        total += length;
        ended += s->items[i].ended;
        ended_total += s->items[i].ended ? length : 0;
    }
    double n = (double)s->completions;
    metrics_add(metrics, "completions/mean_length", (double)total / n);
    metrics_add(metrics, "completions/min_length", least);
    metrics_add(metrics, "completions/max_length", most);
    metrics_add(metrics, "completions/clipped_ratio", (n - (double)ended) / n);
    metrics_add(metrics, "completions/mean_terminated_length",
                ended > 0 ? (double)ended_total / (double)ended : 0.0);
}

static void add_rewards(train_run_state *run, const rl_state *s, train_metrics *metrics) {
    size_t n = s->completions, alike = 0;
    char name[96];
    for (size_t r = 0; r < run->options->reward_count; r++) {
        const char *reward = run->options->rewards[r].name;
        snprintf(name, sizeof(name), "rewards/%.60s/mean", reward);
        metrics_add(metrics, name, mean_of(s->scores + r * n, n));
        snprintf(name, sizeof(name), "rewards/%.60s/std", reward);
        metrics_add(metrics, name, deviation_of(s->scores + r * n, n));
    }
    for (size_t g = 0; g < s->prompts; g++)
        alike += s->spread[g] == 0.0;
    run->reward = mean_of(s->totals, n);
    metrics_add(metrics, "reward", run->reward);
    metrics_add(metrics, "reward_std", mean_of(s->spread, s->prompts));
    metrics_add(metrics, "frac_reward_zero_std", (double)alike / (double)s->prompts);
}

static void add_metrics(train_run_state *run, const rl_state *s, const rl_sums *sums,
                        train_metrics *metrics) {
    double tokens = sums->tokens > 0 ? (double)sums->tokens : 1.0;
    metrics_add(metrics, "loss", run->loss);
    add_lengths(s, metrics);
    add_rewards(run, s, metrics);
    if (s->policy.beta > 0.0)
        metrics_add(metrics, "kl", sums->kl / tokens);
    metrics_add(metrics, "entropy", sums->entropy / tokens);
    metrics_add(metrics, "clip_ratio/low_mean", (double)sums->low / tokens);
    metrics_add(metrics, "clip_ratio/high_mean", (double)sums->high / tokens);
    metrics_add(metrics, "clip_ratio/region_mean", (double)(sums->low + sums->high) / tokens);
    /* Checked by compare: the step fails otherwise. */
    metrics_add(metrics, "sampling/sampling_logp_difference/max", 0.0);
    metrics_add(metrics, "rollout_time", s->rollout_seconds);
}

/* ---- The step ---- */

#define FLAT_STEPS 5 /* before a word is said; then after twice as many, and so on */

/* Without a difference between completions there is nothing to learn from the rewards. */
static void warn_of_equal_rewards(const train_run_state *run, rl_state *s, uint64_t step) {
    bool flat = true;
    for (size_t i = 0; i < s->completions && flat; i++)
        flat = s->advantages[i] == 0.0;
    s->flat_steps = flat ? s->flat_steps + 1 : 0;
    uint64_t told = FLAT_STEPS;
    while (told < s->flat_steps)
        told *= 2;
    bool short_run = s->flat_steps < FLAT_STEPS && s->flat_steps == step && step == run->steps;
    if (flat && (s->flat_steps == told || short_run))
        run_log(run,
                "step %" PRIu64 ": the completions of every group had equal rewards (%g in the "
                "first) in the last %" PRIu64 " step%s, which teaches nothing; look at rewards and "
                "completions with --dry-run, or take prompts whose answers differ in reward",
                step, s->totals[0], s->flat_steps, s->flat_steps == 1 ? "" : "s");
}

static avo_status rl_step(train_run_state *run, uint64_t step, train_metrics *metrics) {
    rl_state *s = run->task_state;
    AVO_TRY(rl_rollout(run, s, step));
    s->tokens = 0;
    for (size_t i = 0; i < s->completions; i++) {
        const rl_completion *item = &s->items[i];
        s->sequences[i] = (train_sequence){item->tokens, item->count, item->wanted};
        s->tokens += item->count - item->prompt_count;
    }
    AVO_TRY(score(run, s));
    policy_advantages(&s->policy, s->totals, s->prompts, run->settings->group, s->advantages,
                      s->spread);
    warn_of_equal_rewards(run, s, step);
    if (s->policy.beta > 0.0)
        AVO_TRY(compute_reference(run, s));
    rl_sums sums = {0};
    for (uint32_t i = 0; i < run->settings->iterations; i++)
        AVO_TRY(update(run, s, step, i, &sums));
    run->loss = sums.loss / (double)run->settings->iterations;
    run->step_tokens = run_rows(s->sequences, s->completions);
    add_metrics(run, s, &sums, metrics);
    return AVO_OK;
}

const train_task_code train_task_rl = {rl_open, rl_close, rl_step, NULL};

/* ---- The preview ---- */

avo_status rl_preview(train_run_state *run, train_preview *preview) {
    AVO_TRY(rl_open(run));
    rl_state *s = run->task_state;
    s->prompts = 1;
    s->completions = run->settings->group;
    AVO_TRY(rl_rollout(run, s, 1));
    AVO_TRY(score(run, s));
    const char *text;
    AVO_TRY(rl_text(run, &s->texts, &s->items[0], &text));
    snprintf(preview->completion, sizeof(preview->completion), "%s", text);
    preview->completions = s->completions;
    preview->reward = s->totals[0];
    preview->rewards = run->options->reward_count;
    for (size_t r = 0; r < preview->rewards; r++)
        preview->scores[r] = s->scores[r * s->completions];
    for (size_t i = 1; i < s->completions; i++)
        preview->rewards_differ = preview->rewards_differ || s->totals[i] != s->totals[0];
    return AVO_OK;
}
