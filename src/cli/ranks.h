/* `mpirun -n N avocet …`: rank 0 runs the command, the others serve it. */
#ifndef AVO_CLI_RANKS_H
#define AVO_CLI_RANKS_H

#include <stdbool.h>

/* First in main. True: this process is another rank and has served, or could not; *status is its
 * exit status. Where mpirun did not start it this does nothing. */
bool cli_ranks_serve(int *status);
/* Last in main: tells the other ranks to end. */
void cli_ranks_end(void);

#endif
