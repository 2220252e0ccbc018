/* Streaming: whole characters only, whatever the cut; nothing lost. */
#include "tokenizer/fixtures.h"

/* The byte tokens of a byte-level vocabulary, one after the other. */
static void push_bytes(const tokenizer *tokenizer, text_view bytes, bool lossless,
                       const char *const *steps, const char *rest) {
    decode_stream stream;
    decode_stream_init(&stream, tokenizer, false);
    stream.lossless = lossless;
    for (size_t i = 0; i < bytes.size; i++) {
        char piece[8];
        snprintf(piece, sizeof(piece), "<0x%02X>", (uint8_t)bytes.data[i]);
        int32_t id = tokenizer_find_piece(tokenizer, text_from(piece));
        assert_true(id >= 0);
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        assert_ok(decode_stream_push(&stream, id, &out, NULL));
        assert_true(text_is(buffer_text(&out), steps[i]));
        buffer_free(&out);
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(decode_stream_finish(&stream, &out, NULL));
    assert_true(text_is(buffer_text(&out), rest));
    buffer_free(&out);
}

static void characters_wait(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "llama2.json");
    const char *const smile[] = {"", "", "", "\xF0\x9F\x99\x82"};
    push_bytes(fixture.tokenizer, TEXT_LITERAL("\xF0\x9F\x99\x82"), false, smile, "");
    static const char replaced[] = "\xEF\xBF\xBD"
                                   "a";
    const char *const broken[] = {"", "", replaced};
    push_bytes(fixture.tokenizer,
               TEXT_LITERAL("\xF0\x9F"
                            "a"),
               false, broken, "");
    const char *const cut[] = {"", ""};
    push_bytes(fixture.tokenizer, TEXT_LITERAL("\xF0\x9F"), false, cut, "\xEF\xBF\xBD");
    const char *const wrong[] = {"\xEF\xBF\xBD", "\xEF\xBF\xBD", "z"};
    push_bytes(fixture.tokenizer, TEXT_LITERAL("\xFF\x80z"), false, wrong, "");
    const char *const surrogate[] = {"", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD"};
    push_bytes(fixture.tokenizer, TEXT_LITERAL("\xED\xA0\x80"), false, surrogate, "");
    fixture_close(&fixture);
}

static void special_tokens_are_left_out(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "llama2.json");
    const int32_t ids[] = {1, tokenizer_find_piece(fixture.tokenizer, TEXT_LITERAL("a")), 2};
    for (int special = 0; special < 2; special++) {
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        assert_ok(tokenizer_decode(fixture.tokenizer, ids, 3, special, &out, NULL));
        assert_true(text_is(buffer_text(&out), special ? "<s>a</s>" : "a"));
        buffer_free(&out);
    }
    fixture_close(&fixture);
}

/* What tokenizers drop at the begin of a text stays where the text continues another. */
static void continued_text_keeps_its_space(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "bpe.model");
    int32_t id = tokenizer_find_piece(fixture.tokenizer, TEXT_LITERAL("\xE2\x96\x81"));
    assert_true(id >= 0);
    for (int continued = 0; continued < 2; continued++) {
        buffer out;
        decode_stream stream;
        buffer_init(&out, NULL, SIZE_MAX);
        decode_stream_init(&stream, fixture.tokenizer, false);
        if (continued)
            decode_stream_continue(&stream);
        assert_ok(decode_stream_push(&stream, id, &out, NULL));
        assert_ok(decode_stream_finish(&stream, &out, NULL));
        assert_true(text_is(buffer_text(&out), continued ? " " : ""));
        buffer_free(&out);
    }
    fixture_close(&fixture);
}

/* Models whose embeddings are padded can choose an id the tokenizer does not have: no text, and the
 * character around it goes on. */
static void padding_ids_have_no_text(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2.json", "llama2.json"};
    for (size_t n = 0; n < 2; n++) {
        fixture fixture;
        fixture_named(&fixture, names[n]);
        int32_t beyond = (int32_t)tokenizer_describe(fixture.tokenizer).vocabulary;
        const int32_t padding[] = {beyond, beyond + 1, 100000, INT32_MAX};
        id_list ids;
        id_list_init(&ids, NULL);
        encode_into(fixture.tokenizer, TEXT_LITERAL("a \xF0\x9F\xA6\xA4 b"), false, &ids);
        assert_true(ids.count > 3);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(tokenizer_piece(fixture.tokenizer, padding[i]).size, 0);
            assert_false(tokenizer_is_special(fixture.tokenizer, padding[i]));
            decode_stream stream;
            decode_stream_init(&stream, fixture.tokenizer, false);
            buffer out;
            avo_error error = {0};
            buffer_init(&out, NULL, SIZE_MAX);
            assert_ok(decode_stream_push(&stream, padding[i], &out, &error));
            for (size_t k = 0; k < ids.count; k++) {
                assert_ok(decode_stream_push(&stream, ids.ids[k], &out, &error));
                assert_ok(decode_stream_push(&stream, padding[i], &out, &error));
            }
            assert_ok(decode_stream_finish(&stream, &out, &error));
            assert_true(text_is(buffer_text(&out), "a \xF0\x9F\xA6\xA4 b"));
            buffer_free(&out);
        }
        id_list_free(&ids);
        fixture_close(&fixture);
    }
}

static void negative_ids_are_refused(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    static const int32_t bad[] = {-1, INT32_MIN};
    for (size_t i = 0; i < 2; i++) {
        buffer out;
        avo_error error = {0};
        buffer_init(&out, NULL, SIZE_MAX);
        assert_refused(tokenizer_decode(fixture.tokenizer, &bad[i], 1, true, &out, &error),
                       AVO_ERROR_ARGUMENT, &error, "vocabulary");
        assert_int_equal(out.size, 0);
        buffer_free(&out);
    }
    fixture_close(&fixture);
}

/* A limit on the output is an error, and leaves the output as it was. */
static void full_output(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    id_list ids;
    id_list_init(&ids, NULL);
    encode_into(fixture.tokenizer, TEXT_LITERAL("the same text"), false, &ids);
    buffer out;
    avo_error error = {0};
    buffer_init(&out, NULL, 5);
    assert_refused(tokenizer_decode(fixture.tokenizer, ids.ids, ids.count, true, &out, &error),
                   AVO_ERROR_LIMIT, &error, "limit");
    assert_true(out.size <= 5);
    buffer_free(&out);
    id_list_free(&ids);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(characters_wait),
                                       cmocka_unit_test(continued_text_keeps_its_space),
                                       cmocka_unit_test(special_tokens_are_left_out),
                                       cmocka_unit_test(padding_ids_have_no_text),
                                       cmocka_unit_test(negative_ids_are_refused),
                                       cmocka_unit_test(full_output)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
