/* Encoding's own promises: special tokens only where they are wanted and trusted, invalid UTF-8,
 * what failure leaves behind, and that no text is a trap. */
#include "tokenizer/fixtures.h"

#include "tokenizer/bpe_int.h"
#include "tokenizer/encode_int.h"

static void expect(const tokenizer *tokenizer, text_view text, const encode_options *options,
                   int32_t special, size_t wanted) {
    id_list ids;
    avo_error error = {0};
    id_list_init(&ids, NULL);
    assert_ok_error(tokenizer_encode(tokenizer, text, options, &ids, &error), &error);
    size_t found = 0;
    for (size_t i = 0; i < ids.count; i++)
        found += ids.ids[i] == special;
    assert_int_equal(found, wanted);
    buffer back;
    buffer_init(&back, NULL, SIZE_MAX);
    assert_ok(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, NULL));
    assert_true(text_equal(buffer_text(&back), text));
    buffer_free(&back);
    id_list_free(&ids);
}

static void trusted_spans(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    int32_t id = tokenizer_find_piece(fixture.tokenizer, TEXT_LITERAL("<|x|>"));
    assert_true(id >= 0 && tokenizer_is_special(fixture.tokenizer, id));
    text_view text = TEXT_LITERAL("<|x|>user <|x|> said<|x|>");
    encode_options options = {0};
    expect(fixture.tokenizer, text, &options, id, 0);
    options.special = true;
    expect(fixture.tokenizer, text, &options, id, 3);
    options.trusted_given = true;
    expect(fixture.tokenizer, text, &options, id, 0);
    text_span spans[] = {{0, 5}, {20, 25}};
    options.trusted = spans;
    options.trusted_count = 2;
    expect(fixture.tokenizer, text, &options, id, 2);
    spans[0].end = 4; /* a token must lie wholly inside */
    expect(fixture.tokenizer, text, &options, id, 1);
    spans[1].begin = 21;
    expect(fixture.tokenizer, text, &options, id, 0);
    spans[0] = (text_span){0, 25};
    options.trusted_count = 1;
    expect(fixture.tokenizer, text, &options, id, 3);
    /* Trust without `special` gives nothing. */
    options.special = false;
    expect(fixture.tokenizer, text, &options, id, 0);
    fixture_close(&fixture);
}

/* What a user writes right before or behind must not hide a trusted token. */
static void neighbours_of_trust(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    int32_t id = tokenizer_find_piece(fixture.tokenizer, TEXT_LITERAL("<|x|>"));
    text_view text = TEXT_LITERAL("<|x<|x|>|x|><|x");
    text_span span = {3, 8};
    encode_options options = {
        .special = true, .trusted_given = true, .trusted = &span, .trusted_count = 1};
    expect(fixture.tokenizer, text, &options, id, 1);
    fixture_close(&fixture);
}

static void invalid_text(void **state) {
    (void)state;
    static const char *const lossless[] = {"gpt2.json", "llama3.json", "bpe.bin",
                                           "gpt2.gguf", "llama2.json", "bpe.model"};
    static const text_view texts[] = {
        {"\xFF", 1},           {"a\xC3", 2},           {"\xC3(", 2},
        {"\xF0\x9F\x99 x", 5}, {"a\xFF\xFE b\x80", 6}, {"\xED\xA0\x80", 3},
        {"ab\0\xFF\0", 5}};
    for (size_t i = 0; i < 6; i++) {
        fixture fixture;
        fixture_named(&fixture, lossless[i]);
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            encode_options options = {0};
            expect(fixture.tokenizer, texts[k], &options, -1, 0);
        }
        fixture_close(&fixture);
    }
    /* Where bytes have no tokens they become U+FFFD. */
    fixture fixture;
    fixture_named(&fixture, "words.json");
    id_list a;
    id_list b;
    id_list_init(&a, NULL);
    id_list_init(&b, NULL);
    encode_into(fixture.tokenizer, TEXT_LITERAL("ab\xFF\xE2\x82 c"), false, &a);
    encode_into(fixture.tokenizer, TEXT_LITERAL("ab\xEF\xBF\xBD\xEF\xBF\xBD c"), false, &b);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.ids, b.ids, a.count * sizeof(int32_t));
    id_list_free(&a);
    id_list_free(&b);
    fixture_close(&fixture);
}

