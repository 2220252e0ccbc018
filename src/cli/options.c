/* Options of a command: a table in, values out, and the help that the same table gives. */
#include "cli/cli.h"

#include "device/device.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

const char *number_parse_part(text_view text, uint64_t minimum, uint64_t maximum, uint64_t *value) {
    uint64_t sum = 0;
    if (text.size == 0)
        return "is empty";
    if (text.size > 1 && text.data[0] == '-' && text.data[1] >= '0' && text.data[1] <= '9')
        return "is negative";
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return "is not an integer";
        if (__builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(text.data[i] - '0'), &sum))
            return "is too large";
    }
    if (sum < minimum)
        return "is too small";
    if (sum > maximum)
        return "is too large";
    *value = sum;
    return NULL;
}

const char *number_parse_u64(const char *text, uint64_t minimum, uint64_t maximum,
                             uint64_t *value) {
    return number_parse_part(text_from(text), minimum, maximum, value);
}

const char *number_parse_double(const char *text, double minimum, double maximum, double *value) {
    if (*text == '\0')
        return "is empty";
    char *end = NULL;
    double parsed = strtod(text, &end);
    bool hexadecimal = strpbrk(text, "xX") != NULL;
    if (*end != '\0' || *text == ' ' || *text == '\t' || isnan(parsed) || hexadecimal)
        return "is not a number";
    if (parsed < minimum)
        return "is too small";
    if (parsed > maximum)
        return "is too large";
    *value = parsed;
    return NULL;
}

/* ---- Help ---- */

#define HELP_COLUMN 32
#define HELP_WIDTH  96

/* Columns on a terminal: "…" is three bytes and one of them. */
static int letters(const char *text) {
    int count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static void option_heading(const option_spec *spec, char *text, size_t capacity) {
    char letter[8] = "    ";
    if (spec->letter != 0)
        snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
    if (spec->value == NULL)
        snprintf(text, capacity, "  %s--%s", letter, spec->name);
    else if (spec->kind == OPTION_OPTIONAL_TEXT)
        snprintf(text, capacity, "  %s--%s[=%s]", letter, spec->name, spec->value);
    else
        snprintf(text, capacity, "  %s--%s %s", letter, spec->name, spec->value);
}

/* The help text behind the heading, its lines broken at words. */
static void print_wrapped(const char *text, int column) {
    if (column >= HELP_COLUMN) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    size_t at_column = HELP_COLUMN;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (at_column > HELP_COLUMN && at_column + 1 + word > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            at_column = HELP_COLUMN;
        } else if (at_column > HELP_COLUMN) {
            printf(" ");
            at_column++;
        }
        printf("%.*s", (int)word, text);
        at_column += word;
        text += word;
        text += strspn(text, " ");
    }
    printf("\n");
}

static void print_examples(const char *examples) {
    printf("\nExamples:\n");
    while (*examples != '\0') {
        size_t line = strcspn(examples, "\n");
        printf("  %.*s\n", (int)line, examples);
        examples += line;
        examples += *examples == '\n';
    }
}

static void print_help(const cli_command *command, const option_spec *specs) {
    printf("avocet %s: %s\n\nUsage: %s\n\nOptions:\n", command->name, command->summary,
           command->usage);
    for (const option_spec *spec = specs; spec->name != NULL; spec++) {
        if (spec->help == NULL)
            continue;
        char heading[128];
        option_heading(spec, heading, sizeof(heading));
        printf("%s", heading);
        print_wrapped(spec->help, letters(heading));
    }
    print_wrapped("show this text", printf("      --help"));
    if (command->examples != NULL)
        print_examples(command->examples);
}

/* ---- Parsing ---- */

void options_add(option_table *table, const option_spec *specs) {
    for (; specs->name != NULL; specs++) {
        assert(table->count < OPTIONS_MAX);
        table->specs[table->count++] = *specs;
    }
}

static const option_spec *find_name(const option_spec *specs, const char *name, size_t length) {
    for (const option_spec *spec = specs; spec->name != NULL; spec++)
        if (strncmp(spec->name, name, length) == 0 && spec->name[length] == '\0')
            return spec;
    return NULL;
}

static const option_spec *find_letter(const option_spec *specs, char letter) {
    for (const option_spec *spec = specs; spec->name != NULL; spec++)
        if (spec->letter == letter)
            return spec;
    return NULL;
}

static void unknown_option(const cli_command *command, const option_spec *specs, const char *name,
                           size_t length) {
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "%.*s", (int)(length < 79 ? length : 79), name);
    nearest near = {.wanted = wanted};
    for (const option_spec *spec = specs; spec->name != NULL; spec++)
        nearest_consider(&near, spec->name);
    nearest_consider(&near, "help");
    if (near.best != NULL)
        cli_usage(command, "unknown option --%s; did you mean --%s?", wanted, near.best);
    else
        cli_usage(command, "unknown option --%s", wanted);
}

