/* Sorting a source's tensors into their places by canonical name. */
#include "model/model_int.h"

#include "formats/names.h"

#include <string.h>

static const char *const layer_role_name[LAYER_ROLE_COUNT] = {
#define ROLE_NAME(role, name) [role] = name,
    LAYER_ROLE_TABLE(ROLE_NAME)};

static const char *const model_role_name[MODEL_ROLE_COUNT] = {MODEL_ROLE_TABLE(ROLE_NAME)};
#undef ROLE_NAME

static int find_role(const char *const *names, int count, text_view name) {
    for (int i = 0; i < count; i++)
        if (text_is(name, names[i]))
            return i;
    return -1;
}

/* The place of a canonical name; NULL when there is none. */
static const source_tensor **place_of(tensor_slots *slots, text_view name) {
    uint32_t layer;
    text_view rest;
    if (names_split_layer(name, &layer, &rest)) {
        uint32_t part, expert;
        if (layer < slots->layers && names_split_expert(rest, &part, &expert) &&
            expert < slots->experts)
            return &slots->expert[slots_expert(slots, layer, expert, part)];
        int role = find_role(layer_role_name, LAYER_ROLE_COUNT, rest);
        if (role < 0 || layer >= slots->layers)
            return NULL;
        return &slots->layer[(size_t)layer * LAYER_ROLE_COUNT + (size_t)role];
    }
    int role = find_role(model_role_name, MODEL_ROLE_COUNT, name);
    return role < 0 ? NULL : &slots->top[role];
}

static avo_status place_tensor(const model_source *source, const source_tensor *tensor,
                               tensor_slots *slots, avo_error *error) {
    char room[NAMES_CANONICAL_MAX];
    text_view name;
    if (names_of_tensor(source, tensor, room, &name) == NAME_IGNORED)
        return AVO_OK;
    const source_tensor **place = place_of(slots, name);
    if (place == NULL)
        return names_no_place(source, tensor, error);
    if (*place != NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensors %.*s and %.*s have the same role",
                           source->path, TEXT_ARGUMENT((*place)->name),
                           TEXT_ARGUMENT(tensor->name));
    *place = tensor;
    return AVO_OK;
}

avo_status slots_fill(const model_source *source, arena *arena, tensor_slots *slots,
                      avo_error *error) {
    memset(slots, 0, sizeof(*slots));
    slots->layers = source->config.layers;
    size_t count = (size_t)slots->layers * LAYER_ROLE_COUNT;
    slots->layer = arena_take_array(arena, count, sizeof(*slots->layer));
    slots->layer_used = arena_take_array(arena, count, 1);
    if (slots->layer == NULL || slots->layer_used == NULL)
        return status_no_memory(error, "the tensor table", count * sizeof(void *));
    slots->experts = source->config.experts;
    size_t parts = (size_t)slots->layers * slots->experts * 3;
    if (parts > 0) {
        slots->expert = arena_take_array(arena, parts, sizeof(*slots->expert));
        slots->expert_used = arena_take_array(arena, parts, 1);
        if (slots->expert == NULL || slots->expert_used == NULL)
            return status_no_memory(error, "the table of experts", parts * sizeof(void *));
    }
    for (uint32_t i = 0; i < source->tensor_count; i++)
        AVO_TRY(place_tensor(source, &source->tensors[i], slots, error));
    return AVO_OK;
}

static avo_status not_used(const model_source *source, const source_tensor *tensor,
                           avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: tensor %.*s is not used by architecture %s", source->path,
                       TEXT_ARGUMENT(tensor->name),
                       source_architecture_name(source->config.architecture));
}

avo_status slots_check_used(const model_source *source, const tensor_slots *slots,
                            avo_error *error) {
    for (size_t i = 0; i < (size_t)slots->layers * LAYER_ROLE_COUNT; i++)
        if (slots->layer[i] != NULL && !slots->layer_used[i])
            return not_used(source, slots->layer[i], error);
    for (size_t i = 0; i < (size_t)slots->layers * slots->experts * 3; i++)
        if (slots->expert[i] != NULL && !slots->expert_used[i])
            return not_used(source, slots->expert[i], error);
    for (size_t i = 0; i < MODEL_ROLE_COUNT; i++)
        if (slots->top[i] != NULL && !slots->top_used[i])
            return not_used(source, slots->top[i], error);
    return AVO_OK;
}
