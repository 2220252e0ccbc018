/* Packed adapters: the same digest, modules and numbers as what they were made from; refused where
 * the base is another one or a byte is wrong. */
#include "support/support.h"

#include "adapters/adapters_int.h"
#include "adapters/packed_int.h"
#include "base/hash.h"
#include "model/adapters.h"
#include "support/adapter_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static avo_model *open_model(const char *path) {
    avo_error error = {0};
    avo_model *model;
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    return model;
}

static avo_adapter *open_adapter(const avo_model *model, const char *path, const char *type) {
    avo_error error = {0};
    avo_adapter *adapter;
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    options.type = type;
    assert_ok_error(avo_adapter_open(model, path, &options, &adapter, &error), &error);
    return adapter;
}

static const char *packed_path(void) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/one.avoa", test_scratch_folder());
    return path;
}

static void pack(const avo_adapter *adapter) {
    avo_error error = {0};
    assert_ok_error(avo_adapter_pack(adapter, packed_path(), &error), &error);
}

static void expect_equal(const avo_adapter *a, const avo_adapter *b) {
    avo_adapter_info x = AVO_ADAPTER_INFO_INIT, y = AVO_ADAPTER_INFO_INIT;
    avo_adapter_describe(a, &x);
    avo_adapter_describe(b, &y);
    assert_string_equal(x.digest, y.digest);
    assert_string_equal(x.type, y.type);
    assert_string_equal(x.method, y.method);
    assert_int_equal(x.modules_matched, y.modules_matched);
    assert_int_equal(x.modules_expected, y.modules_expected);
    assert_int_equal(x.rank_max, y.rank_max);
    assert_int_equal(x.bytes, y.bytes);
    assert_int_equal(a->view.gains, b->view.gains);
    assert_int_equal(a->view.rank, b->view.rank);
    assert_int_equal(a->view.norms, b->view.norms);
    avo_adapter_module m = AVO_ADAPTER_MODULE_INIT, n = AVO_ADAPTER_MODULE_INIT;
    for (size_t i = 0; avo_adapter_module_at(a, i, &m); i++) {
        assert_true(avo_adapter_module_at(b, i, &n));
        assert_string_equal(m.name, n.name);
        assert_string_equal(m.kind, n.kind);
        assert_int_equal(m.rank, n.rank);
        assert_true(m.scale == n.scale && m.norm == n.norm);
    }
}

static void every_fixture_comes_back(void **state) {
    (void)state;
    char names[ADAPTER_FIXTURES_MAX][64];
    static const char *const types[] = {"q8", "f16", "f32"};
    size_t count = adapter_fixtures(names);
    for (size_t i = 0; i < count; i++) {
        adapter_fixture fixture;
        adapter_fixture_open(&fixture, names[i]);
        avo_model *model = open_model(fixture.base);
        for (int t = 0; t < 3; t++) {
            avo_adapter *adapter = open_adapter(model, fixture.path, types[t]);
            pack(adapter);
            avo_adapter *again = open_adapter(model, packed_path(), NULL);
            expect_equal(adapter, again);
            assert_true((uintptr_t)again->view.layer != 0);
            avo_adapter_close(again);
            avo_adapter_close(adapter);
        }
        avo_model_close(model);
        adapter_fixture_close(&fixture);
    }
}

/* Plain LoRA fits a base in other types; what depends on weights or on the order of rows does not.
 */
