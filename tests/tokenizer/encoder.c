/* tokenizer/encoder: kept from text to text, it gives the same ids as a fresh one. */
#include "tokenizer/fixtures.h"

static const char *const names[] = {"gpt2.json",  "llama2.json", "llama3.json",    "gemma.json",
                                    "qwen2.json", "smollm.json", "metaspace.json", "splits.json",
                                    "words.json", "bpe.model",   "vanishing.json", "patterns.json"};

/* Pieces of a file, cut without regard to characters, twice over so that words come again. */
static void the_same_ids(void **state) {
    (void)state;
    file_map map;
    assert_ok(file_map_open(test_fixture_path("tokenizer/splits.json"), &map, NULL));
    text_view file = {(const char *)map.bytes.data, map.bytes.size};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        fixture fixture;
        fixture_named(&fixture, names[n]);
        encoder *encoder;
        assert_ok(encoder_open(fixture.tokenizer, &encoder, NULL));
        id_list fresh, kept;
        id_list_init(&fresh, NULL);
        id_list_init(&kept, NULL);
        for (int turn = 0; turn < 2; turn++) {
            size_t step = 61;
            for (size_t at = 0; at < file.size && at < 6000; at += step) {
                text_view text = {file.data + at, file.size - at < step ? file.size - at : step};
                encode_options options = {.special = at % 2 == 0, .add_begin = at % 3 == 0};
                fresh.count = kept.count = 0;
                avo_status status =
                    tokenizer_encode(fixture.tokenizer, text, &options, &fresh, NULL);
                assert_int_equal(encoder_run(encoder, text, &options, &kept, NULL), status);
                assert_int_equal(fresh.count, kept.count);
                if (fresh.count > 0)
                    assert_memory_equal(fresh.ids, kept.ids, fresh.count * sizeof(int32_t));
            }
        }
        id_list_free(&fresh);
        id_list_free(&kept);
        encoder_close(encoder);
        fixture_close(&fixture);
    }
    file_map_close(&map);
}

static void goes_on_after_an_error(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "gpt2.json");
    encoder *encoder;
    avo_error error = {0};
    assert_ok(encoder_open(fixture.tokenizer, &encoder, NULL));
    encode_options options = {0};
    id_list ids;
    id_list_init(&ids, NULL);
    text_view endless = {"a", TOKENIZER_TEXT_MAX + 1};
    assert_refused(encoder_run(encoder, endless, &options, &ids, &error), AVO_ERROR_LIMIT, &error,
                   "at most");
    assert_int_equal(ids.count, 0);
    assert_ok(encoder_run(encoder, TEXT_LITERAL("a"), &options, &ids, &error));
    assert_int_equal(ids.count, 1);
    id_list_free(&ids);
    encoder_close(encoder);
    encoder_close(NULL);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_ids),
                                       cmocka_unit_test(goes_on_after_an_error)};
    return cmocka_run_group_tests_name("tokenizer/encoder", tests, NULL, NULL);
}
