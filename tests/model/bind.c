/* Models whose configuration and tensors do not fit together are refused, by name. Each case is a
 * committed tiny model with one text replaced in config.json or in the header of its safetensors;
 * replacements there keep the length, so that offsets stay true. */
#include "support/support.h"

#include "base/file.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies a fixture's file into `folder` with `from` replaced by `to` wherever it stands. */
static void copy_replaced(const char *folder, const char *fixture, const char *name,
                          const char *from, const char *to) {
    char relative[256];
    char path[4096];
    file_map map;
    file_writer writer;
    avo_error error = {0};
    snprintf(relative, sizeof(relative), "models/%s/%s", fixture, name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_ok_error(file_map_open(test_fixture_path(relative), &map, &error), &error);
    assert_ok_error(file_writer_open(&writer, path, &error), &error);
    const uint8_t *at = map.bytes.data;
    const uint8_t *end = at + map.bytes.size;
    bool found = from == NULL;
    while (at < end) {
        size_t left = (size_t)(end - at);
        const uint8_t *hit = from == NULL ? NULL : memmem(at, left, from, strlen(from));
        size_t keep = hit == NULL ? left : (size_t)(hit - at);
        assert_ok_error(file_writer_append(&writer, at, keep, &error), &error);
        at += keep;
        if (hit == NULL)
            continue;
        found = true;
        assert_ok_error(file_writer_append(&writer, to, strlen(to), &error), &error);
        at += strlen(from);
    }
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    file_map_close(&map);
    if (!found)
        fail_msg("%s has no %s", name, from);
}

typedef struct bad_model {
    const char *fixture;
    const char *file; /* in which … */
    const char *from; /* … this … */
    const char *to;   /* … becomes that */
    avo_status status;
    const char *text; /* in the error */
} bad_model;

#define CONFIG  "config.json"
#define WEIGHTS "model.safetensors"

static const bad_model bad_models[] = {
    /* tensors that are not there, or not expected */
    {"llama2", WEIGHTS, "layers.1.self_attn.q_proj", "layers.1.self_attn.x_proj",
     AVO_ERROR_UNSUPPORTED, "layers.1.self_attn.x_proj"},
    {"llama2", WEIGHTS, "layers.1.", "layers.7.", AVO_ERROR_UNSUPPORTED, "layers.7."},
    {"llama2", CONFIG, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", AVO_ERROR_FORMAT,
     "layer 2 lacks attn_norm"},
    {"llama2", CONFIG, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
     AVO_ERROR_UNSUPPORTED, "with 1 layers"},
    {"llama2", WEIGHTS, "lm_head.weight", "lm_head.xeight", AVO_ERROR_UNSUPPORTED,
     "lm_head.xeight"},
    {"llama2", WEIGHTS, "\"model.layers.1.", "           \"h.0.", AVO_ERROR_FORMAT,
     "have the same role"},
    {"llama-linear", CONFIG, "\"model_type\": \"llama\"", "\"model_type\": \"mistral\"",
     AVO_ERROR_UNSUPPORTED, ".bias"},
    {"llama2", CONFIG, "\"model_type\": \"llama\"", "\"model_type\": \"qwen2\"", AVO_ERROR_FORMAT,
     "layer 0 lacks attn_q"},
    {"llama2", CONFIG, "\"model_type\": \"llama\"", "\"model_type\": \"qwen3\"", AVO_ERROR_FORMAT,
     "layer 0 lacks attn_q_norm"},
    {"qwen3", CONFIG, "\"model_type\": \"qwen3\"", "\"model_type\": \"llama\"",
     AVO_ERROR_UNSUPPORTED, "_norm.weight"},
    {"gpt2", WEIGHTS, "h.1.mlp.c_fc.bias", "h.1.mlp.c_fc.bios", AVO_ERROR_UNSUPPORTED, "bios"},
    /* shapes */
    {"llama2", CONFIG, "\"vocab_size\": 97", "\"vocab_size\": 96", AVO_ERROR_FORMAT,
     "has shape [97, 40], must have [96, 40]"},
    {"llama2", CONFIG, "\"intermediate_size\": 52", "\"intermediate_size\": 51", AVO_ERROR_FORMAT,
     "must have [51, 40]"},
    {"llama2", CONFIG, "\"num_key_value_heads\": 5", "\"num_key_value_heads\": 1", AVO_ERROR_FORMAT,
     "tensor model.layers.0.self_attn.k_proj.weight has shape [40, 40], must have [8, 40]"},
    {"llama2", CONFIG, "\"num_key_value_heads\": 5", "\"num_key_value_heads\": 3", AVO_ERROR_FORMAT,
     "must be a multiple of KV heads (3"},
    {"llama2", CONFIG, "\"hidden_size\": 40", "\"hidden_size\": 45", AVO_ERROR_FORMAT,
     "must have ["},
    {"mistral", CONFIG, "\"head_dim\": 12", "\"head_dim\": 10", AVO_ERROR_FORMAT, "must have ["},
    {"phi3", CONFIG, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", AVO_ERROR_FORMAT,
     "qkv_proj.weight"},
    {"gpt2", CONFIG, "\"n_inner\": 50", "\"n_inner\": 49", AVO_ERROR_FORMAT, "c_fc.weight"},
    {"gpt2", CONFIG, "\"n_positions\": 48", "\"n_positions\": 49", AVO_ERROR_FORMAT, "wpe.weight"},
    {"opt", CONFIG, "\"max_position_embeddings\": 48", "\"max_position_embeddings\": 50",
     AVO_ERROR_FORMAT, "embed_positions.weight"},
    {"opt-350m", CONFIG, "\"word_embed_proj_dim\": 20", "\"word_embed_proj_dim\": 36",
     AVO_ERROR_FORMAT, "embed_tokens.weight"},
    /* experts */
    {"mixtral", WEIGHTS, "layers.1.block_sparse_moe.experts.4.w2",
     "layers.1.block_sparse_moe.experts.5.w2", AVO_ERROR_UNSUPPORTED,
     "block_sparse_moe.experts.5.w2.weight"},
    {"mixtral", WEIGHTS, "layers.1.block_sparse_moe.experts.4.w2",
     "layers.1.block_sparse_moe.experts.0.w2", AVO_ERROR_FORMAT, "model.safetensors"},
    {"mixtral", CONFIG, "\"num_local_experts\": 5", "\"num_local_experts\": 6", AVO_ERROR_FORMAT,
     "gate.weight has shape [5, 40], must have [6, 40]"},
    {"mixtral", CONFIG, "\"num_local_experts\": 5", "\"num_local_experts\": 1", AVO_ERROR_FORMAT,
     "a row uses 2 of 1 experts"},
    {"mixtral", CONFIG, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 0",
     AVO_ERROR_FORMAT, "num_experts_per_tok"},
    {"mixtral", CONFIG, "\"intermediate_size\": 36", "\"intermediate_size\": 35", AVO_ERROR_FORMAT,
     "must have [35, 40]"},
    {"mixtral", CONFIG, "\"model_type\": \"mixtral\"", "\"model_type\": \"mistral\"",
     AVO_ERROR_UNSUPPORTED, "num_local_experts"},
    {"olmoe", CONFIG, "\"model_type\": \"olmoe\"", "\"model_type\": \"qwen3_moe\"",
     AVO_ERROR_FORMAT, "q_norm.weight has shape [40, 1], must have [10, 1]"},
    {"qwen2-moe", CONFIG, "\"shared_expert_intermediate_size\": 44",
     "\"shared_expert_intermediate_size\": 43", AVO_ERROR_FORMAT, "must have [43, 40]"},
    {"qwen2-moe", WEIGHTS, "layers.0.mlp.shared_expert_gate", "layers.7.mlp.shared_expert_gate",
     AVO_ERROR_UNSUPPORTED, "shared_expert_gate"},
    {"qwen2-moe-mixed", CONFIG, "\"mlp_only_layers\": [\n    1", "\"mlp_only_layers\": [\n    3",
     AVO_ERROR_FORMAT, "mlp_only_layers[0] must be a layer, 0 to 2"},
    {"qwen2-moe-mixed", CONFIG, "\"mlp_only_layers\": [\n    1", "\"mlp_only_layers\": [\n    0",
     AVO_ERROR_FORMAT, "layer 0 lacks ffn_gate"},
    {"granite-moe", CONFIG, "\"num_local_experts\": 5", "\"num_local_experts\": 4",
     AVO_ERROR_FORMAT, "must have [4, 40]"},
    {"gpt-oss", CONFIG, "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 6.0", AVO_ERROR_UNSUPPORTED,
     "swiglu_limit is 6"},
    {"gpt-oss", WEIGHTS, "layers.0.self_attn.sinks", "layers.9.self_attn.sinks",
     AVO_ERROR_UNSUPPORTED, "self_attn.sinks"},
    {"llama2", WEIGHTS, "\"shape\":[40]", "\"shape\":[04]", AVO_ERROR_FORMAT, "model.safetensors"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bad_models) / sizeof(bad_models[0]); i++) {
        const bad_model *bad = &bad_models[i];
        const char *folder = test_scratch_folder();
        avo_model *model = NULL;
        avo_error error = {0};
        bool config = strcmp(bad->file, CONFIG) == 0;
        copy_replaced(folder, bad->fixture, CONFIG, config ? bad->from : NULL, bad->to);
        copy_replaced(folder, bad->fixture, WEIGHTS, config ? NULL : bad->from, bad->to);
        avo_status status = avo_model_open(folder, NULL, &model, &error);
        if (status != bad->status || strstr(error.text, bad->text) == NULL)
            fail_msg("%s with %s: status %d, expected %d and \"%s\" in: %s", bad->fixture, bad->to,
                     status, bad->status, bad->text, error.text);
        assert_null(model);
    }
}