static void the_base_must_fit(void **state) {
    (void)state;
    avo_error error = {0};
    avo_adapter *none = NULL;
    avo_model *folder = open_model(test_fixture_path("models/llama2"));
    avo_model *twin = open_model(test_fixture_path("models/llama2.gguf"));
    avo_model *phi = open_model(test_fixture_path("models/phi3"));
    avo_model *phi_twin = open_model(test_fixture_path("models/phi3.gguf"));
    avo_adapter *adapter = open_adapter(folder, test_fixture_path("adapters/plain"), NULL);
    pack(adapter);
    assert_refused(avo_adapter_open(twin, packed_path(), NULL, &none, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "another row order");
    assert_refused(avo_adapter_open(phi, packed_path(), NULL, &none, &error), AVO_ERROR_FORMAT,
                   &error, "packed for llama with 2 layers, width");
    avo_adapter_close(adapter);
    adapter = open_adapter(phi, test_fixture_path("adapters/fused"), NULL);
    pack(adapter);
    avo_adapter *other = open_adapter(phi_twin, packed_path(), NULL);
    expect_equal(adapter, other);
    avo_adapter_close(other);
    avo_adapter_close(adapter);
    avo_model *gpt2 = open_model(test_fixture_path("models/gpt2"));
    avo_model *gpt2_twin = open_model(test_fixture_path("models/gpt2.gguf"));
    adapter = open_adapter(gpt2, test_fixture_path("adapters/dora-conv1d"), NULL);
    pack(adapter);
    assert_refused(avo_adapter_open(gpt2_twin, packed_path(), NULL, &none, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "another base model");
    avo_adapter_close(adapter);
    avo_model_close(gpt2);
    avo_model_close(gpt2_twin);
    avo_model_close(folder);
    avo_model_close(twin);
    avo_model_close(phi);
    avo_model_close(phi_twin);
}

/* One bit of one norm: another base, though every matrix is the same. */
static void another_norm_is_another_base(void **state) {
    (void)state;
    avo_error error = {0};
    file_map map;
    char path[4096];
    snprintf(path, sizeof(path), "%s/other.gguf", test_scratch_folder());
    avo_model *model = open_model(test_fixture_path("models/gpt2.gguf"));
    avo_adapter *adapter = open_adapter(model, test_fixture_path("adapters/dora-conv1d"), NULL);
    pack(adapter);
    avo_adapter_close(adapter);
    adapter = open_adapter(model, packed_path(), NULL);
    avo_adapter_close(adapter);
    const source_tensor *norm = source_find(model->source, TEXT_LITERAL("output_norm.weight"));
    assert_non_null(norm);
    assert_ok_error(file_map_open(test_fixture_path("models/gpt2.gguf"), &map, &error), &error);
    const uint8_t *at = memmem(map.bytes.data, map.bytes.size, norm->data, (size_t)norm->bytes);
    assert_non_null(at);
    uint8_t *copy = malloc(map.bytes.size);
    assert_non_null(copy);
    memcpy(copy, map.bytes.data, map.bytes.size);
    copy[(size_t)(at - map.bytes.data) + (size_t)norm->bytes / 2] ^= 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(copy, 1, map.bytes.size, file), map.bytes.size);
    assert_int_equal(fclose(file), 0);
    free(copy);
    file_map_close(&map);
    avo_model_close(model);
    model = open_model(path);
    assert_refused(avo_adapter_open(model, packed_path(), NULL, &adapter, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "another base model");
    avo_model_close(model);
}

/* ---- Damage ---- */

typedef struct hostile {
    avo_model *model;
    adapter_base base;
    uint8_t *bytes; /* at a multiple of 64, exactly as long as the file */
    size_t size;
} hostile;

static void hostile_open_as(hostile *h, const char *base, const char *adapter_path,
                            const char *type) {
    h->model = open_model(test_fixture_path(base));
    h->base = model_adapter_base(h->model);
    avo_adapter *adapter = open_adapter(h->model, test_fixture_path(adapter_path), type);
    pack(adapter);
    avo_adapter_close(adapter);
    avo_error error = {0};
    file_map map;
    assert_ok_error(file_map_open(packed_path(), &map, &error), &error);
    h->size = map.bytes.size;
    h->bytes = test_take_exact(h->size, 64);
    memcpy(h->bytes, map.bytes.data, h->size);
    file_map_close(&map);
}

static void hostile_open(hostile *h, const char *base, const char *adapter_path) {
    hostile_open_as(h, base, adapter_path, "q8");
}

static void hostile_close(hostile *h) {
    free(h->bytes);
    avo_model_close(h->model);
}

static bool opens_saying(const hostile *h, const uint8_t *bytes, size_t size, avo_error *said) {
    avo_error error = {0};
    avo_adapter *adapter;
    test_allocator counter;
    test_allocator_init(&counter);
    avo_status status = adapter_open_memory(&h->base, (bytes_view){0}, (bytes_view){bytes, size},
                                            "packed", NULL, &counter.allocator, &adapter, &error);
    assert_true(status == AVO_OK || error.text[0] != '\0');
    adapter_release(adapter);
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes < ((size_t)64 << 20));
    if (said != NULL)
        *said = error;
    return status == AVO_OK;
}

static bool opens(const hostile *h, const uint8_t *bytes, size_t size) {
    return opens_saying(h, bytes, size, NULL);
}

static size_t head_bytes(const hostile *h) {
    const packed_header *header = (const packed_header *)(const void *)h->bytes;
    return sizeof(*header) + header->array_count * sizeof(packed_array) +
           header->module_count * sizeof(packed_module) + header->names_bytes;
}

static void every_truncation_and_bit_is_seen(void **state) {
    (void)state;
    hostile h;
    hostile_open(&h, "models/phi3", "adapters/dora-fused");
    assert_true(opens(&h, h.bytes, h.size));
    for (size_t size = 0; size < h.size; size += size < 1024 ? 1 : 61) {
        uint8_t *cut = test_take_exact(size == 0 ? 1 : size, 64);
        memcpy(cut, h.bytes, size);
        assert_false(opens(&h, cut, size));
        free(cut);
    }
    size_t head = head_bytes(&h);
    const packed_header *header = (const packed_header *)(const void *)h.bytes;
    for (size_t at = 0; at < h.size; at += at < head ? 1 : 37) {
        uint8_t bit = (uint8_t)(1u << at % 8);
        /* Between the tables and the data, and between arrays, nothing is read. */
        bool padding = at >= head && at < header->data_at;
        h.bytes[at] ^= bit;
        bool opened = opens(&h, h.bytes, h.size);
        h.bytes[at] ^= bit;
        if (at < head || (!padding && at == header->data_at))
            assert_false(opened);
    }
    hostile_close(&h);
}

static void sum_again(uint8_t *bytes, size_t head) {
    uint64_t sum = 0;
    memcpy(bytes + offsetof(packed_header, head_sum), &sum, sizeof(sum));
    sum = hash_bytes(bytes, head);
    memcpy(bytes + offsetof(packed_header, head_sum), &sum, sizeof(sum));
}

/* Whoever makes the sums right again must still not get further than the checks. */
static void integers_at_their_extremes_with_right_sums(void **state) {
    (void)state;
    hostile h;
    hostile_open(&h, "models/phi3", "adapters/fused");
    size_t head = head_bytes(&h);
    static const uint32_t values[] = {0,          1,          2,          16,     0x7FFFFFFF,
                                      0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10000};
    size_t refused = 0;
    for (size_t at = 4; at + 4 <= head; at += 4) {
        if (at >= 8 && at < 16)
            continue; /* the sum itself */
        uint32_t kept;
        memcpy(&kept, h.bytes + at, 4);
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]) + 2; i++) {
            uint32_t value = i < sizeof(values) / sizeof(values[0]) ? values[i]
                             : i % 2 == 0                           ? kept - 1
                                                                    : kept + 1;
            memcpy(h.bytes + at, &value, 4);
            sum_again(h.bytes, head);
            refused += !opens(&h, h.bytes, h.size);
        }
        memcpy(h.bytes + at, &kept, 4);
    }
    assert_true(refused > 500);
    hostile_close(&h);
}

