/* GGUF metadata, key by key: what each does to the configuration, and what is refused. */
#include "support/support.h"

#include "formats/gguf_builder.h"

#include <math.h>
#include <stdio.h>

static gguf_builder builder;

/* One more value or tensor for the small model. */
typedef struct extra {
    const char *key;
    gguf_type type;
    double number;
    const char *text;
} extra;

static void build_extra(const extra *value) {
    switch (value->type) {
    case GGUF_STRING:
        build_value_string(&builder, value->key, value->text);
        break;
    case GGUF_F32:
        build_value_f32(&builder, value->key, (float)value->number);
        break;
    case GGUF_BOOL:
        build_key(&builder, value->key, GGUF_BOOL);
        build_integer(&builder, value->number != 0, 1);
        break;
    case GGUF_ARRAY: /* of bools: the text's digits */
        build_value_array(&builder, value->key, GGUF_BOOL, strlen(value->text));
        for (const char *digit = value->text; *digit != '\0'; digit++)
            build_integer(&builder, *digit == '1', 1);
        break;
    default:
        build_value_u32(&builder, value->key, (uint32_t)value->number);
        break;
    }
}

/* `tensors` are names of f32 vectors of `length`, with the numbers 1, 2, 3 …; the architecture's
 * own keys follow `sizes`. */
typedef struct model_spec {
    const char *architecture;
    uint32_t layers;
    const char *tensors[3];
    uint32_t length;
    extra extras[6];
} model_spec;

static uint32_t count_tensors(const model_spec *spec) {
    uint32_t count = 0;
    while (count < 3 && spec->tensors[count] != NULL)
        count++;
    return count;
}

static void build_sizes(const model_spec *spec) {
    char key[128];
    const struct {
        const char *suffix;
        uint32_t number;
    } sizes[] = {{"block_count", spec->layers == 0 ? 1 : spec->layers},
                 {"context_length", 64},
                 {"embedding_length", 32},
                 {"feed_forward_length", 32},
                 {"attention.head_count", 2}};
    build_value_string(&builder, "general.architecture", spec->architecture);
    for (size_t i = 0; i < 5; i++) {
        snprintf(key, sizeof(key), "%s.%s", spec->architecture, sizes[i].suffix);
        build_value_u32(&builder, key, sizes[i].number);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", spec->architecture);
    build_value_f32(&builder, key, 1e-5f);
}

static avo_status open_spec(const model_spec *spec, model_source **source, avo_error *error) {
    uint32_t extras = 0;
    while (extras < 6 && spec->extras[extras].key != NULL)
        extras++;
    uint32_t tensors = count_tensors(spec);
    build_begin(&builder, 3, 1 + tensors, 7 + extras);
    build_sizes(spec);
    for (uint32_t i = 0; i < extras; i++)
        build_extra(&spec->extras[i]);
    build_tensor(&builder, "token_embd.weight", 32, 4, 0, 0);
    for (uint32_t i = 0; i < tensors; i++)
        build_tensor(&builder, spec->tensors[i], spec->length, 0, 0, 512 + i * 256);
    build_data(&builder, 32, 512 + tensors * 256);
    for (uint32_t i = 0; i < tensors * 64; i++) {
        float number = (float)(i % 64 + 1);
        memcpy(builder.bytes + builder.size - tensors * 256 + 4 * i, &number, 4);
    }
    memory_file file = {"tiny.gguf", {builder.bytes, builder.size}};
    return source_open_memory(&file, 1, NULL, source, error);
}

static model_source *must_open(const model_spec *spec) {
    model_source *source;
    avo_error error;
    assert_ok_error(open_spec(spec, &source, &error), &error);
    return source;
}

static void test_scaling(void **state) {
    (void)state;
    model_source *source = must_open(&(model_spec){
        .architecture = "llama",
        .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "yarn"},
                   {"llama.rope.scaling.factor", GGUF_F32, 4, NULL},
                   {"llama.rope.scaling.attn_factor", GGUF_F32, 0.5, NULL},
                   {"llama.rope.scaling.yarn_beta_fast", GGUF_F32, 16, NULL},
                   {"llama.rope.scaling.original_context_length", GGUF_U32, 16, NULL}}});
    const rope_scaling *rope = &source->config.rope;
    assert_int_equal(rope->kind, ROPE_YARN);
    assert_true(rope->factor == 4 && rope->beta_fast == 16 && rope->beta_slow == 1);
    assert_int_equal(rope->original_context, 16);
    assert_true(fabs(rope->attention_factor - 0.5 * (0.1 * log(4) + 1)) < 1e-12);
    source_close(source);

    source = must_open(&(model_spec){.architecture = "llama",
                                     .extras = {{"llama.rope.scaling.factor", GGUF_F32, 3, NULL}}});
    assert_int_equal(source->config.rope.kind, ROPE_LINEAR);
    assert_true(source->config.rope.factor == 3);
    source_close(source);

    source = must_open(&(model_spec){.architecture = "llama",
                                     .extras = {{"llama.rope.scale_linear", GGUF_F32, 2, NULL}}});
    assert_int_equal(source->config.rope.kind, ROPE_LINEAR);
    assert_true(source->config.rope.factor == 2);
    source_close(source);

    source = must_open(&(model_spec){
        .architecture = "llama", .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "none"}}});
    assert_int_equal(source->config.rope.kind, ROPE_PLAIN);
    source_close(source);
}

