/* What must hold between the fields of a configuration, relation by relation, whatever the format;
 * and generation defaults: what passes here, the sampler takes. */
#include "support/support.h"

#include "formats/formats_int.h"
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

/* ---- Configurations ---- */

static const uint8_t flags_on[] = {1, 1};
static const uint8_t flags_off[] = {0, 0};
static const uint8_t flags_wild[] = {0, 7};
static const double factors[] = {1, 2, 3, 4};
static const double factors_zero[] = {1, 2, 0, 4};
static const double factors_nan[] = {1, 2, NAN, 4};

static model_config rotated(void) {
    return (model_config){
        .layers = 2,
        .width = 16,
        .feed_forward = 24,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 8,
        .vocabulary = 10,
        .context = 64,
        .embedding_width = 16,
        .norm_epsilon = 1e-5,
        .rotary_dims = 8,
        .rope_base = 10000,
        .rope = {.factor = 1, .truncate = true},
        .layer_windowed = flags_off,
        .layer_rotary = flags_on,
    };
}

static model_config scaled(rope_scaling_kind kind) {
    model_config config = rotated();
    config.rope = (rope_scaling){.kind = kind,
                                 .factor = 4,
                                 .original_context = 32,
                                 .low_frequency_factor = 1,
                                 .high_frequency_factor = 4,
                                 .beta_fast = 32,
                                 .beta_slow = 1,
                                 .short_factor = factors,
                                 .long_factor = factors,
                                 .factor_count = 4};
    return config;
}

static model_config learned(void) {
    model_config config = rotated();
    config.rotary_dims = 0;
    config.layer_rotary = flags_off;
    config.positions = 66;
    config.position_offset = 2;
    return config;
}

static void refuse(const model_config *config, const char *part) {
    avo_error error = {0};
    assert_refused(config_check(config, "x.avo", &error), AVO_ERROR_FORMAT, &error, part);
    assert_non_null(strstr(error.text, "x.avo"));
}

static void pass(const model_config *config) {
    avo_error error = {0};
    assert_ok_error(config_check(config, "x.avo", &error), &error);
}

/* `base` with one field changed is refused with `part` in the message. */
#define REFUSE(base, field, value, part)                                                           \
    do {                                                                                           \
        model_config changed = base;                                                               \
        pass(&changed);                                                                            \
        changed.field = value;                                                                     \
        refuse(&changed, part);                                                                    \
    } while (0)
#define PASS(base, field, value)                                                                   \
    do {                                                                                           \
        model_config changed = base;                                                               \
        changed.field = value;                                                                     \
        pass(&changed);                                                                            \
    } while (0)

static void test_sizes(void **state) {
    (void)state;
    REFUSE(rotated(), layers, 0, "layer count is 0");
    REFUSE(rotated(), layers, SOURCE_LAYERS_MAX + 1, "layer count");
    REFUSE(rotated(), width, 0, "width is 0");
    REFUSE(rotated(), embedding_width, 0, "embedding width is 0");
    REFUSE(rotated(), feed_forward, SOURCE_FEED_FORWARD_MAX + 1, "feed-forward width");
    REFUSE(rotated(), heads, 0, "head count is 0");
    REFUSE(rotated(), kv_heads, 0, "KV head count is 0");
    REFUSE(rotated(), kv_heads, 3, "heads (4) must be a multiple of KV heads (3)");
    REFUSE(rotated(), kv_heads, 8, "heads (4) must be a multiple of KV heads (8)");
    REFUSE(rotated(), head_size, 0, "head size is 0");
    REFUSE(rotated(), vocabulary, 0, "vocabulary is 0");
    REFUSE(rotated(), context, 0, "context is 0");
    REFUSE(rotated(), norm_epsilon, -1e-9, "norm epsilon");
    REFUSE(rotated(), norm_epsilon, NAN, "norm epsilon is nan");
    REFUSE(rotated(), norm_epsilon, 1.5, "norm epsilon");
    REFUSE(rotated(), attention_scale, INFINITY, "attention scale is inf");
    REFUSE(rotated(), residual_scale, -1, "residual scale is -1");
    REFUSE(rotated(), logit_softcap, NAN, "logit soft cap is nan");
}

static void test_layers(void **state) {
    (void)state;
    REFUSE(rotated(), layer_windowed, NULL, "the per-layer window and");
    REFUSE(rotated(), layer_rotary, NULL, "the per-layer window and RoPE flags are missing");
    REFUSE(rotated(), layer_rotary, flags_wild, "layer 1: window flag is 0 and RoPE flag is 7");
    REFUSE(rotated(), layer_windowed, flags_wild, "layer 1: window flag is 7");
    REFUSE(rotated(), layer_windowed, flags_on,
           "layer 0 uses an attention window, but the window is 0");
    REFUSE(rotated(), window, SOURCE_CONTEXT_MAX + 1, "attention window is 16777217");
    PASS(rotated(), window, 1);
}

