/* Reads the tiny models' expectations and runs them through the public interface. */
#include "support/models.h"
#include "support/support.h"

#include "device/cpu/backend.h"
#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const fixture_name fixture_names[FIXTURE_COUNT] = {
    {"llama2", true},
    {"llama3", true},
    {"tinyllama", false},
    {"smollm2", true},
    {"smollm3", true},
    {"mistral", false},
    {"qwen2", true},
    {"qwen2-window", false},
    {"qwen3", true},
    {"gemma3", true},
    {"gemma3-scaled", false},
    {"gemma3-wrapped", false},
    {"phi3", true},
    {"phi3-short", true},
    {"phi3-long", true},
    {"gpt2", true},
    {"gpt2-bare", false},
    {"opt", false},
    {"opt-350m", false},
    {"llama-linear", true},
    {"llama-dynamic", false},
    {"llama-yarn", true},
    {"mixtral", true},
    {"qwen2-moe", true},
    {"qwen2-moe-mixed", false},
    {"qwen3-moe", true},
    {"olmoe", true},
    {"granite-moe", true},
    {"gpt-oss", true},
    {"gpt-oss-mxfp4", false},
};

const void *fixture_npy(file_map *map, const char *relative, const char *descr, size_t item_bytes,
                        uint32_t shape[2]) {
    avo_error error = {0};
    assert_ok_error(file_map_open(test_fixture_path(relative), map, &error), &error);
    const uint8_t *bytes = map->bytes.data;
    assert_true(map->bytes.size > 10 && memcmp(bytes, "\x93NUMPY\x01\x00", 8) == 0);
    size_t header_bytes = bytes[8] | (size_t)bytes[9] << 8;
    assert_true(10 + header_bytes <= map->bytes.size && header_bytes < 1000);
    char header[1001];
    memcpy(header, bytes + 10, header_bytes);
    header[header_bytes] = '\0';
    assert_non_null(strstr(header, descr));
    assert_non_null(strstr(header, "'fortran_order': False"));
    const char *dims = strstr(header, "'shape': (");
    assert_non_null(dims);
    char *end;
    shape[0] = (uint32_t)strtoul(dims + strlen("'shape': ("), &end, 10);
    shape[1] = *end == ',' && end[1] == ' ' ? (uint32_t)strtoul(end + 2, NULL, 10) : 1;
    assert_int_equal(map->bytes.size, 10 + header_bytes + (size_t)shape[0] * shape[1] * item_bytes);
    return bytes + 10 + header_bytes;
}

static const void *map_npy(file_map *map, const char *name, const char *file, const char *descr,
                           size_t item_bytes, uint32_t shape[2]) {
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s/%s", name, file);
    return fixture_npy(map, relative, descr, item_bytes, shape);
}

void fixture_open(fixture *fixture, const char *name) {
    uint32_t shape[2];
    fixture->name = name;
    fixture->ids = map_npy(&fixture->ids_file, name, "ids.npy", "'<i4'", sizeof(int32_t), shape);
    fixture->positions = shape[0];
    fixture->logits =
        map_npy(&fixture->logits_file, name, "logits.npy", "'<f4'", sizeof(float), shape);
    assert_int_equal(shape[0], fixture->positions);
    fixture->vocabulary = shape[1];
    float low = fixture->logits[0];
    float high = low;
    for (size_t i = 0; i < (size_t)fixture->positions * fixture->vocabulary; i++) {
        low = fixture->logits[i] < low ? fixture->logits[i] : low;
        high = fixture->logits[i] > high ? fixture->logits[i] : high;
    }
    fixture->range = high - low;
    assert_true(fixture->range > 1.0f);
}

void fixture_close(fixture *fixture) {
    file_map_close(&fixture->ids_file);
    file_map_close(&fixture->logits_file);
}

/* NULL: none in particular. */
static const char *wanted_device(void) {
    const char *wanted = getenv("AVO_TEST_DEVICE");
    return wanted != NULL && wanted[0] != '\0' ? wanted : NULL;
}

bool test_device_is_remote(void) {
    return wanted_device() != NULL;
}

/* "remote" or "remote-delayed"; false: another device, or none in particular. */
static bool wants_remote(void) {
    return wanted_device() != NULL && strncmp(wanted_device(), "remote", 6) == 0;
}

