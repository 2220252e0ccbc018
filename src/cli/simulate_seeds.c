/* `avocet simulate --seeds`: many small worlds, on all processors. */
#include "cli/simulate_int.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/team.h"

#include <stdatomic.h>
#include <string.h>

typedef struct seeds {
    uint64_t first, count;
    _Atomic uint64_t next, done, requests, steps;
    _Atomic bool stop;
    atomic_flag lock; /* of what follows */
    bool failed;
    uint64_t failed_seed; /* the smallest that was found */
    char text[AVO_ERROR_TEXT_MAX];
} seeds;

static void report_failure(seeds *seeds, uint64_t seed, const char *text) {
    while (atomic_flag_test_and_set(&seeds->lock)) {
    }
    if (!seeds->failed || seed < seeds->failed_seed) {
        seeds->failed = true;
        seeds->failed_seed = seed;
        snprintf(seeds->text, sizeof(seeds->text), "%s", text);
    }
    atomic_flag_clear(&seeds->lock);
    atomic_store(&seeds->stop, true);
}

static void work(void *context, uint32_t worker, uint32_t workers) {
    seeds *seeds = context;
    (void)workers;
    for (;;) {
        uint64_t place = atomic_fetch_add(&seeds->next, 1);
        if (place >= seeds->count || atomic_load(&seeds->stop))
            return;
        simulate_options options;
        simulate_item items[SIMULATE_SEED_REQUESTS_MAX];
        simulate_outcome outcomes[SIMULATE_SEED_REQUESTS_MAX];
        simulate_result result;
        avo_error error = {0};
        uint64_t seed = seeds->first + place;
        uint32_t count = simulate_seed(seed, &options, items);
        avo_status status =
            simulate_run(&options, items, count, NULL, NULL, NULL, outcomes, &result, &error);
        if (status != AVO_OK)
            report_failure(seeds, seed, error.text);
        else if (result.wrong[0] != '\0')
            report_failure(seeds, seed, result.wrong);
        atomic_fetch_add(&seeds->requests, count);
        atomic_fetch_add(&seeds->steps, result.steps);
        uint64_t done = atomic_fetch_add(&seeds->done, 1) + 1;
        if (worker == 0 && !cli_progress(NULL, "seeds", done, seeds->count))
            atomic_store(&seeds->stop, true);
    }
}

static int print_seeds(seeds *seeds, double seconds, bool as_json) {
    unsigned long long done = atomic_load(&seeds->done);
    unsigned long long requests = atomic_load(&seeds->requests);
    unsigned long long steps = atomic_load(&seeds->steps);
    double rate = (double)done / seconds * 60;
    if (as_json) {
        cli_json json;
        json_writer *w = cli_json_begin(&json);
        json_object_begin(w);
        json_member_u64(w, "first", seeds->first);
        json_member_u64(w, "seeds", done);
        json_member_u64(w, "requests", requests);
        json_member_u64(w, "steps", steps);
        json_member_significant(w, "seconds", seconds, 6);
        json_member_significant(w, "seeds_per_minute", rate, 6);
        if (seeds->failed) {
            json_member_u64(w, "failed_seed", seeds->failed_seed);
            json_member_string(w, "text", seeds->text);
        } else {
            json_member_null(w, "failed_seed");
        }
        json_end(w);
        int exit_status = cli_json_print(&json);
        if (exit_status != EXIT_GOOD)
            return exit_status;
    } else if (!seeds->failed) {
        printf("%llu seeds from %llu on: %llu requests, %llu steps in %.1f s, %.0f seeds a minute; "
               "every invariant held\n",
               done, (unsigned long long)seeds->first, requests, steps, seconds, rate);
    }
    if (seeds->failed)
        return cli_fail_text("seed %llu: %s; repeat with: avocet simulate --seeds 1 --seed %llu",
                             (unsigned long long)seeds->failed_seed, seeds->text,
                             (unsigned long long)seeds->failed_seed);
    return cli_interrupted() ? EXIT_INTERRUPTED : EXIT_GOOD;
}

int simulate_seeds(uint64_t first, uint64_t count, uint32_t threads, bool json) {
    seeds seeds = {.first = first, .count = count, .lock = ATOMIC_FLAG_INIT};
    avo_error error = {0};
    team *team = NULL;
    cli_interrupt_catch();
    avo_status status =
        team_open(NULL, threads > 0 ? threads : cpu_usable_threads(), &team, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    uint64_t begin = clock_now_ns();
    team_each(team, work, &seeds);
    double seconds = clock_seconds(begin, clock_now_ns());
    team_close(team);
    cli_progress_end();
    return print_seeds(&seeds, seconds, json);
}
