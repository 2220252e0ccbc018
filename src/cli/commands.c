/* The table of commands. A new one is one line here, in the order of `avocet help`, and one file
 * command_<name>.c. */
#include "cli/cli.h"

#include <string.h>

#define COMMANDS(X)                                                                                \
    X(run)                                                                                         \
    X(chat)                                                                                        \
    X(serve)                                                                                       \
    X(eval)                                                                                        \
    X(bench)                                                                                       \
    X(speculate)                                                                                   \
    X(simulate)                                                                                    \
    X(inspect)                                                                                     \
    X(plan)                                                                                        \
    X(tokenize)                                                                                    \
    X(pack)                                                                                        \
    X(calibrate)                                                                                   \
    X(train)                                                                                       \
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

const cli_command *cli_walk_next(cli_walk *at) {
    const cli_command *command = cli_commands[at->command];
    if (command == NULL)
        return NULL;
    if (at->child == 0) {
        at->child = 1;
        return command;
    }
    const cli_command *child =
        command->children == NULL ? NULL : command->children[at->child++ - 1];
    if (child != NULL)
        return child;
    *at = (cli_walk){at->command + 1, 0};
    return cli_walk_next(at);
}

const char *cli_child_name(const cli_command *child) {
    return strchr(child->name, ' ') + 1;
}

int cli_run_child(const cli_command *command, int argc, char **argv) {
    const option_spec none[] = {{0}};
    const cli_command *const *children = command->children;
    char all[128] = "";
    for (size_t i = 0; children[i] != NULL; i++) {
        const char *name = cli_child_name(children[i]);
        if (argc > 1 && strcmp(argv[1], name) == 0)
            return children[i]->run(argc - 1, argv + 1);
        size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s",
                 i == 0                    ? ""
                 : children[i + 1] == NULL ? " or "
                                           : ", ",
                 name);
    }
    int words = 0;
    bool is_word = argc > 1 && argv[1][0] != '-'; /* then it is wrong, whatever options follow */
    options_result parsed = is_word ? OPTIONS_OK : options_parse(command, none, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words == 0 && !is_word)
        return cli_usage(command, "missing subcommand: %s", all);
    nearest near = {.wanted = argv[1]};
    for (size_t i = 0; children[i] != NULL; i++)
        nearest_consider(&near, cli_child_name(children[i]));
    if (near.best != NULL)
        return cli_usage(command, "unknown subcommand \"%.80s\"; did you mean %s?", argv[1],
                         near.best);
    return cli_usage(command, "unknown subcommand \"%.80s\"; choose %s", argv[1], all);
}
