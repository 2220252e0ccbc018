/* What is refused, and how it is named: options, tensors, shapes, ranks, numbers; and every way a
 * file can be cut or bent. */
#include "support/support.h"

#include "adapters/adapters_int.h"
#include "model/adapters.h"
#include "support/adapter_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)64 << 10)

typedef struct bench {
    avo_model *model;
    adapter_base base;
    char config[FILE_MAX];
    uint8_t weights[FILE_MAX];
    size_t config_bytes, weights_bytes;
    avo_error error;
} bench;

static size_t read_into(const char *path, void *out) {
    avo_error error = {0};
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_true(map.bytes.size < FILE_MAX);
    size_t size = map.bytes.size;
    memcpy(out, map.bytes.data, size);
    file_map_close(&map);
    return size;
}

/* `adapter` with "*.gguf": that file alone. */
static bench *bench_open(const char *adapter) {
    bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    char relative[256], folder[64], base[64];
    snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(adapter, "."), adapter);
    snprintf(relative, sizeof(relative), "adapters/%s/base.txt", folder);
    FILE *file = fopen(test_fixture_path(relative), "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%63s", base), 1);
    (void)fclose(file);
    snprintf(relative, sizeof(relative), "models/%s", base);
    assert_ok_error(avo_model_open(test_fixture_path(relative), NULL, &b->model, &b->error),
                    &b->error);
    b->base = model_adapter_base(b->model);
    snprintf(relative, sizeof(relative), "adapters/%s", adapter);
    if (strstr(adapter, ".gguf") != NULL) {
        b->weights_bytes = read_into(test_fixture_path(relative), b->weights);
        return b;
    }
    snprintf(relative, sizeof(relative), "adapters/%s/adapter_config.json", adapter);
    b->config_bytes = read_into(test_fixture_path(relative), b->config);
    snprintf(relative, sizeof(relative), "adapters/%s/adapter_model.safetensors", adapter);
    b->weights_bytes = read_into(test_fixture_path(relative), b->weights);
    return b;
}

static void bench_close(bench *b) {
    avo_model_close(b->model);
    free(b);
}

static avo_status open_bench(bench *b) {
    test_allocator counter;
    test_allocator_init(&counter);
    avo_adapter *adapter;
    memset(&b->error, 0, sizeof(b->error));
    avo_status status =
        adapter_open_memory(&b->base, (bytes_view){(const uint8_t *)b->config, b->config_bytes},
                            (bytes_view){b->weights, b->weights_bytes}, "the adapter", NULL,
                            &counter.allocator, &adapter, &b->error);
    adapter_release(adapter);
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes < ((size_t)64 << 20));
    assert_true(status == AVO_OK || b->error.text[0] != '\0');
    return status;
}

/* Replaces the first `from` of the configuration. */
static void edit_config(bench *b, const char *from, const char *to) {
    b->config[b->config_bytes] = '\0';
    char *at = strstr(b->config, from);
    assert_non_null(at);
    size_t rest = strlen(at + strlen(from)) + 1;
    memmove(at + strlen(to), at + strlen(from), rest);
    memcpy(at, to, strlen(to));
    b->config_bytes = strlen(b->config);
}

