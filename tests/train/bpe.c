/* Training a vocabulary: the tokens and merges that Hugging Face `tokenizers` finds in the same
 * texts (tools/oracle/bpe_trainer.py), and a file that loads. With the arguments TEXT PATTERN
 * VOCABULARY OUT: of one file, with the time it takes. */
#include "support/support.h"

#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "train/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

static word_pattern pattern_of(text_view name) {
    uint32_t pattern = 0;
    while (pattern < WORD_PATTERN_COUNT && !text_is(name, word_pattern_name((word_pattern)pattern)))
        pattern++;
    assert_true(pattern < WORD_PATTERN_COUNT);
    return (word_pattern)pattern;
}

static void train(const train_bpe_options *options, const json_value *texts, buffer *out) {
    avo_error error = {0};
    train_bpe *bpe;
    assert_ok_error(train_bpe_open(options, &bpe, &error), &error);
    for (size_t i = 0; i < texts->array.count; i++)
        assert_ok_error(train_bpe_add(bpe, texts->array.items[i].string, &error), &error);
    assert_ok_error(train_bpe_run(bpe, &error), &error);
    assert_ok_error(train_bpe_json(bpe, out, &error), &error);
    train_bpe_close(bpe);
}

static void compare(const json_value *wanted, const json_value *made) {
    const json_value *model = json_find(made, "model");
    const json_value *tokens = json_find(wanted, "tokens"), *merges = json_find(wanted, "merges");
    const json_value *own = json_find(model, "merges");
    for (size_t i = 0; i < merges->array.count && i < own->array.count; i++)
        for (size_t side = 0; side < 2; side++) {
            text_view a = json_item(json_item(merges, i), side)->string;
            text_view b = json_item(json_item(own, i), side)->string;
            if (!text_equal(a, b))
                fail_msg("merge %zu: \"%.*s\", expected \"%.*s\"", i, TEXT_ARGUMENT(b),
                         TEXT_ARGUMENT(a));
        }
    assert_int_equal(own->array.count, merges->array.count);
    assert_int_equal(json_find(model, "vocab")->object.count, tokens->array.count);
    for (size_t i = 0; i < tokens->array.count; i++) {
        const json_value *id =
            json_find_text(json_find(model, "vocab"), tokens->array.items[i].string);
        assert_non_null(id);
        assert_int_equal(id->integer, i);
    }
}

static void tokens_and_merges_are_those_of_tokenizers(void **state) {
    (void)state;
    arena arena;
    file_map map;
    json_value root, made;
    avo_error error = {0};
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(test_fixture_path("train/bpe.json"), &map, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    assert_ok_error(json_parse(&arena, text, &root, &error), &error);
    const json_value *cases = json_find(&root, "cases");
    assert_int_equal(cases->array.count, 3);
    for (size_t i = 0; i < 3; i++) {
        const json_value *test = &cases->array.items[i];
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        train_bpe_options options = {.vocabulary = (uint32_t)json_find(test, "vocabulary")->integer,
                                     .pattern = pattern_of(json_find(test, "pattern")->string),
                                     .special = special,
                                     .special_count = 3};
        train(&options, json_find(&root, "texts"), &out);
        assert_ok_error(json_parse(&arena, buffer_text(&out), &made, &error), &error);
        compare(test, &made);
        buffer_free(&out);
    }
    arena_free(&arena);
    file_map_close(&map);
}

static void the_file_loads_and_keeps_every_byte(void **state) {
    (void)state;
    static const char text[] = "water \xC3\xA9 <|im_end|>\n 12 waters 🐦\t";
    for (uint32_t pattern = 0; pattern < WORD_PATTERN_COUNT; pattern++) {
        avo_error error = {0};
        train_bpe *bpe;
        train_bpe_options options = {.vocabulary = 300,
                                     .pattern = (word_pattern)pattern,
                                     .special = special,
                                     .special_count = 3};
        assert_ok_error(train_bpe_open(&options, &bpe, &error), &error);
        for (int i = 0; i < 3; i++)
            assert_ok_error(train_bpe_add(bpe, text_from(text), &error), &error);
        assert_ok_error(train_bpe_run(bpe, &error), &error);
        train_bpe_info info = train_bpe_describe(bpe);
        assert_int_equal(info.bytes, 3 * strlen(text));
        assert_true(info.merges > 10 && info.vocabulary <= 300);
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        assert_ok_error(train_bpe_json(bpe, &out, &error), &error);
        tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                                   .data = {(const uint8_t *)out.data, out.size},
                                   .name = "trained"};
        tokenizer *tokenizer;
        assert_ok_error(tokenizer_open(&source, NULL, &tokenizer, &error), &error);
        assert_int_equal(tokenizer_describe(tokenizer).vocabulary, info.vocabulary);
        id_list ids;
        id_list_init(&ids, NULL);
        encode_options encode = {.special = true};
        assert_ok_error(tokenizer_encode(tokenizer, text_from(text), &encode, &ids, &error),
                        &error);
        assert_true(ids.count < strlen(text));
        bool ends = false;
        for (size_t i = 0; i < ids.count; i++)
            ends = ends || ids.ids[i] == 2;
        assert_true(ends);
        buffer back;
        buffer_init(&back, NULL, SIZE_MAX);
        assert_ok(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, &error));
        assert_true(text_is(buffer_text(&back), text));
        buffer_free(&back);
        id_list_free(&ids);
        tokenizer_close(tokenizer);
        buffer_free(&out);
        train_bpe_close(bpe);
    }
}

