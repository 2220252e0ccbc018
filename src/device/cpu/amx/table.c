/* What AMX overwrites in the op table. */
#include "device/cpu/amx/amx_int.h"

void ops_amx(op_table *table) {
    table->name = "amx";
    table->parts_small = true;
    table->linear[PANEL_Q4_0] = amx_linear_q4_0;
    table->linear[PANEL_Q4_1] = amx_linear_q4_1;
    table->linear[PANEL_Q4B64] = amx_linear_q4b64;
    table->linear[PANEL_Q4M64] = amx_linear_q4m64;
    table->linear[PANEL_Q5_0] = amx_linear_q5_0;
    table->linear[PANEL_Q5_1] = amx_linear_q5_1;
    table->linear[PANEL_IQ4_NL] = amx_linear_iq4_nl;
    table->linear[PANEL_MXFP4] = amx_linear_mxfp4;
    table->linear[PANEL_Q4_K] = amx_linear_q4_k;
    table->linear[PANEL_Q5_K] = amx_linear_q5_k;
    table->linear[PANEL_IQ4_XS] = amx_linear_iq4_xs;
    table->linear[PANEL_Q6_K] = amx_linear_q6_k;
    table->linear[PANEL_Q3_K] = amx_linear_q3_k;
    table->linear[PANEL_Q8B] = amx_linear_q8b;
    table->linear[PANEL_Q8C] = amx_linear_q8c;
    table->linear[PANEL_Q8_0] = amx_linear_q8b; /* the same panels */
    table->linear[PANEL_Q4R] = amx_linear_q4r;
    table->linear[PANEL_Q8R] = amx_linear_q8r;
}