static void test_factor_tensors(void **state) {
    (void)state;
    model_source *source = must_open(
        &(model_spec){.architecture = "llama", .tensors = {"rope_freqs.weight"}, .length = 8});
    assert_int_equal(source->config.rope.kind, ROPE_FACTORS);
    assert_true(source->config.rope.short_factor[7] == 8);
    source_close(source);

    source = must_open(&(model_spec){
        .architecture = "phi3",
        .tensors = {"rope_factors_short.weight", "rope_factors_long.weight"},
        .length = 8,
        .extras = {{"phi3.rope.scaling.original_context_length", GGUF_U32, 16, NULL}}});
    assert_int_equal(source->config.rope.kind, ROPE_LONGROPE);
    assert_true(source->config.rope.factor == 4);
    assert_true(source->config.rope.attention_factor == 0);
    source_close(source);
}

static void test_layers(void **state) {
    (void)state;
    model_source *source = must_open(
        &(model_spec){.architecture = "gemma3",
                      .layers = 4,
                      .extras = {{"gemma3.attention.sliding_window", GGUF_U32, 5, NULL},
                                 {"gemma3.attention.sliding_window_pattern", GGUF_ARRAY, 0, "0110"},
                                 {"gemma3.rope.freq_base_swa", GGUF_F32, 500, NULL},
                                 {"gemma3.final_logit_softcapping", GGUF_F32, 30, NULL}}});
    assert_memory_equal(source->config.layer_windowed, ((uint8_t[]){0, 1, 1, 0}), 4);
    assert_true(source->config.rope_base_local == 500);
    assert_true(source->config.logit_softcap == 30);
    source_close(source);

    source = must_open(
        &(model_spec){.architecture = "gemma3",
                      .layers = 4,
                      .extras = {{"gemma3.attention.sliding_window", GGUF_U32, 5, NULL},
                                 {"gemma3.attention.sliding_window_pattern", GGUF_U32, 2, NULL}}});
    assert_memory_equal(source->config.layer_windowed, ((uint8_t[]){1, 0, 1, 0}), 4);
    source_close(source);

    /* The 27B. */
    source = must_open(&(model_spec){.architecture = "gemma3", .layers = 62});
    assert_true(fabs(source->config.attention_scale - 0.25) < 1e-12);
    source_close(source);
    source = must_open(&(model_spec){.architecture = "llama",
                                     .extras = {{"llama.attention.causal", GGUF_BOOL, 1, NULL}}});
    source_close(source);
}

