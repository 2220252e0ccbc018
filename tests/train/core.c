/* The differentiable model's edges: what is refused, memory that runs out, and models whose rows
 * lie in another order than PEFT's. */
#include "support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "support/models.h"
#include "train/core.h"
#include "train/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const all_linear[] = {"all-linear"};

static train_core_options core_options(void) {
    train_core_options options = {.method = TRAIN_LORA,
                                  .rank = 2,
                                  .alpha = 4.0,
                                  .targets = all_linear,
                                  .target_count = 1,
                                  .rows_max = 32,
                                  .sequences_max = 2,
                                  .context_max = 16,
                                  .engine = AVO_ENGINE_OPTIONS_INIT};
    options.engine.device = test_device("ref");
    options.engine.threads = 1;
    return options;
}

static avo_model *open_model(const char *name, const avo_allocator *allocator) {
    char path[256];
    avo_error error = {0};
    avo_model *model;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = allocator;
    snprintf(path, sizeof(path), "models/%s", name);
    assert_ok_error(avo_model_open(test_fixture_path(path), &options, &model, &error), &error);
    return model;
}

/* ---- Refusals ---- */

static void refuse(const avo_model *model, const train_core_options *options, avo_status status,
                   const char *text) {
    avo_error error = {0};
    train_core *core;
    uint64_t bytes;
    assert_refused(train_core_open(model, options, &core, &error), status, &error, text);
    assert_null(core);
    if (options->resume == NULL) /* which a plan does not read */
        assert_refused(train_core_plan(model, options, &bytes, &error), status, &error, text);
}

static void refuse_target(const avo_model *model, const char *target, const char *text) {
    train_core_options options = core_options();
    const char *targets[] = {"q_proj", target};
    options.targets = targets;
    options.target_count = 2;
    refuse(model, &options, AVO_ERROR_ARGUMENT, text);
}

static void refused_options(void **state) {
    (void)state;
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    options.rank = 0;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "rank is 0, must be 1 to 256");
    options.rank = 257;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "rank is 257, must be 1 to 256");
    options = core_options();
    options.alpha = 0.0;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "alpha is 0, must be above 0");
    options.alpha = (double)NAN;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "alpha is ");
    options = core_options();
    options.rows_max = 0;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "rows_max is 0, must be 1 to 65536");
    options.rows_max = 65537;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "rows_max is 65537, must be 1 to 65536");
    options = core_options();
    options.sequences_max = 0;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "sequences_max is 0, must be 1 to 4096");
    options = core_options();
    options.context_max = 34;
    refuse(model, &options, AVO_ERROR_ARGUMENT,
           "context_max is 34, must be 2 to rows_max + 1 (33)");
    options.context_max = 1;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "context_max is 1");
    options = core_options();
    options.target_count = 0;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "0 target modules");
    refuse_target(model, "embed_tokens", "target \"embed_tokens\" matches no matrix");
    refuse_target(model, "proj", "target \"proj\" matches no matrix");
    refuse_target(model, "all-linear", "target \"all-linear\" matches no matrix");
    options = core_options();
    options.resume = "/nonexistent/folder";
    refuse(model, &options, AVO_ERROR_NOT_FOUND, "/nonexistent/folder/adapter_config.json");
    avo_model_close(model);
}

static void refused_methods(void **state) {
    (void)state;
    const char *const head[] = {"lm_head"};
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    options.dora = true;
    options.targets = head;
    refuse(model, &options, AVO_ERROR_UNSUPPORTED, "DoRA of lm_head cannot be trained");
    avo_model_close(model);
    model = open_model("smollm2.gguf", NULL);
    options = core_options();
    options.method = TRAIN_FULL;
    refuse(model, &options, AVO_ERROR_UNSUPPORTED, "full tuning needs a folder with safetensors");
    avo_model_close(model);
}

/* The configuration of a folder without tensors: what it says is compared before they are read. */
static void write_config(const char *folder, const char *members) {
    char path[600], text[512];
    avo_error error = {0};
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    snprintf(text, sizeof(text), "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"], %s}",
             members);
    assert_ok_error(file_write(path, text, strlen(text), &error), &error);
}