static void test_positions(void **state) {
    (void)state;
    REFUSE(learned(), position_offset, 66,
           "position offset is 66, must be less than the number of learned positions (66");
    REFUSE(learned(), position_offset, UINT32_MAX, "position offset is 4294967295");
    REFUSE(learned(), position_offset, 3, "context is 64, but only 63 learned positions");
    REFUSE(learned(), positions, 2,
           "position offset is 2, must be less than the number of learned positions (2");
    REFUSE(learned(), positions, 0,
           "position offset is 2, must be less than the number of learned positions (0");
    REFUSE(learned(), positions, SOURCE_CONTEXT_MAX + 1, "learned positions, must");
    REFUSE(learned(), rope.kind, ROPE_LINEAR, "no dimensions are rotated");
    REFUSE(learned(), rope_base, NAN, "RoPE base is nan, must be 0 to");
    REFUSE(learned(), rope.factor, INFINITY, "RoPE scaling factor is inf, must be");
    PASS(learned(), position_offset, 0);
    PASS(learned(), positions, 100);
}

static void test_rotation(void **state) {
    (void)state;
    REFUSE(rotated(), rotary_dims, 10,
           "10 rotated dimensions, must be even and at most the head size (8");
    REFUSE(rotated(), rotary_dims, 7, "must be even");
    REFUSE(rotated(), rope_base, 1, "RoPE base is 1, must be 1.0001");
    REFUSE(rotated(), rope_base, 0, "RoPE base is 0, must be 1.0001");
    REFUSE(rotated(), rope_base, NAN, "RoPE base is nan, must be 0 to");
    REFUSE(rotated(), rope_base_local, 1, "local RoPE base is 1, must be 1.0001");
    REFUSE(rotated(), rope_base_local, -10000, "local RoPE base is -10000, must be 0 to");
    REFUSE(rotated(), rope.factor, 0, "RoPE scaling factor is 0, must be");
    REFUSE(rotated(), rope.attention_factor, -1, "RoPE attention factor is -1, must be");
    REFUSE(scaled(ROPE_LINEAR), rope.factor, -2, "RoPE scaling factor is -2, must be");
    REFUSE(scaled(ROPE_DYNAMIC), rotary_dims, 2, "rotated dimensions, must");
    REFUSE(scaled(ROPE_DYNAMIC), rope.original_context, UINT32_MAX, "original context is 4.29");
    REFUSE(scaled(ROPE_YARN), rope.original_context, 0,
           "the original context of RoPE scaling is 0");
    REFUSE(scaled(ROPE_YARN), rope.beta_fast, 0, "beta_fast is 0");
    REFUSE(scaled(ROPE_YARN), rope.beta_slow, NAN, "beta_slow is nan");
    REFUSE(scaled(ROPE_YARN), rope.mscale, INFINITY, "RoPE mscale is inf, must be");
    REFUSE(scaled(ROPE_YARN), rope.mscale_all_dim, -1, "RoPE mscale_all_dim is -1, must be");
    REFUSE(scaled(ROPE_LLAMA3), rope.original_context, 1,
           "the original context of RoPE scaling is 1");
    REFUSE(scaled(ROPE_LLAMA3), rope.low_frequency_factor, 4,
           "low_freq_factor is 4, must be less than high_freq_factor (4");
    REFUSE(scaled(ROPE_LLAMA3), rope.low_frequency_factor, 0, "low_freq_factor is 0");
    REFUSE(scaled(ROPE_LLAMA3), rope.high_frequency_factor, 0.5, "low_freq_factor is 1, must be");
    REFUSE(scaled(ROPE_LONGROPE), rope.original_context, 1,
           "the original context of RoPE scaling is 1");
    REFUSE(scaled(ROPE_LONGROPE), rope.factor_count, 3, "3 RoPE factors");
    REFUSE(scaled(ROPE_LONGROPE), rope.long_factor, factors_zero,
           "long RoPE factor is 0, must be 1e-09");
    REFUSE(scaled(ROPE_LONGROPE), rope.short_factor, factors_nan,
           "short RoPE factor is nan, must be 1e-09");
    REFUSE(scaled(ROPE_LONGROPE), rope.short_factor, NULL, "RoPE factors are missing");
    REFUSE(scaled(ROPE_FACTORS), rope.factor_count, 5, "5 RoPE factors");
    REFUSE(scaled(ROPE_FACTORS), rope.long_factor, NULL, "RoPE factors are missing");
}

/* ---- Generation defaults ---- */

static const char *const field_names[GENERATION_FIELD_COUNT] = {"temperature", "top_p", "min_p",
                                                                "typical_p", "repetition_penalty"};

static avo_status ask_sampler(const generation_defaults *defaults, avo_error *error) {
    avo_sampling sampling = AVO_SAMPLING_INIT;
    const float given[] = {defaults->temperature, defaults->top_p, defaults->min_p,
                           defaults->typical_p, defaults->repetition_penalty};
    float *const taken[] = {&sampling.temperature, &sampling.top_p, &sampling.min_p,
                            &sampling.typical_p, &sampling.repetition_penalty};
    for (size_t i = 0; i < GENERATION_FIELD_COUNT; i++)
        if (!isnan(given[i]))
            *taken[i] = given[i];
    sampler *sampler;
    avo_status status = sampler_open(&sampling, 10, NULL, &sampler, error);
    if (status == AVO_OK)
        sampler_close(sampler);
    return status;
}

