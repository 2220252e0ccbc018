/* Instruction sets at the level of whole models. AVO_TEST_THREADS
 * Every vector back end gives the same bits; what separates them from the reference is that they
 * quantise activations, and that stays within the bounds stated here. */
#include "support/support.h"

#include "device/driver.h"
#include "pack/pack.h"
#include "support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *compute(const fixture *fixture, const char *path, const char *isa, uint32_t threads) {
    fixture_engine opened;
    float *logits = malloc((size_t)fixture->positions * fixture->vocabulary * sizeof(float));
    assert_non_null(logits);
    fixture_engine_open(&opened, path, isa, fixture->positions, 1, threads);
    assert_string_equal(avo_engine_device(opened.engine), test_device_name(isa));
    fixture_compute(&opened, fixture->ids, fixture->positions, fixture->vocabulary, logits);
    fixture_engine_close(&opened);
    return logits;
}

/* The root of the mean square of differences as a part of the logits' range. */
static double difference(const fixture *fixture, const float *a, const float *b) {
    size_t count = (size_t)fixture->positions * fixture->vocabulary;
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += pow((double)a[i] - (double)b[i], 2);
    return sqrt(sum / (double)count) / (double)fixture->range;
}

typedef struct type_case {
    pack_type type;
    double bound; /* about three times what was seen */
} type_case;

static const type_case type_cases[] = {{PACK_F32, 1e-6}, {PACK_F16, 1e-6}, {PACK_BF16, 1e-6},
                                       {PACK_Q8, 3e-4},  {PACK_Q8C, 3e-4}, {PACK_Q4, 2e-2}};

static bool has_experts(const fixture *fixture) {
    return strcmp(fixture->name, "olmoe") == 0 || strcmp(fixture->name, "gpt-oss") == 0;
}

static void check_type(const fixture *fixture, const fixture_isas *isas, const char *path,
                       const type_case *wanted) {
    float *reference = compute(fixture, path, "ref", 1);
    float *first = NULL;
    for (size_t i = 1; i < isas->count; i++) {
        float *logits = compute(fixture, path, isas->name[i], 1 + (uint32_t)i % 3);
        double found = difference(fixture, logits, reference);
        print_message("  %-10s %-5s %-7s %.1e\n", fixture->name, pack_type_name(wanted->type),
                      isas->name[i], found);
        /* A row that is rounded otherwise may choose other experts. */
        if (!has_experts(fixture) && !(found <= wanted->bound))
            fail_msg("%s as %s with %s: differs by %.2e of the range, allowed are %.0e",
                     fixture->name, pack_type_name(wanted->type), isas->name[i], found,
                     wanted->bound);
        if (first == NULL) {
            first = logits;
            continue;
        }
        assert_memory_equal(first, logits,
                            (size_t)fixture->positions * fixture->vocabulary * sizeof(float));
        free(logits);
    }
    free(first);
    free(reference);
}

static void all_give_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "gemma3", "qwen3", "opt", "olmoe", "gpt-oss"};
    fixture_isas isas;
    fixture_isas_find(&isas);
    char path[256];
    snprintf(path, sizeof(path), "%s/isa.avo", test_scratch_folder());
    size_t count = sizeof(names) / sizeof(names[0]) - (test_device_has_threads() ? 0 : 2);
    for (size_t n = 0; n < count; n++) { /* only CPUs compute the last two */
        char model[256];
        bool twin = strcmp(names[n], "gpt-oss") == 0; /* its safetensors are not packed */
        snprintf(model, sizeof(model), "models/%s%s", names[n], twin ? ".gguf" : "");
        fixture fixture;
        fixture_open(&fixture, names[n]);
        for (size_t t = 0; t < sizeof(type_cases) / sizeof(type_cases[0]); t++) {
            pack_options options = {.type = type_cases[t].type, .threads = 2};
            pack_report report;
            avo_error error;
            assert_ok_error(pack_file(test_fixture_path(model), path, &options, &report, &error),
                            &error);
            check_type(&fixture, &isas, path, &type_cases[t]);
        }
        fixture_close(&fixture);
    }
}

static avo_status open_with(const char *isa, avo_error *error) {
    avo_model *model;
    assert_ok(avo_model_open(test_fixture_path("models/llama3"), NULL, &model, NULL));
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = isa;
    avo_engine *engine;
    avo_status status = avo_engine_open(model, &options, &engine, error);
    if (status == AVO_OK)
        avo_engine_close(engine);
    avo_model_close(model);
    return status;
}

static void an_unknown_one_is_refused(void **state) {
    (void)state;
    avo_error error = {0};
    assert_int_equal(open_with("vmx", &error), AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "vmx"));
    assert_non_null(strstr(error.text, "ref"));
}

static void one_that_is_not_there_is_refused(void **state) {
    (void)state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    const char *lacking = NULL;
    for (const device_driver *const *driver = device_drivers(); *driver != NULL; driver++)
        if ((*driver)->probe(*driver, NULL, NULL) == AVO_ERROR_UNSUPPORTED)
            lacking = (*driver)->name;
    if (lacking == NULL) {
        print_message("SKIPPED: this machine has all instruction sets of this build\n");
        skip();
    }
    avo_error error = {0};
    assert_int_equal(open_with(lacking, &error), AVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, isas.name[isas.count - 1]));
}

static void the_environment_chooses(void **state) {
    (void)state;
    avo_error error = {0};
    unsetenv("AVO_DEVICE"); /* goes before AVO_ISA */
    setenv("AVO_ISA", "sse9", 1);
    assert_int_equal(open_with(NULL, &error), AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "sse9"));
    assert_ok(open_with("ref", &error)); /* an option is nearer than the environment */
    unsetenv("AVO_ISA");
    assert_ok(open_with(NULL, &error));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_give_the_same_bits),
        cmocka_unit_test(an_unknown_one_is_refused),
        cmocka_unit_test(one_that_is_not_there_is_refused),
        cmocka_unit_test(the_environment_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