static void refused_configurations(void **state) {
    (void)state;
    static const struct {
        const char *members, *text;
        avo_status status;
    } cases[] = {
        {"\"r\": 16, \"lora_alpha\": 4",
         "/adapter_config.json: r is 16, but --rank is 2; give --rank 16", AVO_ERROR_ARGUMENT},
        {"\"r\": 2, \"lora_alpha\": 0.1",
         "lora_alpha is 0.10000000000000001, but --alpha is 4; give --alpha 0.1",
         AVO_ERROR_ARGUMENT},
        {"\"r\": 2", "lora_alpha is 8, but --alpha is 4; give --alpha 8", AVO_ERROR_ARGUMENT},
        {"\"r\": 2, \"lora_alpha\": -4", "lora_alpha is -4; only adapters with an alpha above 0",
         AVO_ERROR_UNSUPPORTED},
        {"\"r\": 2, \"lora_alpha\": 4, \"use_rslora\": true",
         "use_rslora is true, but --rslora is not given; give it", AVO_ERROR_ARGUMENT},
        {"\"r\": 2, \"lora_alpha\": 4, \"use_dora\": true",
         "use_dora is true, but --dora is not given; give it", AVO_ERROR_ARGUMENT},
        {"\"r\": 2, \"lora_alpha\": 4, \"rank_pattern\": {\"q_proj\": 2}",
         "rank_pattern has 1 entries, must have none", AVO_ERROR_UNSUPPORTED},
        {"\"r\": 2, \"lora_alpha\": 4, \"alpha_pattern\": {\"q_proj\": 4}",
         "alpha_pattern has 1 entries, must have none", AVO_ERROR_UNSUPPORTED},
        {"\"r\": 0", "adapter_config.json: ", AVO_ERROR_FORMAT},
        {"\"r\": 2, \"lora_alpha\": 4, \"rank_pattern\": {}", "adapter_model.safetensors",
         AVO_ERROR_NOT_FOUND}, /* agrees: on to the tensors */
    };
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", test_scratch_folder());
    options.resume = folder;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_config(folder, cases[i].members);
        refuse(model, &options, cases[i].status, cases[i].text);
    }
    options.rslora = true;
    refuse(model, &options, AVO_ERROR_ARGUMENT,
           "use_rslora is false, but --rslora is given; leave it out");
    avo_model_close(model);
}

/* Folders with fewer tensors, and with tensors that training has no parameters for. */
static void refused_folders(void **state) {
    (void)state;
    char folder[512];
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    snprintf(folder, sizeof(folder), "%s", test_fixture_path("train/smollm2-lora"));
    options.resume = folder;
    options.alpha = 3.0;
    options.rank = 3;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "r is 2, but --rank is 3");
    options.rank = 2;
    options.dora = true;
    refuse(model, &options, AVO_ERROR_ARGUMENT, "use_dora is false, but --dora is given");
    options.dora = false;
    const char *const head[] = {"lm_head"};
    options.targets = head;
    refuse(model, &options, AVO_ERROR_FORMAT, "lm_head.lora_A.weight is missing");
    const char *const few[] = {"q_proj"};
    options.targets = few;
    refuse(model, &options, AVO_ERROR_UNSUPPORTED, "has 42 tensors, training has 6 parameters");
    avo_model_close(model);
}

/* ---- Targets of outputs ---- */

/* Trains these targets, writes the adapter and opens it again: `written` is what the configuration
 * must have, and `modules` how many of the model's it must mean. */
static void write_and_open(const char *name, const char *const *targets, size_t count,
                           const char *written, uint32_t modules) {
    avo_model *model = open_model(name, NULL);
    train_core_options options = core_options();
    options.targets = targets;
    options.target_count = count;
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    train_settings settings = {.rank = options.rank, .alpha = options.alpha};
    char folder[512], path[600];
    snprintf(folder, sizeof(folder), "%s", test_scratch_folder());
    assert_ok_error(
        output_write(model, &settings, train_core_parameters(core), true, folder, &error), &error);
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    file_map map;
    json_value root;
    arena arena;
    char found[256] = "";
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    assert_ok_error(json_parse(&arena, text, &root, &error), &error);
    const json_value *list = json_find(&root, "target_modules");
    assert_non_null(list);
    for (size_t i = 0; i < list->array.count; i++) {
        size_t at = strlen(found);
        snprintf(found + at, sizeof(found) - at, "%s%.*s", i > 0 ? " " : "",
                 TEXT_ARGUMENT(list->array.items[i].string));
    }
    assert_string_equal(found, written);
    arena_free(&arena);
    file_map_close(&map);
    avo_adapter *adapter;
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    assert_ok_error(avo_adapter_open(model, folder, NULL, &adapter, &error), &error);
    avo_adapter_describe(adapter, &info);
    assert_int_equal(info.modules_matched, modules);
    assert_int_equal(info.modules_expected, modules);
    avo_adapter_close(adapter);
    train_core_close(core);
    avo_model_close(model);
}

