/* Direct preference optimisation: pairs of answers to a prompt, of which one is preferred. */
#include "train/loss.h"
#include "train/reference.h"
#include "train/run_int.h"

#include <stdio.h>
#include <string.h>

typedef struct dpo_state {
    train_sequence *sequences; /* [2 · batch]: chosen, rejected, chosen, … */
    uint64_t *indices;         /* [batch] of the samples */
    size_t batch;
    train_reference reference, valid_reference;
    dpo_options loss;
} dpo_state;

/* Sums over the pairs of a step. */
typedef struct dpo_sums {
    double loss, chosen, rejected, accuracy, logp_chosen, logp_rejected, entropy;
    uint64_t pairs, wanted;
} dpo_sums;

static avo_status dpo_open(train_run_state *run) {
    const train_settings *settings = run->settings;
    dpo_state *s = allocator_take(run->allocator, sizeof(*s));
    if (s == NULL)
        return status_no_memory(run->error, "a batch", sizeof(*s));
    *s = (dpo_state){.batch = settings->batch,
                     .loss = {.kind = strcmp(settings->loss, "ipo") == 0 ? DPO_IPO : DPO_SIGMOID,
                              .beta = settings->beta,
                              .smoothing = settings->label_smoothing}};
    run->task_state = s;
    s->sequences = allocator_take_array(run->allocator, s->batch, 2 * sizeof(*s->sequences));
    s->indices = allocator_take_array(run->allocator, s->batch, sizeof(*s->indices));
    if (s->sequences == NULL || s->indices == NULL)
        return status_no_memory(run->error, "a batch", s->batch * 2 * sizeof(*s->sequences));
    s->reference = (train_reference){
        .data = run->data, .info = run->info, .file = "reference_logps.safetensors"};
    AVO_TRY(reference_open(run, &s->reference));
    if (run->valid == NULL)
        return AVO_OK;
    s->valid_reference = (train_reference){.data = run->valid,
                                           .info = run->valid_info,
                                           .file = "reference_logps_valid.safetensors",
                                           .all = true};
    return reference_open(run, &s->valid_reference);
}

static void dpo_close(train_run_state *run) {
    dpo_state *s = run->task_state;
    reference_close(run, &s->reference);
    reference_close(run, &s->valid_reference);
    allocator_give(run->allocator, s->sequences, s->batch * 2 * sizeof(*s->sequences));
    allocator_give(run->allocator, s->indices, s->batch * sizeof(*s->indices));
    allocator_give(run->allocator, s, sizeof(*s));
    run->task_state = NULL;
}

static train_sequence sequence_of(const train_tokens *tokens) {
    return (train_sequence){tokens->tokens, tokens->count, tokens->wanted};
}

typedef struct answer_sums {
    double logprob, entropy;
    uint32_t wanted;
} answer_sums;

static answer_sums sum_answer(const train_run_state *run, const train_sequence *sequence,
                              size_t at) {
    answer_sums sums = {0};
    for (uint32_t t = 0; t < sequence->count; t++) {
        if (sequence->wanted[t] == 0)
            continue;
        sums.logprob += (double)run->logprobs[at + t];
        sums.entropy += (double)run->entropies[at + t];
        sums.wanted++;
    }
    return sums;
}

static void fill_coefficients(const train_run_state *run, const train_sequence *sequence, size_t at,
                              double coefficient) {
    for (uint32_t t = 0; t < sequence->count; t++)
        run->coefficients[at + t] = sequence->wanted[t] != 0 ? (float)coefficient : 0.0f;
}

typedef struct dpo_batch {
    const dpo_state *state;
    const train_reference *reference;
    double pairs; /* of the whole step */
} dpo_batch;

/* The pair whose first sequence begins at `at` of the pass; returns where the next one does. */
static size_t add_pair(const train_run_state *run, const dpo_batch *batch,
                       const train_sequence *sequences, uint64_t index, size_t at, dpo_sums *sums) {
    const dpo_state *s = batch->state;
    size_t behind = at + sequences[0].count;
    answer_sums chosen = sum_answer(run, &sequences[0], at);
    answer_sums rejected = sum_answer(run, &sequences[1], behind);
    double chosen_share = 1.0, rejected_share = 1.0;
    dpo_pair pair = {.chosen = chosen.logprob, .rejected = rejected.logprob};
    reference_at(batch->reference, index, &pair.reference_chosen, &pair.reference_rejected);
    if (s->loss.kind == DPO_IPO) { /* means instead of sums */
        chosen_share = 1.0 / (double)(chosen.wanted > 0 ? chosen.wanted : 1);
        rejected_share = 1.0 / (double)(rejected.wanted > 0 ? rejected.wanted : 1);
        pair.chosen *= chosen_share;
        pair.reference_chosen *= chosen_share;
        pair.rejected *= rejected_share;
        pair.reference_rejected *= rejected_share;
    }
    dpo_result result = loss_dpo(&s->loss, &pair);
    fill_coefficients(run, &sequences[0], at, result.by_chosen * chosen_share / batch->pairs);
    fill_coefficients(run, &sequences[1], behind,
                      -result.by_chosen * rejected_share / batch->pairs);
    sums->loss += result.loss;
    sums->chosen += result.reward_chosen;
    sums->rejected += result.reward_rejected;
    sums->accuracy += result.reward_chosen > result.reward_rejected ? 1.0 : 0.0;
    sums->logp_chosen += chosen.logprob;
    sums->logp_rejected += rejected.logprob;
    sums->entropy += chosen.entropy + rejected.entropy;
    sums->wanted += chosen.wanted + rejected.wanted;
    sums->pairs++;
    return behind + sequences[1].count;
}

