/* Computing and keeping log-probabilities of the reference. */
#include "train/reference.h"

#include "base/file.h"
#include "base/hash.h"
#include "formats/source.h"
#include "model/model.h"
#include "train/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PARTS 4

typedef struct array_context {
    const train_run_state *run;
    const train_reference *reference;
} array_context;

static bool next_array(const void *context, uint32_t index, output_array *array) {
    const array_context *c = context;
    const train_run_state *run = c->run;
    const train_settings *s = run->settings;
    if (index > 0)
        return false;
    /* With full tuning, an adapter cannot be the start; with LoRA it is not part of the reference.
     */
    const uint64_t key[] = {source_digest(run->model->source), c->reference->info.digest[0],
                            c->reference->info.digest[1], s->full};
    *array = (output_array){
        .rows = (uint32_t)c->reference->info.samples, .k = PARTS, .data = c->reference->parts};
    snprintf(array->name, sizeof(array->name), "reference.%016" PRIx64,
             hash_bytes(key, sizeof(key)));
    return true;
}

static avo_status file_path(const train_run_state *run, const train_reference *reference,
                            char *path, size_t capacity) {
    return file_join(path, capacity, run->options->output, reference->file, run->error);
}

/* What a file of this very reference has; any other file is as none. */
static avo_status read_file(train_run_state *run, train_reference *reference) {
    char path[4400];
    avo_error ignored;
    AVO_TRY(file_path(run, reference, path, sizeof(path)));
    array_context context = {run, reference};
    if (file_kind_of(path) == FILE_REGULAR &&
        output_read_arrays(path, next_array, &context, &ignored) != AVO_OK)
        run_log(run, "%s is not used: %s", path, ignored.text);
    return AVO_OK;
}

/* ---- Computing ---- */

static void put(float parts[2], double sum) {
    parts[0] = (float)sum;
    parts[1] = (float)(sum - (double)parts[0]);
}

static double sum_of(const train_sequence *sequence, const float *logprobs) {
    double sum = 0.0;
    for (uint32_t t = 0; t < sequence->count; t++)
        if (sequence->wanted[t] != 0)
            sum += (double)logprobs[t];
    return sum;
}

static avo_status compute(train_run_state *run, train_reference *reference,
                          const train_sequence *sequences, const uint64_t *indices, size_t pairs) {
    train_pass pass = run->settings->full ? TRAIN_PASS_MEASURE : TRAIN_PASS_BASE;
    const train_scores scores = {.logprobs = run->logprobs};
    for (size_t first = 0, taken; first < 2 * pairs; first += taken) {
        taken = run_pass_count(run, sequences, 2 * pairs, first, 2);
        AVO_TRY(train_forward(run->core, sequences + first, taken, pass, &scores, run->error));
        const float *logprobs = run->logprobs;
        for (size_t i = first; i < first + taken; logprobs += sequences[i++].count)
            put(reference->parts + indices[i / 2] * PARTS + i % 2 * 2,
                sum_of(&sequences[i], logprobs));
    }
    return AVO_OK;
}

#define GATHERED 32 /* samples that are computed together, where passes are as large */

/* Every sample that a step of the run takes. */
static avo_status compute_missing(train_run_state *run, train_reference *reference) {
    train_sequence sequences[2 * GATHERED];
    uint64_t indices[GATHERED], total = run->steps * run->settings->batch, computed = 0;
    size_t count = 0;
    if (total > reference->info.samples || reference->all) /* one epoch has them all */
        total = reference->info.samples;
    for (uint64_t i = 0; i < total; i++) {
        uint64_t index = reference->all ? i : run_sample_index(run, i);
        const float *parts = reference->parts + index * PARTS;
        if (isnan(parts[0])) {
            train_sample sample = train_data_at(reference->data, index);
            sequences[2 * count] =
                (train_sequence){sample.text.tokens, sample.text.count, sample.text.wanted};
            sequences[2 * count + 1] = (train_sequence){
                sample.rejected.tokens, sample.rejected.count, sample.rejected.wanted};
            indices[count++] = index;
            computed++;
        }
        if (count < GATHERED && (i + 1 < total || count == 0))
            continue;
        if (run->settings->full && run->state.step > 0)
            return status_fail(run->error, AVO_ERROR_NOT_FOUND,
                               "%s/%s lacks samples of this run; with full training they can be "
                               "computed before the first step only",
                               run->options->output, reference->file);
        AVO_TRY(compute(run, reference, sequences, indices, count));
        count = 0;
        if (run->options->progress != NULL &&
            !run->options->progress(run->options->progress_context, "computing the reference",
                                    i + 1, total))
            return status_fail(run->error, AVO_ERROR_CANCELLED, "cancelled");
    }
    if (computed == 0)
        return AVO_OK;
    char path[4400];
    array_context context = {run, reference};
    AVO_TRY(file_path(run, reference, path, sizeof(path)));
    return output_write_arrays(path, next_array, &context, run->error);
}

avo_status reference_open(train_run_state *run, train_reference *reference) {
    uint64_t samples = reference->info.samples;
    if (samples > UINT32_MAX)
        return status_fail(run->error, AVO_ERROR_LIMIT, "too many samples for dpo");
    reference->parts = allocator_take_array(run->allocator, samples, PARTS * sizeof(float));
    if (reference->parts == NULL)
        return status_no_memory(run->error, "log-probabilities of the reference",
                                samples * PARTS * sizeof(float));
    for (uint64_t i = 0; i < samples * PARTS; i++)
        reference->parts[i] = NAN;
    AVO_TRY(read_file(run, reference));
    return compute_missing(run, reference);
}

void reference_close(train_run_state *run, train_reference *reference) {
    allocator_give(run->allocator, reference->parts,
                   reference->info.samples * PARTS * sizeof(float));
    reference->parts = NULL;
}

void reference_at(const train_reference *reference, uint64_t index, double *chosen,
                  double *rejected) {
    const float *parts = reference->parts + index * PARTS;
    *chosen = (double)parts[0] + (double)parts[1];
    *rejected = (double)parts[2] + (double)parts[3];
}
