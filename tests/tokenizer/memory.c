/* Out of memory at every single allocation of opening, encoding and decoding: an error, nothing
 * leaks, and the next try succeeds with the same ids. */
#include "tokenizer/fixtures.h"

static const char *const names[] = {"gpt2.json",   "qwen2.json",     "splits.json", "llama2.json",
                                    "words.json",  "metaspace.json", "bpe.model",   "bpe.bin",
                                    "llama3.gguf", "bpe.gguf"};
#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

static avo_status open_named(fixture *fixture, const char *name, const avo_allocator *allocator,
                             avo_error *error) {
    char relative[64];
    snprintf(relative, sizeof(relative), "tokenizer/%s", name);
    return fixture_open(fixture, test_fixture_path(relative), allocator, error);
}

static void opening(void **state) {
    (void)state;
    for (size_t n = 0; n < NAME_COUNT; n++) {
        size_t total = 0;
        for (size_t fail_at = 1;; fail_at++) {
            test_allocator counter;
            test_allocator_init(&counter);
            counter.fail_at = fail_at;
            fixture fixture;
            avo_error error = {0};
            avo_status status = open_named(&fixture, names[n], &counter.allocator, &error);
            fixture_close(&fixture);
            assert_int_equal(counter.live, 0);
            if (counter.allocations < fail_at) {
                assert_int_equal(status, AVO_OK);
                total = fail_at - 1;
                break;
            }
            /* A pattern that JIT could not have is still a pattern. */
            if (status != AVO_OK)
                assert_int_equal(status, AVO_ERROR_MEMORY);
        }
        assert_true(total > 2);
    }
}

/* Everything that allocates: cache, normal forms, long words, patterns, prefixes, invalid bytes. */
static size_t make_text(char *text, size_t capacity) {
    static const char piece[] =
        "The  avocet's e\xCC\x81\xCC\xA7 caf\xC3\xA9 123 \xE6\xB0\xB4 <|x|> "
        "antidisestablishmentarianismantidisestablishmentarianism; tT.\n";
    size_t size = 0;
    while (size + sizeof(piece) < capacity) {
        memcpy(text + size, piece, sizeof(piece) - 1);
        size += sizeof(piece) - 1;
    }
    text[size++] = '\xFF';
    return size;
}

static void encoding(void **state) {
    (void)state;
    static char text[20000];
    size_t size = make_text(text, sizeof(text));
    for (size_t n = 0; n < NAME_COUNT; n++) {
        test_allocator counter;
        test_allocator_init(&counter);
        fixture fixture;
        avo_error error = {0};
        assert_ok_error(open_named(&fixture, names[n], &counter.allocator, &error), &error);
        size_t live = counter.live;
        id_list good;
        id_list_init(&good, NULL);
        encode_into(fixture.tokenizer, (text_view){text, size}, true, &good);
        for (size_t fail_at = 1;; fail_at++) {
            id_list ids;
            id_list_init(&ids, &counter.allocator);
            counter.allocations = 0;
            counter.fail_at = fail_at;
            encode_options options = {.special = true};
            avo_status status = tokenizer_encode(fixture.tokenizer, (text_view){text, size},
                                                 &options, &ids, &error);
            bool failed = counter.allocations >= fail_at;
            counter.fail_at = 0;
            if (failed && status != AVO_OK) {
                assert_int_equal(status, AVO_ERROR_MEMORY);
                assert_int_equal(ids.count, 0);
            } else {
                assert_int_equal(status, AVO_OK);
                assert_int_equal(ids.count, good.count);
                assert_memory_equal(ids.ids, good.ids, good.count * sizeof(int32_t));
            }
            id_list_free(&ids);
            assert_int_equal(counter.live, live);
            if (!failed)
                break;
        }
        id_list_free(&good);
        fixture_close(&fixture);
        assert_int_equal(counter.live, 0);
    }
}

static void decoding(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    fixture fixture;
    avo_error error = {0};
    assert_ok_error(open_named(&fixture, "llama2.json", &counter.allocator, &error), &error);
    id_list ids;
    id_list_init(&ids, NULL);
    encode_into(fixture.tokenizer, TEXT_LITERAL("The same text \xE6\xB0\xB4"), true, &ids);
    size_t live = counter.live;
    for (size_t fail_at = 1;; fail_at++) {
        buffer out;
        buffer_init(&out, &counter.allocator, SIZE_MAX);
        counter.allocations = 0;
        counter.fail_at = fail_at;
        avo_status status =
            tokenizer_decode(fixture.tokenizer, ids.ids, ids.count, true, &out, &error);
        bool failed = counter.allocations >= fail_at;
        assert_int_equal(status, failed ? AVO_ERROR_MEMORY : AVO_OK);
        buffer_free(&out);
        assert_int_equal(counter.live, live);
        if (!failed)
            break;
    }
    id_list_free(&ids);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opening), cmocka_unit_test(encoding),
                                       cmocka_unit_test(decoding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
