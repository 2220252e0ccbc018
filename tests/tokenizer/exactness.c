/* Ids and decoded texts equal to Hugging Face `tokenizers` and SentencePiece: on tiny tokenizers of
 * every kind, through every kind of source and through the image, and on the shared texts. */
#include "tokenizer/fixtures.h"

typedef struct expected {
    file_map map;
    arena arena;
    json_value root;
} expected;

static int setup(void **state) {
    static expected e;
    read_json_file(test_fixture_path("tokenizer/expected.json"), &e.map, &e.arena, &e.root);
    *state = &e;
    return 0;
}

static int teardown(void **state) {
    expected *e = *state;
    arena_free(&e->arena);
    file_map_close(&e->map);
    return 0;
}

/* The text without zero bytes, which the oracle's library cannot take. */
static text_view clean_text(text_view text, char *copy, size_t capacity) {
    size_t size = 0;
    assert_true(text.size <= capacity);
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] != '\0')
            copy[size++] = text.data[i];
    return (text_view){copy, size};
}

static bool is_set(const json_value *object, const char *key) {
    bool flag = false;
    return json_get_boolean(object, key, &flag, NULL) == AVO_OK && flag;
}

/* What decoding gives, one token at a time. */
static uint64_t streamed_hash(const tokenizer *tokenizer, const id_list *ids) {
    decode_stream stream;
    buffer out;
    uint64_t hash = FNV_BEGIN;
    decode_stream_init(&stream, tokenizer, true);
    buffer_init(&out, NULL, SIZE_MAX);
    for (size_t i = 0; i < ids->count; i++)
        assert_ok(decode_stream_push(&stream, ids->ids[i], &out, NULL));
    assert_ok(decode_stream_finish(&stream, &out, NULL));
    hash = fnv(hash, out.data, out.size);
    buffer_free(&out);
    return hash;
}

static void check_case(const tokenizer *tokenizer, const json_value *texts, const json_value *one,
                       const char *how) {
    text_view name = json_find(one, "file")->string;
    bool clean = is_set(one, "clean");
    bool marks = is_set(one, "marks"); /* texts with ▁ or < are another matter for llama2.c */
    id_list ids;
    id_list_init(&ids, NULL);
    size_t checked = 0;
    for (size_t i = 0; i < texts->array.count; i++) {
        char copy[4096];
        text_view text = json_item(texts, i)->string;
        if (clean)
            text = clean_text(text, copy, sizeof(copy));
        if (marks && (memmem(text.data, text.size, "\xE2\x96\x81", 3) != NULL ||
                      memchr(text.data, '<', text.size) != NULL))
            continue;
        checked++;
        for (int special = 0; special < 2; special++) {
            const json_value *hashes = json_find(one, special ? "special" : "plain");
            if (hashes == NULL)
                continue;
            ids.count = 0;
            encode_into(tokenizer, text, special, &ids);
            if (fnv_ids(&ids) >> 24 != hash_value(json_item(hashes, i)))
                fail_msg("%.*s (%s): ids of text %zu, special %d", TEXT_ARGUMENT(name), how, i,
                         special);
            const json_value *decoded = special ? NULL : json_find(one, "decoded");
            if (decoded != NULL &&
                streamed_hash(tokenizer, &ids) >> 24 != hash_value(json_item(decoded, i)))
                fail_msg("%.*s (%s): decoded text %zu", TEXT_ARGUMENT(name), how, i);
        }
    }
    const json_value *framed = json_find(one, "framed");
    if (framed != NULL) {
        encode_options options = {.add_begin = true, .add_end = true};
        ids.count = 0;
        assert_ok(tokenizer_encode(tokenizer, TEXT_LITERAL("a"), &options, &ids, NULL));
        assert_true(fnv_ids(&ids) >> 24 == hash_value(framed));
    }
    assert_true(checked > 100);
    id_list_free(&ids);
}

