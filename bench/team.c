/* What a team costs: nanoseconds per task of all workers and per phase of a program, for 1 … N
 * threads, and per empty step of a model, which has so many phases a layer.
 *
 *     ninja -C build bench_team && build/bench/bench_team [THREADS_MAX]
 */
#include "base/team.h"
#include "base/clock.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>

#define REPEATS      7
#define TASKS        2000
#define PROGRAMS     20
#define LAYERS       30
#define LAYER_PHASES 4 /* at the least: device/cpu/phases/one_row.c */
#define PHASES       (LAYERS * LAYER_PHASES + 1)

static void nothing(void *context, uint32_t worker, uint32_t workers) {
    (void)context;
    (void)worker;
    (void)workers;
}

static void no_items(const void *context, uint32_t phase, team_items *items) {
    uint32_t item;
    (void)context;
    (void)phase;
    while (team_take(items, &item))
        ;
}

static void run_tasks(team *team) {
    for (int i = 0; i < TASKS; i++)
        team_each(team, nothing, NULL);
}

static void run_programs(team *team) {
    team_phase phases[PHASES];
    for (int i = 0; i < PHASES; i++)
        phases[i] = (team_phase){.compute = no_items, .items = 2 * team_size(team)};
    for (int i = 0; i < PROGRAMS; i++)
        team_run(team, phases, PHASES, NULL);
}

/* The shortest of several: what it costs when nobody disturbs. */
static double shortest_ns(team *team, void (*run)(struct team *team)) {
    double best = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t begin = clock_now_ns();
        run(team);
        double ns = (double)(clock_now_ns() - begin);
        if (repeat == 0 || ns < best)
            best = ns;
    }
    return best;
}

int main(int argc, char **argv) {
    uint32_t most = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : cpu_usable_threads();
    printf("threads  pinned  task ns  phase ns  empty step of %d layers µs\n", LAYERS);
    for (uint32_t threads = 1; threads <= most; threads = threads < 4 ? threads + 1 : threads * 2)
        for (team_pin pin = TEAM_PIN_NONE; pin <= TEAM_PIN_CORE; pin++) {
            team *team;
            avo_error error = {0};
            team_options options = {.threads = threads, .pin = pin, .phases = PHASES};
            if (team_open_with(NULL, &options, &team, &error) != AVO_OK) {
                fprintf(stderr, "%s\n", error.text);
                return 1;
            }
            double program = shortest_ns(team, run_programs) / PROGRAMS;
            printf("%7u  %6s  %7.0f  %8.0f  %.1f\n", threads, pin == TEAM_PIN_CORE ? "core" : "no",
                   shortest_ns(team, run_tasks) / TASKS, program / PHASES, program * 1e-3);
            team_close(team);
        }
    return 0;
}
