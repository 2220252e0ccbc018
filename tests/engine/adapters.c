/* Every option of PEFT's LoRA against peft and transformers: logits of the tiny models with the
 * adapters of tests/fixtures/adapters, from safetensors and GGUF bases, from PEFT folders and from
 * GGUF adapters, with every instruction set. Stored as f32 they agree within 2e-5 of the logits'
 * range, as the models alone do; f16 and q8 round A and B. */
#include "support/support.h"

#include "support/adapter_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *type;
    double bound; /* part of the logits' range */
} types[] = {{"f32", 2e-5}, {"f16", 2e-3}, {"q8", 5e-2}};

static const float *compute(const fixture_engine *opened, avo_adapter *adapter,
                            const adapter_fixture *fixture, avo_session **session,
                            avo_batch **batch) {
    avo_error error = {0};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_adapter_use use = {adapter, 1.0f};
    options.adapters = &use;
    options.adapter_count = 1;
    assert_ok_error(avo_session_open(opened->engine, &options, session, &error), &error);
    assert_ok_error(avo_batch_open(opened->engine, batch, &error), &error);
    if (avo_batch_add_scored(*batch, *session, fixture->ids, fixture->positions, fixture->kept) !=
            AVO_OK ||
        avo_step(opened->engine, *batch) != AVO_OK)
        fail_msg("%s: step: %s", fixture->name, avo_batch_error(*batch)->text);
    return avo_batch_logits(*batch, *session, 0);
}

static double difference(const adapter_fixture *fixture, avo_batch *batch,
                         const avo_session *session) {
    double largest = 0.0;
    for (uint32_t row = 0; row < fixture->kept; row++) {
        const float *got = avo_batch_logits(batch, session, row);
        const float *wanted = fixture->logits + (size_t)row * fixture->vocabulary;
        assert_non_null(got);
        for (uint32_t i = 0; i < fixture->vocabulary; i++) {
            double d = fabs((double)got[i] - (double)wanted[i]);
            if (!(d <= largest))
                largest = isnan(d) ? INFINITY : d;
        }
    }
    return largest / (double)fixture->range;
}

static void check(const adapter_fixture *fixture, const char *base, const char *path,
                  const char *isa) {
    fixture_engine opened;
    fixture_engine_open(&opened, base, isa, fixture->positions, 1, 1);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        avo_error error = {0};
        avo_adapter *adapter;
        avo_session *session;
        avo_batch *batch;
        avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
        options.type = types[i].type;
        assert_ok_error(avo_adapter_open(opened.model, path, &options, &adapter, &error), &error);
        assert_non_null(compute(&opened, adapter, fixture, &session, &batch));
        double found = difference(fixture, batch, session);
        print_message("  %-18s %-7s %-4s %-5s %-5s %.1e\n", fixture->name, isa, types[i].type,
                      strstr(base, ".gguf") != NULL ? "GGUF" : "base",
                      strstr(path, ".gguf") != NULL ? "GGUF" : "PEFT", found);
        if (!(found <= types[i].bound))
            fail_msg("%s as %s with %s: differs by %.2e of the range, allowed are %.0e",
                     fixture->name, types[i].type, isa, found, types[i].bound);
        avo_batch_close(batch);
        avo_session_close(session);
        avo_adapter_close(adapter);
    }
    fixture_engine_close(&opened);
}

static void logits_are_those_of_peft(void **state) {
    (void)state;
    char names[ADAPTER_FIXTURES_MAX][64];
    size_t count = adapter_fixtures(names);
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < count; i++) {
        adapter_fixture fixture;
        adapter_fixture_open(&fixture, names[i]);
        for (size_t isa = 0; isa < isas.count; isa++) {
            check(&fixture, fixture.base, fixture.path, isas.name[isa]);
            if (fixture.base_twin[0] != '\0')
                check(&fixture, fixture.base_twin, fixture.path, isas.name[isa]);
        }
        if (fixture.twin[0] != '\0')
            check(&fixture, fixture.base, fixture.twin, "ref");
        if (fixture.twin[0] != '\0' && fixture.base_twin[0] != '\0')
            check(&fixture, fixture.base_twin, fixture.twin, "ref");
        adapter_fixture_close(&fixture);
    }
}

/* The base model alone is far away: a test that passes without adapters would be worth nothing. */
static void the_base_alone_is_far_away(void **state) {
    (void)state;
    char names[ADAPTER_FIXTURES_MAX][64];
    size_t count = adapter_fixtures(names);
    for (size_t i = 0; i < count; i++) {
        adapter_fixture fixture;
        fixture_engine opened;
        avo_error error = {0};
        avo_session *session;
        avo_batch *batch;
        adapter_fixture_open(&fixture, names[i]);
        fixture_engine_open(&opened, fixture.base, "ref", fixture.positions, 1, 1);
        assert_ok_error(avo_session_open(opened.engine, NULL, &session, &error), &error);
        assert_ok_error(avo_batch_open(opened.engine, &batch, &error), &error);
        assert_ok(
            avo_batch_add_scored(batch, session, fixture.ids, fixture.positions, fixture.kept));
        assert_ok(avo_step(opened.engine, batch));
        if (!(difference(&fixture, batch, session) > 1e-2))
            fail_msg("%s changes next to nothing", names[i]);
        avo_batch_close(batch);
        avo_session_close(session);
        fixture_engine_close(&opened);
        adapter_fixture_close(&fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_peft),
        cmocka_unit_test(the_base_alone_is_far_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
