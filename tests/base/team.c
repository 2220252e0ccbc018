/* base/team: every worker runs every task once, whatever the sizes. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/team.h"
#include "base/topology.h"

#include <sched.h>
#include <string.h>
#include <time.h>

typedef struct job {
    uint64_t *values; /* written by the workers without any lock: the team orders them */
    size_t count;
    uint32_t calls[TEAM_THREADS_MAX];
    uint32_t workers_seen[TEAM_THREADS_MAX];
} job;

static void add_one(void *context, uint32_t worker, uint32_t workers) {
    job *job = context;
    size_t begin;
    size_t end;
    team_share(job->count, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++)
        job->values[i]++;
    job->calls[worker]++;
    job->workers_seen[worker] = workers;
}

static void every_worker_runs_every_task(void **state) {
    (void)state;
    static uint64_t values[1000];
    for (uint32_t threads = 1; threads <= 16; threads++) {
        team *team = NULL;
        avo_error error = {0};
        assert_ok_error(team_open(NULL, threads, &team, &error), &error);
        assert_int_equal(team_size(team), threads);
        job job = {.values = values, .count = 1000};
        memset(values, 0, sizeof(values));
        for (int run = 0; run < 300; run++)
            team_run(team, add_one, &job);
        for (size_t i = 0; i < 1000; i++)
            assert_int_equal(values[i], 300);
        for (uint32_t worker = 0; worker < threads; worker++) {
            assert_int_equal(job.calls[worker], 300);
            assert_int_equal(job.workers_seen[worker], threads);
        }
        team_close(team);
    }
}

/* The next task reads what others wrote in the one before: team_run is a barrier. */
typedef struct chain {
    uint64_t from[64], to[64];
} chain;

static void mix(void *context, uint32_t worker, uint32_t workers) {
    chain *chain = context;
    for (size_t i = worker; i < 64; i += workers)
        chain->to[i] = chain->from[i] * 3 + chain->from[(i + 17) % 64] + 1;
}

static void copy_back(void *context, uint32_t worker, uint32_t workers) {
    chain *chain = context;
    for (size_t i = worker; i < 64; i += workers)
        chain->from[(i + 5) % 64] = chain->to[(i + 5) % 64];
}

static void tasks_see_what_was_written_before(void **state) {
    (void)state;
    chain wanted = {{0}, {0}};
    for (uint32_t threads = 1; threads <= 7; threads++) {
        chain chain = {{0}, {0}};
        team *team = NULL;
        assert_ok(team_open(NULL, threads, &team, NULL));
        for (int run = 0; run < 500; run++) {
            team_run(team, mix, &chain);
            team_run(team, copy_back, &chain);
        }
        team_close(team);
        if (threads == 1)
            wanted = chain;
        assert_memory_equal(&chain, &wanted, sizeof(chain));
    }
}

/* With pauses between tasks the workers go to sleep and must be woken. */
static void sleeping_workers_wake(void **state) {
    (void)state;
    static uint64_t values[10];
    memset(values, 0, sizeof(values));
    job job = {.values = values, .count = 10};
    team *team = NULL;
    assert_ok(team_open(NULL, 4, &team, NULL));
    for (int run = 0; run < 20; run++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        team_run(team, add_one, &job);
    }
    team_close(team);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(values[i], 20);
}

/* ---- The barrier ---- */

/* Nobody passes a barrier before all have come to it: each worker writes its round, and behind the
 * barrier reads everybody's. Neither array has a lock. */
typedef struct rounds {
    team *team;
    uint32_t count;
    uint32_t written[TEAM_THREADS_MAX][16];
    uint32_t faults[TEAM_THREADS_MAX];
    uint32_t sleeper; /* pauses now and then, so that the others go to sleep */
    bool halves;      /* signal and await instead of the first barrier; not all await every round */
} rounds;

