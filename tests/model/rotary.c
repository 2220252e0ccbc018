/* Rotation tables of every scaling rule against tests/fixtures/rotary.json, which
 * tools/oracle/rotary_tables.py computes in double precision and checks against transformers. */
#include "support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

#define FACTORS_MAX 64

typedef struct rotary_case {
    model_config config;
    uint32_t planned;
    double short_factor[FACTORS_MAX], long_factor[FACTORS_MAX];
} rotary_case;

static double number(const json_value *entry, const char *key, double otherwise) {
    avo_error error = {0};
    assert_ok_error(json_get_number(entry, key, 0.0, 1e9, &otherwise, &error), &error);
    return otherwise;
}

static rope_scaling_kind kind_of(const json_value *entry) {
    static const struct {
        const char *text;
        rope_scaling_kind kind;
    } kinds[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
                 {"yarn", ROPE_YARN},     {"llama3", ROPE_LLAMA3}, {"longrope", ROPE_LONGROPE}};
    text_view text = {"", 0};
    avo_error error = {0};
    assert_ok_error(json_get_string(entry, "rope_type", &text, &error), &error);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (text_is(text, kinds[i].text))
            return kinds[i].kind;
    fail_msg("rope_type %.*s", TEXT_ARGUMENT(text));
    return ROPE_PLAIN;
}

static const double *read_factors(const json_value *list, double *out, uint32_t *count) {
    if (list == NULL)
        return NULL;
    assert_true(list->kind == JSON_ARRAY && list->array.count <= FACTORS_MAX);
    for (size_t i = 0; i < list->array.count; i++)
        out[i] = list->array.items[i].number;
    *count = (uint32_t)list->array.count;
    return out;
}

static void read_case(const json_value *entry, rotary_case *out) {
    memset(out, 0, sizeof(*out));
    rope_scaling *rope = &out->config.rope;
    avo_error error = {0};
    out->config.rotary_dims = (uint32_t)number(entry, "dims", 0);
    out->config.head_size = out->config.rotary_dims;
    out->config.rope_base = number(entry, "base", 0);
    out->config.context = (uint32_t)number(entry, "context", 4096);
    out->planned = (uint32_t)number(entry, "planned", 4096);
    rope->kind = kind_of(entry);
    rope->factor = number(entry, "factor", 0);
    rope->original_context = (uint32_t)number(entry, "original", 0);
    rope->low_frequency_factor = number(entry, "low_freq_factor", 0);
    rope->high_frequency_factor = number(entry, "high_freq_factor", 0);
    rope->beta_fast = number(entry, "beta_fast", 32.0);
    rope->beta_slow = number(entry, "beta_slow", 1.0);
    rope->attention_factor = number(entry, "attention_factor", 0);
    rope->mscale = number(entry, "mscale", 0);
    rope->mscale_all_dim = number(entry, "mscale_all_dim", 0);
    rope->truncate = true;
    assert_ok_error(json_get_boolean(entry, "truncate", &rope->truncate, &error), &error);
    rope->short_factor =
        read_factors(json_find(entry, "short_factor"), out->short_factor, &rope->factor_count);
    rope->long_factor =
        read_factors(json_find(entry, "long_factor"), out->long_factor, &rope->factor_count);
}

static void check_case(const json_value *entry, arena *arena) {
    rotary_case wanted;
    const rotary_table *tables;
    uint32_t count;
    avo_error error = {0};
    text_view name = {"", 0};
    read_case(entry, &wanted);
    assert_ok_error(json_get_string(entry, "name", &name, &error), &error);
    assert_ok_error(model_rotary(&wanted.config, wanted.planned, arena, &tables, &count, &error),
                    &error);
    const json_value *frequency = json_find(entry, "frequency");
    assert_int_equal(count, 1);
    assert_int_equal(tables[0].pairs, frequency->array.count);
    for (uint32_t i = 0; i < tables[0].pairs; i++) {
        const json_value *item = json_item(frequency, i);
        double exact = item->kind == JSON_INTEGER ? (double)item->integer : item->number;
        if (!(fabs(tables[0].frequency[i] - exact) <= 1e-12 * exact))
            fail_msg("%.*s: frequency %u is %.17g, expected %.17g", TEXT_ARGUMENT(name), i,
                     tables[0].frequency[i], exact);
    }
    double magnitude = number(entry, "magnitude", 0);
    if (!(fabs(tables[0].magnitude - magnitude) <= 1e-12))
        fail_msg("%.*s: magnitude %.17g, expected %.17g", TEXT_ARGUMENT(name), tables[0].magnitude,
                 magnitude);
    assert_int_equal(tables[0].dynamic_from, wanted.config.rope.kind == ROPE_DYNAMIC ? 2048 : 0);
}

static void test_every_rule(void **state) {
    (void)state;
    file_map map;
    json_value root;
    arena memory;
    avo_error error = {0};
    arena_init(&memory, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(test_fixture_path("rotary.json"), &map, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    assert_ok_error(json_parse(&memory, text, &root, &error), &error);
    assert_true(root.kind == JSON_ARRAY && root.array.count >= 15);
    for (size_t i = 0; i < root.array.count; i++)
        check_case(&root.array.items[i], &memory);
    arena_free(&memory);
    file_map_close(&map);
}

/* Windowed layers with a base of their own are not scaled. */
static void test_second_table(void **state) {
    (void)state;
    arena memory;
    avo_error error = {0};
    const rotary_table *tables;
    uint32_t count;
    model_config config = {.rotary_dims = 8, .rope_base = 1e6, .rope_base_local = 1e4};
    config.rope = (rope_scaling){.kind = ROPE_LINEAR, .factor = 8.0};
    arena_init(&memory, NULL, SIZE_MAX);
    assert_ok_error(model_rotary(&config, 64, &memory, &tables, &count, &error), &error);
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(fabs(tables[0].frequency[i] - pow(1e6, -(double)i / 4) / 8.0) < 1e-15);
        assert_true(fabs(tables[1].frequency[i] - pow(1e4, -(double)i / 4)) < 1e-15);
    }
    arena_free(&memory);
}

static void test_too_few_factors(void **state) {
    (void)state;
    arena memory;
    avo_error error = {0};
    const rotary_table *tables;
    uint32_t count;
    static const double factors[3] = {1.0, 1.0, 1.0};
    model_config config = {.rotary_dims = 8, .rope_base = 1e4};
    config.rope = (rope_scaling){.kind = ROPE_LONGROPE,
                                 .original_context = 16,
                                 .short_factor = factors,
                                 .long_factor = factors,
                                 .factor_count = 3};
    arena_init(&memory, NULL, SIZE_MAX);
    assert_refused(model_rotary(&config, 64, &memory, &tables, &count, &error), AVO_ERROR_FORMAT,
                   &error, "3 RoPE factors, must be 4 for");
    config.rope.factor_count = 4;
    config.rope.long_factor = NULL;
    assert_refused(model_rotary(&config, 64, &memory, &tables, &count, &error), AVO_ERROR_FORMAT,
                   &error, "RoPE factors");
    arena_free(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule),
        cmocka_unit_test(test_second_table),
        cmocka_unit_test(test_too_few_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
