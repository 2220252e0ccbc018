/* Files of draft heads: every field and tensor that does not fit is refused by name, and so is a
 * file that was cut or changed anywhere. */
#include "support/support.h"

#include "base/buffer.h"
#include "model/heads.h"
#include "support/heads.h"

#include <stdio.h>
#include <stdlib.h>

static avo_model *open_model(const avo_allocator *allocator) {
    avo_model *model;
    avo_error error;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = allocator;
    assert_ok_error(avo_model_open(test_fixture_path("models/smollm2"), &options, &model, &error),
                    &error);
    return model;
}

static bytes_view read_fixture(const char *name, file_map *map) {
    char relative[96];
    avo_error error;
    snprintf(relative, sizeof(relative), "heads/tiny/%s.safetensors", name);
    assert_ok_error(file_map_open(test_fixture_path(relative), map, &error), &error);
    return map->bytes;
}

/* A copy whose header has `to` in the place of the first `from`; the data stays as it is. */
static bytes_view changed(bytes_view file, const char *from, const char *to) {
    uint64_t header;
    memcpy(&header, file.data, sizeof(header));
    const char *text = (const char *)file.data + 8;
    const char *at = memmem(text, (size_t)header, from, strlen(from));
    if (at == NULL)
        fail_msg("the header has no %s", from);
    size_t before = (size_t)(at - text), behind = file.size - 8 - before - strlen(from);
    uint64_t longer = header + strlen(to) - strlen(from);
    size_t bytes = 8 + before + strlen(to) + behind;
    uint8_t *copy = test_take_exact(bytes, 64);
    memcpy(copy, &longer, 8);
    memcpy(copy + 8, text, before);
    memcpy(copy + 8 + before, to, strlen(to));
    memcpy(copy + 8 + before + strlen(to), at + strlen(from), behind);
    return (bytes_view){copy, bytes};
}

typedef struct refusal {
    const char *file, *from, *to, *text;
    avo_status status;
} refusal;

