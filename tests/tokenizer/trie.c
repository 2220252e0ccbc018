/* The trie of tokens: every token with a text is where its bytes lead, and nowhere else. */
#include "support/support.h"

#include "support/tiny_model.h"
#include "tokenizer/trie.h"

#include <stdio.h>
#include <string.h>

static uint32_t walk(const token_trie *trie, text_view text) {
    uint32_t at = 0;
    for (size_t i = 0; i < text.size; i++) {
        uint32_t child = at + 1;
        while (child < trie->nodes[at].end && trie->nodes[child].byte != (uint8_t)text.data[i])
            child = trie->nodes[child].end;
        if (child >= trie->nodes[at].end)
            return 0;
        at = child;
        assert_int_equal(trie->nodes[at].depth, i + 1);
    }
    return at;
}

static void check(const char *path) {
    tokenizer *tokenizer = NULL;
    const token_trie *trie = NULL;
    const token_trie *again = NULL;
    avo_error error;
    assert_ok_error(tokenizer_open_file(path, NULL, &tokenizer, &error), &error);
    assert_ok_error(tokenizer_trie(tokenizer, &trie, &error), &error);
    assert_ok(tokenizer_trie(tokenizer, &again, &error));
    assert_ptr_equal(trie, again);
    uint32_t found = 0;
    for (uint32_t id = 0; id < trie->vocabulary; id++) {
        text_view text = trie_token(trie, (int32_t)id);
        if (text.size == 0)
            continue;
        uint32_t node = walk(trie, text);
        assert_true(node > 0 && text.size <= trie->depth_max);
        bool here = false;
        for (uint32_t i = trie->nodes[node].tokens; i < trie->nodes[node + 1].tokens; i++)
            here = here || trie->ids[i] == (int32_t)id;
        assert_true(here);
        found++;
    }
    assert_int_equal(found, trie->token_count);
    assert_int_equal(trie->nodes[0].end, trie->count);
    assert_int_equal(trie->nodes[1].tokens, 0);
    assert_int_equal(trie_token(trie, -1).size, 0);
    assert_int_equal(trie_token(trie, (int32_t)trie->vocabulary).size, 0);
    for (uint32_t i = 1; i < trie->count; i++)
        assert_true(trie->nodes[i].end > i && trie->nodes[i].end <= trie->count);
    tokenizer_close(tokenizer);
}

static void tiny(void **state) {
    (void)state;
    char path[4096];
    static const char *const words[10] = {"aa", "aaa", "aab", "b",  "ba",
                                          " ",  "  ",  "\n",  "aa", "zz"};
    (void)tiny_model_write_words(test_scratch_folder(), 1, words);
    (void)snprintf(path, sizeof(path), "%s/tokenizer.bin", test_scratch_folder());
    check(path);
}

static void memory(void **state) {
    (void)state;
    char path[4096];
    (void)tiny_model_write(test_scratch_folder(), 1);
    (void)snprintf(path, sizeof(path), "%s/tokenizer.bin", test_scratch_folder());
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator counting;
        tokenizer *tokenizer = NULL;
        const token_trie *trie = NULL;
        avo_error error;
        test_allocator_init(&counting);
        assert_ok(tokenizer_open_file(path, &counting.allocator, &tokenizer, &error));
        size_t before = counting.allocations;
        counting.fail_at = before + fail_at;
        avo_status status = tokenizer_trie(tokenizer, &trie, &error);
        bool all = counting.allocations < before + fail_at;
        counting.fail_at = 0;
        if (status != AVO_OK) {
            assert_int_equal(status, AVO_ERROR_MEMORY);
            assert_ok_error(tokenizer_trie(tokenizer, &trie, &error), &error); /* the next one */
        }
        tokenizer_close(tokenizer);
        assert_int_equal(counting.live, 0);
        if (all)
            break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny), cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
