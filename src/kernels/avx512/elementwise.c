/* Norms, activations, residuals and logits with AVX-512: lanes/ in one register. */
#include "kernels/avx512/vec16.h"

#include "kernels/avx512/avx512_int.h"
#include "kernels/lanes/elementwise.h"

void avx512_elementwise(op_table *table) {
    lanes_elementwise(table);
}
