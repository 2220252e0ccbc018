/* `avocet manual`: the manual page of a command in scdoc's language, from the tables that the
 * command itself reads; the build turns it into man pages. */
#include "cli/cli.h"

#include <string.h>

extern const cli_command command_manual;

/* Plain text for scdoc: what it would take for markup is escaped. */
static void print_escaped(const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("*_\\`<>#[]", *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

/* Lines as they are. */
static void print_literal(const char *text) {
    printf("```\n%s\n```\n\n", text);
}

static void print_option(const option_spec *spec) {
    if (spec->letter != 0)
        printf("*-%c*, ", spec->letter);
    printf("*--%s*", spec->name);
    if (spec->value != NULL) {
        printf(spec->kind == OPTION_OPTIONAL_TEXT ? "\\[=" : " ");
        print_escaped(spec->value);
        printf(spec->kind == OPTION_OPTIONAL_TEXT ? "\\]" : "");
    }
    printf("\n\t");
    print_escaped(spec->help);
    printf("\n\n");
}

#define PAGE_NAME_MAX 64

/* "avocet-eval-kl" */
static void page_name(const cli_command *command, char name[PAGE_NAME_MAX]) {
    snprintf(name, PAGE_NAME_MAX, "avocet-%s", command->name);
    for (char *at = name; *at != '\0'; at++)
        *at = *at == ' ' ? '-' : *at;
}

static void print_page(void *context, const cli_command *command, const option_spec *specs) {
    (void)context;
    char name[PAGE_NAME_MAX];
    page_name(command, name);
    printf("%s(1)\n\n# NAME\n\n%s - ", name, name);
    print_escaped(command->summary);
    printf("\n\n# SYNOPSIS\n\n");
    print_literal(command->usage);
    if (command->children != NULL) {
        printf("# COMMANDS\n\n");
        for (const cli_command *const *child = command->children; *child != NULL; child++) {
            printf("*avocet %s*\n\t", (*child)->name);
            print_escaped((*child)->summary);
            printf("\n\n");
        }
    }
    printf("# OPTIONS\n\n");
    for (; specs->name != NULL; specs++)
        if (specs->help != NULL)
            print_option(specs);
    printf("*--help*\n"
           "\tPrint the help and exit.\n\n"
           "# EXAMPLES\n"
           "\n");
    print_literal(command->examples);
    printf("# EXIT STATUS\n\n"
           "0 success, 1 failure, 2 usage error, 130 interrupted.\n\n"
           "# SEE ALSO\n\n"
           "*avocet*(1)\n");
}

static void print_main(void) {
    printf("avocet(1)\n\n"
           "# NAME\n\n"
           "avocet - runs language models on your own machine\n\n"
           "# SYNOPSIS\n\n"
           "*avocet* COMMAND \\[options\\]\n\n"
           "# DESCRIPTION\n\n"
           "Avocet is an inference engine for language models: one base model, many adapters in "
           "one batch, quantised weights. The same request always gives the same bytes, no matter "
           "what else runs. MODEL is a folder with safetensors, a .gguf, .avo or llama2.c .bin "
           "file, or a name shown by *avocet list*.\n\n"
           "# COMMANDS\n"
           "\n");
    for (const cli_command *const *command = cli_commands; *command != NULL; command++) {
        printf("*avocet-%s*(1)\n\t", (*command)->name);
        print_escaped((*command)->summary);
        printf("\n\n");
    }
    printf("# ENVIRONMENT\n\n"
           "*AVO\\_DEVICE*\n"
           "\tDevice: auto, cpu, ref, avx2, avx512, amx, neon, cuda or mpi. *AVO\\_ISA* is an "
           "older name.\n\n"
           "*AVOCET\\_HOME*\n"
           "\tFolder of downloaded models.\n\n"
           "*NO\\_COLOR*\n"
           "\tNo colours in *avocet chat*.\n\n"
           "# EXIT STATUS\n\n"
           "0 success, 1 failure, 2 usage error, 130 interrupted.\n");
}

/* "eval", "eval-kl" or "eval kl" as two words. */
static const cli_command *find(int words, char **argv) {
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "%s%s%s", argv[1], words > 1 ? " " : "",
             words > 1 ? argv[2] : "");
    char *dash = strchr(wanted, '-');
    if (dash != NULL)
        *dash = ' ';
    const cli_command *command;
    for (cli_walk at = {0}; (command = cli_walk_next(&at)) != NULL;)
        if (strcmp(command->name, wanted) == 0)
            return command;
    return NULL;
}

static void list_pages(void) {
    char name[PAGE_NAME_MAX];
    const cli_command *command;
    printf("avocet\n");
    for (cli_walk at = {0}; (command = cli_walk_next(&at)) != NULL;) {
        page_name(command, name);
        printf("%s\n", name + strlen("avocet-"));
    }
}

static int run(int argc, char **argv) {
    bool list = false;
    const option_spec specs[] = {
        {"list", 0, OPTION_FLAG, &list, NULL, "print the names of all pages", 0, 0}, {0}};
    int words = 0;
    options_result parsed = options_parse(&command_manual, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (list) {
        list_pages();
        return EXIT_GOOD;
    }
    if (words > 2)
        return cli_usage(&command_manual, "takes at most one COMMAND");
    if (words == 0 || strcmp(argv[1], "avocet") == 0) {
        print_main();
        return EXIT_GOOD;
    }
    const cli_command *command = find(words, argv);
    if (command == NULL)
        return cli_usage(&command_manual, "unknown command \"%.80s\"", argv[1]);
    options_see(command, print_page, NULL);
    return EXIT_GOOD;
}

const cli_command command_manual = {
    .name = "manual",
    .summary = "print a manual page as scdoc source",
    .usage = "avocet manual [COMMAND]\n\n"
             "make install installs the pages if scdoc is available.",
    .examples = "avocet manual run | scdoc > avocet-run.1\n"
                "avocet manual eval kl | scdoc | man -l -\n"
                "avocet manual --list",
    .run = run,
};
