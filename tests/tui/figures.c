/* The figures of a chat: the share of what memory gives never passes the whole. */
#include "support/support.h"

#include "tui/chat.h"

static void more_than_the_limit_is_the_new_limit(void **state) {
    (void)state;
    double limit = 20e9;
    assert_true(chat_share(10e9, 2.0, &limit) == 0.5);
    assert_true(chat_share(0.0, 0.0, &limit) == 0.0);
    assert_true(chat_share(29e9, 0.01, &limit) == 1.0); /* two tokens that came together */
    assert_true(limit == 20e9);
    assert_true(chat_share(29e9, 2.0, &limit) == 1.0);
    assert_true(limit == 29e9);
    assert_true(chat_share(14.5e9, 2.0, &limit) == 0.5); /* and it stays */
}

static void without_a_limit_there_is_no_share(void **state) {
    (void)state;
    double limit = 0.0;
    assert_true(chat_share(10e9, 2.0, &limit) < 0.0);
    assert_true(limit == 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_the_limit_is_the_new_limit),
        cmocka_unit_test(without_a_limit_there_is_no_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
