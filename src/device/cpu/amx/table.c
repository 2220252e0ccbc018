/* What AMX overwrites in the op table. */
#include "device/cpu/amx/amx_int.h"

void ops_amx(op_table *table) {
    /* Q8_0 has the panels of Q8B. */
    static const linear_op products[PANEL_INDEX_COUNT] = {
        [PANEL_Q4_0] = amx_linear_q4_0,     [PANEL_Q4_1] = amx_linear_q4_1,
        [PANEL_Q4B64] = amx_linear_q4b64,   [PANEL_Q4M64] = amx_linear_q4m64,
        [PANEL_Q5_0] = amx_linear_q5_0,     [PANEL_Q5_1] = amx_linear_q5_1,
        [PANEL_IQ4_NL] = amx_linear_iq4_nl, [PANEL_MXFP4] = amx_linear_mxfp4,
        [PANEL_Q4_K] = amx_linear_q4_k,     [PANEL_Q5_K] = amx_linear_q5_k,
        [PANEL_IQ4_XS] = amx_linear_iq4_xs, [PANEL_Q6_K] = amx_linear_q6_k,
        [PANEL_Q3_K] = amx_linear_q3_k,     [PANEL_Q8B] = amx_linear_q8b,
        [PANEL_Q8C] = amx_linear_q8c,       [PANEL_Q8_0] = amx_linear_q8b,
        [PANEL_Q4R] = amx_linear_q4r,       [PANEL_Q8R] = amx_linear_q8r,
    };
    table->name = "amx";
    table->parts_small = true;
    for (int i = 0; i < PANEL_INDEX_COUNT; i++)
        if (products[i] != NULL)
            table->linear[i] = products[i];
}
