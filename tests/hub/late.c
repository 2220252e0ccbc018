/* hub/curl_late: a library that is missing or too old is refused by name; one that is there gives
 * its functions. */
#include "support/support.h"

#include <string.h>

static const char *wanted_library;
#define AVO_CURL_LIBRARY wanted_library
#include "hub/curl_late.c"

static void test_missing(void **state) {
    (void)state;
    avo_error error = {0};
    wanted_library = "libcurl-of-nobody.so.4";
    assert_refused(curl_late_open(&error), AVO_ERROR_UNSUPPORTED, &error,
                   "libcurl cannot be loaded, which downloads need: libcurl-of-nobody.so.4");
    assert_non_null(strstr(error.text, "install it"));
}

static void test_too_old(void **state) {
    (void)state;
    avo_error error = {0};
    wanted_library = "libm.so.6";
    assert_refused(curl_late_open(&error), AVO_ERROR_UNSUPPORTED, &error,
                   "libm.so.6 lacks curl_multi_poll");
}

static void test_there(void **state) {
    (void)state;
    avo_error error = {0};
    wanted_library = "libcurl.so.4";
    if (dlopen(wanted_library, RTLD_NOW) == NULL)
        skip(); /* of another name here */
    assert_ok_error(curl_late_open(&error), &error);
    assert_string_equal(curl_easy_strerror(CURLE_OK), "No error");
    CURL *easy = curl_easy_init();
    assert_non_null(easy);
    assert_int_equal(curl_easy_setopt(easy, CURLOPT_URL, "http://127.0.0.1:1/"), CURLE_OK);
    curl_easy_cleanup(easy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_too_old),
        cmocka_unit_test(test_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
