/* sample/: stop strings in text that comes in pieces, against a plain search. */
#include "support/support.h"

#include "base/clock.h"
#include "base/random.h"
#include "sample/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    char text[8192];
    size_t bytes;
    bool stopped;
    size_t found; /* which string */
} outcome;

/* Every end position in turn: the first at which a string is complete, of several the longest. */
static void naive(const char *text, size_t bytes, const char *const *stops, size_t count,
                  outcome *outcome) {
    outcome->stopped = false;
    size_t kept = bytes;
    for (size_t end = 1; end <= bytes && !outcome->stopped; end++)
        for (size_t i = 0; i < count; i++) {
            size_t length = strlen(stops[i]);
            if (length > end || memcmp(text + end - length, stops[i], length) != 0)
                continue;
            if (!outcome->stopped || end - length < kept) {
                kept = end - length;
                outcome->found = i;
            }
            outcome->stopped = true;
        }
    memcpy(outcome->text, text, kept);
    outcome->bytes = kept;
}

/* How much must be held at the end of a text without a stop: the longest end of it that begins a
 * stop string. */
static size_t naive_held(const char *text, size_t bytes, const char *const *stops, size_t count) {
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t length = 1; length < strlen(stops[i]) && length <= bytes; length++)
            if (memcmp(text + bytes - length, stops[i], length) == 0 && length > longest)
                longest = length;
    return longest;
}

static uint32_t number(uint64_t seed, uint64_t *at, uint32_t below) {
    return random_at(seed, 5, (*at)++).words[0] % below;
}

static stop_matcher *open_matcher(const char *const *stops, size_t count) {
    avo_error error = {0};
    stop_matcher *matcher = NULL;
    assert_ok_error(stop_matcher_open(stops, count, NULL, &matcher, &error), &error);
    return matcher;
}

/* Pushes `text` in random pieces. After each, what is out must be just what may be out. */
static void run_split(const char *text, size_t bytes, const char *const *stops, size_t count,
                      uint64_t seed, outcome *outcome) {
    uint64_t at = 1000000;
    stop_matcher *matcher = open_matcher(stops, count);
    avo_error error = {0};
    outcome->bytes = 0;
    outcome->stopped = false;
    size_t pushed = 0;
    while (pushed < bytes) {
        size_t piece = number(seed, &at, 6);
        if (piece > bytes - pushed)
            piece = bytes - pushed;
        const char *released = NULL;
        size_t released_bytes = 0;
        assert_ok_error(stop_matcher_push(matcher, text + pushed, piece, &released, &released_bytes,
                                          &outcome->stopped, &error),
                        &error);
        memcpy(outcome->text + outcome->bytes, released, released_bytes);
        outcome->bytes += released_bytes;
        pushed += piece;
        if (outcome->stopped)
            break;
        assert_int_equal(outcome->bytes, pushed - naive_held(text, pushed, stops, count));
    }
    const char *released = NULL;
    size_t released_bytes = 0;
    stop_matcher_finish(matcher, &released, &released_bytes);
    if (outcome->stopped)
        assert_int_equal(released_bytes, 0);
    const char *found = stop_matcher_found(matcher, &outcome->found);
    assert_int_equal(found != NULL, outcome->stopped);
    if (found != NULL)
        assert_string_equal(found, stops[outcome->found]);
    memcpy(outcome->text + outcome->bytes, released, released_bytes);
    outcome->bytes += released_bytes;
    stop_matcher_finish(matcher, &released, &released_bytes); /* nothing is given twice */
    assert_int_equal(released_bytes, 0);
    stop_matcher_close(matcher);
}

static size_t random_text(uint64_t seed, uint64_t *at, uint32_t characters, char *text) {
    static const char *const alphabet[] = {"a", "b", "é", "😀"};
    size_t bytes = 0;
    for (uint32_t i = 0; i < characters; i++) {
        /* Mostly the first two, so that strings overlap and occur. */
        uint32_t pick = number(seed, at, 8);
        const char *character = alphabet[pick < 4 ? 0 : pick < 6 ? 1 : pick - 4];
        memcpy(text + bytes, character, strlen(character));
        bytes += strlen(character);
    }
    text[bytes] = '\0';
    return bytes;
}

