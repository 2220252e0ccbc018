/* server/keys: rates and quotas over time. The time is the test's own. */
#include "support/support.h"

#include "server/keys.h"

#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define KEY    "a-key-of-enough-bytes"

static ledger *usage;

static server_keys *read_key(const char *limits) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/key-rates.json", test_scratch_folder());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY "\",%s}]}", limits) > 0);
    assert_int_equal(fclose(file), 0);
    avo_error error = {0};
    server_keys *keys = NULL;
    assert_ok_error(ledger_open(NULL, 1, (ledger_say){NULL, NULL}, &usage, &error), &error);
    assert_ok_error(server_keys_read(path, usage, &keys, &error), &error);
    return keys;
}

static void forget(server_keys *keys) {
    server_keys_release(keys);
    ledger_close(usage);
}

/* Both clocks at so many nanoseconds. */
static bool admit(const server_key *key, uint64_t now_ns, ledger_verdict *verdict) {
    ledger_time now = {now_ns, (int64_t)(now_ns / 1000000)};
    return server_key_admit(key, &now, verdict);
}

static void charge(const server_key *key, uint64_t now_ns, uint64_t tokens) {
    ledger_time now = {now_ns, (int64_t)(now_ns / 1000000)};
    ledger_totals used = {.prompt_tokens = tokens};
    server_key_charge(key, &now, &used);
}

static void a_minute_may_come_at_once(void **state) {
    (void)state;
    server_keys *keys = read_key("\"requests_per_minute\":3");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    assert_non_null(key);
    ledger_verdict verdict;
    uint64_t now = 100 * SECOND;
    for (int i = 0; i < 3; i++)
        assert_true(admit(key, now, &verdict));
    for (int i = 0; i < 2; i++) { /* a refusal takes nothing */
        assert_false(admit(key, now, &verdict));
        assert_true(verdict.retry_seconds > 19.999 && verdict.retry_seconds < 20.001);
        assert_int_equal(verdict.refusal, LEDGER_RATE);
    }
    assert_false(admit(key, now + 19 * SECOND, &verdict));
    assert_true(verdict.retry_seconds > 0.999 && verdict.retry_seconds < 1.001);
    assert_true(admit(key, now + 21 * SECOND, &verdict));
    assert_false(admit(key, now + 22 * SECOND, &verdict));
    now += 100000 * SECOND; /* more than a minute's worth is never saved up */
    for (int i = 0; i < 4; i++)
        assert_int_equal(admit(key, now, &verdict), i < 3);
    forget(keys);
}

static void a_quota_begins_anew_with_its_window(void **state) {
    (void)state;
    server_keys *keys = read_key("\"token_quota\":12,\"quota_seconds\":3600");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    assert_non_null(key);
    ledger_verdict verdict;
    uint64_t now = 100 * SECOND;
    assert_true(admit(key, now, &verdict));
    charge(key, now, 11);
    assert_true(admit(key, now, &verdict));
    charge(key, now + 599 * SECOND, 1);
    assert_false(admit(key, now + 600 * SECOND, &verdict));
    assert_true(verdict.retry_seconds > 2999.999 && verdict.retry_seconds < 3000.001);
    assert_int_equal(verdict.refusal, LEDGER_QUOTA);
    assert_true(admit(key, now + 3600 * SECOND, &verdict));
    forget(keys);
}

static void requests_at_once_have_a_limit(void **state) {
    (void)state;
    server_keys *keys = read_key("\"concurrent_requests\":2,\"requests_per_minute\":10");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    ledger_verdict verdict;
    uint64_t now = 100 * SECOND;
    assert_true(admit(key, now, &verdict));
    assert_true(admit(key, now, &verdict));
    assert_int_equal(verdict.left.requests, 8);
    for (int i = 0; i < 20; i++) { /* a refusal takes nothing of the rate either */
        assert_false(admit(key, now, &verdict));
        assert_int_equal(verdict.refusal, LEDGER_CONCURRENT);
        assert_int_equal(verdict.left.requests, 8);
    }
    server_key_leave(key);
    assert_true(admit(key, now, &verdict));
    assert_false(admit(key, now, &verdict));
    forget(keys);
}

static void what_is_left_is_told(void **state) {
    (void)state;
    server_keys *keys =
        read_key("\"requests_per_minute\":60,\"token_quota\":100,\"quota_seconds\":600");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    ledger_verdict verdict;
    uint64_t now = 100 * SECOND;
    assert_true(admit(key, now, &verdict));
    charge(key, now, 30);
    assert_true(admit(key, now, &verdict));
    assert_int_equal(verdict.left.requests, 58);
    assert_int_equal(verdict.left.tokens, 70);
    assert_true(verdict.left.requests_reset_seconds > 1.999 &&
                verdict.left.requests_reset_seconds < 2.001);
    assert_true(admit(key, now + 90 * SECOND, &verdict));
    assert_int_equal(verdict.left.requests, 59);
    assert_true(verdict.left.tokens_reset_seconds > 509.999 &&
                verdict.left.tokens_reset_seconds < 510.001);
    charge(key, now + 90 * SECOND, 1000); /* a request that runs may go past it */
    assert_false(admit(key, now + 90 * SECOND, &verdict));
    assert_int_equal(verdict.left.tokens, 0);
    forget(keys);
}

static void adapters_have_owners(void **state) {
    (void)state;
    server_keys *keys = read_key("\"adapters\":[\"shared\"],\"own_adapters\":1");
    const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
    assert_true(server_key_allows_adapter(key, "a:mine"));
    assert_true(server_key_allows_adapter(key, "shared"));
    assert_false(server_key_allows_adapter(key, "other"));
    assert_false(server_key_allows_adapter(key, NULL));
    assert_false(server_key_allows_adapter(key, "b:theirs"));
    assert_false(server_key_allows_adapter(key, "ab:theirs"));
    assert_false(server_key_allows_adapter(key, ":nobody"));
    assert_true(server_key_allows_adapter(NULL, "b:theirs")); /* without keys */
    forget(keys);
}

/* No key fills the queue for others; where there is one alone there are no others. */
static void keys_without_a_limit_share_the_queue(void **state) {
    (void)state;
    for (int count = 1; count <= 2; count++) {
        const char *second = "\"priority\":8},{\"name\":\"b\",\"key\":\"another-key\","
                             "\"concurrent_requests\":5";
        server_keys *keys = read_key(count == 1 ? "\"priority\":8" : second);
        server_keys_share_out(keys, 3);
        const server_key *key = server_keys_find(keys, TEXT_LITERAL(KEY));
        ledger_verdict verdict;
        for (int i = 0; i < 10; i++)
            assert_int_equal(admit(key, SECOND, &verdict), count == 1 || i < 3);
        if (count == 2)
            assert_int_equal(server_key_limits(server_keys_at(keys, 1))->concurrent_max, 5);
        forget(keys);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_minute_may_come_at_once),
                                       cmocka_unit_test(a_quota_begins_anew_with_its_window),
                                       cmocka_unit_test(requests_at_once_have_a_limit),
                                       cmocka_unit_test(what_is_left_is_told),
                                       cmocka_unit_test(adapters_have_owners),
                                       cmocka_unit_test(keys_without_a_limit_share_the_queue)};
    return cmocka_run_group_tests_name("server/key_rates", tests, NULL, NULL);
}
