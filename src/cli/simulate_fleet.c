/* `avocet simulate --replicas`: many replicas behind routers, a run for each combination. */
#include "cli/simulate_int.h"

#include "base/number.h"
#include "base/team.h"

#include <stdatomic.h>
#include <string.h>

void simulate_fleet_defaults(fleet_flags *flags) {
    *flags = (fleet_flags){.router = "least-loaded",
                           .prefixes = 1,
                           .index_mib = 64,
                           .turns = 1,
                           .think_s = 10,
                           .adapter_load_ms = 200,
                           .load_gap = 4,
                           .match_min = 0.1,
                           .slow_factor = 3,
                           .restart_s = 60,
                           .scale_target = 4,
                           .scale_s = 10,
                           .scale_down_s = 300,
                           .boot_s = 30,
                           .slo_first_ms = 2000,
                           .slo_gap_ms = 200};
}

static void specs_load(fleet_flags *f, option_table *table) {
    const option_spec own[] = {
        {"replicas", 0, OPTION_TEXT, &f->replicas, "N,…",
         "simulate N replicas behind a router; several: a run for each", 0, 0},
        {"router", 0, OPTION_TEXT, &f->router, "NAME,…",
         "round-robin, random, two-choices, least-loaded (default), adapter, prefix, events, "
         "predicted, or all: a run for each",
         0, 0},
        {"prefixes", 0, OPTION_U32, &f->prefixes, "N",
         "(with --replicas) system prompts of each adapter, of Zipf popularity (default 1)", 1,
         1000000},
        {"prefix-tokens", 0, OPTION_U32, &f->prefix_tokens, "N",
         "(with --replicas) length of a system prompt (default 0: none)", 0, 1048576},
        {"turns", 0, OPTION_NUMBER, &f->turns, "F",
         "(with --replicas) mean number of requests of a conversation; each repeats the "
         "conversation so far (default 1)",
         1, 1000},
        {"think", 0, OPTION_NUMBER, &f->think_s, "S",
         "(with --turns) mean time between an answer and the next request (default 10)", 0, 1e6},
        {"resident", 0, OPTION_U32, &f->resident, "N",
         "(with --replicas) adapters that a replica has loaded at a time (default 0: all)", 0,
         FLEET_RESIDENT_MAX},
        {"adapter-load-ms", 0, OPTION_NUMBER, &f->adapter_load_ms, "MS",
         "(with --resident) time to load an adapter (default 200)", 0, 1e9},
        {"load-gap", 0, OPTION_NUMBER, &f->load_gap, "N",
         "(routers prefix, events) a replica with the prefix may have N more open requests than "
         "the least loaded (default 4)",
         0, 1e6},
        {"match-min", 0, OPTION_NUMBER, &f->match_min, "F",
         "(routers prefix, events, predicted) least part of a prompt that counts as a match "
         "(default 0.1)",
         0, 1},
        {"index-mib", 0, OPTION_U32, &f->index_mib, "N",
         "(routers prefix, events, predicted) the router's memory of prefixes (default 64)", 1,
         4095},
        {0},
    };
    options_add(table, own);
}