static void walk_rounds(void *context, uint32_t worker, uint32_t workers) {
    rounds *rounds = context;
    for (uint32_t round = 1; round <= rounds->count; round++) {
        if (worker == rounds->sleeper && round % 8 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        rounds->written[worker][0] = round;
        if (rounds->halves)
            team_signal(rounds->team, worker);
        else
            team_barrier(rounds->team, worker);
        bool awaits = (worker + round) % 3 != 0;
        if (rounds->halves && awaits)
            team_await(rounds->team, worker);
        for (uint32_t other = 0; other < workers && (awaits || !rounds->halves); other++)
            rounds->faults[worker] += rounds->written[other][0] != round;
        team_barrier(rounds->team, worker);
    }
}

static void check_rounds(uint32_t threads, uint32_t count, uint32_t sleeper, uint32_t runs,
                         bool halves) {
    static rounds rounds;
    memset(&rounds, 0, sizeof(rounds));
    rounds.count = count;
    rounds.sleeper = sleeper;
    rounds.halves = halves;
    assert_ok(team_open(NULL, threads, &rounds.team, NULL));
    for (uint32_t run = 0; run < runs; run++)
        team_run(rounds.team, walk_rounds, &rounds);
    team_close(rounds.team);
    for (uint32_t worker = 0; worker < threads; worker++) {
        assert_int_equal(rounds.faults[worker], 0);
        assert_int_equal(rounds.written[worker][0], count);
    }
}

/* Both forms of the barrier and the border between them; from 3 threads on, on two processors,
 * there are more threads than processors. */
static void nobody_passes_a_barrier_early(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads++)
        check_rounds(threads, 100, UINT32_MAX, 3, false);
    check_rounds(33, 10, UINT32_MAX, 2, false);
}

static void signals_are_awaited(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads++)
        check_rounds(threads, 100, UINT32_MAX, 3, true);
    for (uint32_t threads = 2; threads <= 6; threads++)
        check_rounds(threads, 24, threads - 1, 1, true);
}

static void barriers_wait_for_sleepers(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= 6; threads++)
        for (uint32_t sleeper = 0; sleeper < threads; sleeper += threads - 1)
            check_rounds(threads, 24, sleeper, 1, false);
}

static void pinned_teams_compute_the_same(void **state) {
    (void)state;
    for (team_pin pin = TEAM_PIN_NONE; pin <= TEAM_PIN_NODE; pin++)
        for (uint32_t threads = 1; threads <= 5; threads++) {
            static uint64_t values[100];
            memset(values, 0, sizeof(values));
            job job = {.values = values, .count = 100};
            team *team = NULL;
            team_options options = {.threads = threads, .pin = pin};
            assert_ok(team_open_with(NULL, &options, &team, NULL));
            for (int run = 0; run < 10; run++)
                team_run(team, add_one, &job);
            team_close(team);
            for (size_t i = 0; i < 100; i++)
                assert_int_equal(values[i], 10);
        }
}

static void opens_and_closes_in_storms(void **state) {
    (void)state;
    static uint64_t values[64];
    test_allocator counter;
    test_allocator_init(&counter);
    for (uint32_t round = 0; round < 200; round++) {
        team *team = NULL;
        assert_ok(team_open(&counter.allocator, round % 9 + 1, &team, NULL));
        job job = {.values = values, .count = 64};
        memset(values, 0, sizeof(values));
        for (uint32_t run = 0; run < round % 3; run++) /* also closed without ever running */
            team_run(team, add_one, &job);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(values[i], round % 3);
        team_close(team);
    }
    assert_int_equal(counter.live, 0);
    team_close(NULL);
}

static void several_teams_at_once(void **state) {
    (void)state;
    static uint64_t values[5][100];
    team *teams[5] = {NULL};
    memset(values, 0, sizeof(values));
    for (uint32_t i = 0; i < 5; i++)
        assert_ok(team_open(NULL, i + 1, &teams[i], NULL));
    for (int run = 0; run < 50; run++)
        for (uint32_t i = 0; i < 5; i++) {
            job job = {.values = values[i], .count = 100};
            team_run(teams[i], add_one, &job);
        }
    for (uint32_t i = 0; i < 5; i++) {
        team_close(teams[i]);
        for (size_t j = 0; j < 100; j++)
            assert_int_equal(values[i][j], 50);
    }
}

static void refuses_bad_sizes(void **state) {
    (void)state;
    avo_error error = {0};
    team *team = (void *)1;
    assert_refused(team_open(NULL, 0, &team, &error), AVO_ERROR_ARGUMENT, &error, "threads is 0");
    assert_null(team);
    assert_refused(team_open(NULL, TEAM_THREADS_MAX + 1, &team, &error), AVO_ERROR_ARGUMENT, &error,
                   "257");
    test_allocator counter;
    test_allocator_init(&counter);
    counter.fail_at = 1;
    assert_refused(team_open(&counter.allocator, 3, &team, &error), AVO_ERROR_MEMORY, &error,
                   "thread team");
    assert_null(team);
}

