/* What it costs to walk together: nanoseconds per empty task and per barrier, for 1 … N threads,
 * and per empty step of a model, whose phases meet at so many barriers a layer.
 *
 *     ninja -C build bench_team && build/bench/bench_team [THREADS_MAX]
 */
#include "base/team.h"
#include "base/clock.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>

#define REPEATS  7
#define RUNS     2000
#define BARRIERS 20000
#define LAYERS   30
#define MEETINGS 5 /* barriers a layer, at the least: device/cpu/phases/phases.c */

static void nothing(void *context, uint32_t worker, uint32_t workers) {
    (void)context;
    (void)worker;
    (void)workers;
}

static void barriers(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    for (int i = 0; i < BARRIERS; i++)
        team_barrier(context, worker);
}

static void empty_step(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    for (int i = 0; i < LAYERS * MEETINGS + 2; i++)
        team_barrier(context, worker);
}

/* The shortest of several: what it costs when nobody disturbs. */
static double shortest_ns(team *team, team_task task, int runs, double per_run) {
    double best = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t begin = clock_now_ns();
        for (int i = 0; i < runs; i++)
            team_each(team, task, team);
        double ns = (double)(clock_now_ns() - begin) / runs / per_run;
        if (repeat == 0 || ns < best)
            best = ns;
    }
    return best;
}

int main(int argc, char **argv) {
    uint32_t most = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : cpu_usable_threads();
    printf("threads  pinned  task ns  barrier ns  empty step of %d layers µs\n", LAYERS);
    for (uint32_t threads = 1; threads <= most; threads = threads < 4 ? threads + 1 : threads * 2)
        for (team_pin pin = TEAM_PIN_NONE; pin <= TEAM_PIN_CORE; pin++) {
            team *team;
            avo_error error = {0};
            team_options options = {.threads = threads, .pin = pin};
            if (team_open_with(NULL, &options, &team, &error) != AVO_OK) {
                fprintf(stderr, "%s\n", error.text);
                return 1;
            }
            printf("%7u  %6s  %7.0f  %10.0f  %.1f\n", threads, pin == TEAM_PIN_CORE ? "core" : "no",
                   shortest_ns(team, nothing, RUNS, 1),
                   shortest_ns(team, barriers, 1, (double)BARRIERS),
                   shortest_ns(team, empty_step, 20, 1) * 1e-3);
            team_close(team);
        }
    return 0;
}
