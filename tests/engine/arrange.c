/* engine/adapters: the order of a batch's rows under adapters, and the runs that the kernels find
 * by row, against what is true of every row by itself. */
#include "support/support.h"

#include "base/random.h"
#include "device/runs.h"
#include "engine/engine_int.h"
#include "support/adapters.h"
#include "support/place.h"

#include <stdlib.h>
#include <string.h>

enum { ADAPTERS = 9, SESSIONS = 150, ROUNDS = 12 };

typedef struct trial {
    place place;
    avo_adapter *adapter[ADAPTERS];
    avo_session *session[SESSIONS];
    uint64_t draws;
} trial;

static uint32_t draw(trial *t, uint32_t sides) {
    return random_at(71, 3, t->draws++).words[0] % sides;
}

/* Each adapter with a probability of one in `rare`. */
static void open_session(trial *t, uint32_t number, uint32_t rare) {
    avo_adapter_use uses[AVO_ADAPTERS_MAX];
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = uses;
    for (uint32_t i = 0; i < ADAPTERS && options.adapter_count < AVO_ADAPTERS_MAX; i++)
        if (draw(t, rare) == 0)
            uses[options.adapter_count++] =
                (avo_adapter_use){t->adapter[i], 0.25f * (float)(1 + draw(t, 8))};
    assert_ok_error(
        avo_session_open(t->place.engine, &options, &t->session[number], &t->place.error),
        &t->place.error);
}

/* Whether the session has the run's adapter, and with which weight. */
static bool has(const avo_session *session, const adapter_run *run, float *weight) {
    for (uint32_t i = 0; i < session->adapter_count; i++)
        if (session->adapters[i].view == run->adapter) {
            *weight = session->adapters[i].weight;
            return true;
        }
    return false;
}

static void check(const trial *t, avo_batch *batch) {
    batch_view view = batch_rows(batch);
    (void)t;
    for (uint32_t i = 1; i < view.runs; i++)
        assert_true(view.run[i - 1].first <= view.run[i].first);
    for (uint32_t row = 0; row < view.rows; row++) {
        const avo_session *session = batch->entries[view.row_segment[row]].session;
        uint32_t own[ADAPTERS_OF_ROW], found = 0;
        assert_int_equal(runs_of_row(&view, row, own), session->adapter_count);
        for (uint32_t i = 0; i < view.runs; i++) {
            const adapter_run *run = &view.run[i];
            float weight = 0.0f;
            if (row < run->first || row - run->first >= run->rows)
                continue;
            assert_true(has(session, run, &weight));
            assert_true(run_factor(run, row) == weight);
            assert_int_equal(own[found++], i);
        }
        assert_int_equal(found, session->adapter_count);
        uint32_t until = 0;
        while (until < view.runs && view.run[until].first <= row)
            until++;
        assert_int_equal(runs_until(&view, row), until);
    }
}

/* Sessions of the same adapters stand in the order in which they came. */
static void check_stable(avo_batch *batch, const int32_t *came) {
    for (uint32_t i = 1; i < batch->entry_count; i++) {
        const avo_session *a = batch->entries[i - 1].session, *b = batch->entries[i].session;
        bool same = a->adapter_count == b->adapter_count;
        for (uint32_t n = 0; n < a->adapter_count && same; n++)
            same = a->adapters[n].adapter == b->adapters[n].adapter;
        if (same)
            assert_true(came[batch->segments[i - 1].first] < came[batch->segments[i].first]);
    }
}

static void rows_stand_together_and_are_found(void **state) {
    (void)state;
    static trial t;
    memset(&t, 0, sizeof(t));
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = 64;
    options.sessions_max = SESSIONS;
    options.rows_max = 2 * SESSIONS;
    place_open(&t.place, "models/llama2.gguf", options);
    place *p = &t.place;
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        adapter_random_options random = {i + 1, 2, 1u << ADAPTER_QUERY, 0, QUANT_F32, 0.05f};
        t.adapter[i] = test_adapter_make(p->model, &random);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t count = round == 0 ? 1 : 1 + draw(&t, SESSIONS);
        static const uint32_t rare[] = {1, 2, 4, 12};
        for (uint32_t i = 0; i < count; i++)
            open_session(&t, i, rare[round % 4]);
        avo_batch_clear(p->batch);
        /* Tokens say in which order they came. */
        for (uint32_t i = 0; i < count; i++) {
            int32_t tokens[2] = {(int32_t)(i % p->vocabulary), 1};
            assert_ok_error(avo_batch_add(p->batch, t.session[i], tokens, 1 + draw(&t, 2)),
                            avo_batch_error(p->batch));
        }
        batch_arrange(p->batch);
        check(&t, p->batch);
        if (count <= p->vocabulary)
            check_stable(p->batch, p->batch->token);
        avo_batch_clear(p->batch);
        for (uint32_t i = 0; i < count; i++)
            avo_session_close(t.session[i]);
    }
    for (uint32_t i = 0; i < ADAPTERS; i++)
        adapter_release(t.adapter[i]);
    place_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_stand_together_and_are_found)};
    return cmocka_run_group_tests_name("engine/arrange", tests, NULL, NULL);
}
