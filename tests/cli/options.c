/* cli/: options, numbers and the small texts. */
#include "support/support.h"

#include "cli/cli.h"

#include <math.h>
#include <string.h>

typedef struct values {
    bool flag;
    const char *text;
    const char *optional;
    const char *choice;
    uint32_t count;
    uint32_t any;
    uint64_t large;
    double number;
    option_list list;
} values;

static const cli_command command = {
    .name = "test", .summary = "a test", .usage = "avocet test", .examples = "avocet test"};

/* Parses words separated by '|'. */
static options_result parse(const char *line, values *values, char **words, int *count) {
    static char copy[4096];
    memset(values, 0, sizeof(*values));
    const option_spec specs[] = {
        {"flag", 'f', OPTION_FLAG, &values->flag, NULL, "a flag", 0, 0},
        {"text", 't', OPTION_TEXT, &values->text, "TEXT", "a text", 0, 0},
        {"optional", 'o', OPTION_OPTIONAL_TEXT, &values->optional, "FILE.csv", "maybe", 0, 0},
        {"choice", 'c', OPTION_CHOICE, &values->choice, "auto|on|off", "one of three", 0, 0},
        {"count", 'n', OPTION_U32, &values->count, "N", "a count", 1, 100},
        {"any", 0, OPTION_U32, &values->any, "N", "any count", 0, 0},
        {"large", 0, OPTION_U64, &values->large, "N", "a large count", 0, 0},
        {"number", 'x', OPTION_NUMBER, &values->number, "X", "a number", -2, 2},
        {"list", 'l', OPTION_TEXT_LIST, &values->list, "TEXT", "a list", 0, 0},
        {0},
    };
    size_t length = strlen(line);
    assert_true(length < sizeof(copy));
    memcpy(copy, line, length + 1);
    int argc = 0;
    static char name[] = "test";
    words[argc++] = name;
    for (char *at = copy; *line != '\0';) {
        words[argc++] = at;
        at += strcspn(at, "|");
        if (*at == '\0')
            break;
        *at++ = '\0';
    }
    words[argc] = NULL;
    return options_parse(&command, specs, argc, words, count);
}

static void choices_are_whole_words(void **state) {
    (void)state;
    values values;
    char *words[200];
    int count = 0;
    static const char *const good[] = {"auto", "on", "off"};
    for (size_t i = 0; i < 3; i++) {
        char line[32];
        snprintf(line, sizeof(line), "--choice=%s", good[i]);
        assert_int_equal(parse(line, &values, words, &count), OPTIONS_OK);
        assert_string_equal(values.choice, good[i]);
    }
    static const char *const wrong[] = {"--choice=", "-co", "-cof", "--choice=offf", "-cOn"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(parse(wrong[i], &values, words, &count), OPTIONS_WRONG);
    /* separators are no part of a word; beyond parse(), which cuts there */
    assert_false(option_choice(&command, "choice", "auto|on|off", "auto|on"));
}

static void reads_all_forms(void **state) {
    (void)state;
    values values;
    char *words[200];
    int count = 0;
    assert_int_equal(parse("one|--flag|--text|a b|two|--count=7|-x|-1.5|--large="
                           "18446744073709551615|-l|p|--list=q|--list|--flag|-|--|--text|three",
                           &values, words, &count),
                     OPTIONS_OK);
    assert_true(values.flag);
    assert_string_equal(values.text, "a b");
    assert_int_equal(values.count, 7);
    assert_true(values.number == -1.5);
    assert_true(values.large == UINT64_MAX);
    assert_int_equal(values.list.count, 3);
    assert_string_equal(values.list.items[2], "--flag");
    assert_int_equal(count, 5);
    const char *const wanted[] = {"one", "two", "-", "--text", "three"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(words[1 + i], wanted[i]);
}

static void reads_short_and_optional_forms(void **state) {
    (void)state;
    values values;
    char *words[200];
    int count = 0;
    assert_int_equal(parse("-n5|-x2|--optional|word|-tabc", &values, words, &count), OPTIONS_OK);
    assert_int_equal(values.count, 5);
    assert_true(values.number == 2);
    assert_string_equal(values.optional, "");
    assert_string_equal(values.text, "abc");
    assert_int_equal(count, 1);
    /* The next word where it ends as the example does. */
    assert_int_equal(parse("--optional|y.csv|word|--optional|-n|1", &values, words, &count),
                     OPTIONS_OK);
    assert_string_equal(values.optional, "");
    assert_int_equal(count, 1);
    assert_int_equal(parse("word|--optional|y.csv", &values, words, &count), OPTIONS_OK);
    assert_string_equal(values.optional, "y.csv");
    assert_int_equal(count, 1);
    assert_int_equal(parse("--optional=x.csv|--text=|-n|1|-n|2", &values, words, &count),
                     OPTIONS_OK);
    assert_string_equal(values.optional, "x.csv");
    assert_string_equal(values.text, "");
    assert_int_equal(values.count, 2); /* the last one counts */
    assert_int_equal(parse("", &values, words, &count), OPTIONS_OK);
    assert_int_equal(count, 0);
    assert_null(values.optional);
}

static void refuses_wrong_ones(void **state) {
    (void)state;
    static const char *const wrong[] = {"--flga",
                                        "--flag=1",
                                        "--text",
                                        "--count",
                                        "--count=",
                                        "--count=0",
                                        "--count=101",
                                        "--count=x",
                                        "--count=-1",
                                        "--count=1.5",
                                        "--count= 1",
                                        "--count=+1",
                                        "--any=4294967296",
                                        "--large=18446744073709551616",
                                        "--number=nan",
                                        "--number=2.1",
                                        "--number=-2.1",
                                        "--number=1,5",
                                        "--number=",
                                        "--number=0x1",
                                        "--number= 1",
                                        "-z",
                                        "-",
                                        "--=",
                                        "--flag2"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        values values;
        char *words[200];
        int count = 0;
        options_result result = parse(wrong[i], &values, words, &count);
        if (strcmp(wrong[i], "-") == 0)
            assert_int_equal(result, OPTIONS_OK); /* a lone dash is a word */
        else if (result != OPTIONS_WRONG)
            fail_msg("%s was accepted", wrong[i]);
    }
    /* More than a list holds. */
    char many[4096];
    size_t at = 0;
    for (int i = 0; i < OPTION_LIST_MAX + 1; i++)
        at += (size_t)snprintf(many + at, sizeof(many) - at, "%s-lx", i > 0 ? "|" : "");
    values values;
    char *words[200];
    int count = 0;
    assert_int_equal(parse(many, &values, words, &count), OPTIONS_WRONG);
    many[at - 4] = '\0';
    assert_int_equal(parse(many, &values, words, &count), OPTIONS_OK);
    assert_int_equal(values.list.count, OPTION_LIST_MAX);
}

static void numbers_are_strict(void **state) {
    (void)state;
    uint64_t whole = 77;
    double number = 77;
    assert_null(number_parse_u64("0", 0, 10, &whole));
    assert_int_equal(whole, 0);
    assert_null(number_parse_u64("0010", 0, 10, &whole));
    assert_int_equal(whole, 10);
    assert_non_null(number_parse_u64("11", 0, 10, &whole));
    assert_int_equal(whole, 10); /* as it was */
    assert_null(number_parse_part((text_view){"12,3", 2}, 0, 99, &whole));
    assert_int_equal(whole, 12);
    assert_string_equal(number_parse_part((text_view){"12", 0}, 0, 99, &whole), "is empty");
    assert_string_equal(
        number_parse_part(TEXT_LITERAL("18446744073709551616"), 0, UINT64_MAX, &whole),
        "is too large");
    assert_null(number_parse_double("-inf", -HUGE_VAL, 1, &number));
    assert_true(isinf(number));
    assert_null(number_parse_double("1e-6", 0, 1, &number));
    assert_true(number == 1e-6);
    assert_non_null(number_parse_double("1e-6x", 0, 1, &number));
    assert_non_null(number_parse_double("inf", 0, 1, &number));
}

static void short_names_of_models(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"models/SmolLM2-135M.gguf", "SmolLM2-135M"},
        {"folder/", "folder"},
        {"a/b//", "b"},
        {".gguf", ".gguf"},
        {"owner/name.avo", "name"},
        {"/", ""},
        {"x.bin", "x"},
        {"x.safetensors", "x.safetensors"},
    };
    char name[32];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_short_name(cases[i][0], name, sizeof(name));
        assert_string_equal(name, cases[i][1]);
    }
    cli_short_name("a-name-that-is-far-too-long-for-it.gguf", name, 8);
    assert_string_equal(name, "a-name-");
}