static void take_pair(const dpo_state *s, const train_data *data, size_t at, uint64_t index) {
    train_sample sample = train_data_at(data, index);
    s->indices[at] = index;
    s->sequences[2 * at] = sequence_of(&sample.text);
    s->sequences[2 * at + 1] = sequence_of(&sample.rejected);
}

static void add_metrics(const dpo_sums *sums, bool evaluation, train_metrics *metrics) {
    double pairs = (double)sums->pairs;
    const struct {
        const char *name;
        double value;
    } values[] = {
        {"loss", sums->loss / pairs},
        {"rewards/chosen", sums->chosen / pairs},
        {"rewards/rejected", sums->rejected / pairs},
        {"rewards/accuracies", sums->accuracy / pairs},
        {"rewards/margins", (sums->chosen - sums->rejected) / pairs},
        {"logps/chosen", sums->logp_chosen / pairs},
        {"logps/rejected", sums->logp_rejected / pairs},
        {"entropy", sums->entropy / (double)(sums->wanted > 0 ? sums->wanted : 1)},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", evaluation ? "eval_" : "", values[i].name);
        metrics_add(metrics, name, values[i].value);
    }
}

/* Passes over pairs of the batch; backward ones where `learns`. */
static avo_status run_pairs(train_run_state *run, const dpo_batch *batch, size_t pairs, bool learns,
                            dpo_sums *sums) {
    const dpo_state *s = batch->state;
    const train_scores scores = {.logprobs = run->logprobs, .entropies = run->entropies};
    for (size_t first = 0, taken; first < 2 * pairs; first += taken) {
        taken = run_pass_count(run, s->sequences, 2 * pairs, first, 2);
        AVO_TRY(train_forward(run->core, s->sequences + first, taken,
                              learns ? TRAIN_PASS_LEARN : TRAIN_PASS_MEASURE, &scores, run->error));
        size_t at = 0;
        for (size_t i = first; i < first + taken; i += 2)
            at = add_pair(run, batch, s->sequences + i, s->indices[i / 2], at, sums);
        if (learns)
            AVO_TRY(train_backward(run->core, run->coefficients, run->error));
    }
    return AVO_OK;
}

static avo_status dpo_step(train_run_state *run, uint64_t step, train_metrics *metrics) {
    const dpo_state *s = run->task_state;
    dpo_batch batch = {s, &s->reference, (double)s->batch};
    dpo_sums sums = {0};
    for (size_t i = 0; i < s->batch; i++)
        take_pair(s, run->data, i, run_sample_index(run, (step - 1) * s->batch + i));
    AVO_TRY(run_pairs(run, &batch, s->batch, true, &sums));
    AVO_TRY(run_update(run, step, step));
    run->loss = sums.loss / (double)sums.pairs;
    run->step_tokens = run_rows(s->sequences, 2 * s->batch);
    add_metrics(&sums, false, metrics);
    return AVO_OK;
}

static avo_status dpo_evaluate(train_run_state *run, train_metrics *metrics) {
    const dpo_state *s = run->task_state;
    dpo_batch batch = {s, &s->valid_reference, 1.0};
    dpo_sums sums = {0};
    for (uint64_t first = 0; first < run->valid_info.samples; first += s->batch) {
        uint64_t left = run->valid_info.samples - first;
        size_t count = left < s->batch ? (size_t)left : s->batch;
        for (size_t i = 0; i < count; i++)
            take_pair(s, run->valid, i, first + i);
        AVO_TRY(run_pairs(run, &batch, count, false, &sums));
    }
    add_metrics(&sums, true, metrics);
    return AVO_OK;
}

const train_task_code train_task_dpo = {dpo_open, dpo_close, dpo_step, dpo_evaluate};
