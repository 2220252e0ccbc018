/* What a tensor becomes in the file. */
#include "pack/pack_int.h"

static bool is_plain(quant_type type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

void pack_set(pack_item *item, quant_type type, quant_layout layout) {
    item->type = type;
    item->layout = layout;
    item->repacked = item->from.data != NULL && item->from.layout == QUANT_LAYOUT_ROWS &&
                     layout == QUANT_LAYOUT_PANELS && item->from.type == type && !item->plus_one &&
                     !is_plain(type);
    item->copied = item->from.data != NULL && !item->plus_one && item->from.type == type &&
                   item->from.layout == layout && layout == QUANT_LAYOUT_ROWS;
}

static quant_type matrix_type(pack_type type) {
    static const quant_type types[] = {
#define PACK_TYPE_QUANT(name, text, type) type,
        PACK_TYPE_TABLE(PACK_TYPE_QUANT)
#undef PACK_TYPE_QUANT
    };
    return types[type];
}

/* An embedding that is only looked up: rows, so that one token reads one row. The narrow types have
 * no rows; one lane of a panel is read then. */
static void choose_embedding(pack_type type, pack_item *item) {
    quant_type matrix = matrix_type(type);
    if (is_plain(matrix))
        pack_set(item, matrix, QUANT_LAYOUT_ROWS);
    else if (type == PACK_Q8 || type == PACK_Q8C)
        pack_set(item, item->k % 32 == 0 ? QUANT_Q8_0 : QUANT_F16, QUANT_LAYOUT_ROWS);
    else
        pack_set(item, matrix, QUANT_LAYOUT_PANELS);
}

static void choose_keep(pack_role role, bool tied, bool cut_fits, pack_item *item) {
    quant_type type = item->from.type;
    bool rows = (role == PACK_ROLE_EMBEDDING && !tied) || !cut_fits;
    if (item->from.layout == QUANT_LAYOUT_PANELS) {
        pack_set(item, type, QUANT_LAYOUT_PANELS);
        item->copied = true;
        return;
    }
    uint64_t bytes; /* types without panels stay in rows */
    rows = rows || !weight_panel_bytes(type, item->k, &bytes);
    pack_set(item, type, rows ? QUANT_LAYOUT_ROWS : QUANT_LAYOUT_PANELS);
}

void pack_choose(pack_type type, pack_role role, bool tied, bool cut_fits, pack_item *item) {
    item->role = role;
    item->looked_up = role == PACK_ROLE_EMBEDDING && !tied;
    if (item->vector || role == PACK_ROLE_POSITION) {
        pack_set(item, QUANT_F32, QUANT_LAYOUT_ROWS);
        return;
    }
    if (type == PACK_KEEP) {
        choose_keep(role, tied, cut_fits, item);
        return;
    }
    if (role == PACK_ROLE_EMBEDDING && !tied) {
        choose_embedding(type, item);
        return;
    }
    pack_set(item, matrix_type(type), QUANT_LAYOUT_PANELS);
}
