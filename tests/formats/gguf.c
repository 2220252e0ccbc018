/* GGUF: metadata of every type, tensors of every type, versions, alignment, split files. */
#include "support/support.h"

#include "formats/gguf_builder.h"

static gguf_builder builder;
static gguf_builder second;

static avo_status open_builder(model_source **source, avo_error *error) {
    memory_file file = {"tiny.gguf", {builder.bytes, builder.size}};
    return source_open_memory(&file, 1, NULL, source, error);
}

static void test_metadata(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        build_llama(&builder, version);
        model_source *source;
        avo_error error;
        assert_ok_error(open_builder(&source, &error), &error);
        const gguf_metadata *m = source->gguf;
        assert_int_equal(m->version, version);
        assert_int_equal(m->count, BUILD_LLAMA_VALUES);
        int64_t integer;
        double number;
        bool boolean;
        text_view text;
        assert_true(gguf_integer(gguf_find(m, "test.i8"), 0, &integer) && integer == -2);
        assert_true(gguf_integer(gguf_find(m, "test.u16"), 0, &integer) && integer == 65535);
        assert_true(gguf_number(gguf_find(m, "test.f64"), 0, &number) && number == 1.5);
        assert_true(gguf_boolean(gguf_find(m, "test.bool"), 0, &boolean) && boolean);
        const gguf_value *tokens = gguf_find(m, "tokenizer.ggml.tokens");
        assert_int_equal(tokens->count, 4);
        assert_true(gguf_string(tokens, 2, &text) && text_is(text, "<|im_end|>"));
        assert_false(gguf_string(tokens, 4, &text));
        assert_false(gguf_integer(tokens, 0, &integer));
        const gguf_value *nested = gguf_find(m, "test.nested");
        assert_int_equal(nested->item_type, GGUF_ARRAY);
        assert_int_equal(nested->count, 2);
        assert_int_equal(nested->data.size, 12 + 3 + 12 + 8 + 4);
        assert_null(gguf_find(m, "test.absent"));
        assert_false(gguf_string(NULL, 0, &text));
        assert_false(gguf_number(gguf_find(m, "test.f64"), 1, &number));
        assert_false(gguf_integer(gguf_find(m, "test.f64"), 0, &integer));
        /* What the source takes from it. */
        assert_true(text_is(source->name, "tiny"));
        assert_true(text_is(source->chat_template, "{{ messages }}"));
        assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_GGUF);
        assert_int_equal(source->tokenizer.vocabulary, 4);
        assert_int_equal(source->generation.token_begin, 0);
        assert_int_equal(source->generation.stop_token_count, 2); /* eos, <|im_end|> */
        assert_int_equal(source->generation.stop_tokens[1], 2);
        source_close(source);
    }
}

static void test_tensors(void **state) {
    (void)state;
    build_llama(&builder, 3);
    model_source *source;
    avo_error error;
    assert_ok_error(open_builder(&source, &error), &error);
    const source_tensor *embedding = source_find(source, TEXT_LITERAL("token_embd.weight"));
    assert_int_equal(embedding->type, QUANT_Q8_0);
    assert_int_equal(embedding->shape[0], 4);
    assert_int_equal(embedding->shape[1], 32);
    assert_int_equal(embedding->bytes, 136);
    size_t data = (builder.header + 31) / 32 * 32;
    assert_ptr_equal(embedding->data, builder.bytes + data);
    const source_tensor *down = source_find(source, TEXT_LITERAL("blk.0.ffn_down.weight"));
    assert_int_equal(down->type, QUANT_MXFP4);
    assert_ptr_equal(down->data, builder.bytes + data + 416);
    source_close(source);
}

