/* The command `avocet`: finds the subcommand and runs it. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc >= 2)
        for (const cli_command *const *command = cli_commands; *command != NULL; command++)
            if (strcmp((*command)->name, argv[1]) == 0)
                return (*command)->run(argc - 1, argv + 1);
    fprintf(stderr, "avocet: no such command\n");
    return EXIT_USAGE;
}