static options_result wrong_number(const cli_command *command, const option_spec *spec,
                                   const char *value, const char *fault) {
    if (spec->minimum == 0.0 && spec->maximum == 0.0)
        cli_usage(command, "--%s: \"%s\" %s", spec->name, value, fault);
    else
        cli_usage(command, "--%s: \"%s\" %s; must be %.12g to %.12g", spec->name, value, fault,
                  spec->minimum, spec->maximum);
    return OPTIONS_WRONG;
}

/* "-7" where numbers below 0 are taken; false: it has no sign, or is no such number. */
static bool read_negative(const option_spec *spec, const char *value, uint64_t *magnitude) {
    return spec->minimum < 0.0 && value[0] == '-' &&
           number_parse_u64(value + 1, 1, (uint64_t)-spec->minimum, magnitude) == NULL;
}

static options_result set_whole(const cli_command *command, const option_spec *spec,
                                const char *value) {
    uint64_t largest = spec->kind == OPTION_U32 ? UINT32_MAX : UINT64_MAX;
    bool ranged = spec->minimum != 0.0 || spec->maximum != 0.0;
    uint64_t minimum = ranged && spec->minimum > 0.0 ? (uint64_t)spec->minimum : 0;
    uint64_t maximum =
        ranged && spec->maximum < (double)largest ? (uint64_t)spec->maximum : largest;
    uint64_t parsed = 0;
    const char *fault = NULL;
    if (read_negative(spec, value, &parsed)) {
        if (spec->kind == OPTION_U32 || parsed == 1)
            parsed = 0;
        parsed = 0 - parsed;
    } else if (strcmp(value, "auto") != 0 || strcmp(spec->value, "N|auto") != 0)
        fault = number_parse_u64(value, minimum, maximum, &parsed);
    if (fault != NULL)
        return wrong_number(command, spec, value, fault);
    if (spec->kind == OPTION_U32)
        *(uint32_t *)spec->target = (uint32_t)parsed;
    else
        *(uint64_t *)spec->target = parsed;
    return OPTIONS_OK;
}

const char *cli_parse_size(const char *text, uint64_t *bytes) {
    static const char letters[] = "KMGT";
    size_t length = strlen(text);
    const char *letter = length > 1 ? strchr(letters, text[length - 1]) : NULL;
    unsigned shift = letter == NULL ? 0 : 10 * (unsigned)(letter - letters + 1);
    text_view number = {text, length - (letter != NULL)};
    const char *fault = number_parse_part(number, 1, UINT64_MAX >> shift, bytes);
    if (fault == NULL)
        *bytes <<= shift;
    return fault;
}

static options_result set_size(const cli_command *command, const option_spec *spec,
                               const char *value) {
    if (cli_parse_size(value, spec->target) == NULL)
        return OPTIONS_OK;
    cli_usage(command, "--%s: \"%.40s\" must be a size such as 500M or 4G", spec->name, value);
    return OPTIONS_WRONG;
}

static options_result set_number(const cli_command *command, const option_spec *spec,
                                 const char *value) {
    bool ranged = spec->minimum != 0.0 || spec->maximum != 0.0;
    const char *fault =
        number_parse_double(value, ranged ? spec->minimum : -HUGE_VAL,
                            ranged ? spec->maximum : HUGE_VAL, (double *)spec->target);
    return fault == NULL ? OPTIONS_OK : wrong_number(command, spec, value, fault);
}

