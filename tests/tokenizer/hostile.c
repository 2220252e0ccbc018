/* Hostile tokenizer files: cut off at every byte, numbers at extremes, bits flipped, pieces nobody
 * knows. Every one is refused with a reason, or opens and then can be used; nothing leaks. */
#include "tokenizer/fixtures.h"

#include "tokenizer/image_int.h"

#define EXTRA_BYTES ((size_t)64 << 20)

static void judge(tokenizer_source_kind kind, bytes_view bytes, size_t *opened) {
    static const text_view sample = {"the <s> \xC3\xA9 \xFF 12 <|x|>\n\n  zz", 26};
    test_allocator counter;
    test_allocator_init(&counter);
    tokenizer_source source = {.kind = kind, .data = bytes, .name = "hostile"};
    tokenizer *tokenizer;
    avo_error error = {0};
    avo_status status = tokenizer_open(&source, &counter.allocator, &tokenizer, &error);
    if (status == AVO_OK) {
        id_list ids;
        buffer out;
        id_list_init(&ids, &counter.allocator);
        buffer_init(&out, &counter.allocator, SIZE_MAX);
        encode_options options = {.special = true, .add_begin = true, .add_end = true};
        if (tokenizer_encode(tokenizer, sample, &options, &ids, &error) == AVO_OK)
            assert_ok_error(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &out, &error),
                            &error);
        buffer_free(&out);
        id_list_free(&ids);
        tokenizer_close(tokenizer);
        (*opened)++;
    } else {
        assert_null(tokenizer);
        assert_non_null(strstr(error.text, "hostile"));
    }
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes <= bytes.size + EXTRA_BYTES);
}

/* A copy in memory of exactly this size, so that a sanitizer sees a byte too far. */
static void judge_copy(tokenizer_source_kind kind, const uint8_t *data, size_t size,
                       size_t *opened) {
    uint8_t *copy = test_take_exact(size, 64);
    assert_non_null(copy);
    if (size > 0)
        memcpy(copy, data, size);
    judge(kind, (bytes_view){copy, size}, opened);
    free(copy);
}

static const uint32_t extremes[] = {0, 1, 0x7FFFFFFF, 0x80000000u, 0xFFFFFFFFu, 0x01000000};

static void batter(tokenizer_source_kind kind, bytes_view bytes, size_t number_step) {
    size_t opened = 0;
    judge_copy(kind, bytes.data, bytes.size, &opened);
    assert_int_equal(opened, 1);
    for (size_t size = 0; size < bytes.size; size += 1 + bytes.size / 1500)
        judge_copy(kind, bytes.data, size, &opened);
    uint8_t *copy = test_take_exact(bytes.size, 64);
    assert_non_null(copy);
    for (size_t at = 0; at + 4 <= bytes.size; at += number_step) {
        memcpy(copy, bytes.data, bytes.size);
        for (size_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
            memcpy(copy + at, &extremes[i], 4);
            judge(kind, (bytes_view){copy, bytes.size}, &opened);
        }
    }
    for (size_t at = 0; at < bytes.size; at += 1 + bytes.size / 600) {
        memcpy(copy, bytes.data, bytes.size);
        copy[at] ^= (uint8_t)(1u << (at % 8));
        judge(kind, (bytes_view){copy, bytes.size}, &opened);
    }
    free(copy);
    print_message("%zu variants opened\n", opened);
}

/* ---- Small sources of each kind ---- */

static const char small_json[] =
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":10,\"content\":\"zz\",\"lstrip\":true,\"rstrip\":true,\"single_word\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
    "\"Prepend\","
    "\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"_?[a-z]+\"},\"behavior\":"
    "\"Isolated\",\"invert\":false},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
    "[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
    "],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"byte_fallback\":true,\"vocab\":{\"_\":0,"
    "\"t\":1,\"h\":2,\"e\":3,\"th\":4,\"the\":5,\"?\":6,\"<0xC3>\":7},\"merges\":[\"t h\",[\"th\","
    "\"e\"]]}}";

static void json(void **state) {
    (void)state;
    bytes_view bytes = {(const uint8_t *)small_json, sizeof(small_json) - 1};
    batter(TOKENIZER_SOURCE_JSON, bytes, 37);
}

