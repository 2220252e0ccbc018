/* config.json with every value, one after the other, at extremes and of the wrong type; the
 * committed models' configurations are what is changed. */
#include "support/support.h"

#include "formats/hostile.h"

#include <stdio.h>

static const char *const models[] = {
    "gemma3",   "gemma3-scaled", "gpt2",       "llama-dynamic", "llama-yarn", "llama3", "mistral",
    "opt-350m", "phi3-long",     "phi3-short", "qwen2-window",  "qwen3",      "smollm3"};

static const char tiny_file[] = "\2\0\0\0\0\0\0\0{}";

typedef struct mutation {
    arena *arena;
    json_value *root;
    buffer text;
    hostile_counts counts;
    size_t values;
} mutation;

static void judge_text(mutation *m) {
    m->text.size = 0;
    assert_ok(json_write_value(&m->text, m->root));
    memory_file files[] = {
        {"model.safetensors", {(const uint8_t *)tiny_file, sizeof(tiny_file) - 1}},
        {"config.json", {(const uint8_t *)m->text.data, m->text.size}}};
    judge(files, 2, &m->counts);
}

static void mutate(mutation *m, json_value *value) {
    static const int64_t integers[] = {
        0, 1, -1, 2, INT32_MAX, (int64_t)1 << 31, (int64_t)1 << 32, INT64_MAX, INT64_MIN};
    static const double numbers[] = {0.5, -0.5, 1e-300, 1e300, -1e300};
    json_value original = *value;
    m->values++;
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        *value = (json_value){.kind = JSON_INTEGER, .integer = integers[i]};
        judge_text(m);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        *value = (json_value){.kind = JSON_NUMBER, .number = numbers[i]};
        judge_text(m);
    }
    for (json_kind kind = JSON_NULL; kind <= JSON_OBJECT; kind++) {
        if (kind == JSON_INTEGER || kind == JSON_NUMBER)
            continue;
        *value = (json_value){.kind = kind}; /* null, false, "", [], {} */
        judge_text(m);
    }
    *value = (json_value){.kind = JSON_STRING, .string = TEXT_LITERAL("no such thing")};
    judge_text(m);
    *value = original;
    if (value->kind == JSON_OBJECT)
        for (size_t i = 0; i < value->object.count; i++)
            mutate(m, &value->object.members[i].value);
    if (value->kind == JSON_ARRAY)
        for (size_t i = 0; i < value->array.count; i++)
            mutate(m, &value->array.items[i]);
}

static void test_values(void **state) {
    (void)state;
    hostile_counts all = {0};
    size_t values = 0;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char name[128];
        snprintf(name, sizeof(name), "models/%s/config.json", models[i]);
        file_map map;
        avo_error error;
        assert_ok_error(file_map_open(test_fixture_path(name), &map, &error), &error);
        arena tree;
        arena_init(&tree, NULL, SIZE_MAX);
        json_value root;
        assert_ok_error(json_parse(&tree, (text_view){(const char *)map.bytes.data, map.bytes.size},
                                   &root, &error),
                        &error);
        mutation m = {.arena = &tree, .root = &root};
        buffer_init(&m.text, NULL, 1 << 20);
        judge_text(&m);
        assert_int_equal(m.counts.opened, 1);
        mutate(&m, &root);
        all.opened += m.counts.opened;
        all.refused += m.counts.refused;
        values += m.values;
        buffer_free(&m.text);
        arena_free(&tree);
        file_map_close(&map);
    }
    print_message("%zu values: %zu opened, %zu refused\n", values, all.opened, all.refused);
    assert_true(all.refused > 2000 && all.opened > 1000);
}

/* Every byte cut off; every allocation failing. */
static void test_cut(void **state) {
    (void)state;
    file_map map;
    avo_error error;
    assert_ok_error(file_map_open(test_fixture_path("models/phi3-long/config.json"), &map, &error),
                    &error);
    memory_file files[] = {
        {"model.safetensors", {(const uint8_t *)tiny_file, sizeof(tiny_file) - 1}},
        {"config.json", map.bytes}};
    judge_allocations(files, 2);
    hostile_counts counts = {0};
    for (size_t bytes = 0; bytes < map.bytes.size; bytes++) {
        files[1].bytes.size = bytes;
        judge(files, 2, &counts);
    }
    assert_true(counts.opened <= 1); /* without the last line feed */
    file_map_close(&map);
}

/* Files of a megabyte that would be trees of a hundred: the limit answers. */
static void test_large_trees(void **state) {
    (void)state;
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json"};
    size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i += 4)
        memcpy(text + i, "[0],", 4);
    memcpy(text, "[   ", 4);
    memcpy(text + bytes - 4, "[0]]", 4);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        memory_file files[] = {
            {"model.safetensors", {(const uint8_t *)tiny_file, sizeof(tiny_file) - 1}},
            {names[i], {(const uint8_t *)text, bytes}},
            {"config.json", {(const uint8_t *)"{\"model_type\":\"llama\"}", 22}}};
        hostile_counts counts = {0};
        judge(files, 3, &counts);
        assert_int_equal(counts.refused, 1);
        model_source *source;
        avo_error error;
        assert_refused(source_open_memory(files, 3, NULL, &source, &error), AVO_ERROR_LIMIT, &error,
                       "too many JSON values");
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_large_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
