/* The filters: top-k, top-p, min-p, typical.
 *
 * None of them sorts. Each asks for a border: walking the candidates in the order of a 32-bit key,
 * at which key does the sum of weights reach a limit? A radix descent answers in three passes over
 * histograms of 2048 buckets: linear whatever the logits are, and without any dependence on the
 * order that a sort would give to equals. Sums run over buckets in key order and inside a bucket in
 * id order, so they are the same everywhere.
 */
#include "sample/sample_int.h"

#include "base/checked.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Smaller floats get smaller keys; −0 and +0 are one. NaN never comes here. */
static uint32_t key_ascending(float value) {
    uint32_t bits;
    float positive_zero = value + 0.0f;
    memcpy(&bits, &positive_zero, sizeof(bits));
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static uint32_t key_descending(float value) {
    return ~key_ascending(value);
}

typedef struct border {
    uint32_t key;  /* of the candidate at which the sum reaches the limit */
    double before; /* the sum of all candidates with smaller keys */
} border;

#define RADIX_BITS    11
#define RADIX_BUCKETS (1u << RADIX_BITS)

/* `weights` may be NULL: each counts 1. Without reaching the limit (sums round) the border is the
 * largest key. */
static border find_border(const uint32_t *keys, const float *weights, size_t count, double limit) {
    static const uint32_t shifts[] = {21, 10, 0};
    static const uint32_t widths[] = {11, 11, 10};
    border result = {0, 0.0};
    uint32_t prefix_mask = 0;
    for (int level = 0; level < 3; level++) {
        double sums[RADIX_BUCKETS] = {0.0};
        bool filled[RADIX_BUCKETS] = {false};
        uint32_t digit_mask = (1u << widths[level]) - 1u;
        for (size_t i = 0; i < count; i++) {
            if ((keys[i] & prefix_mask) != result.key)
                continue;
            uint32_t digit = keys[i] >> shifts[level] & digit_mask;
            sums[digit] += weights == NULL ? 1.0 : (double)weights[i];
            filled[digit] = true;
        }
        uint32_t chosen = 0;
        double before = result.before;
        for (uint32_t digit = 0; digit <= digit_mask; digit++) {
            if (!filled[digit])
                continue;
            chosen = digit;
            result.before = before;
            before += sums[digit];
            if (before >= limit)
                break;
        }
        result.key |= chosen << shifts[level];
        prefix_mask |= digit_mask << shifts[level];
    }
    return result;
}

static void keep(candidate_set *set, size_t from, size_t *kept) {
    set->ids[*kept] = set->ids[from];
    set->scores[*kept] = set->scores[from];
    set->weights[*kept] = set->weights[from];
    ++*kept;
}

void candidates_top_k(candidate_set *set, uint32_t k) {
    if (k == 0 || k >= set->count)
        return;
    for (size_t i = 0; i < set->count; i++)
        set->keys[i] = key_descending(set->scores[i]);
    border border = find_border(set->keys, NULL, set->count, (double)k);
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++)
        if (set->keys[i] <= border.key)
            keep(set, i, &kept);
    set->count = kept;
}

void candidates_weigh(candidate_set *set, float highest, float temperature) {
    set->loops->weigh(set->scores, set->count, highest, temperature, set->weights);
}

#define BLOCK 512 /* weights that are added in lanes; small enough to walk through one by one */

static uint32_t block_size(const candidate_set *set, size_t first) {
    return (uint32_t)size_min(set->count - first, BLOCK);
}

static double block_total(const candidate_set *set, size_t first) {
    return set->loops->total(set->weights + first, block_size(set, first));
}

double candidates_total(const candidate_set *set) {
    double total = 0.0;
    for (size_t first = 0; first < set->count; first += BLOCK)
        total += block_total(set, first);
    return total;
}

