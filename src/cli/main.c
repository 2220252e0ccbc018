/* The command `avocet`: finds the subcommand and runs it. */
#include "cli/cli.h"
#include "cli/engine_flags.h"
#include "cli/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const cli_command *find_command(const char *name) {
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        if (strcmp((*command)->name, name) == 0)
            return *command;
    return NULL;
}

static int unknown_command(const char *name) {
    nearest near = {.wanted = name};
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        nearest_consider(&near, (*command)->name);
    nearest_consider(&near, "help");
    if (near.best != NULL)
        cli_fail_text("unknown command \"%.80s\"; did you mean avocet %s?", name, near.best);
    else
        cli_fail_text("unknown command \"%.80s\"; avocet help lists the commands", name);
    return EXIT_USAGE;
}

static int print_overview(void) {
    printf("avocet %s: run language models on your own machine\n\n"
           "Usage: avocet COMMAND [options]\n\n"
           "Commands:\n",
           avo_version());
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        printf("  %-10s %s\n", (*command)->name, (*command)->summary);
    printf("  %-10s %s\n", "help", "show this text, or the help of one command");
    printf("\n"
           "MODEL is a folder with safetensors, a .gguf, .avo or llama2.c .bin file, or a name "
           "shown by\n"
           "avocet list. avocet COMMAND --help shows the options and examples of a command.\n"
           "Exit status: 0 success, 1 failure, 2 usage error, 130 interrupted.\n");
    return EXIT_GOOD;
}

static int help(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return print_overview();
    const cli_command *command = find_command(argv[1]);
    if (command == NULL)
        return unknown_command(argv[1]);
    /* `avocet help eval logits` asks the subcommand. */
    char flag[] = "--help";
    char *words[] = {argv[1], argc > 2 ? argv[2] : flag, argc > 2 ? flag : NULL, NULL};
    return command->run(argc > 2 ? 3 : 2, words);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_overview();
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("avocet %s\n", avo_version());
        return EXIT_GOOD;
    }
    const cli_command *command = find_command(name);
    return command == NULL ? unknown_command(name) : command->run(argc - 1, argv + 1);
}

/* A descriptor that was closed by the caller must not be given to the next file we open: what we
 * print would land in it. Standard output then fails to write and standard input to read, as they
 * should. */
static void hold_standard_descriptors(void) {
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int descriptor = 0; descriptor < 3; descriptor++)
        if (fcntl(descriptor, F_GETFD) == -1 && open("/dev/null", modes[descriptor]) == -1)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv) {
    hold_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    int status;
    if (cli_ranks_serve(argc > 1 && strcmp(argv[1], "train") == 0, &status))
        return status;
    status = dispatch(argc, argv);
    cli_engine_end();
    cli_ranks_end();
    return cli_output_finish(status);
}
