/* `mpirun -n N avocet …`: rank 0 runs the command, the others serve it; but all ranks run `train`,
 * each with the whole model. */
#ifndef AVO_CLI_RANKS_H
#define AVO_CLI_RANKS_H

#include "device/ranks/transport.h"

/* First in main. True: this process is another rank and has served, or could not; *status is its
 * exit status. Where mpirun did not start it this does nothing. `all_run`: the command is one that
 * every rank runs. */
bool cli_ranks_serve(bool all_run, int *status);
/* Last in main: tells the other ranks to end. */
void cli_ranks_end(void);

/* For a command that every rank runs: the others; NULL without mpirun or with one rank. It is
 * closed by cli_ranks_end. */
AVO_MUST_USE avo_status cli_ranks_join(transport **out, avo_error *error);
/* The command has failed on this rank: it may be in the middle of an exchange, and must not wait
 * for the others at the end. */
void cli_ranks_abandon(void);

#endif
