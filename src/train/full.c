/* Full tuning: every tensor of the model is a parameter in f32. A second model is bound to the
 * parameters' memory; the engine computes that one. Devices that read panels have copies of the
 * matrices, which train_full_changed writes anew; everything else is read in place. */
#include "train/core_int.h"

#include "base/checked.h"
#include "formats/names.h"

#include <stddef.h>
#include <string.h>

struct train_full {
    model_source source;    /* the model's, with tensors that are parameters */
    avo_model model;        /* bound to it */
    uint32_t *tensor;       /* [parameters] number of its tensor */
    const float **one_plus; /* [parameters] norms that are stored without their 1: where the bound
                               model has them with it; NULL: in place */
};

/* ---- The list of parameters ---- */

static bool is_floats(quant_type type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

static avo_status check_tensor(const model_source *source, const source_tensor *tensor,
                               avo_error *error) {
    if (is_floats(tensor->type) && tensor->layout == QUANT_LAYOUT_ROWS && tensor->rank <= 2)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: tensor %.*s has type %s; full tuning needs a model in f32, f16 or "
                       "bf16 (train a LoRA on this one)",
                       source->path, TEXT_ARGUMENT(tensor->name), quant_name(tensor->type));
}

static train_role role_of(text_view name, const source_tensor *tensor) {
    if (text_is(name, "token_embd.weight") || text_is(name, "position_embd.weight") ||
        text_is(name, "output.weight"))
        return TRAIN_EMBEDDING;
    return tensor->rank == 2 ? TRAIN_MATRIX : TRAIN_VECTOR;
}

/* Whether a tensor is trained; *name: its canonical name. A head that is tied to the embedding may
 * lie in the file as well: it is the same matrix. */
static bool is_trained(const model_source *source, const source_tensor *tensor, char *room,
                       text_view *name) {
    if (names_of_tensor(source, tensor, room, name) == NAME_IGNORED)
        return false;
    return !(source->config.tied_head && text_is(*name, "output.weight"));
}

static avo_status add_parameter(train_core *core, uint32_t number, avo_error *error) {
    const model_source *source = core->model->source;
    const source_tensor *tensor = &source->tensors[number];
    char room[NAMES_CANONICAL_MAX];
    text_view name;
    if (!is_trained(source, tensor, room, &name))
        return AVO_OK;
    AVO_TRY(check_tensor(source, tensor, error));
    if (tensor->name.size >= TRAIN_NAME_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "tensor %.*s: the name is too long",
                           TEXT_ARGUMENT(tensor->name));
    train_parameter *parameter = &core->parameters.item[core->parameters.count];
    core->full->tensor[core->parameters.count++] = number;
    bool matrix = tensor->rank == 2;
    *parameter = (train_parameter){
        .name = arena_copy_text(&core->arena, tensor->name.data, tensor->name.size),
        .role = role_of(name, tensor),
        .rows = matrix ? (uint32_t)tensor->shape[0] : 1,
        .k = (uint32_t)(matrix ? tensor->shape[1] : tensor->shape[0])};
    return parameter->name == NULL ? status_no_memory(error, "a name", tensor->name.size) : AVO_OK;
}

static avo_status list_parameters(train_core *core, avo_error *error) {
    const model_source *source = core->model->source;
    struct train_full *full = core->full;
    size_t count = source->tensor_count;
    core->parameters.item = arena_take_array(&core->arena, count, sizeof(train_parameter));
    full->tensor = arena_take_array(&core->arena, count, sizeof(*full->tensor));
    full->one_plus = arena_take_array(&core->arena, count, sizeof(*full->one_plus));
    if (core->parameters.item == NULL || full->tensor == NULL || full->one_plus == NULL)
        return status_no_memory(error, "parameters", count * sizeof(train_parameter));
    for (uint32_t i = 0; i < source->tensor_count; i++)
        AVO_TRY(add_parameter(core, i, error));
    return AVO_OK;
}