/* The same in the header of the weights; as long as before. */
static void edit_header(bench *b, const char *from, const char *to) {
    assert_int_equal(strlen(from), strlen(to));
    uint8_t *at = memmem(b->weights, b->weights_bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
}

/* Another tensor of `count` floats, all 1, behind the others. */
static void add_tensor(bench *b, const char *name, size_t count) {
    char entry[512];
    uint64_t header;
    memcpy(&header, b->weights, 8);
    size_t at = b->weights_bytes - 8 - (size_t)header;
    int size = snprintf(entry, sizeof(entry),
                        "{\"base_model.model.%s\":{\"dtype\":\"F32\",\"shape\":[%zu],"
                        "\"data_offsets\":[%zu,%zu]},",
                        name, count, at, at + 4 * count);
    while (size % 8 != 1) /* the brace was there before */
        entry[size++] = ' ';
    size_t more = (size_t)size - 1;
    assert_true(b->weights_bytes + more + 4 * count <= FILE_MAX);
    memmove(b->weights + 9 + more, b->weights + 9, b->weights_bytes - 9);
    memcpy(b->weights + 8, entry, (size_t)size);
    header += more;
    memcpy(b->weights, &header, 8);
    b->weights_bytes += more;
    for (size_t i = 0; i < count; i++, b->weights_bytes += 4)
        memcpy(b->weights + b->weights_bytes, &(float){1.0f}, 4);
}

typedef struct edit {
    const char *adapter, *from, *to;
    avo_status status;
    const char *says;
} edit;

static const edit option_edits[] = {
    {"plain", "\"LORA\"", "\"IA3\"", AVO_ERROR_UNSUPPORTED, "peft_type \"IA3\""},
    {"plain", "\"LORA\"", "\"LOHA\"", AVO_ERROR_UNSUPPORTED, "peft_type \"LOHA\""},
    {"plain", "\"LORA\"", "\"PROMPT_TUNING\"", AVO_ERROR_UNSUPPORTED, "PROMPT_TUNING"},
    {"plain", "\"LORA\"", "null", AVO_ERROR_FORMAT, "peft_type is missing"},
    {"plain", "\"LORA\"", "7", AVO_ERROR_FORMAT, "peft_type"},
    {"plain", "\"trainable_token_indices\":null", "\"trainable_token_indices\":[3]",
     AVO_ERROR_FORMAT, "trainable_token_indices and trainable_tokens_delta must both be present"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]", "\"trainable_token_indices\":[61,10]",
     AVO_ERROR_FORMAT, "must have one row per entry"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]", "\"trainable_token_indices\":null",
     AVO_ERROR_FORMAT, "must both be present"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]", "\"trainable_token_indices\":[61,10,61]",
     AVO_ERROR_FORMAT, "token 61 is named twice"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]",
     "\"trainable_token_indices\":[61,10,99999]", AVO_ERROR_FORMAT,
     "token 99999 is not in the vocabulary"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]", "\"trainable_token_indices\":[61,10,-1]",
     AVO_ERROR_FORMAT, "is not a list of tokens"},
    {"tokens", "\"trainable_token_indices\":[61,10,79]",
     "\"trainable_token_indices\":{\"lm_head\":[61,10,79]}", AVO_ERROR_UNSUPPORTED,
     "trainable_token_indices is supported for the embedding only, not for lm_head"},
    {"plain", "\"use_qalora\":false", "\"use_qalora\":true", AVO_ERROR_UNSUPPORTED, "use_qalora"},
    {"plain", "\"alora_invocation_tokens\":null", "\"alora_invocation_tokens\":[1]",
     AVO_ERROR_UNSUPPORTED, "alora_invocation_tokens"},
    {"plain", "\"layer_replication\":null", "\"layer_replication\":[[0,1]]", AVO_ERROR_UNSUPPORTED,
     "layer_replication"},
    {"plain", "\"use_qalora\":false", "\"use_novelty\":true", AVO_ERROR_UNSUPPORTED,
     "unknown option use_novelty"},
    {"plain", "\"init_lora_weights\":true", "\"init_lora_weights\":\"pissa_niter_16\"",
     AVO_ERROR_UNSUPPORTED, "pissa_niter_16"},
    {"plain", "\"init_lora_weights\":true", "\"init_lora_weights\":\"newer\"",
     AVO_ERROR_UNSUPPORTED, "unknown init_lora_weights \"newer\""},
    {"plain", "\"target_modules\":[", "\"target_modules\":[\"up_proj\",", AVO_ERROR_FORMAT,
     "mlp.up_proj is in target_modules, but its LoRA tensors are missing"},
    {"plain", "\"v_proj\"", "\"w_proj\"", AVO_ERROR_FORMAT,
     "has LoRA tensors, but target_modules does not match it"},
    {"plain", "\"r\":3", "\"r\":4", AVO_ERROR_FORMAT, "has rank 3, the configuration says 4"},
    {"plain", "\"r\":3", "\"r\":0", AVO_ERROR_FORMAT, "r"},
    {"plain", "\"r\":3", "\"r\":257", AVO_ERROR_FORMAT, "r"},
    {"plain", "\"r\":3", "\"r\":\"3\"", AVO_ERROR_FORMAT, "r"},
    {"plain", "\"lora_alpha\":5", "\"lora_alpha\":1e300", AVO_ERROR_FORMAT, "lora_alpha"},
    {"plain", "\"alpha_pattern\":{}", "\"alpha_pattern\":{\"q_proj\":1e300}", AVO_ERROR_FORMAT,
     "alpha_pattern[\"q_proj\"] must be a number from -1e9 to 1e9"},
    {"plain", "\"alpha_pattern\":{}", "\"alpha_pattern\":{\"q_proj\":-2000000000}",
     AVO_ERROR_FORMAT, "alpha_pattern[\"q_proj\"]"},
    {"plain", "\"alpha_pattern\":{}", "\"alpha_pattern\":{\"q_proj\":-1e9}", AVO_OK, ""},
    {"plain", "\"bias\":\"none\"", "\"bias\":\"some\"", AVO_ERROR_FORMAT, "bias"},
    {"plain", "\"rank_pattern\":{}", "\"rank_pattern\":{\"q_proj\":2}", AVO_ERROR_FORMAT,
     "has rank 3, the configuration says 2"},
    {"plain", "\"rank_pattern\":{}", "\"rank_pattern\":{\"q_proj(\":2}", AVO_ERROR_FORMAT,
     "pattern \"q_proj(\""},
    {"plain", "\"rank_pattern\":{}", "\"rank_pattern\":{\"q_proj\":-2}", AVO_ERROR_FORMAT,
     "rank_pattern"},
    {"plain", "\"rank_pattern\":{}", "\"rank_pattern\":{\"((\\\\w+\\\\.?)+)+[0-9][A-Z]\":2}",
     AVO_ERROR_LIMIT, "takes too long"},
    {"plain", "\"use_dora\":false", "\"use_dora\":true", AVO_ERROR_FORMAT,
     "has no magnitude vector"},
    {"dora", "\"use_dora\":true", "\"use_dora\":false", AVO_ERROR_FORMAT, "has a magnitude vector"},
    {"embedding-tied", "\"ensure_weight_tying\":false", "\"ensure_weight_tying\":true",
     AVO_ERROR_FORMAT, "module lm_head is in target_modules, but its LoRA tensors are missing"},
    {"plain", "\"lora_bias\":false", "\"lora_bias\":true", AVO_ERROR_FORMAT, "lora_bias"},
    {"saved-head", "\"lm_head\"", "\"lm_tail\"", AVO_OK, ""}, /* saved unasked: applied */
    {"saved-linear", "\"layers.1.mlp.up_proj\"", "\"layers.1.mlp.none\"", AVO_ERROR_FORMAT,
     "has a weight, but modules_to_save does not name it"},
    {"plain", "\"modules_to_save\":null", "\"modules_to_save\":[\"lm_head\"]", AVO_ERROR_FORMAT,
     "lm_head is in modules_to_save, but its weight is missing"},
    {"bias-lora", "\"lora_only\"", "\"none\"", AVO_ERROR_FORMAT, "has a bias, but the option"},
    {"bias-lora", "\"lora_only\"", "\"all\"", AVO_ERROR_FORMAT, "must have a trained bias"},
    {"plain", "{", "[", AVO_ERROR_FORMAT, "adapter_config.json"},
    {"plain", "\"target_modules\":[", "\"target_modules\":[3,", AVO_ERROR_FORMAT, "target_modules"},
};

