/* Types with blocks of 32 k and more (A8) on tiles: linear_blocks.h. Those whose scales change
 * every 16 k would have tiles of a quarter of the depth, and are faster with AVX-512 alone. */
#include "device/cpu/amx/linear_blocks.h"

/* The entry of a type. Its unpacking is a function of its own, in which the kind is a constant. */
#define BLOCK_LINEAR(type)                                                                         \
    static void unpack_##type(const uint8_t *panel, size_t k, size_t begin, size_t count,          \
                              block_piece *out) {                                                  \
        (void)k;                                                                                   \
        block_unpack_units(&kind_##type, panel, begin, count, out);                                \
    }                                                                                              \
    void amx_linear_##type(const linear_call *call, size_t first, size_t last, uint8_t *scratch) { \
        if (call->x->rows < AMX_ROWS_MIN_BLOCKS)                                                   \
            linear_avx512_##type(call, first, last, scratch);                                      \
        else                                                                                       \
            block_linear(&kind_##type, &(block_job){call, first, last, unpack_##type, scratch});   \
    }

BLOCK_LINEAR(q4_0)
BLOCK_LINEAR(q4_1)
BLOCK_LINEAR(q4b64)
BLOCK_LINEAR(q4m64)
BLOCK_LINEAR(q5_0)
BLOCK_LINEAR(q5_1)
BLOCK_LINEAR(iq4_nl)
BLOCK_LINEAR(mxfp4)
BLOCK_LINEAR(iq4_xs)
BLOCK_LINEAR(q4_k)
BLOCK_LINEAR(q5_k)
