/* bench/speculate_clients: many clients get the answers that each gets alone, and an interruption
 * leaves nothing in flight. AVO_TEST_THREADS */
#include "support/support.h"

#include "bench/speculate.h"
#include "support/tiny_model.h"

static const char prompts_text[] = "{\"prompt\": \"abcabcabcabc\", \"category\": \"a\"}\n"
                                   "{\"prompt\": \"the a the a the a\", \"category\": \"b\"}\n"
                                   "once once once\n"
                                   "a b c a b c a b c\n"
                                   "tttttttt\n";

typedef struct place {
    avo_model *model;
    bench_prompts prompts;
    lab_config config[LAB_CONFIGS_MAX];
    lab_options options;
    lab_result result;
    avo_error error;
    uint32_t calls, calls_max; /* of progress */
} place;

static place *current; /* progress has no context of its own here */

static bool count_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context, (void)what;
    assert_true(done <= total);
    return ++current->calls < current->calls_max;
}

static void open(place *p, uint32_t clients) {
    uint32_t configs;
    *p = (place){.calls_max = UINT32_MAX};
    current = p;
    assert_ok_error(
        avo_model_open(tiny_model_write(test_scratch_folder(), 3), NULL, &p->model, &p->error),
        &p->error);
    assert_ok_error(bench_prompts_text((text_view){prompts_text, sizeof(prompts_text) - 1}, "here",
                                       0, &p->prompts, &p->error),
                    &p->error);
    assert_ok_error(
        lab_configs("0,3", "suffix+corpus", "cost,fixed", "exact", p->config, &configs, &p->error),
        &p->error);
    p->options = (lab_options){.config = p->config,
                               .configs = configs,
                               .prompts = &p->prompts,
                               .iterations = 2,
                               .new_tokens = 20,
                               .temperature = 0.5f,
                               .seed = 5,
                               .ignore_end = true,
                               .raw = true,
                               .clients = clients,
                               .engine = AVO_ENGINE_OPTIONS_INIT,
                               .progress = count_progress};
    p->options.engine.threads = 1;
}

static void close(place *p) {
    bench_prompts_free(&p->prompts);
    avo_model_close(p->model);
}

static void every_client_gets_its_own_answer(void **state) {
    (void)state;
    place p;
    for (uint32_t clients = 0; clients <= 8; clients += 4) {
        open(&p, clients);
        assert_ok_error(lab_run(p.model, &p.options, &p.result, &p.error), &p.error);
        assert_int_equal(p.result.different, 0);
        assert_int_equal(p.result.categories, clients > 0 ? 1 : 3);
        for (uint32_t config = 0; config < p.options.configs; config++)
            for (uint32_t i = 0; i < p.options.iterations; i++) {
                lab_sample sum = lab_sample_of(&p.options, &p.result, config, LAB_ALL, i);
                assert_int_equal(sum.answers, 5);
                assert_int_equal(sum.equal, 5);
                /* Alone, the first token of each answer is not counted. */
                assert_int_equal(sum.tokens, 5 * (clients > 0 ? 20 : 19));
                assert_true(sum.seconds > 0 && sum.accepted <= sum.drafted);
                assert_true(config > 0 || sum.drafted == 0);
                assert_true(config < 2 || sum.drafted > 0); /* fixed */
            }
        lab_free(&p.result);
        close(&p);
    }
}

static void an_interruption_waits_for_what_is_in_flight(void **state) {
    (void)state;
    place p;
    for (uint32_t i = 0; i < 3; i++) {
        open(&p, 3);
        assert_ok_error(lab_run(p.model, &p.options, &p.result, &p.error), &p.error);
        lab_free(&p.result);
        /* A few requests before the end of the rounds. */
        assert_true(p.calls > 20);
        p.calls_max = p.calls - 2 - i * 7;
        p.calls = 0;
        assert_refused(lab_run(p.model, &p.options, &p.result, &p.error), AVO_ERROR_CANCELLED,
                       &p.error, "interrupted");
        close(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_client_gets_its_own_answer),
        cmocka_unit_test(an_interruption_waits_for_what_is_in_flight),
    };
    return cmocka_run_group_tests_name("bench/speculate_clients", tests, NULL, NULL);
}
