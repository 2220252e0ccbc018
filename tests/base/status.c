/* base/status: texts of every status, error texts that no hostile name can forge. */
#include "support/support.h"

#include "base/utf8.h"

#include <string.h>

static void every_status_has_a_text(void **state) {
    (void)state;
#define CHECK(name, number, text)                                                                  \
    assert_int_equal(name, number);                                                                \
    assert_string_equal(avo_status_text(name), text);
    AVO_STATUS_TABLE(CHECK)
#undef CHECK
    assert_string_equal(avo_status_text((avo_status)9999), "unknown status");
    assert_string_equal(avo_version(), AVO_VERSION_TEXT);
}

static void fail_formats_and_returns(void **state) {
    (void)state;
    avo_error error = {0};
    assert_int_equal(status_fail(&error, AVO_ERROR_FORMAT, "%s: field %s is %d", "a.gguf", "n", 7),
                     AVO_ERROR_FORMAT);
    assert_int_equal(error.status, AVO_ERROR_FORMAT);
    assert_string_equal(error.text, "a.gguf: field n is 7");
    assert_int_equal(status_fail(NULL, AVO_ERROR_IO, "nobody asked"), AVO_ERROR_IO);
    assert_int_equal(status_prefix(NULL, AVO_ERROR_IO, "nobody asked"), AVO_ERROR_IO);
    assert_int_equal(status_no_memory(&error, "a table", 12), AVO_ERROR_MEMORY);
    assert_non_null(strstr(error.text, "12 bytes for a table"));
}

static void prefix_goes_in_front(void **state) {
    (void)state;
    avo_error error = {0};
    assert_int_equal(status_fail(&error, AVO_ERROR_FORMAT, "bad field"), AVO_ERROR_FORMAT);
    assert_int_equal(status_prefix(&error, AVO_ERROR_FORMAT, "%s", "file.bin"), AVO_ERROR_FORMAT);
    assert_string_equal(error.text, "file.bin: bad field");
}

static void control_characters_are_replaced(void **state) {
    (void)state;
    static const struct {
        const char *given;
        const char *wanted;
    } cases[] = {
        {"a\nb\tc\x1b[2J\x7f", "a?b?c?[2J?"},
        {"caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "?31m"},                                    /* C1: CSI in one character */
        {"\xff\xfe", "??"},                          /* not UTF-8 */
        {"\xe2\x80", "?"},                           /* half a character */
        {"\xe2\x80\xae txt", "? txt"},               /* right-to-left override */
        {"a\xe2\x80\xa8z", "a?z"},                   /* line separator */
        {"\xed\xa0\x80", "???"},                     /* a surrogate */
        {"\xe2\x80\xa6 \xc2\xb5", "\xe2\x80\xa6 µ"}, /* … and µ stay */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_error error = {0};
        assert_int_equal(status_fail(&error, AVO_ERROR_FORMAT, "%s", cases[i].given),
                         AVO_ERROR_FORMAT);
        assert_string_equal(error.text, cases[i].wanted);
    }
}

static void long_texts_are_cut_between_characters(void **state) {
    (void)state;
    char name[3 * AVO_ERROR_TEXT_MAX];
    for (size_t i = 0; i + 3 <= sizeof(name); i += 3)
        memcpy(name + i, "…", 3);
    name[sizeof(name) - 1] = '\0';
    avo_error error = {0};
    assert_int_equal(status_fail(&error, AVO_ERROR_FORMAT, "%s", name), AVO_ERROR_FORMAT);
    size_t size = strlen(error.text);
    assert_true(size < AVO_ERROR_TEXT_MAX && size >= AVO_ERROR_TEXT_MAX - 4);
    assert_int_equal(utf8_valid_prefix(error.text, size), size);
    for (int i = 0; i < 3; i++) /* a prefix longer than the room leaves a terminated text */
        assert_int_equal(status_prefix(&error, AVO_ERROR_FORMAT, "%s", name), AVO_ERROR_FORMAT);
    size = strlen(error.text);
    assert_true(size < AVO_ERROR_TEXT_MAX);
    assert_int_equal(utf8_valid_prefix(error.text, size), size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(fail_formats_and_returns),
        cmocka_unit_test(prefix_goes_in_front),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(long_texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
