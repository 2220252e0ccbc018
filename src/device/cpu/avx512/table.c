/* What AVX-512 (F, BW, DQ, VL and VNNI) overwrites in the op table. */
#include "device/cpu/avx512/avx512_int.h"

void ops_avx512(op_table *table) {
    table->name = "avx512";
    avx512_elementwise(table);
    avx512_quantise(table);
    avx512_linear(table);
    avx512_attention(table);
}
