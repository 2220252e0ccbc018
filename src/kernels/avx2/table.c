/* What AVX2 (with FMA and F16C) overwrites in the op table. */
#include "kernels/avx2/avx2_int.h"

void ops_avx2(op_table *table) {
    table->name = "avx2";
    avx2_elementwise(table);
}
