/* `avocet completion`: scripts for shells, made from the tables that the commands themselves read,
 * so that they never tell of an option that is not there. */
#include "cli/cli.h"

#include <string.h>

extern const cli_command command_completion;

/* Every command and subcommand with its options. */
static void walk(options_function see) {
    const cli_command *command;
    for (cli_walk at = {0}; (command = cli_walk_next(&at)) != NULL;)
        options_see(command, see, NULL);
}

/* The words of "a|b|c", with spaces between. */
static void print_choices(const char *choices) {
    for (; *choices != '\0'; choices++)
        putchar(*choices == '|' ? ' ' : *choices);
}

static bool has_words(const option_spec *spec) {
    return spec->kind == OPTION_CHOICE || spec->kind == OPTION_DEVICE;
}

static bool takes_path(const option_spec *spec) {
    static const char *const names[] = {"FILE", "FOLDER", "PATH", "TEXT|FILE", "FILE|TEXT"};
    for (size_t i = 0; spec->value != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(spec->value, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool is_listed(const option_spec *spec) {
    return spec->help != NULL;
}

/* ---- bash ---- */

static void bash_flags(void *context, const cli_command *command, const option_spec *specs) {
    (void)context;
    printf("    \"%s\") flags=\"--help", command->name);
    for (; specs->name != NULL; specs++)
        if (is_listed(specs))
            printf(" --%s", specs->name);
    printf("\" ;;\n");
}

static void bash_values(void *context, const cli_command *command, const option_spec *specs) {
    (void)context;
    for (; specs->name != NULL; specs++) {
        if (specs->kind == OPTION_FLAG || !is_listed(specs))
            continue;
        printf("    \"%s --%s\"", command->name, specs->name);
        if (specs->letter != 0)
            printf(" | \"%s -%c\"", command->name, specs->letter);
        if (has_words(specs)) {
            printf(") COMPREPLY=($(compgen -W \"");
            print_choices(specs->value);
            printf("\" -- \"$word\")); return ;;\n");
        } else if (takes_path(specs)) {
            printf(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
        } else {
            printf(") return ;;\n");
        }
    }
}

static void print_names(const char *separator) {
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        printf("%s%s", (*command)->name, separator);
}

static void print_children(const cli_command *command, const char *separator) {
    for (const cli_command *const *child = command->children; *child != NULL; child++)
        printf("%s%s", cli_child_name(*child), separator);
}

static void print_bash(void) {
    printf("# bash completion for avocet; made by: avocet completion bash\n"
           "_avocet() {\n"
           "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
           "  local name=\"${COMP_WORDS[1]}\" flags=\"\"\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "    COMPREPLY=($(compgen -W \"");
    print_names(" ");
    printf("help\" -- \"$word\"))\n    return\n  fi\n  case \"$name\" in\n");
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        if ((*command)->children != NULL) {
            printf("    %s)\n      if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
                   "        COMPREPLY=($(compgen -W \"",
                   (*command)->name);
            print_children(*command, " ");
            printf("--help\" -- \"$word\"))\n        return\n      fi\n"
                   "      name=\"$name ${COMP_WORDS[2]}\" ;;\n");
        }
    printf("  esac\n  case \"$name $before\" in\n");
    walk(bash_values);
    printf("  esac\n  case \"$name\" in\n");
    walk(bash_flags);
    printf("  esac\n"
           "  if [[ \"$word\" == -* ]]; then\n"
           "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
           "  else\n"
           "    COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" list 2>/dev/null | awk "
           "'NR>1{print $1}')\" -- "
           "\"$word\") $(compgen -f -- \"$word\"))\n"
           "  fi\n"
           "}\n"
           "complete -o filenames -F _avocet avocet\n");
}

/* ---- zsh ---- */

/* Help within '[…]' and single quotes. */
static void zsh_text(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text) != NULL)
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_value(const option_spec *spec) {
    if (spec->kind == OPTION_FLAG)
        return;
    printf(":");
    zsh_text(spec->value != NULL ? spec->value : "value");
    printf(":");
    if (has_words(spec)) {
        printf("(");
        print_choices(spec->value);
        printf(")");
    } else if (takes_path(spec)) {
        printf("_files");
    }
}

static void zsh_flags(void *context, const cli_command *command, const option_spec *specs) {
    (void)context;
    printf("    (\"%s\")\n      _arguments -s '--help[show the help]' \\\n", command->name);
    for (; specs->name != NULL; specs++) {
        if (!is_listed(specs))
            continue;
        const char *again = specs->kind == OPTION_TEXT_LIST ? "*" : "";
        if (specs->letter != 0) {
            printf("        '%s-%c[", again, specs->letter);
            zsh_text(specs->help);
            printf("]");
            zsh_value(specs);
            printf("' \\\n");
        }
        printf("        '%s--%s[", again, specs->name);
        zsh_text(specs->help);
        printf("]");
        zsh_value(specs);
        printf("' \\\n");
    }
    printf("        '*:file:_avocet_models' ;;\n");
}

static void print_zsh(void) {
    printf("#compdef avocet\n# zsh completion for avocet; made by: avocet completion zsh\n"
           "_avocet_models() {\n"
           "  local -a names\n"
           "  names=(${(f)\"$(avocet list 2>/dev/null | awk 'NR>1{print $1}')\"})\n"
           "  compadd -a names\n  _files\n}\n"
           "_avocet() {\n  local -a commands\n  local name=\"${words[2]}\"\n"
           "  if (( CURRENT == 2 )); then\n    commands=(\n");
    for (const cli_command *const *command = cli_commands; *command != NULL; command++) {
        printf("      '%s:", (*command)->name);
        zsh_text((*command)->summary);
        printf("'\n");
    }
    printf("      'help:the help of a command'\n    )\n    _describe command commands\n    return\n"
           "  fi\n  shift words; (( CURRENT-- ))\n  case \"$name\" in\n");
    for (const cli_command *const *command = cli_commands; *command != NULL; command++)
        if ((*command)->children != NULL) {
            printf("    (%s)\n      if (( CURRENT == 2 )); then\n        compadd ",
                   (*command)->name);
            print_children(*command, " ");
            printf("\n        return\n      fi\n"
                   "      name=\"$name ${words[2]}\"; shift words; (( CURRENT-- )) ;;\n");
        }
    printf("  esac\n  case \"$name\" in\n");
    walk(zsh_flags);
    printf("  esac\n}\n_avocet \"$@\"\n");
}

/* ---- fish ---- */

static void fish_text(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
}

/* Under which words a command's options count. */
static void fish_condition(const cli_command *command) {
    const char *child = strchr(command->name, ' ');
    printf("complete -c avocet -n '__fish_seen_subcommand_from ");
    if (child == NULL)
        printf("%s'", command->name);
    else
        printf("%.*s; and __fish_seen_subcommand_from %s'", (int)(child - command->name),
               command->name, child + 1);
}

static void fish_flags(void *context, const cli_command *command, const option_spec *specs) {
    (void)context;
    for (; specs->name != NULL; specs++) {
        if (!is_listed(specs))
            continue;
        fish_condition(command);
        printf(" -l %s", specs->name);
        if (specs->letter != 0)
            printf(" -s %c", specs->letter);
        printf(" -d '");
        fish_text(specs->help);
        printf("'");
        if (has_words(specs)) {
            printf(" -x -a '");
            print_choices(specs->value);
            printf("'");
        } else if (takes_path(specs)) {
            printf(" -r -F");
        } else if (specs->kind != OPTION_FLAG && specs->kind != OPTION_OPTIONAL_TEXT) {
            printf(" -x");
        }
        printf("\n");
    }
}

static void print_fish(void) {
    printf("# fish completion for avocet; made by: avocet completion fish\n");
    for (const cli_command *const *command = cli_commands; *command != NULL; command++) {
        printf("complete -c avocet -f -n __fish_use_subcommand -a %s -d '", (*command)->name);
        fish_text((*command)->summary);
        printf("'\n");
        if ((*command)->children == NULL)
            continue;
        printf("complete -c avocet -f -n '__fish_seen_subcommand_from %s' -a '", (*command)->name);
        print_children(*command, " ");
        printf("'\n");
    }
    walk(fish_flags);
    printf("complete -c avocet -n 'not __fish_use_subcommand' -a "
           "'(avocet list 2>/dev/null | awk \"NR>1{print \\\\$1}\")'\n");
}

static int run(int argc, char **argv) {
    const option_spec none[] = {{0}};
    int words = 0;
    options_result parsed = options_parse(&command_completion, none, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 1)
        return cli_usage(&command_completion, "missing shell: bash, zsh or fish");
    if (strcmp(argv[1], "bash") == 0)
        print_bash();
    else if (strcmp(argv[1], "zsh") == 0)
        print_zsh();
    else if (strcmp(argv[1], "fish") == 0)
        print_fish();
    else
        return cli_usage(&command_completion, "unknown shell \"%.80s\"; choose bash, zsh or fish",
                         argv[1]);
    return EXIT_GOOD;
}

const cli_command command_completion = {
    .name = "completion",
    .summary = "print a shell completion script",
    .usage = "avocet completion bash|zsh|fish\n\n"
             "make install puts all three in the folders where the shells look for them.",
    .examples = "source <(avocet completion bash)\n"
                "avocet completion zsh > ~/.zfunc/_avocet\n"
                "avocet completion fish > ~/.config/fish/completions/avocet.fish",
    .run = run,
};
