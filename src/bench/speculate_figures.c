/* Means and spreads over the iterations. */
#include "bench/speculate.h"

#include "base/allocator.h"

#include <math.h>
#include <stdlib.h>

static void add(lab_sample *sum, const lab_sample *one) {
    sum->seconds += one->seconds;
    sum->tokens += one->tokens;
    sum->drafted += one->drafted;
    sum->accepted += one->accepted;
    sum->resident_bytes += one->resident_bytes * one->answers;
    sum->answers += one->answers;
    sum->equal += one->equal;
}

lab_sample lab_sample_of(const lab_options *options, const lab_result *result, uint32_t config,
                         uint32_t category, uint32_t iteration) {
    lab_sample sum = {0};
    for (uint32_t c = 0; c < result->categories; c++)
        if (category == LAB_ALL || category == c)
            add(&sum,
                &result->sample[((size_t)config * result->categories + c) * options->iterations +
                                iteration]);
    if (sum.answers > 0)
        sum.resident_bytes /= sum.answers;
    return sum;
}

static double rate(const lab_sample *sample) {
    return sample->seconds > 0 && sample->tokens > 0 ? (double)sample->tokens / sample->seconds
                                                     : (double)NAN;
}

/* NaN where there is no such figure. */
static double value_of(const lab_options *options, const lab_result *result, uint32_t config,
                       uint32_t category, uint32_t iteration, lab_figure figure) {
    lab_sample sample = lab_sample_of(options, result, config, category, iteration);
    lab_sample base = lab_sample_of(options, result, 0, category, iteration);
    switch (figure) {
    case LAB_TOKENS_PER_SECOND:
        return rate(&sample);
    case LAB_SPEEDUP:
        return rate(&sample) / rate(&base);
    case LAB_ACCEPTANCE:
        return sample.drafted > 0 ? (double)sample.accepted / (double)sample.drafted : (double)NAN;
    case LAB_LATENCY_MS:
        return 1e3 / rate(&sample);
    case LAB_RESIDENT_MIB:
        return (double)sample.resident_bytes / 1048576.0;
    case LAB_FIGURES:
        break;
    }
    return (double)NAN;
}

lab_spread lab_spread_of(const lab_options *options, const lab_result *result, uint32_t config,
                         uint32_t category, lab_figure figure) {
    double sum = 0, squares = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < options->iterations; i++) {
        double value = value_of(options, result, config, category, i, figure);
        if (isnan(value))
            continue;
        sum += value;
        count++;
    }
    double mean = count > 0 ? sum / count : (double)NAN;
    for (uint32_t i = 0; i < options->iterations; i++) {
        double value = value_of(options, result, config, category, i, figure);
        squares += isnan(value) ? 0 : (value - mean) * (value - mean);
    }
    return (lab_spread){mean, count > 1 ? sqrt(squares / (count - 1)) : (double)NAN};
}

double lab_success(const lab_options *options, const lab_result *result, uint32_t config) {
    uint64_t answers = 0, equal = 0;
    for (uint32_t i = 0; i < options->iterations; i++) {
        lab_sample sample = lab_sample_of(options, result, config, LAB_ALL, i);
        answers += sample.answers;
        equal += sample.equal;
    }
    return answers > 0 ? (double)equal / (double)answers : (double)NAN;
}

static int by_size(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

double lab_median_of(const lab_options *options, const lab_result *result, uint32_t config,
                     uint32_t category) {
    size_t prompts = options->prompts->count, each = prompts * options->iterations, count = 0;
    double *ratios = allocator_take_array(NULL, each, sizeof(double)), median = (double)NAN;
    for (size_t i = 0; ratios != NULL && i < each; i++) {
        double base = result->rate[i], rated = result->rate[config * each + i];
        uint32_t own = result->prompt_category[i / options->iterations];
        if ((category == LAB_ALL || category == own) && base > 0 && rated > 0)
            ratios[count++] = rated / base;
    }
    if (count > 0) {
        qsort(ratios, count, sizeof(double), by_size);
        median = (ratios[(count - 1) / 2] + ratios[count / 2]) / 2;
    }
    allocator_give(NULL, ratios, each * sizeof(double));
    return median;
}
