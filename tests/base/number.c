/* Floats as text: the same float again, for every exponent and both signs. */
#include "support/support.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static void check(float number) {
    char text[NUMBER_TEXT_MAX + 1];
    memset(text, '#', sizeof(text));
    size_t length = number_write_float(text, number);
    assert_true(length > 0 && length < NUMBER_TEXT_MAX);
    assert_int_equal(strlen(text), length);
    assert_int_equal(strspn(text, "0123456789.-+e"), length);
    assert_true(text[0] != '.' && text[length - 1] != '.');
    float again = strtof(text, NULL);
    if (memcmp(&again, &number, sizeof(number)) != 0)
        fail_msg("%a became %s", (double)number, text);
}

static void test_floats_come_back(void **state) {
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 400000; i++) {
        bits = bits * 1664525u + 1013904223u;
        uint32_t mixed = bits ^ bits >> 13;
        float number;
        memcpy(&number, &mixed, sizeof(number));
        if (isfinite(number))
            check(number);
        /* As embeddings are: below 1, and rarely small. */
        check((float)((double)(int32_t)mixed / 2147483648.0));
    }
}

static void test_edges(void **state) {
    (void)state;
    static const float edges[] = {
        0.0f,   -0.0f,       1.0f,      -1.0f,       0.1f,   0.5f,    10.0f,   100.0f,     9.5f,
        0.099f, 1e-5f,       9.9e-6f,   1.00001e-5f, 1e8f,   9.9e7f,  12.5f,   1e-4f,      0.001f,
        0.01f,  16777216.0f, 123456.7f, 1e38f,       1e-45f, 3.4e38f, 1.5e-9f, 0.99999994f};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        check(edges[i]);
        check(nextafterf(edges[i], 1e30f));
        check(nextafterf(edges[i], -1e30f));
    }
    static const struct {
        float number;
        const char *text;
    } rows[] = {{0.5f, "0.5"},
                {-0.25f, "-0.25"},
                {1.0f, "1"},
                {100.0f, "100"},
                {12.5f, "12.5"},
                {0.0625f, "0.0625"},
                {0.0078125f, "0.0078125"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[NUMBER_TEXT_MAX];
        number_write_float(text, rows[i].number);
        assert_string_equal(text, rows[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats_come_back),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
