/* Requests with grammars through the scheduler: the bytes that avo_generate gives for them alone,
 * whatever runs beside them, and after preemption. One grammar is shared by many requests and by
 * two threads. AVO_TEST_THREADS */
#include "sched/serving.h"

#include <math.h>

static const char list[] =
    "root ::= word (\" \" word)* \".\"\nword ::= [a-z]{1,6} | [0-9]+ | \"(\" "
    "word \")\"";
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"array\","
    "\"items\":{\"type\":\"string\",\"maxLength\":4}}},\"required\":[\"a\"]}";

static void open_grammars(world *w, avo_grammar *grammars[4]) {
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    assert_ok_error(
        avo_grammar_open(w->model, AVO_GRAMMAR_GBNF, list, NULL, &grammars[0], &w->error),
        &w->error);
    assert_ok_error(
        avo_grammar_open(w->model, AVO_GRAMMAR_JSON_SCHEMA, schema, NULL, &grammars[1], &w->error),
        &w->error);
    options.trigger = "e";
    assert_ok_error(
        avo_grammar_open(w->model, AVO_GRAMMAR_JSON, NULL, &options, &grammars[2], &w->error),
        &w->error);
    grammars[3] = NULL;
}

static void same_in(const world_options *options, size_t count, uint64_t seed,
                    avo_scheduler_info *info) {
    world w;
    avo_grammar *grammars[4];
    world_open(&w, options);
    open_grammars(&w, grammars);
    exam e = exam_make(&w, count, seed);
    for (size_t i = 0; i < count; i++)
        e.q[i].grammar = grammars[i % 4];
    exam_submit(&w, &e); /* both engines draw from the same grammars at the same time */
    exam_alone(&w, &e);
    for (size_t i = 0; i < 3; i++)
        avo_grammar_close(grammars[i]); /* requests have references of their own */
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < count; i++)
        same_answer(&e.seen[i], &e.alone[i]);
    *info = info_of(&w);
    assert_int_equal(info->finished, count);
    exam_free(&e);
    world_close(&w);
}

static void the_same_bytes_as_alone(void **state) {
    (void)state;
    avo_scheduler_info info;
    world_options options = WORLD_OPTIONS;
    same_in(&options, FEWER(60), 71, &info);
}

static void after_preemption(void **state) {
    (void)state;
    uint64_t preemptions = 0;
    for (uint64_t seed = 80; seed < 82 || (preemptions == 0 && seed < 110); seed++) {
        avo_scheduler_info info;
        world_options options = WORLD_OPTIONS;
        options.sessions = 8;
        options.kv_tokens = 2 * TINY_CONTEXT;
        options.crowded = true;
        same_in(&options, FEWER(60), seed, &info);
        preemptions += info.preemptions;
    }
    assert_true(preemptions > 0);
}

/* What cannot go on fails alone and says why. */
static void failures_stay_alone(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_grammar *deep = NULL;
    assert_ok_error(
        avo_grammar_open(w.model, AVO_GRAMMAR_GBNF, "root ::= \"abc\"", NULL, &deep, &w.error),
        &w.error);
    exam e = exam_make(&w, 12, 5);
    avo_logit_bias bias[] = {{3 + 'a', -INFINITY}, {3 + 256 + 'a' - 32, -INFINITY}};
    e.q[4].grammar = deep;
    e.q[4].sampling.bias = bias;
    e.q[4].sampling.bias_count = 2;
    exam_submit(&w, &e);
    avo_grammar_close(deep);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        if (i == 4) {
            assert_int_equal(e.seen[i].error.status, AVO_ERROR_ARGUMENT);
            assert_non_null(strstr(e.seen[i].error.text, "that the grammar allows"));
            continue;
        }
        generate_alone(&w, &e.q[i], &e.alone[i]);
        same_answer(&e.seen[i], &e.alone[i]);
    }
    exam_free(&e);
    world_close(&w);
}

/* ---- Grammars that are opened when there is room ---- */

typedef struct opener {
    const avo_model *model;
    const char *text;
    atomic_uint calls;
} opener;

static avo_status open_late(void *context, avo_grammar **grammar, avo_error *error) {
    opener *opener = context;
    atomic_fetch_add(&opener->calls, 1);
    if (opener->text == NULL)
        return AVO_OK; /* which must not leave the answer free */
    return avo_grammar_open(opener->model, AVO_GRAMMAR_GBNF, opener->text, NULL, grammar, error);
}

static void opened_by_tokenizer_threads(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 8, 9);
    opener openers[3] = {{w.model, list, 0}, {w.model, "root ::= nothing", 0}, {w.model, NULL, 0}};
    avo_grammar *same = NULL;
    assert_ok(avo_grammar_open(w.model, AVO_GRAMMAR_GBNF, list, NULL, &same, &w.error));
    for (size_t i = 0; i < e.count; i++) {
        avo_request request = request_of(&e.q[i], &e.seen[i]);
        request.open_grammar = open_late;
        request.open_grammar_context = &openers[i == 3 ? 1 : i == 5 ? 2 : 0];
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                        &w.error);
        request.grammar = same;
        assert_int_equal(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                         AVO_ERROR_ARGUMENT);
        e.q[i].grammar = same;
        if (i != 3 && i != 5)
            generate_alone(&w, &e.q[i], &e.alone[i]);
    }
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        if (i == 3)
            assert_non_null(strstr(e.seen[i].error.text, "nothing"));
        else if (i == 5)
            assert_non_null(strstr(e.seen[i].error.text, "open_grammar returned no grammar"));
        else
            same_answer(&e.seen[i], &e.alone[i]);
    }
    assert_int_equal(atomic_load(&openers[0].calls), 6);
    assert_int_equal(atomic_load(&openers[1].calls), 1);
    avo_grammar_close(same);
    exam_free(&e);
    world_close(&w);
}

/* Where there is no room, nothing is compiled. */
static void a_full_scheduler_compiles_nothing(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.waiting_max = 2;
    options.scheduler.running_max = 1;
    world_open(&w, &options);
    exam e = exam_make(&w, 40, 10);
    opener opener = {w.model, list, 0};
    size_t taken = 0, refused = 0;
    for (size_t i = 0; i < e.count; i++) {
        avo_request request = request_of(&e.q[i], &e.seen[i]);
        request.open_grammar = open_late;
        request.open_grammar_context = &opener;
        avo_status status = avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error);
        taken += status == AVO_OK;
        refused += status == AVO_ERROR_FULL;
    }
    assert_int_equal(taken + refused, e.count);
    assert_true(refused > 0);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(atomic_load(&opener.calls), taken);
    exam_free(&e);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_as_alone),
        cmocka_unit_test(after_preemption),
        cmocka_unit_test(failures_stay_alone),
        cmocka_unit_test(opened_by_tokenizer_threads),
        cmocka_unit_test(a_full_scheduler_compiles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