static void tiny_tokenizers(void **state) {
    expected *e = *state;
    const json_value *texts = json_find(&e->root, "texts");
    const json_value *cases = json_find(&e->root, "cases");
    assert_true(cases->array.count >= 15);
    for (size_t i = 0; i < cases->array.count; i++) {
        const json_value *one = json_item(cases, i);
        char name[64];
        snprintf(name, sizeof(name), "%.*s", TEXT_ARGUMENT(json_find(one, "file")->string));
        fixture fixture;
        fixture_named(&fixture, name);
        check_case(fixture.tokenizer, texts, one, "compiled");
        /* The image alone, somewhere else. */
        bytes_view image = tokenizer_image(fixture.tokenizer);
        uint8_t *copy = test_take_exact(image.size, 64);
        assert_non_null(copy);
        memcpy(copy, image.data, image.size);
        tokenizer_source source = {
            .kind = TOKENIZER_SOURCE_IMAGE, .data = {copy, image.size}, .name = name};
        tokenizer *again;
        avo_error error = {0};
        assert_ok_error(tokenizer_open(&source, NULL, &again, &error), &error);
        fixture_close(&fixture);
        check_case(again, texts, one, "image");
        tokenizer_close(again);
        free(copy);
    }
}

/* ---- Shared data ---- */

static uint64_t hash_text(const tokenizer *tokenizer, uint64_t hash, text_view text, id_list *ids) {
    ids->count = 0;
    encode_into(tokenizer, text, false, ids);
    return fnv(hash, ids->ids, ids->count * sizeof(int32_t));
}

static uint64_t hash_lines(const tokenizer *tokenizer, text_view text, id_list *ids) {
    uint64_t hash = FNV_BEGIN;
    for (size_t at = 0; at <= text.size;) {
        const char *end = at < text.size ? memchr(text.data + at, '\n', text.size - at) : NULL;
        size_t size = end == NULL ? text.size - at : (size_t)(end - text.data) - at;
        hash = hash_text(tokenizer, hash, (text_view){text.data + at, size}, ids);
        at += size + 1;
    }
    return hash;
}

/* Every code point there is, between letters, alone and doubled. */
static uint64_t hash_points(const tokenizer *tokenizer, id_list *ids) {
    uint64_t hash = FNV_BEGIN;
    char text[64 * 16];
    size_t size = 0;
    size_t count = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char one[4];
        if (c >= 0xD800 && c < 0xE000)
            continue;
        size_t bytes = utf8_encode(c, one);
        static const char *const parts[] = {"a", NULL, " ", NULL, NULL, "1"};
        for (size_t i = 0; i < 6; i++) {
            memcpy(text + size, parts[i] == NULL ? one : parts[i], parts[i] == NULL ? bytes : 1);
            size += parts[i] == NULL ? bytes : 1;
        }
        if (++count % 64 == 0 || c == 0x10FFFF) {
            hash = hash_text(tokenizer, hash, (text_view){text, size}, ids);
            size = 0;
        }
    }
    return hash;
}

static void shared_texts(void **state) {
    expected *e = *state;
    skip_without(test_data_folder(), "the shared test data");
    const json_value *shared = json_find(&e->root, "shared");
    assert_true(shared->array.count >= 5);
    id_list ids;
    id_list_init(&ids, NULL);
    for (size_t i = 0; i < shared->array.count; i++) {
        const json_value *one = json_item(shared, i);
        char name[128];
        snprintf(name, sizeof(name), "%.*s", TEXT_ARGUMENT(json_find(one, "file")->string));
        const char *path = test_data_path(name);
        skip_without(path, name);
        avo_error error = {0};
        tokenizer *tokenizer;
        assert_ok_error(tokenizer_open_file(path, NULL, &tokenizer, &error), &error);
        if (json_find(one, "points") != NULL &&
            hash_points(tokenizer, &ids) >> 24 != hash_value(json_find(one, "points")))
            fail_msg("%s: all code points", name);
        const json_value *texts = json_find(one, "texts");
        for (size_t k = 0; k < texts->array.count; k++) {
            char file[128];
            snprintf(file, sizeof(file), "%.*s",
                     TEXT_ARGUMENT(json_find(json_item(texts, k), "file")->string));
            file_map map;
            const char *text_path = test_data_path(file);
            skip_without(text_path, file);
            assert_ok_error(file_map_open(text_path, &map, &error), &error);
            text_view text = {(const char *)map.bytes.data, map.bytes.size};
            if (hash_text(tokenizer, FNV_BEGIN, text, &ids) >> 24 !=
                hash_value(json_find(json_item(texts, k), "whole")))
                fail_msg("%s: %s whole", name, file);
            if (hash_lines(tokenizer, text, &ids) >> 24 !=
                hash_value(json_find(json_item(texts, k), "lines")))
                fail_msg("%s: %s by lines", name, file);
            file_map_close(&map);
        }
        tokenizer_close(tokenizer);
    }
    id_list_free(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_tokenizers),
                                       cmocka_unit_test(shared_texts)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
