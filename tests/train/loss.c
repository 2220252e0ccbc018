/* Losses and their derivatives against PyTorch's numbers (tools/oracle/train_optimizer.py). */
#include "support/support.h"

#include "support/expected.h"
#include "train/loss.h"

#include <math.h>

static void close_to(const char *what, double found, double expected) {
    double bound = 1e-8 * (fabs(expected) > 1e-3 ? fabs(expected) : 1e-3);
    if (!(fabs(found - expected) <= bound))
        fail_msg("%s: %.12g, not %.12g", what, found, expected);
}

static void dpo(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        FILE *file = fopen(test_fixture_path("train/loss.txt"), "r");
        assert_non_null(file);
        double v[EXPECTED_MAX];
        size_t count, cases = 0;
        while (expected_next(file, kind == 0 ? "dpo-sigmoid" : "dpo-ipo", v, &count)) {
            assert_int_equal(count, 8);
            dpo_options options = {
                .kind = kind == 0 ? DPO_SIGMOID : DPO_IPO, .beta = v[0], .smoothing = v[1]};
            dpo_pair pair = {v[2], v[3], v[4], v[5]};
            dpo_result result = loss_dpo(&options, &pair);
            close_to("loss", result.loss, v[6]);
            close_to("derivative", result.by_chosen, v[7]);
            close_to("reward", result.reward_chosen, v[0] * (v[2] - v[4]));
            close_to("reward", result.reward_rejected, v[0] * (v[3] - v[5]));
            cases++;
        }
        assert_int_equal(cases, kind == 0 ? 8 : 4);
        (void)fclose(file);
    }
}

static void policy_tokens(void **state) {
    (void)state;
    FILE *file = fopen(test_fixture_path("train/loss.txt"), "r");
    assert_non_null(file);
    double v[EXPECTED_MAX];
    size_t count, cases = 0, clipped = 0;
    while (expected_next(file, "policy", v, &count)) {
        assert_int_equal(count, 8);
        policy_options options = {
            .kind = POLICY_GRPO, .epsilon_low = 0.2, .epsilon_high = 0.28, .beta = v[4]};
        policy_result result = policy_token(&options, v[0], v[1], v[2], v[3]);
        close_to("loss", result.loss, v[5]);
        close_to("derivative", result.gradient, v[6]);
        close_to("kl", result.kl, v[4] > 0.0 ? v[7] : 0.0);
        clipped += result.low + result.high;
        cases++;
    }
    assert_int_equal(cases, 16);
    assert_int_equal(clipped, 4);
    (void)fclose(file);
}

static void advantages(void **state) {
    (void)state;
    static const struct {
        policy_kind kind;
        bool scale;
        const char *line;
    } cases[] = {{POLICY_GRPO, true, "grpo"},          {POLICY_DAPO, true, "grpo"},
                 {POLICY_GRPO, false, "dr_grpo"},      {POLICY_DR_GRPO, true, "dr_grpo"},
                 {POLICY_DAPO, false, "dr_grpo"},      {POLICY_RLOO, false, "rloo"},
                 {POLICY_REINFORCE, true, "reinforce"}};
    const char *path = test_fixture_path("train/loss.txt");
    double rewards[EXPECTED_MAX], expected[EXPECTED_MAX], found[15], spread[3];
    assert_int_equal(expected_read(path, "rewards", rewards), 15);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        policy_options options = {.kind = cases[c].kind, .scale = cases[c].scale};
        assert_int_equal(expected_read(path, cases[c].line, expected), 15);
        policy_advantages(&options, rewards, 3, 5, found, spread);
        for (size_t i = 0; i < 15; i++)
            close_to(cases[c].line, found[i], expected[i]);
    }
    assert_int_equal(expected_read(path, "spread", expected), 3);
    for (size_t i = 0; i < 3; i++)
        close_to("spread", spread[i], expected[i]);
    policy_options one = {.kind = POLICY_RLOO};
    policy_advantages(&one, rewards, 15, 1, found, NULL); /* groups of one teach nothing */
    for (size_t i = 0; i < 15; i++)
        close_to("alone", found[i], 0.0);
}

static void token_weights(void **state) {
    (void)state;
    close_to("grpo", policy_token_weight(POLICY_GRPO, 4, 100, 20, 64), 1.0 / 80);
    close_to("dr_grpo", policy_token_weight(POLICY_DR_GRPO, 4, 100, 20, 64), 1.0 / 256);
    close_to("dapo", policy_token_weight(POLICY_DAPO, 4, 100, 20, 64), 1.0 / 100);
    close_to("rloo", policy_token_weight(POLICY_RLOO, 4, 100, 20, 64), 1.0 / 4);
    close_to("reinforce", policy_token_weight(POLICY_REINFORCE, 4, 100, 20, 64), 1.0 / 100);
    assert_string_equal(policy_name(POLICY_DR_GRPO), "dr_grpo");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dpo),
        cmocka_unit_test(policy_tokens),
        cmocka_unit_test(advantages),
        cmocka_unit_test(token_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
