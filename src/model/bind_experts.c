/* Router and experts of a layer. Their matrices come in one of four forms, from which views of each
 * expert are made:
 *
 *   one tensor per expert    Mixtral, Qwen, OLMoE in safetensors; every .avo
 *   stacked, [experts][rows][k], one tensor each for gate, up and down    GGUF
 *   stacked, gate and up behind one another in an expert                  Granite's safetensors
 *   stacked, rows of gate and up alternate                                gpt-oss's safetensors,
 *       as floats [experts][k][rows], or as MXFP4 in blocks and scales apart
 *
 * Only the last is converted, losslessly and into the model's arena. */
#include "model/bind_int.h"

#include "base/checked.h"

#include <string.h>

#define MXFP4_BLOCK 32
#define MXFP4_BYTES 17 /* an exponent, 32 numbers */

/* ---- Stacked tensors ---- */

/* The matrix of expert `e`: rows [first, first + rows) of the `all` that an expert has. */
typedef struct stack {
    const source_tensor *tensor;
    uint64_t all, k;
    uint64_t expert_bytes;
    quant_layout layout;
} stack;

static avo_status open_stack(binder *b, const source_tensor *tensor, uint64_t rows, uint64_t k,
                             quant_layout layout, stack *out) {
    uint64_t count = b->config->experts;
    bool columns = layout == QUANT_LAYOUT_COLUMNS;
    uint64_t outer = columns ? k : rows, inner = columns ? rows : k;
    *out = (stack){.tensor = tensor, .all = rows, .k = k, .layout = layout};
    if (tensor->rank != 3 || tensor->shape[0] != count || tensor->shape[1] != outer ||
        tensor->shape[2] != inner || tensor->layout != QUANT_LAYOUT_ROWS)
        return status_fail(b->error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s has shape [%llu, %llu, %llu], must have [%llu, %llu, "
                           "%llu]",
                           b->model->source->path, TEXT_ARGUMENT(tensor->name),
                           (unsigned long long)tensor->shape[0],
                           (unsigned long long)tensor->shape[1],
                           (unsigned long long)tensor->shape[2], (unsigned long long)count,
                           (unsigned long long)outer, (unsigned long long)inner);
    uint64_t all;
    if (!weight_bytes(tensor->type, layout, rows, k, &out->expert_bytes) ||
        !u64_multiply(out->expert_bytes, count, &all) || all != tensor->bytes)
        return status_fail(b->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s: %llu bytes of type %s do not match %llu matrices of "
                           "%llu × %llu",
                           b->model->source->path, TEXT_ARGUMENT(tensor->name),
                           (unsigned long long)tensor->bytes, quant_name(tensor->type),
                           (unsigned long long)count, (unsigned long long)rows,
                           (unsigned long long)k);
    bind_count(b, tensor);
    if (k > b->model->view.k_max)
        b->model->view.k_max = (uint32_t)k;
    return AVO_OK;
}

static weight_view stack_part(const stack *stack, uint32_t e, uint32_t first, uint32_t rows) {
    weight_view whole = {.type = stack->tensor->type,
                         .layout = stack->layout,
                         .rows = (uint32_t)stack->all,
                         .k = (uint32_t)stack->k,
                         .rows_whole = (uint32_t)stack->all,
                         .data = stack->tensor->data + e * stack->expert_bytes};
    if (first == 0 && rows == stack->all)
        return whole;
    weight_view part = weight_slice(&whole, first, rows);
    part.row_first = 0; /* each is a matrix of its own to devices */
    part.rows_whole = rows;
    return part;
}

/* Biases of all experts, [experts][rows]; NULL where the file has none. */
static avo_status stacked_bias(binder *b, uint32_t number, layer_role role, uint32_t rows,
                               const float **out) {
    const source_tensor *tensor = bind_take(b, number, role);
    *out = NULL;
    if (tensor == NULL)
        return AVO_OK;
    return bind_vector(b, tensor, (uint64_t)b->config->experts * rows, false, out);
}

/* ---- gpt-oss's safetensors: gate and up alternate ---- */

static avo_status take_copy(binder *b, size_t count, size_t size, uint8_t **out) {
    *out = arena_take_array(&b->model->arena, count, size);
    if (*out == NULL)
        return status_no_memory(b->error, "experts", count * size);
    b->model->repack_bytes += (uint64_t)count * size;
    return AVO_OK;
}

/* Every second row of floats stored as [k][2 · rows], as a matrix in rows. */
static avo_status separate_floats(binder *b, const stack *both, uint32_t e, uint32_t odd,
                                  uint32_t rows, weight_view *out) {
    uint64_t size;
    uint8_t *copy;
    (void)quant_run_bytes(both->tensor->type, 1, &size); /* floats: open_stack has seen to it */
    AVO_TRY(take_copy(b, (size_t)rows * both->k, (size_t)size, &copy));
    const uint8_t *from = both->tensor->data + e * both->expert_bytes;
    for (size_t k = 0; k < both->k; k++)
        for (size_t row = 0; row < rows; row++)
            memcpy(copy + (row * both->k + k) * size, from + (k * both->all + 2 * row + odd) * size,
                   size);
    *out = (weight_view){.type = both->tensor->type,
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = rows,
                         .k = (uint32_t)both->k,
                         .rows_whole = rows,
                         .data = copy};
    return AVO_OK;
}

/* MXFP4 as two tensors: numbers [experts][rows][k / 32][16], two neighbours in a byte, and
 * exponents [experts][rows][k / 32]. */
typedef struct split_mxfp4 {
    const source_tensor *blocks, *scales;
    uint32_t rows, k;
} split_mxfp4;

static avo_status open_mxfp4(binder *b, uint32_t number, layer_role blocks, layer_role scales,
                             uint32_t rows, uint32_t k, split_mxfp4 *out) {
    *out = (split_mxfp4){bind_take(b, number, blocks), bind_take(b, number, scales), rows, k};
    if (out->blocks == NULL || out->scales == NULL)
        return bind_missing(b, "the blocks or the scales of its experts", number);
    uint64_t groups = (uint64_t)b->config->experts * rows * (k / MXFP4_BLOCK);
    if (k % MXFP4_BLOCK != 0 || out->blocks->type != QUANT_U8 || out->scales->type != QUANT_U8 ||
        out->scales->bytes != groups || out->blocks->bytes != groups * (MXFP4_BYTES - 1))
        return status_fail(b->error, AVO_ERROR_FORMAT,
                           "%s: tensors %.*s and %.*s do not have the shapes of %u MXFP4 matrices "
                           "of %u × %u",
                           b->model->source->path, TEXT_ARGUMENT(out->blocks->name),
                           TEXT_ARGUMENT(out->scales->name), b->config->experts, rows, k);
    b->model->parameters += groups * MXFP4_BLOCK;
    b->model->weight_bytes += out->blocks->bytes + out->scales->bytes;
    if (k > b->model->view.k_max)
        b->model->view.k_max = k;
    return AVO_OK;
}

/* One block as GGUF has it: a byte holds number i and number i + 16. */
static void join_block(const uint8_t *numbers, uint8_t exponent, uint8_t *out) {
    uint8_t number[MXFP4_BLOCK];
    for (uint32_t i = 0; i < MXFP4_BLOCK / 2; i++) {
        number[2 * i] = numbers[i] & 15;
        number[2 * i + 1] = numbers[i] >> 4;
    }
    out[0] = exponent;
    for (uint32_t i = 0; i < MXFP4_BLOCK / 2; i++)
        out[1 + i] = (uint8_t)(number[i] | number[i + MXFP4_BLOCK / 2] << 4);
}

/* Rows first, first + step, … of expert `e`. */
static avo_status join_mxfp4(binder *b, const split_mxfp4 *from, uint32_t e, uint32_t first,
                             uint32_t step, weight_view *out) {
    size_t groups = from->k / MXFP4_BLOCK;
    uint32_t rows = from->rows / step;
    uint8_t *copy;
    AVO_TRY(take_copy(b, rows * groups, MXFP4_BYTES, &copy));
    for (uint32_t row = 0; row < rows; row++) {
        size_t at = ((size_t)e * from->rows + first + (size_t)row * step) * groups;
        for (size_t group = 0; group < groups; group++)
            join_block(from->blocks->data + (at + group) * (MXFP4_BYTES - 1),
                       from->scales->data[at + group], copy + (row * groups + group) * MXFP4_BYTES);
    }
    *out = (weight_view){.type = QUANT_MXFP4,
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = rows,
                         .k = from->k,
                         .rows_whole = rows,
                         .data = copy};
    return AVO_OK;
}

/* Biases of gate and up, apart. */
static avo_status separate_bias(binder *b, const float *both, uint32_t inner, expert_view *list) {
    for (uint32_t e = 0; both != NULL && e < b->config->experts; e++) {
        uint8_t *copy;
        AVO_TRY(take_copy(b, 2 * (size_t)inner, sizeof(float), &copy));
        float *gate = (float *)(void *)copy, *up = gate + inner;
        for (uint32_t i = 0; i < inner; i++) {
            gate[i] = both[((size_t)e * inner + i) * 2];
            up[i] = both[((size_t)e * inner + i) * 2 + 1];
        }
        list[e].gate.bias = gate;
        list[e].up.bias = up;
    }
    return AVO_OK;
}

static avo_status bind_alternating(binder *b, uint32_t number, expert_view *list) {
    uint32_t width = b->config->width, inner = b->config->expert_feed_forward;
    const source_tensor *floats = bind_take(b, number, ROLE_GATE_UP_EXPERTS);
    const float *bias, *down_bias;
    stack both, down;
    split_mxfp4 both4, down4;
    if (floats != NULL) {
        const source_tensor *tensor = bind_take(b, number, ROLE_DOWN_EXPERTS);
        if (tensor == NULL)
            return bind_missing(b, "ffn_down_exps", number);
        AVO_TRY(open_stack(b, floats, 2ull * inner, width, QUANT_LAYOUT_COLUMNS, &both));
        AVO_TRY(open_stack(b, tensor, width, inner, QUANT_LAYOUT_COLUMNS, &down));
    } else {
        AVO_TRY(open_mxfp4(b, number, ROLE_GATE_UP_EXPERTS_BLOCKS, ROLE_GATE_UP_EXPERTS_SCALES,
                           2 * inner, width, &both4));
        AVO_TRY(open_mxfp4(b, number, ROLE_DOWN_EXPERTS_BLOCKS, ROLE_DOWN_EXPERTS_SCALES, width,
                           inner, &down4));
    }
    for (uint32_t e = 0; e < b->config->experts; e++) {
        if (floats != NULL) {
            AVO_TRY(separate_floats(b, &both, e, 0, inner, &list[e].gate.weight));
            AVO_TRY(separate_floats(b, &both, e, 1, inner, &list[e].up.weight));
            list[e].down.weight = stack_part(&down, e, 0, width);
        } else {
            AVO_TRY(join_mxfp4(b, &both4, e, 0, 2, &list[e].gate.weight));
            AVO_TRY(join_mxfp4(b, &both4, e, 1, 2, &list[e].up.weight));
            AVO_TRY(join_mxfp4(b, &down4, e, 0, 1, &list[e].down.weight));
        }
    }
    AVO_TRY(stacked_bias(b, number, ROLE_GATE_UP_EXPERTS_BIAS, 2 * inner, &bias));
    AVO_TRY(stacked_bias(b, number, ROLE_DOWN_EXPERTS_BIAS, width, &down_bias));
    for (uint32_t e = 0; down_bias != NULL && e < b->config->experts; e++)
        list[e].down.bias = down_bias + (size_t)e * width;
    return separate_bias(b, bias, inner, list);
}

/* ---- The other forms ---- */

/* Gate, up and down of an expert: where they are in `expert_view`, their shapes and their roles. */
typedef struct expert_part {
    size_t offset;
    layer_role stacked, bias;
    uint32_t rows, k;
    const char *name;
} expert_part;

static linear_view *part_of(expert_view *expert, const expert_part *part) {
    return (linear_view *)(void *)((char *)expert + part->offset);
}

static avo_status bind_each(binder *b, uint32_t number, uint32_t index, const expert_part *part,
                            expert_view *list) {
    for (uint32_t e = 0; e < b->config->experts; e++) {
        size_t at = slots_expert(&b->slots, number, e, index);
        const source_tensor *tensor = b->slots.expert[at];
        b->slots.expert_used[at] = 1;
        if (tensor == NULL)
            return status_fail(b->error, AVO_ERROR_FORMAT, "%s: layer %u lacks %s of expert %u",
                               b->model->source->path, number, part->name, e);
        linear_view *linear = part_of(&list[e], part);
        AVO_TRY(bind_matrix(b, tensor, part->rows, part->k, false, &linear->weight));
    }
    return AVO_OK;
}

static avo_status bind_parts(binder *b, uint32_t number, expert_view *list) {
    uint32_t width = b->config->width, inner = b->config->expert_feed_forward;
    const expert_part parts[3] = {
        {offsetof(expert_view, gate), ROLE_GATE_EXPERTS, ROLE_GATE_EXPERTS_BIAS, inner, width,
         "ffn_gate"},
        {offsetof(expert_view, up), ROLE_UP_EXPERTS, ROLE_UP_EXPERTS_BIAS, inner, width, "ffn_up"},
        {offsetof(expert_view, down), ROLE_DOWN_EXPERTS, ROLE_DOWN_EXPERTS_BIAS, width, inner,
         "ffn_down"}};
    const source_tensor *both = bind_take(b, number, ROLE_GATE_UP_EXPERTS);
    stack stack;
    for (uint32_t i = 0; i < 3; i++) {
        const source_tensor *tensor = bind_take(b, number, parts[i].stacked);
        if (both != NULL && i < 2) { /* gate first */
            if (i == 0)
                AVO_TRY(open_stack(b, both, 2ull * inner, width, QUANT_LAYOUT_ROWS, &stack));
            for (uint32_t e = 0; e < b->config->experts; e++)
                part_of(&list[e], &parts[i])->weight = stack_part(&stack, e, i * inner, inner);
        } else if (tensor != NULL) {
            AVO_TRY(open_stack(b, tensor, parts[i].rows, parts[i].k, QUANT_LAYOUT_ROWS, &stack));
            for (uint32_t e = 0; e < b->config->experts; e++)
                part_of(&list[e], &parts[i])->weight = stack_part(&stack, e, 0, parts[i].rows);
        } else {
            AVO_TRY(bind_each(b, number, i, &parts[i], list));
        }
        const float *bias;
        AVO_TRY(stacked_bias(b, number, parts[i].bias, parts[i].rows, &bias));
        for (uint32_t e = 0; bias != NULL && e < b->config->experts; e++)
            part_of(&list[e], &parts[i])->bias = bias + (size_t)e * parts[i].rows;
    }
    return AVO_OK;
}

/* Kernels take the forms of rows from the first expert. */
static avo_status check_alike(binder *b, uint32_t number, const expert_view *list) {
    for (uint32_t e = 1; e < b->config->experts; e++)
        if (list[e].gate.weight.type != list[0].gate.weight.type ||
            list[e].up.weight.type != list[0].up.weight.type ||
            list[e].down.weight.type != list[0].down.weight.type)
            return status_fail(b->error, AVO_ERROR_UNSUPPORTED,
                               "%s: layer %u: matrices of expert %u have other types than those of "
                               "expert 0, which is not supported",
                               b->model->source->path, number, e);
    return AVO_OK;
}

/* ---- A layer ---- */

/* The shared expert's gate is one row, which GGUF stores as a vector. */
static avo_status bind_shared_gate(binder *b, uint32_t number, linear_view *out) {
    const source_tensor *tensor = bind_take(b, number, ROLE_SHARED_GATE);
    if (tensor == NULL)
        return bind_missing(b, "ffn_gate_inp_shexp", number);
    source_tensor row = *tensor;
    if (row.rank == 1) {
        row.rank = 2;
        row.shape[1] = row.shape[0];
        row.shape[0] = 1;
    }
    return bind_matrix(b, &row, 1, b->config->width, false, &out->weight);
}

static avo_status bind_shared(binder *b, uint32_t number, experts_view *experts) {
    uint32_t width = b->config->width, inner = b->config->shared_feed_forward;
    if (inner == 0)
        return AVO_OK;
    AVO_TRY(bind_linear(b, number, ROLE_GATE_SHARED, ROLE_GATE_SHARED, BIAS_NONE, inner, width,
                        "ffn_gate_shexp", &experts->shared.gate));
    AVO_TRY(bind_linear(b, number, ROLE_UP_SHARED, ROLE_UP_SHARED, BIAS_NONE, inner, width,
                        "ffn_up_shexp", &experts->shared.up));
    AVO_TRY(bind_linear(b, number, ROLE_DOWN_SHARED, ROLE_DOWN_SHARED, BIAS_NONE, width, inner,
                        "ffn_down_shexp", &experts->shared.down));
    return b->architecture->shared_gate ? bind_shared_gate(b, number, &experts->shared_gate)
                                        : AVO_OK;
}

avo_status bind_experts(binder *b, uint32_t number, layer_view *layer) {
    experts_view *experts = &layer->experts;
    uint32_t count = b->config->experts;
    expert_view *list = arena_take_array(&b->model->arena, count, sizeof(*list));
    if (list == NULL)
        return status_no_memory(b->error, "experts", count * sizeof(*list));
    experts->expert = list;
    AVO_TRY(bind_linear(b, number, ROLE_ROUTER, ROLE_ROUTER_BIAS, b->architecture->router_bias,
                        count, b->config->width, "ffn_gate_inp", &experts->router));
    bool alternating =
        b->architecture->alternating_experts && b->model->source->naming == SOURCE_NAMES_HF;
    if (alternating)
        AVO_TRY(bind_alternating(b, number, list));
    else
        AVO_TRY(bind_parts(b, number, list));
    AVO_TRY(check_alike(b, number, list));
    return bind_shared(b, number, experts);
}
