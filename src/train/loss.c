/* The losses of DPO and of policy gradients. */
#include "train/loss.h"

#include "base/mathd.h"

#include <math.h>

/* ---- Preferences ---- */

/* −log σ(x), and its derivative σ(x) − 1. */
static double log_loss(double x, double *derivative) {
    double e = mathd_exp(x < 0.0 ? x : -x); /* of −|x|, so it cannot overflow */
    *derivative = x < 0.0 ? -1.0 / (1.0 + e) : -e / (1.0 + e);
    return (x < 0.0 ? -x : 0.0) + mathd_log(1.0 + e);
}

dpo_result loss_dpo(const dpo_options *options, const dpo_pair *pair) {
    double chosen = pair->chosen - pair->reference_chosen;
    double rejected = pair->rejected - pair->reference_rejected;
    double difference = chosen - rejected;
    dpo_result result = {.reward_chosen = options->beta * chosen,
                         .reward_rejected = options->beta * rejected};
    if (options->kind == DPO_IPO) {
        double distance = difference - 1.0 / (2.0 * options->beta);
        result.loss = distance * distance;
        result.by_chosen = 2.0 * distance;
        return result;
    }
    double right, wrong;
    double loss = log_loss(options->beta * difference, &right);
    double other = log_loss(-options->beta * difference, &wrong);
    double smoothing = options->smoothing;
    result.loss = (1.0 - smoothing) * loss + smoothing * other;
    result.by_chosen = options->beta * ((1.0 - smoothing) * right - smoothing * wrong);
    return result;
}

/* ---- Advantages ---- */

/* Exact where all are equal, so that rewards without spread give advantages of 0. */
static double mean_of(const double *values, size_t count) {
    double sum = 0.0;
    size_t same = 0;
    while (same < count && values[same] == values[0])
        same++;
    if (same == count)
        return values[0];
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static double deviation_of(const double *values, size_t count, double mean) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(sum / (double)(count - 1)) : 0.0;
}

const char *policy_name(policy_kind kind) {
    static const char *const names[] = {"grpo", "dr_grpo", "dapo", "rloo", "reinforce"};
    return names[kind];
}

void policy_advantages(const policy_options *options, const double *rewards, size_t groups,
                       size_t group, double *advantages, double *spread) {
    double mean_of_all = mean_of(rewards, groups * group);
    for (size_t g = 0; g < groups; g++) {
        const double *own = rewards + g * group;
        double mean = mean_of(own, group);
        double deviation = deviation_of(own, group, mean);
        if (spread != NULL)
            spread[g] = deviation;
        double baseline = options->kind == POLICY_REINFORCE ? mean_of_all : mean;
        double scale = 1.0;
        if (options->kind == POLICY_RLOO) /* r − (Σ − r) ÷ (G − 1) */
            scale = group > 1 ? (double)group / (double)(group - 1) : 1.0;
        else if (options->scale && (options->kind == POLICY_GRPO || options->kind == POLICY_DAPO))
            scale = 1.0 / (deviation + 1e-4);
        for (size_t i = 0; i < group; i++)
            advantages[g * group + i] = (own[i] - baseline) * scale;
    }
}

/* ---- Tokens ---- */

double policy_token_weight(policy_kind kind, size_t completions, uint64_t tokens, uint32_t length,
                           uint32_t length_max) {
    switch (kind) {
    case POLICY_GRPO:
        return 1.0 / ((double)completions * (double)length);
    case POLICY_DR_GRPO:
        return 1.0 / ((double)completions * (double)length_max);
    case POLICY_RLOO:
        return 1.0 / (double)completions;
    case POLICY_DAPO:
    case POLICY_REINFORCE:
        break;
    }
    return 1.0 / (double)tokens;
}

policy_result policy_token(const policy_options *options, double advantage, double now, double old,
                           double reference) {
    double ratio = now == old ? 1.0 : mathd_exp(now - old);
    policy_result result = {.loss = -ratio * advantage, .gradient = -ratio * advantage};
    result.low = ratio < 1.0 - options->epsilon_low && advantage < 0.0;
    result.high = ratio > 1.0 + options->epsilon_high && advantage > 0.0;
    if (result.low || result.high) {
        double bound = result.low ? 1.0 - options->epsilon_low : 1.0 + options->epsilon_high;
        result.loss = -bound * advantage;
        result.gradient = 0.0;
    }
    if (options->beta > 0.0) {
        double difference = reference - now;
        double growth = mathd_exp(difference);
        result.kl = growth - difference - 1.0;
        result.loss += options->beta * result.kl;
        result.gradient += options->beta * (1.0 - growth);
    }
    return result;
}
