/* device/kv_tile: what is written into a tile of any type is read back within the type's error,
 * nothing else is touched, and names are what they say. */
#include "support/support.h"

#include "base/random.h"
#include "device/kv_tile.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t sizes[] = {1, 5, 12, 20, 64, 80, 96, 128, 256};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static float noise(uint64_t stream, uint64_t i) {
    return (float)(random_uniform_at(11, stream, i) * 2.0 - 1.0);
}

/* Largest error of a number x in a head whose largest magnitude is `largest`. */
static double error_of(kv_type type, double x, double largest) {
    switch (type) {
    case KV_F32:
        return 0.0;
    case KV_F16:
        return fabs(x) / 2048 + 1e-7;
    case KV_BF16:
        return fabs(x) / 256;
    case KV_INT8:
        return largest / 127 * 0.5001;
    default:
        return fabs(x) / 16 * 1.001 + largest / 448 / 1024;
    }
}

static void tiles_keep_numbers(void **state) {
    (void)state;
    for (int type = 0; type < KV_TYPE_COUNT; type++)
        for (size_t s = 0; s < SIZES; s++) {
            uint32_t size = sizes[s];
            size_t stride = kv_value_stride(size);
            size_t bytes = kv_head_bytes((kv_type)type, size);
            assert_int_equal(bytes % 64, 0);
            uint8_t *head = test_take_exact(bytes, 64);
            memset(head, 0, bytes);
            float *key = malloc(KV_PAGE_TOKENS * size * sizeof(float));
            float *value = malloc(KV_PAGE_TOKENS * size * sizeof(float));
            float *room = malloc(kv_tile_floats(size) * sizeof(float));
            for (uint32_t i = 0; i < KV_PAGE_TOKENS * size; i++) {
                key[i] = 3 * noise(1, i);
                value[i] = 0.1f * noise(2, i);
            }
            for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
                kv_tile_write((kv_type)type, size, head, slot, key + slot * size,
                              value + slot * size);
            for (int which = 0; which < 2; which++) {
                const float *source = which == 0 ? key : value;
                const float *read = which == 0 ? kv_tile_keys((kv_type)type, size, head, room)
                                               : kv_tile_values((kv_type)type, size, head, room);
                for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++) {
                    double largest = 0;
                    for (uint32_t d = 0; d < size; d++)
                        largest = fmax(largest, fabs((double)source[slot * size + d]));
                    for (uint32_t d = 0; d < size; d++) {
                        double want = source[slot * size + d];
                        double got =
                            which == 0 ? read[d * KV_PAGE_TOKENS + slot] : read[slot * stride + d];
                        assert_true(fabs(got - want) <= error_of((kv_type)type, want, largest));
                    }
                }
            }
            free(head);
            free(key);
            free(value);
            free(room);
        }
}

/* Writing one slot changes no other. */
static void slots_are_apart(void **state) {
    (void)state;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        enum { SIZE = 20 };
        size_t bytes = kv_head_bytes((kv_type)type, SIZE);
        uint8_t *head = test_take_exact(bytes, 64);
        memset(head, 0, bytes);
        float x[SIZE], room[KV_PAGE_TOKENS * 32];
        for (int i = 0; i < SIZE; i++)
            x[i] = 1.0f + (float)i;
        kv_tile_write((kv_type)type, SIZE, head, 7, x, x);
        const float *keys = kv_tile_keys((kv_type)type, SIZE, head, room);
        for (uint32_t i = 0; i < SIZE * KV_PAGE_TOKENS; i++)
            assert_true((keys[i] != 0.0f) == (i % KV_PAGE_TOKENS == 7));
        const float *values = kv_tile_values((kv_type)type, SIZE, head, room);
        for (uint32_t i = 0; i < KV_PAGE_TOKENS * 32; i++)
            assert_true((values[i] != 0.0f) == (i / 32 == 7 && i % 32 < SIZE));
        free(head);
    }
}

/* The scale is searched for: never worse than what the largest magnitude gives, and on the whole a
 * fifth better. */
