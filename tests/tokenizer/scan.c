/* The scanners cut text exactly as PCRE2 does with the patterns they stand for. PCRE2 here knows an
 * older Unicode than the tables, so that unassigned code points are left to the exactness test. */
#include "support/support.h"

#include "base/random.h"
#include "base/utf8.h"
#include "tokenizer/regex_int.h"
#include "tokenizer/scan_int.h"

#include <stdio.h>
#include <string.h>

static void compare(scanner which, const regex *regex, text_view text) {
    scan_function function = scanner_function(which);
    regex_match match = {0};
    avo_error error = {0};
    for (size_t at = 0; at < text.size;) {
        bool found;
        size_t begin;
        size_t end;
        assert_ok_error(regex_find(regex, &match, text, at, &found, &begin, &end, &error), &error);
        assert_true(found && begin == at);
        size_t length = function(text.data + at, text.size - at);
        if (length != end - begin)
            fail_msg("%s: at %zu of \"%.*s\": %zu, not %zu bytes", scanner_pattern(which), at,
                     TEXT_ARGUMENT(text), length, end - begin);
        at += length;
    }
    regex_match_free(&match);
}

/* Characters that the patterns tell apart, ends of lines and contractions foremost. */
static const char *const alphabet[] = {
    "a",  "b", "S",   "s",   "t",  "T",        "r",        "e",           "R",        "E",
    "v",  "m", "l",   "L",   "d",  "D",        "'",        "'",           "'",        " ",
    " ",  " ", "  ",  "\n",  "\r", "\t",       "\v",       "1",           "23",       "9",
    ".",  ",", "!",   "<|",  "_",  "\xC3\xA9", "\xC5\xBF", "\xC2\xA0",    "\xC2\x85", "\0",
    "½",  "²", "Ⅷ",   "٣",   "中", "か",       "한",       "א",           "\xCC\x81", "🙂",
    "　", " ", "​", "‍", "K",  "क्",        "ก",        "\xE2\x80\xA8"};

static void random_texts(scanner which) {
    regex *regex;
    avo_error error = {0};
    assert_ok_error(regex_compile(text_from(scanner_pattern(which)), NULL, &regex, &error), &error);
    uint64_t index = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        char text[256];
        size_t size = 0;
        uint64_t pieces = 1 + (uint64_t)(random_uniform_at(11, which, index++) * 24);
        for (uint64_t i = 0; i < pieces; i++) {
            size_t count = sizeof(alphabet) / sizeof(alphabet[0]);
            const char *piece =
                alphabet[(size_t)(random_uniform_at(11, which, index++) * (double)count)];
            size_t bytes = *piece == '\0' ? 1 : strlen(piece);
            memcpy(text + size, piece, bytes);
            size += bytes;
        }
        compare(which, regex, (text_view){text, size});
    }
    regex_free(regex);
}

static void gpt2(void **state) {
    (void)state;
    random_texts(SCANNER_GPT2);
}

static void llama3(void **state) {
    (void)state;
    random_texts(SCANNER_LLAMA3);
}

static void qwen2(void **state) {
    (void)state;
    random_texts(SCANNER_QWEN2);
}

static void found_by_text(void **state) {
    (void)state;
    for (uint32_t i = 0; i < SCANNER_COUNT; i++)
        assert_int_equal(scanner_find(text_from(scanner_pattern((scanner)i))), i);
    assert_int_equal(scanner_find(TEXT_LITERAL("\\s+")), SCANNER_COUNT);
    assert_int_equal(scanner_find(TEXT_LITERAL("")), SCANNER_COUNT);
}

static void bad_patterns(void **state) {
    (void)state;
    avo_error error = {0};
    regex *regex;
    assert_refused(regex_compile(TEXT_LITERAL("a("), NULL, &regex, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "a(");
    assert_null(regex);
    assert_refused(regex_compile(TEXT_LITERAL("\\C"), NULL, &regex, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "\\C");
    /* What Oniguruma has and PCRE2 has not. */
    static const char *const foreign[] = {"[a[bc]]",     "[a-z&&b]", "[\\W\\d]",
                                          "[[:graph:]]", "a\\",      "[a"};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_refused(regex_compile(text_from(foreign[i]), NULL, &regex, &error),
                       AVO_ERROR_UNSUPPORTED, &error, "not supported");
    /* A trap for backtracking ends at a limit. */
    assert_ok(regex_compile(TEXT_LITERAL("(a+)+(?=[bc])"), NULL, &regex, &error));
    char text[64];
    memset(text, 'a', sizeof(text));
    regex_match match = {0};
    bool found;
    size_t begin;
    size_t end;
    assert_int_equal(
        regex_find(regex, &match, (text_view){text, sizeof(text)}, 0, &found, &begin, &end, &error),
        AVO_ERROR_LIMIT);
    regex_match_free(&match);
    regex_free(regex);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(llama3),
                                       cmocka_unit_test(qwen2), cmocka_unit_test(found_by_text),
                                       cmocka_unit_test(bad_patterns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
