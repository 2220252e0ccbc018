/* Draft heads of other projects: what does not fit is refused, and the error says what. That the
 * right ones are computed is tests/engine/draft_heads.c's. */
#include "support/support.h"

#include "base/buffer.h"
#include "model/heads_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static avo_model *open_model(const avo_allocator *allocator) {
    avo_model *model;
    avo_error error;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = allocator;
    assert_ok_error(avo_model_open(test_fixture_path("models/smollm2"), &options, &model, &error),
                    &error);
    return model;
}

static void map_fixture(const char *folder, const char *name, file_map *map) {
    char relative[128];
    avo_error error;
    snprintf(relative, sizeof(relative), "heads/others/%s/%s", folder, name);
    assert_ok_error(file_map_open(test_fixture_path(relative), map, &error), &error);
}

static const char *weights_name(const char *folder) {
    return strcmp(folder, "medusa") == 0 ? "medusa_lm_head.safetensors" : "model.safetensors";
}

/* A copy with `to` in the place of the first `from`, both of one length; NULL: as it is. */
static uint8_t *copy_of(bytes_view bytes, const char *from, const char *to) {
    uint8_t *copy = test_take_exact(bytes.size, 64);
    memcpy(copy, bytes.data, bytes.size);
    if (from == NULL)
        return copy;
    uint8_t *at = memmem(copy, bytes.size, from, strlen(from));
    if (at == NULL || strlen(from) != strlen(to))
        fail_msg("\"%s\" is not there or \"%s\" is not as long", from, to);
    memcpy(at, to, strlen(to));
    return copy;
}

typedef struct refusal {
    const char *folder;
    bool config; /* else the weights */
    const char *from, *to, *text;
    avo_status status;
} refusal;

#define F AVO_ERROR_FORMAT
#define A AVO_ERROR_ARGUMENT
#define U AVO_ERROR_UNSUPPORTED
static const refusal refusals[] = {
    {"eagle3", true, "\"hidden_size\": 36", "\"hidden_size\": 48", "hidden_size is 48, must be 36",
     A},
    {"eagle3", true, "\"vocab_size\": 97", "\"vocab_size\": 98", "vocab_size is 98, must be 97", A},
    {"eagle3", true, "\"silu\"", "\"gelu\"", "hidden_act is \"gelu\"", U},
    {"eagle3", true, "\"num_attention_heads\"", "\"num_attention_hats_\"",
     "has no num_attention_heads", F},
    {"eagle3", true, "\"intermediate_size\": 40", "\"intermediate_size\": 41",
     "midlayer.mlp.gate_proj.weight\" has shape", F},
    {"eagle3", true, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 9", "num_hidden_layers",
     F},
    {"eagle3", true, "\"rope_theta\": 20000.0", "\"rope_theta\": -1.0   ", "rope_theta", F},
    {"eagle3", true, "\"rope_theta\": 20000.0,\n \"rope_scaling\": null",
     "\"rope_scaling\":{\"rope_type\":\"llama3\"}       ", "RoPE of type \"llama3\"", U},
    {"eagle3", true, "   0,", "  99,", "layer 100 cannot be read", F},
    {"eagle3", false, "midlayer.hidden_norm", "midlayer.hodden_norm", "hidden_norm", F},
    {"eagle3", false, "\"fc.weight\"", "\"fx.weight\"", "\"fc.weight\" is missing", F},
    {"eagle3", false, "\"d2t\"", "\"d3t\"", "\"d2t\" is missing", F},
    {"eagle3", false, "\"t2d\"", "\"t3d\"", "tensor \"t3d\" belongs to no architecture", U},
    {"eagle3", false, "\"norm.weight\"", "\"nurm.weight\"", "\"norm.weight\" is missing", F},
    {"eagle3", false, "[61,36]", "[36,61]", "lm_head.weight\" has shape [36, 61]", F},
    {"speculators", true, "\"speculators_model_type\": \"eagle3\"",
     "\"speculators_model_type\": \"dflash\"", "architecture \"Eagle3Speculator\" is no draft", U},
    {"speculators", true, "\"norm_before_residual\": true", "\"norm_before_fc\"      : true",
     "norm_before_fc is true", U},
    {"speculators", false, "layers.1.self_attn.q_proj.bias", "layers.1.self_attn.q_praj.bias",
     "layers.1.self_attn.q_proj.bias\" is missing", F},
    {"speculators-eagle", true, "\"layernorms\": false", "\"layernorms\": true ",
     "layernorms is true", U},
    {"speculators-eagle", false, "fusion_fc.weight", "fusion_fz.weight", "is no draft heads", U},
    {"eagle", false, "embed_tokens.weight", "embed_takens.weight",
     "embed_takens.weight\" belongs to no architecture", U},
    {"eagle", false, "layers.1.input_layernorm", "layers.1.inpot_layernorm",
     "layers.1.input_layernorm.weight\" is missing", F},
    {"medusa", false, "\"1.2.weight\"", "\"1.3.weight\"", "\"1.2.weight\" is missing", F},
    {"medusa", false, "\"3.0.linear.bias\"", "\"3.0.linear.bios\"",
     "\"3.0.linear.bias\" is missing", F},
    {"medusa", false, "[97,36]", "[36,97]", "has shape [36, 97], must have [97, 36]", F},
    {"medusa", false, "\"0.0.linear.weight\"", "\"9.0.linear.weight\"", "0 Medusa heads", U},
    {"medusa", false, "\"F16\"", "\"I16\"", "has type i16, must have f32, f16 or bf16", U},
    {"medusa", true, "{", "[", "config.json", F},
};

