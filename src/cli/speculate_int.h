/* `avocet speculate`, between its files. */
#ifndef AVO_CLI_SPECULATE_INT_H
#define AVO_CLI_SPECULATE_INT_H

#include "bench/speculate.h"
#include "cli/cli.h"

extern const cli_command command_speculate;

/* Draws speed-up, acceptance by position, accepted lengths, costs and memory into a folder that
 * exists; the exit status. */
int speculate_plot(const lab_options *options, const lab_result *result, const char *folder);

#endif
