/* Whole models with one number of the file changed, sums made right: refused, or computed to the
 * last position. What an assert would stop, or a sanitizer see, ends this test. */
#include "support/support.h"

#include "../../fuzz/fuzz_model.h"
#include "base/file.h"

#include <stdio.h>

static const char *const seeds[] = {"opt.avo",         "phi3.avo",    "gemma3-q4.avo", "llama.gguf",
                                    "qwen2-yarn.gguf", "gemma3.gguf", "phi3.gguf",     "gpt2.gguf"};

typedef struct seed {
    file_map map;
    uint8_t *copy;
    bool avo;
} seed;

static void seed_open(seed *seed, const char *name) {
    char path[4200];
    avo_error error;
    snprintf(path, sizeof(path), "%s/fuzz/corpus/model/%s", AVO_SOURCE_FOLDER, name);
    assert_ok_error(file_map_open(path, &seed->map, &error), &error);
    seed->copy = malloc(seed->map.bytes.size);
    assert_non_null(seed->copy);
    seed->avo = memcmp(seed->map.bytes.data, AVO_MAGIC, 8) == 0;
}

static void seed_close(seed *seed) {
    free(seed->copy);
    file_map_close(&seed->map);
}

/* The seed with `width` bytes at `at` changed. */
static model_outcome run_changed(seed *seed, size_t at, const void *value, size_t width) {
    memcpy(seed->copy, seed->map.bytes.data, seed->map.bytes.size);
    memcpy(seed->copy + at, value, width);
    if (seed->avo)
        avo_resum(seed->copy, seed->map.bytes.size);
    return model_run(seed->copy, seed->map.bytes.size);
}

static void seeds_compute(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        seed seed;
        seed_open(&seed, seeds[i]);
        if (run_changed(&seed, 0, seed.map.bytes.data, 1) != MODEL_COMPUTED)
            fail_msg("%s was not computed", seeds[i]);
        seed_close(&seed);
    }
}

/* Where the numbers of a file end and weights begin. */
static size_t front_of(const seed *seed) {
    if (seed->avo) {
        avo_header header;
        memcpy(&header, seed->map.bytes.data, sizeof(header));
        return (size_t)header.section[AVO_NOTES].offset;
    }
    memory_file file = {"seed", seed->map.bytes};
    model_source *source;
    avo_error error;
    assert_ok_error(source_open_memory(&file, 1, NULL, &source, &error), &error);
    size_t front = (size_t)(source->tensors[0].data - seed->map.bytes.data);
    source_close(source);
    return front;
}

/* Header and configuration of a .avo, metadata and tensor list of a GGUF: integers and floats at
 * values that are small, large and none. */
static void changed_numbers_are_refused_or_computed(void **state) {
    (void)state;
    static const uint32_t words[] = {0, 1, 3, 66, 0x7fffffff, 0xffffffff};
    static const double numbers[] = {0, -1, 1, 1e300, NAN, INFINITY};
    size_t outcomes[3] = {0};
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        seed seed;
        seed_open(&seed, seeds[i]);
        size_t front = front_of(&seed);
        /* A .avo's fields are aligned, a GGUF's are not; steps of three find most of them. */
        for (size_t at = 8; at + 8 <= front; at += seed.avo ? 4 : 3) {
            for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
                outcomes[run_changed(&seed, at, &words[w], 4)]++;
            for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]) && seed.avo; n++)
                outcomes[run_changed(&seed, at, &numbers[n], 8)]++;
        }
        seed_close(&seed);
    }
    print_message("%zu refused, %zu too large, %zu computed\n", outcomes[0], outcomes[1],
                  outcomes[2]);
    assert_true(outcomes[MODEL_REFUSED] > 1000 && outcomes[MODEL_COMPUTED] > 1000);
}

/* The file that once wrapped the context and met an assert in the first step. */
static void a_position_offset_past_the_table_is_refused(void **state) {
    (void)state;
    seed seed;
    seed_open(&seed, "opt.avo");
    avo_header header;
    memcpy(&header, seed.map.bytes.data, sizeof(header));
    size_t at =
        (size_t)header.section[AVO_CONFIG].offset + offsetof(avo_config_record, position_offset);
    for (uint32_t offset = 0; offset < 80; offset++) {
        model_outcome outcome = run_changed(&seed, at, &offset, sizeof(offset));
        assert_int_equal(outcome, offset <= 2 ? MODEL_COMPUTED : MODEL_REFUSED);
    }
    seed_close(&seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_compute),
        cmocka_unit_test(changed_numbers_are_refused_or_computed),
        cmocka_unit_test(a_position_offset_past_the_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