/* Unchanged copies open: what the cases above refuse is the change alone. */
static void test_copies_open(void **state) {
    (void)state;
    static const char *const names[] = {"llama2",  "llama-linear", "qwen3", "gpt2",
                                        "mistral", "phi3",         "opt",   "opt-350m",
                                        "mixtral", "qwen2-moe",    "olmoe", "gpt-oss"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        avo_model *model;
        avo_error error = {0};
        copy_replaced(test_scratch_folder(), names[i], CONFIG, NULL, NULL);
        copy_replaced(test_scratch_folder(), names[i], WEIGHTS, NULL, NULL);
        assert_ok_error(avo_model_open(test_scratch_folder(), NULL, &model, &error), &error);
        avo_model_close(model);
    }
}

/* Learned positions end where their table ends; the message names both numbers. */
static void test_positions_end(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "opt", "opt-350m"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char relative[256];
        avo_model *model;
        avo_engine *engine;
        avo_error error = {0};
        avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
        snprintf(relative, sizeof(relative), "models/%s", names[i]);
        assert_ok_error(avo_model_open(test_fixture_path(relative), NULL, &model, &error), &error);
        options.context_max = 49;
        assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_CONTEXT, &error,
                       "48");
        assert_non_null(strstr(error.text, "49"));
        options.context_max = 48;
        assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
        avo_engine_close(engine);
        avo_model_close(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_open),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_positions_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