bool option_choice(const cli_command *command, const char *name, const char *choices,
                   const char *text) {
    char list[128] = "";
    for (const char *at = choices;;) {
        size_t length = strcspn(at, "|"), used = strlen(list);
        if (length == strlen(text) && strncmp(at, text, length) == 0)
            return true;
        snprintf(list + used, sizeof(list) - used, "%s%.*s", used > 0 ? ", " : "", (int)length, at);
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    cli_usage(command, "--%s: \"%.40s\" must be one of %s", name, text, list);
    return false;
}

bool option_device(const cli_command *command, const char *name, const char *text) {
    const char *found;
    avo_error error = {0};
    if (device_find(text, &found, &error) == AVO_OK)
        return true;
    cli_usage(command, "--%s: %s", name, error.text);
    return false;
}

static options_result set_value(const cli_command *command, const option_spec *spec,
                                const char *value) {
    switch (spec->kind) {
    case OPTION_FLAG:
        *(bool *)spec->target = true;
        return OPTIONS_OK;
    case OPTION_CHOICE:
        if (!option_choice(command, spec->name, spec->value, value))
            return OPTIONS_WRONG;
        *(const char **)spec->target = value;
        return OPTIONS_OK;
    case OPTION_DEVICE:
        if (!option_device(command, spec->name, value))
            return OPTIONS_WRONG;
        *(const char **)spec->target = value;
        return OPTIONS_OK;
    case OPTION_TEXT:
    case OPTION_OPTIONAL_TEXT:
        *(const char **)spec->target = value;
        return OPTIONS_OK;
    case OPTION_U32:
    case OPTION_U64:
        return set_whole(command, spec, value);
    case OPTION_SIZE:
        return set_size(command, spec, value);
    case OPTION_NUMBER:
        return set_number(command, spec, value);
    case OPTION_TEXT_LIST: {
        option_list *list = spec->target;
        if (list->count == OPTION_LIST_MAX) {
            cli_usage(command, "--%s can be given at most %d times", spec->name, OPTION_LIST_MAX);
            return OPTIONS_WRONG;
        }
        list->items[list->count++] = value;
        return OPTIONS_OK;
    }
    }
    return OPTIONS_WRONG;
}

/* Whether a word ends as the example of a value does: "times.csv" and "FILE.csv". */
static bool ends_as(const char *word, const char *example) {
    const char *dot = example == NULL ? NULL : strrchr(example, '.');
    size_t length = strlen(word), wanted = dot == NULL ? 0 : strlen(dot);
    return wanted > 0 && word[0] != '-' && length > wanted &&
           strcmp(word + length - wanted, dot) == 0;
}

/* One option at argv[*at], whose value, where it is a word of its own, is taken too. */
static options_result take_option(const cli_command *command, const option_spec *specs, int argc,
                                  char **argv, int *at) {
    const char *word = argv[*at];
    const option_spec *spec = NULL;
    const char *value = NULL;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        spec = find_name(specs, word + 2, length);
        value = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
        if (spec == NULL) {
            unknown_option(command, specs, word + 2, length);
            return OPTIONS_WRONG;
        }
    } else {
        spec = find_letter(specs, word[1]);
        if (spec == NULL) {
            cli_usage(command, "unknown option %.40s; put -- before an argument that begins with -",
                      word);
            return OPTIONS_WRONG;
        }
        value = word[2] != '\0' ? word + 2 : NULL;
    }
    bool takes_word = spec->kind != OPTION_FLAG && spec->kind != OPTION_OPTIONAL_TEXT;
    if (spec->kind == OPTION_FLAG && value != NULL) {
        cli_usage(command, "--%s takes no value", spec->name);
        return OPTIONS_WRONG;
    }
    if (spec->kind == OPTION_OPTIONAL_TEXT && value == NULL)
        value = *at + 1 < argc && ends_as(argv[*at + 1], spec->value) ? argv[++*at] : "";
    if (takes_word && value == NULL) {
        if (*at + 1 >= argc) {
            cli_usage(command, "--%s needs a value: --%s %s", spec->name, spec->name,
                      spec->value != NULL ? spec->value : "VALUE");
            return OPTIONS_WRONG;
        }
        value = argv[++*at];
    }
    return set_value(command, spec, value);
}

/* Whoever wants the tables; a command is then run for them alone. */
static struct {
    options_function see;
    void *context;
} watcher;

void options_see(const cli_command *command, options_function see, void *context) {
    char name[] = "";
    char *words[] = {name, NULL};
    watcher.see = see;
    watcher.context = context;
    (void)command->run(1, words);
    watcher.see = NULL;
}

options_result options_parse(const cli_command *command, const option_spec *specs, int argc,
                             char **argv, int *positional) {
    int kept = 0;
    if (watcher.see != NULL) {
        watcher.see(watcher.context, command, specs);
        return OPTIONS_HELP;
    }
    bool only_words = false;
    for (int at = 1; at < argc; at++) {
        char *word = argv[at];
        if (only_words || word[0] != '-' || word[1] == '\0') {
            argv[1 + kept++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_words = true;
            continue;
        }
        bool asks_help = strcmp(word, "--help") == 0 ||
                         (strcmp(word, "-h") == 0 && find_letter(specs, 'h') == NULL);
        if (asks_help) {
            print_help(command, specs);
            return OPTIONS_HELP;
        }
        options_result result = take_option(command, specs, argc, argv, &at);
        if (result != OPTIONS_OK)
            return result;
    }
    *positional = kept;
    return OPTIONS_OK;
}

bool options_one_model(const cli_command *command, const option_spec *specs, int argc, char **argv,
                       int *exit_status) {
    int words = 0;
    options_result result = options_parse(command, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        *exit_status = options_exit(result);
    else if (words != 1)
        *exit_status =
            cli_usage(command, words == 0 ? "missing MODEL" : "only one MODEL is allowed");
    return result == OPTIONS_OK && words == 1;
}

bool options_json_only(const cli_command *command, int argc, char **argv, bool *json,
                       int *exit_status) {
    const option_spec specs[] = {
        {"json", 0, OPTION_FLAG, json, NULL, "print JSON", 0, 0},
        {0},
    };
    int words = 0;
    *json = false;
    options_result result = options_parse(command, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        *exit_status = options_exit(result);
    else if (words > 0)
        *exit_status = cli_usage(command, "takes no argument, got \"%s\"", argv[1]);
    return result == OPTIONS_OK && words == 0;
}