static void test_generation(void **state) {
    (void)state;
    model_source *source =
        must_open(&(model_spec){.architecture = "qwen3",
                                .extras = {{"general.sampling.temp", GGUF_F32, 0.7, NULL},
                                           {"general.sampling.top_p", GGUF_F32, 0.9, NULL},
                                           {"general.sampling.top_k", GGUF_U32, 20, NULL},
                                           {"tokenizer.ggml.eot_token_id", GGUF_U32, 3, NULL}}});
    assert_true(source->generation.temperature == 0.7f && source->generation.top_p == 0.9f);
    assert_int_equal(source->generation.top_k, 20);
    assert_true(isnan(source->generation.min_p));
    assert_int_equal(source->generation.stop_token_count, 1);
    assert_int_equal(source->generation.stop_tokens[0], 3);
    assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_NONE);
    source_close(source);
}

static const struct {
    model_spec spec;
    avo_status status;
    const char *text;
} bad[] = {
    {{.architecture = "llama", .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "spiral"}}},
     AVO_ERROR_UNSUPPORTED,
     "llama.rope.scaling.type is \"spiral\", must be none, linear, yarn"},
    {{.architecture = "llama",
      .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "yarn"},
                 {"llama.rope.scaling.yarn_ext_factor", GGUF_F32, 0.5, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "rope.scaling.yarn_ext_factor is 0.5"},
    {{.architecture = "llama", .extras = {{"llama.rope.scaling.attn_factor", GGUF_F32, 1.5, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "rope.scaling.attn_factor is 1.5, which"},
    {{.architecture = "phi3", .extras = {{"phi3.rope.scaling.type", GGUF_STRING, 0, "longrope"}}},
     AVO_ERROR_FORMAT,
     "tensor rope_factors_long.weight is missing"},
    {{.architecture = "phi3", .tensors = {"rope_factors_long.weight"}, .length = 8},
     AVO_ERROR_FORMAT,
     "rope_factors_short has 0 values and rope_factors_long 8"},
    {{.architecture = "phi3",
      .tensors = {"rope_factors_long.weight", "rope_factors_short.weight"},
      .length = 8},
     AVO_ERROR_FORMAT,
     "original_context_length is missing"},
    {{.architecture = "llama",
      .tensors = {"rope_freqs.weight"},
      .length = 8,
      .extras = {{"llama.rope.scaling.factor", GGUF_F32, 2, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "two kinds of RoPE scaling"},
    {{.architecture = "llama", .tensors = {"rope_freqs.weight"}, .length = 7},
     AVO_ERROR_FORMAT,
     "7 RoPE factors, must be half of the 16"},
    {{.architecture = "llama", .extras = {{"llama.attention.value_length", GGUF_U32, 8, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "attention.value_length (8) differs from key_length (16"},
    {{.architecture = "llama", .extras = {{"llama.attention.causal", GGUF_BOOL, 0, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "only causal attention"},
    {{.architecture = "llama", .extras = {{"llama.use_parallel_residual", GGUF_BOOL, 1, NULL}}},
     AVO_ERROR_UNSUPPORTED,
     "llama.use_parallel_residual is set"},
    {{.architecture = "llama", .extras = {{"llama.attention.head_count_kv", GGUF_U32, 3, NULL}}},
     AVO_ERROR_FORMAT,
     "must be a multiple of KV heads (3)"},
    {{.architecture = "llama", .extras = {{"llama.rope.dimension_count", GGUF_U32, 18, NULL}}},
     AVO_ERROR_FORMAT,
     "18 rotated dimensions, must be even and at most the head size (16"},
    {{.architecture = "llama", .extras = {{"llama.rope.dimension_count", GGUF_U32, 7, NULL}}},
     AVO_ERROR_FORMAT,
     "7 rotated dimensions, must be even and at most the head size (16)"},
    {{.architecture = "llama", .extras = {{"llama.rope.freq_base", GGUF_F32, 1, NULL}}},
     AVO_ERROR_FORMAT,
     "llama.rope.freq_base is"},
    {{.architecture = "llama",
      .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "yarn"},
                 {"llama.rope.scaling.original_context_length", GGUF_U32, 1, NULL}}},
     AVO_ERROR_FORMAT,
     "the original context of RoPE scaling is 1"},
    {{.architecture = "llama",
      .extras = {{"llama.rope.scaling.type", GGUF_STRING, 0, "yarn"},
                 {"llama.rope.scaling.yarn_beta_slow", GGUF_F32, 0, NULL}}},
     AVO_ERROR_FORMAT,
     "llama.rope.scaling.yarn_beta_slow is 0"},
    {{.architecture = "phi3",
      .tensors = {"rope_factors_long.weight", "rope_factors_short.weight"},
      .length = 8,
      .extras = {{"phi3.rope.scaling.original_context_length", GGUF_U32, 1, NULL}}},
     AVO_ERROR_FORMAT,
     "the original context of RoPE scaling is 1"},
    {{.architecture = "llama", .extras = {{"llama.rope.freq_base", GGUF_STRING, 0, "many"}}},
     AVO_ERROR_FORMAT,
     "llama.rope.freq_base has type string, must be a number"},
    {{.architecture = "llama", .extras = {{"llama.rope.freq_base", GGUF_F32, NAN, NULL}}},
     AVO_ERROR_FORMAT,
     "llama.rope.freq_base is"},
    {{.architecture = "llama", .extras = {{"llama.attention.head_count_kv", GGUF_ARRAY, 0, "10"}}},
     AVO_ERROR_FORMAT,
     "llama.attention.head_count_kv is 0, must be 1 to 1024"},
    {{.architecture = "gemma3",
      .layers = 2,
      .extras = {{"gemma3.attention.sliding_window", GGUF_U32, 5, NULL},
                 {"gemma3.attention.sliding_window_pattern", GGUF_ARRAY, 0, "1"}}},
     AVO_ERROR_FORMAT,
     "has 1 entries, must have one for each of the 2 layers"},
    {{.architecture = "llama", .extras = {{"tokenizer.ggml.tokens", GGUF_ARRAY, 0, "1"}}},
     AVO_ERROR_FORMAT,
     "tokenizer.ggml.tokens is not an array of strings"},
    {{.architecture = "llama", .extras = {{"tokenizer.chat_template", GGUF_U32, 1, NULL}}},
     AVO_ERROR_FORMAT,
     "tokenizer.chat_template is not a string"},
    {{.architecture = "llama", .extras = {{"general.sampling.top_p", GGUF_F32, 1.5, NULL}}},
     AVO_ERROR_FORMAT,
     "general.sampling.top_p is 1.5, must be at least 0 and at most 1"},
    {{.architecture = "llama", .extras = {{"general.sampling.penalty_repeat", GGUF_F32, 0, NULL}}},
     AVO_ERROR_FORMAT,
     "general.sampling.penalty_repeat is 0, must be more than 0"},
    {{.architecture = "llama", .extras = {{"general.sampling.temp", GGUF_STRING, 0, "warm"}}},
     AVO_ERROR_FORMAT,
     "general.sampling.temp is not a number"},
    {{.architecture = "llama", .extras = {{"general.sampling.top_k", GGUF_U32, 5e6, NULL}}},
     AVO_ERROR_FORMAT,
     "general.sampling.top_k is 5000000"},
    {{.architecture = "llama", .extras = {{"general.sampling.top_k", GGUF_F32, 1.5, NULL}}},
     AVO_ERROR_FORMAT,
     "general.sampling.top_k is not an integer"},
    {{.architecture = "gpt2"}, AVO_ERROR_FORMAT, "gpt2.attention.layer_norm_epsilon is missing"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model_source *source;
        avo_error error;
        assert_refused(open_spec(&bad[i].spec, &source, &error), bad[i].status, &error,
                       bad[i].text);
        assert_non_null(strstr(error.text, "tiny.gguf"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaling),  cmocka_unit_test(test_factor_tensors),
        cmocka_unit_test(test_layers),   cmocka_unit_test(test_generation),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
