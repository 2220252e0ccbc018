/* base/team: every worker runs every task once, whatever the sizes. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/team.h"
#include "base/topology.h"

#include <sched.h>
#include <stdlib.h>
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

#define RUNS 60 /* beside busy loops every run waits for each of the workers */

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
        for (int run = 0; run < RUNS; run++)
            team_each(team, add_one, &job);
        for (size_t i = 0; i < 1000; i++)
            assert_int_equal(values[i], RUNS);
        for (uint32_t worker = 0; worker < threads; worker++) {
            assert_int_equal(job.calls[worker], RUNS);
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
        for (int run = 0; run < 150; run++) {
            team_each(team, mix, &chain);
            team_each(team, copy_back, &chain);
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
        team_each(team, add_one, &job);
    }
    team_close(team);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(values[i], 20);
}

/* ---- The barrier of team_each ---- */

/* Nobody passes a barrier before all have come to it: each worker writes its round, and behind the
 * barrier reads everybody's. Neither array has a lock. */
typedef struct rounds {
    team *team;
    uint32_t count;
    uint32_t written[TEAM_THREADS_MAX][16];
    uint32_t faults[TEAM_THREADS_MAX];
    uint32_t sleeper; /* pauses now and then, so that the others go to sleep */
} rounds;

static void walk_rounds(void *context, uint32_t worker, uint32_t workers) {
    rounds *rounds = context;
    for (uint32_t round = 1; round <= rounds->count; round++) {
        if (worker == rounds->sleeper && round % 8 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        rounds->written[worker][0] = round;
        team_barrier(rounds->team, worker);
        for (uint32_t other = 0; other < workers; other++)
            rounds->faults[worker] += rounds->written[other][0] != round;
        team_barrier(rounds->team, worker);
    }
}

static void check_rounds(uint32_t threads, uint32_t count, uint32_t sleeper, uint32_t runs) {
    static rounds rounds;
    memset(&rounds, 0, sizeof(rounds));
    rounds.count = count;
    rounds.sleeper = sleeper;
    assert_ok(team_open(NULL, threads, &rounds.team, NULL));
    for (uint32_t run = 0; run < runs; run++)
        team_each(rounds.team, walk_rounds, &rounds);
    team_close(rounds.team);
    for (uint32_t worker = 0; worker < threads; worker++) {
        assert_int_equal(rounds.faults[worker], 0);
        assert_int_equal(rounds.written[worker][0], count);
    }
}

static void nobody_passes_a_barrier_early(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads++)
        check_rounds(threads, 100, UINT32_MAX, 3);
    check_rounds(33, 10, UINT32_MAX, 2);
}

static void barriers_wait_for_sleepers(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= 6; threads++)
        for (uint32_t sleeper = 0; sleeper < threads; sleeper += threads - 1)
            check_rounds(threads, 24, sleeper, 1);
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
                team_each(team, add_one, &job);
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
            team_each(team, add_one, &job);
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
            team_each(teams[i], add_one, &job);
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

/* ---- Programs ---- */

#define PHASES 24
#define ITEMS  1000

/* Each item of a phase reads what the phase before has written all over the place: a phase that
 * begins too early, an item that is computed twice or not at all gives other numbers. */
typedef struct sums {
    uint64_t from[2][ITEMS]; /* of the phase before, of this one */
    uint32_t items[PHASES];
    uint32_t lazy;      /* worker that comes late to every phase; UINT32_MAX: none */
    uint32_t forgetful; /* worker that sleeps inside items now and then */
} sums;

static uint64_t item_value(const uint64_t *before, uint32_t phase, uint32_t item) {
    uint64_t value = phase * 1000003u + item;
    for (uint32_t i = 0; i < 8; i++)
        value = value * 31 + before[(item * 7 + i * 131) % ITEMS];
    return value;
}

static void nap_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void sum_items(const void *context, uint32_t phase, team_items *items) {
    sums *sums = (struct sums *)(uintptr_t)context;
    uint32_t item, taken = 0;
    if (items->worker == sums->lazy)
        nap_us(300);
    while (team_take(items, &item)) {
        assert_true(item < sums->items[phase]);
        sums->from[(phase + 1) % 2][item] += item_value(sums->from[phase % 2], phase, item);
        if (items->worker == sums->forgetful && taken++ % 16 == 3)
            nap_us(1200);
    }
}

static void sums_begin(sums *sums, uint32_t seed) {
    memset(sums, 0, sizeof(*sums));
    for (uint32_t i = 0; i < PHASES; i++) {
        seed = seed * 1103515245u + 12345u;
        static const uint32_t counts[] = {0, 1, 2, 3, 7, 16, 17, 100, 352, ITEMS};
        sums->items[i] = counts[(seed >> 16) % 10];
    }
    sums->lazy = sums->forgetful = UINT32_MAX;
}

