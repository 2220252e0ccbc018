/* spec/suffix: against a naive search through the whole stream; forgetting, breaks, loops, limits,
 * degenerate trees, and each allocation failing. */
#include "support/support.h"

#include "base/random.h"
#include "spec/suffix_int.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM = 4000, DRAFTS = 9 };

typedef struct stream {
    int32_t tokens[STREAM]; /* SUFFIX_BREAK: a break */
    uint32_t owners[STREAM];
    uint32_t count;
    uint32_t window, length_max;
} stream;

static uint32_t draw(uint64_t *counter, uint32_t below) {
    return random_at(11, 3, (*counter)++).words[0] % below;
}

/* Tokens of `context` that equal those before `at`, both read backwards up to a break. */
static uint32_t shared(const stream *s, uint32_t at, const int32_t *context, uint32_t count) {
    uint32_t length = 0;
    while (length < s->length_max && length < at && length < count) {
        int32_t token = s->tokens[at - 1 - length];
        if (token == SUFFIX_BREAK || token != context[count - 1 - length])
            break;
        length++;
    }
    return length;
}

/* The longest context that occurred before, at its most recent occurrence among positions from …
 * to − 1. */
static suffix_found naive_find(const stream *s, uint32_t from, uint32_t to, uint32_t owner,
                               const int32_t *context, uint32_t count) {
    suffix_found best = {0};
    for (uint32_t at = to; at-- > from;) {
        if (owner != 0 && (s->tokens[at] == SUFFIX_BREAK || s->owners[at] != owner))
            continue;
        uint32_t length = shared(s, at, context, count);
        if (length == best.length && length > 0)
            best.seen++;
        if (length > best.length)
            best = (suffix_found){.length = length, .at = at, .seen = 1};
    }
    return best;
}

static uint32_t naive_copy(const stream *s, uint32_t at, uint32_t most, bool onward,
                           int32_t *drafts) {
    for (uint32_t i = 0; i < most; i++) {
        if (at + i >= s->count && !onward)
            return i;
        drafts[i] = at + i < s->count ? s->tokens[at + i] : drafts[at + i - s->count];
        if (drafts[i] == SUFFIX_BREAK)
            return i;
    }
    return most;
}

static void expect(const stream *s, const suffix_match *match, const int32_t *drafts, uint32_t most,
                   const suffix_found *wanted, bool onward) {
    int32_t wanted_drafts[DRAFTS];
    assert_int_equal(match->length, wanted->length);
    if (wanted->length == 0) {
        assert_int_equal(match->count, 0);
        assert_int_equal(match->seen, 0);
        return;
    }
    assert_in_range(match->seen, 1, wanted->seen);
    assert_int_equal(match->count, naive_copy(s, wanted->at, most, onward, wanted_drafts));
    assert_memory_equal(drafts, wanted_drafts, match->count * sizeof(*drafts));
}

/* The window counts positions back from the end of the stream. */
static uint32_t window_begin(const stream *s) {
    return s->count > s->window ? s->count - s->window : 0;
}

static void push_and_expect(suffix_index *index, stream *s, int32_t token, uint32_t most) {
    int32_t drafts[DRAFTS];
    s->tokens[s->count++] = token;
    if (token == SUFFIX_BREAK)
        suffix_index_break(index);
    else
        suffix_index_push(index, token);
    suffix_match match = suffix_index_propose(index, most, drafts);
    suffix_found wanted = naive_find(s, window_begin(s), s->count, 0, s->tokens, s->count);
    expect(s, &match, drafts, most, &wanted, true);
    assert_int_equal(suffix_index_length(index), s->count - window_begin(s));
}

static void one_stream(uint32_t alphabet, uint32_t window, uint32_t length_max, uint32_t breaks,
                       uint64_t seed) {
    static stream s;
    s = (stream){.window = window, .length_max = length_max};
    suffix_options options = {.tokens_max = window, .length_max = length_max};
    suffix_index *index;
    assert_ok(suffix_options_open(&options, NULL, &index, NULL));
    uint64_t counter = seed << 32;
    uint32_t total = 700 + draw(&counter, 300);
    for (int round = 0; round < 2; round++) { /* the second one after clearing */
        while (s.count < total) {
            int32_t token = (int32_t)draw(&counter, alphabet);
            if (breaks > 0 && draw(&counter, breaks) == 0)
                token = SUFFIX_BREAK;
            else if (s.count > 40 && draw(&counter, 30) == 0) { /* copies of earlier text */
                uint32_t from = draw(&counter, s.count - 30);
                for (uint32_t i = 0; i < 30 && s.count < total; i++)
                    push_and_expect(index, &s, s.tokens[from + i], draw(&counter, DRAFTS));
                continue;
            }
            push_and_expect(index, &s, token, draw(&counter, DRAFTS + 1));
        }
        suffix_index_clear(index);
        assert_int_equal(suffix_index_length(index), 0);
        s.count = 0;
        total = 1 + draw(&counter, 200);
    }
    suffix_index_close(index);
}

