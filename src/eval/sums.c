/* Means with their standard errors, and what logits are measured by. */
#include "eval/eval_int.h"

#include "sample/sample.h"

#include <math.h>

void eval_sums_add(eval_sums *sums, double value) {
    sums->sum += value;
    sums->sum_of_squares += value * value;
    sums->count++;
}

double eval_sums_mean(const eval_sums *sums) {
    return sums->sum / (double)sums->count;
}

double eval_sums_error(const eval_sums *sums) {
    double count = (double)sums->count;
    double mean = eval_sums_mean(sums);
    double variance = sums->sum_of_squares / count - mean * mean;
    return variance > 0.0 && sums->count > 1 ? sqrt(variance / (count - 1.0)) : 0.0;
}

double eval_normaliser(const float *logits, uint32_t vocabulary) {
    float highest = logits[0];
    for (uint32_t i = 1; i < vocabulary; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    return sample_log_sum(logits, vocabulary, highest) + (double)highest;
}

avo_status eval_check_number(double value, size_t position, avo_error *error) {
    if (!isnan(value))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT,
                       "the logits at position %zu contain NaN or Inf; the weights are damaged",
                       position);
}