static void shares_cover_everything_once(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 40; workers++)
        for (size_t count = 0; count <= 100; count++) {
            size_t expected = 0;
            for (uint32_t worker = 0; worker < workers; worker++) {
                size_t begin;
                size_t end;
                team_share(count, worker, workers, &begin, &end);
                assert_int_equal(begin, expected);
                assert_true(end - begin == count / workers || end - begin == count / workers + 1);
                expected = end;
            }
            assert_int_equal(expected, count);
        }
}

/* Every item is taken exactly once, by whomever, in work after work. */
typedef struct labour {
    team *team;
    const size_t *counts;
    size_t works;
    uint64_t *done; /* written by whoever took the item */
    uint32_t lazy;  /* this worker comes late to every work */
} labour;

static void take_all(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    labour *labour = context;
    for (size_t i = 0; i < labour->works; i++) {
        team_work work;
        size_t item;
        team_work_begin(labour->team, worker, labour->counts[i], &work);
        if (worker == labour->lazy)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        while (team_work_next(&work, &item)) {
            assert_true(item < labour->counts[i]);
            labour->done[item]++;
        }
        team_barrier(labour->team, worker);
        team_signal(labour->team, worker);
        team_await(labour->team, worker);
    }
}

static void every_item_is_taken_once(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 7, 16, 17, 100, 352, 1, 1000};
    static uint64_t done[1000];
    for (uint32_t threads = 1; threads <= 9; threads++) {
        team *team = NULL;
        assert_ok(team_open(NULL, threads, &team, NULL));
        memset(done, 0, sizeof(done));
        labour labour = {team, counts, sizeof(counts) / sizeof(counts[0]), done, 0};
        for (uint32_t run = 0; run < 20; run++) {
            labour.lazy = run % 3 == 0 ? run % threads : UINT32_MAX;
            team_run(team, take_all, &labour);
        }
        team_close(team);
        for (size_t item = 0; item < 1000; item++) {
            uint64_t wanted = 0;
            for (size_t i = 0; i < labour.works; i++)
                wanted += item < counts[i] ? 20 : 0;
            assert_int_equal(done[item], wanted);
        }
    }
}

/* ---- Teams of changing size ---- */

/* Any number of the threads takes part, from task to task another: barriers hold, items are taken
 * once, and nobody else runs. Both forms of the barrier, in every order. */
static void any_number_takes_part(void **state) {
    (void)state;
    static const size_t counts[] = {5, 1, 64, 0, 3};
    static uint64_t done[64];
    static rounds rounds;
    for (uint32_t threads = 1; threads <= 9; threads += threads < 4 ? 1 : 5) {
        memset(&rounds, 0, sizeof(rounds));
        rounds.count = 3;
        rounds.sleeper = UINT32_MAX;
        assert_ok(team_open(NULL, threads, &rounds.team, NULL));
        uint32_t draw = threads;
        for (uint32_t run = 0; run < 300; run++) {
            draw = draw * 1103515245u + 12345u;
            uint32_t workers = (draw >> 16) % threads + 1;
            team_resize(rounds.team, workers);
            assert_int_equal(team_size(rounds.team), workers);
            static uint64_t values[20];
            job job = {.values = values, .count = 20};
            team_run(rounds.team, add_one, &job);
            for (uint32_t worker = 0; worker < threads; worker++)
                assert_int_equal(job.calls[worker], worker < workers);
            memset(done, 0, sizeof(done));
            labour labour = {rounds.team, counts, run % 6, done,
                             run % 50 == 0 ? run % workers : UINT32_MAX};
            labour.works = labour.works > 5 ? 5 : labour.works;
            team_run(rounds.team, take_all, &labour);
            for (size_t item = 0; item < 64; item++) {
                uint64_t wanted = 0;
                for (size_t i = 0; i < labour.works; i++)
                    wanted += item < counts[i];
                assert_int_equal(done[item], wanted);
            }
            rounds.sleeper = run % 40 == 0 ? run % workers : UINT32_MAX;
            team_run(rounds.team, walk_rounds, &rounds);
        }
        team_close(rounds.team);
        for (uint32_t worker = 0; worker < threads; worker++)
            assert_int_equal(rounds.faults[worker], 0);
    }
}

/* ---- Pinning ---- */

typedef struct places {
    cpu_set_t set[8];
} places;

static void note_place(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    places *places = context;
    if (sched_getaffinity(0, sizeof(places->set[worker]), &places->set[worker]) != 0)
        CPU_ZERO(&places->set[worker]);
}

