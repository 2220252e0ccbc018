/* sample/: the probabilities that transformers' own processors give (tests/fixtures/sampling.json,
 * made by tools/oracle/sampling.py), against draws. */
#include "support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

#define VOCABULARY 48
#define DRAWS      4000

static double number_of(const json_value *value) {
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static float setting_of(const json_value *setting, const char *name, double otherwise) {
    const json_value *value = json_find(setting, name);
    return (float)(value == NULL ? otherwise : number_of(value));
}

static sampler *open_case(const json_value *one, uint64_t seed) {
    const json_value *setting = json_find(one, "setting");
    avo_logit_bias bias[4];
    avo_sampling options = AVO_SAMPLING_INIT;
    options.temperature = setting_of(setting, "temperature", 1);
    options.top_k = (uint32_t)setting_of(setting, "top_k", 0);
    options.top_p = setting_of(setting, "top_p", 1);
    options.min_p = setting_of(setting, "min_p", 0);
    options.typical_p = setting_of(setting, "typical_p", 1);
    options.repetition_penalty = setting_of(setting, "repetition_penalty", 1);
    options.seed = seed;
    options.bias = bias;
    const json_value *pairs = json_find(setting, "bias");
    for (; json_item(pairs, options.bias_count) != NULL; options.bias_count++) {
        const json_value *pair = json_item(pairs, options.bias_count);
        bias[options.bias_count].token = (int32_t)json_item(pair, 0)->integer;
        bias[options.bias_count].bias = (float)number_of(json_item(pair, 1));
    }
    avo_error error = {0};
    sampler *sampler = NULL;
    assert_ok_error(sampler_open(&options, VOCABULARY, NULL, &sampler, &error), &error);
    const json_value *prompt = json_find(one, "prompt");
    for (size_t i = 0; i < prompt->array.count; i++) {
        int32_t token = (int32_t)json_item(prompt, i)->integer;
        sampler_see_prompt(sampler, &token, 1);
    }
    return sampler;
}

static void check_case(const json_value *one, size_t index) {
    float logits[VOCABULARY];
    double shares[VOCABULARY];
    int counts[VOCABULARY] = {0};
    for (size_t i = 0; i < VOCABULARY; i++) {
        logits[i] = (float)number_of(json_item(json_find(one, "logits"), i));
        shares[i] = number_of(json_item(json_find(one, "shares"), i));
    }
    sampler *sampler = open_case(one, index);
    avo_error error = {0};
    for (uint64_t position = 0; position < DRAWS; position++) {
        sample_choice choice;
        assert_ok_error(sampler_draw(sampler, logits, position, &choice, &error), &error);
        counts[choice.token]++;
    }
    sampler_close(sampler);
    for (size_t i = 0; i < VOCABULARY; i++) {
        /* Five standard deviations, and what is forbidden never comes. */
        double expected = shares[i] * DRAWS;
        double allowed = shares[i] > 0 ? 5 * sqrt(expected * (1 - shares[i])) + 1 : 0;
        if (fabs(counts[i] - expected) > allowed)
            fail_msg("case %zu: token %zu came %d times, expected are %.1f", index, i, counts[i],
                     expected);
    }
}

static void draws_as_transformers(void **state) {
    (void)state;
    avo_error error = {0};
    file_map map;
    arena arena;
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(test_fixture_path("sampling.json"), &map, &error), &error);
    assert_ok_error(json_parse(&arena, (text_view){(const char *)map.bytes.data, map.bytes.size},
                               &root, &error),
                    &error);
    assert_true(root.array.count >= 40);
    for (size_t i = 0; i < root.array.count; i++)
        check_case(json_item(&root, i), i);
    arena_free(&arena);
    file_map_close(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(draws_as_transformers)};
    return cmocka_run_group_tests_name("sample/transformers", tests, NULL, NULL);
}
