/* formats/names: Hugging Face names to ours. */
#include "support/support.h"

#include "formats/names.h"

#include <string.h>

static void maps_known_names(void **state) {
    (void)state;
    static const struct {
        source_architecture architecture;
        const char *from;
        const char *to;
    } cases[] = {
        {ARCHITECTURE_LLAMA, "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
        {ARCHITECTURE_LLAMA, "model.layers.31.post_attention_layernorm.weight",
         "blk.31.ffn_norm.weight"},
        {ARCHITECTURE_LLAMA, "model.norm.weight", "output_norm.weight"},
        {ARCHITECTURE_LLAMA, "lm_head.weight", "output.weight"},
        {ARCHITECTURE_GEMMA3, "model.layers.2.post_attention_layernorm.weight",
         "blk.2.post_attention_norm.weight"},
        {ARCHITECTURE_GEMMA3, "language_model.model.layers.2.mlp.up_proj.weight",
         "blk.2.ffn_up.weight"},
        {ARCHITECTURE_GEMMA3, "model.language_model.embed_tokens.weight", "token_embd.weight"},
        {ARCHITECTURE_GPT2, "transformer.h.3.attn.c_attn.bias", "blk.3.attn_qkv.bias"},
        {ARCHITECTURE_GPT2, "h.3.mlp.c_fc.weight", "blk.3.ffn_up.weight"},
        {ARCHITECTURE_OPT, "model.decoder.final_layer_norm.bias", "output_norm.bias"},
        {ARCHITECTURE_OPT, "model.decoder.layers.1.final_layer_norm.bias", "blk.1.ffn_norm.bias"},
        {ARCHITECTURE_PHI3, "model.layers.0.mlp.gate_up_proj.weight", "blk.0.ffn_up.weight"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[SOURCE_NAME_MAX];
        assert_int_equal(
            names_canonical(cases[i].architecture, text_from(cases[i].from), name, sizeof(name)),
            NAME_KNOWN);
        assert_string_equal(name, cases[i].to);
    }
}

static void refuses_the_rest(void **state) {
    (void)state;
    static const char *const unknown[] = {"",
                                          "model.layers.0",
                                          "model.layers.x.mlp.up_proj.weight",
                                          "model.layers.00.mlp.up_proj.weight",
                                          "model.layers.99999999.mlp.up_proj.weight",
                                          "model.layers.0.mlp.other.weight",
                                          "vision_tower.embed.weight"};
    char name[SOURCE_NAME_MAX];
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_int_equal(
            names_canonical(ARCHITECTURE_LLAMA, text_from(unknown[i]), name, sizeof(name)),
            NAME_UNKNOWN);
    assert_int_equal(names_canonical(ARCHITECTURE_LLAMA,
                                     text_from("model.layers.0.self_attn.rotary_emb.inv_freq"),
                                     name, sizeof(name)),
                     NAME_IGNORED);
    assert_int_equal(names_canonical(ARCHITECTURE_GEMMA3,
                                     text_from("model.vision_tower.vision_model.x.weight"), name,
                                     sizeof(name)),
                     NAME_IGNORED);
    char small[8];
    assert_int_equal(
        names_canonical(ARCHITECTURE_LLAMA, text_from("model.norm.weight"), small, sizeof(small)),
        NAME_UNKNOWN);
}

static void test_layers_are_split(void **state) {
    (void)state;
    static const char *const others[] = {
        "",         "blk.",          "blk.1",   "blk..x",       "blk.01.x",
        "blk.-1.x", "blk.1234567.x", "blk 1.x", "output.weight"};
    uint32_t layer = 99;
    text_view rest;
    assert_true(names_split_layer(TEXT_LITERAL("blk.0.attn_q.weight"), &layer, &rest));
    assert_int_equal(layer, 0);
    assert_true(text_is(rest, "attn_q.weight"));
    assert_true(names_split_layer(TEXT_LITERAL("blk.999999."), &layer, &rest));
    assert_int_equal(layer, 999999);
    assert_int_equal(rest.size, 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(names_split_layer(text_from(others[i]), &layer, &rest));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_are_split),
        cmocka_unit_test(maps_known_names),
        cmocka_unit_test(refuses_the_rest),
    };
    return cmocka_run_group_tests_name("formats/names", tests, NULL, NULL);
}
