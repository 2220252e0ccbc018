/* Inside avx512/: the parts of which ops_avx512 fills the table. */
#ifndef AVO_DEVICE_CPU_AVX512_INT_H
#define AVO_DEVICE_CPU_AVX512_INT_H

#include "device/cpu/ops.h"

void avx512_elementwise(op_table *table);
void avx512_linear(op_table *table); /* needs VNNI */
void avx512_quantise(op_table *table);
void avx512_attention(op_table *table);

#endif
