/* What errors of each kind of matrix cost. (AVO_TEST_THREADS) */
#include "support/support.h"

#include "base/file.h"
#include "eval/sensitivity.h"

#include <stdio.h>
#include <string.h>

static const char *fixture(const char *name) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s", name);
    return test_fixture_path(relative);
}

static void kinds_are_those_that_can_be_named(void **state) {
    (void)state;
    static const struct {
        const char *model;
        pack_look_up look_up;
        const char *kinds;
    } cases[] = {
        {"llama2", PACK_LOOK_UP_AUTO,
         "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down output "},
        {"smollm2", PACK_LOOK_UP_AUTO, /* tied: there is no output */
         "token_embd attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down "},
        {"smollm2", PACK_LOOK_UP_F16, /* nobody chooses the table's type by name */
         "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down output "},
        {"gpt2", PACK_LOOK_UP_AUTO, "token_embd attn_q attn_k attn_v attn_output ffn_up ffn_down "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pack_options options = {.type = PACK_F16, .look_up = cases[i].look_up};
        pack_kinds kinds;
        avo_error error;
        assert_ok_error(pack_list_kinds(fixture(cases[i].model), &options, &kinds, &error), &error);
        char text[512] = "";
        for (uint32_t k = 0; k < kinds.count; k++)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", kinds.name[k]);
        assert_string_equal(text, cases[i].kinds);
    }
    pack_kinds kinds;
    avo_error error;
    assert_refused(pack_list_kinds("/no/such/model", &(pack_options){0}, &kinds, &error),
                   AVO_ERROR_NOT_FOUND, &error, "/no/such/model");
}

static void every_kind_and_band_is_measured(void **state) {
    (void)state;
    char path[4200], temporary[4400];
    snprintf(path, sizeof(path), "%s", fixture("smollm2"));
    snprintf(temporary, sizeof(temporary), "%s/trial.avo", test_scratch_folder());
    avo_model *model = NULL;
    avo_error error = {0};
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    int32_t tokens[40];
    for (int32_t i = 0; i < 40; i++)
        tokens[i] = i * 7 % (int32_t)info.vocabulary;
    pack_options options = {.threads = 1, .effort = PACK_EFFORT_SEARCH};
    pack_sensitivity found;
    assert_ok_error(
        eval_sensitivity(path, model, tokens, 40, -1, temporary, &options, &found, &error), &error);
    assert_int_equal(found.kinds, 8); /* no output: the head is the table */
    for (uint32_t i = 0; i < found.kinds; i++)
        assert_true(found.kind[i].weight > 0);
    assert_int_equal(found.bands, info.layers < PACK_BANDS_MAX ? info.layers : PACK_BANDS_MAX);
    double sum = 0;
    for (uint32_t i = 0; i < found.bands; i++)
        sum += found.band[i];
    assert_true(sum > found.bands - 1e-6 && sum < found.bands + 1e-6);
    assert_int_equal(file_kind_of(temporary), FILE_MISSING);
    /* failures are those of their cause, and leave nothing */
    assert_refused(
        eval_sensitivity(path, model, tokens, 7, -1, temporary, &options, &found, &error),
        AVO_ERROR_ARGUMENT, &error, "too short");
    options.effort = PACK_EFFORT_FEEDBACK;
    options.calibration = "/no/such/file.cal";
    assert_refused(
        eval_sensitivity(path, model, tokens, 40, -1, temporary, &options, &found, &error),
        AVO_ERROR_NOT_FOUND, &error, "/no/such/file.cal");
    assert_int_equal(file_kind_of(temporary), FILE_MISSING);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_those_that_can_be_named),
        cmocka_unit_test(every_kind_and_band_is_measured),
    };
    return cmocka_run_group_tests_name("eval/sensitivity", tests, NULL, NULL);
}