static void specs_trouble(fleet_flags *f, option_table *table) {
    const option_spec own[] = {
        {"slow", 0, OPTION_U32, &f->slow, "N", "(with --replicas) N replicas are slow (default 0)",
         0, FLEET_REPLICAS_MAX},
        {"slow-factor", 0, OPTION_NUMBER, &f->slow_factor, "F",
         "(with --slow) their steps take F times as long (default 3)", 1, 1000},
        {"mtbf", 0, OPTION_NUMBER, &f->mtbf_s, "S",
         "(with --replicas) mean seconds until a replica fails (default 0: none fails)", 0, 1e9},
        {"restart", 0, OPTION_NUMBER, &f->restart_s, "S",
         "(with --mtbf) seconds from a failure until the replica serves again, with an empty "
         "cache (default 60)",
         0, 1e9},
        {"scale-min", 0, OPTION_U32, &f->scale_min, "N",
         "(with --replicas) autoscale from N to --replicas (default 0: all serve from the "
         "beginning)",
         0, FLEET_REPLICAS_MAX},
        {"scale-target", 0, OPTION_NUMBER, &f->scale_target, "F",
         "(with --scale-min) wanted open requests for each replica (default 4)", 0.01, 1e6},
        {"scale-interval", 0, OPTION_NUMBER, &f->scale_s, "S",
         "(with --scale-min) seconds between decisions (default 10)", 0.001, 1e6},
        {"scale-down", 0, OPTION_NUMBER, &f->scale_down_s, "S",
         "(with --scale-min) seconds that fewer replicas must be enough before any stops (default "
         "300)",
         0, 1e6},
        {"boot", 0, OPTION_NUMBER, &f->boot_s, "S",
         "(with --scale-min) seconds until a started replica serves (default 30)", 0, 1e6},
        {"slo-first-ms", 0, OPTION_NUMBER, &f->slo_first_ms, "MS",
         "(with --replicas) goodput counts answers with a first token by then (default 2000; 0: "
         "any)",
         0, 1e9},
        {"slo-gap-ms", 0, OPTION_NUMBER, &f->slo_gap_ms, "MS",
         "(with --replicas) and at most this between tokens, on average (default 200; 0: any)", 0,
         1e9},
        {0},
    };
    options_add(table, own);
}

void simulate_fleet_specs(fleet_flags *flags, option_table *table) {
    specs_load(flags, table);
    specs_trouble(flags, table);
}

/* ---- Lists ---- */

static bool parse_counts(fleet_flags *flags) {
    const char *text = flags->replicas;
    for (;;) {
        size_t length = strcspn(text, ",");
        uint64_t value = 0;
        const char *wrong =
            number_parse_part((text_view){text, length}, 1, FLEET_REPLICAS_MAX, &value);
        if (wrong == NULL && flags->count_count == SIMULATE_FLEETS_MAX)
            wrong = "makes the list too long";
        if (wrong != NULL) {
            (void)cli_usage(&command_simulate,
                            "--replicas: \"%.*s\" %s; must be up to %d numbers from 1 to %d, "
                            "separated by commas",
                            (int)(length < 40 ? length : 40), text, wrong, SIMULATE_FLEETS_MAX,
                            FLEET_REPLICAS_MAX);
            return false;
        }
        flags->counts[flags->count_count++] = (uint32_t)value;
        if (text[length] == 0)
            return true;
        text += length + 1;
    }
}

static bool parse_routers(fleet_flags *flags) {
    const char *text = flags->router;
    bool all = strcmp(text, "all") == 0;
    for (int i = 0; all && i < FLEET_ROUTERS; i++)
        flags->routers[flags->router_count++] = (fleet_router)i;
    while (!all) {
        size_t length = strcspn(text, ",");
        fleet_router router;
        if (!fleet_router_named(text, length, &router) || flags->router_count == FLEET_ROUTERS) {
            (void)cli_usage(&command_simulate,
                            "--router: \"%.*s\" is not a router; must be round-robin, random, "
                            "two-choices, least-loaded, adapter, prefix, events, predicted or all",
                            (int)(length < 40 ? length : 40), text);
            return false;
        }
        flags->routers[flags->router_count++] = router;
        if (text[length] == 0)
            break;
        text += length + 1;
    }
    return true;
}

bool simulate_fleet_wanted(const fleet_flags *flags) {
    fleet_flags none;
    simulate_fleet_defaults(&none);
    return strcmp(flags->router, none.router) != 0 || flags->mtbf_s > 0 || flags->turns > 1;
}

bool simulate_fleet_parse(fleet_flags *flags) {
    return parse_counts(flags) && parse_routers(flags);
}

/* ---- Runs ---- */

typedef struct runs {
    const fleet_options *options;
    fleet_result *results;
    avo_status *statuses;
    avo_error *errors;
    uint32_t count;
    _Atomic uint32_t next, done;
} runs;

