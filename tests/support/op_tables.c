/* The order in which op tables are stacked, and what each needs of the machine. */
#include "support/op_tables.h"

size_t test_op_tables(op_table *tables) {
    cpu_features features = cpu_features_detect();
    size_t count = 0;
    ops_plain(&tables[count++]);
    if (features.avx2) {
        tables[count] = tables[count - 1];
        ops_avx2(&tables[count++]);
    }
    if (features.avx512 && features.avx512_vnni) {
        tables[count] = tables[count - 1];
        ops_avx512(&tables[count++]);
    }
    if (features.amx_int8) {
        tables[count] = tables[count - 1];
        ops_amx(&tables[count++]);
    }
    return count;
}