static void options_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(option_edits) / sizeof(option_edits[0]); i++) {
        bench *b = bench_open(option_edits[i].adapter);
        assert_int_equal(open_bench(b), AVO_OK);
        edit_config(b, option_edits[i].from, option_edits[i].to);
        avo_status status = open_bench(b);
        if (status != option_edits[i].status || strstr(b->error.text, option_edits[i].says) == NULL)
            fail_msg("%s: %s: %d, %s", option_edits[i].adapter, option_edits[i].to, status,
                     b->error.text);
        bench_close(b);
    }
}

static void tensors_are_refused_by_name(void **state) {
    (void)state;
    static const edit edits[] = {
        {"plain", "base_model.model.model.layers.0.self_attn.q_proj.lora_A",
         "base_model.modem.model.layers.0.self_attn.q_proj.lora_A", AVO_ERROR_FORMAT,
         "does not begin with \"base_model.model.\""},
        {"plain", "model.layers.0.self_attn.q_proj.lora_A",
         "model.layers.7.self_attn.q_proj.lora_A", AVO_ERROR_FORMAT, "matches no part"},
        {"plain", "base_model.model.model.layers.1.self_attn.q_proj.lora_A",
         "base_model.model.moder.layers.1.self_attn.q_proj.lora_A", AVO_ERROR_FORMAT,
         "matches no part of the model (llama, 2 layers"},
        {"plain", "layers.1.self_attn.v_proj.lora_B.weight",
         "layers.1.self_attn.v_proj.lora_C.weight", AVO_ERROR_FORMAT, "lora_C.weight matches no"},
        {"plain", "self_attn.v_proj.lora_A.weight", "self_attn.v_proj.lora_B.xeight",
         AVO_ERROR_FORMAT, "lora_B.xeight"},
        {"plain", "\"shape\":[3,40]", "\"shape\":[40,3]", AVO_ERROR_FORMAT, "rank 40"},
        {"plain", "\"shape\":[40,3]", "\"shape\":[60,2]", AVO_ERROR_FORMAT,
         "has shape [60, 2], the model needs [40, 3]"},
        {"plain", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"", AVO_ERROR_UNSUPPORTED,
         "has type i32, must be F32, F16 or BF16"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        bench *b = bench_open(edits[i].adapter);
        edit_header(b, edits[i].from, edits[i].to);
        avo_status status = open_bench(b);
        if (status != edits[i].status || strstr(b->error.text, edits[i].says) == NULL)
            fail_msg("%s: %s: %d, %s", edits[i].adapter, edits[i].to, status, b->error.text);
        bench_close(b);
    }
}

/* A magnitude or a bias of B where no low rank is: never a gain of 0. */
static void stray_vectors_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *adapter, *tensor;
        size_t count;
        const char *says;
    } strays[] = {
        {"plain", "model.layers.0.mlp.up_proj.lora_magnitude_vector", 40,
         "the adapter: module model.layers.0.mlp.up_proj has a magnitude vector, but "
         "target_modules does not match"},
        {"dora", "lm_head.lora_magnitude_vector.weight", 7,
         "the adapter: module lm_head has a magnitude vector, but target_modules does not match"},
        {"plain", "model.layers.1.mlp.down_proj.lora_B.bias", 40,
         "the adapter: module model.layers.1.mlp.down_proj has a lora_B.bias, but target_modules "
         "does not match"},
        {"plain", "model.embed_tokens.lora_magnitude_vector", 40, "embed_tokens has a magnitude"},
        {"plain", "model.norm.lora_magnitude_vector", 40, "model.norm has a magnitude vector"},
        {"saved-linear", "model.layers.1.mlp.up_proj.lora_magnitude_vector", 40,
         "mlp.up_proj has a magnitude vector"},
        {"dora", "model.layers.0.self_attn.q_proj.lora_B.bias", 40, "lora_bias disagree"},
    };
    for (size_t i = 0; i < sizeof(strays) / sizeof(strays[0]); i++) {
        bench *b = bench_open(strays[i].adapter);
        assert_int_equal(open_bench(b), AVO_OK);
        add_tensor(b, strays[i].tensor, strays[i].count);
        assert_refused(open_bench(b), AVO_ERROR_FORMAT, &b->error, strays[i].says);
        bench_close(b);
    }
}

