/* Which tensors there are, and the order in which a forward pass reads them. Biases stand in front
 * of the matrices of one product, so that those (q, k, v; gate, up) touch each other. */
#include "formats/names.h"
#include "pack/pack_int.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct known_name {
    const char *name;
    pack_role role;
    bool norm_weight;
} known_name;

static const known_name first_names[] = {
    {"token_embd.weight", PACK_ROLE_EMBEDDING, false},
    {"position_embd.weight", PACK_ROLE_POSITION, false},
    {"project_in.weight", PACK_ROLE_MATRIX, false},
    {"rope_freqs.weight", PACK_ROLE_DROPPED, false},
    {"rope_factors_long.weight", PACK_ROLE_DROPPED, false},
    {"rope_factors_short.weight", PACK_ROLE_DROPPED, false},
    {NULL, PACK_ROLE_DROPPED, false},
};

static const known_name layer_names[] = {
    {"attn_norm.weight", PACK_ROLE_VECTOR, true},
    {"attn_norm.bias", PACK_ROLE_VECTOR, false},
    {"attn_q_norm.weight", PACK_ROLE_VECTOR, true},
    {"attn_k_norm.weight", PACK_ROLE_VECTOR, true},
    {"attn_q.bias", PACK_ROLE_VECTOR, false},
    {"attn_k.bias", PACK_ROLE_VECTOR, false},
    {"attn_v.bias", PACK_ROLE_VECTOR, false},
    {"attn_qkv.bias", PACK_ROLE_QKV, false},
    {"attn_q.weight", PACK_ROLE_MATRIX, false},
    {"attn_k.weight", PACK_ROLE_MATRIX, false},
    {"attn_v.weight", PACK_ROLE_MATRIX, false},
    {"attn_qkv.weight", PACK_ROLE_QKV, false},
    {"attn_output.bias", PACK_ROLE_VECTOR, false},
    {"attn_output.weight", PACK_ROLE_MATRIX, false},
    {"post_attention_norm.weight", PACK_ROLE_VECTOR, true},
    {"ffn_norm.weight", PACK_ROLE_VECTOR, true},
    {"ffn_norm.bias", PACK_ROLE_VECTOR, false},
    {"ffn_gate.bias", PACK_ROLE_VECTOR, false},
    {"ffn_up.bias", PACK_ROLE_UP, false},
    {"ffn_gate.weight", PACK_ROLE_MATRIX, false},
    {"ffn_up.weight", PACK_ROLE_UP, false},
    {"ffn_down.bias", PACK_ROLE_VECTOR, false},
    {"ffn_down.weight", PACK_ROLE_MATRIX, false},
    {"post_ffw_norm.weight", PACK_ROLE_VECTOR, true},
    {"attn_sinks.weight", PACK_ROLE_VECTOR, false},
    {"ffn_gate_inp.bias", PACK_ROLE_VECTOR, false},
    {"ffn_gate_inp.weight", PACK_ROLE_ROUTER, false},
    {"ffn_gate_inp_shexp.weight", PACK_ROLE_ROUTER, false},
    {"ffn_gate_exps.bias", PACK_ROLE_VECTOR, false},
    {"ffn_up_exps.bias", PACK_ROLE_VECTOR, false},
    {"ffn_down_exps.bias", PACK_ROLE_VECTOR, false},
    {"ffn_gate_shexp.weight", PACK_ROLE_MATRIX, false},
    {"ffn_up_shexp.weight", PACK_ROLE_MATRIX, false},
    {"ffn_down_shexp.weight", PACK_ROLE_MATRIX, false},
    {"ffn_gate_exps.weight", PACK_ROLE_GATE_EXPERTS, false},
    {"ffn_up_exps.weight", PACK_ROLE_UP_EXPERTS, false},
    {"ffn_down_exps.weight", PACK_ROLE_DOWN_EXPERTS, false},
    {"ffn_gate_up_exps.weight", PACK_ROLE_GATE_UP_EXPERTS, false},
    {"ffn_gate_up_exps.bias", PACK_ROLE_GATE_UP_EXPERTS, false},
    {"ffn_gate_up_exps.blocks", PACK_ROLE_GATE_UP_EXPERTS, false},
    {"ffn_gate_up_exps.scales", PACK_ROLE_GATE_UP_EXPERTS, false},
    {"ffn_down_exps.blocks", PACK_ROLE_DOWN_EXPERTS, false},
    {"ffn_down_exps.scales", PACK_ROLE_DOWN_EXPERTS, false},
    {NULL, PACK_ROLE_DROPPED, false},
};

static const known_name last_names[] = {
    {"output_norm.weight", PACK_ROLE_VECTOR, true},  {"output_norm.bias", PACK_ROLE_VECTOR, false},
    {"project_out.weight", PACK_ROLE_MATRIX, false}, {"output.bias", PACK_ROLE_VECTOR, false},
    {"output.weight", PACK_ROLE_HEAD, false},        {NULL, PACK_ROLE_DROPPED, false},
};

#define LAYER_NAMES (sizeof(layer_names) / sizeof(layer_names[0]))

/* A matrix of one expert: behind everything else of its layer, an expert's matrices together. */
static bool find_expert(text_view name, pack_place *place) {
    uint32_t part, expert;
    if (!names_split_expert(name, &part, &expert))
        return false;
    place->rank = (uint32_t)LAYER_NAMES + expert * 3 + part;
    place->role = PACK_ROLE_MATRIX;
    return true;
}

static bool find_in(const known_name *names, text_view name, pack_place *place) {
    for (uint32_t i = 0; names[i].name != NULL; i++)
        if (text_is(name, names[i].name)) {
            place->rank = i;
            place->role = names[i].role;
            place->norm_weight = names[i].norm_weight;
            return true;
        }
    return false;
}

bool pack_place_of(text_view name, uint32_t layers, pack_place *place) {
    *place = (pack_place){0};
    text_view rest;
    if (names_split_layer(name, &place->layer, &rest)) {
        place->in_layer = true;
        place->group = 1 + place->layer;
        return place->layer < layers &&
               (find_in(layer_names, rest, place) || find_expert(rest, place));
    }
    if (find_in(first_names, name, place))
        return true;
    place->group = 1 + layers;
    return find_in(last_names, name, place);
}

static int by_order(const void *left, const void *right) {
    const pack_item *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->rank == b->rank ? 0 : a->rank < b->rank ? -1 : 1;
}

void pack_list_sort(pack_list *list) {
    qsort(list->items, list->count, sizeof(pack_item), by_order);
}
