/* safetensors: every dtype, the header's rules, shards, and what lies beside the weights. */
#include "support/support.h"

#include "base/file.h"
#include "formats/formats_int.h"

#include <math.h>
#include <stdio.h>

#define FILE_MAX 4096

typedef struct test_file {
    uint8_t bytes[FILE_MAX];
    size_t size;
} test_file;

/* Length, header, and `data` bytes that count up. */
static void make_file(test_file *file, const char *header, size_t data) {
    uint64_t length = strlen(header);
    memcpy(file->bytes, &length, 8);
    memcpy(file->bytes + 8, header, length);
    for (size_t i = 0; i < data; i++)
        file->bytes[8 + length + i] = (uint8_t)i;
    file->size = 8 + length + data;
}

static const char llama_config[] = "{\"model_type\":\"llama\"}";
#define TEXT_FILE(name, text)                                                                      \
    {                                                                                              \
        name, {                                                                                    \
            (const uint8_t *)(text), strlen(text)                                                  \
        }                                                                                          \
    }

static avo_status open_header(const char *header, size_t data, model_source **source,
                              avo_error *error) {
    static test_file file;
    make_file(&file, header, data);
    memory_file files[] = {{"model.safetensors", {file.bytes, file.size}},
                           TEXT_FILE("config.json", llama_config)};
    return source_open_memory(files, 2, NULL, source, error);
}

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        quant_type type;
        size_t bytes;
    } dtypes[] = {
        {"F64", QUANT_F64, 8},   {"F32", QUANT_F32, 4},         {"F16", QUANT_F16, 2},
        {"BF16", QUANT_BF16, 2}, {"F8_E4M3", QUANT_F8_E4M3, 1}, {"F8_E5M2", QUANT_F8_E5M2, 1},
        {"I8", QUANT_I8, 1},     {"U8", QUANT_U8, 1},           {"I16", QUANT_I16, 2},
        {"U16", QUANT_U16, 2},   {"I32", QUANT_I32, 4},         {"U32", QUANT_U32, 4},
        {"I64", QUANT_I64, 8},   {"U64", QUANT_U64, 8},         {"BOOL", QUANT_BOOL, 1},
    };
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        char header[256];
        snprintf(header, sizeof(header),
                 "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[0,%zu]}}",
                 dtypes[i].name, 6 * dtypes[i].bytes);
        model_source *source;
        avo_error error;
        assert_ok_error(open_header(header, 6 * dtypes[i].bytes, &source, &error), &error);
        const source_tensor *tensor = source_find(source, TEXT_LITERAL("w"));
        assert_int_equal(tensor->type, dtypes[i].type);
        assert_int_equal(tensor->rank, 2);
        assert_int_equal(tensor->shape[0], 2);
        assert_int_equal(tensor->shape[1], 3);
        assert_int_equal(tensor->bytes, 6 * dtypes[i].bytes);
        assert_int_equal(tensor->data[5], 5);
        source_close(source);
    }
}

static void test_good_headers(void **state) {
    (void)state;
    model_source *source;
    avo_error error;
    /* Out of order, a scalar, an empty tensor, metadata, padding, an escape in a name. */
    assert_ok_error(
        open_header("{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]},"
                    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                    "\"a\\u002ew\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   ",
                    5, &source, &error),
        &error);
    assert_int_equal(source->tensor_count, 3);
    assert_int_equal(source_find(source, TEXT_LITERAL("b"))->data[0], 4);
    assert_int_equal(source_tensor_elements(source_find(source, TEXT_LITERAL("b"))), 1);
    assert_int_equal(source_find(source, TEXT_LITERAL("none"))->bytes, 0);
    assert_non_null(source_find(source, TEXT_LITERAL("a.w")));
    source_close(source);
    assert_ok_error(open_header("{}", 0, &source, &error), &error);
    source_close(source);
}

#define TENSOR(name, rest) "\"" name "\":{" rest "}"
#define W_ENTRY            "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"
#define W(range)           "{" TENSOR("w", W_ENTRY range) "}"