static void expect_refused(const hostile *h, size_t head, const char *says) {
    avo_error error;
    sum_again(h->bytes, head);
    bool opened = opens_saying(h, h->bytes, h->size, &error);
    if (opened || strstr(error.text, says) == NULL)
        fail_msg("wanted \"%s\", got %s \"%s\"", says, opened ? "an adapter" : "", error.text);
}

/* The last number of every matrix: of q8, the last scale of its last panel. */
static void numbers_that_are_none_are_refused(void **state) {
    (void)state;
    static const char *const types[] = {"q8", "f16", "f32"};
    static const char *const adapters[][2] = {{"models/phi3", "adapters/fused"},
                                              {"models/llama3", "adapters/saved-tied"}};
    for (int i = 0; i < 6; i++) {
        hostile h;
        hostile_open_as(&h, adapters[i / 3][0], adapters[i / 3][1], types[i % 3]);
        packed_header header;
        memcpy(&header, h.bytes, sizeof(header));
        const packed_array *arrays =
            (const packed_array *)(const void *)(h.bytes + sizeof(packed_header));
        for (uint32_t j = 0; j < header.array_count; j++) {
            uint8_t *end = h.bytes + header.data_at + arrays[j].offset + arrays[j].bytes;
            if (arrays[j].type == QUANT_Q8_0)
                end -= 32; /* the scale of the last block stands in front of it */
            uint8_t kept[2] = {end[-2], end[-1]};
            end[-1] = (uint8_t)(j % 2 == 0 ? 0x7F : 0xFF);
            end[-2] = 0xFF;
            expect_refused(&h, head_bytes(&h), "NaN or Inf");
            end[-2] = kept[0];
            end[-1] = kept[1];
        }
        assert_true(opens(&h, h.bytes, h.size));
        hostile_close(&h);
    }
}

