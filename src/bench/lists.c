/* Lists of numbers to measure with. */
#include "bench/bench.h"

uint32_t bench_largest(const bench_list *list) {
    uint32_t found = 0;
    for (size_t i = 0; i < list->count; i++)
        found = list->item[i] > found ? list->item[i] : found;
    return found;
}

size_t bench_positives(const bench_list *list) {
    size_t found = 0;
    for (size_t i = 0; i < list->count; i++)
        found += list->item[i] > 0;
    return found;
}