static void work(void *context, uint32_t worker, uint32_t workers) {
    runs *runs = context;
    (void)workers;
    for (;;) {
        uint32_t i = atomic_fetch_add(&runs->next, 1);
        if (i >= runs->count)
            return;
        runs->statuses[i] = fleet_run(&runs->options[i], NULL, &runs->results[i], &runs->errors[i]);
        uint32_t done = atomic_fetch_add(&runs->done, 1) + 1;
        if (worker == 0)
            (void)cli_progress(NULL, "runs", done, runs->count);
    }
}

static fleet_options run_options(const fleet_flags *flags, const fleet_options *given,
                                 uint32_t replicas, fleet_router router) {
    fleet_options options = *given;
    options.replicas = replicas;
    options.router = router;
    options.load.turns = flags->turns;
    options.load.think_s = flags->think_s;
    options.load.prefixes = flags->prefixes;
    options.load.prefix_tokens = flags->prefix_tokens;
    options.resident = flags->resident;
    options.adapter_load_ns = (uint64_t)(flags->adapter_load_ms * 1e6);
    options.load_gap = flags->load_gap;
    options.match_min = flags->match_min;
    options.index_bytes = flags->index_mib << 20;
    options.slow = flags->slow < replicas ? flags->slow : replicas;
    options.slow_factor = flags->slow_factor;
    options.mtbf_s = flags->mtbf_s;
    options.restart_s = flags->restart_s;
    options.scale_min = flags->scale_min < replicas ? flags->scale_min : replicas;
    options.scale_target = flags->scale_target;
    options.scale_s = flags->scale_s;
    options.scale_down_s = flags->scale_down_s;
    options.boot_s = flags->boot_s;
    options.slo_first_ns = (uint64_t)(flags->slo_first_ms * 1e6);
    options.slo_gap_ns = (uint64_t)(flags->slo_gap_ms * 1e6);
    return options;
}

static int report_runs(const runs *runs, const fleet_flags *flags, const fleet_output *output) {
    for (uint32_t i = 0; i < runs->count; i++) {
        const char *router = fleet_router_name(runs->options[i].router);
        if (runs->statuses[i] != AVO_OK)
            return cli_fail_status(runs->statuses[i], &runs->errors[i]);
        if (runs->results[i].wrong[0] != '\0')
            return cli_fail_text("router %s, %u replicas: %s", router, runs->options[i].replicas,
                                 runs->results[i].wrong);
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = output->json  ? fleet_write_json(runs->results, runs->count, &out)
                        : output->csv ? fleet_write_csv(runs->results, runs->count, &out)
                                      : fleet_write_text(runs->results, runs->count, &out);
    int exit_status = cli_print_report(status, &out);
    if (exit_status == EXIT_GOOD && output->plot != NULL)
        exit_status =
            simulate_fleet_plot(runs->results, runs->count, flags->count_count, output->plot);
    return exit_status;
}

int simulate_fleet(const fleet_flags *flags, const fleet_options *options,
                   const fleet_output *output) {
    avo_error error = {0};
    uint32_t count = flags->count_count * flags->router_count;
    arena arena;
    team *team = NULL;
    arena_init(&arena, NULL, SIZE_MAX);
    fleet_options *all = arena_take_array(&arena, count, sizeof(fleet_options));
    runs runs = {.options = all,
                 .results = arena_take_array(&arena, count, sizeof(fleet_result)),
                 .statuses = arena_take_array(&arena, count, sizeof(avo_status)),
                 .errors = arena_take_array(&arena, count, sizeof(avo_error)),
                 .count = count};
    avo_status status = AVO_OK;
    if (all == NULL || runs.results == NULL || runs.statuses == NULL || runs.errors == NULL)
        status = status_no_memory(&error, "runs", count * sizeof(fleet_result));
    AVO_THEN(status, team_open(NULL, output->threads, &team, &error));
    int exit_status;
    if (status == AVO_OK) {
        for (uint32_t i = 0; i < count; i++)
            all[i] = run_options(flags, options, flags->counts[i / flags->router_count],
                                 flags->routers[i % flags->router_count]);
        team_each(team, work, &runs);
        cli_progress_end();
        exit_status = report_runs(&runs, flags, output);
    } else {
        exit_status = cli_fail_status(status, &error);
    }
    team_close(team);
    arena_free(&arena);
    return exit_status;
}
