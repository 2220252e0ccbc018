/* adapters/peft_match: plain names mean what they mean as expressions, and what a configuration may
 * cost is bounded for the file, not for each of its patterns. */
#include "support/support.h"

#include "adapters/adapters_int.h"
#include "base/buffer.h"
#include "base/random.h"

#include <stdio.h>
#include <string.h>

/* Opens a matcher of a configuration with the given members and asks it for every module. */
static avo_status ask_all(const char *members, const char *const *modules, size_t count,
                          peft_match *matches, avo_error *error) {
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_ok(buffer_append_text(&text, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,"
                                        "\"target_modules\":\".*_proj\","));
    assert_ok(buffer_append_text(&text, members));
    assert_ok(buffer_append_text(&text, "}"));
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    peft_config config;
    peft_matcher *matcher = NULL;
    bytes_view bytes = {(const uint8_t *)text.data, text.size};
    avo_status status = peft_config_read(&arena, bytes, "adapter_config.json", &config, error);
    if (status == AVO_OK)
        status = peft_matcher_open(&config, NULL, &matcher, error);
    for (size_t i = 0; i < count && status == AVO_OK; i++) {
        text_view name = {modules[i], strlen(modules[i])};
        status = peft_matcher_ask(matcher, name, true, false, &matches[i], error);
    }
    peft_matcher_close(matcher);
    arena_free(&arena);
    buffer_free(&text);
    return status;
}

static const char *const modules[] = {"model.layers.0.self_attn.q_proj",
                                      "model.layers.1.self_attn.q_proj",
                                      "model.layers.10.self_attn.q_proj",
                                      "model.layers.1.self_attn.kq_proj",
                                      "model.layers.1.mlp.up_proj",
                                      "q_proj",
                                      "x.q_proj",
                                      "xq_proj",
                                      "model.q_proj.up_proj"};
#define MODULES (sizeof(modules) / sizeof(modules[0]))

/* Each plain key beside the same one in brackets, which are an expression. */
static void plain_names_mean_what_expressions_do(void **state) {
    (void)state;
    static const char *const keys[] = {"q_proj",
                                       "self_attn.q_proj",
                                       "layers.1.self_attn.q_proj",
                                       "1.self_attn.q_proj",
                                       "model.layers.1.self_attn.q_proj",
                                       "xmodel.layers.1.self_attn.q_proj",
                                       ".q_proj",
                                       "..q_proj",
                                       "q.proj",
                                       "proj",
                                       "layers.1",
                                       "self_attn",
                                       "model",
                                       "up_proj",
                                       ".",
                                       "......",
                                       "q-proj"};
    static const char *const forms[][2] = {
        {"\"rank_pattern\":{\"%s\":2}", "\"rank_pattern\":{\"(?:%s)\":2}"},
        {"\"alpha_pattern\":{\"%s\":5}", "\"alpha_pattern\":{\"(?:%s)\":5}"},
        {"\"modules_to_save\":[\"%s\"]", "\"modules_to_save\":[\"(?:%s)\"]"}};
    uint32_t hits = 0;
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
        for (size_t f = 0; f < 3; f++) {
            peft_match match[2][MODULES];
            avo_error error = {0};
            for (int i = 0; i < 2; i++) {
                char members[256];
                snprintf(members, sizeof(members), forms[f][i], keys[k]);
                assert_ok_error(ask_all(members, modules, MODULES, match[i], &error), &error);
            }
            for (size_t i = 0; i < MODULES; i++) {
                if (match[0][i].targeted != match[1][i].targeted ||
                    match[0][i].rank != match[1][i].rank || match[0][i].alpha != match[1][i].alpha)
                    fail_msg("%s of %s", keys[k], modules[i]);
                hits += match[0][i].rank == 2 || match[0][i].alpha == 5.0 || !match[0][i].targeted;
            }
        }
    assert_true(hits > 20);
}

static void repeat(buffer *text, const char *before, const char *form, int count,
                   const char *behind) {
    char each[256];
    assert_ok(buffer_append_text(text, before));
    for (int i = 0; i < count; i++) {
        snprintf(each, sizeof(each), form, i > 0 ? "," : "", i);
        assert_ok(buffer_append_text(text, each));
    }
    assert_ok(buffer_append_text(text, behind));
    assert_ok(buffer_terminate(text));
}

/* Hundreds of expressions, or a few that backtrack: refused, and soon. Thousands of names are fine.
 */
static void a_file_has_one_limit(void **state) {
    (void)state;
    static const struct {
        const char *before, *form, *behind;
        int count;
        avo_status status;
        const char *says;
    } cases[] = {
        {"\"rank_pattern\":{", "%s\"(?#%d).*.*.?.?.*[@#]\":8", "}", 500, AVO_ERROR_LIMIT,
         "more than 64 regular expressions"},
        {"\"alpha_pattern\":{", "%s\"(?#%d).*.*.?.?.*[@#]\":8", "}", 65, AVO_ERROR_LIMIT,
         "more than 64 regular expressions"},
        {"\"modules_to_save\":[", "%s\"x%d[@#]\"", "]", 65, AVO_ERROR_LIMIT,
         "more than 64 regular expressions"},
        {"\"rank_pattern\":{", "%s\"(?#%d).*.*.?.?.*[@#]\":8", "}", 60, AVO_ERROR_LIMIT,
         "take too long: more than 10000000 steps"},
        {"\"modules_to_save\":[", "%s\"m%d\"", "]", 4097, AVO_ERROR_LIMIT,
         "modules_to_save has 4097 entries, must have at most 4096"},
        {"\"modules_to_save\":[", "%s\"m%d\"", "]", 4096, AVO_OK, ""},
        {"\"rank_pattern\":{", "%s\"layers.%d.self_attn.q_proj\":8", "}", 1024, AVO_OK, ""},
    };
    static const char *many[900];
    static peft_match matches[900];
    for (size_t i = 0; i < 900; i++)
        many[i] = modules[i % 5];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buffer text;
        avo_error error = {0};
        buffer_init(&text, NULL, SIZE_MAX);
        repeat(&text, cases[i].before, cases[i].form, cases[i].count, cases[i].behind);
        avo_status status = ask_all(text.data, many, 900, matches, &error);
        if (status != cases[i].status || strstr(error.text, cases[i].says) == NULL)
            fail_msg("case %zu: %d, %s", i, status, error.text);
        buffer_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_names_mean_what_expressions_do),
                                       cmocka_unit_test(a_file_has_one_limit)};
    return cmocka_run_group_tests_name("adapters/peft_match", tests, NULL, NULL);
}
