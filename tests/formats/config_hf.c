/* config.json of every architecture: the committed models, and defaults, spellings and refusals on
 * configurations written here. */
#include "support/support.h"

#include "formats/formats_int.h"

#include <math.h>
#include <stdio.h>

/* ---- The committed models ---- */

static model_source *open_fixture(const char *name) {
    char path[256];
    snprintf(path, sizeof(path), "models/%s", name);
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(test_fixture_path(path), NULL, &source, &error), &error);
    assert_int_equal(source->format, SOURCE_SAFETENSORS);
    assert_int_equal(source->naming, SOURCE_NAMES_HF);
    assert_false(source->config.rope_interleaved);
    assert_non_null(source->config_json);
    return source;
}

/* The same model as GGUF says the same. */
static void assert_twins(const char *name) {
    char path[256];
    snprintf(path, sizeof(path), "models/%s.gguf", name);
    model_source *twin;
    avo_error error;
    assert_ok_error(source_open(test_fixture_path(path), NULL, &twin, &error), &error);
    model_source *source = open_fixture(name);
    const model_config *a = &source->config;
    const model_config *b = &twin->config;
    assert_int_equal(a->architecture, b->architecture);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->feed_forward, b->feed_forward);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_size, b->head_size);
    assert_int_equal(a->vocabulary, b->vocabulary);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->activation, b->activation);
    assert_int_equal(a->tied_head, b->tied_head);
    assert_int_equal(a->rotary_dims, b->rotary_dims);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->positions, b->positions);
    if (fabs(a->norm_epsilon - b->norm_epsilon) > 1e-6 * b->norm_epsilon)
        fail_msg("%s: epsilon %g and %g", name, a->norm_epsilon, b->norm_epsilon);
    assert_true(a->rotary_dims == 0 || a->rope_base == b->rope_base);
    assert_true(a->rope_base_local == b->rope_base_local);
    assert_true(a->embedding_scale == b->embedding_scale);
    assert_memory_equal(a->layer_windowed, b->layer_windowed, a->layers);
    assert_memory_equal(a->layer_rotary, b->layer_rotary, a->layers);
    if (b->rope.kind != ROPE_FACTORS)
        assert_int_equal(a->rope.kind, b->rope.kind);
    if (b->rope.kind == ROPE_LONGROPE)
        assert_memory_equal(a->rope.long_factor, b->rope.long_factor,
                            a->rope.factor_count * sizeof(double));
    source_close(source);
    source_close(twin);
}

