/* The op table as it begins: plain C, for any x86-64. */
#include "device/cpu/plain/plain_int.h"

panel_index panel_index_of(quant_type type) {
    switch ((int)type) {
#define PANEL_INDEX_CASE(name)                                                                     \
    case QUANT_##name:                                                                             \
        return PANEL_##name;
        PANEL_TYPE_TABLE(PANEL_INDEX_CASE)
#undef PANEL_INDEX_CASE
    default:
        return PANEL_INDEX_COUNT;
    }
}

void ops_plain(op_table *table) {
    memset(table, 0, sizeof(*table));
    table->name = "plain";
    for (size_t i = 0; i < PANEL_INDEX_COUNT; i++)
        table->linear[i] = plain_linear;
    table->quantise = plain_quantise;
    plain_elementwise(table);
    plain_attention(table);
}
