/* Products with the types that have blocks (units.h) and A8. */
#include "device/cpu/avx512/a8.h"

/* The entry of a type. Its tiles and its unpacking are functions of their own, in which the kind is
 * a constant. */
#define A8_LINEAR(type)                                                                            \
    static void one_##type(const product *product, const uint8_t *panel, const uint8_t *unpacked,  \
                           size_t row, size_t rows, __m512 *sum) {                                 \
        (void)unpacked;                                                                            \
        (void)rows;                                                                                \
        a8_tile_one(&kind_##type, product, panel, row, sum);                                       \
    }                                                                                              \
    static void tile_##type(const uint8_t *panel, size_t units, const uint8_t *packed,             \
                            int compiled, __m512 *sum) {                                           \
        if (shuffles_wanted((size_t)compiled))                                                     \
            WITH_COUNT_3_TO_8(                                                                     \
                compiled, count,                                                                   \
                a8_tile_packed(&kind_##type, count, true, panel, units, packed, sum))              \
        else                                                                                       \
            WITH_COUNT_TILE(compiled, count,                                                       \
                            a8_tile_packed(&kind_##type, count, false, panel, units, packed, sum)) \
    }                                                                                              \
    static void unpack_##type(const uint8_t *panel, size_t units, uint8_t *out) {                  \
        a8_unpack(&kind_##type, panel, units, out);                                                \
    }                                                                                              \
    void linear_avx512_##type(const linear_call *call, size_t first, size_t last,                  \
                              uint8_t *scratch) {                                                  \
        a8_linear(&kind_##type, one_##type, tile_##type, unpack_##type, call, first, last,         \
                  scratch);                                                                        \
    }

A8_LINEAR(q4_0)
A8_LINEAR(q4_1)
A8_LINEAR(q4b64)
A8_LINEAR(q4m64)
A8_LINEAR(q5_0)
A8_LINEAR(q5_1)
A8_LINEAR(iq4_nl)
A8_LINEAR(mxfp4)
A8_LINEAR(iq4_xs)
A8_LINEAR(q4_k)
A8_LINEAR(q5_k)
A8_LINEAR(q2_k)
A8_LINEAR(q3_k)
A8_LINEAR(q6_k)
