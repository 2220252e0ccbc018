/* Behind a step. AVO_TEST_THREADS
 * Logprobs of the tokens that follow, and hidden states behind the last norm: against transformers
 * on every tiny model with every instruction set; the same bits in any chunks, company and number
 * of threads; and what is refused. */
#include "support/support.h"

#include "support/adapters.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND 2e-5 /* of the range, as logits are held to; a logprob is a difference of two */
#define TOP   4

/* ---- Against transformers ---- */

typedef struct scores {
    float *logprob, *hidden; /* [positions − 1], [positions][width] */
    avo_logprob *top;        /* [positions − 1][TOP] */
} scores;

static scores scores_take(uint32_t positions, uint32_t width) {
    scores s = {calloc(positions, sizeof(float)), calloc((size_t)positions * width, sizeof(float)),
                calloc((size_t)positions * TOP, sizeof(avo_logprob))};
    assert_true(s.logprob != NULL && s.hidden != NULL && s.top != NULL);
    return s;
}

static void scores_give(scores *s) {
    free(s->logprob);
    free(s->hidden);
    free(s->top);
}

static uint32_t width_of(const avo_model *model) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    return info.width;
}

/* Rows [at, at + count) of `ids`, which the step just done has computed from row `from` on. */
static void look(avo_batch *batch, avo_session *session, const int32_t *ids, uint32_t positions,
                 uint32_t at, uint32_t from, uint32_t count, uint32_t width, scores *s) {
    const float *hidden = avo_batch_hidden(batch, session, from, count);
    assert_non_null(hidden);
    memcpy(s->hidden + (size_t)at * width, hidden, (size_t)count * width * sizeof(float));
    uint32_t scored = at + count < positions ? count : count - 1;
    if (scored > 0 && avo_batch_score(batch, session, from, scored, ids + at + 1, TOP,
                                      s->logprob + at, s->top + (size_t)at * TOP) != AVO_OK)
        fail_msg("score: %s", avo_batch_error(batch)->text);
}

static void compute(const fixture_engine *opened, const int32_t *ids, uint32_t positions,
                    scores *s) {
    avo_session *session;
    avo_batch *batch;
    assert_ok(avo_session_open(opened->engine, NULL, &session, NULL));
    assert_ok(avo_batch_open(opened->engine, &batch, NULL));
    assert_ok(avo_batch_add_scored(batch, session, ids, positions, 0));
    assert_ok(avo_step(opened->engine, batch));
    look(batch, session, ids, positions, 0, 0, positions, width_of(opened->model), s);
    avo_batch_close(batch);
    avo_session_close(session);
}

static double log_sum_of(const float *logits, uint32_t count) {
    double highest = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        highest = fmax(highest, (double)logits[i]);
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - highest);
    return highest + log(sum);
}

/* Largest difference of logprobs from the oracle's log-softmax, as a part of the logits' range. */
static double logprob_difference(const fixture *f, const scores *s) {
    double largest = 0.0;
    for (uint32_t i = 0; i + 1 < f->positions; i++) {
        const float *row = f->logits + (size_t)i * f->vocabulary;
        double sum = log_sum_of(row, f->vocabulary);
        double d = fabs((double)s->logprob[i] - ((double)row[f->ids[i + 1]] - sum));
        largest = isnan(d) ? INFINITY : fmax(largest, d);
        for (uint32_t n = 0; n < TOP; n++) {
            const avo_logprob *top = &s->top[i * TOP + n];
            d = fabs((double)top->logprob - ((double)row[top->token] - sum));
            largest = isnan(d) ? INFINITY : fmax(largest, d);
            assert_true(n == 0 || top[-1].logprob >= top->logprob);
        }
        for (uint32_t t = 0; t < f->vocabulary; t++) /* nobody better was left out */
            if ((double)row[t] - sum > (double)s->top[i * TOP + TOP - 1].logprob + 1e-3) {
                bool listed = false;
                for (uint32_t n = 0; n < TOP; n++)
                    listed = listed || s->top[i * TOP + n].token == (int32_t)t;
                assert_true(listed);
            }
    }
    return largest / (double)f->range;
}