#define F AVO_ERROR_FORMAT
#define A AVO_ERROR_ARGUMENT
#define U AVO_ERROR_UNSUPPORTED
static const refusal refusals[] = {
    {"f32-eagle", "avocet.heads", "avocet.other", "no draft heads", F},
    {"f32-eagle", "{\\\"version", "[\\\"version", "avocet.heads", F},
    {"f32-eagle", "\\\"version\\\": \\\"1\\\"", "\\\"version\\\": \\\"2\\\"",
     "version is \"2\", must be \"1\"", U},
    {"f32-eagle", "\\\"eagle\\\"", "\\\"beagle\\\"", "kind is \"beagle\"", U},
    {"f32-eagle", "\\\"width\\\": 36", "\\\"width\\\": 0", "width", F},
    {"f32-eagle", "\\\"width\\\": 36", "\\\"width\\\": 40", "width is 40, must be 36", A},
    {"f32-eagle", "\\\"width\\\": 36", "\\\"breadth\\\": 36", "has no width", F},
    {"f32-eagle", "\\\"layers\\\": 3", "\\\"layers\\\": 2", "taps[2]", F},
    {"f32-eagle", "\\\"vocabulary\\\": 97", "\\\"vocabulary\\\": 98",
     "vocabulary is 98, must be 97", A},
    {"f32-eagle", "\\\"frequent\\\": 61", "\\\"frequent\\\": 60", "\"frequent\" has shape", F},
    {"f32-eagle", "\\\"frequent\\\": 61", "\\\"frequent\\\": 98", "frequent", F},
    {"f32-eagle", "\\\"norm_epsilon\\\": 0.0003", "\\\"norm_epsilon\\\": -1", "norm_epsilon", F},
    {"f32-eagle", "\\\"55bbf", "\\\"xyzzy", "base_sha256 is \"xyzzy", F},
    {"f32-eagle", "[1, 2, 3]", "[]", "taps must be a list of 1 to", F},
    {"f32-eagle", "[1, 2, 3]", "[1, 3, 2]", "taps[2] must be a layer from 4", F},
    {"f32-eagle", "[1, 2, 3]", "[0, 1, 2]", "the last of taps is 2, must be layers (3)", F},
    {"f32-eagle", "[1, 2, 3]", "[1, 3]", "eagle.tap_norm.weight", F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"depth\\\": 0", "depth", F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"depth\\\": 2", "eagle.layer.1.attn_q.weight", F},
    {"f32-eagle", "\\\"window\\\": 0", "\\\"window\\\": -1", "window", F},
    {"f32-eagle", "\\\"attention_heads\\\": 3", "\\\"attention_heads\\\": 6",
     "eagle.layer.0.attn_q.weight", F},
    {"f32-eagle", "\\\"kv_heads\\\": 1", "\\\"kv_heads\\\": 2", "must be a multiple of kv_heads",
     F},
    {"f32-eagle", "\\\"kv_heads\\\": 1", "\\\"kv_heads\\\": 4", "kv_heads", F},
    {"f32-eagle", "\\\"head_size\\\": 12", "\\\"head_size\\\": 11", "head_size is 11", F},
    {"f32-eagle", "\\\"feed_forward\\\": 52", "\\\"feed_forward\\\": 53",
     "eagle.layer.0.ffn_gate.weight", F},
    {"f32-eagle", "\\\"rope_base\\\": 100000.0", "\\\"rope_base\\\": 0", "rope_base", F},
    {"f32-eagle", "eagle.fuse.weight", "eagle.fuze.weight", "\"eagle.fuse.weight\" is missing", F},
    {"q8-eagle", "eagle.fuse.scale", "eagle.fuse.scala", "\"eagle.fuse.scale\" is missing", F},
    {"deep-eagle", "eagle.fuse.minimum", "eagle.fuse.maximum", "\"eagle.fuse.minimum\" is missing",
     F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"form\\\": \\\"x\\\", \\\"depth\\\": 1", "form is \"x\"",
     U},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"form\\\": \\\"eagle\\\", \\\"depth\\\": 1",
     "taps has 3 layers, form \"eagle\" has one", F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"form\\\": \\\"eagle3\\\", \\\"depth\\\": 1",
     "eagle.layer.0.attn_q.weight", F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"bias\\\": true, \\\"depth\\\": 1",
     "form \"avocet\" has no bias", F},
    {"f32-eagle", "\\\"depth\\\": 1", "\\\"output\\\": true, \\\"depth\\\": 1",
     "\"output.weight\" is missing", F},
    {"f32-medusa", "\\\"heads\\\": 4", "\\\"heads\\\": 4, \\\"blocks\\\": 2",
     "blocks is 2, must be 1", F},
    {"f32-medusa", "\\\"heads\\\": 4", "\\\"heads\\\": 4, \\\"bias\\\": true",
     "\"medusa.0.state.bias\" is missing", F},
    {"f32-medusa", "\\\"heads\\\": 4", "\\\"heads\\\": 9", "heads", F},
    {"f32-medusa", "\\\"heads\\\": 4", "\\\"heads\\\": 3", "the file has 9 tensors", F},
    {"f32-medusa", "\\\"token\\\": true", "\\\"token\\\": 1", "token", F},
    {"f32-medusa", "\\\"token\\\": true", "\\\"token\\\": false", "the file has 9 tensors", F},
    {"f32-layers", "output_norm.weight", "outpat_norm.weight", "\"output_norm.weight\" is missing",
     F}};