static void written_targets(void **state) {
    (void)state;
    static const char *const attention[] = {"attn.c_proj"}, *const both[] = {"c_proj"};
    static const char *const one[] = {"layers.0.self_attn.q_proj", "v_proj"};
    static const char *const layer[] = {"model.layers.1.mlp.up_proj", "1.mlp.down_proj"};
    static const char *const head[] = {"lm_head"};
    write_and_open("gpt2", attention, 1, "attn.c_proj", 2);
    write_and_open("gpt2", both, 1, "c_proj", 4);
    write_and_open("gpt2", all_linear, 1, "c_attn c_proj c_fc", 8);
    write_and_open("smollm2", one, 2, "0.self_attn.q_proj v_proj", 4);
    write_and_open("smollm2", layer, 2, "1.mlp.up_proj 1.mlp.down_proj", 2);
    write_and_open("smollm2", head, 1, "lm_head", 1);
}

/* Every other layer of many: each needs a target of its own, and none may be missing. */
static void many_targets(void **state) {
    (void)state;
    enum { TRAINED = 100 };
    static char names[TRAINED][TRAIN_NAME_MAX];
    static float value[1];
    train_parameter items[TRAINED];
    model_source source = {.path = "none",
                           .config = {.architecture = ARCHITECTURE_LLAMA, .layers = 2 * TRAINED}};
    avo_model model = {.source = &source};
    for (uint32_t i = 0; i < TRAINED; i++) {
        snprintf(names[i], sizeof(names[i]),
                 "base_model.model.model.layers.%u.self_attn.q_proj.lora_A.weight", 2 * i);
        items[i] = (train_parameter){.name = names[i], .rows = 1, .k = 1, .value = value};
    }
    const train_parameters parameters = {.item = items, .count = TRAINED};
    const train_settings settings = {.rank = 1, .alpha = 1.0};
    char folder[512], path[600], target[64];
    avo_error error = {0};
    file_map map;
    snprintf(folder, sizeof(folder), "%s", test_scratch_folder());
    assert_ok_error(output_write(&model, &settings, &parameters, true, folder, &error), &error);
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    for (uint32_t i = 0; i < TRAINED; i++) {
        int size = snprintf(target, sizeof(target), "\"%u.self_attn.q_proj\"", 2 * i);
        assert_non_null(memmem(map.bytes.data, map.bytes.size, target, (size_t)size));
    }
    file_map_close(&map);
}

/* Of all next tokens, exactly the one with the highest log-probability is the likeliest. */
static void one_token_is_likeliest(void **state) {
    (void)state;
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    int32_t best = -1, marked = -1;
    float highest = -INFINITY;
    for (int32_t next = 0; next < 97; next++) {
        const int32_t tokens[] = {1, 2, 3, next};
        const uint8_t wanted[] = {0, 0, 0, 1};
        const train_sequence sequence = {tokens, 4, wanted};
        float logprobs[4];
        uint8_t likeliest[4];
        const train_scores scores = {.logprobs = logprobs, .likeliest = likeliest};
        assert_ok_error(train_forward(core, &sequence, 1, TRAIN_PASS_MEASURE, &scores, &error),
                        &error);
        assert_int_equal(likeliest[0] + likeliest[1] + likeliest[2], 0);
        if (logprobs[3] > highest) {
            highest = logprobs[3];
            best = next;
        }
        if (likeliest[3] != 0) {
            assert_int_equal(marked, -1);
            marked = next;
        }
    }
    assert_int_equal(marked, best);
    train_core_close(core);
    avo_model_close(model);
}

