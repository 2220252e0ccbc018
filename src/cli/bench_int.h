/* Inside cli/: the parts of `avocet bench`. */
#ifndef AVO_CLI_BENCH_INT_H
#define AVO_CLI_BENCH_INT_H

#include "bench/bench.h"
#include "cli/cli.h"

/* Prints a table; the exit status. */
int bench_print(const bench_results *results, bool json, bool csv);
/* Writes the figures and gnuplot scripts into `folder` and runs gnuplot where there is one; says
 * on stderr what it drew, or what to do. The exit status. */
int bench_plot(const bench_results *results, const char *folder);

/* ---- The ladder ---- */

typedef struct rung_options {
    const char *name; /* of a rung, or "all" */
    const char *shape;
    uint32_t threads; /* at least 1 */
    uint32_t repeats;
} rung_options;

bool bench_rung_known(const char *name);
void bench_rung_list(void);
AVO_MUST_USE avo_status bench_rungs(const rung_options *options, bench_machine *machine,
                                    bench_results *results, avo_error *error);

#endif
