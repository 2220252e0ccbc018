/* Inside cli/: the parts of `avocet simulate`. */
#ifndef AVO_CLI_SIMULATE_INT_H
#define AVO_CLI_SIMULATE_INT_H

#include "cli/cli.h"
#include "sched/report.h"

extern const cli_command command_simulate;

/* Seeds first…first + count − 1 on all processors (or `threads`); the exit status. */
int simulate_seeds(uint64_t first, uint64_t count, uint32_t threads, bool json);

/* The cost of steps from the JSON of `avocet bench`; what it does not say stays. */
AVO_MUST_USE avo_status simulate_cost_read(const char *path, step_cost *cost, avo_error *error);

/* Distributions of the latencies into FILE.svg or FILE.png; the exit status. */
bool simulate_plot_named(const char *path); /* ends as it should */
/* Its folder is there and can be written; asked before the run. */
bool simulate_plot_possible(const char *path);
int simulate_plot(const report *report, const char *path);

#endif