static void test_bad_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        avo_status status;
        const char *text;
    } bad[] = {
        {W("[0,8]"), 7, AVO_ERROR_FORMAT,
         "tensor \"w\": data_offsets [0, 8] are outside the file's 7"},
        {W("[0,8]"), 9, AVO_ERROR_FORMAT, "1 bytes at the end belong to no tensor"},
        {W("[1,9]"), 9, AVO_ERROR_FORMAT, "the 1 bytes before tensor \"w\" belong to no tensor"},
        {W("[8,0]"), 8, AVO_ERROR_FORMAT, "data_offsets [8, 0]"},
        {W("[-8,0]"), 8, AVO_ERROR_FORMAT, "data_offsets [-8, 0]"},
        {W("[0,4]"), 4, AVO_ERROR_FORMAT, "span 4 bytes, but dtype and shape need 8"},
        {W("[0]"), 8, AVO_ERROR_FORMAT,
         "tensor \"w\": data_offsets are missing or not two integers"},
        {W("[0,8.5]"), 8, AVO_ERROR_FORMAT,
         "tensor \"w\": data_offsets are missing or not two integers"},
        {W("[0,8,8]"), 8, AVO_ERROR_FORMAT,
         "tensor \"w\": data_offsets are missing or not two integers"},
        {W("[0,99999999999999999999]"), 8, AVO_ERROR_FORMAT, "data_offsets"},
        {W("[0,9223372036854775807]"), 8, AVO_ERROR_FORMAT, "data_offsets"},
        {"{" TENSOR("a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]") "," TENSOR(
             "b", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]") "}",
         6, AVO_ERROR_FORMAT, "tensor \"b\" at data offset 2 overlaps"},
        {"{" TENSOR("a", "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]") "," TENSOR(
             "a", "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]") "}",
         2, AVO_ERROR_FORMAT, "duplicate key"},
        {"{" TENSOR("w", "\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]") "}", 1,
         AVO_ERROR_UNSUPPORTED, "dtype \"F4\" is not supported"},
        {"{" TENSOR("w", "\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,1]") "}", 1,
         AVO_ERROR_FORMAT, "tensor \"w\": dtype is missing or not a"},
        {"{" TENSOR("w", "\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]") "}", 1,
         AVO_ERROR_FORMAT, "tensor \"w\": shape has an entry that is not"},
        {"{" TENSOR("w", "\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
                         "\"data_offsets\":[0,0]") "}",
         0, AVO_ERROR_FORMAT, "shape is larger than any file"},
        {"{" TENSOR("w", "\"dtype\":\"F64\",\"shape\":[4611686018427387904],"
                         "\"data_offsets\":[0,0]") "}",
         0, AVO_ERROR_FORMAT, "data_offsets span 0 bytes"},
        {"{" TENSOR("w", "\"dtype\":\"U8\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,1]") "}", 1,
         AVO_ERROR_UNSUPPORTED, "5 dimensions"},
        {"{\"w\":3}", 0, AVO_ERROR_FORMAT, "tensor \"w\": the entry is not an"},
        {"{\"\":{}}", 0, AVO_ERROR_FORMAT, "tensor \"\": the name must"},
        {"{\"__metadata__\":{\"a\":1}}", 0, AVO_ERROR_FORMAT, "__metadata__"},
        {"{} x", 0, AVO_ERROR_FORMAT, "unexpected text after the value"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model_source *source;
        avo_error error;
        assert_refused(open_header(bad[i].header, bad[i].data, &source, &error), bad[i].status,
                       &error, bad[i].text);
        assert_non_null(strstr(error.text, "model.safetensors"));
    }
}

/* ---- Shards ---- */

