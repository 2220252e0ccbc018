/* Inside cli/: the parts of `avocet simulate`. */
#ifndef AVO_CLI_SIMULATE_INT_H
#define AVO_CLI_SIMULATE_INT_H

#include "cli/cli.h"
#include "cli/plot.h"
#include "sched/fleet.h"

extern const cli_command command_simulate;

/* Seeds first…first + count − 1 on all processors (or `threads`); the exit status. */
int simulate_seeds(uint64_t first, uint64_t count, uint32_t threads, bool json);

/* The cost of steps from the JSON of `avocet bench`; what it does not say stays. */
AVO_MUST_USE avo_status simulate_cost_read(const char *path, step_cost *cost, avo_error *error);

/* ---- Many replicas (simulate_fleet.c) ---- */

#define SIMULATE_FLEETS_MAX 16 /* numbers of replicas in one command */

typedef struct fleet_flags {
    const char *replicas, *router;
    uint32_t prefixes, prefix_tokens, resident, slow, scale_min, index_mib;
    double turns, think_s, adapter_load_ms, load_gap, match_min, slow_factor;
    double mtbf_s, restart_s, scale_target, scale_s, scale_down_s, boot_s;
    double slo_first_ms, slo_gap_ms;
    uint32_t counts[SIMULATE_FLEETS_MAX], count_count; /* of --replicas */
    fleet_router routers[FLEET_ROUTERS];               /* of --router */
    uint32_t router_count;
} fleet_flags;

/* How the runs are shown. */
typedef struct fleet_output {
    bool json, csv;
    const char *plot; /* NULL: none */
    uint32_t threads; /* runs at a time */
} fleet_output;

void simulate_fleet_defaults(fleet_flags *flags);
void simulate_fleet_specs(fleet_flags *flags, option_table *table);
/* Reads --replicas and --router; false after an error was printed. */
bool simulate_fleet_parse(fleet_flags *flags);
/* Whether options are given that mean nothing without several replicas. */
bool simulate_fleet_wanted(const fleet_flags *flags);
/* A run for every router and number of replicas; `options` has everything that is not in `flags`.
 * The exit status. */
int simulate_fleet(const fleet_flags *flags, const fleet_options *options,
                   const fleet_output *output);
int simulate_fleet_plot(const fleet_result *runs, uint32_t count, uint32_t fleets,
                        const char *path);

/* ---- Pictures ---- */

typedef struct picture {
    const void *what;
    const char *file;                              /* name.svg */
    char folder[CLI_PATH_MAX], name[CLI_PATH_MAX]; /* of folder/name.svg */
    bool png;
} picture;
/* The script's first lines. */
void simulate_plot_begin(FILE *file, const picture *picture, unsigned width, unsigned height);
/* Draws FILE.svg or FILE.png; both writers get the picture. The exit status. */
int simulate_draw(const char *path, const void *what, plot_writer data, plot_writer script);
/* Distributions of the latencies into FILE.svg or FILE.png; the exit status. */
bool simulate_plot_named(const char *path); /* ends as it should */
/* Its folder is there and can be written; asked before the run. */
bool simulate_plot_possible(const char *path);
int simulate_plot(const report *report, const char *path);

#endif
