/* Skewed and human-like distributions: see dice.h. */
#include "sched/dice.h"

uint32_t dice_length(dice *dice, uint32_t mean, uint32_t most) {
    const double sigma = 0.8;
    double first = dice_uniform(dice), second = dice_uniform(dice);
    double normal = sqrt(-2 * log(1 - first)) * cos(6.283185307179586 * second);
    double length = mean * exp(sigma * normal - sigma * sigma / 2);
    return length < 1 ? 1 : length > most ? most : (uint32_t)length;
}

void dice_zipf_sums(double exponent, double *sums, uint32_t count) {
    double sum = 0;
    for (uint32_t k = 1; k <= count; k++) {
        sum += pow(k, -exponent);
        sums[k - 1] = sum;
    }
}

/* The first whose sum is more than what was drawn. */
uint32_t dice_zipf(dice *dice, const double *sums, uint32_t count) {
    double wanted = dice_uniform(dice) * sums[count - 1];
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sums[middle] > wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return low + 1;
}
