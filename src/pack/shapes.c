/* Random weights in the shapes of known models, for measurements that need size and not sense. */
#include "pack/pack_int.h"

#include "base/hash.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>

typedef struct known_shape {
    const char *name;
    uint32_t layers, width, feed_forward, heads, kv_heads, head_size, vocabulary, context;
    bool tied;
    double rope_base;
    source_architecture architecture;
    uint32_t experts, used; /* of width `feed_forward`; 0: dense */
} known_shape;

static const known_shape shapes[] = {
    {"tiny", 2, 64, 96, 4, 2, 16, 100, 256, false, 10000, ARCHITECTURE_LLAMA, 0, 0},
    {"odd", 2, 288, 1100, 6, 2, 48, 500, 1024, false, 10000, ARCHITECTURE_LLAMA, 0,
     0}, /* multiples of nothing */
    {"heads", 2, 512, 768, 8, 2, 128, 500, 1024, false, 10000, ARCHITECTURE_LLAMA, 0,
     0}, /* large ones */
    {"long", 2, 128, 160, 4, 2, 64, 100, 1024, false, 10000, ARCHITECTURE_LLAMA, 0,
     0}, /* heads as large models have them */
    {"ladder", 4, 2048, 5632, 32, 4, 64, 8192, 8192, true, 10000, ARCHITECTURE_LLAMA, 0, 0},
    {"short", 2, 576, 1536, 9, 3, 64, 8192, 1024, true, 10000, ARCHITECTURE_LLAMA, 0,
     0}, /* two layers of the next one */
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 100000, ARCHITECTURE_LLAMA, 0, 0},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, 2048, false, 10000, ARCHITECTURE_LLAMA, 0,
     0},
    {"llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 500000, ARCHITECTURE_LLAMA, 0,
     0},
    {"llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 500000, ARCHITECTURE_LLAMA,
     0, 0},
    {"experts", 2, 96, 80, 4, 2, 24, 300, 256, false, 10000, ARCHITECTURE_QWEN3_MOE, 8, 3},
    {"olmoe-1b-7b", 16, 2048, 1024, 16, 16, 128, 50304, 4096, false, 10000, ARCHITECTURE_OLMOE, 64,
     8},
    {"qwen3-30b-a3b", 48, 2048, 768, 32, 4, 128, 151936, 40960, false, 1000000,
     ARCHITECTURE_QWEN3_MOE, 128, 8},
};

const char *pack_shapes_text(void) {
    return "tiny, odd, heads, long, ladder, short, smollm2-135m, tinyllama-1.1b, llama-3.2-1b, "
           "llama-3.1-8b, experts, olmoe-1b-7b, qwen3-30b-a3b";
}

static avo_status fill_config(const known_shape *shape, arena *arena, model_config *config,
                              avo_error *error) {
    uint8_t *flags = arena_take_array(arena, 3, shape->layers);
    if (flags == NULL)
        return status_no_memory(error, "layer flags", 3 * (size_t)shape->layers);
    memset(flags + shape->layers, 1, 2 * (size_t)shape->layers);
    *config = (model_config){
        .architecture = shape->architecture,
        .layers = shape->layers,
        .width = shape->width,
        .feed_forward = shape->feed_forward,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_size = shape->head_size,
        .vocabulary = shape->vocabulary,
        .context = shape->context,
        .embedding_width = shape->width,
        .norm_epsilon = 1e-5,
        .activation = SOURCE_ACTIVATION_SILU,
        .tied_head = shape->tied,
        .rotary_dims = shape->head_size,
        .rope_base = shape->rope_base,
        .rope = {.kind = ROPE_PLAIN, .factor = 1, .truncate = true},
        .layer_windowed = flags,
        .layer_rotary = flags + shape->layers,
    };
    if (shape->experts == 0)
        return AVO_OK;
    config->experts = shape->experts;
    config->experts_used = shape->used;
    config->expert_feed_forward = shape->feed_forward;
    config->router_normalised = shape->architecture != ARCHITECTURE_OLMOE;
    config->layer_experts = flags + 2 * (size_t)shape->layers;
    return AVO_OK;
}

typedef struct maker {
    const model_config *config;
    uint64_t seed;
    pack_type type;
    pack_list *list;
    avo_error *error;
} maker;

