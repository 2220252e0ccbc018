/* Every architecture against transformers: logits at every position of the tiny models, from
 * safetensors and from the GGUF twin, with every instruction set, within 2e-5 of the logits' range
 * (their weights are floats, which all of them multiply as floats). */
#include "support/support.h"

#include "support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND 2e-5

/* Largest difference as a part of the fixture's range; NaN counts as the largest of all. */
static double difference(const fixture *fixture, const float *a, const float *b) {
    double largest = 0.0;
    for (size_t i = 0; i < (size_t)fixture->positions * fixture->vocabulary; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= largest))
            largest = isnan(d) ? INFINITY : d;
    }
    return largest / (double)fixture->range;
}

static void expect_close(const fixture *fixture, const char *isa, const char *what,
                         const float *got, const float *wanted) {
    double found = difference(fixture, got, wanted);
    print_message("  %-14s %-7s %-20s %.1e\n", fixture->name, isa, what, found);
    if (!(found <= BOUND))
        fail_msg("%s, %s: differs by %.2e of the range, allowed are %.0e", fixture->name, what,
                 found, BOUND);
}

static float *compute(const fixture *fixture, const char *isa, const char *path) {
    fixture_engine opened;
    float *logits = malloc((size_t)fixture->positions * fixture->vocabulary * sizeof(float));
    assert_non_null(logits);
    fixture_engine_open(&opened, path, isa, fixture->positions, 1, 1);
    fixture_compute(&opened, fixture->ids, fixture->positions, fixture->vocabulary, logits);
    fixture_engine_close(&opened);
    return logits;
}

static float *compute_twin(const fixture *fixture, const char *isa) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s.gguf", fixture->name);
    return compute(fixture, isa, test_fixture_path(relative));
}

static float *compute_folder(const fixture *fixture, const char *isa) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s", fixture->name);
    return compute(fixture, isa, test_fixture_path(relative));
}

/* Both files of one model against the oracle and, what one reads wrongly and the oracle does not
 * see, against each other. */
static void test_model(void **state) {
    const fixture_name *which = *state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    fixture fixture;
    fixture_open(&fixture, which->name);
    /* Products with 4 bits round their input, except in the reference. */
    size_t count = strstr(which->name, "mxfp4") != NULL ? 1 : isas.count;
    for (size_t i = 0; i < count; i++) {
        float *folder = compute_folder(&fixture, isas.name[i]);
        expect_close(&fixture, isas.name[i], "safetensors, oracle", folder, fixture.logits);
        if (which->twin) {
            float *twin = compute_twin(&fixture, isas.name[i]);
            expect_close(&fixture, isas.name[i], "GGUF, oracle", twin, fixture.logits);
            expect_close(&fixture, isas.name[i], "GGUF, safetensors", twin, folder);
            free(twin);
        }
        free(folder);
    }
    fixture_close(&fixture);
}

/* The measure itself: a wrong number and a NaN are seen. */
static void test_measure_sees_faults(void **state) {
    (void)state;
    float wanted[4] = {-1.0f, 0.0f, 1.0f, 3.0f};
    float got[4] = {-1.0f, 0.0f, 1.0f, 3.0f};
    fixture fixture = {.name = "-", .positions = 2, .vocabulary = 2, .range = 4.0f};
    assert_true(difference(&fixture, got, wanted) == 0.0);
    got[2] = 1.001f;
    assert_true(difference(&fixture, got, wanted) > BOUND);
    got[2] = NAN;
    got[3] = 3.5f;
    assert_true(difference(&fixture, got, wanted) == INFINITY);
}

int main(void) {
    size_t count = fixture_count();
    struct CMUnitTest tests[FIXTURE_COUNT + 1] = {cmocka_unit_test(test_measure_sees_faults)};
    for (size_t i = 0; i < count; i++)
        tests[i + 1] = (struct CMUnitTest){fixture_names[i].name, test_model, NULL, NULL,
                                           (void *)(uintptr_t)&fixture_names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
