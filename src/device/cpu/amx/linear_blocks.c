/* Types with blocks of 32 or 64 k (A8) on tiles: linear_blocks.h, one function a type. */
#include "device/cpu/amx/linear_blocks.h"

static const unit_kind kind_q4_0 = {2, 64 + 2 * NIBBLE_UNIT, 8, false, false, unit_read_q4_0};

static void unpack_q4_0(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q4_0, panel, begin, count, out);
}

void amx_linear_q4_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q4_0(call, first, last, scratch);
    else
        block_linear(&kind_q4_0, &(block_job){call, first, last, unpack_q4_0, scratch});
}

static const unit_kind kind_q4_1 = {2, 128 + 2 * NIBBLE_UNIT, 0, false, true, unit_read_q4_1};

static void unpack_q4_1(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q4_1, panel, begin, count, out);
}

void amx_linear_q4_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q4_1(call, first, last, scratch);
    else
        block_linear(&kind_q4_1, &(block_job){call, first, last, unpack_q4_1, scratch});
}

static const unit_kind kind_q4b64 = {4, 64 + 4 * NIBBLE_UNIT, 8, false, false, unit_read_q4b64};

static void unpack_q4b64(const uint8_t *panel, size_t k, size_t begin, size_t count,
                         block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q4b64, panel, begin, count, out);
}

void amx_linear_q4b64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q4b64(call, first, last, scratch);
    else
        block_linear(&kind_q4b64, &(block_job){call, first, last, unpack_q4b64, scratch});
}

static const unit_kind kind_q4m64 = {2, 64 + 2 * NIBBLE_UNIT, 0, false, true, unit_read_q4m64};

static void unpack_q4m64(const uint8_t *panel, size_t k, size_t begin, size_t count,
                         block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q4m64, panel, begin, count, out);
}

void amx_linear_q4m64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q4m64(call, first, last, scratch);
    else
        block_linear(&kind_q4m64, &(block_job){call, first, last, unpack_q4m64, scratch});
}

static const unit_kind kind_q5_0 = {2, 64 + 2 * NIBBLE_BITS, 16, false, false, unit_read_q5_0};

static void unpack_q5_0(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q5_0, panel, begin, count, out);
}

void amx_linear_q5_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q5_0(call, first, last, scratch);
    else
        block_linear(&kind_q5_0, &(block_job){call, first, last, unpack_q5_0, scratch});
}

static const unit_kind kind_q5_1 = {2, 128 + 2 * NIBBLE_BITS, 0, false, true, unit_read_q5_1};

static void unpack_q5_1(const uint8_t *panel, size_t k, size_t begin, size_t count,
                        block_piece *out) {
    (void)k;
    block_unpack_units(&kind_q5_1, panel, begin, count, out);
}

void amx_linear_q5_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_q5_1(call, first, last, scratch);
    else
        block_linear(&kind_q5_1, &(block_job){call, first, last, unpack_q5_1, scratch});
}

static const unit_kind kind_iq4_nl = {2, 64 + 2 * NIBBLE_UNIT, 0, false, false, unit_read_iq4_nl};

static void unpack_iq4_nl(const uint8_t *panel, size_t k, size_t begin, size_t count,
                          block_piece *out) {
    (void)k;
    block_unpack_units(&kind_iq4_nl, panel, begin, count, out);
}

void amx_linear_iq4_nl(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_iq4_nl(call, first, last, scratch);
    else
        block_linear(&kind_iq4_nl, &(block_job){call, first, last, unpack_iq4_nl, scratch});
}

static const unit_kind kind_mxfp4 = {2, 64 + 2 * NIBBLE_UNIT, 0, false, false, unit_read_mxfp4};

static void unpack_mxfp4(const uint8_t *panel, size_t k, size_t begin, size_t count,
                         block_piece *out) {
    (void)k;
    block_unpack_units(&kind_mxfp4, panel, begin, count, out);
}

void amx_linear_mxfp4(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_BLOCKS)
        linear_avx512_mxfp4(call, first, last, scratch);
    else
        block_linear(&kind_mxfp4, &(block_job){call, first, last, unpack_mxfp4, scratch});
}
