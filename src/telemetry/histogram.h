/* Histograms, windows and rates. Any number of writers and readers, no lock, nothing is ever lost:
 * all counts only rise. What the last seconds had is the difference to what was counted when they
 * began: the first one who records something in a new interval keeps the counts as they are then. A
 * count of another thread in that very moment may be taken for one of the interval before.
 */
#ifndef AVO_TELEMETRY_HISTOGRAM_H
#define AVO_TELEMETRY_HISTOGRAM_H

#include "base/status.h"

#include <stdatomic.h>

/* ---- Histograms with borders, as Prometheus has them ---- */

#define HISTOGRAM_BORDERS_MAX 32

typedef struct histogram {
    const uint64_t *borders; /* [count] inclusive upper ends, ascending; beyond: one bucket more */
    uint32_t count;
    _Atomic uint64_t buckets[HISTOGRAM_BORDERS_MAX + 1];
    _Atomic uint64_t sum;
} histogram;

void histogram_open(histogram *histogram, const uint64_t *borders, uint32_t count);
void histogram_add(histogram *histogram, uint64_t value);
/* Values up to each border, all of them last: [count + 1]. Returns the sum of all values. */
uint64_t histogram_read(histogram *histogram, uint64_t *cumulative);

/* ---- Windows: quantiles of the last seconds ---- */

/* Nanoseconds from 2^10 to 2^42, 16 buckets to each doubling: a quantile is right to 3 %. */
#define WINDOW_FIRST_BIT 10
#define WINDOW_LAST_BIT  42
#define WINDOW_BUCKETS   ((WINDOW_LAST_BIT - WINDOW_FIRST_BIT) * 16 + 2)
#define WINDOW_KEPT      64 /* seconds */

typedef struct window_moment {
    _Atomic uint64_t second; /* at whose begin the counts were these; 0: none, or being written */
    _Atomic uint32_t buckets[WINDOW_BUCKETS];
} window_moment;

typedef struct window {
    _Atomic uint64_t second; /* of the newest moment */
    _Atomic uint32_t buckets[WINDOW_BUCKETS];
    window_moment moments[WINDOW_KEPT];
} window;

void window_add(window *window, uint64_t value_ns, uint64_t now_ns);

typedef struct window_quantiles {
    uint64_t count;
    double p50, p90, p99; /* seconds; without meaning where count is 0 */
} window_quantiles;
/* Over the last `window_ns`, at most WINDOW_KEPT − 2 seconds. */
window_quantiles window_read(window *window, uint64_t window_ns, uint64_t now_ns);

/* ---- Rates ---- */

#define RATE_TICK_NS ((uint64_t)250000000)
#define RATE_KEPT    32 /* ticks */

typedef struct rate_moment {
    _Atomic uint64_t tick; /* 0: none, or being written */
    _Atomic uint64_t total;
} rate_moment;

typedef struct rate {
    _Atomic uint64_t tick, total;
    rate_moment moments[RATE_KEPT];
} rate;

void rate_add(rate *rate, uint64_t amount, uint64_t now_ns);
/* How much came in the last `window_ns`, at most RATE_KEPT − 2 ticks. */
uint64_t rate_read(rate *rate, uint64_t window_ns, uint64_t now_ns);

#endif