static void wrong_folders_are_refused(void **state) {
    (void)state;
    avo_model *model = open_model(NULL);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const refusal *wanted = &refusals[i];
        file_map config, weights;
        avo_error error = {0};
        buffer made;
        buffer_init(&made, NULL, SIZE_MAX);
        map_fixture(wanted->folder, "config.json", &config);
        map_fixture(wanted->folder, weights_name(wanted->folder), &weights);
        uint8_t *fields = copy_of(config.bytes, wanted->config ? wanted->from : NULL, wanted->to);
        uint8_t *numbers = copy_of(weights.bytes, wanted->config ? NULL : wanted->from, wanted->to);
        avo_status status = heads_import_memory(
            model, "the.folder", (text_view){(const char *)fields, config.bytes.size},
            (bytes_view){numbers, weights.bytes.size}, QUANT_Q8_0, &made, &error);
        if (status != wanted->status || strstr(error.text, wanted->text) == NULL ||
            strstr(error.text, "the.folder") == NULL)
            fail_msg("%s → %s: status %d, \"%s\"", wanted->from, wanted->to, (int)status,
                     error.text);
        buffer_free(&made);
        free(fields);
        free(numbers);
        file_map_close(&config);
        file_map_close(&weights);
    }
    avo_model_close(model);
}

/* An embedding that is not the model's; tokens that are none, or twice the same. */
static void wrong_numbers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *folder, *tensor, *text;
        size_t at;
        uint8_t byte;
    } wrong[] = {{"eagle3", "d2t", "d2t[60] is", 60 * 8 + 1, 0x7f},
                 {"eagle3", "d2t", "d2t[0] is", 7, 0xff},
                 {"eagle", "embed_tokens.weight", "is not the embedding of the model", 1, 0x7e}};
    avo_model *model = open_model(NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        file_map config, weights;
        model_source *source;
        avo_error error = {0};
        buffer made;
        buffer_init(&made, NULL, SIZE_MAX);
        map_fixture(wrong[i].folder, "config.json", &config);
        map_fixture(wrong[i].folder, "model.safetensors", &weights);
        uint8_t *copy = copy_of(weights.bytes, NULL, NULL);
        bytes_view bytes = {copy, weights.bytes.size};
        assert_ok_error(source_open_tensors(bytes, "x", NULL, &source, &error), &error);
        const source_tensor *tensor = source_find(source, text_from(wrong[i].tensor));
        assert_non_null(tensor);
        copy[(size_t)(tensor->data - copy) + wrong[i].at] = wrong[i].byte;
        source_close(source);
        text_view fields = {(const char *)config.bytes.data, config.bytes.size};
        avo_status status =
            heads_import_memory(model, "the.folder", fields, bytes, QUANT_F32, &made, &error);
        if (status == AVO_OK || strstr(error.text, wrong[i].text) == NULL)
            fail_msg("%s: status %d, \"%s\"", wrong[i].text, (int)status, error.text);
        buffer_free(&made);
        free(copy);
        file_map_close(&config);
        file_map_close(&weights);
    }
    avo_model_close(model);
}

/* Folders open like files; those with pickles say how to convert them. */
static void folders_open(void **state) {
    (void)state;
    static const char *const folders[] = {"medusa", "eagle", "speculators-eagle", "eagle3",
                                          "speculators"};
    avo_model *model = open_model(NULL);
    avo_heads *heads;
    avo_error error;
    char relative[64], path[256];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(relative, sizeof(relative), "heads/others/%s", folders[i]);
        assert_ok_error(avo_heads_open(model, test_fixture_path(relative), &heads, &error), &error);
        assert_true(heads_made_for(&heads->config, model));
        avo_heads_close(heads);
    }
    char folder[] = "/tmp/avocet-heads-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    assert_ok_error(file_write(path, "{}", 2, &error), &error);
    assert_refused(avo_heads_open(model, folder, &heads, &error), F, &error,
                   "neither model.safetensors nor medusa_lm_head.safetensors");
    snprintf(relative, sizeof(relative), "%s/medusa_lm_head.pt", folder);
    assert_ok_error(file_write(relative, "x", 1, &error), &error);
    assert_refused(avo_heads_open(model, folder, &heads, &error), U, &error, "torch.load(");
    unlink(relative);
    unlink(path);
    rmdir(folder);
    avo_model_close(model);
}

static void every_allocation_fails(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    avo_model *model = open_model(&counter.allocator);
    size_t live = counter.live;
    avo_error error;
    avo_heads *heads;
    for (size_t fail = 1;; fail++) {
        counter.allocations = 0;
        counter.fail_at = fail;
        avo_status status =
            avo_heads_open(model, test_fixture_path("heads/others/eagle3"), &heads, &error);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_int_equal(counter.live, live);
    }
    counter.fail_at = 0;
    avo_heads_close(heads);
    assert_int_equal(counter.live, live);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_folders_are_refused), cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(folders_open), cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
