/* Merging: a model with adapters folded in computes what peft computes with the adapter beside it,
 * whatever the adapter is made of; several with weights give what one session with all of them
 * gives; and adding the opposite gives the base model back. */
#include "support/support.h"

#include "pack/merge.h"
#include "support/adapter_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *merged_path(const char *name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s.avo", test_scratch_folder(), name);
    return path;
}

static avo_adapter *open_adapter(const avo_model *model, const char *path) {
    avo_error error = {0};
    avo_adapter *adapter;
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    options.type = "f32";
    assert_ok_error(avo_adapter_open(model, path, &options, &adapter, &error), &error);
    return adapter;
}

static void merge(const avo_model *model, const avo_adapter_use *uses, size_t count, pack_type type,
                  bool folder, const char *path) {
    avo_error error = {0};
    pack_options options = {
        .type = type, .folder = folder, .threads = 2, .effort = PACK_EFFORT_SEARCH};
    pack_report report;
    assert_ok_error(pack_merge(model, uses, count, path, &options, &report, &error), &error);
}

/* Logits of the last `kept` positions, to be freed. */
static float *compute(const adapter_fixture *fixture, const char *model, char (*paths)[512],
                      const float *weights, size_t count) {
    avo_error error = {0};
    fixture_engine opened;
    avo_session *session;
    avo_batch *batch;
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_adapter_use own[AVO_ADAPTERS_MAX];
    fixture_engine_open(&opened, model, "ref", fixture->positions, 1, 1);
    for (size_t i = 0; i < count; i++)
        own[i] = (avo_adapter_use){open_adapter(opened.model, paths[i]), weights[i]};
    options.adapters = own;
    options.adapter_count = count;
    assert_ok_error(avo_session_open(opened.engine, &options, &session, &error), &error);
    assert_ok_error(avo_batch_open(opened.engine, &batch, &error), &error);
    assert_ok(
        avo_batch_add_scored(batch, session, fixture->ids, fixture->positions, fixture->kept));
    if (avo_step(opened.engine, batch) != AVO_OK)
        fail_msg("%s", avo_batch_error(batch)->text);
    size_t row = fixture->vocabulary;
    float *logits = malloc(fixture->kept * row * sizeof(float));
    assert_non_null(logits);
    for (uint32_t i = 0; i < fixture->kept; i++)
        memcpy(logits + i * row, avo_batch_logits(batch, session, i), row * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
    for (size_t i = 0; i < count; i++)
        avo_adapter_close(own[i].adapter);
    fixture_engine_close(&opened);
    return logits;
}

static double difference(const adapter_fixture *fixture, const float *a, const float *b) {
    double largest = 0.0;
    for (size_t i = 0; i < (size_t)fixture->kept * fixture->vocabulary; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        largest = d <= largest ? largest : isnan(d) ? INFINITY : d;
    }
    return largest / (double)fixture->range;
}

/* A new name each time: a folder is not written over. */
static const char *next_path(bool folder) {
    static char path[4096];
    static int number;
    snprintf(path, sizeof(path), "%s/merged-%d%s", test_scratch_folder(), number++,
             folder ? "" : ".avo");
    return path;
}

static void check_merged(const adapter_fixture *fixture, const char *base, pack_type type,
                         bool folder, double bound) {
    avo_error error = {0};
    avo_model *model;
    const char *path = next_path(folder);
    assert_ok_error(avo_model_open(base, NULL, &model, &error), &error);
    avo_adapter_use use = {open_adapter(model, fixture->path), 1.0f};
    merge(model, &use, 1, type, folder, path);
    avo_adapter_close(use.adapter);
    avo_model_close(model);
    float *logits = compute(fixture, path, NULL, NULL, 0);
    double found = difference(fixture, logits, fixture->logits);
    print_message("  %-18s %-5s %-6s %.1e\n", fixture->name, pack_type_name(type),
                  folder ? "folder" : "avo", found);
    if (!(found <= bound))
        fail_msg("%s as %s: differs by %.2e, allowed are %.0e", fixture->name, pack_type_name(type),
                 found, bound);
    free(logits);
}

static void every_adapter_merges(void **state) {
    (void)state;
    char names[ADAPTER_FIXTURES_MAX][64];
    size_t count = adapter_fixtures(names);
    for (size_t i = 0; i < count; i++) {
        adapter_fixture fixture;
        adapter_fixture_open(&fixture, names[i]);
        bool packs = strcmp(names[i], "experts-sinks") != 0; /* gpt-oss's safetensors do not */
        bool folder = strncmp(names[i], "experts", strlen("experts")) != 0;
        if (packs)
            check_merged(&fixture, fixture.base, PACK_F32, false, 2e-5);
        if (folder)
            check_merged(&fixture, fixture.base, PACK_F32, true, 2e-5);
        if (fixture.base_twin[0] != '\0')
            check_merged(&fixture, fixture.base_twin, PACK_F32, false, 2e-5);
        adapter_fixture_close(&fixture);
    }
}

static void narrower_types_round_once(void **state) {
    (void)state;
    adapter_fixture fixture;
    adapter_fixture_open(&fixture, "dora");
    check_merged(&fixture, fixture.base, PACK_F16, false, 5e-3);
    check_merged(&fixture, fixture.base, PACK_F16, true, 5e-3);
    check_merged(&fixture, fixture.base, PACK_KEEP, true, 5e-2);
    check_merged(&fixture, fixture.base, PACK_Q8, false, 5e-2);
    check_merged(&fixture, fixture.base_twin, PACK_Q4_1, false, 0.9);
    adapter_fixture_close(&fixture);
    adapter_fixture_open(&fixture, "saved-tied"); /* the head is the embedding no more */
    check_merged(&fixture, fixture.base, PACK_Q8, false, 5e-2);
    check_merged(&fixture, fixture.base, PACK_BF16, true, 5e-2);
    adapter_fixture_close(&fixture);
}

static void weights_are_those_of_a_session(void **state) {
    (void)state;
    static const char *const names[] = {"adapters/dora", "adapters/plain", "adapters/all-linear"};
    static const float weights[] = {0.6f, -0.5f, 0.4f};
    avo_error error = {0};
    avo_model *model;
    adapter_fixture fixture;
    avo_adapter_use uses[3];
    char path[3][512];
    adapter_fixture_open(&fixture, "plain");
    assert_ok_error(avo_model_open(fixture.base, NULL, &model, &error), &error);
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof(path[i]), "%s", test_fixture_path(names[i]));
        uses[i] = (avo_adapter_use){open_adapter(model, path[i]), weights[i]};
    }
    merge(model, uses, 3, PACK_F32, false, merged_path("three"));
    float *merged = compute(&fixture, merged_path("three"), NULL, NULL, 0);
    float *session = compute(&fixture, fixture.base, path, weights, 3);
    double found = difference(&fixture, merged, session);
    print_message("  three adapters %.1e\n", found);
    assert_true(found <= 2e-5);
    free(merged);
    free(session);
    for (int i = 0; i < 3; i++)
        avo_adapter_close(uses[i].adapter);
    avo_model_close(model);
    adapter_fixture_close(&fixture);
}