static void wrong_fields_are_refused(void **state) {
    (void)state;
    avo_model *model = open_model(NULL);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const refusal *wanted = &refusals[i];
        file_map map;
        avo_error error = {0};
        avo_heads *heads;
        bytes_view file = changed(read_fixture(wanted->file, &map), wanted->from, wanted->to);
        avo_status status = heads_open_memory(model, file, "heads.file", &heads, &error);
        if (status != wanted->status || strstr(error.text, wanted->text) == NULL ||
            strstr(error.text, "heads.file") == NULL)
            fail_msg("%s → %s: status %d, \"%s\"", wanted->from, wanted->to, (int)status,
                     error.text);
        assert_null(heads);
        free((void *)(uintptr_t)file.data);
        file_map_close(&map);
    }
    avo_model_close(model);
}

/* Numbers of the data: tokens out of order or range, norms that are none. */
static void wrong_numbers_are_refused(void **state) {
    (void)state;
    avo_model *model = open_model(NULL);
    avo_error error;
    avo_heads *heads;
    file_map map;
    bytes_view file = read_fixture("f32-layers", &map);
    uint8_t *copy = test_take_exact(file.size, 64);
    avo_heads *good;
    assert_ok_error(heads_open_memory(model, file, "heads.file", &good, &error), &error);
    size_t tokens = good->config.frequent * sizeof(int32_t);
    const uint8_t *at = memmem(file.data, file.size, good->frequent, tokens);
    const uint8_t *norm = memmem(file.data, file.size, good->layers.final_norm.weight, 36 * 4);
    assert_non_null(at);
    assert_non_null(norm);
    const int32_t wrong[] = {-1, 97, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        memcpy(copy, file.data, file.size);
        memcpy(copy + (at - file.data) + tokens - 4, &wrong[i], 4);
        assert_refused(heads_open_memory(model, (bytes_view){copy, file.size}, "x", &heads, &error),
                       F, &error, "frequent[60] is");
    }
    const uint32_t nan = 0x7fc00000;
    memcpy(copy, file.data, file.size);
    memcpy(copy + (norm - file.data), &nan, 4);
    assert_refused(heads_open_memory(model, (bytes_view){copy, file.size}, "x", &heads, &error), F,
                   &error, "contains NaN or Inf");
    free(copy);
    avo_heads_close(good);
    file_map_close(&map);
    avo_model_close(model);
}

/* Cut anywhere in the header and at the end, and with every byte of the header changed: refused or
 * opened, but nothing is read outside (sanitizers look). */
static void damaged_files(void **state) {
    (void)state;
    avo_model *model = open_model(NULL);
    file_map map;
    avo_error error;
    avo_heads *heads;
    bytes_view file = read_fixture("q8-medusa", &map);
    uint64_t header;
    memcpy(&header, file.data, sizeof(header));
    for (size_t size = 0; size < file.size; size += size < header + 16 ? 1 : 997) {
        uint8_t *copy = test_take_exact(size + (size == 0), 64);
        memcpy(copy, file.data, size);
        assert_int_not_equal(
            heads_open_memory(model, (bytes_view){copy, size}, "x", &heads, &error), AVO_OK);
        free(copy);
    }
    uint8_t *copy = test_take_exact(file.size, 64);
    for (size_t at = 0; at < header + 8; at++) {
        memcpy(copy, file.data, file.size);
        copy[at] ^= (uint8_t)(1u << at % 8);
        if (heads_open_memory(model, (bytes_view){copy, file.size}, "x", &heads, &error) == AVO_OK)
            avo_heads_close(heads);
    }
    free(copy);
    file_map_close(&map);
    avo_model_close(model);
}

static void every_allocation_fails(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    avo_model *model = open_model(&counter.allocator);
    size_t live = counter.live;
    file_map map;
    avo_error error;
    avo_heads *heads;
    bytes_view file = read_fixture("deep-eagle", &map);
    for (size_t fail = 1;; fail++) {
        counter.allocations = 0;
        counter.fail_at = fail;
        avo_status status = heads_open_memory(model, file, "x", &heads, &error);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_int_equal(counter.live, live);
    }
    counter.fail_at = 0;
    avo_heads_close(heads);
    assert_int_equal(counter.live, live);
    file_map_close(&map);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_are_refused), cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(damaged_files), cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
