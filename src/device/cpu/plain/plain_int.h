/* Inside plain/: the parts of which ops_plain fills the table. */
#ifndef AVO_DEVICE_CPU_PLAIN_INT_H
#define AVO_DEVICE_CPU_PLAIN_INT_H

#include "device/cpu/ops.h"

void plain_elementwise(op_table *table);
void plain_linear(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void plain_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch);
void plain_attention(op_table *table);

#endif