static double hidden_difference(const float *a, const float *b, size_t count) {
    double largest = 0.0, low = (double)b[0], high = low;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        largest = isnan(d) ? INFINITY : fmax(largest, d);
        low = fmin(low, (double)b[i]);
        high = fmax(high, (double)b[i]);
    }
    assert_true(high > low);
    return largest / (high - low);
}

static void as_transformers(void **state) {
    const fixture_name *which = *state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    fixture f;
    fixture_open(&f, which->name);
    char relative[256];
    uint32_t shape[2];
    file_map map;
    snprintf(relative, sizeof(relative), "models/%s/hidden.npy", which->name);
    const float *hidden = fixture_npy(&map, relative, "'<f4'", sizeof(float), shape);
    assert_int_equal(shape[0], f.positions);
    snprintf(relative, sizeof(relative), "models/%s", which->name);
    /* Products with 4 bits round their input, except in the reference. */
    size_t count = strstr(which->name, "mxfp4") != NULL ? 1 : isas.count;
    for (size_t i = 0; i < count; i++) {
        fixture_engine opened;
        fixture_engine_open(&opened, test_fixture_path(relative), isas.name[i], f.positions, 1, 2);
        assert_int_equal(shape[1], width_of(opened.model));
        scores s = scores_take(f.positions, shape[1]);
        compute(&opened, f.ids, f.positions, &s);
        double scored = logprob_difference(&f, &s);
        double seen = hidden_difference(s.hidden, hidden, (size_t)f.positions * shape[1]);
        print_message("  %-14s %-7s logprobs %.1e, hidden %.1e\n", f.name, isas.name[i], scored,
                      seen);
        assert_true(scored <= 2 * BOUND);
        assert_true(seen <= BOUND);
        scores_give(&s);
        fixture_engine_close(&opened);
    }
    file_map_close(&map);
    fixture_close(&f);
}

/* ---- The same bits ---- */

/* More positions than the head looks at together. */
#define LONG 150

typedef struct bench {
    avo_model *model;
    avo_engine *engine;
    int32_t ids[2][LONG];
} bench;

static void bench_open(bench *b, const char *isa, uint32_t threads, uint32_t logits) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = test_device(isa);
    options.threads = threads;
    options.context_max = TINY_CONTEXT;
    options.sessions_max = 2;
    options.logits_max = logits;
    assert_ok(avo_model_open(tiny_model_write(test_scratch_folder(), 1), NULL, &b->model, NULL));
    assert_ok(avo_engine_open(b->model, &options, &b->engine, NULL));
    for (uint32_t n = 0; n < 2; n++)
        for (uint32_t i = 0; i < LONG; i++)
            b->ids[n][i] = (int32_t)(3 + (i * 17 + n * 5 + i * i) % (TINY_VOCABULARY - 3));
}

static void bench_close(bench *b) {
    avo_engine_close(b->engine);
    avo_model_close(b->model);
}

