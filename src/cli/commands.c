/* The table of commands. */
#include "cli/cli.h"

const cli_command *const cli_commands[] = {
    0,
};