avo_status train_full_open(train_core *core, avo_error *error) {
    const model_source *source = core->model->source;
    if (source->format != SOURCE_SAFETENSORS || core->model->borrows_source)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s is a %s file; full tuning needs a folder with safetensors (train a "
                           "LoRA on this one)",
                           source->path, source_format_name(source->format));
    if (core->options.resume != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: full tuning continues from a model folder, give it as the model",
                           core->options.resume);
    core->full = arena_take_array(&core->arena, 1, sizeof(*core->full));
    if (core->full == NULL)
        return status_no_memory(error, "full tuning", sizeof(*core->full));
    return list_parameters(core, error);
}

void train_full_close(train_core *core) {
    if (core->copy == NULL)
        return;
    weights_store_close(core->copy->store);
    arena_free(&core->copy->arena);
    core->copy = NULL;
}

/* ---- The model ---- */

/* The source again, its tensors in the parameters' memory. */
static avo_status copy_source(train_core *core, avo_error *error) {
    struct train_full *full = core->full;
    full->source = *core->model->source;
    size_t count = full->source.tensor_count;
    source_tensor *tensors = arena_take_array(&core->arena, count, sizeof(*tensors));
    if (tensors == NULL)
        return status_no_memory(error, "tensors", count * sizeof(*tensors));
    memcpy(tensors, full->source.tensors, count * sizeof(*tensors));
    full->source.tensors = tensors;
    for (uint32_t i = 0; i < core->parameters.count; i++) {
        const train_parameter *parameter = &core->parameters.item[i];
        source_tensor *tensor = &tensors[full->tensor[i]];
        size_t numbers = (size_t)parameter->rows * parameter->k;
        quant_decode(tensor->type, tensor->data, numbers, parameter->value);
        tensor->type = QUANT_F32;
        tensor->data = (const uint8_t *)parameter->value;
        tensor->bytes = numbers * sizeof(float);
    }
    return AVO_OK;
}

avo_status train_full_model(train_core *core, avo_error *error) {
    AVO_TRY(copy_source(core, error));
    const avo_model *model = core->model;
    avo_model *copy = &core->full->model;
    *copy = (avo_model){.allocator = model->allocator,
                        .source = &core->full->source,
                        .tokenizer = model->tokenizer,
                        .tokenizer_error = model->tokenizer_error,
                        .chat_template = model->chat_template,
                        .template_error = model->template_error};
    arena_init(&copy->arena, model->allocator, SIZE_MAX);
    core->copy = copy;
    AVO_TRY(weights_store_open(model->allocator, &copy->store, error));
    return model_bind(copy, error);
}

/* ---- Gradients ---- */

typedef enum full_kind { KIND_WEIGHT, KIND_BIAS, KIND_NORM, KIND_NORM_BIAS } full_kind;

/* Which member of train_layer a canonical name is of. Fused matrices are named apart. */
static const struct {
    const char *name;
    size_t member;
    full_kind kind;
} layer_members[] = {
    {"attn_norm.weight", offsetof(train_layer, attention_norm), KIND_NORM},
    {"attn_norm.bias", offsetof(train_layer, attention_norm), KIND_NORM_BIAS},
    {"attn_q.weight", offsetof(train_layer, query), KIND_WEIGHT},
    {"attn_q.bias", offsetof(train_layer, query), KIND_BIAS},
    {"attn_k.weight", offsetof(train_layer, key), KIND_WEIGHT},
    {"attn_k.bias", offsetof(train_layer, key), KIND_BIAS},
    {"attn_v.weight", offsetof(train_layer, value), KIND_WEIGHT},
    {"attn_v.bias", offsetof(train_layer, value), KIND_BIAS},
    {"attn_output.weight", offsetof(train_layer, output), KIND_WEIGHT},
    {"attn_output.bias", offsetof(train_layer, output), KIND_BIAS},
    {"attn_q_norm.weight", offsetof(train_layer, query_norm), KIND_NORM},
    {"attn_k_norm.weight", offsetof(train_layer, key_norm), KIND_NORM},
    {"post_attention_norm.weight", offsetof(train_layer, attention_post_norm), KIND_NORM},
    {"ffn_norm.weight", offsetof(train_layer, feed_forward_norm), KIND_NORM},
    {"ffn_norm.bias", offsetof(train_layer, feed_forward_norm), KIND_NORM_BIAS},
    {"ffn_gate.weight", offsetof(train_layer, gate), KIND_WEIGHT},
    {"ffn_gate.bias", offsetof(train_layer, gate), KIND_BIAS},
    {"ffn_up.weight", offsetof(train_layer, up), KIND_WEIGHT},
    {"ffn_up.bias", offsetof(train_layer, up), KIND_BIAS},
    {"ffn_down.weight", offsetof(train_layer, down), KIND_WEIGHT},
    {"ffn_down.bias", offsetof(train_layer, down), KIND_BIAS},
    {"post_ffw_norm.weight", offsetof(train_layer, feed_forward_post_norm), KIND_NORM},
};
#define LAYER_MEMBERS (sizeof(layer_members) / sizeof(layer_members[0]))

