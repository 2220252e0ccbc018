/* spec/ngram: against a naive search, n from the longest down to the shortest; options; each
 * allocation failing. */
#include "support/support.h"

#include "base/random.h"
#include "spec/ngram.h"

#include <string.h>

enum { STREAM = 1200, DRAFTS = 6 };

/* Position behind the most recent earlier occurrence of the last n tokens, n as long as possible;
 * 0: none. */
static uint32_t naive(const int32_t *tokens, uint32_t count, uint32_t shortest, uint32_t longest,
                      uint32_t *length) {
    for (uint32_t n = longest; n >= shortest; n--)
        for (uint32_t at = count; at-- > n;)
            if (count >= n &&
                memcmp(tokens + at - n, tokens + count - n, n * sizeof(*tokens)) == 0) {
                *length = n;
                return at;
            }
    return 0;
}

static void one_stream(uint32_t alphabet, uint32_t shortest, uint32_t longest) {
    static int32_t tokens[STREAM];
    ngram_options options = {.tokens_max = STREAM, .length_min = shortest, .length_max = longest};
    ngram_index *index;
    int32_t drafts[DRAFTS], wanted[DRAFTS];
    assert_ok(ngram_index_open(&options, NULL, &index, NULL));
    for (uint32_t count = 1; count <= STREAM; count++) {
        tokens[count - 1] = (int32_t)(random_at(5, longest, count).words[alphabet % 4] % alphabet);
        ngram_index_push(index, tokens[count - 1]);
        suffix_match match = ngram_index_propose(index, DRAFTS, drafts);
        uint32_t length = 0, at = naive(tokens, count, shortest, longest, &length);
        assert_int_equal(match.length, length);
        assert_int_equal(match.count, length > 0 ? DRAFTS : 0);
        for (uint32_t i = 0; i < match.count; i++) {
            wanted[i] = at + i < count ? tokens[at + i] : wanted[at + i - count];
            assert_int_equal(drafts[i], wanted[i]);
        }
    }
    ngram_index_clear(index);
    assert_int_equal(ngram_index_propose(index, DRAFTS, drafts).length, 0);
    ngram_index_close(index);
}

static void test_naive(void **state) {
    (void)state;
    static const uint32_t alphabets[] = {1, 2, 3, 50};
    static const uint32_t lengths[][2] = {{1, 1}, {2, 3}, {3, 3}, {1, 4}, {4, 16}, {16, 16}};
    for (size_t a = 0; a < 4; a++)
        for (size_t l = 0; l < 6; l++)
            one_stream(alphabets[a], lengths[l][0], lengths[l][1]);
}

static void test_options(void **state) {
    (void)state;
    static const struct {
        uint32_t shortest, longest;
        bool good;
    } cases[] = {
        {0, 0, true},           {0, 1, true},           {1, 0, true},   {16, 0, true},
        {16, 16, true},         {3, 2, false},          {1, 17, false}, {17, 0, false},
        {0, UINT32_MAX, false}, {UINT32_MAX, 0, false},
    };
    avo_error error;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ngram_index *index = NULL;
        ngram_options options = {
            .tokens_max = 9, .length_min = cases[i].shortest, .length_max = cases[i].longest};
        if (cases[i].good) {
            assert_ok_error(ngram_index_open(&options, NULL, &index, &error), &error);
            ngram_index_close(index);
        } else {
            assert_refused(ngram_index_open(&options, NULL, &index, &error), AVO_ERROR_ARGUMENT,
                           &error, "must lie within 1 to 16");
        }
    }
    ngram_index_close(NULL);
}

static void test_memory(void **state) {
    (void)state;
    ngram_options options = {.tokens_max = 1000};
    avo_error error;
    for (size_t fail_at = 1; fail_at <= 3; fail_at++) {
        ngram_index *index = NULL;
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        avo_status status = ngram_index_open(&options, &allocator.allocator, &index, &error);
        assert_int_equal(status, fail_at <= 2 ? AVO_ERROR_MEMORY : AVO_OK);
        if (status == AVO_OK)
            assert_int_equal(allocator.live_bytes, ngram_index_bytes(&options));
        ngram_index_close(index);
        assert_int_equal(allocator.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
