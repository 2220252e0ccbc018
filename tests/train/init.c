/* New models from a configuration: the files are there, load, and are the same bits every time. */
#include "support/support.h"

#include "base/file.h"
#include "model/model.h"
#include "train/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
    "{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 300,"
    "\"max_position_embeddings\": 128, \"torch_dtype\": \"%s\", \"tie_word_embeddings\": %s,"
    "\"tokenizer\": {\"pattern\": \"qwen2\", \"special\": [\"<|endoftext|>\", \"<|im_start|>\","
    "\"<|im_end|>\"], \"end\": \"<|im_end|>\", \"padding\": \"<|endoftext|>\"},"
    "\"chat_template\": \"{%% for m in messages %%}<|im_start|>{{ m.role }}\\n{{ m.content }}"
    "<|im_end|>\\n{%% endfor %%}\", \"generation\": {\"temperature\": 0.5}}";

static const char *path_of(const char *name) {
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_scratch_folder(), name);
    return path;
}

static void write_text(const char *name, const char *text) {
    avo_error error = {0};
    assert_ok_error(file_write(path_of(name), text, strlen(text), &error), &error);
}

static avo_status make(const char *text, const char *folder, uint64_t seed, train_init_info *info,
                       avo_error *error) {
    folder_remove(path_of(folder));
    write_text("init.json", text);
    write_text("init.jsonl", "{\"prompt\": \"How many birds?\", \"completion\": \"Three birds.\"}\n"
                             "{\"prompt\": \"How many boats?\", \"completion\": \"Two boats.\"}\n");
    const char *data[] = {path_of("init.jsonl")};
    train_init_options options = {
        .config = path_of("init.json"), .data = data, .data_count = 1, .seed = seed};
    return train_init(&options, path_of(folder), info, error);
}

static void check_weights(const avo_model *model, bool tied) {
    const source_tensor *embedding =
        source_find(model->source, TEXT_LITERAL("model.embed_tokens.weight"));
    const source_tensor *output =
        source_find(model->source, TEXT_LITERAL("model.layers.1.mlp.down_proj.weight"));
    assert_true((source_find(model->source, TEXT_LITERAL("lm_head.weight")) == NULL) == tied);
    const source_tensor *tensors[] = {embedding, output};
    const double wanted[] = {0.02, 0.01}; /* 0.02 ÷ √(2 · 2) */
    for (size_t t = 0; t < 2; t++) {
        double sum = 0.0, squares = 0.0;
        size_t count = (size_t)source_tensor_elements(tensors[t]);
        for (size_t i = 0; i < count; i++) {
            float number = tensors[t]->type == QUANT_BF16
                               ? quant_bf16_to_f32(((const uint16_t *)tensors[t]->data)[i])
                               : ((const float *)tensors[t]->data)[i];
            sum += (double)number;
            squares += (double)number * (double)number;
        }
        assert_true(fabs(sum / (double)count) < wanted[t] * 0.05);
        assert_true(fabs(sqrt(squares / (double)count) / wanted[t] - 1.0) < 0.03);
    }
}

static void models_load_in_both_types(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[2048];
        avo_error error = {0};
        train_init_info info;
        avo_model *model;
        snprintf(text, sizeof(text), config, i == 0 ? "float32" : "bfloat16",
                 i == 0 ? "true" : "false");
        assert_ok_error(make(text, "init", 1, &info, &error), &error);
        assert_ok_error(avo_model_open(path_of("init"), NULL, &model, &error), &error);
        avo_model_info found = AVO_MODEL_INFO_INIT;
        avo_model_describe(model, &found);
        assert_int_equal(found.parameters, info.parameters);
        assert_int_equal(found.vocabulary, info.vocabulary);
        assert_int_equal(info.vocabulary, 259 + info.merges);
        assert_true(found.has_tokenizer && found.has_chat_template);
        assert_true(avo_model_token_ends(model, 2));
        assert_true(model->source->generation.temperature == 0.5f);
        check_weights(model, i == 0);
        avo_model_close(model);
    }
}