void candidates_top_p(candidate_set *set, float p) {
    if (p >= 1.0f || set->count < 2)
        return;
    /* Scores rather than weights make the order: weights far down are all 0. */
    for (size_t i = 0; i < set->count; i++)
        set->keys[i] = key_descending(set->scores[i]);
    double limit = (double)p * candidates_total(set);
    if (limit <= 0.0)
        limit = DBL_MIN; /* the likeliest stays */
    border border = find_border(set->keys, set->weights, set->count, limit);
    double sum = border.before;
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->keys[i] > border.key)
            continue;
        if (set->keys[i] == border.key) {
            if (sum >= limit)
                continue;
            sum += (double)set->weights[i];
        }
        keep(set, i, &kept);
    }
    set->count = kept;
}

void candidates_min_p(candidate_set *set, float p) {
    if (p <= 0.0f)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++)
        if (set->weights[i] >= p) /* the likeliest has weight 1 and is still there */
            keep(set, i, &kept);
    set->count = kept;
}

void candidates_typical(candidate_set *set, float p, float highest, float temperature) {
    if (p >= 1.0f || set->count < 2)
        return;
    const double top = (double)highest;
    const double divisor = (double)temperature;
    double total = candidates_total(set);
    double log_total = sample_log(total);
    /* −Σ q·log q with q = weight / total. The logarithm of a weight is the exponent it was made of;
     * a weight of 0 adds nothing. */
    double entropy = 0.0;
    for (size_t i = 0; i < set->count; i++)
        if (set->weights[i] > 0.0f) {
            double log_share = ((double)set->scores[i] - top) / divisor - log_total;
            entropy -= (double)set->weights[i] / total * log_share;
        }
    for (size_t i = 0; i < set->count; i++) {
        double log_share = ((double)set->scores[i] - top) / divisor - log_total;
        double distance = log_share + entropy;
        distance = distance < 0.0 ? -distance : distance;
        set->keys[i] = key_ascending(distance < (double)FLT_MAX ? (float)distance : FLT_MAX);
    }
    border border = find_border(set->keys, set->weights, set->count, (double)p * total);
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++)
        if (set->keys[i] <= border.key)
            keep(set, i, &kept);
    set->count = kept;
}

/* The place of the candidate at which the sum passes `target` behind `before`; of several with the
 * same sum the first. Rounding may leave the target at the very end: then the last one with a
 * weight. */
static size_t pick_in_block(const candidate_set *set, size_t first, double before, double target) {
    size_t end = first + block_size(set, first), last = first;
    for (size_t i = first; i < end; i++) {
        if (set->weights[i] <= 0.0f)
            continue;
        last = i;
        before += (double)set->weights[i];
        if (target < before)
            break;
    }
    return last;
}

size_t candidates_pick(const candidate_set *set, double uniform) {
    double target = uniform * candidates_total(set), before = 0.0, last_before = 0.0;
    size_t last = 0;
    for (size_t first = 0; first < set->count; first += BLOCK) {
        double total = block_total(set, first);
        if (total > 0.0) {
            last = first;
            last_before = before;
        }
        before += total;
        if (target < before)
            break;
    }
    return pick_in_block(set, last, last_before, target);
}

/* x = m·2^e with m in [√½, √2); log m = 2·artanh((m−1)/(m+1)) as its series, whose argument is at
 * most 0.1716: the ninth term is below 1e-16. */
double sample_log(double x) {
    uint64_t bits;
    int32_t exponent = 0;
    if (!(x > 0.0 && x <= DBL_MAX))
        return NAN; /* of broken logits; nothing below looks at the kind of a number */
    if (x < DBL_MIN) {
        x *= 0x1p54;
        exponent = -54;
    }
    memcpy(&bits, &x, sizeof(bits));
    exponent += (int32_t)(bits >> 52) - 1023;
    bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double series = 1.0 / 21.0;
    for (int term = 19; term >= 1; term -= 2)
        series = series * z + 1.0 / (double)term;
    return (double)exponent * 0.6931471805599453 + 2.0 * s * series;
}