/* At every border, both say the same. */
static void test_ranges_are_the_samplers(void **state) {
    (void)state;
    const double numbers[] = {0,
                              -0.0,
                              -1e-9,
                              (double)FLT_TRUE_MIN,
                              (double)FLT_MIN / 2,
                              (double)FLT_MIN,
                              0.5,
                              1,
                              (double)nextafterf(1, 2),
                              1000,
                              (double)FLT_MAX,
                              -(double)FLT_MAX,
                              INFINITY,
                              -INFINITY};
    size_t passed = 0, refused = 0;
    for (generation_field field = 0; field < GENERATION_FIELD_COUNT; field++)
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
            generation_defaults defaults;
            avo_error error = {0}, sampler_error = {0};
            generation_defaults_init(&defaults);
            avo_status status = generation_number_set(&defaults, field, numbers[i], "x.gguf",
                                                      field_names[field], &error);
            if (status == AVO_OK) {
                assert_ok_error(ask_sampler(&defaults, &sampler_error), &sampler_error);
                assert_ok_error(generation_check(&defaults, 10, "x.avo", &error), &error);
                passed++;
                continue;
            }
            assert_int_equal(status, AVO_ERROR_FORMAT);
            assert_non_null(strstr(error.text, "x.gguf"));
            assert_non_null(strstr(error.text, field_names[field]));
            refused++;
            /* Put there all the same, the sampler and the whole check refuse it too. */
            float *place[] = {&defaults.temperature, &defaults.top_p, &defaults.min_p,
                              &defaults.typical_p, &defaults.repetition_penalty};
            *place[field] = (float)numbers[i];
            assert_int_equal(ask_sampler(&defaults, &sampler_error), AVO_ERROR_ARGUMENT);
            assert_refused(generation_check(&defaults, 10, "x.avo", &error), AVO_ERROR_FORMAT,
                           &error, field_names[field]);
        }
    assert_true(passed > 25 && refused > 25);
}

static void test_numbers_that_are_none(void **state) {
    (void)state;
    generation_defaults defaults;
    avo_error error = {0};
    generation_defaults_init(&defaults);
    assert_ok_error(generation_check(&defaults, 1, "x.avo", &error), &error);
    assert_refused(generation_number_set(&defaults, GENERATION_TOP_P, NAN, "x.gguf", "p", &error),
                   AVO_ERROR_FORMAT, &error, "p is nan");
    assert_refused(
        generation_number_set(&defaults, GENERATION_TYPICAL_P, 1e-300, "x.gguf", "t", &error),
        AVO_ERROR_FORMAT, &error, "t is 1e-300, must be more than 0 and at most 1 (1 disables it)");
    assert_refused(
        generation_number_set(&defaults, GENERATION_TEMPERATURE, 1e300, "x.gguf", "temp", &error),
        AVO_ERROR_FORMAT, &error, "temp is 1e+300");
    assert_true(isnan(defaults.top_p) && isnan(defaults.typical_p) && isnan(defaults.temperature));
}

static void test_top_k(void **state) {
    (void)state;
    generation_defaults defaults;
    avo_error error = {0};
    generation_defaults_init(&defaults);
    assert_ok_error(generation_top_k_set(&defaults, 40, "x", "top_k", &error), &error);
    assert_int_equal(defaults.top_k, 40);
    assert_ok_error(generation_top_k_set(&defaults, -1, "x", "top_k", &error), &error);
    assert_int_equal(defaults.top_k, 0);
    assert_refused(generation_top_k_set(&defaults, -2, "x", "top_k", &error), AVO_ERROR_FORMAT,
                   &error, "top_k is -2");
    assert_refused(generation_top_k_set(&defaults, INT64_MAX, "x", "top_k", &error),
                   AVO_ERROR_FORMAT, &error, "top_k is 9223372036854775807");
    defaults.top_k = -2;
    assert_refused(generation_check(&defaults, 10, "x.avo", &error), AVO_ERROR_FORMAT, &error,
                   "top_k is -2");
}

static void test_tokens(void **state) {
    (void)state;
    generation_defaults defaults;
    avo_error error = {0};
    generation_defaults_init(&defaults);
    defaults.token_begin = 10;
    assert_refused(generation_check(&defaults, 10, "x.avo", &error), AVO_ERROR_FORMAT, &error,
                   "BOS token is 10, but the model has 10");
    defaults.token_begin = 9;
    assert_ok_error(generation_stop_add(&defaults, 12, "x.avo", &error), &error);
    assert_refused(generation_check(&defaults, 10, "x.avo", &error), AVO_ERROR_FORMAT, &error,
                   "stop token is 12, but the model has 10");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_ranges_are_the_samplers),
        cmocka_unit_test(test_numbers_that_are_none),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