static void fixture_file(const char *name, file_map *map) {
    char relative[64];
    avo_error error = {0};
    snprintf(relative, sizeof(relative), "tokenizer/%s", name);
    assert_ok_error(file_map_open(test_fixture_path(relative), map, &error), &error);
}

static void sentencepiece(void **state) {
    (void)state;
    file_map map;
    fixture_file("bpe.model", &map);
    batter(TOKENIZER_SOURCE_SENTENCEPIECE, map.bytes, 61);
    file_map_close(&map);
}

static void llama2c(void **state) {
    (void)state;
    file_map map;
    fixture_file("bpe.bin", &map);
    batter(TOKENIZER_SOURCE_LLAMA2C, map.bytes, 53);
    file_map_close(&map);
}

/* The image: every number of its header, then samples of everything behind it. */
static void image_of(tokenizer_source_kind kind, bytes_view bytes) {
    tokenizer_source source = {.kind = kind, .data = bytes, .name = "fixture"};
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_ok_error(tokenizer_open(&source, NULL, &tokenizer, &error), &error);
    bytes_view image = tokenizer_image(tokenizer);
    size_t opened = 0;
    uint8_t *copy = test_take_exact(image.size, 64);
    assert_non_null(copy);
    for (size_t at = 0; at + 4 <= sizeof(image_header); at += 4)
        for (size_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
            memcpy(copy, image.data, image.size);
            memcpy(copy + at, &extremes[i], 4);
            judge(TOKENIZER_SOURCE_IMAGE, (bytes_view){copy, image.size}, &opened);
        }
    for (size_t at = sizeof(image_header); at + 4 <= image.size; at += 4) {
        if (image.size > 32768 && at % (image.size / 4096 / 4 * 4 + 4) != 0)
            continue;
        uint32_t before;
        memcpy(&before, image.data + at, 4);
        const uint32_t values[] = {before + 1, before ^ 0x10000, 0xFFFFFFFE};
        for (size_t i = 0; i < 3; i++) {
            memcpy(copy, image.data, image.size);
            memcpy(copy + at, &values[i], 4);
            judge(TOKENIZER_SOURCE_IMAGE, (bytes_view){copy, image.size}, &opened);
        }
    }
    for (size_t size = 0; size < image.size; size += 1 + image.size / 700)
        judge_copy(TOKENIZER_SOURCE_IMAGE, image.data, size, &opened);
    free(copy);
    tokenizer_close(tokenizer);
    print_message("%zu variants opened\n", opened);
}

static void images(void **state) {
    (void)state;
    image_of(TOKENIZER_SOURCE_JSON,
             (bytes_view){(const uint8_t *)small_json, sizeof(small_json) - 1});
    file_map map;
    fixture_file("gpt2.json", &map);
    image_of(TOKENIZER_SOURCE_JSON, map.bytes);
    file_map_close(&map);
}

/* A replacement of the second byte of a character would leave half of one, and everything behind it
 * trusts that there are only whole ones. */
static void image_that_cuts_characters(void **state) {
    (void)state;
    static const char text[] =
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"#\"},\"content\":\"\"},"
        "\"pre_tokenizer\":{\"type\":\"Digits\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = {(const uint8_t *)text, sizeof(text) - 1},
                               .name = "fixture"};
    tokenizer *honest;
    avo_error error = {0};
    assert_ok_error(tokenizer_open(&source, NULL, &honest, &error), &error);
    bytes_view image = tokenizer_image(honest);
    uint8_t *copy = test_take_exact(image.size, 64);
    assert_non_null(copy);
    memcpy(copy, image.data, image.size);
    const image_header *header = (const image_header *)(const void *)copy;
    const image_step *step =
        (const image_step *)(const void *)(copy + header->sections[SECTION_STEPS].offset);
    assert_int_equal(step->kind, STEP_REPLACE);
    assert_int_equal(step->first_bytes, 1);
    uint8_t *pattern = copy + header->sections[SECTION_TEXTS].offset + step->first;
    assert_int_equal(*pattern, '#');
    source = (tokenizer_source){
        .kind = TOKENIZER_SOURCE_IMAGE, .data = {copy, image.size}, .name = "hostile"};
    static const uint8_t halves[] = {0xB2, 0xC2, 0x80, 0xFF};
    for (size_t i = 0; i < sizeof(halves); i++) {
        tokenizer *tokenizer;
        *pattern = halves[i];
        assert_refused(tokenizer_open(&source, NULL, &tokenizer, &error), AVO_ERROR_FORMAT, &error,
                       "UTF-8");
    }
    free(copy);
    tokenizer_close(honest);
}

