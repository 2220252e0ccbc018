/* Norms, activations, residuals and logits with AVX-512: lanes/ in one register. */
#include "device/cpu/avx512/vec16.h"

#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/lanes/elementwise.h"

void avx512_elementwise(op_table *table) {
    lanes_elementwise(table);
}