static avo_status add(maker *m, const char *name, uint64_t rows, uint64_t k) {
    pack_place place;
    if (!pack_place_of(text_from(name), m->config->layers, &place))
        return status_fail(m->error, AVO_ERROR_ARGUMENT, "%s is not part of the architecture",
                           name);
    pack_item item = {
        .group = place.group,
        .rank = place.rank,
        .rows = (uint32_t)rows,
        .k = (uint32_t)k,
        .vector = place.role == PACK_ROLE_VECTOR,
        .from = {.type = QUANT_F32, .layout = QUANT_LAYOUT_ROWS},
        .random_seed = m->seed,
        .random_centre = place.norm_weight ? 1.0f : 0.0f,
        .random_deviation = place.norm_weight ? 0.05f : (float)(1 / sqrt((double)k)),
    };
    memcpy(item.name, name, strlen(name) + 1);
    pack_choose(m->type, PACK_LOOK_UP_AUTO, place.role, m->config->tied_head, true, &item);
    return pack_list_add(m->list, &item, m->error);
}

static avo_status add_layer(maker *m, uint32_t layer, const char *part, uint64_t rows, uint64_t k) {
    char name[64];
    snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, part);
    return add(m, name, rows, k);
}

/* Router, experts, and norms of q and k: per head, or OLMoE's over all heads. */
static avo_status add_experts(maker *m, uint32_t layer) {
    const model_config *c = m->config;
    bool whole = c->architecture == ARCHITECTURE_OLMOE;
    uint64_t size = c->head_size, width = c->width, inner = c->expert_feed_forward;
    AVO_TRY(add_layer(m, layer, "attn_q_norm", 1, whole ? c->heads * size : size));
    AVO_TRY(add_layer(m, layer, "attn_k_norm", 1, whole ? c->kv_heads * size : size));
    AVO_TRY(add_layer(m, layer, "ffn_gate_inp", c->experts, width));
    for (uint32_t e = 0; e < c->experts; e++) {
        char part[32];
        snprintf(part, sizeof(part), "ffn_gate.%u", e);
        AVO_TRY(add_layer(m, layer, part, inner, width));
        snprintf(part, sizeof(part), "ffn_up.%u", e);
        AVO_TRY(add_layer(m, layer, part, inner, width));
        snprintf(part, sizeof(part), "ffn_down.%u", e);
        AVO_TRY(add_layer(m, layer, part, width, inner));
    }
    return AVO_OK;
}

avo_status pack_list_random(const char *name, uint64_t seed, pack_type type, pack_list *list,
                            model_config *config, avo_error *error) {
    const known_shape *shape = NULL;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(shapes[i].name, name) == 0)
            shape = &shapes[i];
    if (shape == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "unknown shape \"%.100s\"; known shapes: %s",
                           name, pack_shapes_text());
    AVO_TRY(fill_config(shape, list->arena, config, error));
    maker m = {config, seed, type == PACK_KEEP ? PACK_F32 : type, list, error};
    uint64_t width = shape->width, inner = shape->feed_forward;
    uint64_t query = (uint64_t)shape->heads * shape->head_size;
    uint64_t kv = (uint64_t)shape->kv_heads * shape->head_size;
    AVO_TRY(add(&m, "token_embd.weight", shape->vocabulary, width));
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        AVO_TRY(add_layer(&m, layer, "attn_norm", 1, width));
        AVO_TRY(add_layer(&m, layer, "attn_q", query, width));
        AVO_TRY(add_layer(&m, layer, "attn_k", kv, width));
        AVO_TRY(add_layer(&m, layer, "attn_v", kv, width));
        AVO_TRY(add_layer(&m, layer, "attn_output", width, query));
        AVO_TRY(add_layer(&m, layer, "ffn_norm", 1, width));
        if (shape->experts > 0) {
            AVO_TRY(add_experts(&m, layer));
            continue;
        }
        AVO_TRY(add_layer(&m, layer, "ffn_gate", inner, width));
        AVO_TRY(add_layer(&m, layer, "ffn_up", inner, width));
        AVO_TRY(add_layer(&m, layer, "ffn_down", width, inner));
    }
    AVO_TRY(add(&m, "output_norm.weight", 1, width));
    if (!shape->tied)
        AVO_TRY(add(&m, "output.weight", shape->vocabulary, width));
    pack_list_sort(list);
    return AVO_OK;
}

/* The sum of four bytes is near enough to normal: deviation 147.8 around 510. */
void pack_random_row(const pack_item *item, size_t row, float *out) {
    uint64_t stream = hash_bytes(item->name, strlen(item->name));
    uint64_t blocks = ((uint64_t)item->k + 3) / 4;
    float unit = item->random_deviation / 147.8f;
    for (uint64_t block = 0; block < blocks; block++) {
        random_block draw = random_at(item->random_seed, stream, row * blocks + block);
        for (uint64_t i = 0; i < 4 && block * 4 + i < item->k; i++) {
            uint32_t word = draw.words[i];
            uint32_t sum = (word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24);
            out[block * 4 + i] = item->random_centre + unit * ((float)sum - 510.0f);
        }
    }
}
