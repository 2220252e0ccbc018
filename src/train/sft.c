/* Supervised training and pre-training: the mean over all tokens that count, of all samples of the
 * step, of −log p. */
#include "train/micro.h"

#include <string.h>

typedef struct sft_state {
    train_sequence *sequences; /* [batch], or of one evaluation pass */
    size_t capacity;
} sft_state;

static avo_status sft_open(train_run_state *run) {
    sft_state *s = allocator_take(run->allocator, sizeof(*s));
    if (s == NULL)
        return status_no_memory(run->error, "a batch", sizeof(*s));
    *s = (sft_state){.capacity = run->settings->batch};
    if (s->capacity < run->sequences_max)
        s->capacity = run->sequences_max;
    run->task_state = s;
    s->sequences = allocator_take_array(run->allocator, s->capacity, sizeof(*s->sequences));
    if (s->sequences == NULL)
        return status_no_memory(run->error, "a batch", s->capacity * sizeof(*s->sequences));
    return AVO_OK;
}

static void sft_close(train_run_state *run) {
    sft_state *s = run->task_state;
    allocator_give(run->allocator, s->sequences, s->capacity * sizeof(*s->sequences));
    allocator_give(run->allocator, s, sizeof(*s));
    run->task_state = NULL;
}

static train_sequence sequence_of(const train_tokens *tokens) {
    return (train_sequence){tokens->tokens, tokens->count, tokens->wanted};
}

/* Numbers that ranks add up; counts are exact below 2^53. */
enum { SUM_LOSS, SUM_ENTROPY, SUM_ROWS, SUM_WANTED, SUM_LIKELIEST, SUMS };

static train_scores scores_of(const train_run_state *run) {
    return (train_scores){run->logprobs, run->entropies, run->likeliest};
}

/* Adds a pass's tokens up; fills coefficients of −1 ÷ total where total is positive. */
static void add_pass(train_run_state *run, const train_sequence *sequences, size_t count,
                     uint64_t total, double *sums) {
    size_t at = 0;
    float coefficient = total > 0 ? (float)(-1.0 / (double)total) : 0.0f;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t t = 0; t < sequences[i].count; t++, at++) {
            bool wanted = sequences[i].wanted[t] != 0;
            run->coefficients[at] = wanted ? coefficient : 0.0f;
            if (!wanted)
                continue;
            sums[SUM_LOSS] -= (double)run->logprobs[at];
            sums[SUM_ENTROPY] += (double)run->entropies[at];
            sums[SUM_LIKELIEST] += run->likeliest[at];
            sums[SUM_WANTED]++;
        }
        sums[SUM_ROWS] += sequences[i].count;
    }
}

static uint64_t count_wanted(const train_sequence *sequences, size_t count) {
    uint64_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        for (uint32_t t = 0; t < sequences[i].count; t++)
            wanted += sequences[i].wanted[t] != 0;
    return wanted;
}

/* Samples [first, first + count) of the step; `context`: wanted tokens of the whole step. */
static avo_status learn(train_run_state *run, void *context, uint64_t first, uint64_t count,
                        double *sums) {
    const sft_state *s = run->task_state;
    const uint64_t *total = context;
    const train_scores scores = scores_of(run);
    for (size_t at = first, end = first + count, taken; at < end; at += taken) {
        const train_sequence *sequences = s->sequences + at;
        taken = run_pass_count(run, s->sequences, end, at, 1);
        AVO_TRY(train_forward(run->core, sequences, taken, TRAIN_PASS_LEARN, &scores, run->error));
        add_pass(run, sequences, taken, *total, sums);
        AVO_TRY(train_backward(run->core, run->coefficients, run->error));
    }
    return AVO_OK;
}

static avo_status sft_step(train_run_state *run, uint64_t step, train_metrics *metrics) {
    const sft_state *s = run->task_state;
    size_t count = run->settings->batch;
    for (size_t i = 0; i < count; i++) {
        uint64_t index = run_sample_index(run, (step - 1) * count + i);
        train_sample sample = train_data_at(run->data, index);
        s->sequences[i] = sequence_of(&sample.text);
    }
    uint64_t total = count_wanted(s->sequences, count);
    double sums[SUMS] = {0};
    AVO_TRY(micro_compute(run, &(micro_work){.count = count,
                                             .learns = true,
                                             .compute = learn,
                                             .context = &total,
                                             .sums = sums,
                                             .sum_count = SUMS}));
    AVO_TRY(run_update(run, step, step));
    double tokens = sums[SUM_WANTED] > 0 ? sums[SUM_WANTED] : 1.0;
    run->loss = sums[SUM_LOSS] / tokens;
    run->step_tokens = (uint64_t)sums[SUM_ROWS];
    metrics_add(metrics, "loss", run->loss);
    metrics_add(metrics, "entropy", sums[SUM_ENTROPY] / tokens);
    metrics_add(metrics, "mean_token_accuracy", sums[SUM_LIKELIEST] / tokens);
    return AVO_OK;
}

/* Samples of the valid data. */
static avo_status measure(train_run_state *run, void *context, uint64_t first, uint64_t count,
                          double *sums) {
    const sft_state *s = run->task_state;
    const train_scores scores = scores_of(run);
    (void)context;
    for (uint64_t at = first, end = first + count; at < end;) {
        size_t some = 0;
        while (some < run->sequences_max && at + some < end) {
            train_sample sample = train_data_at(run->valid, at + some);
            s->sequences[some++] = sequence_of(&sample.text);
        }
        size_t taken = run_pass_count(run, s->sequences, some, 0, 1);
        AVO_TRY(
            train_forward(run->core, s->sequences, taken, TRAIN_PASS_MEASURE, &scores, run->error));
        add_pass(run, s->sequences, taken, 0, sums);
        at += taken;
    }
    return AVO_OK;
}

static avo_status sft_evaluate(train_run_state *run, train_metrics *metrics) {
    double sums[SUMS] = {0};
    AVO_TRY(micro_compute(run, &(micro_work){.count = run->valid_info.samples,
                                             .compute = measure,
                                             .sums = sums,
                                             .sum_count = SUMS}));
    double tokens = sums[SUM_WANTED] > 0 ? sums[SUM_WANTED] : 1.0;
    metrics_add(metrics, "eval_loss", sums[SUM_LOSS] / tokens);
    metrics_add(metrics, "eval_entropy", sums[SUM_ENTROPY] / tokens);
    metrics_add(metrics, "eval_mean_token_accuracy", sums[SUM_LIKELIEST] / tokens);
    metrics_add(metrics, "eval_num_tokens", sums[SUM_ROWS]);
    return AVO_OK;
}

const train_task_code train_task_sft = {sft_open, sft_close, sft_step, sft_evaluate};
