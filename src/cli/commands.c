/* The table of commands. A new one is one line here, in the order of `avocet help`, and one file
 * command_<name>.c. */
#include "cli/cli.h"

#define COMMANDS(X)                                                                                \
    X(run)                                                                                         \
    X(chat)                                                                                        \
    X(serve)                                                                                       \
    X(eval)                                                                                        \
    X(bench)                                                                                       \
    X(simulate)                                                                                    \
    X(inspect)                                                                                     \
    X(plan)                                                                                        \
    X(tokenize)                                                                                    \
    X(pack)                                                                                        \
    X(calibrate)                                                                                   \
    X(adapter)                                                                                     \
    X(pull)                                                                                        \
    X(list)                                                                                        \
    X(remove)                                                                                      \
    X(completion)                                                                                  \
    X(manual)                                                                                      \
    X(version)                                                                                     \
    X(licenses)

#define DECLARE(name) extern const cli_command command_##name;
COMMANDS(DECLARE)
#undef DECLARE

const cli_command *const cli_commands[] = {
#define REFER(name) &command_##name,
    COMMANDS(REFER)
#undef REFER
        NULL,
};
