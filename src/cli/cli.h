/* What the commands of `avocet` share: the command table, options, output and model names.
 * A command is one file, command_<name>.c, with one `const cli_command command_<name>`, and one
 * line in commands.c. */
#ifndef AVO_CLI_CLI_H
#define AVO_CLI_CLI_H

#include "base/json_writer.h"
#include "base/nearest.h"
#include "base/status.h"

#include <stdio.h>

/* EXIT_INTERRUPTED: Ctrl-C, after what there was has been written (128 + SIGINT, as shells do). */
enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

typedef struct cli_command {
    const char *name;                  /* "run"; of a subcommand: "eval logits" */
    const char *summary;               /* one line for `avocet help` */
    const char *usage;                 /* "avocet pack SRC -o FILE.avo [options]" */
    const char *examples;              /* lines for --help */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit status */
    const struct cli_command *const *children; /* subcommands, NULL-terminated; NULL: none */
} cli_command;

/* All of them, NULL-terminated, in the order of `avocet help` (commands.c). */
extern const cli_command *const cli_commands[];
/* Every command, each followed by its subcommands; NULL behind the last. `at` starts as {0}. */
typedef struct cli_walk {
    size_t command, child;
} cli_walk;
const cli_command *cli_walk_next(cli_walk *at);
/* Runs the subcommand that argv[1] names; else says which there are. The exit status. */
int cli_run_child(const cli_command *command, int argc, char **argv);
/* "kl" of "eval kl". */
const char *cli_child_name(const cli_command *child);

/* ---- Options ---- */

typedef enum option_kind {
    OPTION_FLAG,          /* bool: set to true */
    OPTION_TEXT,          /* const char * */
    OPTION_CHOICE,        /* const char *: one of the words in `value`, "auto|on|off" */
    OPTION_DEVICE,        /* const char *: what device_find finds on this machine, such as "cpu" or
                             "NAME:PARAMETERS"; completion offers the words in `value` */
    OPTION_OPTIONAL_TEXT, /* const char *: "--telemetry" gives "", "--telemetry=FILE" gives FILE;
                             so does the next word where it ends as `value` does (".csv") */
    OPTION_U32,           /* uint32_t in [minimum, maximum]; with value "N|auto" auto is 0; if
                             minimum is below 0, negative numbers become 0 */
    OPTION_U64,      /* uint64_t; below 0 the two's complement, but −1 is 0, as in requests */
    OPTION_SIZE,     /* uint64_t, in bytes: "500M", "4G" */
    OPTION_NUMBER,   /* double in [minimum, maximum] */
    OPTION_TEXT_LIST /* option_list: may be repeated */
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
    const char *value;       /* "N", "FILE": for the help; NULL for flags */
    const char *help;        /* NULL: an alias that the help does not list */
    double minimum, maximum; /* of numbers; both 0: anything the type holds */
} option_spec;

/* A table of several parts. Begins as {0}. */
#define OPTIONS_MAX 112
typedef struct option_table {
    option_spec specs[OPTIONS_MAX + 1];
    size_t count;
} option_table;
/* Appends the rows of `specs` up to the empty one. */
void options_add(option_table *table, const option_spec *specs);

/* Reads `--name value`, `--name=value`, `-x value`, `-xvalue`, `--`; leaves the other arguments, in
 * order, in argv[1…*positional]. `--help` (and -h, unless a spec takes that letter) prints the
 * command's help and gives OPTIONS_HELP. An unknown flag is an error that suggests the nearest one;
 * errors are printed. When an option is repeated the last one counts. */
typedef enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_WRONG } options_result;
options_result options_parse(const cli_command *command, const option_spec *specs, int argc,
                             char **argv, int *positional);

/* Shows the option table of a command to somebody: completion and manual pages are made from what
 * options_parse really takes. */
typedef void (*options_function)(void *context, const cli_command *command,
                                 const option_spec *specs);
void options_see(const cli_command *command, options_function see, void *context);

/* Whether `text` is one of the words in `choices`, "auto|on|off"; false after an error was printed
 * that lists them. For options that take several; options_parse asks it of OPTION_CHOICE. */
bool option_choice(const cli_command *command, const char *name, const char *choices,
                   const char *text);
/* Whether `text` names a device of this machine; nothing is opened. False after an error was
 * printed that lists those there are. */
bool option_device(const cli_command *command, const char *name, const char *text);

/* The exit status when options_parse did not give OPTIONS_OK. */
static inline int options_exit(options_result result) {
    return result == OPTIONS_HELP ? EXIT_GOOD : EXIT_USAGE;
}
/* options_parse for commands whose one word is MODEL: argv[1]; false: leave with *exit_status. */
bool options_one_model(const cli_command *command, const option_spec *specs, int argc, char **argv,
                       int *exit_status);
/* For commands that take --json and nothing else; false: leave with *exit_status. */
bool options_json_only(const cli_command *command, int argc, char **argv, bool *json,
                       int *exit_status);

