/* Histograms, windows and rates; histogram.h says how they go without a lock. */
#include "telemetry/histogram.h"

/* ---- Histograms ---- */

void histogram_open(histogram *histogram, const uint64_t *borders, uint32_t count) {
    histogram->borders = borders;
    histogram->count = count;
}

void histogram_add(histogram *histogram, uint64_t value) {
    uint32_t low = 0, high = histogram->count;
    while (low < high) { /* the first border that is not below the value */
        uint32_t middle = (low + high) / 2;
        if (histogram->borders[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    atomic_fetch_add_explicit(&histogram->buckets[low], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

uint64_t histogram_read(histogram *histogram, uint64_t *cumulative) {
    uint64_t seen = 0;
    for (uint32_t i = 0; i <= histogram->count; i++) {
        seen += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        cumulative[i] = seen;
    }
    return atomic_load_explicit(&histogram->sum, memory_order_relaxed);
}

/* ---- Windows ---- */

static uint32_t window_bucket(uint64_t value) {
    if (value < (uint64_t)1 << WINDOW_FIRST_BIT)
        return 0;
    uint32_t bit = 63u - (uint32_t)__builtin_clzll(value);
    if (bit >= WINDOW_LAST_BIT)
        return WINDOW_BUCKETS - 1;
    return 1 + (bit - WINDOW_FIRST_BIT) * 16 + (uint32_t)(value >> (bit - 4) & 15);
}

/* The smallest value of a bucket. */
static double bucket_begin(uint32_t bucket) {
    if (bucket == 0)
        return 0.0;
    uint32_t bit = WINDOW_FIRST_BIT + (bucket - 1) / 16;
    return (double)((uint64_t)1 << bit) * (1.0 + (double)((bucket - 1) % 16) / 16.0);
}

/* Whoever moves `clock` on to `now` keeps the moment. Seconds and ticks begin at 1. */
static bool clock_moves(_Atomic uint64_t *clock, uint64_t now) {
    uint64_t before = atomic_load_explicit(clock, memory_order_relaxed);
    while (before < now)
        if (atomic_compare_exchange_weak_explicit(clock, &before, now, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static uint64_t second_of(uint64_t now_ns) {
    return now_ns / 1000000000u + 1;
}

static void window_keep(window *window, uint64_t second) {
    window_moment *moment = &window->moments[second % WINDOW_KEPT];
    atomic_store_explicit(&moment->second, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < WINDOW_BUCKETS; i++)
        atomic_store_explicit(&moment->buckets[i],
                              atomic_load_explicit(&window->buckets[i], memory_order_relaxed),
                              memory_order_release);
    atomic_store_explicit(&moment->second, second, memory_order_release);
}

void window_add(window *window, uint64_t value_ns, uint64_t now_ns) {
    uint64_t second = second_of(now_ns);
    if (clock_moves(&window->second, second))
        window_keep(window, second);
    atomic_fetch_add_explicit(&window->buckets[window_bucket(value_ns)], 1, memory_order_relaxed);
}

/* The counts at the begin of the window: those of its first second in which anything came. False:
 * nothing came. */
static bool window_base(window *window, uint64_t from, uint64_t to, uint32_t *base) {
    for (uint64_t second = from; second <= to; second++) {
        window_moment *moment = &window->moments[second % WINDOW_KEPT];
        if (atomic_load_explicit(&moment->second, memory_order_acquire) != second)
            continue;
        for (uint32_t i = 0; i < WINDOW_BUCKETS; i++)
            base[i] = atomic_load_explicit(&moment->buckets[i], memory_order_acquire);
        if (atomic_load_explicit(&moment->second, memory_order_relaxed) == second)
            return true;
    }
    return false;
}

/* Evenly spread within its bucket. */
static double window_quantile(const uint32_t *counts, uint64_t total, double share) {
    double rank = share * (double)total, seen = 0.0;
    for (uint32_t i = 0; i < WINDOW_BUCKETS; i++) {
        double count = counts[i];
        if (count > 0.0 && seen + count >= rank) {
            double begin = bucket_begin(i);
            double end = i + 1 < WINDOW_BUCKETS ? bucket_begin(i + 1) : begin;
            return (begin + (end - begin) * (rank - seen) / count) * 1e-9;
        }
        seen += count;
    }
    return 0.0;
}

window_quantiles window_read(window *window, uint64_t window_ns, uint64_t now_ns) {
    uint32_t counts[WINDOW_BUCKETS];
    window_quantiles out = {0};
    uint64_t now = second_of(now_ns), span = window_ns / 1000000000u;
    uint64_t from = now > span ? now - span + 1 : 1;
    if (!window_base(window, from, now, counts))
        return out;
    for (uint32_t i = 0; i < WINDOW_BUCKETS; i++) {
        counts[i] = atomic_load_explicit(&window->buckets[i], memory_order_relaxed) - counts[i];
        out.count += counts[i];
    }
    out.p50 = window_quantile(counts, out.count, 0.50);
    out.p90 = window_quantile(counts, out.count, 0.90);
    out.p99 = window_quantile(counts, out.count, 0.99);
    return out;
}

/* ---- Rates ---- */

static uint64_t tick_of(uint64_t now_ns) {
    return now_ns / RATE_TICK_NS + 1;
}

void rate_add(rate *rate, uint64_t amount, uint64_t now_ns) {
    uint64_t tick = tick_of(now_ns);
    if (clock_moves(&rate->tick, tick)) {
        rate_moment *moment = &rate->moments[tick % RATE_KEPT];
        atomic_store_explicit(&moment->tick, 0, memory_order_relaxed);
        atomic_store_explicit(&moment->total,
                              atomic_load_explicit(&rate->total, memory_order_relaxed),
                              memory_order_release);
        atomic_store_explicit(&moment->tick, tick, memory_order_release);
    }
    atomic_fetch_add_explicit(&rate->total, amount, memory_order_relaxed);
}

uint64_t rate_read(rate *rate, uint64_t window_ns, uint64_t now_ns) {
    uint64_t now = tick_of(now_ns), span = window_ns / RATE_TICK_NS;
    for (uint64_t tick = now > span ? now - span + 1 : 1; tick <= now; tick++) {
        rate_moment *moment = &rate->moments[tick % RATE_KEPT];
        if (atomic_load_explicit(&moment->tick, memory_order_acquire) != tick)
            continue;
        uint64_t total = atomic_load_explicit(&moment->total, memory_order_acquire);
        if (atomic_load_explicit(&moment->tick, memory_order_relaxed) == tick)
            return atomic_load_explicit(&rate->total, memory_order_relaxed) - total;
    }
    return 0;
}