/* Timeline 0 in chunks of `chunk`, with another beside it that asks for logits of its own. */
static void compute_in(bench *b, uint32_t chunk, bool company, avo_adapter *adapter, scores *s) {
    avo_session *session[2];
    avo_batch *batch;
    avo_adapter_use use = {adapter, 0.5f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = adapter != NULL;
    assert_ok(avo_session_open(b->engine, &options, &session[0], NULL));
    assert_ok(avo_session_open(b->engine, NULL, &session[1], NULL));
    assert_ok(avo_batch_open(b->engine, &batch, NULL));
    for (uint32_t at = 0; at < LONG; at += chunk) {
        uint32_t count = at + chunk < LONG ? chunk : LONG - at;
        avo_batch_clear(batch);
        if (company)
            assert_ok(avo_batch_add(batch, session[1], b->ids[1] + at, count));
        assert_ok(avo_batch_add_scored(batch, session[0], b->ids[0] + at, count, 0));
        assert_ok(avo_step(b->engine, batch));
        assert_true(!company || avo_batch_logits(batch, session[1], 0) != NULL);
        look(batch, session[0], b->ids[0], LONG, at, 0, count, width_of(b->model), s);
        /* Scoring has taken the place of the step's own logits. */
        assert_true(count == 1 || avo_batch_logits(batch, session[1], 0) == NULL);
    }
    avo_batch_close(batch);
    avo_session_close(session[0]);
    avo_session_close(session[1]);
}

static void same_scores(const scores *a, const scores *b, uint32_t width) {
    assert_memory_equal(a->logprob, b->logprob, (LONG - 1) * sizeof(float));
    assert_memory_equal(a->hidden, b->hidden, (size_t)LONG * width * sizeof(float));
    assert_memory_equal(a->top, b->top, (size_t)(LONG - 1) * TOP * sizeof(avo_logprob));
}

static void whatever_chunks_company_and_threads(void **state) {
    (void)state;
    static const uint32_t chunks[] = {LONG, 1, 7, 64, 65};
    fixture_isas isas;
    fixture_isas_find(&isas);
    scores fast = {0}; /* all but the reference give the same bits */
    for (size_t i = 0; i < isas.count; i++) {
        scores first = {0};
        for (uint32_t c = 0; c < 5; c++) {
            bench b;
            bench_open(&b, isas.name[i], 1 + c % 3, c < 3 ? 2 : 100);
            uint32_t width = width_of(b.model);
            scores s = scores_take(LONG, width);
            compute_in(&b, chunks[c], c % 2 == 1, NULL, &s);
            if (c == 0)
                first = s;
            else
                same_scores(&s, &first, width);
            if (i == 1 && c == 0) {
                fast = scores_take(LONG, width);
                compute_in(&b, LONG, true, NULL, &fast);
            }
            if (i >= 1 && c == 0)
                same_scores(&s, &fast, width);
            if (c > 0)
                scores_give(&s);
            bench_close(&b);
        }
        scores_give(&first);
    }
    scores_give(&fast);
}

/* Trained norms and heads, too: rows of one session under an adapter, of the other without. */
static void under_adapters(void **state) {
    (void)state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++) {
        bench b;
        bench_open(&b, isas.name[i], 2, 2);
        uint32_t width = width_of(b.model);
        avo_adapter *adapter = test_adapter_make(
            b.model, &(adapter_random_options){9, 4, TEST_MATRICES_ALL, 0, QUANT_F32, 0.5f});
        scores whole = scores_take(LONG, width), cut = scores_take(LONG, width),
               base = scores_take(LONG, width);
        compute_in(&b, LONG, false, adapter, &whole);
        compute_in(&b, 33, true, adapter, &cut);
        compute_in(&b, LONG, false, NULL, &base);
        same_scores(&whole, &cut, width);
        assert_memory_not_equal(whole.logprob, base.logprob, (LONG - 1) * sizeof(float));
        assert_memory_not_equal(whole.hidden, base.hidden, LONG * sizeof(float));
        scores_give(&whole);
        scores_give(&cut);
        scores_give(&base);
        avo_adapter_close(adapter);
        bench_close(&b);
    }
}

/* What batch_logits gives is what scores come from. */
static void agree_with_logits(void **state) {
    (void)state;
    bench b;
    bench_open(&b, NULL, 2, LONG);
    scores s = scores_take(LONG, width_of(b.model));
    avo_session *session;
    avo_batch *batch;
    double *wanted = calloc(LONG, sizeof(double));
    assert_non_null(wanted);
    assert_ok(avo_session_open(b.engine, NULL, &session, NULL));
    assert_ok(avo_batch_open(b.engine, &batch, NULL));
    assert_ok(avo_batch_add_scored(batch, session, b.ids[0], LONG, LONG));
    assert_ok(avo_step(b.engine, batch));
    for (uint32_t i = 0; i + 1 < LONG; i++) {
        const float *row = avo_batch_logits(batch, session, i);
        wanted[i] = (double)row[b.ids[0][i + 1]] - log_sum_of(row, TINY_VOCABULARY);
    }
    look(batch, session, b.ids[0], LONG, 0, 0, LONG, width_of(b.model), &s);
    for (uint32_t i = 0; i + 1 < LONG; i++)
        assert_true(fabs((double)s.logprob[i] - wanted[i]) < 1e-5);
    free(wanted);
    scores_give(&s);
    avo_batch_close(batch);
    avo_session_close(session);
    bench_close(&b);
}