static void equals_plain_search(void **state) {
    (void)state;
    int stopped_runs = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        uint64_t at = 0;
        char strings[5][64];
        const char *stops[5];
        size_t count = number(seed, &at, 6);
        for (size_t i = 0; i < count; i++) {
            random_text(seed, &at, 1 + number(seed, &at, 7), strings[i]);
            stops[i] = strings[i];
        }
        char text[1024];
        size_t bytes = random_text(seed, &at, number(seed, &at, 60), text);
        outcome wanted;
        outcome got;
        naive(text, bytes, stops, count, &wanted);
        run_split(text, bytes, stops, count, seed, &got);
        stopped_runs += wanted.stopped;
        if (got.stopped != wanted.stopped || got.bytes != wanted.bytes ||
            memcmp(got.text, wanted.text, got.bytes) != 0 ||
            (got.stopped && got.found != wanted.found))
            fail_msg("seed %d: \"%.*s\" instead of \"%.*s\"", (int)seed, (int)got.bytes, got.text,
                     (int)wanted.bytes, wanted.text);
    }
    assert_true(stopped_runs > 1000 && stopped_runs < 3800); /* both outcomes were tested */
}

static void check_push(stop_matcher *matcher, const char *text, const char *wanted,
                       bool wanted_stop) {
    avo_error error = {0};
    const char *released = NULL;
    size_t bytes = 0;
    bool stopped = false;
    assert_ok_error(
        stop_matcher_push(matcher, text, strlen(text), &released, &bytes, &stopped, &error),
        &error);
    if (bytes != strlen(wanted) || memcmp(released, wanted, bytes) != 0)
        fail_msg("\"%s\" released \"%.*s\" instead of \"%s\"", text, (int)bytes, released, wanted);
    assert_int_equal(stopped, wanted_stop);
}

static void holds_and_releases(void **state) {
    (void)state;
    static const char *const stops[] = {"</s>", "\n\nUser:", "s>"};
    stop_matcher *matcher = open_matcher(stops, 3);
    check_push(matcher, "Hello", "Hello", false);
    check_push(matcher, " world\n", " world", false);
    check_push(matcher, "\n", "", false);
    check_push(matcher, "Us", "", false);
    check_push(matcher, "ual <", "\n\nUsual ", false);
    check_push(matcher, "", "", false);
    check_push(matcher, "/", "", false);
    check_push(matcher, "s> never seen", "", true); /* "</s>" and "s>" end together: the longer */
    check_push(matcher, "nor this", "", true);
    const char *released = NULL;
    size_t bytes = 1;
    stop_matcher_finish(matcher, &released, &bytes);
    assert_int_equal(bytes, 0);
    stop_matcher_close(matcher);
    matcher = open_matcher(stops, 3);
    check_push(matcher, "end </", "end ", false);
    stop_matcher_finish(matcher, &released, &bytes);
    assert_int_equal(bytes, 2);
    assert_memory_equal(released, "</", 2);
    stop_matcher_close(matcher);
}

static void refuses(void **state) {
    (void)state;
    avo_error error = {0};
    stop_matcher *matcher = NULL;
    char longest[STOP_STRING_BYTES_MAX + 2];
    memset(longest, 'x', sizeof(longest));
    longest[STOP_STRING_BYTES_MAX] = '\0';
    const char *stops[STOP_STRINGS_MAX + 1];
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++)
        stops[i] = longest;
    assert_ok_error(stop_matcher_open(stops, STOP_STRINGS_MAX, NULL, &matcher, &error), &error);
    stop_matcher_close(matcher);
    assert_refused(stop_matcher_open(stops, STOP_STRINGS_MAX + 1, NULL, &matcher, &error),
                   AVO_ERROR_LIMIT, &error, "65 stop strings");
    assert_null(matcher);
    longest[STOP_STRING_BYTES_MAX] = 'x';
    longest[STOP_STRING_BYTES_MAX + 1] = '\0';
    assert_refused(stop_matcher_open(stops, 1, NULL, &matcher, &error), AVO_ERROR_LIMIT, &error,
                   "1024 bytes");
    static const char *const bad[][2] = {
        {"", "is empty"}, {"\xC3", "UTF-8"}, {"a\xFF", "UTF-8"}, {"\xED\xA0\x80", "UTF-8"}};
    for (size_t i = 0; i < 4; i++) {
        const char *const pair[] = {"fine", bad[i][0]};
        assert_refused(stop_matcher_open(pair, 2, NULL, &matcher, &error), AVO_ERROR_ARGUMENT,
                       &error, bad[i][1]);
        assert_refused(stop_matcher_open(pair, 2, NULL, &matcher, &error), AVO_ERROR_ARGUMENT,
                       &error, "stop string 2");
    }
}

