/* Names of modules: every wrapper that a causal model, a bare one or one with eyes puts in front,
 * back and forth; and what is no module of the architecture. */
#include "support/support.h"

#include "adapters/adapters_int.h"

#include <string.h>

static model_config config_of(source_architecture architecture) {
    return (model_config){.architecture = architecture, .layers = 12};
}

static uint32_t find(source_architecture architecture, const char *name, const char **wrapper) {
    model_config config = config_of(architecture);
    return module_find(&config, text_from(name), wrapper);
}

static void every_name_comes_back(void **state) {
    (void)state;
    static const char *const wrappers[] = {
        "model.",        "", "model.language_model.", "language_model.model.", "transformer.",
        "model.decoder."};
    for (int a = 0; a < ARCHITECTURE_COUNT; a++) {
        model_config config = config_of((source_architecture)a);
        for (size_t w = 0; w < sizeof(wrappers) / sizeof(wrappers[0]); w++)
            for (uint32_t i = 0; i < module_count(&config); i++) {
                char name[ADAPTER_NAME_MAX];
                const char *wrapper = wrappers[w];
                if (!module_name(&config, wrapper, i, name, sizeof(name)))
                    continue;
                assert_int_equal(module_find(&config, text_from(name), &wrapper), i);
            }
    }
}

typedef struct name_case {
    source_architecture architecture;
    const char *name, *wrapper; /* NULL: not found */
} name_case;

static void wrappers_are_found_and_kept(void **state) {
    (void)state;
    static const name_case cases[] = {
        {ARCHITECTURE_LLAMA, "model.layers.11.self_attn.q_proj", "model."},
        {ARCHITECTURE_LLAMA, "layers.0.mlp.up_proj", ""},
        {ARCHITECTURE_LLAMA, "model.layers.12.self_attn.q_proj", NULL},
        {ARCHITECTURE_LLAMA, "model.layers.00.self_attn.q_proj", NULL},
        {ARCHITECTURE_LLAMA, "model.layers.-1.self_attn.q_proj", NULL},
        {ARCHITECTURE_LLAMA, "model.layers.1.self_attn.qkv_proj", NULL},
        {ARCHITECTURE_LLAMA, "model.layers.1.self_attn.q_norm", NULL},
        {ARCHITECTURE_LLAMA, "transformer.layers.1.self_attn.q_proj", NULL},
        {ARCHITECTURE_LLAMA, "model.model.layers.1.self_attn.q_proj", NULL},
        {ARCHITECTURE_LLAMA, "language_model.model.layers.1.self_attn.q_proj", NULL},
        {ARCHITECTURE_QWEN3, "model.layers.1.self_attn.q_norm", "model."},
        {ARCHITECTURE_GEMMA3, "language_model.model.layers.1.self_attn.q_proj",
         "language_model.model."},
        {ARCHITECTURE_GEMMA3, "model.language_model.layers.1.mlp.down_proj",
         "model.language_model."},
        {ARCHITECTURE_GEMMA3, "model.vision_tower.layers.1.mlp.fc1", NULL},
        {ARCHITECTURE_PHI3, "model.layers.1.self_attn.qkv_proj", "model."},
        {ARCHITECTURE_PHI3, "model.layers.1.self_attn.q_proj", NULL},
        {ARCHITECTURE_GPT2, "transformer.h.3.attn.c_attn", "transformer."},
        {ARCHITECTURE_GPT2, "h.3.mlp.c_proj", ""},
        {ARCHITECTURE_GPT2, "transformer.wpe", NULL},
        {ARCHITECTURE_OPT, "model.decoder.layers.2.fc1", "model.decoder."},
        {ARCHITECTURE_OPT, "model.decoder.project_in", NULL},
        {ARCHITECTURE_LLAMA, "", NULL},
        {ARCHITECTURE_LLAMA, "model.layers.", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *wrapper = NULL;
        uint32_t found = find(cases[i].architecture, cases[i].name, &wrapper);
        if ((found == UINT32_MAX) != (cases[i].wrapper == NULL))
            fail_msg("%s: %u", cases[i].name, found);
        if (cases[i].wrapper != NULL)
            assert_string_equal(wrapper, cases[i].wrapper);
    }
    /* A file that mixes wrappers does not go on. */
    const char *wrapper = NULL;
    assert_int_not_equal(find(ARCHITECTURE_LLAMA, "model.layers.0.mlp.up_proj", &wrapper),
                         UINT32_MAX);
    assert_int_equal(find(ARCHITECTURE_LLAMA, "layers.0.mlp.up_proj", &wrapper), UINT32_MAX);
    /* The head says nothing about the wrapper. */
    wrapper = NULL;
    assert_int_not_equal(find(ARCHITECTURE_LLAMA, "lm_head", &wrapper), UINT32_MAX);
    assert_null(wrapper);
}

static void names_of_gguf(void **state) {
    (void)state;
    model_config llama = config_of(ARCHITECTURE_LLAMA), phi = config_of(ARCHITECTURE_PHI3);
    static const char *const good[] = {"blk.0.attn_q", "blk.11.ffn_down", "token_embd", "output"};
    static const char *const wrong[] = {"blk.12.attn_q", "blk.0.attn_qkv", "blk.0",
                                        "blk..attn_q",   "output_norm",    "blk.0.attn_norm"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_not_equal(module_find_gguf(&llama, text_from(good[i])), UINT32_MAX);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(module_find_gguf(&llama, text_from(wrong[i])), UINT32_MAX);
    assert_int_equal(module_find_gguf(&phi, TEXT_LITERAL("blk.2.ffn_up")),
                     module_index(&phi, 2, MODULE_GATE_UP));
    assert_int_equal(module_find_gguf(&phi, TEXT_LITERAL("blk.2.attn_q")), UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_comes_back),
        cmocka_unit_test(wrappers_are_found_and_kept),
        cmocka_unit_test(names_of_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