/* ---- Refused ---- */

static void expect_refused(avo_batch *batch, avo_status status, const char *why) {
    assert_int_equal(status, AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(avo_batch_error(batch)->text, why));
}

static void what_is_not_there_is_refused(void **state) {
    (void)state;
    bench b;
    bench_open(&b, NULL, 1, 2);
    avo_session *session, *other;
    avo_batch *batch, *second;
    float logprob[8];
    avo_logprob top[8 * AVO_TOP_LOGPROBS_MAX];
    const int32_t bad[] = {5, -1, 6}, large[] = {TINY_VOCABULARY};
    const int32_t *ids = b.ids[0];
    assert_ok(avo_session_open(b.engine, NULL, &session, NULL));
    assert_ok(avo_session_open(b.engine, NULL, &other, NULL));
    assert_ok(avo_batch_open(b.engine, &batch, NULL));
    assert_ok(avo_batch_open(b.engine, &second, NULL));
    assert_ok(avo_batch_add(batch, session, ids, 6));
    expect_refused(batch, avo_batch_score(batch, session, 0, 1, ids, 0, logprob, NULL),
                   "the last step did not compute");
    assert_null(avo_batch_hidden(batch, session, 0, 1));
    assert_ok(avo_step(b.engine, batch));
    expect_refused(batch, avo_batch_score(batch, session, 0, 7, ids, 0, logprob, NULL),
                   "the last step did not compute");
    expect_refused(batch, avo_batch_score(batch, session, 6, 1, ids, 0, logprob, NULL),
                   "the last step did not compute");
    expect_refused(batch, avo_batch_score(batch, session, 0, 0, ids, 0, logprob, NULL),
                   "the last step did not compute");
    expect_refused(batch, avo_batch_score(batch, session, SIZE_MAX, 2, ids, 0, logprob, NULL),
                   "the last step did not compute");
    expect_refused(batch, avo_batch_score(batch, other, 0, 1, ids, 0, logprob, NULL),
                   "the last step did not compute");
    expect_refused(batch, avo_batch_score(batch, session, 0, 3, bad, 0, logprob, NULL), "token 1");
    expect_refused(batch, avo_batch_score(batch, session, 0, 1, large, 0, logprob, NULL),
                   "token 0");
    expect_refused(
        batch, avo_batch_score(batch, session, 0, 1, ids, AVO_TOP_LOGPROBS_MAX + 1, logprob, top),
        "at most 20");
    expect_refused(batch, avo_batch_score(batch, session, 0, 1, ids, 3, logprob, NULL),
                   "an array for them");
    assert_null(avo_batch_hidden(batch, session, 3, 4));
    assert_null(avo_batch_hidden(batch, other, 0, 1));
    assert_non_null(avo_batch_logits(batch, session, 0)); /* nothing was scored so far */
    assert_ok(avo_batch_score(batch, session, 5, 1, ids, AVO_TOP_LOGPROBS_MAX, logprob, top));
    assert_null(avo_batch_logits(batch, session, 0));
    /* A step of another batch: hidden states are gone. */
    assert_ok(avo_batch_add(second, other, ids, 2));
    assert_ok(avo_step(b.engine, second));
    assert_null(avo_batch_hidden(batch, session, 0, 1));
    expect_refused(batch, avo_batch_score(batch, session, 0, 1, ids, 0, logprob, NULL),
                   "the last step did not compute");
    avo_batch_close(second);
    avo_batch_close(batch);
    avo_session_close(other);
    avo_session_close(session);
    bench_close(&b);
}

int main(void) {
    size_t count = fixture_count();
    struct CMUnitTest tests[FIXTURE_COUNT + 4] = {
        cmocka_unit_test(whatever_chunks_company_and_threads),
        cmocka_unit_test(under_adapters),
        cmocka_unit_test(agree_with_logits),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    for (size_t i = 0; i < count; i++)
        tests[i + 4] = (struct CMUnitTest){fixture_names[i].name, as_transformers, NULL, NULL,
                                           (void *)(uintptr_t)&fixture_names[i]};
    return cmocka_run_group_tests_name("engine/score", tests, NULL, NULL);
}
