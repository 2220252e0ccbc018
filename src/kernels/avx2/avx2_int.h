/* Inside avx2/: the parts of which ops_avx2 fills the table. */
#ifndef AVO_KERNELS_AVX2_INT_H
#define AVO_KERNELS_AVX2_INT_H

#include "kernels/ops.h"

void avx2_elementwise(op_table *table);
/* The products of one family each. */
void avx2_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch);

#endif
