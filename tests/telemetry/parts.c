/* telemetry/: histograms against a naive count, windows, rates and rings, alone and with many
 * threads. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/clock.h"
#include "base/random.h"
#include "telemetry/histogram.h"
#include "telemetry/ring.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define S ((uint64_t)1000000000)

static uint32_t random_word(uint64_t seed, uint64_t counter) {
    return random_at(seed, 0, counter).words[0];
}

/* ---- Histograms ---- */

static const uint64_t borders[] = {1, 5, 10, 100, 1000, 5000};
#define BORDERS (sizeof(borders) / sizeof(borders[0]))

static void a_histogram_counts_like_a_naive_one(void **state) {
    (void)state;
    histogram histogram = {0};
    histogram_open(&histogram, borders, BORDERS);
    uint64_t naive[BORDERS + 1] = {0}, sum = 0, cumulative[BORDERS + 1];
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t value = random_word(7, i) % 6000;
        if (i < 2 * BORDERS) /* the borders themselves, and one above */
            value = borders[i / 2] + i % 2;
        histogram_add(&histogram, value);
        sum += value;
        for (size_t b = 0; b < BORDERS; b++)
            naive[b] += value <= borders[b];
        naive[BORDERS]++;
    }
    assert_int_equal(histogram_read(&histogram, cumulative), sum);
    for (size_t b = 0; b <= BORDERS; b++)
        assert_int_equal(cumulative[b], naive[b]);
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void near(double found, uint64_t exact) {
    double wanted = (double)exact * 1e-9;
    if (fabs(found - wanted) > 0.04 * wanted)
        fail_msg("%g s where %g s were to be found", found, wanted);
}

static void quantiles_of_a_window_are_near_the_exact_ones(void **state) {
    (void)state;
    static window w;
    memset(&w, 0, sizeof(w));
    enum { COUNT = 5000 };
    static uint64_t values[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        /* from microseconds to seconds */
        values[i] = (uint64_t)exp(7.0 + 14.0 * (double)random_word(9, i) * 0x1p-32);
        window_add(&w, values[i], 100 * S + i * 1000000);
    }
    qsort(values, COUNT, sizeof(values[0]), ascending);
    window_quantiles found = window_read(&w, 60 * S, 105 * S);
    assert_int_equal(found.count, COUNT);
    near(found.p50, values[COUNT / 2]);
    near(found.p90, values[COUNT * 9 / 10]);
    near(found.p99, values[COUNT * 99 / 100]);
}

static void a_window_forgets(void **state) {
    (void)state;
    static window w;
    memset(&w, 0, sizeof(w));
    for (int i = 0; i < 10; i++)
        window_add(&w, 50000000, 1000 * S + (uint64_t)i);
    assert_int_equal(window_read(&w, 60 * S, 1000 * S).count, 10);
    assert_int_equal(window_read(&w, 60 * S, 1059 * S).count, 10);
    assert_int_equal(window_read(&w, 60 * S, 1061 * S).count, 0);
    /* What comes after a long silence is alone, and the old does not come back. */
    window_add(&w, 70000000, 5000 * S);
    window_quantiles found = window_read(&w, 60 * S, 5001 * S);
    assert_int_equal(found.count, 1);
    near(found.p50, 70000000);
    /* Smaller than the first border, larger than the last: counted all the same. */
    window_add(&w, 0, 5002 * S);
    window_add(&w, UINT64_MAX, 5002 * S);
    assert_int_equal(window_read(&w, 60 * S, 5002 * S).count, 3);
    assert_int_equal(window_read(&w, 60 * S, 0).count, 0);
}

static void a_rate_is_that_of_the_last_seconds(void **state) {
    (void)state;
    rate r = {0};
    for (uint64_t i = 0; i < 100; i++) /* ten a second for ten seconds */
        rate_add(&r, 1, 500 * S + i * S / 10);
    uint64_t found = rate_read(&r, 5 * S, 510 * S - 1);
    assert_in_range(found, 47, 50);
    assert_int_equal(rate_read(&r, 5 * S, 516 * S), 0);
    rate_add(&r, 7, 600 * S);
    assert_int_equal(rate_read(&r, 5 * S, 600 * S), 7);
}

/* ---- Rings ---- */

static telemetry_span span_of(uint64_t i) {
    return (telemetry_span){.kind = (span_kind)(i % SPAN_KINDS),
                            .begin_ns = i * 100,
                            .end_ns = i * 100 + i % 50,
                            .id = ~i,
                            .a = (uint32_t)(i * 3),
                            .b = (uint32_t)(i * 7)};
}

