/* A packed model names the model that it was packed from, so that draft heads of that one are found
 * for it; one with other weights names none. */
#include "support/support.h"

#include "formats/avo.h"
#include "model/heads.h"
#include "pack/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BASE "models/smollm2" /* with the shape of the fixtures of heads */

static void scratch(const char *name, char path[4200]) {
    snprintf(path, 4200, "%s/%s", test_scratch_folder(), name);
}

/* test_fixture_path has one buffer. */
static const char *base_path(void) {
    static char path[4200];
    snprintf(path, sizeof(path), "%s", test_fixture_path(BASE));
    return path;
}

static void pack_as(const char *model, const char *path, pack_type type,
                    const pack_change *change) {
    pack_options options = {.type = type, .threads = 1, .change = change};
    pack_report report;
    avo_error error;
    assert_ok_error(pack_file(model, path, &options, &report, &error), &error);
}

static uint64_t origin_of(const char *path) {
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    uint64_t origin = avo_source_origin(source);
    source_close(source);
    return origin;
}

/* Whether heads of a model with this digest are found for the model at `path`. */
static bool found_for(uint64_t digest, const char *path) {
    avo_model *model;
    heads_config config;
    avo_error error;
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    assert_ok_error(heads_config_read(test_fixture_path("heads/tiny/q8-eagle.safetensors"), NULL,
                                      &config, &error),
                    &error);
    snprintf(config.base_digest, sizeof(config.base_digest), "%016" PRIx64, digest);
    bool found = heads_made_for(&config, model);
    config.vocabulary++; /* the shape counts, too */
    assert_false(heads_made_for(&config, model));
    avo_model_close(model);
    return found;
}

static uint64_t digest_of(const char *path) {
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    uint64_t digest = source_digest(source);
    source_close(source);
    return digest;
}

static void packed_models_find_the_heads_of_their_origin(void **state) {
    (void)state;
    char first[4200], second[4200];
    const char *base = base_path();
    uint64_t digest = digest_of(base);
    scratch("first.avo", first);
    scratch("second.avo", second);
    assert_true(found_for(digest, base));
    for (pack_type type = 0; type < PACK_TYPE_COUNT; type += 3) {
        pack_as(base, first, type, NULL);
        pack_as(first, second, PACK_Q8, NULL);
        assert_int_equal(origin_of(first), digest);
        assert_int_equal(origin_of(second), digest); /* not that of the first pack */
        assert_true(found_for(digest, first));
        assert_true(found_for(digest, second));
        assert_true(found_for(digest_of(second), second)); /* heads trained on the pack itself */
        assert_false(found_for(digest + 1, first));
    }
}

static bool changes(const void *context, const char *name) {
    (void)context;
    return strcmp(name, "blk.0.attn_q.weight") == 0;
}

static void apply(const void *context, const char *name, uint32_t first, uint32_t rows, uint32_t k,
                  float *numbers, float *room) {
    (void)context, (void)name, (void)first, (void)rows, (void)k, (void)room;
    numbers[0] += 1.0f;
}

static void other_weights_are_another_model(void **state) {
    (void)state;
    char path[4200];
    const pack_change change = {.changes = changes, .apply = apply};
    const char *base = base_path();
    scratch("changed.avo", path);
    pack_as(base, path, PACK_Q8, &change);
    assert_int_equal(origin_of(path), 0);
    assert_false(found_for(digest_of(base), path));
}

/* The same file with another note. */
static void write_note(const char *from, const char *path, const char *origin) {
    static avo_content_tensor tensors[256];
    model_source *source;
    avo_writer *writer;
    avo_error error;
    assert_ok_error(source_open(from, NULL, &source, &error), &error);
    assert_true(source->tensor_count <= 256);
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *t = &source->tensors[i];
        tensors[i] = (avo_content_tensor){.type = t->type,
                                          .layout = t->layout,
                                          .rank = t->rank,
                                          .shape = {t->shape[0], t->shape[1]}};
        assert_true(t->name.size < sizeof(tensors[i].name));
        memcpy(tensors[i].name, t->name.data, t->name.size);
    }
    avo_note note = {TEXT_LITERAL(AVO_ORIGIN_KEY), text_from(origin)};
    avo_content content = {.config = &source->config,
                           .generation = &source->generation,
                           .tokenizer = source->tokenizer.data,
                           .chat_template = source->chat_template,
                           .notes = &note,
                           .note_count = 1,
                           .tensors = tensors,
                           .tensor_count = source->tensor_count};
    assert_ok_error(avo_writer_open(NULL, path, &content, &writer, &error), &error);
    for (uint32_t i = 0; i < source->tensor_count; i++)
        assert_ok_error(avo_writer_append(writer, source->tensors[i].data,
                                          (size_t)source->tensors[i].bytes, &error),
                        &error);
    assert_ok_error(avo_writer_commit(writer, &error), &error);
    source_close(source);
}

static void notes_that_are_no_digest_say_nothing(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t origin;
    } cases[] = {{"c04b32e534923261", 0xc04b32e534923261},
                 {"ffffffffffffffff", UINT64_MAX},
                 {"0000000000000000", 0},
                 {"C04B32E534923261", 0},
                 {"c04b32e53492326", 0},
                 {"c04b32e5349232610", 0},
                 {"c04b32e53492326g", 0},
                 {" 04b32e534923261", 0},
                 {"-1", 0},
                 {"", 0}};
    char from[4200], path[4200];
    scratch("from.avo", from);
    scratch("noted.avo", path);
    pack_as(base_path(), from, PACK_Q8, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_note(from, path, cases[i].text);
        assert_int_equal(origin_of(path), cases[i].origin);
        assert_int_equal(found_for(cases[i].origin, path), cases[i].origin != 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_models_find_the_heads_of_their_origin),
        cmocka_unit_test(other_weights_are_another_model),
        cmocka_unit_test(notes_that_are_no_digest_say_nothing),
    };
    return cmocka_run_group_tests_name("pack/origin", tests, NULL, NULL);
}