static void what_cannot_be_merged_is_refused(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model, *other;
    pack_report report;
    pack_options options = {.type = PACK_KEEP, .threads = 1};
    assert_ok(avo_model_open(test_fixture_path("models/llama2"), NULL, &model, &error));
    assert_ok(avo_model_open(test_fixture_path("models/llama2"), NULL, &other, &error));
    avo_adapter_use use = {open_adapter(model, test_fixture_path("adapters/plain")), 1.0f};
    assert_refused(pack_merge(model, &use, 1, merged_path("no"), &options, &report, &error),
                   AVO_ERROR_ARGUMENT, &error, "keep");
    options.type = PACK_F16;
    assert_refused(pack_merge(model, &use, 0, merged_path("no"), &options, &report, &error),
                   AVO_ERROR_ARGUMENT, &error, "merging needs at least one adapter");
    assert_refused(pack_merge(other, &use, 1, merged_path("no"), &options, &report, &error),
                   AVO_ERROR_ARGUMENT, &error, "another model");
    assert_int_equal(file_kind_of(merged_path("no")), FILE_MISSING);
    avo_adapter_close(use.adapter);
    avo_model_close(model);
    avo_model_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_adapter_merges),
        cmocka_unit_test(narrower_types_round_once),
        cmocka_unit_test(weights_are_those_of_a_session),
        cmocka_unit_test(what_cannot_be_merged_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