/* Work of this thread for a long text of one letter; *held: bytes that it keeps at its end. */
static double push_seconds(const char *const *stops, char letter, size_t *held) {
    static char text[200000];
    memset(text, letter, sizeof(text));
    stop_matcher *matcher = open_matcher(stops, 8);
    avo_error error = {0};
    *held = sizeof(text);
    uint64_t begin = clock_thread_ns();
    for (size_t at = 0; at < sizeof(text); at += 4) {
        const char *released = NULL;
        size_t released_bytes = 0;
        bool stopped = false;
        assert_ok_error(
            stop_matcher_push(matcher, text + at, 4, &released, &released_bytes, &stopped, &error),
            &error);
        assert_false(stopped);
        *held -= released_bytes;
    }
    double seconds = clock_seconds(begin, clock_thread_ns());
    stop_matcher_close(matcher);
    return seconds;
}

/* The worst case of a naive matcher: every position nearly matches all strings. */
static void is_linear(void **state) {
    (void)state;
    char strings[8][STOP_STRING_BYTES_MAX + 1];
    const char *stops[8];
    for (size_t i = 0; i < 8; i++) {
        memset(strings[i], 'a', STOP_STRING_BYTES_MAX);
        strings[i][STOP_STRING_BYTES_MAX - 1] = (char)('b' + i);
        strings[i][STOP_STRING_BYTES_MAX] = '\0';
        stops[i] = strings[i];
    }
    size_t held;
    double easy = push_seconds(stops, 'x', &held);
    assert_int_equal(held, 0);
    double hard = push_seconds(stops, 'a', &held);
    assert_int_equal(held, STOP_STRING_BYTES_MAX - 1);
    assert_true(hard < 100.0 * easy); /* a naive search needs a thousand times as long */
}

static void survives_allocation_failures(void **state) {
    (void)state;
    static const char *const stops[] = {"one", "two"};
    test_allocator counter;
    avo_error error = {0};
    stop_matcher *matcher = NULL;
    test_allocator_init(&counter);
    assert_ok_error(stop_matcher_open(stops, 2, &counter.allocator, &matcher, &error), &error);
    size_t allocations = counter.allocations;
    stop_matcher_close(matcher);
    assert_int_equal(counter.live, 0);
    for (size_t fail_at = 1; fail_at <= allocations; fail_at++) {
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        assert_refused(stop_matcher_open(stops, 2, &counter.allocator, &matcher, &error),
                       AVO_ERROR_MEMORY, &error, "stop string");
        assert_int_equal(counter.live, 0);
    }
    /* A push that finds no memory leaves the matcher usable. */
    test_allocator_init(&counter);
    assert_ok_error(stop_matcher_open(stops, 2, &counter.allocator, &matcher, &error), &error);
    char *large = calloc(1, 100000);
    memset(large, 'x', 100000);
    counter.fail_at = counter.allocations + 1;
    const char *released = NULL;
    size_t bytes = 0;
    bool stopped = false;
    assert_refused(stop_matcher_push(matcher, large, 100000, &released, &bytes, &stopped, &error),
                   AVO_ERROR_MEMORY, &error, "stop string");
    check_push(matcher, "x on", "x ", false);
    check_push(matcher, "e", "", true);
    stop_matcher_close(matcher);
    assert_int_equal(counter.live, 0);
    free(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_plain_search),
        cmocka_unit_test(holds_and_releases),
        cmocka_unit_test(refuses),
        cmocka_unit_test(is_linear),
        cmocka_unit_test(survives_allocation_failures),
    };
    return cmocka_run_group_tests_name("sample/stop", tests, NULL, NULL);
}