static void refused_calls(void **state) {
    (void)state;
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    int32_t tokens[17] = {1, 2, 3, 4, 5};
    uint8_t wanted[17] = {0, 1, 0, 1};
    float out[64];
    const train_scores scores = {.logprobs = out};
    train_sequence one = {tokens, 5, wanted}, many[3];
    const avo_status wrong = AVO_ERROR_ARGUMENT;
    assert_refused(train_backward(core, out, &error), wrong, &error, "there is no forward pass");
    assert_refused(train_forward(core, &one, 0, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "0 sequences, must be 1 to 2");
    for (int i = 0; i < 3; i++)
        many[i] = one;
    assert_refused(train_forward(core, many, 3, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "3 sequences, must be 1 to 2");
    one.count = 1;
    assert_refused(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "sequence 0 has 1 tokens, must have 2 to 16");
    one.count = 17;
    assert_refused(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "sequence 0 has 17 tokens");
    one.count = 5;
    wanted[0] = 1;
    assert_refused(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "the first token has no log-probability");
    wanted[0] = 0;
    tokens[2] = 97;
    assert_refused(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), wrong, &error,
                   "token 2 is 97, must be 0 to 96");
    tokens[2] = 3;
    assert_ok_error(train_forward(core, &one, 1, TRAIN_PASS_BASE, &scores, &error), &error);
    assert_refused(train_backward(core, out, &error), wrong, &error, "not of the base");
    assert_ok_error(train_forward(core, &one, 1, TRAIN_PASS_MEASURE, &scores, &error), &error);
    assert_refused(train_backward(core, out, &error), wrong, &error, "not of the base");
    assert_ok_error(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), &error);
    assert_true(out[1] < 0.0f && out[2] == 0.0f && out[3] < 0.0f && out[4] == 0.0f);
    assert_ok_error(train_backward(core, out, &error), &error);
    assert_refused(train_backward(core, out, &error), wrong, &error, "once");
    /* Nothing is wanted: nothing is computed, and the gradients stay. */
    memset(wanted, 0, sizeof(wanted));
    assert_ok_error(train_forward(core, &one, 1, TRAIN_PASS_LEARN, &scores, &error), &error);
    assert_ok_error(train_backward(core, out, &error), &error);
    train_core_close(core);
    avo_model_close(model);
}

static void no_base_in_full(void **state) {
    (void)state;
    if (test_device_is_remote()) {
        skip();
        return;
    }
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    options.method = TRAIN_FULL;
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    assert_null(train_core_adapter(core));
    assert_true(train_core_model(core) != model);
    const int32_t tokens[2] = {1, 2};
    const uint8_t wanted[2] = {0, 1};
    float out[2];
    const train_scores scores = {.logprobs = out};
    train_sequence one = {tokens, 2, wanted};
    assert_refused(train_forward(core, &one, 1, TRAIN_PASS_BASE, &scores, &error),
                   AVO_ERROR_ARGUMENT, &error, "full tuning has no base");
    train_core_close(core);
    avo_model_close(model);
}

/* ---- Memory ---- */

static avo_status open_and_close(const avo_allocator *allocator, const char *name,
                                 const train_core_options *options, avo_error *error) {
    avo_model *model = open_model(name, NULL);
    train_core_options own = *options;
    own.allocator = allocator;
    train_core *core = NULL;
    avo_status status = train_core_open(model, &own, &core, error);
    train_core_close(core);
    avo_model_close(model);
    return status;
}

static void without_memory(const char *name, const train_core_options *options) {
    test_allocator allocator;
    avo_error error = {0};
    test_allocator_init(&allocator);
    assert_ok_error(open_and_close(&allocator.allocator, name, options, &error), &error);
    assert_int_equal(allocator.live, 0);
    size_t count = allocator.allocations;
    assert_true(count > 4);
    for (size_t at = 1; at <= count; at++) {
        test_allocator_init(&allocator);
        allocator.fail_at = at;
        avo_status status = open_and_close(&allocator.allocator, name, options, &error);
        if (status != AVO_ERROR_MEMORY)
            fail_msg("%s, allocation %zu of %zu: %s", name, at, count, avo_status_text(status));
        assert_int_equal(allocator.live, 0);
    }
}

static void allocations_fail(void **state) {
    (void)state;
    train_core_options options = core_options();
    options.dora = true;
    without_memory("qwen2", &options);
    options = core_options();
    options.method = TRAIN_FULL;
    if (!test_device_is_remote())
        without_memory("gemma3", &options);
}

