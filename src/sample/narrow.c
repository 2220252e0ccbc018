/* Top-p and min-p from the highest logits alone, where these decide. What the others weigh together
 * is known within bounds from the sum of all exponentials, which the device gives: at temperature 1
 * that is their weight; below it, each weighs at most what the last of the highest would. Where the
 * bounds leave a doubt, all logits are looked at, so that answers never differ. */
#include "sample/sample_int.h"

#include "base/mathd.h"

#include <math.h>

/* Far more than weights and sums of floats, and of doubles, are off by. */
#define FLOATS_OFF  1e-5
#define DOUBLES_OFF 1e-9

typedef struct bounds {
    double low, high;
} bounds;

/* Of the sum of weights of the tokens behind the highest. */
static bounds others_weigh(const candidate_set *set, const logit_top *top, uint32_t vocabulary,
                           float temperature) {
    double highest = (double)top->logit[0], listed = 0.0, all = mathd_exp(top->log_sum);
    if (set->count == vocabulary)
        return (bounds){0.0, 0.0};
    for (size_t i = 0; i < set->count; i++)
        listed += mathd_exp((double)set->scores[i] - highest);
    double low = all - listed - all * FLOATS_OFF, high = all - listed + all * FLOATS_OFF;
    low = low > 0.0 ? low : 0.0;
    high = high > 0.0 ? high : 0.0;
    double power = 1.0 / (double)temperature;
    /* e^(d·power) = e^d · e^(d·(power − 1)), and no d is above that of the last one listed. */
    double last = ((double)set->scores[set->count - 1] - highest) * (power - 1.0);
    double factor = mathd_exp(last);
    if (power > 1.0)
        return (bounds){0.0, high * factor * (1.0 + FLOATS_OFF)};
    if (power == 1.0)
        return (bounds){low, high};
    /* Flatter: at least as above; at most as if all were equal. */
    double count = (double)(vocabulary - (uint32_t)set->count);
    double most = high <= 0.0 ? 0.0 : count * mathd_exp(power * sample_log(high / count));
    return (bounds){low * factor * (1.0 - FLOATS_OFF), most * (1.0 + FLOATS_OFF)};
}

/* How many of the highest top-p keeps, as candidates_top_p does; 0: undecided. */
static size_t count_top_p(const candidate_set *set, const bounds *others, float p) {
    double listed = 0.0, before, sum = 0.0;
    for (size_t i = 0; i < set->count; i++)
        listed += (double)set->weights[i];
    double low = (double)p * (listed + others->low) * (1.0 - DOUBLES_OFF);
    double high = (double)p * (listed + others->high) * (1.0 + DOUBLES_OFF);
    for (size_t i = 0; i < set->count; i++) {
        before = sum;
        sum += (double)set->weights[i];
        if (sum >= high)
            return i == 0 || before < low ? i + 1 : 0;
    }
    return 0;
}

/* In order of ids, as the filters leave them. */
static void sort(candidate_set *set) {
    for (size_t i = 1; i < set->count; i++) {
        int32_t id = set->ids[i];
        float score = set->scores[i], weight = set->weights[i];
        size_t at = i;
        for (; at > 0 && set->ids[at - 1] > id; at--) {
            set->ids[at] = set->ids[at - 1];
            set->scores[at] = set->scores[at - 1];
            set->weights[at] = set->weights[at - 1];
        }
        set->ids[at] = id;
        set->scores[at] = score;
        set->weights[at] = weight;
    }
}

bool candidates_narrow(candidate_set *set, const logit_top *top, uint32_t vocabulary,
                       float temperature, float top_p, float min_p) {
    set->count = 0;
    for (uint32_t i = 0; i < top->count; i++) {
        set->ids[i] = top->token[i];
        set->scores[i] = top->logit[i];
        set->count++;
    }
    if (set->count == 0 || !(set->scores[set->count - 1] > -INFINITY))
        return false;
    candidates_weigh(set, top->logit[0], temperature);
    if (top_p < 1.0f) {
        bounds others = others_weigh(set, top, vocabulary, temperature);
        set->count = count_top_p(set, &others, top_p);
        if (set->count == 0)
            return false;
    } else if (set->count < vocabulary &&
               !((double)set->weights[set->count - 1] < (double)min_p * (1.0 - FLOATS_OFF))) {
        return false; /* others may be as high as min-p asks for */
    }
    sort(set);
    candidates_min_p(set, min_p);
    return true;
}
