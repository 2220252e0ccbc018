/* Random weights, tensor by tensor: normal numbers by Box and Muller from counters. */
#include "base/file.h"
#include "base/mathd.h"
#include "base/random.h"
#include "formats/safetensors.h"
#include "train/init_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TENSORS_OF_LAYER 9
#define CHUNK            4096 /* numbers that are made at a time */

typedef enum init_fill { FILL_ONES, FILL_NORMAL, FILL_RESIDUAL } init_fill;

typedef struct init_tensor {
    safetensors_tensor tensor;
    init_fill fill;
} init_tensor;

typedef struct init_list {
    init_state *state;
    init_tensor *items;
    size_t count;
} init_list;

/* [rows][k]; rows 0: a vector of k */
static avo_status add(init_list *list, const char *name, uint32_t layer, uint32_t rows, uint32_t k,
                      init_fill fill, avo_error *error) {
    char text[SOURCE_NAME_MAX];
    int bytes = layer == UINT32_MAX
                    ? snprintf(text, sizeof(text), "%s", name)
                    : snprintf(text, sizeof(text), "model.layers.%u.%s", layer, name);
    char *copy = arena_copy_text(&list->state->arena, text, (size_t)bytes);
    if (copy == NULL)
        return status_no_memory(error, "names of tensors", (size_t)bytes);
    init_tensor *item = &list->items[list->count++];
    *item = (init_tensor){.tensor = {.name = {copy, (size_t)bytes},
                                     .type = list->state->config.bfloat16 ? QUANT_BF16 : QUANT_F32,
                                     .rank = rows == 0 ? 1 : 2,
                                     .shape = {rows == 0 ? k : rows, rows == 0 ? 1 : k, 1, 1}},
                          .fill = fill};
    list->state->info.parameters += (uint64_t)(rows == 0 ? 1 : rows) * k;
    return AVO_OK;
}

static avo_status add_layer(init_list *list, uint32_t layer, avo_error *error) {
    const init_config *c = &list->state->config;
    uint32_t queries = c->heads * c->head_size, keys = c->kv_heads * c->head_size;
    const struct {
        const char *name;
        uint32_t rows, k;
        init_fill fill;
    } all[TENSORS_OF_LAYER] = {
        {"input_layernorm.weight", 0, c->width, FILL_ONES},
        {"self_attn.q_proj.weight", queries, c->width, FILL_NORMAL},
        {"self_attn.k_proj.weight", keys, c->width, FILL_NORMAL},
        {"self_attn.v_proj.weight", keys, c->width, FILL_NORMAL},
        {"self_attn.o_proj.weight", c->width, queries, FILL_RESIDUAL},
        {"post_attention_layernorm.weight", 0, c->width, FILL_ONES},
        {"mlp.gate_proj.weight", c->feed_forward, c->width, FILL_NORMAL},
        {"mlp.up_proj.weight", c->feed_forward, c->width, FILL_NORMAL},
        {"mlp.down_proj.weight", c->width, c->feed_forward, FILL_RESIDUAL},
    };
    for (size_t i = 0; i < TENSORS_OF_LAYER; i++)
        AVO_TRY(add(list, all[i].name, layer, all[i].rows, all[i].k, all[i].fill, error));
    return AVO_OK;
}

static avo_status list_tensors(init_list *list, avo_error *error) {
    const init_config *c = &list->state->config;
    size_t most = (size_t)c->layers * TENSORS_OF_LAYER + 3;
    list->items = arena_take_array(&list->state->arena, most, sizeof(*list->items));
    if (list->items == NULL)
        return status_no_memory(error, "tensors", most * sizeof(*list->items));
    uint32_t vocabulary = list->state->info.vocabulary;
    AVO_TRY(add(list, "model.embed_tokens.weight", UINT32_MAX, vocabulary, c->width, FILL_NORMAL,
                error));
    for (uint32_t layer = 0; layer < c->layers; layer++)
        AVO_TRY(add_layer(list, layer, error));
    AVO_TRY(add(list, "model.norm.weight", UINT32_MAX, 0, c->width, FILL_ONES, error));
    if (c->tied)
        return AVO_OK;
    return add(list, "lm_head.weight", UINT32_MAX, vocabulary, c->width, FILL_NORMAL, error);
}