/* The plan covers what the core takes besides the engine, and the engine's is in it. */
static void plan_covers(void **state) {
    (void)state;
    test_allocator allocator;
    avo_error error = {0};
    test_allocator_init(&allocator);
    avo_model *model = open_model("smollm2", NULL);
    train_core_options options = core_options();
    options.allocator = &allocator.allocator;
    uint64_t bytes = 0;
    train_core *core;
    assert_ok_error(train_core_plan(model, &options, &bytes, &error), &error);
    assert_int_equal(allocator.live, 0);
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    print_message("  planned %llu, taken besides the engine %zu\n", (unsigned long long)bytes,
                  allocator.live_bytes);
    assert_true(bytes >= allocator.live_bytes);
    assert_true(train_core_parameters(core)->numbers > 0);
    train_core_close(core);
    avo_model_close(model);
}

/* ---- Rows in another order ---- */

typedef struct gradients {
    uint32_t count;
    char name[128][128];
    size_t numbers[128];
    float *number[128];
} gradients;

static void run(const char *name, bool dora, gradients *out) {
    avo_model *model = open_model(name, NULL);
    train_core_options options = core_options();
    char folder[512];
    options.dora = dora;
    snprintf(folder, sizeof(folder), "%s",
             test_fixture_path(dora ? "train/llama3-dora" : "train/llama3-lora"));
    options.resume = folder;
    options.alpha = 3.0;
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    const int32_t tokens[12] = {5, 9, 41, 7, 88, 23, 64, 2, 90, 31, 55, 8};
    uint8_t wanted[12];
    float coefficients[12], logprobs[12];
    for (int i = 0; i < 12; i++) {
        wanted[i] = i > 0;
        coefficients[i] = 0.1f * (float)(i % 4 - 2);
    }
    train_sequence one = {tokens, 12, wanted};
    assert_ok_error(train_forward(core, &one, 1, TRAIN_PASS_LEARN,
                                  &(train_scores){.logprobs = logprobs}, &error),
                    &error);
    assert_ok_error(train_backward(core, coefficients, &error), &error);
    const train_parameters *p = train_core_parameters(core);
    out->count = p->count;
    assert_true(p->count <= 128);
    for (uint32_t i = 0; i < p->count; i++) {
        snprintf(out->name[i], sizeof(out->name[i]), "%s", p->item[i].name);
        out->numbers[i] = (size_t)p->item[i].rows * p->item[i].k;
        out->number[i] = malloc(out->numbers[i] * sizeof(float));
        assert_non_null(out->number[i]);
        memcpy(out->number[i], p->item[i].gradient, out->numbers[i] * sizeof(float));
    }
    train_core_close(core);
    avo_model_close(model);
}

/* llama.cpp's converter stores the rows of q and k in pairs; parameters and gradients are PEFT's.
 */
static void as_twin(void **state) {
    (void)state;
    static gradients own, twin;
    for (int dora = 0; dora < 2; dora++) {
        run("llama3", dora != 0, &own);
        run("llama3.gguf", dora != 0, &twin);
        assert_int_equal(own.count, twin.count);
        for (uint32_t i = 0; i < own.count; i++) {
            double most = 0.0, size = 0.0;
            assert_string_equal(own.name[i], twin.name[i]);
            assert_int_equal(own.numbers[i], twin.numbers[i]);
            for (size_t j = 0; j < own.numbers[i]; j++) {
                most = fmax(most, fabs((double)own.number[i][j] - (double)twin.number[i][j]));
                size = fmax(size, fabs((double)own.number[i][j]));
            }
            if (!(most <= 3e-5 * size))
                fail_msg("%s: %.1e of %.1e", own.name[i], most, size);
            free(own.number[i]);
            free(twin.number[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_options),
                                       cmocka_unit_test(refused_methods),
                                       cmocka_unit_test(refused_configurations),
                                       cmocka_unit_test(refused_folders),
                                       cmocka_unit_test(written_targets),
                                       cmocka_unit_test(many_targets),
                                       cmocka_unit_test(one_token_is_likeliest),
                                       cmocka_unit_test(refused_calls),
                                       cmocka_unit_test(no_base_in_full),
                                       cmocka_unit_test(allocations_fail),
                                       cmocka_unit_test(plan_covers),
                                       cmocka_unit_test(as_twin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
