/* server/keys: rates and quotas over time. The time is the test's own. */
#include "support/support.h"

#include "server/keys.h"

#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define KEY    "a-key-of-enough-bytes"

static server_keys *read_key(const char *limits) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/key-rates.json", test_scratch_folder());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY "\",%s}]}", limits) > 0);
    assert_int_equal(fclose(file), 0);
    avo_error error = {0};
    server_keys *keys = NULL;
    assert_ok_error(server_keys_read(path, NULL, &keys, &error), &error);
    return keys;
}

static void a_minute_may_come_at_once(void **state) {
    (void)state;
    server_keys *keys = read_key("\"requests_per_minute\":3");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    assert_non_null(key);
    double retry = 0.0;
    const char *what = "";
    uint64_t now = 100 * SECOND;
    for (int i = 0; i < 3; i++)
        assert_true(server_key_admit(key, now, &retry, &what));
    for (int i = 0; i < 2; i++) { /* a refusal takes nothing */
        assert_false(server_key_admit(key, now, &retry, &what));
        assert_true(retry > 19.999 && retry < 20.001);
        assert_string_equal(what, "this key exceeds its request rate");
    }
    assert_false(server_key_admit(key, now + 19 * SECOND, &retry, &what));
    assert_true(retry > 0.999 && retry < 1.001);
    assert_true(server_key_admit(key, now + 21 * SECOND, &retry, &what));
    assert_false(server_key_admit(key, now + 22 * SECOND, &retry, &what));
    now += 100000 * SECOND; /* more than a minute's worth is never saved up */
    for (int i = 0; i < 4; i++)
        assert_int_equal(server_key_admit(key, now, &retry, &what), i < 3);
    server_keys_release(keys);
}

static void a_quota_begins_anew_with_its_window(void **state) {
    (void)state;
    server_keys *keys = read_key("\"token_quota\":12,\"quota_seconds\":3600");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    assert_non_null(key);
    double retry = 0.0;
    const char *what = "";
    uint64_t now = 100 * SECOND;
    assert_true(server_key_admit(key, now, &retry, &what));
    server_key_charge(key, now, 11);
    assert_true(server_key_admit(key, now, &retry, &what));
    server_key_charge(key, now + 599 * SECOND, 1);
    assert_false(server_key_admit(key, now + 600 * SECOND, &retry, &what));
    assert_true(retry > 2999.999 && retry < 3000.001);
    assert_string_equal(what, "this key has used its token quota");
    assert_true(server_key_admit(key, now + 3600 * SECOND, &retry, &what));
    server_keys_release(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_minute_may_come_at_once),
                                       cmocka_unit_test(a_quota_begins_anew_with_its_window)};
    return cmocka_run_group_tests_name("server/key_rates", tests, NULL, NULL);
}
