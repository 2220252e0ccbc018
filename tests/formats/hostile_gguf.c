/* GGUF files that lie: cut off, flipped, extreme. */
#include "support/support.h"

#include "formats/gguf_builder.h"
#include "formats/hostile.h"

static gguf_builder builder;

static memory_file whole(void) {
    return (memory_file){"tiny.gguf", {builder.bytes, builder.size}};
}

static void test_truncated(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        build_llama(&builder, version);
        memory_file file = whole();
        hostile_counts counts = {0};
        judge_truncations(&file, 1, &counts);
        assert_int_equal(counts.opened, 0); /* the last tensor ends with the file */
        judge(&file, 1, &counts);
        assert_int_equal(counts.opened, 1);
    }
}

static void test_flipped(void **state) {
    (void)state;
    build_llama(&builder, 3);
    memory_file file = whole();
    hostile_counts counts = {0};
    judge_flips(&file, 1, builder.header, &counts);
    assert_true(counts.refused > 1000 && counts.opened > 1000);
}

static void test_extremes(void **state) {
    (void)state;
    build_llama(&builder, 3);
    memory_file file = whole();
    hostile_counts counts = {0};
    for (size_t i = 0; i < builder.field_count; i++)
        judge_extremes(&file, 1, builder.fields[i].offset, builder.fields[i].bytes, &counts);
    assert_true(counts.refused > 1000);
}

static void test_allocations(void **state) {
    (void)state;
    build_llama(&builder, 3);
    memory_file file = whole();
    judge_allocations(&file, 1);
}

/* Arrays in arrays in arrays …: a file of some kilobytes must not exhaust the stack. */
static void test_depth(void **state) {
    (void)state;
    build_begin(&builder, 3, 0, 1);
    build_key(&builder, "deep", GGUF_ARRAY);
    for (int i = 0; i < 200; i++) {
        build_u32(&builder, GGUF_ARRAY);
        build_u64(&builder, 1);
    }
    build_u32(&builder, GGUF_U8);
    build_u64(&builder, 0);
    memory_file file = whole();
    model_source *source;
    avo_error error;
    assert_refused(source_open_memory(&file, 1, NULL, &source, &error), AVO_ERROR_LIMIT, &error,
                   "nests arrays more than");
}

/* Many empty strings: the table of offsets must stay below the limit. */
static void test_strings(void **state) {
    (void)state;
    size_t strings = GGUF_STRINGS_MAX + 1;
    size_t bytes = 128 + strings * 8;
    uint8_t *large = calloc(1, bytes);
    assert_non_null(large);
    build_begin(&builder, 3, 0, 1);
    build_value_array(&builder, "many", GGUF_STRING, strings);
    memcpy(large, builder.bytes, builder.size);
    memory_file file = {"tiny.gguf", {large, bytes}};
    model_source *source;
    avo_error error;
    assert_refused(source_open_memory(&file, 1, NULL, &source, &error), AVO_ERROR_LIMIT, &error,
                   "\"many\" has 4194305 strings");
    free(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_extremes),  cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_depth),     cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