/* Every command once, each before its own subcommands. */
static void walks_over_all_commands(void **state) {
    (void)state;
    size_t commands = 0, children = 0, wanted = 0;
    for (; cli_commands[commands] != NULL; commands++)
        for (size_t i = 0;
             cli_commands[commands]->children != NULL && cli_commands[commands]->children[i]; i++)
            wanted++;
    const cli_command *found, *last = NULL;
    size_t seen = 0;
    for (cli_walk at = {0}; (found = cli_walk_next(&at)) != NULL;) {
        if (strchr(found->name, ' ') == NULL) {
            assert_ptr_equal(found, cli_commands[seen++]);
            last = found;
            continue;
        }
        children++;
        assert_memory_equal(found->name, last->name, strlen(last->name));
        assert_string_equal(cli_child_name(found), found->name + strlen(last->name) + 1);
    }
    assert_int_equal(seen, commands);
    assert_int_equal(children, wanted);
    assert_true(wanted > 0);
}

static void bytes_are_readable(void **state) {
    (void)state;
    char text[16];
    assert_string_equal(cli_bytes_text(0, text), "0 B");
    assert_string_equal(cli_bytes_text(1023, text), "1023 B");
    assert_string_equal(cli_bytes_text(1024, text), "1.0 KiB");
    assert_string_equal(cli_bytes_text(1536, text), "1.5 KiB");
    assert_string_equal(cli_bytes_text(1048575, text), "1.0 MiB");
    assert_string_equal(cli_bytes_text(98362432, text), "93.8 MiB");
    assert_string_equal(cli_bytes_text((uint64_t)5 << 30, text), "5.0 GiB");
    assert_true(strlen(cli_bytes_text(UINT64_MAX, text)) < 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_whole_words),
        cmocka_unit_test(reads_all_forms),
        cmocka_unit_test(reads_short_and_optional_forms),
        cmocka_unit_test(refuses_wrong_ones),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(short_names_of_models),
        cmocka_unit_test(walks_over_all_commands),
        cmocka_unit_test(bytes_are_readable),
    };
    return cmocka_run_group_tests_name("cli/options", tests, NULL, NULL);
}
