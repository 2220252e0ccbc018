/* Tokens a second of LoRA training: forward, backward, AdamW. bench/train_peers runs it in turn
 * with peft and torch.
 *
 *     bench_train [--bf16] MODEL [STEPS [THREADS [SEQUENCES [LENGTH [RANK]]]]]
 *     bench_train --bf16 SmolLM2.gguf 6 2 4 256 16
 *
 * All linear layers, random tokens, every token counts. The first step is not counted. One line:
 * median and best tokens a second, the medians' seconds of forward and backward, the process's peak
 * memory in MB. With one thread the time is the processor's, not the clock's.
 */
#include "base/random.h"
#include "train/core.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define STEPS_MAX 1000

typedef struct setting {
    const char *model;
    bool bfloat16;
    uint32_t steps, threads, sequences, length, rank;
} setting;

typedef struct sample {
    int32_t *tokens;
    uint8_t *wanted;
    float *logprobs, *coefficients, *moments;
    train_sequence *sequence;
} sample;

typedef struct times {
    double step[STEPS_MAX], forward[STEPS_MAX], backward[STEPS_MAX];
} times;

/* Seconds. */
static double time_of(const setting *set) {
    struct timespec now;
    clock_gettime(set->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void stop(const avo_error *error) {
    fprintf(stderr, "bench_train: %s\n", error->text);
    exit(1);
}

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "bench_train: no memory\n");
        exit(1);
    }
    return memory;
}

static sample make_sample(const setting *set, uint64_t numbers, uint32_t vocabulary) {
    size_t count = (size_t)set->sequences * set->length;
    sample own = {take(count, sizeof(int32_t)),     take(count, 1),
                  take(count, sizeof(float)),       take(count, sizeof(float)),
                  take(numbers, 2 * sizeof(float)), take(set->sequences, sizeof(train_sequence))};
    float weight = -1.0f / (float)(set->sequences * (set->length - 1));
    for (size_t i = 0; i < count; i++) {
        own.tokens[i] = (int32_t)(random_uniform_at(1, 0, i) * vocabulary);
        own.wanted[i] = i % set->length != 0;
        own.coefficients[i] = own.wanted[i] ? weight : 0.0f;
    }
    for (uint32_t i = 0; i < set->sequences; i++)
        own.sequence[i] = (train_sequence){own.tokens + (size_t)i * set->length, set->length,
                                           own.wanted + (size_t)i * set->length};
    return own;
}

/* As torch computes it, without decay. */
static void adam(const train_parameters *parameters, float *moments, uint32_t step) {
    float first = 1.0f - powf(0.9f, (float)step), second = 1.0f - powf(0.999f, (float)step);
    for (uint32_t i = 0; i < parameters->count; i++) {
        const train_parameter *p = &parameters->item[i];
        size_t count = (size_t)p->rows * p->k;
        float *m = moments, *v = moments + count;
        for (size_t j = 0; j < count; j++) {
            float g = p->gradient[j];
            m[j] = 0.9f * m[j] + 0.1f * g;
            v[j] = 0.999f * v[j] + 0.001f * g * g;
            p->value[j] -= 1e-4f * (m[j] / first) / (sqrtf(v[j] / second) + 1e-8f);
        }
        moments += 2 * count;
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *numbers, uint32_t count) {
    qsort(numbers, count, sizeof(*numbers), compare);
    return numbers[count / 2];
}

static void run(const setting *set, train_core *core, sample *own, times *out) {
    avo_error error = {0};
    for (uint32_t i = 0; i <= set->steps; i++) {
        double begin = time_of(set);
        train_core_clear(core);
        if (train_forward(core, own->sequence, set->sequences, TRAIN_PASS_LEARN,
                          &(train_scores){.logprobs = own->logprobs}, &error) != AVO_OK)
            stop(&error);
        double middle = time_of(set);
        if (train_backward(core, own->coefficients, &error) != AVO_OK)
            stop(&error);
        double end = time_of(set);
        adam(train_core_parameters(core), own->moments, i + 1);
        if (train_core_changed(core, &error) != AVO_OK)
            stop(&error);
        if (i == 0)
            continue;
        out->step[i - 1] = time_of(set) - begin;
        out->forward[i - 1] = middle - begin;
        out->backward[i - 1] = end - middle;
    }
}

static uint32_t number_at(int count, char **arguments, int at, uint32_t otherwise) {
    return at < count ? (uint32_t)strtoul(arguments[at], NULL, 10) : otherwise;
}

int main(int count, char **arguments) {
    static times found;
    const char *targets[] = {"all-linear"};
    bool bfloat16 = count > 1 && strcmp(arguments[1], "--bf16") == 0;
    int at = bfloat16 ? 2 : 1;
    if (at >= count) {
        fprintf(stderr, "usage: bench_train [--bf16] MODEL [STEPS [THREADS [SEQUENCES [LENGTH "
                        "[RANK]]]]]\n");
        return 2;
    }
    setting set = {.model = arguments[at],
                   .bfloat16 = bfloat16,
                   .steps = number_at(count, arguments, at + 1, 5),
                   .threads = number_at(count, arguments, at + 2, 0),
                   .sequences = number_at(count, arguments, at + 3, 4),
                   .length = number_at(count, arguments, at + 4, 256),
                   .rank = number_at(count, arguments, at + 5, 16)};
    if (set.steps == 0 || set.steps > STEPS_MAX)
        return 2;
    train_core_options options = {.method = TRAIN_LORA,
                                  .rank = set.rank,
                                  .alpha = 32.0,
                                  .targets = targets,
                                  .target_count = 1,
                                  .bfloat16 = set.bfloat16,
                                  .rows_max = set.sequences * set.length,
                                  .sequences_max = set.sequences,
                                  .context_max = set.length,
                                  .engine = AVO_ENGINE_OPTIONS_INIT};
    options.engine.threads = set.threads;
    avo_model *model = NULL;
    train_core *core = NULL;
    avo_error error = {0};
    if (avo_model_open(set.model, NULL, &model, &error) != AVO_OK ||
        train_core_open(model, &options, &core, &error) != AVO_OK)
        stop(&error);
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    sample own = make_sample(&set, train_core_parameters(core)->numbers, info.vocabulary);
    run(&set, core, &own, &found);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double tokens = (double)set.sequences * set.length, middle = median(found.step, set.steps);
    printf("%.0f %.0f %.3f %.3f %.0f\n", tokens / middle, tokens / found.step[0],
           median(found.forward, set.steps), median(found.backward, set.steps),
           (double)usage.ru_maxrss / 1024.0);
    train_core_close(core);
    avo_model_close(model);
    return 0;
}
