/* Exact decode against what gguf, torch and numpy gave (tools/oracle/quant_vectors.py). */
#include "support/support.h"

#include "base/file.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Equal to the bit; of a NaN only that it is one (its payload is the processor's affair). */
static void assert_same(const char *what, size_t index, float got, uint32_t expected) {
    uint32_t bits;
    memcpy(&bits, &got, sizeof(bits));
    bool expected_nan = (expected & 0x7fffffffu) > 0x7f800000u;
    if (expected_nan ? !isnan(got) : bits != expected)
        fail_msg("%s element %zu: got %08x, expected %08x", what, index, bits, expected);
}

static void every_type_decodes_to_the_bit(void **state) {
    (void)state;
    file_map map;
    avo_error error;
    assert_ok_error(file_map_open(test_fixture_path("quant/vectors.bin"), &map, &error), &error);
    cursor cursor = cursor_over(map.bytes);
    size_t records = 0;
    uint32_t type = 0, elements = 0, bytes = 0;
    while (cursor_read_u32(&cursor, &type)) {
        assert_true(cursor_read_u32(&cursor, &elements) && cursor_read_u32(&cursor, &bytes));
        const uint8_t *source = NULL, *expected = NULL;
        assert_true(cursor_take(&cursor, bytes, &source));
        assert_true(cursor_take(&cursor, (size_t)elements * 4, &expected));
        uint64_t run_bytes;
        assert_true(quant_run_bytes((quant_type)type, elements, &run_bytes));
        assert_int_equal(run_bytes, bytes);
        float *out = malloc(elements * sizeof(float));
        quant_decode((quant_type)type, source, elements, out);
        for (uint32_t i = 0; i < elements; i++) {
            uint32_t wanted;
            memcpy(&wanted, expected + 4 * i, 4);
            assert_same(quant_name(type), i, out[i], wanted);
        }
        free(out);
        records++;
    }
    assert_int_equal(records, 28); /* every type that has blocks */
    file_map_close(&map);
}

/* The definition, in the plainest way. */
static double half_by_definition(uint16_t half) {
    int exponent = half >> 10 & 31;
    double mantissa = half & 1023;
    double magnitude = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

static void all_halves_there_and_back(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        float number = quant_f16_to_f32((uint16_t)half);
        double wanted = half_by_definition((uint16_t)half);
        if (isnan(wanted)) {
            assert_true(isnan(number));
            assert_true(isnan(quant_f16_to_f32(quant_f32_to_f16(number))));
            continue;
        }
        assert_true((double)number == wanted && !signbit(number) == !signbit(wanted));
        assert_int_equal(quant_f32_to_f16(number), half);
    }
}

/* Halfway points go to the even neighbour; anything more or less to the nearer one. */
static void halves_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x7bff; half++) {
        float low = quant_f16_to_f32((uint16_t)half);
        float high = quant_f16_to_f32((uint16_t)(half + 1));
        float middle = (low + high) / 2; /* exact in f32 */
        uint32_t even = half % 2 == 0 ? half : half + 1;
        assert_int_equal(quant_f32_to_f16(middle), even);
        assert_int_equal(quant_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
    }
    assert_int_equal(quant_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(quant_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(quant_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(quant_f32_to_f16(1e-30f), 0);
    assert_int_equal(quant_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);     /* tie to even: down */
    assert_int_equal(quant_f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82); /* tie to even: up */
    assert_int_equal(quant_f32_to_bf16(nextafterf(1.00390625f, 2)), 0x3f81);
    assert_int_equal(quant_f32_to_bf16(3.4e38f), 0x7f80);
    assert_true(isnan(quant_bf16_to_f32(quant_f32_to_bf16(NAN))));
}

static void sizes_are_refused(void **state) {
    (void)state;
    uint64_t bytes;
    assert_false(quant_run_bytes(QUANT_Q4_0, 33, &bytes));
    assert_false(quant_run_bytes(QUANT_Q4_K, 288, &bytes));
    assert_false(quant_run_bytes(QUANT_F64, UINT64_MAX / 8 + 1, &bytes));
    assert_false(quant_run_bytes(QUANT_Q4R, 256, &bytes));
    assert_false(quant_run_bytes((quant_type)99, 256, &bytes));
    assert_true(quant_run_bytes(QUANT_Q6_K, 512, &bytes));
    assert_int_equal(bytes, 420);
    assert_null(quant_info_of(65));
    assert_string_equal(quant_name(1000), "?");
    assert_null(quant_info_of(130)); /* was used before there was a release */
    assert_int_equal(quant_info_of(133)->type, QUANT_Q4R);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_to_the_bit),
        cmocka_unit_test(all_halves_there_and_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
