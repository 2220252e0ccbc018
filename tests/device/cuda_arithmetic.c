/* device/cuda: the arithmetic that kernels share with the processor, against quant/ and plain C. */
#include "support/support.h"

#include "base/random.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/tile.h"

#include <stdlib.h>
#include <string.h>

static void fill(uint8_t *out, size_t bytes, uint64_t stream) {
    for (size_t i = 0; i < bytes; i += sizeof(random_block)) {
        random_block block = random_at(31, stream, i);
        memcpy(out + i, &block, bytes - i < sizeof(block) ? bytes - i : sizeof(block));
    }
}

static void assert_same_float(float a, float b) {
    if (!(a != a && b != b))
        assert_memory_equal(&a, &b, sizeof(a));
}

static void check_unit(quant_type type, const uint8_t *panel, uint32_t k, uint32_t unit) {
    exact_shape shape;
    panel_unit all;
    assert_true(cuda_shape_of(type, &shape));
    panel_unit_read(type, panel, k, unit, &all);
    uint32_t lines = type == QUANT_Q8R ? (k + 15) / 16 * 4 : (k + 3) / 4;
    for (uint32_t lane = 0; lane < QUANT_PANEL_ROWS; lane++) {
        exact_unit own;
        exact_unit_read(&shape, panel, lines, unit, lane, &own);
        for (uint32_t i = 0; i < PANEL_UNIT && unit * PANEL_UNIT + i < k; i++)
            assert_int_equal((int8_t)(own.word[i / 4] >> i % 4 * 8), all.number[i][lane]);
        for (int half = 0; half < 2; half++) {
            assert_same_float(own.scale[half], all.scale[half][lane]);
            if (shape.minimum)
                assert_same_float(own.minimum[half], all.minimum[half][lane]);
        }
    }
    assert_int_equal(shape.minimum, panels_minimum(type));
    assert_int_equal(shape.halves, panels_sub_blocks(type));
}

static void units_are_read_as_everywhere(void **state) {
    (void)state;
    static const quant_type types[] = {
        QUANT_Q8C,   QUANT_Q8R,   QUANT_Q8_0, QUANT_Q8B,  QUANT_Q4_0,   QUANT_Q4_1,
        QUANT_Q4B64, QUANT_Q4M64, QUANT_Q5_0, QUANT_Q5_1, QUANT_IQ4_NL, QUANT_MXFP4,
        QUANT_Q4_K,  QUANT_Q5_K,  QUANT_Q6_K, QUANT_Q3_K, QUANT_Q2_K,   QUANT_IQ4_XS};
    static const uint32_t lengths[] = {1, 20, 32, 100, 256, 512};
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
        for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
            uint64_t bytes;
            uint32_t k = lengths[n];
            if (!panels_bytes(types[t], k, &bytes))
                continue;
            uint8_t *panel = aligned_alloc(64, (size_t)bytes);
            assert_non_null(panel);
            fill(panel, (size_t)bytes, t * 100 + n);
            for (uint32_t unit = 0; unit * PANEL_UNIT < k; unit++)
                check_unit(types[t], panel, k, unit);
            free(panel);
        }
    /* Every type of panels has a kernel. */
    for (uint32_t type = 0; type < 256; type++)
        if (quant_info_of(type) != NULL && panels_known((quant_type)type))
            assert_int_not_equal(cuda_linear_kernel((quant_type)type), CUDA_KERNELS);
}