static void is_span(const telemetry_span *found, uint64_t i) {
    telemetry_span wanted = span_of(i);
    if (found->kind != wanted.kind || found->begin_ns != wanted.begin_ns ||
        found->end_ns != wanted.end_ns || found->id != wanted.id || found->a != wanted.a ||
        found->b != wanted.b)
        fail_msg("span %llu is another one", (unsigned long long)i);
}

static void a_ring_keeps_the_newest(void **state) {
    (void)state;
    span_ring ring;
    avo_error error;
    assert_ok_error(span_ring_open(&ring, 16, NULL, &error), &error);
    telemetry_span spans[5];
    uint64_t from = 0;
    assert_int_equal(span_ring_read(&ring, &from, spans, 5), 0);
    for (uint64_t i = 0; i < 100; i++) {
        telemetry_span span = span_of(i);
        span_ring_add(&ring, &span);
    }
    uint64_t next = 84;
    for (uint32_t count; (count = span_ring_read(&ring, &from, spans, 5)) > 0;)
        for (uint32_t i = 0; i < count; i++)
            is_span(&spans[i], next++);
    assert_int_equal(next, 100);
    span_ring_close(&ring, NULL);
}

typedef struct ring_run {
    span_ring ring;
    atomic_bool stop;
} ring_run;

static void *write_spans(void *context) {
    ring_run *run = context;
    for (uint64_t i = 0; !atomic_load(&run->stop); i++) {
        telemetry_span span = span_of(i);
        span_ring_add(&run->ring, &span);
        if (i % 1000 == 0) /* nobody who computes writes without a pause */
            sched_yield();
    }
    return NULL;
}

/* Whatever a reader gets is whole and in order, however fast the writer laps it. */
static void a_reader_beside_a_writer_sees_whole_spans(void **state) {
    (void)state;
    static ring_run run;
    avo_error error;
    pthread_t writer;
    assert_ok_error(span_ring_open(&run.ring, 512, NULL, &error), &error);
    atomic_store(&run.stop, false);
    assert_int_equal(pthread_create(&writer, NULL, write_spans, &run), 0);
    telemetry_span spans[48];
    uint64_t from = 0, last = 0, seen = 0;
    while (seen < 20000) {
        uint32_t count = span_ring_read(&run.ring, &from, spans, 48);
        if (count == 0)
            sched_yield();
        for (uint32_t i = 0; i < count; i++) {
            uint64_t number = ~spans[i].id;
            is_span(&spans[i], number);
            assert_true(seen == 0 || number > last);
            last = number;
            seen++;
        }
    }
    atomic_store(&run.stop, true);
    pthread_join(writer, NULL);
    span_ring_close(&run.ring, NULL);
}

/* ---- Many writers ---- */

#define WRITERS 4
#define EACH    20000

typedef struct crowd {
    histogram histogram;
    window window;
    rate rate;
} crowd;

static void *add_all(void *context) {
    crowd *crowd = context;
    for (uint64_t i = 0; i < EACH; i++) {
        uint64_t now = 50 * S + i * 100000; /* two seconds: the window moves meanwhile */
        histogram_add(&crowd->histogram, i % 7000);
        window_add(&crowd->window, 1000000 + i, now);
        rate_add(&crowd->rate, 2, now);
    }
    return NULL;
}

static void nothing_is_lost_among_many_writers(void **state) {
    (void)state;
    static crowd crowd;
    pthread_t writers[WRITERS];
    uint64_t cumulative[BORDERS + 1];
    memset(&crowd, 0, sizeof(crowd));
    histogram_open(&crowd.histogram, borders, BORDERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, add_all, &crowd), 0);
    for (int i = 0; i < 100; i++) { /* readers do not disturb */
        (void)histogram_read(&crowd.histogram, cumulative);
        (void)window_read(&crowd.window, 60 * S, 52 * S);
        (void)rate_read(&crowd.rate, 5 * S, 52 * S);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    (void)histogram_read(&crowd.histogram, cumulative);
    assert_int_equal(cumulative[BORDERS], WRITERS * EACH);
    /* The begin of a window may be off by what others count in that very moment, no more. */
    assert_in_range(window_read(&crowd.window, 60 * S, 52 * S).count, WRITERS * EACH - WRITERS,
                    WRITERS * EACH);
    assert_int_equal(atomic_load(&crowd.rate.total), 2 * WRITERS * EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_histogram_counts_like_a_naive_one),
        cmocka_unit_test(quantiles_of_a_window_are_near_the_exact_ones),
        cmocka_unit_test(a_window_forgets),
        cmocka_unit_test(a_rate_is_that_of_the_last_seconds),
        cmocka_unit_test(a_ring_keeps_the_newest),
        cmocka_unit_test(a_reader_beside_a_writer_sees_whole_spans),
        cmocka_unit_test(nothing_is_lost_among_many_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