/* A merge that would spell a special token is left out. */
static void plain_text_never_becomes_a_special_token(void **state) {
    (void)state;
    avo_error error = {0};
    train_bpe *bpe;
    static const char *const own[] = {"abab"};
    train_bpe_options options = {
        .vocabulary = 300, .special = own, .special_count = 1, .count_min = 2};
    assert_ok_error(train_bpe_open(&options, &bpe, &error), &error);
    assert_ok_error(train_bpe_add(bpe, TEXT_LITERAL("abab abab abab abababab xy"), &error), &error);
    assert_ok_error(train_bpe_run(bpe, &error), &error);
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok_error(train_bpe_json(bpe, &out, &error), &error);
    assert_ok(buffer_terminate(&out));
    const char *first = strstr(out.data, "\"abab\": 0");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"abab\":"));
    assert_null(strstr(out.data, "\"xy\"")); /* seen once */
    buffer_free(&out);
    train_bpe_close(bpe);
}

static void bad_options_and_texts_are_refused(void **state) {
    (void)state;
    avo_error error = {0};
    train_bpe *bpe;
    train_bpe_options options = {.vocabulary = 255};
    assert_refused(train_bpe_open(&options, &bpe, &error), AVO_ERROR_ARGUMENT, &error,
                   "must be 256");
    static const char *const twice[] = {"a", "a"};
    options = (train_bpe_options){.vocabulary = 300, .special = twice, .special_count = 2};
    assert_refused(train_bpe_open(&options, &bpe, &error), AVO_ERROR_ARGUMENT, &error,
                   "given twice");
    options = (train_bpe_options){.vocabulary = 256};
    assert_ok(train_bpe_open(&options, &bpe, &error));
    assert_refused(train_bpe_run(bpe, &error), AVO_ERROR_ARGUMENT, &error, "no text");
    assert_refused(train_bpe_add(bpe, TEXT_LITERAL("\xFF"), &error), AVO_ERROR_FORMAT, &error,
                   "UTF-8");
    train_bpe_close(bpe);
}

static void texts_come_from_data_files(void **state) {
    (void)state;
    avo_error error = {0};
    char path[1024];
    train_bpe *bpe;
    static const char text[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},"
        "{\"role\":\"assistant\",\"content\":\"defg\"}]}\n"
        "{\"messages\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\",\"value\":\"j\"}]}";
    snprintf(path, sizeof(path), "%s/bpe.jsonl", test_scratch_folder());
    assert_ok(file_write(path, text, strlen(text), &error));
    train_bpe_options options = {.vocabulary = 300};
    assert_ok(train_bpe_open(&options, &bpe, &error));
    assert_ok_error(train_bpe_add_file(bpe, path, &error), &error);
    assert_int_equal(train_bpe_describe(bpe).bytes, 10);
    train_bpe_close(bpe);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    test_allocator counter;
    for (size_t fail_at = 1;; fail_at++) {
        avo_error error = {0};
        train_bpe *bpe = NULL;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        train_bpe_options options = {.allocator = &counter.allocator, .vocabulary = 300};
        avo_status status = train_bpe_open(&options, &bpe, &error);
        AVO_THEN(status, train_bpe_add(bpe, TEXT_LITERAL("one two three two one"), &error));
        AVO_THEN(status, train_bpe_run(bpe, &error));
        train_bpe_close(bpe);
        assert_int_equal(counter.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(fail_at < 100);
    }
}

static int train_file(char **arguments) {
    avo_error error = {0};
    file_map map;
    train_bpe *bpe;
    buffer out;
    train_bpe_options options = {.vocabulary = (uint32_t)strtoul(arguments[2], NULL, 10),
                                 .pattern = pattern_of(text_from(arguments[1])),
                                 .special = special,
                                 .special_count = 3};
    assert_ok_error(file_map_open(arguments[0], &map, &error), &error);
    buffer_init(&out, NULL, SIZE_MAX);
    uint64_t begin = clock_now_ns();
    assert_ok_error(train_bpe_open(&options, &bpe, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    assert_ok_error(train_bpe_add(bpe, text, &error), &error);
    uint64_t counted = clock_now_ns();
    assert_ok_error(train_bpe_run(bpe, &error), &error);
    uint64_t merged = clock_now_ns();
    assert_ok_error(train_bpe_json(bpe, &out, &error), &error);
    assert_ok_error(file_write(arguments[3], out.data, out.size, &error), &error);
    printf("%zu bytes, %llu words, %u merges: counted in %.3f s, merged in %.3f s\n", text.size,
           (unsigned long long)train_bpe_describe(bpe).words, train_bpe_describe(bpe).merges,
           clock_seconds(begin, counted), clock_seconds(counted, merged));
    train_bpe_close(bpe);
    buffer_free(&out);
    file_map_close(&map);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5)
        return train_file(argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_merges_are_those_of_tokenizers),
        cmocka_unit_test(the_file_loads_and_keeps_every_byte),
        cmocka_unit_test(plain_text_never_becomes_a_special_token),
        cmocka_unit_test(bad_options_and_texts_are_refused),
        cmocka_unit_test(texts_come_from_data_files),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