/* Adapters change the attention of a mixture of experts, not its experts or its router. */
static void experts_are_refused_by_name(void **state) {
    (void)state;
    static const char *const tensors[] = {"model.layers.0.mlp.experts.3.up_proj.lora_A.weight",
                                          "model.layers.1.mlp.gate.lora_B.weight"};
    for (size_t i = 0; i < 2; i++) {
        bench *b = bench_open("experts");
        assert_int_equal(open_bench(b), AVO_OK);
        add_tensor(b, tensors[i], 40);
        assert_int_equal(open_bench(b), AVO_ERROR_FORMAT);
        assert_non_null(strstr(b->error.text, tensors[i]));
        bench_close(b);
    }
}

static void numbers_that_are_none_are_refused(void **state) {
    (void)state;
    static const uint32_t bad[] = {0x7FC00000, 0x7F800000, 0xFF800000};
    for (size_t i = 0; i < 3; i++) {
        bench *b = bench_open("plain");
        uint64_t header;
        memcpy(&header, b->weights, 8);
        for (size_t at = 8 + (size_t)header; at + 4 <= b->weights_bytes; at += 404) {
            uint32_t kept;
            memcpy(&kept, b->weights + at, 4);
            memcpy(b->weights + at, &bad[i], 4);
            assert_refused(open_bench(b), AVO_ERROR_FORMAT, &b->error,
                           i == 0 ? "contains NaN" : "contains Inf");
            memcpy(b->weights + at, &kept, 4);
        }
        bench_close(b);
    }
}