/* Number `at` of a stream and the one behind it; `at` is even. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t at, double pair[2]) {
    random_block block = random_at(seed, stream, at);
    uint64_t a = (uint64_t)block.words[0] << 32 | block.words[1];
    uint64_t b = (uint64_t)block.words[2] << 32 | block.words[3];
    double u = ((double)(a >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */
    double angle = (double)(b >> 11) * 0x1p-53 * 6.283185307179586;
    double length = sqrt(-2.0 * mathd_log(u));
    double sine, cosine;
    mathd_sine_cosine(angle, &sine, &cosine);
    pair[0] = length * cosine;
    pair[1] = length * sine;
}

static void fill_numbers(const init_state *state, init_fill fill, uint64_t stream, uint64_t first,
                         size_t count, float *out) {
    double deviation = state->config.deviation;
    if (fill == FILL_RESIDUAL)
        deviation /= sqrt(2.0 * state->config.layers);
    for (size_t i = 0; i < count; i += 2) {
        double pair[2] = {1.0, 1.0};
        if (fill != FILL_ONES) {
            normal_pair(state->options->seed, stream, first + i, pair);
            pair[0] *= deviation;
            pair[1] *= deviation;
        }
        out[i] = (float)pair[0];
        if (i + 1 < count)
            out[i + 1] = (float)pair[1];
    }
}

static avo_status write_tensor(const init_state *state, const init_tensor *tensor, uint64_t stream,
                               safetensors_writer *writer, avo_error *error) {
    float numbers[CHUNK];
    uint8_t bytes[CHUNK * sizeof(float)];
    uint64_t total = tensor->tensor.shape[0] * tensor->tensor.shape[1];
    size_t size = tensor->tensor.type == QUANT_BF16 ? 2 : 4;
    for (uint64_t at = 0; at < total; at += CHUNK) {
        size_t count = total - at < CHUNK ? (size_t)(total - at) : CHUNK;
        fill_numbers(state, tensor->fill, stream, at, count, numbers);
        quant_encode(tensor->tensor.type, numbers, count, bytes);
        AVO_TRY(safetensors_writer_append(writer, bytes, count * size, error));
    }
    return AVO_OK;
}

avo_status init_write_weights(init_state *state, avo_error *error) {
    init_list list = {.state = state};
    AVO_TRY(list_tensors(&list, error));
    safetensors_tensor *tensors =
        arena_take_array(&state->arena, list.count, sizeof(safetensors_tensor));
    if (tensors == NULL)
        return status_no_memory(error, "tensors", list.count * sizeof(*tensors));
    for (size_t i = 0; i < list.count; i++)
        tensors[i] = list.items[i].tensor;
    const safetensors_entry entry = {TEXT_LITERAL("format"), TEXT_LITERAL("pt")};
    safetensors_content content = {
        .tensors = tensors, .tensor_count = list.count, .metadata = &entry, .metadata_count = 1};
    char path[INIT_PATH_MAX];
    safetensors_writer *writer;
    AVO_TRY(file_join(path, sizeof(path), state->folder, "model.safetensors", error));
    AVO_TRY(safetensors_writer_open(state->options->allocator, path, &content, &writer, error));
    avo_status status = AVO_OK;
    for (size_t i = 0; i < list.count && status == AVO_OK; i++)
        status = write_tensor(state, &list.items[i], i, writer, error);
    if (status == AVO_OK)
        return safetensors_writer_commit(writer, error);
    safetensors_writer_abort(writer);
    return status;
}