static void q4r_sums_are_exact(void **state) {
    (void)state;
    static const uint32_t lengths[] = {16, 112, 128, 144, 256, 400, 512};
    for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
        uint64_t bytes;
        uint32_t k = lengths[n];
        _Alignas(16) int8_t x[512];
        _Alignas(16) int32_t sums[32] = {0};
        assert_true(panels_bytes(QUANT_Q4R, k, &bytes));
        uint8_t *panel = aligned_alloc(64, (size_t)bytes);
        assert_non_null(panel);
        fill(panel, (size_t)bytes, n);
        fill((uint8_t *)x, sizeof(x), 77 + n);
        for (uint32_t i = 0; i < 512; i++)
            sums[i / 16] += x[i];
        for (uint32_t lane = 0; lane < 16; lane++)
            for (uint32_t begin = 0; begin < k; begin += 256) {
                uint32_t left = k - begin < 256 ? k - begin : 256;
                int32_t wanted = 0;
                for (uint32_t i = 0; i < left; i++) {
                    panel_unit unit;
                    panel_unit_read(QUANT_Q4R, panel, k, (begin + i) / 32, &unit);
                    wanted += unit.number[i % 32][lane] * x[begin + i];
                }
                const uint8_t *super = panel + begin / 256 * EXACT_Q4R_SUPER_LINES * EXACT_LINE;
                assert_int_equal(
                    exact_q4r_sum(super, (left + 15) / 16, lane, x + begin, sums + begin / 16),
                    wanted);
            }
        free(panel);
    }
}

/* Signed bytes that the tensor cores multiply, with multipliers of both signs. */
static void tiles_have_the_weights_of_quant(void **state) {
    (void)state;
    static const uint32_t lengths[] = {16, 144, 256, 400};
    for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
        uint64_t bytes;
        uint32_t k = lengths[n];
        assert_true(panels_bytes(QUANT_Q4R, k, &bytes));
        /* The last sub-block of an odd number is read with what is staged behind it, times 0. */
        size_t staged = (size_t)bytes + 2 * EXACT_LINE;
        uint8_t *panel = aligned_alloc(64, staged);
        assert_non_null(panel);
        fill(panel, staged, 200 + n);
        for (uint32_t begin = 0; begin < k; begin += 32) {
            const uint8_t *super = panel + begin / 256 * EXACT_Q4R_SUPER_LINES * EXACT_LINE;
            uint32_t left = k - begin / 256 * 256, subs = left < 256 ? (left + 15) / 16 : 16;
            kernel_place at = {.threads = WARP};
            tile_words words[WARP];
            panel_unit unit;
            tile_weights(&at, super, begin % 256 / 32, subs, words);
            panel_unit_read(QUANT_Q4R, panel, k, begin / 32, &unit);
            for (uint32_t i = 0; i < 32 && begin + i < k; i++)
                for (uint32_t output = 0; output < QUANT_PANEL_ROWS; output++) {
                    const tile_words *own = &words[output % 8 * 4 + i % 16 / 4];
                    uint32_t word = own->of[output / 8 + i / 16 * 2];
                    assert_int_equal((int8_t)(word >> i % 4 * 8), unit.number[i][output]);
                }
        }
        free(panel);
    }
}

static void numbers_are_those_of_quant(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        assert_same_float(exact_from_half((uint16_t)i), quant_f16_to_f32((uint16_t)i));
        assert_same_float(exact_from_brain((uint16_t)i), quant_bf16_to_f32((uint16_t)i));
    }
    for (uint32_t i = 0; i < 256; i++)
        assert_same_float(exact_from_e4m3((uint8_t)i), quant_f8_e4m3_to_f32((uint8_t)i));
    for (uint32_t i = 0; i < 100000; i++) {
        random_block block = random_at(5, 5, i);
        float x =
            exact_float(i % 2 == 0 ? block.words[0] : (block.words[0] & 0x8fffffffu) + (56u << 24));
        assert_int_equal(exact_to_half(x), quant_f32_to_f16(x));
        assert_int_equal(exact_to_brain(x), quant_f32_to_bf16(x));
        if (x == x)
            assert_int_equal(exact_to_e4m3(x), kv_fp8_encode(x));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_read_as_everywhere),
        cmocka_unit_test(q4r_sums_are_exact),
        cmocka_unit_test(tiles_have_the_weights_of_quant),
        cmocka_unit_test(numbers_are_those_of_quant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
