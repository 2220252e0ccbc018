/* What a tensor becomes in the file. */
#include "pack/pack_int.h"

static bool is_plain(quant_type type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

static void set(pack_item *item, quant_type type, quant_layout layout) {
    item->type = type;
    item->layout = layout;
    item->copied = item->from.data != NULL && !item->plus_one && item->from.type == type &&
                   item->from.layout == layout && layout == QUANT_LAYOUT_ROWS;
}

/* An embedding that is only looked up: rows, so that one token reads one row. */
static void choose_embedding(pack_type type, pack_item *item) {
    switch (type) {
    case PACK_F32:
        set(item, QUANT_F32, QUANT_LAYOUT_ROWS);
        return;
    case PACK_F16:
        set(item, QUANT_F16, QUANT_LAYOUT_ROWS);
        return;
    case PACK_BF16:
        set(item, QUANT_BF16, QUANT_LAYOUT_ROWS);
        return;
    default:
        set(item, item->k % 32 == 0 ? QUANT_Q8_0 : QUANT_F16, QUANT_LAYOUT_ROWS);
    }
}

static void choose_keep(pack_role role, bool tied, bool cut_fits, pack_item *item) {
    quant_type type = item->from.type;
    if (!is_plain(type)) {
        set(item, type, item->from.layout);
        item->copied = item->from.layout != QUANT_LAYOUT_COLUMNS;
        return;
    }
    bool rows = (role == PACK_ROLE_EMBEDDING && !tied) || !cut_fits;
    set(item, type, rows ? QUANT_LAYOUT_ROWS : QUANT_LAYOUT_PANELS);
}

static quant_type matrix_type(pack_type type, bool head) {
    switch (type) {
    case PACK_F16:
        return QUANT_F16;
    case PACK_BF16:
        return QUANT_BF16;
    case PACK_Q8:
        return QUANT_Q8B;
    case PACK_Q8C:
        return QUANT_Q8C;
    case PACK_Q4:
        return head ? QUANT_Q8B : QUANT_Q4R;
    default:
        return QUANT_F32;
    }
}

void pack_choose(pack_type type, pack_role role, bool tied, bool cut_fits, pack_item *item) {
    if (item->vector || role == PACK_ROLE_POSITION) {
        set(item, QUANT_F32, QUANT_LAYOUT_ROWS);
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
    bool head = role == PACK_ROLE_HEAD || role == PACK_ROLE_EMBEDDING;
    set(item, matrix_type(type, head), QUANT_LAYOUT_PANELS);
}