static void test_naive(void **state) {
    (void)state;
    static const uint32_t alphabets[] = {1, 2, 3, 50, 30000};
    static const uint32_t windows[] = {1, 2, 3, 31, 32, 33, 100, 500, 5000};
    static const uint32_t lengths[] = {1, 2, 3, 16, 31, 32};
    static const uint32_t breaks[] = {0, 2, 9, 100};
    uint64_t seed = 1;
    for (size_t a = 0; a < 5; a++)
        for (size_t w = 0; w < 9; w++)
            for (size_t l = 0; l < 6; l++, seed++)
                one_stream(alphabets[a], windows[w], lengths[l], breaks[seed % 4], seed);
}

/* Every stream of up to 12 tokens and breaks over two tokens, in a window of all of it and of 3. */
static void test_exhaustive(void **state) {
    (void)state;
    static stream s;
    for (uint32_t window = 3; window <= 12; window += 9)
        for (uint32_t length = 1; length <= 8; length++) {
            suffix_index *index;
            assert_ok(suffix_index_open(window, NULL, &index, NULL));
            uint32_t streams = 1;
            for (uint32_t i = 0; i < length; i++)
                streams *= 3;
            for (uint32_t number = 0; number < streams; number++) {
                s = (stream){.window = window, .length_max = SUFFIX_LENGTH_MAX};
                suffix_index_clear(index);
                for (uint32_t i = 0, digits = number; i < length; i++, digits /= 3)
                    push_and_expect(index, &s, (int32_t)(digits % 3) - 1, 4);
            }
            suffix_index_close(index);
        }
}

/* Texts of several owners, read from elsewhere. */
static void test_owners(void **state) {
    (void)state;
    static stream s;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t counter = seed << 32;
        uint32_t alphabet = 1 + draw(&counter, 6), window = 20 + draw(&counter, 900);
        uint32_t length_max = 1 + draw(&counter, SUFFIX_LENGTH_MAX);
        s = (stream){.window = window, .length_max = length_max};
        suffix_options options = {.tokens_max = window, .length_max = length_max, .owners = true};
        suffix_index *index;
        assert_ok(suffix_options_open(&options, NULL, &index, NULL));
        while (s.count < 1500) {
            uint32_t owner = 1 + draw(&counter, 3);
            suffix_index_begin(index, owner);
            s.owners[s.count] = owner;
            s.tokens[s.count++] = SUFFIX_BREAK;
            for (uint32_t i = draw(&counter, 60); i > 0; i--) {
                int32_t token = (int32_t)draw(&counter, alphabet);
                suffix_index_push(index, token);
                s.owners[s.count] = owner;
                s.tokens[s.count++] = token;
            }
            for (int i = 0; i < 20; i++) {
                int32_t context[64], drafts[DRAFTS];
                uint32_t count = draw(&counter, 64), reader = 1 + draw(&counter, 4);
                uint32_t from = draw(&counter, s.count);
                for (uint32_t k = 0; k < count; k++)
                    context[k] = from + k < s.count && s.tokens[from + k] >= 0
                                     ? s.tokens[from + k]
                                     : (int32_t)draw(&counter, alphabet);
                suffix_match match =
                    suffix_index_propose_of(index, reader, context, count, DRAFTS, drafts);
                suffix_found wanted =
                    naive_find(&s, window_begin(&s), s.count, reader, context, count);
                expect(&s, &match, drafts, DRAFTS, &wanted, false);
            }
        }
        suffix_index_close(index);
    }
}

static suffix_vote vote_after(suffix_index *index, const char *text) {
    int32_t drafts[1];
    suffix_index_clear(index);
    for (; *text != 0; text++)
        suffix_index_push(index, *text);
    return suffix_index_propose(index, 1, drafts).vote;
}

static void test_vote(void **state) {
    (void)state;
    suffix_index *index;
    assert_ok(suffix_index_open(100, NULL, &index, NULL));
    assert_int_equal(vote_after(index, "axa"), SUFFIX_ALONE);
    assert_int_equal(vote_after(index, "ayaxa"), SUFFIX_DISPUTED);
    assert_int_equal(vote_after(index, "1ax2ax3a"), SUFFIX_AGREED);
    assert_int_equal(vote_after(index, "1ax2ay3a"), SUFFIX_DISPUTED);
    assert_int_equal(vote_after(index, "1ax2ayay1a"), SUFFIX_DISPUTED); /* "1a" x, "a" y */
    assert_int_equal(vote_after(index, "1ax2ayax1a"), SUFFIX_AGREED);
    assert_int_equal(vote_after(index, "1ax2ay1a"), SUFFIX_DISPUTED);
    suffix_index_close(index);
}

