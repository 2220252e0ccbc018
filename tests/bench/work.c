/* bench: the work of a step counted by hand, medians, and what tables do with odd names. */
#include "support/support.h"

#include "base/json.h"
#include "bench/bench.h"
#include "device/kv_tile.h"

#include <string.h>

static const uint8_t there[1];

static linear_view matrix(quant_type type, uint32_t rows, uint32_t k) {
    return (linear_view){
        .weight = {
            .type = type, .layout = QUANT_LAYOUT_PANELS, .rows = rows, .k = k, .data = there}};
}

static layer_view small_layer(quant_type type) {
    return (layer_view){.query = matrix(type, 64, 32),
                        .key = matrix(type, 32, 32),
                        .value = matrix(type, 32, 32),
                        .output = matrix(type, 32, 64),
                        .up = matrix(type, 96, 32),
                        .down = matrix(type, 32, 96),
                        .heads = 4,
                        .kv_heads = 2,
                        .head_size = 16};
}

#define WEIGHTS (64 * 32 + 2 * 32 * 32 + 32 * 64 + 2 * 96 * 32) /* of small_layer; no gate */

static void a_step_is_counted(void **state) {
    (void)state;
    layer_view layers[2] = {small_layer(QUANT_F32), small_layer(QUANT_F32)};
    model_view model = {.layers = 2, .layer = layers, .head = matrix(QUANT_F32, 160, 32)};
    kv_type kv = KV_F32;
    limit_work work = {0};
    bench_step_work(&model, kv, false, 3, 7, 1, 3, &work);
    double kv_bytes = 3 * 2 * 8 * 2 * 2 * 16 * 4; /* sessions, layers, positions, heads, K and V */
    assert_true(work.bytes == 4 * (2 * WEIGHTS + 160 * 32) + kv_bytes);
    assert_true(work.integer_operations == 0);
    double attention = 3 * 2 * 4.0 * 4 * 16 * 8;
    assert_true(work.floating_operations == 2.0 * 3 * (2 * WEIGHTS + 160 * 32) + attention);
}

static void a_prompt_sees_a_triangle(void **state) {
    (void)state;
    layer_view layer = small_layer(QUANT_F32);
    model_view model = {.layers = 1, .layer = &layer};
    kv_type kv = KV_F32;
    limit_work work = {0};
    bench_step_work(&model, kv, false, 1, 10, 3, 0, &work);
    assert_true(work.floating_operations == 2.0 * 3 * WEIGHTS + 4.0 * 64 * (11 + 12 + 13));
    layer.window = 12;
    limit_work windowed = {0};
    bench_step_work(&model, kv, false, 1, 10, 3, 0, &windowed);
    assert_true(windowed.floating_operations == 2.0 * 3 * WEIGHTS + 4.0 * 64 * (11 + 12 + 12));
    assert_true(windowed.bytes == work.bytes); /* positions 1 … 13 without 0: 14 − 1 = 13 rows */
    layer.window = 2;
    limit_work narrow = {0};
    bench_step_work(&model, kv, false, 1, 10, 3, 0, &narrow);
    assert_true(narrow.bytes == 4.0 * WEIGHTS + 4 * 2 * 2 * 16 * 4); /* 4 positions */
}

static void types_decide_what_is_an_integer(void **state) {
    (void)state;
    layer_view layer = small_layer(QUANT_Q8B);
    model_view model = {.layers = 1, .layer = &layer};
    kv_type kv = KV_INT8;
    limit_work work = {0}, floats = {0};
    bench_step_work(&model, kv, false, 1, 0, 1, 0, &work);
    assert_true(work.floating_operations == 0);
    assert_true(work.integer_operations == 2.0 * WEIGHTS + 4.0 * 64);
    bench_step_work(&model, kv, true, 1, 0, 1, 0, &floats);
    assert_true(floats.integer_operations == 0);
    assert_true(floats.floating_operations == work.integer_operations);
    assert_true(floats.bytes == work.bytes);
}

