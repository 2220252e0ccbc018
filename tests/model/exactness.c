/* Every architecture against transformers: logits at every position of the tiny models, from
 * safetensors and from the GGUF twin, within 2e-5 of the logits' range. */
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

static void expect_close(const fixture *fixture, const char *what, const float *got,
                         const float *wanted) {
    double found = difference(fixture, got, wanted);
    print_message("  %-14s %-24s %.1e\n", fixture->name, what, found);
    if (!(found <= BOUND))
        fail_msg("%s, %s: differs by %.2e of the range, allowed are %.0e", fixture->name, what,
                 found, BOUND);
}

static float *compute(const fixture *fixture, const char *path) {
    fixture_engine opened;
    float *logits = malloc((size_t)fixture->positions * fixture->vocabulary * sizeof(float));
    assert_non_null(logits);
    fixture_engine_open(&opened, path, fixture->positions, 1, 1);
    fixture_compute(&opened, fixture->ids, fixture->positions, fixture->vocabulary, logits);
    fixture_engine_close(&opened);
    return logits;
}

static float *compute_twin(const fixture *fixture) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s.gguf", fixture->name);
    return compute(fixture, test_fixture_path(relative));
}

static float *compute_folder(const fixture *fixture) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s", fixture->name);
    return compute(fixture, test_fixture_path(relative));
}

static void test_folder(void **state) {
    const fixture_name *which = *state;
    fixture fixture;
    fixture_open(&fixture, which->name);
    float *folder = compute_folder(&fixture);
    expect_close(&fixture, "safetensors, oracle", folder, fixture.logits);
    free(folder);
    fixture_close(&fixture);
}

static void test_twin(void **state) {
    const fixture_name *which = *state;
    fixture fixture;
    fixture_open(&fixture, which->name);
    float *twin = compute_twin(&fixture);
    expect_close(&fixture, "GGUF, oracle", twin, fixture.logits);
    free(twin);
    fixture_close(&fixture);
}

/* Both files of one model, straight: what one reads wrongly and the oracle does not see. */
static void test_both(void **state) {
    const fixture_name *which = *state;
    fixture fixture;
    fixture_open(&fixture, which->name);
    float *folder = compute_folder(&fixture);
    float *twin = compute_twin(&fixture);
    expect_close(&fixture, "GGUF, safetensors", twin, folder);
    free(twin);
    free(folder);
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
    struct CMUnitTest tests[3 * FIXTURE_COUNT + 1] = {cmocka_unit_test(test_measure_sees_faults)};
    size_t count = 1;
    for (size_t i = 0; i < FIXTURE_COUNT; i++) {
        void *which = (void *)(uintptr_t)&fixture_names[i];
        const char *name = fixture_names[i].name;
        tests[count++] = (struct CMUnitTest){name, test_folder, NULL, NULL, which};
        if (!fixture_names[i].twin)
            continue;
        tests[count++] = (struct CMUnitTest){name, test_twin, NULL, NULL, which};
        tests[count++] = (struct CMUnitTest){name, test_both, NULL, NULL, which};
    }
    return _cmocka_run_group_tests("exactness", tests, count, NULL, NULL);
}