static void test_loop(void **state) {
    (void)state;
    suffix_index *index;
    int32_t drafts[DRAFTS];
    assert_ok(suffix_index_open(100, NULL, &index, NULL));
    static const int32_t loop[] = {7, 8, 9, 7};
    for (size_t i = 0; i < 4; i++)
        suffix_index_push(index, loop[i]);
    suffix_match match = suffix_index_propose(index, DRAFTS, drafts);
    static const int32_t wanted[DRAFTS] = {8, 9, 7, 8, 9, 7, 8, 9, 7};
    assert_int_equal(match.length, 1);
    assert_int_equal(match.count, DRAFTS);
    assert_memory_equal(drafts, wanted, sizeof(wanted));
    suffix_index_break(index);
    assert_int_equal(suffix_index_propose(index, DRAFTS, drafts).length, 0);
    /* The most recent occurrence ended its document: a match without drafts. */
    suffix_index_push(index, 7);
    match = suffix_index_propose(index, DRAFTS, drafts);
    assert_int_equal(match.length, 1);
    assert_int_equal(match.count, 0);
    suffix_index_close(index);
}

static int by_order(const void *a, const void *b) {
    uint32_t x = suffix_scatter((uint32_t) * (const int32_t *)a);
    uint32_t y = suffix_scatter((uint32_t) * (const int32_t *)b);
    return x < y ? -1 : x > y;
}

/* A tree that is one long chain, "x c" for x in ascending order. Then the first x again, which
 * hangs at its end: found where the walk may visit the whole chain, unknown where it is one longer.
 */
static void test_degenerate(void **state) {
    (void)state;
    enum { COMMON = 1000000 };
    int32_t chain[SUFFIX_STEPS_MAX + 1], drafts[1];
    suffix_index *index;
    assert_ok(suffix_index_open(1 << 16, NULL, &index, NULL));
    for (uint32_t count = SUFFIX_STEPS_MAX - 1; count <= SUFFIX_STEPS_MAX + 1; count++) {
        suffix_index_clear(index);
        for (uint32_t i = 0; i < count; i++)
            chain[i] = (int32_t)i;
        qsort(chain, count, sizeof(*chain), by_order);
        for (uint32_t i = 0; i <= count; i++) {
            suffix_index_push(index, chain[i % count]);
            suffix_index_push(index, COMMON);
        }
        suffix_match match = suffix_index_propose(index, 1, drafts);
        assert_int_equal(match.length, count > SUFFIX_STEPS_MAX ? 1 : 2);
        assert_int_equal(drafts[0], count > SUFFIX_STEPS_MAX ? chain[0] : chain[1]);
    }
    suffix_index_close(index);
}

/* Positions come to their end: everything is forgotten, nothing old shows through. */
static void test_positions_end(void **state) {
    (void)state;
    suffix_index *index;
    int32_t drafts[1];
    assert_ok(suffix_index_open(64, NULL, &index, NULL));
    uint32_t laps = (UINT32_MAX - 200) / index->capacity;
    index->end = laps * index->capacity;
    index->lap = index->end;
    suffix_index_break(index);
    bool cleared = false;
    for (uint32_t i = 0; i < 1000; i++) {
        suffix_index_push(index, (int32_t)(i % 5));
        cleared |= index->end < 10;
        suffix_match match = suffix_index_propose(index, 1, drafts);
        if (match.count == 1)
            assert_int_equal(drafts[0], (i + 1) % 5);
        else
            assert_true(i < 5 || index->end < 10);
    }
    assert_true(cleared);
    suffix_index_close(index);
}

static void test_limits(void **state) {
    (void)state;
    suffix_index *index = NULL;
    avo_error error;
    assert_refused(suffix_index_open(0, NULL, &index, &error), AVO_ERROR_ARGUMENT, &error,
                   "tokens_max must be 1");
    assert_refused(suffix_index_open(SUFFIX_TOKENS_MAX + 1, NULL, &index, &error), AVO_ERROR_LIMIT,
                   &error, "at most 1073741824");
    test_allocator allocator;
    test_allocator_init(&allocator);
    allocator.fail_at = 1;
    assert_refused(suffix_index_open(10, &allocator.allocator, &index, &error), AVO_ERROR_MEMORY,
                   &error, "lookup index");
    assert_null(index);
    test_allocator_init(&allocator);
    assert_ok(suffix_index_open(1000, &allocator.allocator, &index, &error));
    assert_int_equal(allocator.live_bytes, suffix_index_bytes(1000));
    for (int i = 0; i < 5000; i++)
        suffix_index_push(index, i % 77);
    assert_int_equal(allocator.allocations, 1);
    suffix_index_close(index);
    suffix_index_close(NULL);
    assert_int_equal(allocator.live, 0);
    for (uint32_t tokens = 100; tokens < 3000000; tokens = tokens * 5 / 4)
        assert_true(suffix_index_bytes(tokens) <= (size_t)tokens * 24);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),         cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_owners),        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_vote),          cmocka_unit_test(test_degenerate),
        cmocka_unit_test(test_positions_end), cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
