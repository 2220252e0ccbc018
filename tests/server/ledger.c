/* server/ledger: what is counted, what survives an end of the process at any point, and what a
 * damaged file does. The time is the test's own. */
#include "support/support.h"

#include "base/file.h"
#include "server/ledger.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAY INT64_C(86400000)

static const ledger_limits quota = {.token_quota = 1000000, .quota_seconds = 86400.0};
static const ledger_say nobody = {NULL, NULL};

static const char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    return path;
}

static ledger *open_ledger(const char *path) {
    avo_error error = {0};
    ledger *opened = NULL;
    assert_ok_error(ledger_open(path, 2, nobody, &opened, &error), &error);
    return opened;
}

static void charge(ledger *ledger, const char *name, int64_t unix_ms, uint64_t tokens) {
    ledger_account *account = ledger_account_of(ledger, text_from(name));
    assert_non_null(account);
    ledger_time now = {1, unix_ms};
    ledger_totals usage = {.requests = 1, .prompt_tokens = tokens, .new_tokens = 1};
    ledger_charge(account, &quota, &now, &usage);
}

typedef struct sums {
    ledger_totals totals;
    uint32_t rows;
} sums;

static bool add_row(void *context, const ledger_row *row) {
    sums *sum = context;
    sum->totals.requests += row->totals.requests;
    sum->totals.prompt_tokens += row->totals.prompt_tokens;
    sum->totals.new_tokens += row->totals.new_tokens;
    sum->rows++;
    return true;
}

static sums sum_of(ledger *ledger, const char *name, uint32_t first, uint32_t last) {
    sums sum = {0};
    ledger_rows(ledger, name == NULL ? NULL : ledger_account_of(ledger, text_from(name)), first,
                last, add_row, &sum);
    return sum;
}

static uint64_t window_of(ledger *ledger, const char *name, int64_t unix_ms) {
    int64_t begin = 0;
    uint64_t tokens = 0;
    ledger_time now = {1, unix_ms};
    ledger_window(ledger_account_of(ledger, text_from(name)), &quota, &now, &begin, &tokens);
    return tokens;
}

static void totals_and_windows_survive(void **state) {
    (void)state;
    const char *path = path_of("survive.log");
    ledger *ledger = open_ledger(path);
    charge(ledger, "a", 10 * DAY, 7);
    charge(ledger, "a", 10 * DAY + 1, 7);
    charge(ledger, "b", 10 * DAY, 100);
    charge(ledger, "a", 11 * DAY - 1, 5);
    ledger_close(ledger);
    for (int round = 0; round < 2; round++) { /* reading and writing again changes nothing */
        ledger = open_ledger(path);
        assert_int_equal(sum_of(ledger, "a", 0, UINT32_MAX).totals.prompt_tokens, 19);
        assert_int_equal(sum_of(ledger, "a", 0, UINT32_MAX).totals.requests, 3);
        assert_int_equal(sum_of(ledger, "b", 10, 10).totals.prompt_tokens, 100);
        assert_int_equal(sum_of(ledger, NULL, 0, UINT32_MAX).rows, 2);
        assert_int_equal(window_of(ledger, "a", 11 * DAY - 1), 22);
        ledger_close(ledger);
    }
    ledger = open_ledger(path);
    assert_int_equal(window_of(ledger, "a", 11 * DAY), 0); /* its day is over */
    charge(ledger, "a", 12 * DAY, 1);
    assert_int_equal(sum_of(ledger, "a", 0, UINT32_MAX).rows, 2);
    assert_int_equal(window_of(ledger, "b", 9 * DAY - 1), 0); /* from a future that is no more */
    ledger_close(ledger);
}

/* Records whose state after each is known: account "a" has n requests. */
static size_t write_records(const char *path, size_t *ends, size_t count) {
    uint8_t bytes[LEDGER_RECORD_MAX];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    size_t at = LEDGER_HEADER_BYTES;
    assert_int_equal(fwrite(LEDGER_HEADER, 1, LEDGER_HEADER_BYTES, file), LEDGER_HEADER_BYTES);
    for (size_t i = 0; i < count; i++) {
        ledger_record record = {.kind = LEDGER_DAY,
                                .name = text_from("a"),
                                .day = 10,
                                .totals = {.requests = i + 1, .prompt_tokens = 3 * (i + 1)}};
        size_t size = ledger_format_write(&record, bytes);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        ends[i] = at += size;
    }
    assert_int_equal(fclose(file), 0);
    return at;
}

#define RECORDS 4

static uint64_t requests_in(const char *path) {
    ledger *ledger = open_ledger(path);
    uint64_t requests = sum_of(ledger, "a", 0, UINT32_MAX).totals.requests;
    ledger_close(ledger);
    return requests;
}

typedef struct last_seen {
    uint64_t requests;
} last_seen;

static bool see_record(void *context, const ledger_record *record) {
    ((last_seen *)context)->requests = record->totals.requests;
    return true;
}

