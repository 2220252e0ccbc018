/* Paired comparison. */
#include "eval/pairs.h"

#include <math.h>

#define NORMAL_95 1.959963984540054

void pairs_add(eval_pairs *pairs, double score, double other) {
    double difference = score - other;
    pairs->items++;
    pairs->gained += difference > 0;
    pairs->lost += difference < 0;
    pairs->sum += score;
    pairs->other_sum += other;
    pairs->difference += difference;
    pairs->difference_squares += difference * difference;
}

void pairs_merge(eval_pairs *pairs, const eval_pairs *more) {
    pairs->items += more->items;
    pairs->gained += more->gained;
    pairs->lost += more->lost;
    pairs->sum += more->sum;
    pairs->other_sum += more->other_sum;
    pairs->difference += more->difference;
    pairs->difference_squares += more->difference_squares;
}

/* Of n items that differ each goes either way like a coin: twice the probability of at most
 * min(gained, lost) heads. Terms are added from the smallest up. */
static double mcnemar(uint64_t gained, uint64_t lost) {
    double n = (double)(gained + lost);
    uint64_t fewer = gained < lost ? gained : lost;
    double sum = 0;
    int sign;
    for (uint64_t k = 0; k <= fewer; k++)
        sum += exp(lgamma_r(n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
                   lgamma_r(n - (double)k + 1, &sign) - n * log(2.0));
    return 2 * sum < 1 ? 2 * sum : 1;
}

pairs_result pairs_conclude(const eval_pairs *pairs) {
    double count = (double)pairs->items, mean = pairs->difference / count;
    double variance = (pairs->difference_squares - count * mean * mean) / (count - 1);
    double half = NORMAL_95 * sqrt((variance > 0 || isnan(variance) ? variance : 0) / count);
    return (pairs_result){.score = pairs->sum / count,
                          .other = pairs->other_sum / count,
                          .difference = mean,
                          .low = mean - half,
                          .high = mean + half,
                          .p = mcnemar(pairs->gained, pairs->lost)};
}

void pairs_write(json_writer *w, const eval_pairs *pairs) {
    pairs_result result = pairs_conclude(pairs);
    json_member_u64(w, "items", pairs->items);
    json_member_u64(w, "gained", pairs->gained);
    json_member_u64(w, "lost", pairs->lost);
    json_member_number(w, "score", result.score);
    json_member_number(w, "against", result.other);
    json_member_number(w, "difference", result.difference);
    json_member_array_begin(w, "interval");
    json_number(w, result.low);
    json_number(w, result.high);
    json_end(w);
    json_member_number(w, "p", result.p);
}