static uint64_t digest(const char *folder) {
    avo_model *model;
    avo_error error = {0};
    assert_ok_error(avo_model_open(path_of(folder), NULL, &model, &error), &error);
    uint64_t sum = source_digest(model->source);
    avo_model_close(model);
    return sum;
}

static void the_seed_decides_the_weights(void **state) {
    (void)state;
    char text[2048];
    avo_error error = {0};
    train_init_info info;
    snprintf(text, sizeof(text), config, "float32", "true");
    assert_ok_error(make(text, "init-a", 1, &info, &error), &error);
    assert_ok_error(make(text, "init-b", 1, &info, &error), &error);
    assert_ok_error(make(text, "init-c", 2, &info, &error), &error);
    assert_int_equal(digest("init-a"), digest("init-b"));
    assert_int_not_equal(digest("init-a"), digest("init-c"));
}

static void bad_configurations_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "init.json: expected an object, found array"},
        {"{\"hidden_size\": 64}", "init.json: intermediate_size is missing"},
        {"{\"hidden\": 64}", "unknown key \"hidden\""},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"num_key_value_heads\": 3}",
         "num_key_value_heads is 3, must divide num_attention_heads (4)"},
        {"{\"hidden_size\": 60, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4}",
         "head_dim is 15, must be even"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4}",
         "tokenizer must be an object"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"tokenizer\": {\"pattern\": \"x\"}}",
         "pattern is \"x\", must be gpt2, llama3 or qwen2"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"tokenizer\": {\"end\": \"x\"}}",
         "tokenizer.end is \"x\", which is not in tokenizer.special"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"tokenizer\": {}, \"chat_template\": \"{% x %}\"}",
         "chat_template"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"tokenizer\": \"nowhere\"}",
         "nowhere"},
        {"{\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"model_type\": \"gpt2\"}",
         "must be llama"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_error error = {0};
        train_init_info info;
        assert_true(make(cases[i].text, "init-bad", 1, &info, &error) != AVO_OK);
        if (strstr(error.text, cases[i].part) == NULL)
            fail_msg("%zu: expected \"%s\" in: %s", i, cases[i].part, error.text);
        assert_int_equal(file_kind_of(path_of("init-bad")), FILE_MISSING);
    }
}

/* A folder is continued with what it was made of only; the error names what differs. */
static void origins_are_compared(void **state) {
    (void)state;
    char text[1500], other[2048];
    train_init_info info;
    avo_error error = {0};
    snprintf(text, sizeof(text), config, "float32", "true");
    assert_ok_error(make(text, "origin", 7, &info, &error), &error);
    char paths[3][1100]; /* path_of has room for four */
    snprintf(paths[0], sizeof(paths[0]), "%s", path_of("init.jsonl"));
    snprintf(paths[1], sizeof(paths[1]), "%s", path_of("init.json"));
    snprintf(paths[2], sizeof(paths[2]), "%s", path_of("origin"));
    const char *data[] = {paths[0]}, *folder = paths[2];
    train_init_options options = {.config = paths[1], .data = data, .data_count = 1, .seed = 7};
    assert_ok_error(train_init_compare(&options, folder, &error), &error);
    options.seed = 8;
    assert_refused(train_init_compare(&options, folder, &error), AVO_ERROR_ARGUMENT, &error,
                   "origin was made with seed 7, this run has 8");
    options.seed = 7;
    snprintf(other, sizeof(other), config, "float32", "false");
    write_text("init.json", other);
    assert_refused(train_init_compare(&options, folder, &error), AVO_ERROR_ARGUMENT, &error,
                   "made with tie_word_embeddings true, this run has false");
    snprintf(other, sizeof(other), "{\"rope_theta\": 500, %s", text + 1);
    write_text("init.json", other);
    assert_refused(train_init_compare(&options, folder, &error), AVO_ERROR_ARGUMENT, &error,
                   "made with rope_theta null, this run has 500");
    write_text("init.json", text);
    write_text("init.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    assert_refused(train_init_compare(&options, folder, &error), AVO_ERROR_ARGUMENT, &error,
                   "made with data ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_load_in_both_types),
        cmocka_unit_test(the_seed_decides_the_weights),
        cmocka_unit_test(origins_are_compared),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
