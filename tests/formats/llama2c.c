/* llama2.c files: a tiny one made here, and the samples of the shared data. */
#include "support/support.h"

#include "formats/formats_int.h"

#include <stdio.h>
#include <stdlib.h>

/* dim 8, hidden 12, 2 layers, 2 heads, 1 KV head, 5 tokens, 6 positions; every float is its index.
 */
#define FLOATS(untied)                                                                             \
    (5 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 96 + 96 + 96) + 8 + 2 * 6 * 2 + ((untied) ? 40 : 0))

static uint8_t *make_file(bool untied, size_t *bytes) {
    int32_t header[7] = {8, 12, 2, 2, 1, untied ? -5 : 5, 6};
    size_t floats = (size_t)FLOATS(untied);
    *bytes = sizeof(header) + 4 * floats;
    uint8_t *file = malloc(*bytes);
    assert_non_null(file);
    memcpy(file, header, sizeof(header));
    for (size_t i = 0; i < floats; i++) {
        float number = (float)i;
        memcpy(file + sizeof(header) + 4 * i, &number, 4);
    }
    return file;
}

static float first_float(const model_source *source, const char *name) {
    const source_tensor *tensor = source_find(source, text_from(name));
    assert_non_null(tensor);
    float number;
    memcpy(&number, tensor->data, sizeof(number));
    return number;
}

static void test_slices(void **state) {
    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        size_t bytes;
        uint8_t *file = make_file(untied, &bytes);
        memory_file files[] = {{"tiny.bin", {file, bytes}},
                               {"tok5.bin", {(const uint8_t *)"five", 4}},
                               {"tokenizer.bin", {(const uint8_t *)"other", 5}}};
        model_source *source;
        avo_error error;
        assert_ok_error(source_open_memory(files, 3, NULL, &source, &error), &error);
        assert_int_equal(source->format, SOURCE_LLAMA2C);
        assert_int_equal(source->naming, SOURCE_NAMES_GGUF);
        const model_config *config = &source->config;
        assert_int_equal(config->width, 8);
        assert_int_equal(config->feed_forward, 12);
        assert_int_equal(config->layers, 2);
        assert_int_equal(config->heads, 2);
        assert_int_equal(config->kv_heads, 1);
        assert_int_equal(config->head_size, 4);
        assert_int_equal(config->vocabulary, 5);
        assert_int_equal(config->context, 6);
        assert_true(config->rope_interleaved);
        assert_true(config->tied_head == !untied);
        assert_int_equal(config->layer_rotary[1], 1);
        assert_int_equal(config->layer_windowed[1], 0);
        assert_int_equal(source->tensor_count, 2 + 2 * 9 + untied);
        /* Where each array begins, counted by hand. */
        assert_true(first_float(source, "token_embd.weight") == 0);
        assert_true(first_float(source, "blk.1.attn_norm.weight") == 40 + 8);
        assert_true(first_float(source, "blk.0.attn_q.weight") == 56);
        assert_true(first_float(source, "blk.1.attn_k.weight") == 56 + 128 + 32);
        assert_true(first_float(source, "blk.0.attn_v.weight") == 56 + 128 + 64);
        assert_true(first_float(source, "blk.1.attn_output.weight") == 56 + 128 + 128 + 64);
        assert_true(first_float(source, "blk.0.ffn_norm.weight") == 440);
        assert_true(first_float(source, "blk.0.ffn_gate.weight") == 456);
        assert_true(first_float(source, "blk.0.ffn_down.weight") == 456 + 192);
        assert_true(first_float(source, "blk.1.ffn_up.weight") == 456 + 384 + 96);
        assert_true(first_float(source, "output_norm.weight") == 456 + 576);
        const source_tensor *down = source_find(source, TEXT_LITERAL("blk.1.ffn_down.weight"));
        assert_int_equal(down->shape[0], 8);
        assert_int_equal(down->shape[1], 12);
        assert_int_equal(down->bytes, 96 * 4);
        if (untied)
            assert_true(first_float(source, "output.weight") == 456 + 576 + 8 + 24);
        else
            assert_null(source_find(source, TEXT_LITERAL("output.weight")));
        assert_null(source_find(source, TEXT_LITERAL("freq_cis")));
        assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_LLAMA2C);
        assert_int_equal(source->tokenizer.data.size, 4);
        assert_int_equal(source->generation.token_begin, 1);
        source_close(source);
        free(file);
    }
}

static void test_refusals(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *file = make_file(false, &bytes);
    model_source *source;
    avo_error error;
    memory_file files[] = {{"tiny.bin", {file, bytes - 1}}};
    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "tiny.bin: read as llama2.c (dim 8, 2 layers, vocab_size 5) the file must have");
    assert_null(source);
    files[0].bytes.size = 27;
    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "too short (27 bytes)");
    files[0].bytes.size = bytes;
    int32_t heads = 3;
    memcpy(file + 12, &heads, 4);
    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "read as llama2.c, dim (8) must be a multiple of n_heads (3");
    heads = 0;
    memcpy(file + 12, &heads, 4);
    assert_refused(
        source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
        "not a model file: no GGUF, safetensors or .avo header, and read as llama2.c n_heads is 0");
    memcpy(file, "24ka", 4);
    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "version 1 or 2");
    files[0].bytes.size = 0;
    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "the file is empty");
    free(file);
}

static void test_samples(void **state) {
    (void)state;
    const char *path = test_data_path("models/stories15M/stories15M.bin");
    skip_without(path, "models/stories15M");
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    assert_int_equal(source->config.layers, 6);
    assert_int_equal(source->config.vocabulary, 32000);
    assert_int_equal(source->tokenizer.data.size, 432717);
    source_close(source);
    assert_ok_error(
        source_open(test_data_path("models/stories260K/stories260K.bin"), NULL, &source, &error),
        &error);
    assert_int_equal(source->config.width, 64);
    assert_int_equal(source->config.kv_heads, 4);
    assert_int_equal(source->tokenizer.data.size, 6227); /* tok512.bin */
    source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