static void fp8_scales_are_searched(void **state) {
    (void)state;
    enum { SIZE = 64, VECTORS = 200 };
    size_t bytes = kv_head_bytes(KV_FP8, SIZE);
    uint8_t *head = test_take_exact(bytes, 64);
    memset(head, 0, bytes);
    double searched = 0, plain = 0;
    for (uint32_t vector = 0; vector < VECTORS; vector++) {
        float x[SIZE], room[KV_PAGE_TOKENS * SIZE], largest = 0;
        for (uint32_t i = 0; i < SIZE; i++) { /* four bytes' sum: near enough to normal */
            uint32_t word = random_at(7, vector, i).words[0];
            x[i] = (float)((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) -
                   510.0f;
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        }
        kv_tile_write(KV_FP8, SIZE, head, 0, x, x);
        const float *values = kv_tile_values(KV_FP8, SIZE, head, room);
        double own = 0, other = 0;
        for (uint32_t i = 0; i < SIZE; i++) {
            uint8_t code = kv_fp8_encode(x[i] * (KV_FP8_LIMIT / largest));
            double simple = (double)quant_f8_e4m3_to_f32(code) * largest / KV_FP8_LIMIT;
            own += pow((double)x[i] - (double)values[i], 2);
            other += pow((double)x[i] - simple, 2);
        }
        assert_true(own <= other * 1.00001);
        searched += own;
        plain += other;
    }
    assert_true(searched < 0.8 * plain);
    free(head);
}

static void odd_numbers(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) { /* every number of E4M3 is its own nearest */
        float x = quant_f8_e4m3_to_f32((uint8_t)code);
        if (x == x && code != 0x80)
            assert_int_equal(kv_fp8_encode(x), code);
    }
    assert_int_equal(kv_fp8_encode(1e9f), 0x7e);
    assert_int_equal(kv_fp8_encode(-INFINITY), 0xfe);
    assert_int_equal(kv_fp8_encode(0x1p-10f), 0); /* half of the smallest: ties to even */
    assert_int_equal(kv_fp8_encode(0x1.8p-9f), 2);
    assert_int_equal(kv_fp8_encode(17.0f), kv_fp8_encode(16.0f));
    float room[KV_PAGE_TOKENS * 16];
    uint8_t *head = test_take_exact(kv_head_bytes(KV_F32, 4), 64);
    float x[4] = {1e6f, -1e6f, 1e-20f, NAN};
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        memset(head, 0, kv_head_bytes((kv_type)type, 4));
        kv_tile_write((kv_type)type, 4, head, 0, x, x);
        const float *keys = kv_tile_keys((kv_type)type, 4, head, room);
        assert_true(isnan(keys[3 * KV_PAGE_TOKENS])); /* shows, whatever the type */
        if (type == KV_F16) /* no infinity, which would become NaN beside a weight of 0 */
            assert_true(keys[0] == KV_F16_LIMIT && keys[KV_PAGE_TOKENS] == -KV_F16_LIMIT);
    }
    free(head);
}

static void rotation_is_its_own_inverse(void **state) {
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        float x[256];
        double before = 0, after = 0;
        for (uint32_t i = 0; i < sizes[s]; i++) {
            x[i] = noise(3, i);
            before += (double)x[i] * x[i];
        }
        kv_rotate(x, sizes[s]);
        for (uint32_t i = 0; i < sizes[s]; i++)
            after += (double)x[i] * x[i];
        assert_true(fabs(after - before) <= 1e-5 * before);
        kv_rotate(x, sizes[s]);
        for (uint32_t i = 0; i < sizes[s]; i++)
            assert_true(fabsf(x[i] - noise(3, i)) < 1e-6f);
    }
    float one[20] = {[3] = 1.0f};
    kv_rotate(one, 20); /* spreads over its block of 16 and stays in it */
    for (int i = 0; i < 20; i++)
        assert_true(fabsf(one[i]) == (i < 16 ? 0.25f : 0.0f));
}

static void names(void **state) {
    (void)state;
    for (int type = 0; type < KV_TYPE_COUNT; type++)
        assert_int_equal(kv_type_named(kv_type_name((kv_type)type)), type);
    assert_int_equal(kv_type_named("f64"), KV_TYPE_COUNT);
    assert_int_equal(kv_type_named(""), KV_TYPE_COUNT);
    assert_string_equal(kv_type_name(KV_TYPE_COUNT), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_keep_numbers),          cmocka_unit_test(slots_are_apart),
        cmocka_unit_test(fp8_scales_are_searched),     cmocka_unit_test(odd_numbers),
        cmocka_unit_test(rotation_is_its_own_inverse), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
