/* Types with super-blocks of 256 k (A8) on tiles: linear_blocks.h, one function a type. Those whose
 * scales change every 16 k have tiles of a quarter of the depth; Q2_K, which has minima as well, is
 * faster with AVX-512 alone. */
#include "device/cpu/amx/linear_blocks.h"

static const unit_kind kind_q4_k = {8, 320 + 8 * NIBBLE_UNIT, 0, false, true, unit_read_q4_k};

static void unpack_q4_k(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q4_k, panel, begin, count, out);
}

void amx_linear_q4_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q4_k(call, first, last, scratch);
    else
        block_linear(&kind_q4_k, &(block_job){call, first, last, unpack_q4_k, scratch});
}

static const unit_kind kind_q5_k = {8, 320 + 8 * NIBBLE_BITS, 0, false, true, unit_read_q5_k};

static void unpack_q5_k(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q5_k, panel, begin, count, out);
}

void amx_linear_q5_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q5_k(call, first, last, scratch);
    else
        block_linear(&kind_q5_k, &(block_job){call, first, last, unpack_q5_k, scratch});
}

static const unit_kind kind_iq4_xs = {8, 192 + 8 * NIBBLE_UNIT, 0, false, false, unit_read_iq4_xs};

static void unpack_iq4_xs(const uint8_t *panel, size_t k, size_t begin, size_t count,
                          block_piece *out) {
    (void)k;
    block_unpack_units(&kind_iq4_xs, panel, begin, count, out);
}

void amx_linear_iq4_xs(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_iq4_xs(call, first, last, scratch);
    else
        block_linear(&kind_iq4_xs, &(block_job){call, first, last, unpack_iq4_xs, scratch});
}

static const unit_kind kind_q6_k = {8, 320 + 8 * 384, 32, true, false, unit_read_q6_k};

static void unpack_q6_k(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q6_k, panel, begin, count, out);
}

void amx_linear_q6_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q6_k(call, first, last, scratch);
    else
        block_linear(&kind_q6_k, &(block_job){call, first, last, unpack_q6_k, scratch});
}

static const unit_kind kind_q3_k = {8, 320 + 8 * 192, 4, true, false, unit_read_q3_k};

static void unpack_q3_k(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q3_k, panel, begin, count, out);
}

void amx_linear_q3_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q3_k(call, first, last, scratch);
    else
        block_linear(&kind_q3_k, &(block_job){call, first, last, unpack_q3_k, scratch});
}