/* One tensor of each of GGML's types, in front of the embedding. */
static avo_status open_type(uint32_t type, uint64_t inner, size_t bytes, model_source **source,
                            avo_error *error) {
    size_t padded = (bytes + 31) / 32 * 32;
    build_begin(&builder, 3, 2, BUILD_LLAMA_VALUES);
    build_llama_values(&builder);
    build_tensor(&builder, "x", inner, 2, type, 0);
    build_tensor(&builder, "token_embd.weight", 32, 4, 0, padded);
    build_data(&builder, 32, padded + 512);
    return open_builder(source, error);
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        uint32_t number;
        quant_type type;
        size_t row_bytes; /* of 256 */
    } types[] = {
        {0, QUANT_F32, 1024},    {1, QUANT_F16, 512},     {2, QUANT_Q4_0, 144},
        {3, QUANT_Q4_1, 160},    {6, QUANT_Q5_0, 176},    {7, QUANT_Q5_1, 192},
        {8, QUANT_Q8_0, 272},    {10, QUANT_Q2_K, 84},    {11, QUANT_Q3_K, 110},
        {12, QUANT_Q4_K, 144},   {13, QUANT_Q5_K, 176},   {14, QUANT_Q6_K, 210},
        {20, QUANT_IQ4_NL, 144}, {23, QUANT_IQ4_XS, 136}, {24, QUANT_I8, 256},
        {25, QUANT_I16, 512},    {26, QUANT_I32, 1024},   {27, QUANT_I64, 2048},
        {28, QUANT_F64, 2048},   {30, QUANT_BF16, 512},   {39, QUANT_MXFP4, 136},
    };
    model_source *source;
    avo_error error;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_ok_error(open_type(types[i].number, 256, 2 * types[i].row_bytes, &source, &error),
                        &error);
        const source_tensor *tensor = source_find(source, TEXT_LITERAL("x"));
        assert_int_equal(tensor->type, types[i].type);
        assert_int_equal(tensor->bytes, 2 * types[i].row_bytes);
        source_close(source);
    }
    static const struct {
        uint32_t number;
        const char *text;
    } unknown[] = {
        {4, "type 4 (unknown)"},   {5, "type 5 (unknown)"},        {9, "type 9 (Q8_1)"},
        {16, "type 16 (IQ2_XXS)"}, {29, "type 29 (IQ1_M)"},        {34, "type 34 (TQ1_0)"},
        {40, "type 40 (NVFP4)"},   {63, "type 63 (unknown)"},      {64, "type 64"},
        {66, "type 66 (unknown)"}, {UINT32_MAX, "type 4294967295"}};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_refused(open_type(unknown[i].number, 256, 512, &source, &error),
                       AVO_ERROR_UNSUPPORTED, &error, unknown[i].text);
    assert_refused(open_type(12, 32, 512, &source, &error), AVO_ERROR_FORMAT, &error,
                   "row length 32 must be a multiple of the q4_k block (256");
}

static void test_versions(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *text;
    } bad[] = {{0, "GGUF version is 0"},
               {1, "GGUF version is 1, must be 2 or 3"},
               {4, "GGUF version is 4"},
               {0x03000000, "the GGUF file is big-endian"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        build_llama(&builder, bad[i].version);
        model_source *source;
        avo_error error;
        assert_refused(open_builder(&source, &error), AVO_ERROR_UNSUPPORTED, &error, bad[i].text);
    }
}

/* A file with one more value, or one instead of another. */
static avo_status open_with_u32(const char *key, uint32_t number, model_source **source,
                                avo_error *error) {
    build_begin(&builder, 3, 1, BUILD_LLAMA_VALUES + 1);
    build_llama_values(&builder);
    build_value_u32(&builder, key, number);
    build_tensor(&builder, "token_embd.weight", 32, 4, 0, 0);
    build_data(&builder, 32, 512);
    return open_builder(source, error);
}