/* Kernels compute an A once for all matrices that name it, so arrays are the same or apart. */
static void arrays_that_overlap_are_refused(void **state) {
    (void)state;
    static const char *const adapters[][2] = {{"models/phi3", "adapters/fused"},
                                              {"models/llama3", "adapters/patterns"}};
    size_t moved = 0;
    for (int i = 0; i < 2; i++) {
        hostile h;
        hostile_open(&h, adapters[i][0], adapters[i][1]);
        packed_header header;
        memcpy(&header, h.bytes, sizeof(header));
        packed_array *arrays = (packed_array *)(void *)(h.bytes + sizeof(packed_header));
        for (uint32_t j = 1; j < header.array_count; j++) {
            uint64_t kept = arrays[j].offset;
            const uint64_t places[] = {arrays[j - 1].offset, arrays[0].offset,
                                       arrays[j - 1].offset + 64};
            for (size_t place = 0; place < 3; place++) {
                bool same = places[place] == arrays[j - 1].offset &&
                            arrays[j].rows == arrays[j - 1].rows && arrays[j].k == arrays[j - 1].k;
                if (same || places[place] >= kept)
                    continue;
                arrays[j].offset = places[place];
                expect_refused(&h, head_bytes(&h), "invalid array offset");
                moved++;
            }
            arrays[j].offset = kept;
        }
        sum_again(h.bytes, head_bytes(&h));
        assert_true(opens(&h, h.bytes, h.size));
        hostile_close(&h);
    }
    assert_true(moved > 20);
}

/* What the file says of its modules must follow from its arrays. */
static void modules_that_the_arrays_do_not_show_are_refused(void **state) {
    (void)state;
    static const char wanted[] = "modules and arrays do not match";
    hostile h;
    hostile_open(&h, "models/phi3", "adapters/dora-fused");
    size_t head = head_bytes(&h);
    packed_header *header = (packed_header *)(void *)h.bytes;
    packed_module *modules = (packed_module *)(void *)(h.bytes + sizeof(*header) +
                                                       header->array_count * sizeof(packed_array));
    char *names = (char *)(modules + header->module_count);
    for (uint32_t i = 0; i < header->module_count; i++) {
        packed_module kept = modules[i];
        modules[i].rank++;
        expect_refused(&h, head, wanted);
        modules[i] = kept;
        modules[i].scale *= 1.5;
        expect_refused(&h, head, wanted);
        modules[i] = kept;
        modules[i].kind = (kept.kind + 1) % PACKED_KINDS;
        expect_refused(&h, head, wanted);
        modules[i] = kept;
        modules[i].index++;
        expect_refused(&h, head, wanted);
        modules[i] = kept;
        names[kept.name_at + kept.name_bytes - 1] ^= 1;
        expect_refused(&h, head, wanted);
        names[kept.name_at + kept.name_bytes - 1] ^= 1;
    }
    header->modules_expected++;
    expect_refused(&h, head, wanted);
    header->modules_expected--;
    header->method = 0;
    expect_refused(&h, head, "DoRA magnitudes, but the");
    hostile_close(&h);
    /* A gain that has lost its matrix: that of q stands where the output's would. */
    hostile_open(&h, "models/tinyllama", "adapters/dora-embedding");
    header = (packed_header *)(void *)h.bytes;
    packed_array *arrays = (packed_array *)(void *)(h.bytes + sizeof(*header));
    uint32_t at = 0;
    while (at < header->array_count && arrays[at].type != 0)
        at++;
    assert_true(at > 0 && at < header->array_count);
    arrays[at].index += 14;
    expect_refused(&h, head_bytes(&h), "a matrix does not fit the model");
    hostile_close(&h);
}

/* Where memory is short, no file is written or a right one. */
static void packing_with_little_memory(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model = open_model(test_fixture_path("models/phi3"));
    adapter_base base = model_adapter_base(model);
    char path[4096];
    snprintf(path, sizeof(path), "%s/short.avoa", test_scratch_folder());
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        avo_adapter *adapter, *again;
        (void)remove(path);
        assert_ok_error(adapter_open(&base, test_fixture_path("adapters/dora-fused"), NULL,
                                     &counter.allocator, &adapter, &error),
                        &error);
        size_t before = counter.allocations;
        counter.fail_at = before + fail_at;
        avo_status status = adapter_write(adapter, path, &error);
        bool enough = counter.allocations < before + fail_at;
        adapter_release(adapter);
        assert_int_equal(counter.live, 0);
        if (status == AVO_OK) {
            assert_ok_error(avo_adapter_open(model, path, NULL, &again, &error), &error);
            avo_adapter_close(again);
        } else {
            assert_int_equal(status, AVO_ERROR_MEMORY);
            assert_int_equal(file_kind_of(path), FILE_MISSING);
        }
        if (enough)
            break;
    }
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_comes_back),
        cmocka_unit_test(the_base_must_fit),
        cmocka_unit_test(another_norm_is_another_base),
        cmocka_unit_test(every_truncation_and_bit_is_seen),
        cmocka_unit_test(integers_at_their_extremes_with_right_sums),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(arrays_that_overlap_are_refused),
        cmocka_unit_test(modules_that_the_arrays_do_not_show_are_refused),
        cmocka_unit_test(packing_with_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
