/* The committed GGUF models: configuration of every architecture. */
#include "support/support.h"

#include "formats/formats_int.h"

#include <math.h>
#include <stdio.h>

static model_source *open_fixture(const char *name) {
    char path[256];
    snprintf(path, sizeof(path), "models/%s.gguf", name);
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(test_fixture_path(path), NULL, &source, &error), &error);
    assert_int_equal(source->format, SOURCE_GGUF);
    assert_int_equal(source->naming, SOURCE_NAMES_GGUF);
    assert_int_equal(source->config.embedding_width, source->config.width);
    assert_false(source->config.norm_plus_one);
    assert_false(source->config.transposed);
    return source;
}

static void test_llama(void **state) {
    (void)state;
    model_source *source = open_fixture("llama2");
    const model_config *c = &source->config;
    assert_int_equal(c->architecture, ARCHITECTURE_LLAMA);
    assert_true(c->rope_interleaved);
    assert_int_equal(c->rope.kind, ROPE_PLAIN);
    assert_int_equal(c->activation, SOURCE_ACTIVATION_SILU);
    assert_int_equal(c->rotary_dims, c->head_size);
    assert_int_equal(c->window, 0);
    source_close(source);

    source = open_fixture("llama3");
    c = &source->config;
    assert_int_equal(c->rope.kind, ROPE_FACTORS);
    assert_int_equal(c->rope.factor_count, c->rotary_dims / 2);
    assert_true(c->rope.short_factor[0] == 1.0);
    assert_true(c->rope.short_factor[c->rope.factor_count - 1] > 1.0);
    source_close(source);

    source = open_fixture("llama-linear");
    assert_int_equal(source->config.rope.kind, ROPE_LINEAR);
    assert_true(source->config.rope.factor > 1);
    source_close(source);

    source = open_fixture("llama-yarn");
    assert_int_equal(source->config.rope.kind, ROPE_YARN);
    assert_true(source->config.rope.original_context > 0);
    source_close(source);
}

static void test_gemma3(void **state) {
    (void)state;
    model_source *source = open_fixture("gemma3");
    const model_config *c = &source->config;
    assert_int_equal(c->architecture, ARCHITECTURE_GEMMA3);
    assert_int_equal(c->window, 9);
    assert_int_equal(c->layers, 7);
    const uint8_t windowed[7] = {1, 1, 1, 1, 1, 0, 1};
    assert_memory_equal(c->layer_windowed, windowed, 7);
    assert_true(c->rope_base == 1e6);
    assert_true(c->rope_base_local == 1e4);
    assert_int_equal(c->head_size, 12);
    assert_true(c->tied_head);
    assert_true(fabs(c->embedding_scale - sqrt(28)) < 1e-6);
    assert_int_equal(c->activation, SOURCE_ACTIVATION_GELU_TANH);
    assert_false(c->rope_interleaved);
    source_close(source);
}

static void test_others(void **state) {
    (void)state;
    model_source *source = open_fixture("smollm3");
    const model_config *c = &source->config;
    assert_int_equal(c->architecture, ARCHITECTURE_SMOLLM3);
    assert_true(c->rope_interleaved);
    for (uint32_t i = 0; i < c->layers; i++)
        assert_int_equal(c->layer_rotary[i], i % 4 != 3);
    source_close(source);

    source = open_fixture("qwen2");
    assert_int_equal(source->config.architecture, ARCHITECTURE_QWEN2);
    source_close(source);
    source = open_fixture("qwen3");
    assert_int_equal(source->config.architecture, ARCHITECTURE_QWEN3);
    source_close(source);

    source = open_fixture("gpt2");
    c = &source->config;
    assert_int_equal(c->architecture, ARCHITECTURE_GPT2);
    assert_int_equal(c->rotary_dims, 0);
    assert_int_equal(c->positions, c->context);
    assert_int_equal(c->activation, SOURCE_ACTIVATION_GELU_TANH);
    source_close(source);

    source = open_fixture("phi3");
    c = &source->config;
    assert_int_equal(c->architecture, ARCHITECTURE_PHI3);
    assert_int_equal(c->window, 13);
    assert_int_equal(c->layer_windowed[0], 1);
    source_close(source);

    source = open_fixture("phi3-long");
    c = &source->config;
    assert_int_equal(c->rope.kind, ROPE_LONGROPE);
    assert_int_equal(c->rope.factor_count, c->rotary_dims / 2);
    assert_int_equal(c->rope.original_context, 20);
    assert_true(c->rope.factor == 64.0 / 20.0);
    assert_true(fabs(c->rope.attention_factor - 1.1782484) < 1e-6);
    source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