static void the_median_counts(void **state) {
    (void)state;
    machine_limits limits = {
        .read_bytes = 1e9, .integer_operations = 1e9, .floating_operations = 1e9};
    limit_work work = {.bytes = 1e9, .integer_operations = 5e8};
    bench_result result = {0};
    bench_sample odd[] = {{4, limits}, {1, limits}, {2, limits}};
    bench_conclude(odd, 3, 8, &work, &result);
    assert_true(result.seconds == 2 && result.tps == 4);
    assert_true(result.tps_low == 2 && result.tps_high == 8);
    assert_true(result.gbps == 0.5 && result.gops == 0.25 && result.share == 0.5);
    assert_int_equal(result.bound, LIMIT_READ);
    bench_sample even[] = {{4, limits}, {2, limits}};
    bench_conclude(even, 2, 6, &work, &result);
    assert_true(result.seconds == 3 && result.repeats == 2);
}

/* A machine that becomes slower makes times longer, not shares smaller. */
static void every_time_has_its_own_limits(void **state) {
    (void)state;
    machine_limits fast = {
        .read_bytes = 4e9, .integer_operations = 1e9, .floating_operations = 1e9};
    machine_limits slow = fast;
    slow.read_bytes = 1e9;
    limit_work work = {.bytes = 1e9};
    bench_sample samples[] = {{0.5, fast}, {2, slow}, {2, slow}, {0.5, fast}, {2, slow}};
    bench_result result = {0};
    bench_conclude(samples, 5, 1, &work, &result);
    assert_true(result.share == 0.5);
    assert_true(result.seconds == 2 && result.read_gbps == 1);
}

static void odd_names_stay_text(void **state) {
    (void)state;
    bench_result item = {.model = "a,\"b\"\\", .backend = "ref", .tps = 1, .seconds = 1};
    bench_results results = {&item, 1, 1};
    bench_report report = {"cpu, \"x\"", "none", 2, &results};
    buffer out;
    buffer_init(&out, NULL, 65536);
    assert_ok(bench_write_csv(&report, &out));
    assert_ok(buffer_terminate(&out));
    assert_non_null(strstr(out.data, "\n\"a,\"\"b\"\"\\\",ref,"));
    assert_non_null(strstr(out.data, ",\"cpu, \"\"x\"\"\"\n"));
    buffer_free(&out);
    buffer_init(&out, NULL, 65536);
    assert_ok(bench_write_json(&report, &out));
    arena arena;
    arena_init(&arena, NULL, 1 << 20);
    json_value root;
    avo_error error = {0};
    assert_ok_error(json_parse(&arena, buffer_text(&out), &root, &error), &error);
    const json_value *result = json_item(json_find(&root, "results"), 0);
    assert_memory_equal(json_find(result, "model")->string.data, item.model, 7);
    arena_free(&arena);
    buffer_free(&out);
}

static void a_full_buffer_is_an_error(void **state) {
    (void)state;
    bench_result item = {.model = "m",
                         .backend = "ref",
                         .tps = 1,
                         .read_gbps = 1,
                         .integer_gops = 1,
                         .floating_gops = 1};
    bench_results results = {&item, 1, 1};
    bench_report report = {"cpu", "none", 2, &results};
    avo_status (*const writers[])(const bench_report *, buffer *) = {
        bench_write_markdown, bench_write_csv, bench_write_json};
    for (size_t i = 0; i < 3; i++)
        for (size_t limit = 0; limit < 200; limit += 13) {
            buffer out;
            buffer_init(&out, NULL, limit);
            assert_int_equal(writers[i](&report, &out), AVO_ERROR_LIMIT);
            buffer_free(&out);
        }
}

static void machines_refuse_what_they_have_not(void **state) {
    (void)state;
    bench_machine *machine;
    machine_limits limits;
    avo_error error = {0};
    assert_ok_error(bench_machine_open(65536, &machine, &error), &error);
    assert_refused(bench_machine_measure(machine, "vmx", 1, &limits, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "vmx");
    bench_machine_close(machine);
    bench_machine_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_counted),
        cmocka_unit_test(a_prompt_sees_a_triangle),
        cmocka_unit_test(types_decide_what_is_an_integer),
        cmocka_unit_test(the_median_counts),
        cmocka_unit_test(every_time_has_its_own_limits),
        cmocka_unit_test(odd_names_stay_text),
        cmocka_unit_test(a_full_buffer_is_an_error),
        cmocka_unit_test(machines_refuse_what_they_have_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
