/* Norms, activations, residuals and logits with AVX2: lanes/ in two registers. */
#include "kernels/avx2/vec16.h"

#include "kernels/avx2/avx2_int.h"
#include "kernels/lanes/elementwise.h"

void avx2_elementwise(op_table *table) {
    lanes_elementwise(table);
}
