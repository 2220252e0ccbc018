/* The quality of Q4R, against the bounds of docs/format.md, and what back ends rely on: the product
 * of multiplier and number fits int8. bench_quant prints the same errors with more digits. */
#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "quant/search_q4r.h"
#include "support/encode.h"

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
    search_q4r(source, NULL, count, &found);
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
    search_q4r(lonely, NULL, 3, &found);
    float value = quant_f16_to_f32(found.scale) * (float)(found.multiplier[0] * found.number[1]);
    assert_true(fabsf(value + 3.25f) < 0.01f);
    assert_int_equal(found.number[0], 0);
}

/* The rotation by its definition: entry (i, j) is ±1/√n, negative where i & j has an odd number of
 * bits. Its own inverse, whatever lengths k is made of. */
static void rotation_is_hadamard_and_its_own_inverse(void **state) {
    (void)state;
    const size_t lengths[] = {16, 32, 48, 112, 240, 256, 272, 288, 576};
    const size_t lanes[] = {1, 3, 16};
    static float x[576 * 16], rotated[576 * 16];
    for (size_t l = 0; l < 9; l++)
        for (size_t n = 0; n < 3; n++) {
            size_t k = lengths[l], width = lanes[n];
            for (size_t i = 0; i < k * width; i++)
                rotated[i] = x[i] = (float)gaussian_at(4 + l, i);
            quant_rotate(rotated, k, width);
            for (size_t begin = 0, size = 256; begin < k; begin += size) {
                for (size = 256; size > k - begin;)
                    size /= 2;
                for (size_t at = 0; at < size * width; at++) {
                    double wanted = 0;
                    for (size_t j = 0; j < size; j++) {
                        float term = x[(begin + j) * width + at % width];
                        wanted += __builtin_parityll(at / width & j) ? -term : term;
                    }
                    wanted /= sqrt((double)size);
                    assert_true(fabs(rotated[begin * width + at] - wanted) < 2e-6);
                }
            }
            quant_rotate(rotated, k, width);
            for (size_t i = 0; i < k * width; i++)
                assert_true(fabsf(rotated[i] - x[i]) < 2e-6f);
        }
}

/* Matrices whose k ends anywhere: the padding takes part in the rotation, the error stays that of
 * the format. One lonely number shows that what is decoded is not the rotated matrix. */
static void any_k_comes_back(void **state) {
    (void)state;
    const uint32_t lengths[] = {1, 5, 15, 16, 17, 31, 100, 255, 257, 300, 577};
    static float source[16 * 577], row[577];
    static uint8_t panel[16 * 577 * 4];
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        uint32_t k = lengths[l];
        uint64_t bytes;
        assert_true(weight_panel_bytes(QUANT_Q4R, k, &bytes) && bytes <= sizeof(panel));
        for (size_t i = 0; i < 16 * (size_t)k; i++)
            source[i] = (float)gaussian_at(20 + l, i);
        memset(source, 0, k * sizeof(float));
        source[k - 1] = 2.5f;
        encode_panel(QUANT_Q4R, source, 16, k, false, panel);
        weight_view view = {
            .type = QUANT_Q4R, .layout = QUANT_LAYOUT_PANELS, .rows = 16, .k = k, .data = panel};
        double error = 0, energy = 0;
        for (size_t r = 0; r < 16; r++) {
            weight_decode_row(&view, r, row);
            for (size_t i = 0; i < k; i++) {
                error += pow((double)row[i] - source[r * k + i], 2);
                energy += pow(source[r * k + i], 2);
            }
            if (r == 0)
                assert_true(fabsf(row[k - 1] - 2.5f) < 0.01f && error < 1e-4);
        }
        assert_true(error / energy < 0.006);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_keep_the_bounds),
        cmocka_unit_test(real_weights_keep_the_bound),
        cmocka_unit_test(representable_numbers_are_found),
        cmocka_unit_test(rotation_is_hadamard_and_its_own_inverse),
        cmocka_unit_test(any_k_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
