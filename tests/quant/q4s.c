/* The quality of Q4R, against the bounds of docs/format.md, and what back ends rely on: the product
 * of multiplier and number fits int8. bench_quant prints the same errors with more digits. */
#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "quant/search_q4r.h"

#include <math.h>

static double gaussian_at(uint64_t stream, uint64_t index) {
    double radius = sqrt(-2 * log(1 - random_uniform_at(1, stream, 2 * index)));
    return radius * cos(6.283185307179586 * random_uniform_at(1, stream, 2 * index + 1));
}

static double student_at(uint64_t index) {
    double square = 0;
    for (uint64_t i = 0; i < 5; i++)
        square += gaussian_at(2, 5 * index + i) * gaussian_at(2, 5 * index + i);
    return gaussian_at(3, index) / sqrt(square / 5);
}

/* Adds the squared error of `count` numbers to *error, and their squares to *energy. */
static void add_super(const float *source, size_t count, double *error, double *energy) {
    q4r_super found;
    search_q4r(source, count, &found);
    float scale = quant_f16_to_f32(found.scale);
    assert_true(scale >= 0 && isfinite(scale));
    for (size_t i = 0; i < count; i++) {
        int level = found.multiplier[i / Q4R_SUB] * found.number[i];
        assert_in_range(level + 120, 0, 240);
        assert_in_range(found.number[i] + 8, 0, 15);
        double difference = (double)source[i] - scale * (float)level;
        *error += difference * difference;
        *energy += (double)source[i] * source[i];
    }
}

static void random_numbers_keep_the_bounds(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        double error = 0, energy = 0;
        float source[Q4R_SUPER];
        for (uint64_t super = 0; super < 400; super++) {
            for (uint64_t i = 0; i < Q4R_SUPER; i++)
                source[i] = (float)(0.02 * (kind == 0 ? gaussian_at(1, super * 256 + i)
                                                      : student_at(super * 256 + i)));
            add_super(source, Q4R_SUPER, &error, &energy);
        }
        print_message("%s: %.5f\n", kind == 0 ? "gaussian" : "student t5", error / energy);
        assert_true(error / energy < (kind == 0 ? 0.0053 : 0.0078));
    }
}

/* The first layer's query matrix of stories15M: 288 × 288 behind embedding and norms. */
static void real_weights_keep_the_bound(void **state) {
    (void)state;
    const char *path = test_data_path("models/stories15M/stories15M.bin");
    skip_without(path, "stories15M.bin");
    file_map map;
    avo_error text;
    assert_ok_error(file_map_open(path, &map, &text), &text);
    enum { WIDTH = 288, VOCABULARY = 32000, LAYERS = 6 };
    const float *weights = (const float *)(const void *)(map.bytes.data + 28) +
                           (size_t)VOCABULARY * WIDTH + LAYERS * WIDTH;
    double error = 0, energy = 0;
    for (size_t row = 0; row < WIDTH; row++) {
        add_super(weights + row * WIDTH, 256, &error, &energy);
        add_super(weights + row * WIDTH + 256, WIDTH - 256, &error, &energy);
    }
    print_message("stories15M: %.5f\n", error / energy);
    assert_true(error / energy < 0.0054);
    file_map_close(&map);
}

/* Numbers that the format holds exactly come back exactly. */
static void representable_numbers_are_found(void **state) {
    (void)state;
    float source[32];
    for (int i = 0; i < 32; i++)
        source[i] = 0.5f * (float)(i < 16 ? 15 * (i % 16 - 8) : -4 * (i % 16 - 8));
    double error = 0, energy = 0;
    add_super(source, 32, &error, &energy);
    assert_true(error == 0);
    /* one number alone, in a sub-block that is not full */
    float lonely[3] = {0, -3.25f, 0};
    q4r_super found;
    search_q4r(lonely, 3, &found);
    float value = quant_f16_to_f32(found.scale) * (float)(found.multiplier[0] * found.number[1]);
    assert_true(fabsf(value + 3.25f) < 0.01f);
    assert_int_equal(found.number[0], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_keep_the_bounds),
        cmocka_unit_test(real_weights_keep_the_bound),
        cmocka_unit_test(representable_numbers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