static void test_twins(void **state) {
    (void)state;
    static const char *const names[] = {
        "llama2", "llama3", "llama-linear", "llama-yarn", "gemma3",     "smollm2", "smollm3",
        "qwen2",  "qwen3",  "phi3",         "phi3-long",  "phi3-short", "gpt2"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_twins(names[i]);
}

static void test_fixtures(void **state) {
    (void)state;
    model_source *source = open_fixture("llama3");
    const model_config *c = &source->config;
    assert_int_equal(c->rope.kind, ROPE_LLAMA3);
    assert_true(c->rope.factor == 8 && c->rope.low_frequency_factor == 1 &&
                c->rope.high_frequency_factor == 4);
    assert_int_equal(c->rope.original_context, 32);
    assert_true(c->tied_head);
    assert_int_equal(source->generation.token_begin, 1);
    assert_int_equal(source->generation.stop_token_count, 1);
    assert_int_equal(source->generation.stop_tokens[0], 2);
    source_close(source);

    source = open_fixture("llama-dynamic");
    assert_int_equal(source->config.rope.kind, ROPE_DYNAMIC);
    assert_int_equal(source->config.rope.original_context, 16);
    assert_true(source->config.rope.factor == 4);
    source_close(source);

    source = open_fixture("mistral");
    assert_int_equal(source->config.architecture, ARCHITECTURE_MISTRAL);
    assert_int_equal(source->config.window, 11);
    assert_int_equal(source->config.layer_windowed[2], 1);
    assert_int_equal(source->config.head_size, 12);
    source_close(source);

    source = open_fixture("qwen2-window");
    assert_int_equal(source->config.window, 10);
    assert_memory_equal(source->config.layer_windowed, ((uint8_t[]){0, 1, 1}), 3);
    source_close(source);

    source = open_fixture("gemma3-scaled");
    c = &source->config;
    assert_true(c->norm_plus_one);
    assert_true(fabs(c->attention_scale - 1 / sqrt(24)) < 1e-12);
    assert_true(c->rope_base == 1e5 && c->rope_base_local == 500);
    assert_int_equal(c->rope.kind, ROPE_LINEAR);
    assert_true(c->rope.factor == 8);
    assert_memory_equal(c->layer_windowed, ((uint8_t[]){1, 1, 0, 1}), 4);
    source_close(source);

    source = open_fixture("gpt2-bare");
    c = &source->config;
    assert_int_equal(c->feed_forward, 4 * 36);
    assert_true(c->transposed);
    assert_int_equal(c->positions, 48);
    source_close(source);

    source = open_fixture("opt");
    c = &source->config;
    assert_int_equal(c->position_offset, 2);
    assert_int_equal(c->positions, 50);
    assert_int_equal(c->activation, SOURCE_ACTIVATION_RELU);
    assert_false(c->norm_after || c->no_final_norm);
    source_close(source);

    source = open_fixture("opt-350m");
    c = &source->config;
    assert_true(c->norm_after && c->no_final_norm);
    assert_int_equal(c->embedding_width, 20);
    assert_int_equal(c->width, 36);
    source_close(source);
}

/* ---- Configurations written here, beside a file of one tensor ---- */

static const char tiny_header[] =
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";

static avo_status open_config(const char *config, model_source **source, avo_error *error) {
    static uint8_t file[8 + sizeof(tiny_header) - 1 + 4];
    uint64_t length = sizeof(tiny_header) - 1;
    memcpy(file, &length, 8);
    memcpy(file + 8, tiny_header, length);
    memory_file files[] = {{"model.safetensors", {file, sizeof(file)}},
                           {"config.json", {(const uint8_t *)config, strlen(config)}}};
    return source_open_memory(files, 2, NULL, source, error);
}

static model_source *must_open(const char *config) {
    model_source *source;
    avo_error error;
    assert_ok_error(open_config(config, &source, &error), &error);
    return source;
}

/* Nothing but the model_type: transformers' own defaults. */
static void test_defaults(void **state) {
    (void)state;
    static const struct {
        const char *type;
        uint32_t vocabulary, width, feed_forward, layers, heads, kv_heads, head_size, context;
        double base;
        bool tied;
        uint32_t window;
    } wanted[] = {
        {"llama", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e4, false, 0},
        {"mistral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e4, false, 4096},
        {"qwen2", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4, false, 0},
        {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4, false, 0},
        {"smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 32768, 2e6, true, 0},
        {"gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e6, true, 4096},
        {"phi3", 32064, 3072, 8192, 32, 32, 32, 96, 4096, 1e4, false, 0},
        {"gpt2", 50257, 768, 3072, 12, 12, 12, 64, 1024, 0, true, 0},
        {"opt", 50272, 768, 3072, 12, 12, 12, 64, 2048, 0, true, 0},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        char config[64];
        snprintf(config, sizeof(config), "{\"model_type\":\"%s\"}", wanted[i].type);
        model_source *source = must_open(config);
        const model_config *c = &source->config;
        assert_int_equal(c->vocabulary, wanted[i].vocabulary);
        assert_int_equal(c->width, wanted[i].width);
        assert_int_equal(c->feed_forward, wanted[i].feed_forward);
        assert_int_equal(c->layers, wanted[i].layers);
        assert_int_equal(c->heads, wanted[i].heads);
        assert_int_equal(c->kv_heads, wanted[i].kv_heads);
        assert_int_equal(c->head_size, wanted[i].head_size);
        assert_int_equal(c->context, wanted[i].context);
        assert_true(c->rope_base == wanted[i].base);
        assert_int_equal(c->tied_head, wanted[i].tied);
        assert_int_equal(c->window, wanted[i].window);
        source_close(source);
    }
}

static void test_spellings(void **state) {
    (void)state;
    /* Both spellings of Llama 3's scaling. */
    static const char *const llama3[] = {
        "{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"max_position_embeddings\":131072,"
        "\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}",
        "{\"model_type\":\"llama\",\"max_position_embeddings\":131072,"
        "\"rope_parameters\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\","
        "\"rope_theta\":500000.0}}"};
    for (int i = 0; i < 2; i++) {
        model_source *source = must_open(llama3[i]);
        assert_int_equal(source->config.rope.kind, ROPE_LLAMA3);
        assert_true(source->config.rope.factor == 32);
        assert_true(source->config.rope_base == 500000);
        source_close(source);
    }
    /* "type" for "rope_type"; YaRN's factor from the contexts. */
    model_source *source = must_open(
        "{\"model_type\":\"qwen2\",\"max_position_embeddings\":131072,\"rope_scaling\":"
        "{\"type\":\"yarn\",\"original_max_position_embeddings\":32768,\"truncate\":false}}");
    assert_int_equal(source->config.rope.kind, ROPE_YARN);
    assert_true(source->config.rope.factor == 4);
    assert_true(source->config.rope.beta_fast == 32 && source->config.rope.beta_slow == 1);
    assert_false(source->config.rope.truncate);
    source_close(source);
    /* Gemma 3 with vision: the language model's keys are in text_config. */
    source = must_open("{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"text_config\":"
                       "{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,"
                       "\"num_hidden_layers\":34,\"sliding_window\":1024,\"rope_scaling\":"
                       "{\"factor\":8.0,\"rope_type\":\"linear\"}},\"vision_config\":{}}");
    assert_int_equal(source->config.width, 2560);
    assert_int_equal(source->config.rope.kind, ROPE_LINEAR);
    assert_true(source->config.rope_base_local == 10000);
    assert_int_equal(source->config.layer_windowed[5], 0);
    assert_int_equal(source->config.layer_windowed[33], 1);
    assert_int_equal(source->generation.stop_token_count, 2);
    source_close(source);
    /* Phi-3's first name for LongRoPE, and null for "none". */
    source = must_open("{\"model_type\":\"phi3\",\"hidden_size\":16,\"num_attention_heads\":4,"
                       "\"max_position_embeddings\":8192,\"sliding_window\":null,"
                       "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5],"
                       "\"long_factor\":[2,3]}}");
    assert_int_equal(source->config.rope.kind, ROPE_LONGROPE);
    assert_int_equal(source->config.rope.original_context, 4096);
    assert_true(source->config.rope.factor == 2);
    assert_true(source->config.rope.long_factor[1] == 3);
    source_close(source);
    source = must_open("{\"model_type\":\"mistral\",\"sliding_window\":null}");
    assert_int_equal(source->config.window, 0);
    assert_int_equal(source->config.layer_windowed[0], 0);
    source_close(source);
    /* Qwen: the window counts only when it is switched on. */
    source = must_open("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                       "\"num_hidden_layers\":4,\"max_window_layers\":3,\"sliding_window\":77}");
    assert_int_equal(source->config.window, 77);
    assert_memory_equal(source->config.layer_windowed, ((uint8_t[]){0, 0, 0, 1}), 4);
    source_close(source);
    source = must_open("{\"model_type\":\"smollm3\",\"num_hidden_layers\":4,"
                       "\"no_rope_layers\":[0,1,1,1]}");
    assert_memory_equal(source->config.layer_rotary, ((uint8_t[]){0, 1, 1, 1}), 4);
    source_close(source);
}

static const struct {
    const char *config;
    avo_status status;
    const char *text;
} bad[] = {
    {"[]", AVO_ERROR_FORMAT, "config.json: expected an object, found array"},
    {"{", AVO_ERROR_FORMAT, "config.json: JSON line 1"},
    {"{}", AVO_ERROR_FORMAT, "model_type is missing"},
    {"{\"model_type\":7}", AVO_ERROR_FORMAT, "model_type (line 1): expected a string"},
    {"{\"model_type\":\"bert\"}", AVO_ERROR_UNSUPPORTED,
     "model_type \"bert\" is not supported; supported: llama, mistral"},
    {"{\"model_type\":\"gemma3\"}", AVO_ERROR_FORMAT, "text_config"},
    {"{\"model_type\":\"llama\",\"hidden_size\":\"4096\"}", AVO_ERROR_FORMAT,
     "hidden_size (line 1): expected an integer, found string"},
    {"{\"model_type\":\"llama\",\"hidden_size\":-1}", AVO_ERROR_FORMAT, "hidden_size"},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":0}", AVO_ERROR_FORMAT,
     "num_attention_heads"},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":33}", AVO_ERROR_FORMAT,
     "hidden_size (4096) is not a multiple of num_attention_heads (33"},
    {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}", AVO_ERROR_FORMAT,
     "heads (32) must be a multiple of KV heads (5)"},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":1000000000}", AVO_ERROR_FORMAT,
     "num_hidden_layers"},
    {"{\"model_type\":\"llama\",\"rms_norm_eps\":-1}", AVO_ERROR_FORMAT, "rms_norm_eps"},
    {"{\"model_type\":\"llama\",\"hidden_act\":\"mish\"}", AVO_ERROR_UNSUPPORTED,
     "hidden_act is \"mish\", must be silu, swish"},
    {"{\"model_type\":\"llama\",\"head_dim\":7}", AVO_ERROR_FORMAT, "must be even"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"mrope\"}}", AVO_ERROR_UNSUPPORTED,
     "rope type \"mrope\" (line 1) is not supported; supported: default"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}}", AVO_ERROR_FORMAT,
     "RoPE scaling (line 1) lacks factor"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":[1]}", AVO_ERROR_FORMAT, "is not an object"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":4,\"high_freq_factor\":1}}",
     AVO_ERROR_FORMAT, "low_freq_factor is 4, must be less than high_freq_factor (1"},
    {"{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}", AVO_ERROR_UNSUPPORTED,
     "partial_rotary_factor is 0.5, must be 1 for llama"},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],"
     "\"long_factor\":[1,2]}}",
     AVO_ERROR_FORMAT, "short_factor has 1 values and long_factor 2"},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],"
     "\"long_factor\":[1]}}",
     AVO_ERROR_FORMAT, "1 RoPE factors, must be half of the 96"},
    {"{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"gptq\"}}",
     AVO_ERROR_UNSUPPORTED, "quantization_config (line 1) with quant_method gptq"},
    {"{\"model_type\":\"llama\",\"attn_logit_softcapping\":50.0}", AVO_ERROR_UNSUPPORTED,
     "attn_logit_softcapping"},
    {"{\"model_type\":\"qwen2\",\"final_logit_softcapping\":30.0}", AVO_ERROR_UNSUPPORTED,
     "final_logit_softcapping"},
    {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}", AVO_ERROR_UNSUPPORTED,
     "scale_attn_by_inverse_layer_idx"},
    {"{\"model_type\":\"opt\",\"enable_bias\":false}", AVO_ERROR_UNSUPPORTED, "enable_bias"},
    {"{\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\"]}", AVO_ERROR_FORMAT,
     "layer_types"},
    {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":1,\"layer_types\":[\"linear\"]}",
     AVO_ERROR_UNSUPPORTED, "layer_types[0] is \"linear\""},
    {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1]}", AVO_ERROR_FORMAT, "no_rope_layers"},
    {"{\"model_type\":\"llama\",\"eos_token_id\":\"</s>\"}", AVO_ERROR_FORMAT, "eos_token_id"},
    {"{\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\"]}",
     AVO_ERROR_UNSUPPORTED, "LlamaForSequenceClassification"},
    {"{\"model_type\":\"llama\",\"model_type\":\"llama\"}", AVO_ERROR_FORMAT, "duplicate key"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model_source *source;
        avo_error error;
        assert_refused(open_config(bad[i].config, &source, &error), bad[i].status, &error,
                       bad[i].text);
        assert_null(source);
        assert_non_null(strstr(error.text, "config.json"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twins),    cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