static void sums_run(team *team, sums *sums) {
    team_phase phases[PHASES];
    for (uint32_t i = 0; i < PHASES; i++)
        phases[i] = (team_phase){.compute = sum_items, .argument = i, .items = sums->items[i]};
    team_run(team, phases, PHASES, sums);
}

static team *open_team(uint32_t threads) {
    team *team;
    team_options options = {.threads = threads, .phases = PHASES};
    assert_ok(team_open_with(NULL, &options, &team, NULL));
    return team;
}

static void check_sums(team *team, uint32_t seed, uint32_t lazy, uint32_t forgetful) {
    static sums wanted, found;
    sums_begin(&wanted, seed);
    struct team *alone = open_team(1);
    sums_run(alone, &wanted);
    team_close(alone);
    sums_begin(&found, seed);
    found.lazy = lazy;
    found.forgetful = forgetful;
    sums_run(team, &found);
    assert_memory_equal(found.from, wanted.from, sizeof(wanted.from));
}

static void every_item_is_computed_once_in_its_phase(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads++) {
        team *team = open_team(threads);
        for (uint32_t seed = 0; seed < 20; seed++)
            check_sums(team, seed, UINT32_MAX, UINT32_MAX);
        team_close(team);
    }
    team *team = open_team(33);
    check_sums(team, 77, UINT32_MAX, UINT32_MAX);
    team_close(team);
}

/* Late workers, the caller among them, hold up nobody and spoil nothing, in this program or the
 * next; those who sleep inside an item are waited for. */
static void late_workers_catch_up(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= 7; threads++) {
        team *team = open_team(threads);
        for (uint32_t seed = 0; seed < 2 * threads; seed++)
            check_sums(team, seed, seed % threads, (seed + 1) % threads);
        team_close(team);
    }
}

/* The phases' memory and their context are the caller's again as soon as the program ends. */
static void a_program_is_not_touched_afterwards(void **state) {
    (void)state;
    team *team = open_team(4);
    for (uint32_t run = 0; run < 300; run++) {
        team_phase *phases = malloc(PHASES * sizeof(*phases));
        sums *own = malloc(sizeof(*own));
        assert_true(phases != NULL && own != NULL);
        sums_begin(own, run);
        for (uint32_t i = 0; i < PHASES; i++) {
            own->items[i] = own->items[i] > 7 ? 7 : own->items[i];
            phases[i] = (team_phase){.compute = sum_items, .argument = i, .items = own->items[i]};
        }
        team_run(team, phases, run % (PHASES + 1), own);
        memset(phases, 0xff, PHASES * sizeof(*phases));
        memset(own, 0xff, sizeof(*own));
        free(phases);
        free(own);
    }
    team_close(team);
}

/* Nobody takes an item of another's share. */
static void own_items(const void *context, uint32_t phase, team_items *items) {
    job *job = (struct job *)(uintptr_t)context;
    uint32_t item;
    (void)phase;
    while (team_take(items, &item)) {
        assert_int_equal(item, items->worker);
        job->calls[item]++;
    }
}

static void shares_of_their_own(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads++) {
        team *team = open_team(threads);
        job job = {0};
        team_phase phases[5];
        for (size_t i = 0; i < 5; i++)
            phases[i] = (team_phase){.compute = own_items, .items = threads, .own = true};
        team_run(team, phases, 5, &job);
        for (uint32_t worker = 0; worker < threads; worker++)
            assert_int_equal(job.calls[worker], 5);
        team_close(team);
    }
}

/* ---- Teams of changing size ---- */

/* Any number of the threads takes part, from program to program another. */
static void any_number_takes_part(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads += threads < 4 ? 1 : 5) {
        team *team = open_team(threads);
        uint32_t draw = threads;
        for (uint32_t run = 0; run < 150; run++) {
            draw = draw * 1103515245u + 12345u;
            uint32_t workers = (draw >> 16) % threads + 1;
            team_resize(team, workers);
            assert_int_equal(team_size(team), workers);
            static uint64_t values[20];
            job job = {.values = values, .count = 20};
            team_each(team, add_one, &job);
            for (uint32_t worker = 0; worker < threads; worker++)
                assert_int_equal(job.calls[worker], worker < workers);
            check_sums(team, run, run % 50 == 0 ? run % workers : UINT32_MAX,
                       run % 40 == 0 ? run % workers : UINT32_MAX);
        }
        team_close(team);
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
        team_each(front, note_place, &first);
        team_each(back, note_place, &last);
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
        team_each(team, note_place, &places);
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
    team_each(team, note_place, &places);
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
        cmocka_unit_test(every_item_is_computed_once_in_its_phase),
        cmocka_unit_test(late_workers_catch_up),
        cmocka_unit_test(a_program_is_not_touched_afterwards),
        cmocka_unit_test(shares_of_their_own),
        cmocka_unit_test(any_number_takes_part),
        cmocka_unit_test(two_teams_share_the_places),
        cmocka_unit_test(sleeping_workers_wake),
        cmocka_unit_test(nobody_passes_a_barrier_early),
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