/* Whatever differs first, the text says that the models do. */
static void adapters_of_other_models_are_named(void **state) {
    (void)state;
    static const struct {
        const char *model, *adapter, *says;
    } cases[] = {
        {"llama3", "plain",
         "has tensors for 2 layers, the model has 3 (llama): the adapter was "
         "probably trained on another model"},
        {"gemma3", "plain", "has tensors for 2 layers, the model has 7 (gemma3)"},
        {"qwen2", "plain", "the model needs [3, 48]; the adapter was probably trained on another"},
        {"phi3", "plain", "it was probably trained on another model"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[512];
        avo_model *model;
        avo_adapter *adapter;
        avo_error error = {0};
        snprintf(path, sizeof(path), AVO_SOURCE_FOLDER "/tests/fixtures/models/%s", cases[i].model);
        assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
        snprintf(path, sizeof(path), AVO_SOURCE_FOLDER "/tests/fixtures/adapters/%s",
                 cases[i].adapter);
        assert_refused(avo_adapter_open(model, path, NULL, &adapter, &error), AVO_ERROR_FORMAT,
                       &error, cases[i].says);
        avo_model_close(model);
    }
}

/* PEFT saves a copy of the base's embedding beside its LoRA: another base's is noticed. */
static void another_base_is_noticed(void **state) {
    (void)state;
    bench *b = bench_open("embedding-tied");
    b->config[b->config_bytes] = '\0';
    uint64_t header;
    memcpy(&header, b->weights, 8);
    char text[FILE_MAX];
    memcpy(text, b->weights + 8, (size_t)header);
    text[header] = '\0';
    const char *at = strstr(text, "embed_tokens.base_layer.weight");
    assert_non_null(at);
    const char *offsets = strstr(at, "\"data_offsets\":[");
    assert_non_null(offsets);
    size_t begin = strtoul(offsets + strlen("\"data_offsets\":["), NULL, 10);
    assert_int_equal(open_bench(b), AVO_OK);
    for (size_t i = 0; i < 1000; i += 2) /* signs of the first numbers, in BF16 */
        b->weights[8 + (size_t)header + begin + i + 1] ^= 0x80;
    assert_refused(open_bench(b), AVO_ERROR_FORMAT, &b->error, "made for another base model");
    bench_close(b);
}

static void pickles_are_never_read(void **state) {
    (void)state;
    bench *b = bench_open("plain");
    memcpy(b->weights, "PK\3\4aaaaaaaa", 12);
    assert_refused(open_bench(b), AVO_ERROR_UNSUPPORTED, &b->error, "pickle");
    memcpy(b->weights, "\x80\2}q\1aaaaaa", 12);
    assert_refused(open_bench(b), AVO_ERROR_UNSUPPORTED, &b->error, "pickle");
    avo_adapter *adapter = NULL;
    char folder[4096], path[4200];
    snprintf(folder, sizeof(folder), "%s", test_scratch_folder());
    static const char *const names[] = {"adapter_config.json", "adapter_model.bin"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        (void)fputs("{}", file);
        (void)fclose(file);
    }
    assert_refused(avo_adapter_open(b->model, folder, NULL, &adapter, &b->error),
                   AVO_ERROR_UNSUPPORTED, &b->error,
                   "refusing to read adapter_model.bin, a Python pickle");
    bench_close(b);
}

static void gguf_adapters_are_refused_by_name(void **state) {
    (void)state;
    static const edit edits[] = {
        {"plain.gguf", "adapter.type", "adapter.tape", AVO_ERROR_FORMAT, "adapter.type is missing"},
        {"plain.gguf", "adapter.lora.alpha", "adapter.lora.alpho", AVO_ERROR_FORMAT,
         "adapter.lora.alpha"},
        {"plain.gguf", "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_c", AVO_ERROR_FORMAT,
         "lora_c matches no part"},
        {"plain.gguf", "blk.0.attn_q.weight.lora_a", "blk.9.attn_q.weight.lora_a", AVO_ERROR_FORMAT,
         "blk.9.attn_q.weight.lora_a matches no part"},
        {"plain.gguf", "blk.0.attn_q.weight.lora_a", "blk.0.attn_k.weight.lora_a", AVO_ERROR_FORMAT,
         "has only one matrix"},
        {"fused.gguf", "phi3", "phi4", AVO_ERROR_UNSUPPORTED, "general.architecture is \"phi4\""},
        {"plain.gguf", "adapter", "adopter", AVO_ERROR_UNSUPPORTED, "general.type"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        bench *b = bench_open(edits[i].adapter);
        assert_int_equal(open_bench(b), AVO_OK);
        edit_header(b, edits[i].from, edits[i].to);
        avo_status status = open_bench(b);
        if (status != edits[i].status || strstr(b->error.text, edits[i].says) == NULL)
            fail_msg("%s: %s: %d, %s", edits[i].adapter, edits[i].to, status, b->error.text);
        bench_close(b);
    }
}

/* Cut anywhere, any bit of the head turned: an answer, no memory lost, nothing read outside. */
static void cut_and_bent(const char *name) {
    bench *b = bench_open(name);
    size_t whole = b->weights_bytes;
    uint8_t *kept = malloc(whole);
    assert_non_null(kept);
    memcpy(kept, b->weights, whole);
    bench *exact = b;
    for (size_t size = 0; size < whole; size += size < 2048 ? 3 : 29) {
        exact->weights_bytes = size;
        assert_int_not_equal(open_bench(exact), AVO_OK);
    }
    b->weights_bytes = whole;
    size_t head = whole < 4096 ? whole : 4096;
    for (size_t at = 0; at < head; at++) {
        b->weights[at] = (uint8_t)(kept[at] ^ (1u << at % 8));
        (void)open_bench(b);
        b->weights[at] = (uint8_t)(at % 3 == 0 ? 0xFF : at % 3 == 1 ? 0 : kept[at] + 1);
        (void)open_bench(b);
        b->weights[at] = kept[at];
    }
    assert_int_equal(open_bench(b), AVO_OK);
    free(kept);
    bench_close(b);
}

static void any_damage_is_an_answer(void **state) {
    (void)state;
    cut_and_bent("plain");
    cut_and_bent("plain.gguf");
    cut_and_bent("rank-one");
}

static void any_damaged_configuration_is_an_answer(void **state) {
    (void)state;
    bench *b = bench_open("patterns");
    size_t whole = b->config_bytes;
    char *kept = malloc(whole);
    assert_non_null(kept);
    memcpy(kept, b->config, whole);
    for (size_t size = 0; size + 1 < whole; size++) {
        b->config_bytes = size;
        assert_int_not_equal(open_bench(b), AVO_OK);
    }
    b->config_bytes = whole;
    for (size_t at = 0; at < whole; at++) {
        b->config[at] = (char)(kept[at] ^ (1 << at % 7));
        (void)open_bench(b);
        b->config[at] = kept[at];
    }
    assert_int_equal(open_bench(b), AVO_OK);
    free(kept);
    bench_close(b);
}

static void other_types_are_refused(void **state) {
    (void)state;
    bench *b = bench_open("plain");
    avo_adapter *adapter;
    adapter_options options = {.type = QUANT_Q4_0};
    assert_refused(adapter_open_memory(&b->base,
                                       (bytes_view){(const uint8_t *)b->config, b->config_bytes},
                                       (bytes_view){b->weights, b->weights_bytes}, "the adapter",
                                       &options, NULL, &adapter, &b->error),
                   AVO_ERROR_ARGUMENT, &b->error, "q8, f16 or f32");
    bench_close(b);
}

/* Every allocation fails once: no crash, no leak, and the next answer is right. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const names[] = {"patterns", "dora-embedding", "saved-linear", "plain.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bench *b = bench_open(names[i]);
        for (size_t fail_at = 1;; fail_at++) {
            test_allocator counter;
            test_allocator_init(&counter);
            counter.fail_at = fail_at;
            avo_adapter *adapter;
            avo_status status = adapter_open_memory(
                &b->base, (bytes_view){(const uint8_t *)b->config, b->config_bytes},
                (bytes_view){b->weights, b->weights_bytes}, "the adapter", NULL, &counter.allocator,
                &adapter, &b->error);
            adapter_release(adapter);
            assert_int_equal(counter.live, 0);
            if (status == AVO_OK && counter.allocations < fail_at)
                break;
            assert_true(status == AVO_ERROR_MEMORY || status == AVO_OK);
        }
        bench_close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_of_other_models_are_named),
        cmocka_unit_test(options_are_refused_by_name),
        cmocka_unit_test(tensors_are_refused_by_name),
        cmocka_unit_test(stray_vectors_are_refused_by_name),
        cmocka_unit_test(experts_are_refused_by_name),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(another_base_is_noticed),
        cmocka_unit_test(pickles_are_never_read),
        cmocka_unit_test(gguf_adapters_are_refused_by_name),
        cmocka_unit_test(any_damage_is_an_answer),
        cmocka_unit_test(any_damaged_configuration_is_an_answer),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