/* The remote device again, but the first layer is the CPU's. */
static bool wants_split(void) {
    return wanted_device() != NULL && strcmp(wanted_device(), "split") == 0;
}

bool test_device_has_threads(void) {
    return wanted_device() == NULL || wants_remote() || wants_split();
}

size_t fixture_count(void) {
    return test_device_has_threads() ? FIXTURE_COUNT : FIXTURE_DENSE;
}

const char *test_device_name(const char *isa) {
    const char *wanted = wanted_device();
    if (wants_remote() || wants_split())
        return wants_split() ? "split" : "remote";
    return wanted == NULL || strcmp(isa, "ref") == 0 ? isa : wanted;
}

const char *test_device(const char *isa) {
    static const char *const names[][4] = {
        {"ref", "remote:ref,late", "remote:ref,delay=50", "split:1:ref+remote:ref,late"},
        {"avx2", "remote:avx2,late", "remote:avx2,delay=50", "split:1:avx2+remote:avx2,late"},
        {"avx512", "remote:avx512,late", "remote:avx512,delay=50",
         "split:1:avx512+remote:avx512,late"},
        {"amx", "remote:amx,late", "remote:amx,delay=50", "split:1:amx+remote:amx,late"},
        {"neon", "remote:neon,late", "remote:neon,delay=50", "split:1:neon+remote:neon,late"}};
    if (!test_device_is_remote())
        return isa;
    if (!wants_remote() && !wants_split())
        return isa != NULL && strcmp(isa, "ref") == 0 ? isa : wanted_device();
    int which = wants_split() ? 3 : strcmp(wanted_device(), "remote-delayed") == 0 ? 2 : 1;
    for (size_t i = 0; isa != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(isa, names[i][0]) == 0)
            return names[i][which];
    static const char *const best[] = {NULL, "remote:late", "remote:delay=50",
                                       "split:1:cpu+remote:late"};
    return isa != NULL ? isa : best[which];
}

void fixture_isas_find(fixture_isas *isas) {
    memset(isas, 0, sizeof(*isas));
    device_names(isas->text, sizeof(isas->text));
    for (char *at = isas->text; *at != '\0' && isas->count < 8;) {
        const device_driver *driver;
        const char *name = at;
        at += strcspn(at, " ");
        if (*at == ' ')
            *at++ = '\0';
        /* A card is tested where it is asked for (`make test-cuda`), not wherever one is found. */
        if (device_find_among(device_drivers(), name, &driver, NULL) == AVO_OK &&
            driver->kind != NULL && strcmp(driver->kind, "cpu") == 0)
            isas->name[isas->count++] = name;
    }
}

void fixture_engine_open(fixture_engine *opened, const char *path, const char *isa,
                         uint32_t context, uint32_t sessions, uint32_t threads) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = threads;
    options.context_max = context;
    options.rope_context = context;
    options.sessions_max = sessions;
    options.rows_max = context * sessions;
    options.logits_max = context * sessions;
    options.device = test_device(isa);
    options.kv_type = "f32";
    assert_ok_error(avo_model_open(path, NULL, &opened->model, &error), &error);
    assert_ok_error(avo_engine_open(opened->model, &options, &opened->engine, &error), &error);
}

void fixture_engine_close(fixture_engine *opened) {
    avo_engine_close(opened->engine);
    avo_model_close(opened->model);
}

void fixture_compute(const fixture_engine *opened, const int32_t *ids, uint32_t count,
                     uint32_t vocabulary, float *logits) {
    avo_error error = {0};
    avo_session *session;
    avo_batch *batch;
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(opened->model, &info);
    assert_int_equal(info.vocabulary, vocabulary);
    assert_ok_error(avo_session_open(opened->engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(opened->engine, &batch, &error), &error);
    if (avo_batch_add_scored(batch, session, ids, count, count) != AVO_OK ||
        avo_step(opened->engine, batch) != AVO_OK)
        fail_msg("step: %s", avo_batch_error(batch)->text);
    for (uint32_t i = 0; i < count; i++) {
        const float *row = avo_batch_logits(batch, session, i);
        assert_non_null(row);
        memcpy(logits + (size_t)i * vocabulary, row, vocabulary * sizeof(float));
    }
    avo_batch_close(batch);
    avo_session_close(session);
}
