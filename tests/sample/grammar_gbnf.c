/* GBNF: what each construct accepts, what is refused, and that hostile grammars end quickly. */
#include "grammar_texts.h"

#include "base/clock.h"

#include <stdlib.h>

static const grammar_case cases[] = {
    {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
    {"root ::= \"a\" \"b\" | \"c\"", {"ab", "c"}, {"a", "abc", "b"}},
    {"root ::= \"a\"? \"b\"* \"c\"+", {"c", "ac", "abbcc", "bc"}, {"", "ab", "aac"}},
    {"root ::= (\"a\" | \"b\"){2,3}", {"ab", "bba", "aa"}, {"a", "abab", ""}},
    {"root ::= \"x\"{3}", {"xxx"}, {"xx", "xxxx"}},
    {"root ::= \"x\"{2,}", {"xx", "xxxxxx"}, {"x", ""}},
    {"root ::= \"x\"{0,0} \"y\"", {"y"}, {"xy"}},
    {"root ::= [a-c0]+", {"a", "cab0"}, {"", "d", "a d"}},
    {"root ::= [^a-c]", {"d", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "", "\xC3", "\xA9"}},
    {"root ::= [\\]\\\\\\n\\x41\\u00e9-]", {"]", "\\", "\n", "A", "\xC3\xA9", "-"}, {"x", "n"}},
    {"root ::= \"\\\"\\t\\u00e9\\U0001F600\"", {"\"\t\xC3\xA9\xF0\x9F\x98\x80"}, {"\"\t\xC3"}},
    {"root ::= .", {"x", "\xE2\x82\xAC"}, {"", "xx", "\xE2\x82", "\xFF", "\xC0\x80"}},
    {"root ::= [\xC3\xA0-\xC3\xBC\xE2\x82\xAC]+",
     {"\xC3\xA9", "\xE2\x82\xAC\xC3\xA0"},
     {"\xC3", "a", "\xE2\x82"}},
    {"# comment\nroot ::= # more\n  item (\n \",\" item )* # end\n\nitem ::= [0-9]+\n | \"n\"\n",
     {"1", "12,n,3"},
     {"", "1,", ",1"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
    {"root ::= expr\nexpr ::= term ((\"+\"|\"-\") term)*\nterm ::= [0-9] | \"(\" expr \")\"",
     {"1", "1+2", "(1-(2))+3"},
     {"1+", "(1", "11"}},
    {"root ::= (\"a\"?)* \"b\"", {"b", "aab"}, {"a", ""}},
    {"root ::= (\"a\"*){2,4} \"b\"", {"b", "aaaaaaab"}, {"a"}},
    {"root ::= list\nlist ::= \"x\" list | \"y\"", {"y", "xy", "xxxxxxy"}, {"x", "yx"}},
    {"root ::= \"a\" never | \"b\"\nnever ::= \"c\" never", {"b"}, {"a", "ac"}},
    {"root ::= [] | \"b\"", {"b"}, {""}},
    {"root ::= \"a\" | \"a\" \"b\" | [a-z]+ \"!\"", {"a", "ab", "abc!"}, {"abc", "!"}},
    {"root ::= | \"a\"", {"", "a"}, {"b"}},
    {"root ::= A-b_1\nA-b_1 ::= \"z\"", {"z"}, {"A"}},
};

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_case(AVO_GRAMMAR_GBNF, &cases[i]);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *grammar;
        avo_status status;
        const char *part;
    } refused[] = {
        {"", AVO_ERROR_FORMAT, "no rule \"root\""},
        {"top ::= \"a\"", AVO_ERROR_FORMAT, "no rule \"root\""},
        {"root ::= item", AVO_ERROR_FORMAT, "item is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", AVO_ERROR_FORMAT,
         "grammar, line 2: rule root is defined twice"},
        {"root ::= \"a", AVO_ERROR_FORMAT, "a literal is not closed"},
        {"root ::= [a", AVO_ERROR_FORMAT, "a character class is not closed"},
        {"root ::= (\"a\"", AVO_ERROR_FORMAT, "lacks its ')'"},
        {"root ::= \"a\")", AVO_ERROR_FORMAT, "unexpected ')' in rule"},
        {"root = \"a\"", AVO_ERROR_FORMAT, "\"::=\" is missing"},
        {"root ::= [z-a]", AVO_ERROR_FORMAT, "a character range is reversed"},
        {"root ::= \"\\q\"", AVO_ERROR_FORMAT, "unknown escape"},
        {"root ::= \"\\u12\"", AVO_ERROR_FORMAT, "hexadecimal"},
        {"root ::= \"\\ud800\"", AVO_ERROR_FORMAT, "an escape is not a Unicode"},
        {"root ::= \"a\"{3,2}", AVO_ERROR_FORMAT, "a repetition range is reversed"},
        {"root ::= \"a\"{x}", AVO_ERROR_FORMAT, "a repetition lacks its count"},
        {"root ::= \"a\"{5000}", AVO_ERROR_LIMIT, "at most 4096 times"},
        {"root ::= \"a\"{99999999999999999999}", AVO_ERROR_LIMIT, "at most 4096 times"},
        {"root ::= root \"a\" | \"b\"", AVO_ERROR_UNSUPPORTED, "root begins with itself"},
        {"root ::= a\na ::= b \"x\" | \"y\"\nb ::= c\nc ::= a \"z\"", AVO_ERROR_UNSUPPORTED,
         "begins with itself"},
        {"root ::= \"q\"? root | \"b\"", AVO_ERROR_UNSUPPORTED, "root begins with itself"},
        {"root ::= \"q\" a\na ::= n a | \"b\"\nn ::= \"c\"*", AVO_ERROR_UNSUPPORTED,
         "a begins with itself"},
        {"root ::= root", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
        {"root ::= \"a\" root", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
        {"root ::= []", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
        {"root ::= <[10]>", AVO_ERROR_FORMAT, "unexpected '<' in rule"},
        {"root ::= \"\xFF\"", AVO_ERROR_FORMAT, "UTF-8"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        check_refused(AVO_GRAMMAR_GBNF, refused[i].grammar, refused[i].status, refused[i].part);
}

/* ---- Hostile ---- */

#define SECONDS_MAX 60.0 /* of this thread's work; a hundredth of that is usual */

static void check_hostile(const char *grammar, avo_status wanted, const char *part) {
    uint64_t begin = clock_thread_ns();
    check_refused(AVO_GRAMMAR_GBNF, grammar, wanted, part);
    assert_true(clock_seconds(begin, clock_thread_ns()) < SECONDS_MAX);
}

static char *repeated(const char *begin, const char *part, size_t times, const char *end) {
    size_t bytes = strlen(part);
    char *text = malloc(strlen(begin) + bytes * times + strlen(end) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, begin);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, part);
    (void)stpcpy(at, end);
    return text;
}

static void test_hostile(void **state) {
    (void)state;
    char *deep = repeated("root ::= ", "(", 1000, "\"a\"");
    check_hostile(deep, AVO_ERROR_LIMIT, "nested more than 128");
    free(deep);
    check_hostile("root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}", AVO_ERROR_LIMIT,
                  "states");
    check_hostile("root ::= ((((\"a\"*){1000})*){1000})*", AVO_ERROR_LIMIT, "states");
    char doubling[4096];
    char *end = stpcpy(doubling, "root ::= a0\n");
    for (int i = 0; i < 60; i++)
        end += snprintf(end, 64, "a%d ::= a%d a%d\n", i, i + 1, i + 1);
    (void)stpcpy(end, "a60 ::= \"x\"\n");
    texts t; /* 2^60 letters: small as a network */
    assert_ok_error(texts_open(&t, AVO_GRAMMAR_GBNF, doubling), &t.error);
    assert_int_equal(texts_fit(&t, "xxxxxxxxxxxx", 12), FIT_BEGINNING);
    assert_int_equal(texts_fit(&t, "xxxy", 4), FIT_NO);
    texts_close(&t);
    size_t room = 400000;
    char *many = malloc(room);
    char *at = stpcpy(many, "root ::= r0\n");
    for (int i = 0; i < 3000; i++)
        at += snprintf(at, 64, "r%d ::= \"a\" r%d | \"b\"\n", i, i + 1);
    check_hostile(many, AVO_ERROR_LIMIT, "at most 2048 rules");
    at = stpcpy(many, "root ::= r0\n");
    for (int i = 0; i < 2000; i++) /* the longest circle of rules that begin with each other */
        at += snprintf(at, 64, "r%d ::= r%d \"a\" | \"b\"\n", i, (i + 1) % 2000);
    check_hostile(many, AVO_ERROR_UNSUPPORTED, "begins with itself");
    at = stpcpy(many, "root ::= r1999\n");
    for (int i = 0; i < 2000; i++) /* each names the one before, which is defined later */
        at += snprintf(at, 64, "r%d ::= r%d r%d | \"b\"\n", 1999 - i, 1998 - i < 0 ? 0 : 1998 - i,
                       1998 - i < 0 ? 0 : 1998 - i);
    check_hostile(many, AVO_ERROR_UNSUPPORTED, "begins with itself");
    free(many);
    char *wide = repeated("root ::= [", "\xC4\x80\xC4\x82", 20000, "]");
    assert_ok_error(texts_open(&t, AVO_GRAMMAR_GBNF, wide), &t.error);
    accepts(&t, "\xC4\x82");
    refuses(&t, "\xC4\x81");
    texts_close(&t);
    free(wide);
}

/* What is empty makes no states, so no limit of states ends its repetition. */
static void test_empty_repetition(void **state) {
    (void)state;
    static const grammar_case empty[] = {
        {"root ::= ((\"\"{1,4096}){1,4096}){1,4096} \"a\"", {"a"}, {"", "aa"}},
        {"root ::= \"a\" (((((\"\" \"\"){4096}){4096}){4096}){4096}){4096,}", {"a"}, {"", "aa"}},
        {"root ::= (((e{1,4096}){1,4096}){1,4096}){1,4096} \"b\"\ne ::= \"\"", {"b"}, {"", "a"}},
        /* Parts that are impossible, and choices that all lead to the same. */
        {"root ::= (((((n | \"\"){4096} | \"\"){4096} | \"\"){4096} | \"\"){4096}) \"a\"\n"
         "n ::= \"x\" n",
         {"a"},
         {"", "xa", "aa"}},
        {"root ::= (\"\"{0,4096} \"a\"){2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
    };
    uint64_t begin = clock_thread_ns();
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
        check_case(AVO_GRAMMAR_GBNF, &empty[i]);
    assert_true(clock_seconds(begin, clock_thread_ns()) < SECONDS_MAX);
    /* One state for each copy, and much that makes none. */
    char *slow = repeated("root ::= (\"a\"", " \"\"", 5000, "){4096}");
    check_hostile(slow, AVO_ERROR_LIMIT, "steps to compile");
    free(slow);
    /* One behind the other without a group: as deep as the text is long. */
    char *marks = repeated("root ::= \"a\"", "?", 200000, "");
    check_hostile(marks, AVO_ERROR_LIMIT, "nested more than 4096");
    free(marks);
    char *some = repeated("root ::= \"a\"", "?", 500, "");
    check_case(AVO_GRAMMAR_GBNF, &(grammar_case){some, {"", "a"}, {"aa"}});
    free(some);
}

/* ---- Memory ---- */

static void test_no_memory(void **state) {
    (void)state;
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator counting;
        test_allocator_init(&counting);
        counting.fail_at = fail_at;
        arena scratch;
        arena arena;
        grammar_rules rules;
        network net;
        avo_error error = {0};
        arena_init(&scratch, &counting.allocator, GRAMMAR_ARENA_MAX);
        arena_init(&arena, &counting.allocator, SIZE_MAX);
        avo_status status = grammar_rules_init(&rules, &scratch, &error);
        if (status == AVO_OK)
            status = grammar_read_gbnf(
                &rules,
                TEXT_LITERAL("root ::= \"abc\" [a-z\xC3\xA9]{1,300} item*\nitem ::= \"x\""));
        if (status == AVO_OK)
            status = network_build(&rules, &arena, 16, (text_view){"", 0}, false, &net);
        arena_free(&scratch);
        arena_free(&arena);
        assert_int_equal(counting.live, 0);
        if (status == AVO_OK && counting.allocations < fail_at)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),   cmocka_unit_test(test_empty_repetition),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
