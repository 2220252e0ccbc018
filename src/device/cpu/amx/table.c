/* What AMX overwrites in the op table. */
#include "device/cpu/amx/amx_int.h"
#include "device/cpu/isa.h"

void ops_amx(op_table *table) {
    static const struct {
        panel_index type;
        linear_op product;
        uint16_t rows; /* that tiles begin with */
    } products[] = {
        {PANEL_Q4_0, amx_linear_q4_0, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q4_1, amx_linear_q4_1, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q4B64, amx_linear_q4b64, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q4M64, amx_linear_q4m64, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q5_0, amx_linear_q5_0, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q5_1, amx_linear_q5_1, AMX_ROWS_MIN_BLOCKS},
        {PANEL_IQ4_NL, amx_linear_iq4_nl, AMX_ROWS_MIN_BLOCKS},
        {PANEL_MXFP4, amx_linear_mxfp4, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q4_K, amx_linear_q4_k, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q5_K, amx_linear_q5_k, AMX_ROWS_MIN_BLOCKS},
        {PANEL_IQ4_XS, amx_linear_iq4_xs, AMX_ROWS_MIN_BLOCKS},
        {PANEL_Q8B, amx_linear_q8b, AMX_ROWS_MIN_Q8},
        {PANEL_Q8C, amx_linear_q8c, AMX_ROWS_MIN_Q8},
        {PANEL_Q8_0, amx_linear_q8b, AMX_ROWS_MIN_Q8}, /* has the panels of Q8B */
        {PANEL_Q4R, amx_linear_q4r, AMX_ROWS_MIN_Q4R},
        {PANEL_Q8R, amx_linear_q8r, AMX_ROWS_MIN_Q8R},
    };
    table->name = "amx";
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        table->linear[products[i].type] = products[i].product;
        table->small_rows[products[i].type] = products[i].rows;
    }
}

const instruction_set isa_amx = {"amx",   "AMX-INT8", offsetof(cpu_features, amx_int8),
                                 ops_amx, limits_amx, NULL,
                                 NULL,    NULL,       NULL};
