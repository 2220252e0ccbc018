/* sched/trace: what is read, and what is refused by line and field. */
#include "support/support.h"

#include "base/file.h"
#include "sched/trace.h"

#include <stdlib.h>
#include <string.h>

#define HEADING "TIMESTAMP,ContextTokens,GeneratedTokens"

static avo_status parse(const char *text, simulate_item *items, uint32_t capacity, uint32_t *count,
                        avo_error *error) {
    size_t size = strlen(text);
    char *exact = malloc(size > 0 ? size : 1); /* nothing behind it is read */
    memcpy(exact, text, size);
    avo_status status =
        trace_parse((text_view){exact, size}, "t.csv", items, capacity, count, error);
    free(exact);
    return status;
}

static void lines_are_read(void **state) {
    (void)state;
    simulate_item items[4];
    uint32_t count = 0;
    avo_error error = {0};
    const char *text = HEADING "\r\n2023-12-31 23:59:59.9999999,374,44\r\n"
                               "2024-01-01 00:00:00.5,396,0\r\n"
                               "2024-03-01T00:00:00,1,16777216\r\n";
    assert_int_equal(trace_lines(text_from(text)), 3);
    assert_ok_error(parse(text, items, 4, &count, &error), &error);
    assert_int_equal(count, 3);
    assert_int_equal(items[0].arrival_ns, 1);
    assert_int_equal(items[0].prompt_tokens, 374);
    assert_int_equal(items[0].new_tokens_max, 44);
    assert_int_equal(items[1].arrival_ns, 1 + 500000100);
    assert_int_equal(items[1].new_tokens_max, 1); /* an answer of nothing counts as one */
    /* January and a leap year's February, less the 100 ns. */
    assert_int_equal(items[2].arrival_ns, 1 + 60 * 86400000000000ull + 100);
    assert_ok_error(parse(text, items, 2, &count, &error), &error);
    assert_int_equal(count, 2);
    assert_ok_error(parse(HEADING, items, 2, &count, &error), &error);
    assert_int_equal(count, 0);
}

static void damage_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"", "t.csv:1: the header line must be"},
        {"TIMESTAMP,Context\n", "t.csv:1: the header line must be"},
        {HEADING "\n\n2023-11-16 18:17:03,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n2023-11-16,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n2023-13-16 18:17:03,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n2023-11-16 24:17:03,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n1969-11-16 18:17:03,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n2023-11-16 18:17:03.,1,1\n", "t.csv:2: TIMESTAMP"},
        {HEADING "\n2023-11-16 18:17:03.1234567890,1,1\n", "t.csv:2: ContextTokens"},
        {HEADING "\n2023-11-16 18:17:03,,1\n", "t.csv:2: ContextTokens"},
        {HEADING "\n2023-11-16 18:17:03,-1,1\n", "t.csv:2: ContextTokens"},
        {HEADING "\n2023-11-16 18:17:03,0,1\n", "ContextTokens is 0"},
        {HEADING "\n2023-11-16 18:17:03,16777217,1\n", "t.csv:2: ContextTokens"},
        {HEADING "\n2023-11-16 18:17:03,1\n", "t.csv:2: GeneratedTokens"},
        {HEADING "\n2023-11-16 18:17:03,1,99999999999999999999\n", "t.csv:2: GeneratedTokens"},
        {HEADING "\n2023-11-16 18:17:03,1,1,1\n", "after the last field"},
        {HEADING "\n2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n", "t.csv:3: TIMESTAMP"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        simulate_item items[4];
        uint32_t count = 0;
        avo_error error = {0};
        assert_refused(parse(wrong[i].text, items, 4, &count, &error), AVO_ERROR_FORMAT, &error,
                       wrong[i].part);
    }
}

/* Every truncation of a good file is read up to there or refused; nothing is read behind it. */
static void truncations_do_no_harm(void **state) {
    (void)state;
    const char *text =
        HEADING "\n2023-12-31 23:59:59.9999999,374,44\n2024-01-01 00:00:00.5,396,1\n";
    for (size_t size = 0; size <= strlen(text); size++) {
        char cut[256] = {0};
        simulate_item items[4];
        uint32_t count = 0;
        avo_error error = {0};
        memcpy(cut, text, size);
        avo_status status = parse(cut, items, 4, &count, &error);
        assert_true(status == AVO_OK || status == AVO_ERROR_FORMAT);
        assert_true(count <= 2);
    }
}

static void azure_traces_are_read(void **state) {
    (void)state;
    const char *path = test_data_path("traces/AzureLLMInferenceTrace_conv.csv");
    skip_without(path, "the Azure trace");
    file_map map;
    avo_error error = {0};
    uint32_t count = 0;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    uint32_t lines = trace_lines(text);
    simulate_item *items = calloc(lines, sizeof(*items));
    assert_ok_error(trace_parse(text, path, items, lines, &count, &error), &error);
    assert_int_equal(count, 19366);
    assert_int_equal(items[0].prompt_tokens, 374);
    assert_in_range(items[count - 1].arrival_ns, 3400000000000ull, 3700000000000ull); /* an hour */
    free(items);
    file_map_close(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(truncations_do_no_harm),
        cmocka_unit_test(azure_traces_are_read),
    };
    return cmocka_run_group_tests_name("sched/trace", tests, NULL, NULL);
}
