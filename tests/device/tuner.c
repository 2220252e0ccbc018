/* device/cpu/tuner on synthetic machines: what it chooses, how soon, and what that costs. */
#include "support/support.h"

#include "device/cpu/tuner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PROCESSORS 16

/* A machine whose steps take a known time for every number of workers. */
typedef struct machine {
    double step_ns;     /* work of a step for one worker */
    double serial_ns;   /* what no further worker shortens */
    double worker_ns;   /* what each worker adds: it must be woken and waited for */
    uint32_t cores;     /* from here on a worker is a sibling of another one */
    double sibling;     /* what a sibling adds, of a core */
    uint32_t loops;     /* busy loops beside, each keeps half of a processor that it shares */
    double stop;        /* chance per shared worker that a step is stopped, for stop_ns */
    double stop_ns;     /* a slice of the kernel's scheduler */
    double quota;       /* processors; 0: none */
    double noise;       /* of a step's time, relative */
    uint64_t random;    /* state */
    double budget_ns;   /* left of the quota's period */
    double period_ns;   /* left of the period */
    uint32_t last;      /* workers of the last step */
    double time_ns;     /* all steps */
    double expected_ns; /* the same without noise, had each run with the chosen number */
    double best_ns;     /* the same with the best number */
} machine;

static double uniform(machine *m) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(m->random >> 11) / 9007199254740992.0;
}

static double power(const machine *m, uint32_t workers) {
    double sum = 0;
    uint32_t free = PROCESSORS > m->loops ? PROCESSORS - m->loops : 0;
    for (uint32_t i = 0; i < workers; i++)
        sum += (i < m->cores ? 1 : m->sibling) * (i < free ? 1 : 0.5);
    return sum;
}

/* Without noise. */
static double expected(const machine *m, uint32_t workers, uint32_t rows) {
    uint32_t free = PROCESSORS > m->loops ? PROCESSORS - m->loops : 0;
    uint32_t shared = workers > free ? workers - free : 0;
    double ns = m->serial_ns + m->worker_ns * workers + rows * m->step_ns / power(m, workers) +
                m->stop * shared * m->stop_ns;
    if (m->quota > 0 && workers > m->quota)
        ns *= workers / m->quota;
    return ns;
}

/* Time that the cgroup's quota adds: what is used up waits for the next period of 100 ms. */
static double throttle(machine *m, uint32_t workers, double ns) {
    if (m->quota == 0)
        return 0;
    double waited = 0;
    m->budget_ns -= ns * workers;
    m->period_ns -= ns;
    if (m->budget_ns < 0 && m->period_ns > 0) {
        waited = m->period_ns;
        m->period_ns = 0;
    }
    if (m->period_ns <= 0) {
        m->period_ns += 1e8;
        m->budget_ns = m->quota * 1e8;
    }
    return waited;
}

static double step(machine *m, uint32_t workers, uint32_t rows) {
    uint32_t free = PROCESSORS > m->loops ? PROCESSORS - m->loops : 0;
    double ns = m->serial_ns + m->worker_ns * workers + rows * m->step_ns / power(m, workers);
    ns *= 1 + m->noise * (uniform(m) + uniform(m) + uniform(m) - 1.5);
    for (uint32_t i = free; i < workers; i++)
        if (uniform(m) < m->stop)
            ns += m->stop_ns;
    if (workers > m->last)
        ns += 1e5; /* they sleep */
    m->last = workers;
    return ns + throttle(m, workers, ns);
}

static uint32_t best_of(const machine *m, uint32_t most, uint32_t rows) {
    uint32_t best = 1;
    for (uint32_t i = 2; i <= most; i++)
        if (expected(m, i, rows) < expected(m, best, rows))
            best = i;
    return best;
}

/* Runs for some seconds of the machine's time. */
static void run(machine *m, tuner *tuner, uint32_t rows, double seconds) {
    double best = expected(m, best_of(m, tuner->most, rows), rows);
    m->time_ns = m->expected_ns = m->best_ns = 0;
    while (m->time_ns < seconds * 1e9) {
        uint32_t workers = tuner_choose(tuner, rows);
        assert_in_range(workers, 1, tuner->most);
        double ns = step(m, workers, rows);
        uint32_t free = PROCESSORS > m->loops ? PROCESSORS - m->loops : 0;
        m->time_ns += ns;
        m->expected_ns += expected(m, workers, rows);
        m->best_ns += best;
        tuner_learn(tuner, rows, (uint64_t)ns, workers > free ? (workers - free) / 2 : 0);
    }
}

/* Decoding: one row, 1.2 ms with 16 workers. */
static machine quiet_machine(uint64_t seed) {
    return (machine){.step_ns = 12e6,
                     .serial_ns = 2e5,
                     .worker_ns = 3e3,
                     .cores = PROCESSORS,
                     .sibling = 1,
                     .stop_ns = 3e6,
                     .noise = 0.05,
                     .random = seed};
}

static void assert_near_best(const machine *m, const tuner *tuner, double bound, const char *what) {
    if (m->expected_ns > bound * m->best_ns) {
        char text[160];
        tuner_text(tuner, text, sizeof(text));
        fail_msg("%s: %.3f of the best (%s)", what, m->best_ns / m->expected_ns, text);
    }
}

