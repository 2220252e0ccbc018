/* Op tables, stacked as the back ends stack them. */
#include "support/op_tables.h"

#include "device/cpu/isa.h"

size_t test_op_tables(op_table *tables) {
    const instruction_set *set;
    size_t count = 1;
    ops_plain(&tables[0]);
    for (; (set = isa_at(count - 1)) != NULL; count++) {
        tables[count] = tables[count - 1];
        set->ops(&tables[count]);
    }
    return count;
}

size_t test_product_tables(op_table *tables) {
    const instruction_set *set;
    size_t count = test_op_tables(tables);
    for (size_t i = 0; (set = isa_at(i)) != NULL; i++)
        if (set->ops_least != NULL) {
            tables[count] = tables[i];
            set->ops_least(&tables[count++]);
        }
    return count;
}
