/* safetensors files, shard lists and configurations that lie. */
#include "support/support.h"

#include "formats/hostile.h"

#include <stdio.h>

static const char tiny_config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"intermediate_size\":12,\"vocab_size\":5}";

static const char tiny_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[32,33]}}  ";

static uint8_t contents[4096];

static size_t make_file(const char *header, size_t data) {
    uint64_t length = strlen(header);
    memcpy(contents, &length, 8);
    memcpy(contents + 8, header, length);
    memset(contents + 8 + length, 0x3C, data);
    return 8 + length + data;
}

#define TEXT_FILE(name, text)                                                                      \
    {                                                                                              \
        name, {                                                                                    \
            (const uint8_t *)(text), strlen(text)                                                  \
        }                                                                                          \
    }

static void test_file(void **state) {
    (void)state;
    size_t size = make_file(tiny_header, 33);
    memory_file files[] = {{"model.safetensors", {contents, size}},
                           TEXT_FILE("config.json", tiny_config)};
    hostile_counts counts = {0};
    judge(files, 2, &counts);
    assert_int_equal(counts.opened, 1);
    judge_truncations(files, 2, &counts);
    assert_int_equal(counts.opened, 1);
    judge_flips(files, 2, 8 + strlen(tiny_header), &counts);
    judge_extremes(files, 2, 0, 8, &counts);
    assert_true(counts.refused > 1500 && counts.opened > 100);
    judge_allocations(files, 2);
}

/* Every number of the header, as text, at the extremes. */
static void test_numbers(void **state) {
    (void)state;
    static const char *const extremes[] = {"0",
                                           "1",
                                           "-1",
                                           "2147483648",
                                           "4294967296",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "-9223372036854775808",
                                           "32",
                                           "34",
                                           "1e30",
                                           "0.5",
                                           "null",
                                           "true",
                                           "\"1\"",
                                           "[]",
                                           "{}"};
    hostile_counts counts = {0};
    size_t numbers = 0;
    for (const char *at = tiny_header; *at != '\0'; at++) {
        bool number = *at >= '0' && *at <= '9' && (at[-1] == '[' || at[-1] == ',');
        if (!number)
            continue;
        numbers++;
        size_t digits = strspn(at, "0123456789");
        for (size_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
            char header[1024];
            snprintf(header, sizeof(header), "%.*s%s%s", (int)(at - tiny_header), tiny_header,
                     extremes[i], at + digits);
            size_t size = make_file(header, 33);
            memory_file files[] = {{"model.safetensors", {contents, size}},
                                   TEXT_FILE("config.json", tiny_config)};
            judge(files, 2, &counts);
        }
        at += digits - 1;
    }
    assert_int_equal(numbers, 9);
    assert_true(counts.refused > 100);
}

/* The list of shards: cut off and flipped. */
static void test_index(void **state) {
    (void)state;
    static const char index[] = "{\"metadata\":{\"total_size\":33},\"weight_map\":{"
                                "\"a.weight\":\"m-1-of-1.safetensors\","
                                "\"c\":\"m-1-of-1.safetensors\"}}";
    static uint8_t copy[sizeof(index)];
    size_t size = make_file(tiny_header, 33);
    memory_file files[] = {{"m-1-of-1.safetensors", {contents, size}},
                           {"model.safetensors.index.json", {copy, sizeof(index) - 1}},
                           TEXT_FILE("config.json", tiny_config)};
    hostile_counts counts = {0};
    memcpy(copy, index, sizeof(index));
    judge(files, 3, &counts);
    assert_int_equal(counts.opened, 1);
    judge_allocations(files, 3);
    for (size_t bit = 0; bit < 8 * (sizeof(index) - 1); bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        judge(files, 3, &counts);
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    for (size_t bytes = 0; bytes < sizeof(index) - 1; bytes++) {
        files[1].bytes.size = bytes;
        judge(files, 3, &counts);
    }
    assert_true(counts.refused > 500);
}

/* A header of a hundred thousand empty arrays would be a tree of gigabytes: the limit answers. */
static void test_large_header(void **state) {
    (void)state;
    size_t length = (size_t)12 << 20;
    uint8_t *large = malloc(8 + length);
    assert_non_null(large);
    uint64_t stated = length;
    memcpy(large, &stated, 8);
    memset(large + 8, '0', length);
    memcpy(large + 8, "{\"a\":[", 6);
    for (size_t i = 6; i + 2 < length; i += 2)
        memcpy(large + 8 + i, "0,", 2);
    memcpy(large + 8 + length - 3, "0]}", 3);
    memory_file files[] = {{"model.safetensors", {large, 8 + length}},
                           TEXT_FILE("config.json", tiny_config)};
    hostile_counts counts = {0};
    judge(files, 2, &counts);
    assert_int_equal(counts.refused, 1);
    model_source *source;
    avo_error error;
    assert_refused(source_open_memory(files, 2, NULL, &source, &error), AVO_ERROR_LIMIT, &error,
                   "too many JSON values");
    free(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_large_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
