/* The products of this folder in the op table. */
#include "kernels/avx512/linear_int.h"

#include "kernels/avx512/avx512_int.h"

void avx512_linear(op_table *table) {
    table->linear[PANEL_Q4_0] = linear_avx512_q4_0;
    table->linear[PANEL_Q4_1] = linear_avx512_q4_1;
    table->linear[PANEL_Q4B64] = linear_avx512_q4b64;
    table->linear[PANEL_Q4M64] = linear_avx512_q4m64;
    table->linear[PANEL_Q4R] = linear_avx512_q4r;
}