static avo_status open_shards(const char *index, model_source **source, avo_error *error) {
    static test_file one, two;
    make_file(&one, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    make_file(&two, "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    memory_file files[] = {{"model-00001-of-00002.safetensors", {one.bytes, one.size}},
                           {"model-00002-of-00002.safetensors", {two.bytes, two.size}},
                           TEXT_FILE("model.safetensors.index.json", index),
                           TEXT_FILE("config.json", llama_config)};
    return source_open_memory(files, 4, NULL, source, error);
}

static void test_shards(void **state) {
    (void)state;
    model_source *source;
    avo_error error;
    assert_ok_error(open_shards("{\"metadata\":{\"total_size\":6},\"weight_map\":"
                                "{\"a\":\"model-00001-of-00002.safetensors\","
                                "\"b\":\"model-00002-of-00002.safetensors\"}}",
                                &source, &error),
                    &error);
    assert_int_equal(source->tensor_count, 2);
    const source_tensor *b = source_find(source, TEXT_LITERAL("b"));
    assert_int_equal(b->bytes, 2);
    assert_string_equal(source->files[b->file].path, "./model-00002-of-00002.safetensors");
    source_close(source);

    static const struct {
        const char *index;
        avo_status status;
        const char *text;
    } bad[] = {
        {"{}", AVO_ERROR_FORMAT, "weight_map is missing"},
        {"{\"weight_map\":{\"a\":\"../model-00001-of-00002.safetensors\"}}", AVO_ERROR_FORMAT,
         "which is not a plain *.safetensors"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", AVO_ERROR_FORMAT, "which is not a plain"},
        {"{\"weight_map\":{\"a\":\"..\"}}", AVO_ERROR_FORMAT, "which is not a plain"},
        {"{\"weight_map\":{\"a\":\"config.json\"}}", AVO_ERROR_FORMAT, "which is not a plain"},
        {"{\"weight_map\":{\"a\":\"x\\u0000.safetensors\"}}", AVO_ERROR_FORMAT,
         "which is not a plain"},
        {"{\"weight_map\":{\"a\":3}}", AVO_ERROR_FORMAT, "weight_map[\"a\"] is not a string"},
        {"{\"weight_map\":{\"a\":\"other.safetensors\"}}", AVO_ERROR_NOT_FOUND,
         "shard other.safetensors is missing"},
        {"{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\"}}", AVO_ERROR_FORMAT,
         "weight_map says tensor \"a\" is in model-00002-of-00002.safetensors"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_refused(open_shards(bad[i].index, &source, &error), bad[i].status, &error,
                       bad[i].text);
        assert_non_null(strstr(error.text, "model.safetensors.index.json"));
    }
}

/* ---- Beside the weights ---- */

static void test_beside(void **state) {
    (void)state;
    test_file file;
    make_file(&file, "{}", 0);
    memory_file files[] = {
        {"model.safetensors", {file.bytes, file.size}},
        TEXT_FILE("config.json", llama_config),
        TEXT_FILE("generation_config.json",
                  "{\"bos_token_id\":5,\"eos_token_id\":[7,8,7],\"temperature\":0.6,\"top_p\":0.9,"
                  "\"top_k\":20,\"min_p\":null,\"repetition_penalty\":1.1}"),
        TEXT_FILE("tokenizer.model", "sentencepiece"),
        TEXT_FILE("tokenizer_config.json",
                  "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"T\"},"
                  "{\"name\":\"default\",\"template\":\"{{ \\\"x\\\" }}\"}]}"),
        TEXT_FILE("chat_template.jinja", "from jinja"),
        TEXT_FILE("tokenizer.json", "{}"),
    };
    model_source *source;
    avo_error error;
    assert_ok_error(source_open_memory(files, 5, NULL, &source, &error), &error);
    const generation_defaults *g = &source->generation;
    assert_int_equal(g->token_begin, 5);
    assert_int_equal(g->stop_token_count, 2);
    assert_int_equal(g->stop_tokens[0], 7);
    assert_int_equal(g->stop_tokens[1], 8);
    assert_true(g->temperature == 0.6f && g->top_p == 0.9f && g->repetition_penalty == 1.1f);
    assert_true(isnan(g->min_p) && isnan(g->typical_p));
    assert_int_equal(g->top_k, 20);
    assert_true(text_is(source->chat_template, "{{ \"x\" }}"));
    assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_SENTENCEPIECE);
    assert_int_equal(source->tokenizer.vocabulary, 32000);
    assert_true(source->tokenizer.config.size > 0);
    source_close(source);

    assert_ok_error(source_open_memory(files, 7, NULL, &source, &error), &error);
    assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_JSON);
    assert_true(text_is(source->chat_template, "from jinja"));
    source_close(source);

    assert_ok_error(source_open_memory(files, 2, NULL, &source, &error), &error);
    assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_NONE);
    assert_int_equal(source->generation.stop_tokens[0], 2);
    assert_int_equal(source->chat_template.size, 0);
    assert_true(isnan(source->generation.temperature));
    source_close(source);

    assert_refused(source_open_memory(files, 1, NULL, &source, &error), AVO_ERROR_NOT_FOUND, &error,
                   "config.json is missing; it must be in");
    files[2] = (memory_file)TEXT_FILE("generation_config.json",
                                      "{\"do_sample\":false,\"temperature\":0.6}");
    files[3] = (memory_file)TEXT_FILE("tokenizer_config.json", "{\"chat_template\":\"T\\n\"}");
    assert_ok_error(source_open_memory(files, 4, NULL, &source, &error), &error);
    assert_true(source->generation.temperature == 0); /* greedy, said outright */
    assert_true(text_is(source->chat_template, "T\n"));
    source_close(source);
    files[2] = (memory_file)TEXT_FILE("generation_config.json", "{\"do_sample\":true}");
    files[3] = (memory_file)TEXT_FILE("chat_template.json", "{\"chat_template\":\"J\"}");
    assert_ok_error(source_open_memory(files, 4, NULL, &source, &error), &error);
    assert_true(source->generation.temperature == 1);
    assert_true(text_is(source->chat_template, "J"));
    source_close(source);
    files[2] = (memory_file)TEXT_FILE("generation_config.json", "{\"temperature\":\"hot\"}");
    assert_refused(source_open_memory(files, 3, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "generation_config.json: temperature");
    files[2] = (memory_file)TEXT_FILE("tokenizer_config.json", "{\"chat_template\":7}");
    assert_refused(source_open_memory(files, 3, NULL, &source, &error), AVO_ERROR_FORMAT, &error,
                   "tokenizer_config.json: chat_template");
}

/* On disk: the folder and the file itself are the same model. */
static void test_paths(void **state) {
    (void)state;
    model_source *folder, *file;
    avo_error error;
    assert_ok_error(source_open(test_fixture_path("models/llama2"), NULL, &folder, &error), &error);
    assert_ok_error(
        source_open(test_fixture_path("models/llama2/model.safetensors"), NULL, &file, &error),
        &error);
    assert_int_equal(folder->tensor_count, file->tensor_count);
    assert_int_equal(folder->config.width, file->config.width);
    source_close(folder);
    source_close(file);
    assert_refused(source_open(test_fixture_path("models"), NULL, &folder, &error),
                   AVO_ERROR_NOT_FOUND, &error, "the folder has neither model.safetensors");
    char adapter[600];
    snprintf(adapter, sizeof(adapter), "%s/adapter_config.json", test_scratch_folder());
    assert_ok_error(file_write(adapter, "{}", 2, &error), &error);
    assert_refused(source_open(test_scratch_folder(), NULL, &folder, &error), AVO_ERROR_NOT_FOUND,
                   &error, "it is an adapter: give the model that it was trained for");
    assert_refused(source_open("/nonexistent", NULL, &folder, &error), AVO_ERROR_NOT_FOUND, &error,
                   "/nonexistent");
    assert_refused(source_open("/dev/null", NULL, &folder, &error), AVO_ERROR_IO, &error,
                   "not a regular file");
}

/* Defaults that every run would fail on are refused by file and field; −1 of top_k is "off". */
static void test_generation_ranges(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"repetition_penalty\":0}", "generation_config.json: repetition_penalty is 0"},
        {"{\"repetition_penalty\":-1.5}", "repetition_penalty is -1.5"},
        {"{\"typical_p\":0.0}", "generation_config.json: typical_p is 0"},
        {"{\"typical_p\":1e-300}", "typical_p is 1e-300"},
        {"{\"temperature\":-0.1}", "temperature is -0.1"},
        {"{\"temperature\":1e60}", "temperature is 1e+60"},
        {"{\"top_p\":1.01}", "top_p is 1.01"},
        {"{\"min_p\":\"x\"}", "generation_config.json: min_p"},
        {"{\"top_k\":-2}", "generation_config.json: top_k"},
        {"{\"top_k\":1e15}", "top_k is 1000000000000000"},
    };
    test_file file;
    make_file(&file, "{}", 0);
    model_source *source;
    avo_error error;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memory_file files[] = {
            {"model.safetensors", {file.bytes, file.size}},
            TEXT_FILE("config.json", llama_config),
            {"generation_config.json", {(const uint8_t *)cases[i].text, strlen(cases[i].text)}}};
        assert_refused(source_open_memory(files, 3, NULL, &source, &error), AVO_ERROR_FORMAT,
                       &error, cases[i].part);
    }
    memory_file files[] = {{"model.safetensors", {file.bytes, file.size}},
                           TEXT_FILE("config.json", llama_config),
                           TEXT_FILE("generation_config.json", "{\"top_k\":-1}")};
    assert_ok_error(source_open_memory(files, 3, NULL, &source, &error), &error);
    assert_int_equal(source->generation.top_k, 0);
    source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_shards),
        cmocka_unit_test(test_beside),      cmocka_unit_test(test_generation_ranges),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