static void appends_and_frames(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "llama2.json");
    tokenizer_info info = tokenizer_describe(fixture.tokenizer);
    assert_true(info.adds_begin && info.adds_end && info.begin == 1 && info.end == 2);
    assert_string_equal(info.kind, "SentencePiece BPE");
    id_list ids;
    id_list_init(&ids, NULL);
    assert_ok(id_list_append(&ids, 77));
    encode_options options = {.add_begin = true, .add_end = true};
    assert_ok(tokenizer_encode(fixture.tokenizer, TEXT_LITERAL(""), &options, &ids, NULL));
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.ids[0], 77);
    assert_int_equal(ids.ids[1], 1);
    assert_int_equal(ids.ids[2], 2);
    assert_int_equal(tokenizer_piece(fixture.tokenizer, -1).size, 0);
    assert_int_equal(tokenizer_piece(fixture.tokenizer, INT32_MAX).size, 0);
    assert_int_equal(tokenizer_find_piece(fixture.tokenizer, TEXT_LITERAL("no such piece")), -1);
    assert_false(tokenizer_is_special(fixture.tokenizer, -5));
    id_list_free(&ids);
    fixture_close(&fixture);
}

/* ---- No text is a trap: work grows with the length, not with its square ---- */

static uint64_t operations(const tokenizer *tokenizer, text_view text) {
    bpe_work work;
    uint32_t count;
    bpe_work_init(&work, NULL);
    assert_ok(bpe_word(&tokenizer->image, &work, text, &count));
    uint64_t done = work.operations;
    bpe_work_free(&work);
    return done;
}

static void linear(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "a",  " ", "1",   "\xF0\x9F\x99\x82", "ab", "the ", "\xCC\x81\xCC\xA7",
        "\n", "'", "<|x", "\xE2\x96\x81"};
    static const char *const names[] = {"gpt2.json", "llama2.json", "qwen2.json", "bpe.model"};
    enum { HALF = 1 << 17 };
    char *text = malloc(2 * HALF + 16);
    assert_non_null(text);
    for (size_t n = 0; n < 4; n++) {
        fixture fixture;
        fixture_named(&fixture, names[n]);
        for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
            size_t bytes = strlen(patterns[p]);
            size_t size = 0;
            while (size + bytes <= 2 * HALF) {
                memcpy(text + size, patterns[p], bytes);
                size += bytes;
            }
            size_t half = size / 2 / bytes * bytes;
            uint64_t one = operations(fixture.tokenizer, (text_view){text, half});
            uint64_t two = operations(fixture.tokenizer, (text_view){text, size});
            if (two > 3 * one + 1000)
                fail_msg("%s, \"%s\": %" PRIu64 " operations, then %" PRIu64, names[n], patterns[p],
                         one, two);
            /* … and the whole way goes through. */
            id_list ids;
            id_list_init(&ids, NULL);
            encode_into(fixture.tokenizer, (text_view){text, size}, true, &ids);
            id_list_free(&ids);
        }
        fixture_close(&fixture);
    }
    free(text);
}

/* Long and short words are merged by different code: the same ids either way. */
static void long_words_as_short_ones(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    bpe_work work;
    bpe_work_init(&work, NULL);
    uint64_t draw = 12345;
    for (size_t round = 0; round < 2000; round++) {
        char text[80];
        size_t size = 20 + round % 50;
        for (size_t i = 0; i < size; i++) {
            draw = draw * 6364136223846793005ull + 1442695040888963407ull;
            text[i] = "theatois rnd"[(draw >> 33) % 12];
        }
        uint32_t count;
        assert_ok(bpe_word(&fixture.tokenizer->image, &work, (text_view){text, size}, &count));
        /* The truth: the best pair, again and again. */
        uint32_t truth[80];
        uint32_t left = 0;
        for (; left < size; left++)
            truth[left] = fixture.tokenizer->image.bytes[(uint8_t)text[left]];
        for (;;) {
            const image_merge *best = NULL;
            uint32_t at = 0;
            for (uint32_t i = 0; i + 1 < left; i++) {
                const image_merge *merge =
                    image_find_merge(&fixture.tokenizer->image, truth[i], truth[i + 1]);
                if (merge != NULL && (best == NULL || merge->rank < best->rank)) {
                    best = merge;
                    at = i;
                }
            }
            if (best == NULL)
                break;
            truth[at] = best->result;
            memmove(truth + at + 1, truth + at + 2, (left - at - 2) * sizeof(uint32_t));
            left--;
        }
        assert_int_equal(count, left);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(work.symbols[i].id, truth[i]);
    }
    bpe_work_free(&work);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trusted_spans), cmocka_unit_test(neighbours_of_trust),
        cmocka_unit_test(invalid_text),  cmocka_unit_test(appends_and_frames),
        cmocka_unit_test(linear),        cmocka_unit_test(long_words_as_short_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