static size_t read_records(const char *path, uint8_t **bytes) {
    size_t ends[RECORDS], size = write_records(path, ends, RECORDS);
    *bytes = malloc(size);
    FILE *file = fopen(path, "rb");
    assert_int_equal(fread(*bytes, 1, size, file), size);
    fclose(file);
    return size;
}

static void a_torn_tail_loses_what_is_torn(void **state) {
    (void)state;
    uint8_t *bytes = NULL;
    const char *path = path_of("torn.log");
    size_t ends[RECORDS], size = read_records(path, &bytes);
    write_records(path, ends, RECORDS);
    for (size_t length = 0; length <= size; length++) {
        uint64_t whole = 0;
        last_seen seen = {0};
        while (whole < RECORDS && ends[whole] <= length)
            whole++;
        size_t sound = ledger_format_read((bytes_view){bytes, length}, see_record, &seen);
        size_t begin = length >= LEDGER_HEADER_BYTES ? LEDGER_HEADER_BYTES : 0;
        assert_int_equal(sound, whole > 0 ? ends[whole - 1] : begin);
        assert_int_equal(seen.requests, whole);
        if (length % 29 != 5)
            continue;
        assert_int_equal(write_records(path, ends, RECORDS), size);
        assert_int_equal(truncate(path, (off_t)length), 0);
        assert_int_equal(requests_in(path), whole);
        assert_int_equal(requests_in(path), whole); /* and it was repaired */
    }
    free(bytes);
}

static void a_flipped_bit_is_never_believed(void **state) {
    (void)state;
    uint8_t *bytes = NULL;
    const char *path = path_of("flipped.log");
    size_t ends[RECORDS], size = read_records(path, &bytes);
    write_records(path, ends, RECORDS);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        uint64_t whole = 0;
        last_seen seen = {0};
        while (ends[whole] <= bit / 8)
            whole++;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        size_t sound = ledger_format_read((bytes_view){bytes, size}, see_record, &seen);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        bool header = bit / 8 < LEDGER_HEADER_BYTES; /* up to the record with the bit, no further */
        assert_int_equal(sound, header ? 0 : whole > 0 ? ends[whole - 1] : LEDGER_HEADER_BYTES);
        assert_int_equal(seen.requests, whole);
    }
    free(bytes);
}

static void what_is_no_log_is_refused(void **state) {
    (void)state;
    const char *path = path_of("other.log");
    avo_error error = {0};
    ledger *ledger = NULL;
    assert_ok_error(file_write(path, "{\"not\": \"ours\"}", 15, &error), &error);
    assert_int_equal(ledger_open(path, 0, nobody, &ledger, &error), AVO_ERROR_FORMAT);
    assert_non_null(strstr(error.text, "other.log"));
    assert_null(ledger);
    /* Damage that no interrupted write explains: nothing is thrown away. */
    size_t ends[RECORDS], size = write_records(path, ends, RECORDS);
    assert_int_equal(truncate(path, (off_t)size + (5 << 20)), 0);
    assert_int_equal(ledger_open(path, 0, nobody, &ledger, &error), AVO_ERROR_FORMAT);
    assert_non_null(strstr(error.text, "truncate -s"));
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, (off_t)size + (5 << 20));
}

/* Charges one token after the other, and says after each flush how many there are. */
static void charge_until_killed(const char *path, int pipe_end) {
    ledger *ledger = open_ledger(path);
    uint64_t had = sum_of(ledger, "a", 0, UINT32_MAX).totals.requests;
    for (uint64_t i = had + 1;; i++) {
        charge(ledger, "a", 10 * DAY, 2);
        if (i % 3 == 0 && ledger_flush(ledger) && write(pipe_end, &i, sizeof(i)) != sizeof(i))
            _exit(1);
    }
}

static void a_killed_process_keeps_what_was_flushed(void **state) {
    (void)state;
    const char *path = path_of("killed.log");
    uint64_t least = 0;
    for (unsigned round = 0; round < 15; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            charge_until_killed(path, ends[1]);
        }
        close(ends[1]);
        for (unsigned i = 0; i < 1 + round * 7 % 40; i++) /* then at any point of the next ones */
            assert_int_equal(read(ends[0], &least, sizeof(least)), sizeof(least));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        for (uint64_t more; read(ends[0], &more, sizeof(more)) == sizeof(more);)
            least = more;
        close(ends[0]);
        ledger *ledger = open_ledger(path);
        sums sum = sum_of(ledger, "a", 0, UINT32_MAX);
        assert_true(sum.totals.requests >= least);
        assert_int_equal(sum.totals.prompt_tokens, 2 * sum.totals.requests);
        assert_int_equal(window_of(ledger, "a", 10 * DAY), 3 * sum.totals.requests);
        ledger_close(ledger);
    }
    assert_true(least > 50);
}