/* ---- Refusals by name ---- */

static void refuse(const char *text, avo_status wanted, const char *part) {
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = {(const uint8_t *)text, strlen(text)},
                               .name = "tokenizer.json"};
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_refused(tokenizer_open(&source, NULL, &tokenizer, &error), wanted, &error, part);
}

#define MODEL     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
#define WITH(key) "{\"" key "\":{\"type\":\"Strange\"}," MODEL "}"

static void unknown_pieces(void **state) {
    (void)state;
    refuse(WITH("normalizer"), AVO_ERROR_UNSUPPORTED, "Strange");
    refuse(WITH("pre_tokenizer"), AVO_ERROR_UNSUPPORTED, "Strange");
    refuse(WITH("decoder"), AVO_ERROR_UNSUPPORTED, "Strange");
    refuse(WITH("post_processor"), AVO_ERROR_UNSUPPORTED, "Strange");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", AVO_ERROR_UNSUPPORTED, "Unigram");
    refuse("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
           AVO_ERROR_UNSUPPORTED, "dropout");
    refuse("{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},"
           "\"merges\":[]}}",
           AVO_ERROR_UNSUPPORTED, "end_of_word_suffix");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
           AVO_ERROR_FORMAT, "id 0");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", AVO_ERROR_FORMAT,
           "\"a\"");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000},\"merges\":[]}}",
           AVO_ERROR_FORMAT, "4000000");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
           AVO_ERROR_FORMAT, "\"b\"");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
           AVO_ERROR_FORMAT, "\"aa\"");
    refuse("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
           "\"Isolated\"}," MODEL "}",
           AVO_ERROR_UNSUPPORTED, "pattern");
    refuse("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
           "{\"type\":\"Digits\"}]}," MODEL "}",
           AVO_ERROR_UNSUPPORTED, "Digits");
    refuse("[]", AVO_ERROR_UNSUPPORTED, "BPE");
    refuse("", AVO_ERROR_FORMAT, "tokenizer.json");
}

static void unigram_model(void **state) {
    (void)state;
    static const uint8_t unigram[] = {0x0A, 0x03, 0x0A, 0x01, 'a', 0x12, 0x02, 0x18, 0x01};
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_SENTENCEPIECE,
                               .data = {unigram, sizeof(unigram)},
                               .name = "tokenizer.model"};
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_refused(tokenizer_open(&source, NULL, &tokenizer, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "unigram");
    source.kind = TOKENIZER_SOURCE_NONE;
    assert_refused(tokenizer_open(&source, NULL, &tokenizer, &error), AVO_ERROR_NOT_FOUND, &error,
                   "no tokenizer");
}

/* A token that the file names twice, once special and once not, is special: text never becomes
 * it. */
static void token_named_twice(void **state) {
    (void)state;
    static const char text[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"<x>\",\"special\":true},"
        "{\"id\":2,\"content\":\"<x>\",\"special\":false,\"normalized\":true}],"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"x\":1},"
        "\"merges\":[]}}";
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = {(const uint8_t *)text, sizeof(text) - 1},
                               .name = "fixture"};
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_ok_error(tokenizer_open(&source, NULL, &tokenizer, &error), &error);
    for (int special = 0; special < 2; special++) {
        encode_options options = {.special = special};
        id_list ids;
        id_list_init(&ids, NULL);
        assert_ok_error(tokenizer_encode(tokenizer, TEXT_LITERAL("<x>"), &options, &ids, &error),
                        &error);
        bool found = false;
        for (size_t i = 0; i < ids.count; i++)
            found = found || ids.ids[i] == 2;
        assert_int_equal(found, special);
        id_list_free(&ids);
    }
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(json),
                                       cmocka_unit_test(sentencepiece),
                                       cmocka_unit_test(llama2c),
                                       cmocka_unit_test(images),
                                       cmocka_unit_test(image_that_cuts_characters),
                                       cmocka_unit_test(unknown_pieces),
                                       cmocka_unit_test(unigram_model),
                                       cmocka_unit_test(token_named_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
