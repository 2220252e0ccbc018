/* Norms, activations, residuals and logits with AVX2: lanes/ in two registers. */
#include "device/cpu/avx2/vec16.h"

#include "device/cpu/avx2/avx2_int.h"
#include "device/cpu/lanes/elementwise.h"

void avx2_elementwise(op_table *table) {
    lanes_elementwise(table);
}
