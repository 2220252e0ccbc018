/* From tensors to the inputs that calibration knows, and to their factors. */
#include "pack/rounding.h"

#include "base/checked.h"
#include "formats/names.h"

#include <stdio.h>

/* Of the mean of the diagonal. A tied embedding is looked up too, where every error counts as it
 * is: that is what more damping says. Both were chosen by KL on stories15M and SmolLM2. */
#define DAMPING      0.01
#define DAMPING_TIED 1.0

/* "blk.3.attn_q.weight" reads the input "blk.3.attn"; false: none that is calibrated. */
static bool input_of(const pack_item *item, char name[64]) {
    static const struct {
        const char *tensor, *input;
    } inputs[] = {
        {"attn_q.weight", "attn"},
        {"attn_k.weight", "attn"},
        {"attn_v.weight", "attn"},
        {"attn_qkv.weight", "attn"},
        {"attn_output.weight", "attn_output"},
        {"ffn_gate.weight", "ffn"},
        {"ffn_up.weight", "ffn"},
        {"ffn_down.weight", "ffn_down"},
    };
    uint32_t layer;
    text_view rest;
    if (names_split_layer(text_from(item->name), &layer, &rest)) {
        for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
            if (text_is(rest, inputs[i].tensor)) {
                snprintf(name, 64, "blk.%u.%s", layer, inputs[i].input);
                return true;
            }
        return false;
    }
    const char *top = NULL;
    if (strcmp(item->name, "output.weight") == 0 || strcmp(item->name, "token_embd.weight") == 0)
        top = "output";
    else if (strcmp(item->name, "project_in.weight") == 0)
        top = "project_in";
    else if (strcmp(item->name, "project_out.weight") == 0)
        top = "project_out";
    snprintf(name, 64, "%s", top != NULL ? top : "");
    return top != NULL;
}

avo_status rounding_open(rounding *rounding, const char *path, const pack_list *list,
                         avo_error *error) {
    memset(rounding, 0, sizeof(*rounding));
    if (path == NULL)
        return AVO_OK;
    AVO_TRY(calibration_open(path, &rounding->file, error));
    size_t k_max = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (!list->items[i].vector)
            k_max = size_max(k_max, list->items[i].k);
    avo_status status = factor_room_open(&rounding->room, k_max, error);
    if (status != AVO_OK)
        rounding_close(rounding);
    return status;
}

void rounding_close(rounding *rounding) {
    if (rounding->file.entries != NULL)
        calibration_close(&rounding->file);
    factor_room_close(&rounding->room);
    memset(rounding, 0, sizeof(*rounding));
}

avo_status rounding_factor(rounding *r, const pack_item *item, quant_type type, team *team,
                           const feedback_factor **out, avo_error *error) {
    char name[64];
    *out = NULL;
    if (r->file.entries == NULL || item->vector || item->looked_up || !feedback_known(type) ||
        !input_of(item, name))
        return AVO_OK;
    double damping = item->role == PACK_ROLE_EMBEDDING ? DAMPING_TIED : DAMPING;
    bool rotated = type == QUANT_Q4R, there = strcmp(r->name, name) == 0 && r->k == item->k &&
                                              (r->family == QUANT_Q4R) == rotated &&
                                              r->damping == damping;
    *out = &r->factor;
    if (there)
        return AVO_OK;
    const calibration_entry *entry = calibration_find(&r->file, name);
    if (entry == NULL)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: lacks %s; the calibration was made with another model",
                           r->file.path, name);
    if (entry->k != item->k)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: %s has %u channels, but %s has %u; the calibration was made with another model",
            r->file.path, name, entry->k, item->name, item->k);
    r->name[0] = '\0';
    AVO_TRY(calibration_read(&r->file, entry, r->room.square, error));
    AVO_TRY(factor_make(&r->room, item->k, type, damping, team, &r->factor, error));
    snprintf(r->name, sizeof(r->name), "%s", name);
    r->family = rotated ? QUANT_Q4R : QUANT_Q8B;
    r->k = item->k;
    r->damping = damping;
    return AVO_OK;
}