static void a_quiet_machine_is_left_alone(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        machine m = quiet_machine(seed);
        tuner tuner;
        tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
        run(&m, &tuner, 1, 30);
        assert_near_best(&m, &tuner, 1.01, "quiet");
        const tuner_side *side = &tuner.side[TUNER_DECODE];
        assert_true(side->probes > 10);
        assert_true(side->cost_ns <= 1.05 * TUNER_COST * side->total_ns + 5e6);
    }
}

static void half_is_chosen_where_siblings_do_harm(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        machine m = quiet_machine(seed);
        m.cores = PROCESSORS / 2;
        m.sibling = 0.02;
        m.worker_ns = 1e4;
        assert_int_equal(best_of(&m, PROCESSORS, 1), 8);
        tuner tuner;
        tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
        run(&m, &tuner, 1, 5);
        run(&m, &tuner, 1, 10);
        assert_near_best(&m, &tuner, 1.03, "siblings");
    }
}

static void busy_loops_are_seen_and_forgotten(void **state) {
    (void)state;
    static const uint32_t loops[] = {PROCESSORS / 4, PROCESSORS};
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (size_t i = 0; i < 2; i++) {
            machine m = quiet_machine(seed);
            m.stop = 0.05;
            tuner tuner;
            tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
            run(&m, &tuner, 1, 5);
            m.loops = loops[i];
            run(&m, &tuner, 1, 5);
            run(&m, &tuner, 1, 10);
            assert_near_best(&m, &tuner, 1.08, "busy");
            m.loops = 0;
            run(&m, &tuner, 1, 5);
            run(&m, &tuner, 1, 10);
            assert_near_best(&m, &tuner, 1.04, "quiet again");
        }
}

static void a_quota_is_kept(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        machine m = quiet_machine(seed);
        m.quota = 8;
        tuner tuner;
        tuner_open(&tuner, 8, 8, 8);
        run(&m, &tuner, 1, 20);
        assert_near_best(&m, &tuner, 1.02, "quota");
    }
}

static void decode_and_prefill_are_chosen_apart(void **state) {
    (void)state;
    machine decode = quiet_machine(3), prefill = quiet_machine(4);
    decode.worker_ns = 3e5; /* best with few */
    tuner tuner;
    tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
    for (int i = 0; i < 20; i++) {
        run(&decode, &tuner, 1, 1);
        run(&prefill, &tuner, 512, 3);
    }
    assert_near_best(&decode, &tuner, 1.04, "decode");
    assert_near_best(&prefill, &tuner, 1.02, "prefill");
    assert_true(tuner_chosen(&tuner, 1) < PROCESSORS);
    assert_int_equal(tuner_chosen(&tuner, 512), PROCESSORS);
    char text[160];
    tuner_text(&tuner, text, sizeof(text));
    assert_non_null(strstr(text, " of 16, prefill 16; "));
}

/* Steps of a server: rows differ from step to step. */
static void rows_that_vary_do_not_mislead(void **state) {
    (void)state;
    machine m = quiet_machine(5);
    tuner tuner;
    tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
    double expected_ns = 0, best_ns = 0;
    for (uint32_t i = 0; i < 60000; i++) {
        uint32_t rows = 1 + (uint32_t)(uniform(&m) * 12), workers = tuner_choose(&tuner, rows);
        expected_ns += expected(&m, workers, rows);
        best_ns += expected(&m, best_of(&m, PROCESSORS, rows), rows);
        tuner_learn(&tuner, rows, (uint64_t)step(&m, workers, rows), 0);
    }
    assert_true(expected_ns < 1.01 * best_ns);
}

/* Prompts of three chunks, the last one of any length. */
static void chunks_of_prompts_vary(void **state) {
    (void)state;
    machine m = {
        .step_ns = 2e6, .worker_ns = 2e6, .cores = 8, .sibling = 0, .noise = 0.03, .random = 5};
    tuner tuner;
    tuner_open(&tuner, PROCESSORS, PROCESSORS, PROCESSORS);
    machine sum = {0};
    for (uint32_t i = 0; i < 600; i++) {
        const uint32_t rows[] = {512, 17 + i * 89 % 480};
        for (size_t r = 0; r < 2; r++) {
            run(&m, &tuner, rows[r], r == 0 ? 0.3 : 0.001);
            sum.expected_ns += i < 400 ? 0 : m.expected_ns;
            sum.best_ns += i < 400 ? 0 : m.best_ns;
        }
    }
    assert_near_best(&sum, &tuner, 1.03, "chunks of prompts");
    tuner_learn(&tuner, 512, 0, 0);                    /* a clock that stood still */
    assert_true(tuner.side[TUNER_PREFILL].noise >= 0); /* a number */
}

static void one_processor_has_no_choice(void **state) {
    (void)state;
    tuner tuner;
    tuner_open(&tuner, 1, 1, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tuner_choose(&tuner, i % 64 + 1), 1);
        tuner_learn(&tuner, i % 64 + 1, i, 0);
    }
    assert_int_equal(tuner.side[TUNER_DECODE].probes + tuner.side[TUNER_PREFILL].probes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_is_left_alone),
        cmocka_unit_test(half_is_chosen_where_siblings_do_harm),
        cmocka_unit_test(busy_loops_are_seen_and_forgotten),
        cmocka_unit_test(a_quota_is_kept),
        cmocka_unit_test(decode_and_prefill_are_chosen_apart),
        cmocka_unit_test(rows_that_vary_do_not_mislead),
        cmocka_unit_test(chunks_of_prompts_vary),
        cmocka_unit_test(one_processor_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
