/* What the commands of `avocet` share: the command table, options, output and model names.
 * A command is one file, command_<name>.c, with one `const cli_command`. */
#ifndef AVO_CLI_CLI_H
#define AVO_CLI_CLI_H

#include "base/status.h"

enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct cli_command {
    const char *name;
    const char *summary;               /* one line for `avocet help` */
    const char *usage;                 /* "avocet pack SRC -o FILE.avo [options]" */
    const char *examples;              /* lines for --help */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit status */
} cli_command;

/* All of them, NULL-terminated, in the order of `avocet help` (commands.c). */
extern const cli_command *const cli_commands[];

/* ---- Options ---- */

typedef enum option_kind {
    OPTION_FLAG,          /* bool: set to true */
    OPTION_TEXT,          /* const char * */
    OPTION_OPTIONAL_TEXT, /* const char *: "--telemetry" gives "", "--telemetry=FILE" gives FILE */
    OPTION_U32,           /* uint32_t in [minimum, maximum] */
    OPTION_U64,           /* uint64_t */
    OPTION_NUMBER,        /* double in [minimum, maximum] */
    OPTION_TEXT_LIST      /* option_list: may be repeated */
} option_kind;

#define OPTION_LIST_MAX 64
typedef struct option_list {
    const char *items[OPTION_LIST_MAX];
    size_t count;
} option_list;

typedef struct option_spec {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* 0: none */
    option_kind kind;
    void *target;
    const char *value; /* "N", "FILE": for the help; NULL for flags */
    const char *help;
    double minimum, maximum; /* of numbers */
} option_spec;

/* Reads `--name value`, `--name=value`, `-x value`, `--`; leaves the other arguments, in order, in
 * argv[1…*positional]. `--help` prints the command's help and gives OPTIONS_HELP. An unknown flag
 * is an error that suggests the nearest one; errors are printed. */
typedef enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_WRONG } options_result;
options_result options_parse(const cli_command *command, const option_spec *specs, int argc,
                             char **argv, int *positional);

/* ---- Output ---- */

/* "avocet: text" on stderr; returns EXIT_FAILED (EXIT_USAGE for cli_usage). */
int cli_fail(const avo_error *error);
int cli_fail_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An avo_progress_function that draws one line on stderr when it is a terminal, and nothing
 * otherwise; never goes back. */
bool cli_progress(void *context, const char *what, uint64_t done, uint64_t total);
void cli_progress_end(void);

/* "1.2 GiB" into a caller's buffer of ≥ 16 bytes. */
const char *cli_bytes_text(uint64_t bytes, char *text);

/* MODEL as the user wrote it, a path or a name known to `avocet list`, to a path. */
AVO_MUST_USE avo_status cli_model_path(const char *name, char *path, size_t capacity,
                                       avo_error *error);

#endif
