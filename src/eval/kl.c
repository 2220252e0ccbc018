/* KL(reference ‖ model) token by token. */
#include "eval/eval_int.h"

#include "base/allocator.h"
#include "base/checked.h"

#include <math.h>
#include <stdlib.h>

typedef struct kl_run {
    scorer model, reference;
    size_t rows_max, scored_max;
    float *divergences; /* [capacity] of every scored token, for quantiles */
    size_t capacity;
    eval_sums divergence, agreement, surprise, reference_surprise, difference;
} kl_run;

/* With p the reference's distribution and d the difference of the logits minus its mean under p:
 *   KL = log Σ p e^−d = log(1 + Σ p (e^−d − 1 + d)),
 * every term of which is of second order: nothing cancels however near the models are. */
static double divergence(const float *reference, const float *model, uint32_t vocabulary,
                         double normaliser) {
    double mean = 0.0, total = 0.0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        double p = exp((double)reference[i] - normaliser);
        mean += p * ((double)reference[i] - (double)model[i]);
        total += p;
    }
    mean /= total;
    double sum = 0.0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        double p = exp((double)reference[i] - normaliser);
        double d = (double)reference[i] - (double)model[i] - mean;
        sum += p * (exp(-d) - 1.0 + d);
    }
    return log1p(sum / total);
}

static uint32_t favourite(const float *logits, uint32_t vocabulary) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocabulary; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static avo_status score(kl_run *run, size_t position, const float *reference, const float *model,
                        int32_t next, avo_error *error) {
    uint32_t vocabulary = run->reference.vocabulary;
    double normaliser = eval_normaliser(reference, vocabulary);
    double surprise = eval_normaliser(model, vocabulary) - (double)model[next];
    double reference_surprise = normaliser - (double)reference[next];
    AVO_TRY(eval_check_number(surprise + reference_surprise, position, error));
    double value = divergence(reference, model, vocabulary, normaliser);
    AVO_TRY(eval_check_number(value, position, error));
    if (run->divergence.count < run->capacity)
        run->divergences[run->divergence.count] = (float)value;
    eval_sums_add(&run->divergence, value);
    eval_sums_add(&run->agreement,
                  favourite(reference, vocabulary) == favourite(model, vocabulary) ? 1.0 : 0.0);
    eval_sums_add(&run->surprise, surprise);
    eval_sums_add(&run->reference_surprise, reference_surprise);
    eval_sums_add(&run->difference, surprise - reference_surprise);
    return AVO_OK;
}

static avo_status compute(kl_run *run, const int32_t *tokens, size_t count, bool scored,
                          avo_error *error) {
    AVO_TRY(scorer_compute(&run->reference, tokens, count, scored, error));
    return scorer_compute(&run->model, tokens, count, scored, error);
}

static avo_status score_window(void *context, const int32_t *tokens, size_t count,
                               size_t first_scored, avo_error *error) {
    kl_run *run = context;
    AVO_TRY(scorer_begin(&run->reference, error));
    AVO_TRY(scorer_begin(&run->model, error));
    size_t context_end = size_min(first_scored, count);
    for (size_t at = 0; at < context_end;) {
        size_t rows = size_min(context_end - at, run->rows_max);
        AVO_TRY(compute(run, tokens + at, rows, false, error));
        at += rows;
    }
    for (size_t at = context_end; at < count;) {
        size_t rows = size_min(count - at, run->scored_max);
        AVO_TRY(compute(run, tokens + at, rows, true, error));
        for (size_t i = 0; i < rows; i++) {
            const float *reference, *logits;
            AVO_TRY(scorer_logits(&run->reference, i, &reference, error));
            AVO_TRY(scorer_logits(&run->model, i, &logits, error));
            AVO_TRY(score(run, at + i, reference, logits, tokens[at + i + 1], error));
        }
        at += rows;
    }
    return AVO_OK;
}

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Between the two nearest, as numpy does it. */
static double quantile(const float *sorted, size_t count, double share) {
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    size_t above = size_min(below + 1, count - 1);
    return (double)sorted[below] +
           (at - (double)below) * ((double)sorted[above] - (double)sorted[below]);
}

static perplexity_result perplexity_of(const eval_sums *sums, uint64_t windows) {
    double perplexity = exp(eval_sums_mean(sums));
    return (perplexity_result){.perplexity = perplexity,
                               .error = eval_sums_error(sums) * perplexity,
                               .tokens = sums->count,
                               .windows = windows};
}

static void conclude(kl_run *run, uint64_t windows, kl_result *result) {
    size_t count = (size_t)run->divergence.count;
    qsort(run->divergences, count, sizeof(float), by_value);
    double ratio = exp(eval_sums_mean(&run->difference));
    *result = (kl_result){
        .mean = eval_sums_mean(&run->divergence),
        .mean_error = eval_sums_error(&run->divergence),
        .median = quantile(run->divergences, count, 0.5),
        .p99 = quantile(run->divergences, count, 0.99),
        .max = (double)run->divergences[count - 1],
        .top1 = eval_sums_mean(&run->agreement),
        .top1_error = eval_sums_error(&run->agreement),
        .model = perplexity_of(&run->surprise, windows),
        .reference = perplexity_of(&run->reference_surprise, windows),
        .ratio = ratio,
        .ratio_error = eval_sums_error(&run->difference) * ratio,
    };
}

static avo_status open_run(kl_run *run, const avo_model *model, const avo_model *reference,
                           size_t count, const eval_options *options, avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT, reference_info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    avo_model_describe(reference, &reference_info);
    if (info.vocabulary != reference_info.vocabulary)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "the model has %u tokens and the reference %u; their predictions cannot be compared",
            info.vocabulary, reference_info.vocabulary);
    run->capacity = count;
    run->divergences = allocator_take(NULL, count * sizeof(float));
    if (run->divergences == NULL)
        return status_no_memory(error, "the divergences", count * sizeof(float));
    eval_options own = *options;
    if (options->reference_kv_type != NULL)
        own.engine.kv_type = options->reference_kv_type;
    AVO_TRY(scorer_open(&run->reference, reference, &own, options->context, error));
    AVO_TRY(scorer_open(&run->model, model, options, options->context, error));
    run->rows_max = size_min(run->reference.rows_max, run->model.rows_max);
    run->scored_max = size_min(run->reference.scored_max, run->model.scored_max);
    return AVO_OK;
}

avo_status eval_kl(const avo_model *model, const avo_model *reference, const int32_t *tokens,
                   size_t count, const eval_options *options, kl_result *result, avo_error *error) {
    *result = (kl_result){0};
    AVO_TRY(windows_check(count, options, error));
    kl_run run = {0};
    uint64_t windows = 0;
    avo_status status = open_run(&run, model, reference, count, options, error);
    AVO_THEN(status,
             windows_walk(tokens, count, options, "kl", score_window, &run, &windows, error));
    if (status == AVO_OK)
        conclude(&run, windows, result);
    scorer_close(&run.model);
    scorer_close(&run.reference);
    allocator_give(NULL, run.divergences, run.capacity * sizeof(float));
    return status;
}
