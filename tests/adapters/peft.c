/* Every adapter that PEFT has written: the same modules, ranks, scales and norms as PEFT itself
 * says, from the folder and from the GGUF twin, on safetensors and on GGUF bases. */
#include "support/support.h"

#include "support/adapter_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static avo_adapter *open_adapter(const avo_model *model, const char *path, const char *type) {
    avo_error error = {0};
    avo_adapter *adapter;
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    options.type = type;
    assert_ok_error(avo_adapter_open(model, path, &options, &adapter, &error), &error);
    return adapter;
}

static bool find_module(const avo_adapter *adapter, const char *name, avo_adapter_module *module) {
    for (size_t i = 0; avo_adapter_module_at(adapter, i, module); i++)
        if (strcmp(module->name, name) == 0)
            return true;
    return false;
}

/* Against modules.txt; norms may differ by `bound` of them. */
static void check_modules(const adapter_fixture *fixture, const avo_adapter *adapter,
                          double bound) {
    char path[640], name[256], kind[32];
    unsigned rank;
    double scale, norm;
    snprintf(path, sizeof(path), "%s/modules.txt", fixture->path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    uint32_t expected = 0;
    while (fscanf(file, "%255s %31s %u %lf %lf", name, kind, &rank, &scale, &norm) == 5) {
        avo_adapter_module module = AVO_ADAPTER_MODULE_INIT;
        if (!find_module(adapter, name, &module))
            fail_msg("%s: module %s is missing", fixture->name, name);
        assert_string_equal(module.kind, kind);
        assert_int_equal(module.rank, rank);
        if (fabs(module.scale - scale) > 1e-6 * fabs(scale))
            fail_msg("%s: %s: scale %g, not %g", fixture->name, name, module.scale, scale);
        if (!(fabs(module.norm - norm) <= bound * norm))
            fail_msg("%s: %s: norm %g, not %g", fixture->name, name, module.norm, norm);
        expected++;
    }
    (void)fclose(file);
    uint32_t found = 0;
    avo_adapter_module module = AVO_ADAPTER_MODULE_INIT;
    for (size_t i = 0; avo_adapter_module_at(adapter, i, &module); i++)
        found += strcmp(module.kind, "bias") != 0;
    assert_int_equal(found, expected);
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    avo_adapter_describe(adapter, &info);
    assert_int_equal(info.modules_matched, info.modules_expected);
    assert_true(info.bytes > 0 && info.memory_bytes >= info.bytes);
    assert_int_equal(strlen(info.digest), 32);
}

static void check_on(const adapter_fixture *fixture, const char *base, const char *path) {
    avo_error error = {0};
    avo_model *model;
    assert_ok_error(avo_model_open(base, NULL, &model, &error), &error);
    char digest[3][33];
    static const char *const types[] = {"f32", "f16", "q8"};
    for (int i = 0; i < 3; i++) {
        avo_adapter *adapter = open_adapter(model, path, types[i]);
        check_modules(fixture, adapter, i == 0 ? 1e-4 : i == 1 ? 2e-3 : 2e-2);
        avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
        avo_adapter_describe(adapter, &info);
        assert_string_equal(info.type, types[i]);
        memcpy(digest[i], info.digest, sizeof(digest[i]));
        avo_adapter *again = open_adapter(model, path, types[i]);
        avo_adapter_describe(again, &info);
        assert_string_equal(info.digest, digest[i]);
        avo_adapter_close(again);
        avo_adapter_close(adapter);
    }
    assert_string_not_equal(digest[0], digest[1]);
    assert_string_not_equal(digest[0], digest[2]);
    avo_model_close(model);
}

static void every_option_is_read_as_peft_reads_it(void **state) {
    (void)state;
    char names[ADAPTER_FIXTURES_MAX][64];
    size_t count = adapter_fixtures(names);
    for (size_t i = 0; i < count; i++) {
        adapter_fixture fixture;
        adapter_fixture_open(&fixture, names[i]);
        print_message("  %s\n", names[i]);
        check_on(&fixture, fixture.base, fixture.path);
        if (fixture.base_twin[0] != '\0')
            check_on(&fixture, fixture.base_twin, fixture.path);
        if (fixture.twin[0] != '\0')
            check_on(&fixture, fixture.base, fixture.twin);
        if (fixture.twin[0] != '\0' && fixture.base_twin[0] != '\0')
            check_on(&fixture, fixture.base_twin, fixture.twin);
        adapter_fixture_close(&fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_is_read_as_peft_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
