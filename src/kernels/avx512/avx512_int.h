/* Inside avx512/: the parts of which ops_avx512 fills the table. */
#ifndef AVO_KERNELS_AVX512_INT_H
#define AVO_KERNELS_AVX512_INT_H

#include "kernels/ops.h"

void avx512_elementwise(op_table *table);
void avx512_linear(op_table *table); /* needs VNNI */
void avx512_quantise(op_table *table);
void avx512_attention(op_table *table);

#endif