/* The log is written anew when it is much longer than what is in it. */
static void the_log_stays_short(void **state) {
    (void)state;
    const char *path = path_of("short.log");
    ledger *ledger = open_ledger(path);
    struct stat facts;
    off_t longest = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        charge(ledger, "a", 10 * DAY, 1);
        if (i % 2 == 0)
            assert_true(ledger_flush(ledger));
        assert_int_equal(stat(path, &facts), 0);
        longest = facts.st_size > longest ? facts.st_size : longest;
    }
    ledger_close(ledger);
    assert_true(longest > 1 << 20 && longest < 2 << 20);
    assert_int_equal(requests_in(path), 30000);
}

static void keep_line(const void *context, const char *line) {
    snprintf((char *)context, 256, "%s", line);
}

/* No file may grow: as a full disk. What could not be written is written as a whole later. */
static void a_disk_that_fails_is_told_and_tried_again(void **state) {
    (void)state;
    static char said[256];
    const char *path = path_of("full.log");
    avo_error error = {0};
    ledger *ledger = NULL;
    struct rlimit before, none = {0};
    assert_ok_error(ledger_open(path, 0, (ledger_say){keep_line, said}, &ledger, &error), &error);
    charge(ledger, "a", 10 * DAY, 1);
    assert_true(ledger_flush(ledger));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    charge(ledger, "a", 10 * DAY, 1);
    bool flushed = ledger_flush(ledger);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(flushed);
    assert_non_null(strstr(said, "usage is not written"));
    ledger_close(ledger); /* tries once more */
    assert_int_equal(requests_in(path), 2);
    assert_int_equal(ledger_open("/nowhere/at/all", 0, nobody, &ledger, &error), AVO_ERROR_IO);
    assert_null(ledger);
}

typedef struct labels {
    char text[256];
} labels;

static void see_label(void *context, const ledger_metric *metric) {
    labels *seen = context;
    size_t at = strlen(seen->text);
    snprintf(seen->text + at, sizeof(seen->text) - at, "%s=%llu ", metric->name,
             (unsigned long long)metric->totals.requests);
}

static void metrics_have_a_bounded_number_of_labels(void **state) {
    (void)state;
    ledger *ledger = open_ledger(NULL);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        charge(ledger, names[i], DAY, 1);
        ledger_label(ledger_account_of(ledger, text_from(names[i])));
    }
    charge(ledger, "d", DAY, 1);
    labels seen = {0};
    ledger_metrics(ledger, see_label, &seen);
    assert_string_equal(seen.text, "a=1 b=1 other=3 ");
    ledger_close(ledger);
}

static void accounts_and_days_have_a_maximum(void **state) {
    (void)state;
    ledger *ledger = open_ledger(NULL);
    char name[32];
    for (unsigned i = 0; i < LEDGER_ACCOUNTS_MAX; i++) {
        snprintf(name, sizeof(name), "key-%u", i);
        assert_non_null(ledger_account_of(ledger, text_from(name)));
    }
    assert_null(ledger_account_of(ledger, text_from("one more")));
    assert_null(ledger_account_of(ledger, (text_view){"", 0}));
    for (unsigned day = 0; day < LEDGER_DAYS_MAX + 10; day++)
        charge(ledger, day % 2 == 0 ? "key-0" : "key-1", day * DAY, 1);
    sums all = sum_of(ledger, NULL, 0, UINT32_MAX);
    assert_int_equal(all.rows, LEDGER_DAYS_MAX);
    assert_int_equal(sum_of(ledger, NULL, 0, 9).rows, 0); /* the oldest ones are forgotten */
    ledger_close(ledger);
}

static void days_are_read_as_they_are_written(void **state) {
    (void)state;
    char text[16];
    uint32_t day = 0;
    for (uint32_t i = 0; i < 60000; i += 17) {
        ledger_day_text(i, text);
        assert_true(ledger_day_read(text_from(text), &day));
        assert_int_equal(day, i);
    }
    static const char *const wrong[] = {"",           "2026-1-01",  "2026-13-01", "2026-02-30",
                                        "2025-02-29", "1969-12-31", "2026/01/01", "2026-01-0x",
                                        "2026-00-10", "2026-01-00", "2026-01-011"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(ledger_day_read(text_from(wrong[i]), &day));
    assert_true(ledger_day_read(text_from("2024-02-29"), &day));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(totals_and_windows_survive),
                                       cmocka_unit_test(a_torn_tail_loses_what_is_torn),
                                       cmocka_unit_test(a_flipped_bit_is_never_believed),
                                       cmocka_unit_test(what_is_no_log_is_refused),
                                       cmocka_unit_test(a_killed_process_keeps_what_was_flushed),
                                       cmocka_unit_test(the_log_stays_short),
                                       cmocka_unit_test(a_disk_that_fails_is_told_and_tried_again),
                                       cmocka_unit_test(metrics_have_a_bounded_number_of_labels),
                                       cmocka_unit_test(accounts_and_days_have_a_maximum),
                                       cmocka_unit_test(days_are_read_as_they_are_written)};
    return cmocka_run_group_tests_name("server/ledger", tests, NULL, NULL);
}