static void test_keys(void **state) {
    (void)state;
    model_source *source;
    avo_error error;
    assert_refused(open_with_u32("llama.expert_count", 8, &source, &error), AVO_ERROR_FORMAT,
                   &error, "llama.expert_used_count is missing");
    assert_refused(open_with_u32("llama.expert_count", 1025, &source, &error), AVO_ERROR_FORMAT,
                   &error, "llama.expert_count is 1025, must be 0 to 1024");
    assert_ok_error(open_with_u32("llama.expert_count", 0, &source, &error), &error);
    source_close(source);
    assert_refused(open_with_u32("llama.new_maths", 1, &source, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "unknown metadata key \"llama.new_maths\", which may change");
    assert_ok_error(open_with_u32("other.new_maths", 1, &source, &error), &error);
    source_close(source);
    assert_refused(open_with_u32("llama.block_count", 1, &source, &error), AVO_ERROR_FORMAT, &error,
                   "\"llama.block_count\" appears twice");
    assert_refused(open_with_u32("llama.vocab_size", 5, &source, &error), AVO_ERROR_FORMAT, &error,
                   "llama.vocab_size is 5, but token_embd.weight has 4 rows");
    assert_refused(open_with_u32("tokenizer.ggml.eot_token_id", 4, &source, &error),
                   AVO_ERROR_FORMAT, &error, "tokenizer.ggml.eot_token_id is 4, must be 0 to 3");
    assert_refused(open_with_u32("llama.rope.scaling.type", 4, &source, &error), AVO_ERROR_FORMAT,
                   &error, "llama.rope.scaling.type is not a string");
    assert_ok_error(open_with_u32("llama.attention.sliding_window", 7, &source, &error), &error);
    assert_int_equal(source->config.window, 7);
    assert_int_equal(source->config.layer_windowed[0], 1);
    source_close(source);
}

static void test_architecture(void **state) {
    (void)state;
    build_begin(&builder, 3, 0, 1);
    build_value_string(&builder, "general.architecture", "mamba");
    model_source *source;
    avo_error error;
    assert_refused(open_builder(&source, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "architecture \"mamba\" is not supported in GGUF; supported: llama, qwen2");
    build_begin(&builder, 3, 0, 1);
    build_value_string(&builder, "general.type", "adapter");
    assert_refused(open_builder(&source, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "general.type is \"adapter\"");
}

/* ---- Places ---- */

static void test_places(void **state) {
    (void)state;
    static const struct {
        uint64_t first, other; /* offsets of two tensors of 512 bytes */
        const char *text;      /* NULL: good */
    } places[] = {
        {0, 512, NULL},
        {512, 0, NULL},
        {0, 544, "passes the end of the file"},
        {0, 480, "overlaps another"},
        {0, 0, "overlaps another"},
        {0, 500, "offset 500 must be a multiple of the alignment (32"},
        {0, UINT64_MAX - 31, "passes the end of the file"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        build_begin(&builder, 3, 2, BUILD_LLAMA_VALUES);
        build_llama_values(&builder);
        build_tensor(&builder, "token_embd.weight", 32, 4, 0, places[i].first);
        build_tensor(&builder, "x", 32, 4, 0, places[i].other);
        build_data(&builder, 32, 1024);
        model_source *source;
        avo_error error;
        if (places[i].text == NULL) {
            assert_ok_error(open_builder(&source, &error), &error);
            source_close(source);
        } else {
            assert_refused(open_builder(&source, &error), AVO_ERROR_FORMAT, &error, places[i].text);
        }
    }
}

/* ---- Split files ---- */

static void build_part(gguf_builder *b, bool first, uint32_t no, uint32_t count,
                       const char *tensor) {
    build_begin(b, 3, 1, first ? BUILD_LLAMA_VALUES + 3 : 3);
    if (first)
        build_llama_values(b);
    build_value_u32(b, "split.no", no);
    build_value_u32(b, "split.count", count);
    build_value_u32(b, "split.tensors.count", 2);
    build_tensor(b, tensor, 32, 4, 0, 0);
    build_data(b, 32, 512);
}

static avo_status open_split(const char *first, const char *other, model_source **source,
                             avo_error *error) {
    memory_file files[] = {{first, {builder.bytes, builder.size}},
                           {other, {second.bytes, second.size}}};
    return source_open_memory(files, 2, NULL, source, error);
}

static void test_split(void **state) {
    (void)state;
    static const char one[] = "m-00001-of-00002.gguf";
    static const char two[] = "m-00002-of-00002.gguf";
    build_part(&builder, true, 0, 2, "token_embd.weight");
    build_part(&second, false, 1, 2, "output.weight");
    model_source *source;
    avo_error error;
    assert_ok_error(open_split(one, two, &source, &error), &error);
    assert_int_equal(source->tensor_count, 2);
    assert_int_equal(source->file_count, 2);
    const source_tensor *output = source_find(source, TEXT_LITERAL("output.weight"));
    assert_int_equal(output->file, 1);
    assert_true(output->data > second.bytes && output->data < second.bytes + second.size);
    assert_false(source->config.tied_head);
    assert_int_equal(source->gguf->count, BUILD_LLAMA_VALUES + 3);
    source_close(source);

    assert_refused(open_split(one, "other.gguf", &source, &error), AVO_ERROR_NOT_FOUND, &error,
                   two);
    assert_refused(open_split("m.gguf", two, &source, &error), AVO_ERROR_FORMAT, &error,
                   "the first of 2 split files must be named NAME-00001-of-00002.gguf");
    build_part(&second, false, 0, 2, "output.weight");
    assert_refused(open_split(one, two, &source, &error), AVO_ERROR_FORMAT, &error,
                   "split.no is 0 of 2, must be 1 of 2");
    build_part(&second, false, 1, 2, "token_embd.weight");
    assert_refused(open_split(one, two, &source, &error), AVO_ERROR_FORMAT, &error,
                   "\"token_embd.weight\" appears twice");
    build_part(&builder, true, 1, 2, "token_embd.weight");
    assert_refused(open_split(two, one, &source, &error), AVO_ERROR_ARGUMENT, &error,
                   "part 2 of 2; give the first part");
    build_part(&builder, true, 0, 1, "token_embd.weight");
    assert_refused(open_split(one, two, &source, &error), AVO_ERROR_FORMAT, &error,
                   "split.tensors.count is 2, but the parts have 1 tensors");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metadata), cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_types),    cmocka_unit_test(test_versions),
        cmocka_unit_test(test_keys),     cmocka_unit_test(test_architecture),
        cmocka_unit_test(test_places),   cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
