/* Inside avx2/: the parts of which ops_avx2 fills the table. */
#ifndef AVO_KERNELS_AVX2_INT_H
#define AVO_KERNELS_AVX2_INT_H

#include "kernels/ops.h"

void avx2_elementwise(op_table *table);

#endif