/* Rows [first, first + rows of the matrix) of a parameter that may be fused. */
static void tie_weight(const train_core *core, train_linear *linear, float *gradient,
                       uint32_t first) {
    const weight_view *weight = &linear->base->weight;
    bool transposed = weight->layout == QUANT_LAYOUT_COLUMNS;
    uint32_t whole = weight->rows_whole == 0 ? weight->rows : weight->rows_whole;
    (void)core;
    linear->transposed = transposed;
    linear->stride = transposed ? whole : weight->k;
    linear->dweight = gradient + (transposed ? first : (size_t)first * weight->k);
}

/* Query, key and value, or gate and up, of one tensor. */
static bool tie_fused(const train_core *core, train_layer *layer, text_view name, float *gradient) {
    bool qkv = text_is(name, "attn_qkv.weight"), qkv_bias = text_is(name, "attn_qkv.bias");
    bool up = text_is(name, "ffn_up.weight"), up_bias = text_is(name, "ffn_up.bias");
    const weight_view *upper = &layer->up.base->weight;
    bool fused_up = (up || up_bias) && upper->row_first > 0;
    train_linear *const parts[] = {qkv || qkv_bias ? &layer->query : &layer->gate,
                                   qkv || qkv_bias ? &layer->key : &layer->up, &layer->value};
    if (!qkv && !qkv_bias && !fused_up)
        return false;
    uint32_t first = 0;
    for (uint32_t i = 0; i < (fused_up ? 2u : 3u); i++) {
        if (qkv || (fused_up && up))
            tie_weight(core, parts[i], gradient, first);
        else
            parts[i]->dbias = gradient + first;
        first += parts[i]->base->weight.rows;
    }
    return true;
}

static void tie_norm(train_core *core, train_norm *norm, uint32_t number) {
    const train_parameter *parameter = &core->parameters.item[number];
    norm->dweight = parameter->gradient;
    if (norm->base->weight != parameter->value)
        core->full->one_plus[number] = norm->base->weight;
}

static bool tie_layer(train_core *core, train_layer *layer, text_view name, uint32_t number) {
    float *gradient = core->parameters.item[number].gradient;
    if (tie_fused(core, layer, name, gradient))
        return true;
    for (size_t i = 0; i < LAYER_MEMBERS; i++) {
        if (!text_is(name, layer_members[i].name))
            continue;
        void *member = (char *)layer + layer_members[i].member;
        if (layer_members[i].kind == KIND_WEIGHT)
            tie_weight(core, member, gradient, 0);
        else if (layer_members[i].kind == KIND_BIAS)
            ((train_linear *)member)->dbias = gradient;
        else if (layer_members[i].kind == KIND_NORM)
            tie_norm(core, member, number);
        else
            ((train_norm *)member)->dbias = gradient;
        return true;
    }
    return false;
}

