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

static pack_look_up look_up_of(pack_type type, pack_look_up look_up) {
    if (look_up != PACK_LOOK_UP_AUTO)
        return look_up;
    return type == PACK_Q8 || type == PACK_Q8C || type == PACK_F8C ? PACK_LOOK_UP_F16
                                                                   : PACK_LOOK_UP_SHARED;
}

bool pack_look_up_splits(pack_type type, pack_look_up look_up) {
    return type != PACK_KEEP && look_up_of(type, look_up) != PACK_LOOK_UP_SHARED;
}

/* An embedding that is only looked up: rows, so that one token reads one row. The narrow types have
 * no rows; one lane of a panel is read then. */
static void choose_embedding(pack_type type, pack_look_up look_up, pack_item *item) {
    static const quant_type types[] = {
#define PACK_LOOK_UP_QUANT(name, text, type) type,
        PACK_LOOK_UP_TABLE(PACK_LOOK_UP_QUANT)
#undef PACK_LOOK_UP_QUANT
    };
    quant_type matrix = matrix_type(type);
    look_up = look_up_of(type, look_up);
    if (look_up == PACK_LOOK_UP_Q8_0 && item->k % 32 != 0)
        look_up = PACK_LOOK_UP_F16;
    if (look_up != PACK_LOOK_UP_SHARED)
        pack_set(item, types[look_up], QUANT_LAYOUT_ROWS);
    else if (is_plain(matrix))
        pack_set(item, matrix, QUANT_LAYOUT_ROWS);
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

void pack_choose(pack_type type, pack_look_up look_up, pack_role role, bool tied, bool cut_fits,
                 pack_item *item) {
    item->role = role;
    item->looked_up = role == PACK_ROLE_EMBEDDING && !tied;
    if (item->vector || role == PACK_ROLE_POSITION) {
        pack_set(item, QUANT_F32, QUANT_LAYOUT_ROWS);
        return;
    }
    if (role == PACK_ROLE_ROUTER) { /* a wrong expert is worse than a rounded one */
        pack_set(item, QUANT_F32, QUANT_LAYOUT_PANELS);
        item->named = true;
        return;
    }
    if (type == PACK_KEEP) {
        choose_keep(role, tied, cut_fits, item);
        return;
    }
    if (role == PACK_ROLE_EMBEDDING && !tied) {
        choose_embedding(type, look_up, item);
        return;
    }
    pack_set(item, matrix_type(type), QUANT_LAYOUT_PANELS);
}

/* One of pack_options.tensors. */
static avo_status choose_one(text_view name, text_view value, pack_list *list, avo_error *error) {
    char text[16] = {0};
    pack_type type;
    if (value.size < sizeof(text))
        memcpy(text, value.data, value.size);
    if (name.size == 0 || !pack_type_by_name(text, &type) || type == PACK_KEEP)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "\"%.*s=%.*s\" must be part of a tensor name, = and a type (q8, f16, …)",
                           TEXT_ARGUMENT(name), TEXT_ARGUMENT(value));
    bool found = false;
    for (uint32_t i = 0; i < list->count; i++) {
        pack_item *item = &list->items[i];
        if (item->layout != QUANT_LAYOUT_PANELS ||
            memmem(item->name, strlen(item->name), name.data, name.size) == NULL)
            continue;
        pack_set(item, matrix_type(type), QUANT_LAYOUT_PANELS);
        item->named = found = true;
    }
    if (!found)
        return status_fail(error, AVO_ERROR_ARGUMENT, "no matrix has \"%.*s\" in its name",
                           TEXT_ARGUMENT(name));
    return AVO_OK;
}

avo_status pack_choose_named(const char *text, pack_list *list, avo_error *error) {
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        size_t name = equals == NULL ? length : (size_t)(equals - text);
        size_t value = equals == NULL ? length : name + 1;
        AVO_TRY(choose_one((text_view){text, name}, (text_view){text + value, length - value}, list,
                           error));
        text += length + (text[length] == ',');
    }
    return AVO_OK;
}
