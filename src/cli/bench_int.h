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

#endif
