/* What AMX overwrites in the op table. */
#include "kernels/amx/amx_int.h"

void ops_amx(op_table *table, const cpu_features *features) {
    if (!features->amx_int8)
        return;
    table->name = "amx";
    table->linear[PANEL_Q4R] = amx_linear_q4r;
}