static bool tie_top(train_core *core, text_view name, uint32_t number) {
    train_model *net = &core->net;
    float *gradient = core->parameters.item[number].gradient;
    if (text_is(name, "token_embd.weight")) {
        net->dembedding = gradient;
        net->tied = core->model->source->config.tied_head;
        if (net->tied)
            tie_weight(core, &net->head, gradient, 0);
    } else if (text_is(name, "position_embd.weight")) {
        net->dposition = gradient;
    } else if (text_is(name, "project_in.weight")) {
        tie_weight(core, &net->embedding_project, gradient, 0);
    } else if (text_is(name, "project_out.weight")) {
        tie_weight(core, &net->head_project, gradient, 0);
    } else if (text_is(name, "output_norm.weight")) {
        tie_norm(core, &net->final_norm, number);
    } else if (text_is(name, "output_norm.bias")) {
        net->final_norm.dbias = gradient;
    } else if (text_is(name, "output.weight")) {
        tie_weight(core, &net->head, gradient, 0);
    } else if (text_is(name, "output.bias")) {
        net->head.dbias = gradient;
    } else {
        return false;
    }
    return true;
}

avo_status train_full_bind(train_core *core, avo_error *error) {
    const model_source *source = core->model->source;
    core->net.input = core->net.head_trained = true;
    for (uint32_t i = 0; i < core->parameters.count; i++) {
        const source_tensor *tensor = &source->tensors[core->full->tensor[i]];
        char room[NAMES_CANONICAL_MAX];
        text_view name, rest;
        uint32_t layer;
        bool known = names_of_tensor(source, tensor, room, &name) == NAME_KNOWN;
        bool layered = known && names_split_layer(name, &layer, &rest);
        if (layered ? !tie_layer(core, &core->net.layer[layer], rest, i) : !tie_top(core, name, i))
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "%s: tensor %.*s cannot be trained; train a LoRA on this model",
                               source->path, TEXT_ARGUMENT(tensor->name));
    }
    return AVO_OK;
}

/* ---- Changes ---- */

typedef struct repack_task {
    const weight_view *from, *to;
    size_t panel_bytes;
} repack_task;

static void repack_panels(void *context, size_t begin, size_t end) {
    const repack_task *task = context;
    for (size_t panel = begin; panel < end; panel++)
        weight_repack_panel(task->from, panel, task->to->type,
                            (uint8_t *)(uintptr_t)task->to->data + panel * task->panel_bytes);
}

/* A matrix as the device has it, where that is a copy. */
static void renew(train_core *core, const linear_view *from, const linear_view *to) {
    uint64_t bytes = 0;
    repack_task task = {&from->weight, &to->weight, 0};
    if (from->weight.data == NULL || to->weight.data == from->weight.data ||
        !weight_panel_bytes(to->weight.type, to->weight.k, &bytes))
        return;
    task.panel_bytes = (size_t)bytes;
    train_each(core, weight_panels(&from->weight), 4, repack_panels, &task);
}

avo_status train_full_changed(train_core *core, avo_error *error) {
    (void)error;
    const model_view *from = &core->copy->view, *to = engine_model_view(core->engine);
    for (uint32_t i = 0; i < core->parameters.count; i++) {
        float *plus = (float *)(uintptr_t)core->full->one_plus[i];
        const train_parameter *parameter = &core->parameters.item[i];
        for (uint32_t j = 0; plus != NULL && j < parameter->k; j++)
            plus[j] = 1.0f + parameter->value[j];
    }
    for (uint32_t i = 0; i < from->layers; i++) {
        const layer_view *a = &from->layer[i], *b = &to->layer[i];
        renew(core, &a->query, &b->query);
        renew(core, &a->key, &b->key);
        renew(core, &a->value, &b->value);
        renew(core, &a->output, &b->output);
        renew(core, &a->gate, &b->gate);
        renew(core, &a->up, &b->up);
        renew(core, &a->down, &b->down);
    }
    renew(core, &from->embedding_project, &to->embedding_project);
    renew(core, &from->head_project, &to->head_project);
    renew(core, &from->head, &to->head);
    engine_forget_prefixes(core->engine);
    return AVO_OK;
}
