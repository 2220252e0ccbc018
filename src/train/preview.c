/* What a run would do: counts, memory, and the time of one pass. */
#include "train/heads.h"
#include "train/micro.h"
#include "train/rl.h"

#include "base/clock.h"
#include "base/float_mode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PASS_SEQUENCES_MAX 64

/* Sequences of the first step, as many as one pass takes. */
static size_t first_pass(const train_run_state *run, train_sequence *sequences) {
    bool pairs = run->settings->task == TRAIN_DPO;
    size_t count = 0, unit = pairs ? 2 : 1;
    for (uint64_t i = 0; i < run->settings->batch && count + unit <= PASS_SEQUENCES_MAX; i++) {
        train_sample sample = train_data_at(run->data, run_sample_index(run, i));
        sequences[count++] =
            (train_sequence){sample.text.tokens, sample.text.count, sample.text.wanted};
        if (pairs)
            sequences[count++] = (train_sequence){sample.rejected.tokens, sample.rejected.count,
                                                  sample.rejected.wanted};
    }
    return run_pass_count(run, sequences, count, 0, unit);
}

/* Seconds of the forward and backward pass of `rows` tokens; the gradients mean nothing. */
static avo_status measure(train_run_state *run, double *seconds, double *rows) {
    train_sequence sequences[PASS_SEQUENCES_MAX];
    size_t count = first_pass(run, sequences);
    size_t at = 0;
    const train_scores scores = {.logprobs = run->logprobs, .entropies = run->entropies};
    train_core_clear(run->core);
    for (size_t i = 0; i < count; i++)
        for (uint32_t t = 0; t < sequences[i].count; t++, at++)
            run->coefficients[at] = sequences[i].wanted[t] != 0 ? -1e-3f : 0.0f;
    uint64_t begin = clock_now_ns();
    AVO_TRY(train_forward(run->core, sequences, count, TRAIN_PASS_LEARN, &scores, run->error));
    AVO_TRY(train_backward(run->core, run->coefficients, run->error));
    *seconds = clock_seconds(begin, clock_now_ns());
    *rows = (double)run_rows(sequences, count);
    return AVO_OK;
}

/* The same of draft heads. */
static avo_status measure_heads(train_run_state *run, double *seconds, double *rows) {
    train_sequence sequences[PASS_SEQUENCES_MAX];
    size_t count = first_pass(run, sequences);
    train_heads_pass pass = {.sequences = sequences, .count = count, .weight = 1e-3, .learn = true};
    train_heads_sums sums = {0};
    uint64_t begin = clock_now_ns();
    AVO_TRY(train_heads_run(run->core, &pass, &sums, run->error));
    *seconds = clock_seconds(begin, clock_now_ns());
    *rows = (double)run_rows(sequences, count);
    return AVO_OK;
}

static avo_status look(train_run_state *run, train_preview *preview,
                       void (*sample)(void *context, const train_sample *sample),
                       void *sample_context) {
    const train_settings *s = run->settings;
    train_core_options core;
    optimizer_options optimizer;
    AVO_TRY(run_open(run));
    preview->data = run->info;
    snprintf(preview->keys, sizeof(preview->keys), "%s", run->info.keys);
    preview->data.keys = preview->keys;
    preview->valid_samples = run->valid_info.samples;
    preview->steps = run->steps;
    preview->parameters = run->parameters->numbers;
    run_core_options(run, &core);
    AVO_TRY(train_core_plan(run->model, &core, &preview->core_bytes, run->error));
    run_optimizer_options(run, &optimizer);
    preview->optimizer_bytes = optimizer_bytes(&optimizer, run->parameters);
    preview->optimizer_bytes += micro_bytes(run);
    preview->tokens_per_step =
        (double)run->info.tokens / (double)run->info.samples * (double)s->batch;
    if (sample != NULL) {
        train_sample first = train_data_at(run->data, 0);
        sample(sample_context, &first);
    }
    preview->seconds_per_step = NAN;
    if (s->task == TRAIN_RL)
        return rl_preview(run, preview);
    if (run->info.kind == TRAIN_DATA_PROMPT)
        return AVO_OK; /* what the answers will be is not known */
    double seconds = 0.0, rows = 1.0;
    for (int i = 0; i < 2; i++) /* once to warm up */
        AVO_TRY(s->task == TRAIN_HEADS ? measure_heads(run, &seconds, &rows)
                                       : measure(run, &seconds, &rows));
    preview->seconds_per_step = seconds * preview->tokens_per_step / rows;
    return AVO_OK;
}

avo_status train_dry_run(const avo_model *model, const train_run_options *options,
                         train_preview *preview,
                         void (*sample)(void *context, const train_sample *sample),
                         void *sample_context, avo_error *error) {
    train_run_state run;
    float_mode mode;
    *preview = (train_preview){.seconds_per_step = NAN};
    run_init(&run, model, options, error);
    float_mode_enter(&mode);
    avo_status status = look(&run, preview, sample, sample_context);
    float_mode_leave(&mode);
    run_close(&run);
    return status;
}