/* Two teams with as many workers together as there are places never share one. */
static void two_teams_share_the_places(void **state) {
    (void)state;
    topology topology;
    topology_detect(&topology);
    uint32_t all = topology.processors < 8 ? topology.processors : 8;
    if (all < 2) {
        print_message("SKIPPED: one processor only\n");
        skip();
    }
    team *front = NULL, *back = NULL;
    team_options options = {.threads = all, .pin = TEAM_PIN_CORE};
    assert_ok(team_open_with(NULL, &options, &front, NULL));
    options = (team_options){.threads = all - 1, .pin = TEAM_PIN_CORE, .places = all};
    assert_ok(team_open_with(NULL, &options, &back, NULL));
    for (uint32_t workers = 1; workers < all; workers++) {
        places first, last;
        team_resize(front, all - workers);
        team_resize(back, workers);
        team_run(front, note_place, &first);
        team_run(back, note_place, &last);
        cpu_set_t both, seen;
        CPU_ZERO(&seen);
        for (uint32_t i = 0; i < all; i++) {
            const cpu_set_t *set = i < all - workers ? &first.set[i] : &last.set[i - all + workers];
            assert_int_equal(CPU_COUNT(set), 1);
            CPU_AND(&both, &seen, set);
            assert_int_equal(CPU_COUNT(&both), 0);
            CPU_OR(&seen, &seen, set);
        }
    }
    team_close(front);
    team_close(back);
}

static void check_places(team_pin pin, uint32_t threads, const cpu_set_t *before) {
    team *team = NULL;
    team_options options = {.threads = threads, .pin = pin};
    places places;
    topology topology;
    topology_detect(&topology);
    assert_ok(team_open_with(NULL, &options, &team, NULL));
    for (int run = 0; run < 2; run++) {
        cpu_set_t after;
        team_run(team, note_place, &places);
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&after, before)); /* the caller's thread is its owner's again */
        for (uint32_t i = 0; i < threads; i++) {
            cpu_set_t wanted;
            CPU_ZERO(&wanted);
            if (pin == TEAM_PIN_CORE)
                CPU_SET(topology.order[i % topology.processors], &wanted);
            else if (pin == TEAM_PIN_NODE)
                topology_node_set(&topology, i * topology.nodes / threads, &wanted);
            else
                wanted = *before;
            assert_true(CPU_EQUAL(&places.set[i], &wanted));
        }
    }
    team_close(team);
}

static void workers_stay_where_they_are_pinned(void **state) {
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (uint32_t threads = 1; threads <= 5; threads++)
        for (team_pin pin = TEAM_PIN_NONE; pin <= TEAM_PIN_NODE; pin++)
            check_places(pin, threads, &before);
}

/* A caller that may only run elsewhere is left where it may. */
static void a_narrow_caller_keeps_its_own(void **state) {
    (void)state;
    cpu_set_t before, narrow, after;
    topology topology;
    topology_detect(&topology);
    if (topology.processors < 2) {
        print_message("SKIPPED: one processor only\n");
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    team *team = NULL;
    team_options options = {.threads = 2, .pin = TEAM_PIN_CORE};
    places places;
    assert_ok(team_open_with(NULL, &options, &team, NULL));
    CPU_ZERO(&narrow);
    CPU_SET(topology.order[1], &narrow); /* worker 0's place is order[0] */
    assert_int_equal(sched_setaffinity(0, sizeof(narrow), &narrow), 0);
    team_run(team, note_place, &places);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    team_close(team);
    assert_true(CPU_EQUAL(&places.set[0], &narrow));
    assert_true(CPU_EQUAL(&after, &narrow));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_every_task),
        cmocka_unit_test(tasks_see_what_was_written_before),
        cmocka_unit_test(every_item_is_taken_once),
        cmocka_unit_test(any_number_takes_part),
        cmocka_unit_test(two_teams_share_the_places),
        cmocka_unit_test(sleeping_workers_wake),
        cmocka_unit_test(nobody_passes_a_barrier_early),
        cmocka_unit_test(signals_are_awaited),
        cmocka_unit_test(barriers_wait_for_sleepers),
        cmocka_unit_test(pinned_teams_compute_the_same),
        cmocka_unit_test(workers_stay_where_they_are_pinned),
        cmocka_unit_test(a_narrow_caller_keeps_its_own),
        cmocka_unit_test(opens_and_closes_in_storms),
        cmocka_unit_test(several_teams_at_once),
        cmocka_unit_test(refuses_bad_sizes),
        cmocka_unit_test(shares_cover_everything_once),
    };
    return cmocka_run_group_tests_name("base/team", tests, NULL, NULL);
}
