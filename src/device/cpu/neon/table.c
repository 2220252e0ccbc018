/* What NEON with dot products overwrites in the op table. Norms, activations, residuals and logits
 * are those of lanes/, in four registers. */
#include "device/cpu/neon/vec16.h"

#include "device/cpu/isa.h"
#include "device/cpu/lanes/elementwise.h"
#include "device/cpu/neon/neon_int.h"

void ops_neon(op_table *table) {
    table->name = "neon";
    table->quantise = neon_quantise;
    for (int i = 0; i < PANEL_INDEX_COUNT; i++)
        table->linear[i] = i <= PANEL_F8C ? neon_linear_float : neon_linear_integer;
    lanes_elementwise(table);
    neon_attention(table);
}

const instruction_set isa_neon = {"neon",
                                  "NEON with dot products",
                                  offsetof(cpu_features, neon_dot),
                                  ops_neon,
                                  limits_neon,
                                  NULL,
                                  NULL,
                                  gemm_kernels_neon,
                                  NULL};