/* What is wrong with `text` as a whole number in [minimum, maximum], or NULL when it is one. */
/* "4G", "500M", bytes without a letter; NULL, or what is wrong. */
const char *cli_parse_size(const char *text, uint64_t *bytes);
const char *number_parse_u64(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value);
const char *number_parse_part(text_view text, uint64_t minimum, uint64_t maximum, uint64_t *value);
/* The same for a decimal number; "nan" is none, "inf" and "-inf" are. */
const char *number_parse_double(const char *text, double minimum, double maximum, double *value);

/* ---- Output ---- */

/* "avocet: text" on stderr; returns EXIT_FAILED (EXIT_USAGE for cli_usage). */
int cli_fail(const avo_error *error);
int cli_fail_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same line for what the user should know though the work goes on. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints what a report's writer made, unless it failed, frees it, and gives the exit status. */
int cli_print_report(avo_status status, buffer *report);
/* What `--json` prints: begin, write one document, print it. */
typedef struct cli_json {
    buffer text;
    json_writer writer;
} cli_json;
json_writer *cli_json_begin(cli_json *json);
/* Prints the document and a newline, unless writing it failed, and frees it. */
AVO_MUST_USE avo_status cli_json_end(cli_json *json);
/* The same; a failure is reported. The exit status. */
int cli_json_print(cli_json *json);
/* Prints text that came from a file or a model. On a terminal the characters that could move the
 * cursor or change the terminal (C0 but \n and \t, DEL, C1, and bytes that are no UTF-8) are left
 * out; elsewhere bytes go out as they are. */
void cli_print_untrusted(FILE *file, text_view text);
/* False once stdout does not take anything any more (a closed pipe, a full disk). Flushes. */
bool cli_output_works(void);
/* What main does last: a failed stdout turns a good exit status into a failure that is reported. */
int cli_output_finish(int status);

/* All of standard input. */
AVO_MUST_USE avo_status cli_read_input(int descriptor, const char *name, buffer *text,
                                       avo_error *error);
#define CLI_INPUT_BYTES_MAX ((size_t)1 << 30)

/* An avo_progress_function that draws one line on stderr when it is a terminal, and nothing
 * otherwise; never goes back. Gives false after Ctrl-C where cli_interrupt_catch was called. */
bool cli_progress(void *context, const char *what, uint64_t done, uint64_t total);
void cli_progress_end(void);

/* From here on the first Ctrl-C (or SIGTERM) only sets a flag; the second ends the process. A
 * signal that was ignored when the command began stays ignored. */
void cli_interrupt_catch(void);
bool cli_interrupted(void);

/* "1.2 GiB" into a caller's buffer of ≥ 16 bytes. */
const char *cli_bytes_text(uint64_t bytes, char *text);

/* MODEL as the user wrote it, a path or a name known to `avocet list`, to a path. */
AVO_MUST_USE avo_status cli_model_path(const char *name, char *path, size_t capacity,
                                       avo_error *error);
/* "models/SmolLM2-135M.gguf" is called "SmolLM2-135M". */
void cli_short_name(const char *path, char *name, size_t capacity);
#define CLI_PATH_MAX         4096
#define CLI_ADAPTER_NAME_MAX 256

/* Takes "PATH" or "PATH:WEIGHT" apart; without a weight it is 1. */
AVO_MUST_USE avo_status cli_adapter_path(const char *text, char *path, size_t capacity,
                                         float *weight, avo_error *error);
/* Takes "NAME=PATH" or "NAME=PATH:WEIGHT" apart. */
typedef struct cli_adapter_spec {
    char name[CLI_ADAPTER_NAME_MAX], path[CLI_PATH_MAX];
    float weight;
} cli_adapter_spec;
AVO_MUST_USE avo_status cli_adapter_spec_read(const char *text, cli_adapter_spec *spec,
                                              avo_error *error);
/* Whether it has that form at all. */
bool cli_adapter_spec_good(const char *text);
/* Opens it; `type` as the user gave it (NULL: not given) is refused where a packed file has
 * another.
 */
AVO_MUST_USE avo_status cli_adapter_open(const avo_model *model, const char *path, const char *type,
                                         avo_adapter **adapter, avo_error *error);
/* Finds and opens the model, with progress on stderr. */
AVO_MUST_USE avo_status cli_model_open(const char *name, avo_model **model, avo_error *error);
/* A draft model of `target`; besides what models are called, "exit:N". */
AVO_MUST_USE avo_status cli_draft_open(const char *name, const avo_model *target, avo_model **model,
                                       avo_error *error);
/* The same, and prepares the weights for an engine with these options where that can be done while
 * the tokenizer is compiled. Whether the engine will open is for avo_engine_open to say. */
AVO_MUST_USE avo_status cli_model_prepare(const char *name, const avo_engine_options *options,
                                          avo_model **model, avo_error *error);
/* EXIT_INTERRUPTED for AVO_ERROR_CANCELLED, else EXIT_FAILED; prints the error. */
int cli_fail_status(avo_status status, const avo_error *error);

#endif
