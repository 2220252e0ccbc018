/* Inside neon/: the parts of which ops_neon fills the table. */
#ifndef AVO_DEVICE_CPU_NEON_INT_H
#define AVO_DEVICE_CPU_NEON_INT_H

#include "device/cpu/ops.h"

void neon_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch);
/* quant_rotate of up to 256 numbers, a multiple of 16: attention's rotation is the same one. */
void neon_rotate(float *x, uint32_t count);
linear_function neon_linear_float, neon_linear_integer;
void neon_attention(op_table *table);

#endif
