/* A step: inputs to the card, then kernels in the order of the forward pass. */
#include "device/cuda/step_int.h"

#include "base/checked.h"
#include "base/float_mode.h"
#include "device/cuda/kernels/decode.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/tile_units.h"

#include <assert.h>
#include <string.h>

#define TABLE_ALIGNMENT 64
#define PREPARE_ONCE    64 /* rows from which a block adds a norm up for all of its row */

_Static_assert(CALL_FLOAT == PRODUCT_FLOAT && CALL_A8 == PRODUCT_A8 && CALL_A16 == PRODUCT_A16 &&
                   CALL_A8R == PRODUCT_A8R,
               "forms");
_Static_assert(CALL_KV_F32 == KV_F32 && CALL_KV_F16 == KV_F16 && CALL_KV_BF16 == KV_BF16 &&
                   CALL_KV_INT8 == KV_INT8 && CALL_KV_FP8 == KV_FP8,
               "KV types");
_Static_assert(CALL_NORM_NONE == NORM_NONE && CALL_NORM_RMS == NORM_RMS &&
                   CALL_NORM_LAYER == NORM_LAYER,
               "norms");
_Static_assert(EXACT_SILU == ACTIVATION_SILU && EXACT_GELU_TANH == ACTIVATION_GELU_TANH &&
                   EXACT_GELU_ERF == ACTIVATION_GELU_ERF && EXACT_RELU == ACTIVATION_RELU,
               "activations");
_Static_assert(CALL_PAGE == KV_PAGE_TOKENS && CALL_SPLIT == ATTEND_SPLIT &&
                   CALL_HEAD_MAX == KV_HEAD_SIZE_MAX && CALL_ADAPTERS == ADAPTERS_OF_ROW &&
                   HEAD_TOP_MAX == LOGIT_TOP_MAX,
               "limits");

/* ---- Calls ---- */

void step_launch(cuda_step *step, const cuda_launch *given, const void *call) {
    cuda_launch own = *given, *launch = &own;
    own.begin = step->follows && step->tuning->early > 0 ? CUDA_EARLY : CUDA_BEHIND;
    step->follows = true;
    if (step->result == 0 && launch->x > 0 && launch->y > 0 && launch->z > 0)
        step->result = step->port->operations->launch(step->port, launch, call);
}

void step_send(cuda_step *step, size_t offset, size_t bytes) {
    cuda_stream *stream = step->stream;
    step->follows = false;
    if (step->result == 0 && bytes > 0)
        step->result =
            step->port->operations->copy_in(step->port, CUDA_QUEUE_STEPS, stream->memory + offset,
                                            stream->host_input + offset, bytes);
}

void step_table_reserve(cuda_step *step, size_t bytes) {
    cuda_stream *stream = step->stream;
    size_t room = stream->input.bytes - stream->input.tables;
    assert(bytes + TABLE_ALIGNMENT <= room);
    if (bytes + TABLE_ALIGNMENT <= room - stream->tables_used)
        return;
    if (step->result == 0) /* what lies there may still be on its way */
        step->result = step->port->operations->wait(step->port, CUDA_QUEUE_STEPS);
    stream->tables_used = 0;
}

step_table step_table_take(cuda_step *step, size_t bytes) {
    cuda_stream *stream = step->stream;
    size_t at = stream->input.tables + stream->tables_used;
    assert(bytes <= stream->input.bytes - at);
    stream->tables_used += (bytes + TABLE_ALIGNMENT - 1) / TABLE_ALIGNMENT * TABLE_ALIGNMENT;
    return (step_table){stream->host_input + at, stream->memory + at, bytes};
}

void step_table_send(cuda_step *step, const step_table *table) {
    step_send(step, (size_t)(table->host - step->stream->host_input), table->bytes);
}

form_call step_form(const activation_view *view) {
    return (form_call){.x = view->x,
                       .number = view->number,
                       .low = view->low,
                       .scale = view->scale,
                       .sum = view->sum,
                       .integer_sum = view->integer_sum,
                       .stride = (uint32_t)view->stride,
                       .scale_stride = (uint32_t)view->scale_stride,
                       .sum_stride = (uint32_t)view->sum_stride,
                       .form = (uint32_t)view->form};
}

void step_prepare(cuda_step *step, const prepare_call *given, uint32_t rows) {
    prepare_call own = *given, *call = &own;
    own.staged = own.norm.kind != CALL_NORM_NONE && own.k <= PREPARE_STAGED;
    bool once = own.norm.kind != CALL_NORM_NONE && rows >= PREPARE_ONCE;
    cuda_launch launch = {
        CUDA_KERNEL_prepare, once ? 1 : (call->k + PREPARE_K - 1) / PREPARE_K, rows,       1,
        PREPARE_THREADS,     PREPARE_SHARED + (own.staged ? own.k * 4 : 0),    CUDA_BEHIND};
    step_launch(step, &launch, call);
}

linear_one step_linear(const weight_view *weight, const activation_view *x) {
    uint64_t panel_bytes = 0;
    bool known = weight_panel_bytes(weight->type, weight->k, &panel_bytes);
    (void)known; /* it was, when the weights were laid out */
    linear_one one = {.data = weight->data,
                      .panel_bytes = panel_bytes,
                      .x = step_form(x),
                      .rows = weight->rows,
                      .k = weight->k,
                      .x_rows = x->rows,
                      .type = (uint32_t)weight->type};
    cuda_shape_of(weight->type, &one.shape);
    return one;
}

/* Shared memory of tiles of these products; 0: not with these types. */
static uint32_t units_shared(const linear_batch *batch, uint32_t calls) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < calls; i++) {
        const linear_one *one = &batch->one[i];
        if (!units_known(&one->shape) || one->x.form == CALL_A8R)
            return 0;
        uint32_t own = TILE_BUFFERS * units_buffer(&one->shape);
        bytes = own > bytes ? own : bytes;
    }
    return bytes;
}

/* Products of one kernel in one launch, `count` of them at most LINEAR_GROUP. */
static void multiply_kernel(cuda_step *step, cuda_kernel kernel, const linear_one *one,
                            size_t count) {
    linear_batch batch = {0};
    uint32_t outputs = 0, rows = 0, calls = 0;
    for (size_t i = 0; i < count; i++) {
        if (cuda_linear_kernel((quant_type)one[i].type) != kernel)
            continue;
        batch.one[calls++] = one[i];
        outputs = one[i].rows > outputs ? one[i].rows : outputs;
        rows = one[i].x_rows > rows ? one[i].x_rows : rows;
    }
    uint32_t shared = kernel == CUDA_KERNEL_linear_q4r     ? TILE_SHARED
                      : kernel == CUDA_KERNEL_linear_units ? units_shared(&batch, calls)
                                                           : 0;
    if (shared > 0 && shared <= step->port->limits.shared && step->tuning->tile > 0 &&
        rows >= step->tuning->tile) {
        cuda_launch tile = {kernel == CUDA_KERNEL_linear_q4r ? CUDA_KERNEL_tile_q4r
                                                             : CUDA_KERNEL_tile_units,
                            (rows + TILE_ROWS - 1) / TILE_ROWS,
                            (outputs + 16 * TILE_PANELS - 1) / (16 * TILE_PANELS),
                            calls,
                            TILE_THREADS,
                            shared,
                            CUDA_BEHIND};
        step_launch(step, &tile, &batch);
        return;
    }
    uint32_t block = kernel == CUDA_KERNEL_linear_float ? LINEAR_FLOAT_ROWS : LINEAR_ROWS;
    uint32_t threads = kernel == CUDA_KERNEL_linear_q4r ? LINEAR_THREADS_Q4R : LINEAR_THREADS;
    if (kernel == CUDA_KERNEL_linear_float)
        threads = 32 * (rows < block ? rows : block);
    cuda_launch launch = {kernel,
                          (outputs + 31) / 32,
                          (rows + block - 1) / block,
                          calls,
                          threads,
                          kernel == CUDA_KERNEL_linear_float ? 0 : LINEAR_SHARED,
                          CUDA_BEHIND};
    step_launch(step, &launch, &batch);
}

void step_multiply(cuda_step *step, const linear_one *one, size_t count) {
    for (size_t first = 0; first < count; first += LINEAR_GROUP) {
        size_t part = count - first < LINEAR_GROUP ? count - first : LINEAR_GROUP;
        multiply_kernel(step, CUDA_KERNEL_linear_q4r, one + first, part);
        multiply_kernel(step, CUDA_KERNEL_linear_units, one + first, part);
        multiply_kernel(step, CUDA_KERNEL_linear_float, one + first, part);
    }
}

/* ---- Products of a place ---- */

static unsigned form_bit(const linear_view *linear) {
    return linear->weight.data == NULL ? 0 : 1u << panels_form(linear->weight.type);
}

static void prepare_site(cuda_step *step, const cuda_site *site, unsigned forms,
                         activation_view *views) {
    static const norm_view none = {.kind = NORM_NONE};
    step_table_reserve(step, step->batch->runs > 0 ? site->rows * sizeof(row_norms) : 0);
    prepare_call call = {.x = site->x,
                         .stride = site->k,
                         .index = site->index,
                         .gate = site->gate,
                         .k = site->k,
                         .activated = site->activated,
                         .activation = (uint32_t)site->activation,
                         .norm = step_norm(step, site->norm == NULL ? &none : site->norm,
                                           site->place, site->layer, site->rows, site->head)};
    for (unsigned form = 0; form < PRODUCT_FORMS; form++) {
        views[form] =
            activation_lay((product_form)form, site->rows, site->k, step->scratch->form[form]);
        call.out = step_form(&views[form]);
        if (forms >> form & 1)
            step_prepare(step, &call, site->rows);
    }
}

static void multiply_site(cuda_step *step, const cuda_site *site, const cuda_product *products,
                          size_t count) {
    activation_view views[PRODUCT_FORMS];
    linear_one one[LINEAR_CALLS] = {0};
    cuda_product own[LINEAR_CALLS];
    float *base[LINEAR_CALLS];
    bool add[LINEAR_CALLS];
    bool adapted = adapt_any(step, site), fast = fast_computes(step, products, count);
    unsigned forms = adapted ? adapt_forms(step, site) : 0;
    for (size_t i = 0; i < count; i++) {
        bool aside = adapted && products[i].add && adapt_gains(step, site, (uint32_t)i);
        own[i] = products[i];
        if (aside) {
            own[i].out = step->scratch->projected;
            own[i].add = false;
        }
        base[i] = own[i].out;
        add[i] = own[i].add;
    }
    bool done = few_products(step, site, own, count, NULL) || wide_products(step, site, own, count);
    for (size_t i = 0; i < count && !done && !fast; i++)
        forms |= form_bit(products[i].linear);
    if (forms != 0)
        prepare_site(step, site, forms, views);
    for (size_t i = 0; i < count && !done && !fast; i++) {
        const weight_view *weight = &own[i].linear->weight;
        one[i] = step_linear(weight, &views[panels_form(weight->type)]);
        one[i].bias = own[i].linear->bias;
        one[i].out = own[i].out;
        one[i].out_stride = own[i].out_stride;
        one[i].add = own[i].add;
        one[i].add_scale = own[i].add_scale;
    }
    if (fast)
        fast_multiply(step, site, products, base, add, count);
    else if (!done)
        step_multiply(step, one, count);
    if (adapted)
        adapt_site(step, site, products, own, views);
}

/* ---- Attention ---- */

static kv_call kv_of(const cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const cuda_input *input = &step->stream->input;
    const uint8_t *memory = step->stream->memory;
    kv_type type = step->kv->type;
    uint32_t size = layer->head_size;
    return (kv_call){.pool = step->kv->memory.address + step->kv->layer_offset[number],
                     .page_bytes = step->kv->page_bytes,
                     .head_bytes = kv_head_bytes(type, size),
                     .key_bytes = kv_key_bytes(type, size),
                     .value_offset = kv_value_offset(type, size),
                     .value_bytes = kv_value_bytes(type, size),
                     .pages = (const uint32_t *)(const void *)(memory + input->pages),
                     .row_pages = (const uint32_t *)(const void *)(memory + input->row_pages),
                     .position = (const uint32_t *)(const void *)(memory + input->position),
                     .type = (uint32_t)type,
                     .head_size = size,
                     .value_stride = (uint32_t)kv_value_stride(size)};
}

static position_call position_of(cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const stream_shape *shape = &step->stream->base.shape;
    uint32_t rows = step->batch->rows;
    size_t norms = 2 * (rows * sizeof(row_norms) + TABLE_ALIGNMENT);
    step_table_reserve(step, step->batch->runs > 0 ? norms : 0);
    position_call call = {
        .kv = kv_of(step, number),
        .query = step->scratch->query,
        .key = step->scratch->key,
        .value = step->scratch->value,
        .query_out = step->scratch->query_form,
        .query_bytes = attend_query_stride(layer->head_size),
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .query_factor = attend_query_factor(layer->attention_scale, layer->attention_softcap),
        .query_norm = step_norm(step, &layer->query_norm, ADAPTER_QUERY_NORM, number, rows, false),
        .key_norm = step_norm(step, &layer->key_norm, ADAPTER_KEY_NORM, number, rows, false),
        .pairs_max = shape->pairs_max};
    if (layer->rotary != ROTARY_NONE) {
        const rotary_table *table = &step->model->rotary[layer->rotary];
        size_t at = (size_t)layer->rotary * shape->rows_max * shape->pairs_max;
        const uint8_t *memory = step->stream->memory;
        call.cosine = (const float *)(const void *)(memory + step->stream->input.cosine) + at;
        call.sine = (const float *)(const void *)(memory + step->stream->input.sine) + at;
        call.pairs = table->pairs;
        call.interleaved = table->interleaved;
    }
    return call;
}

/* False: the card's kernel for rows that are alone does not do these. */
static bool decode(cuda_step *step, uint32_t number, const attend_rows_call *attend) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t rows = step->batch->rows, group = layer->heads / layer->kv_heads;
    bool tiled = !step->fast_tiles && tiles_known(step, number, attend);
    bool many = rows > FEW_ROWS && (step->splits > 1 || tiled);
    if (step->tuning->rung < 2 || step->tuning->attend > 0 || adapt_norms(step) || !step->alone ||
        many)
        return false;
    uint64_t bytes = decode_shared(&attend->kv, attend->query_bytes, step->pages);
    if (bytes > step->port->limits.shared)
        return false;
    decode_call call = {.position = position_of(step, number),
                        .attend = *attend,
                        .part = step->scratch->part,
                        .arrived = step->scratch->arrived,
                        .splits = step->splits,
                        .pages = step->pages};
    cuda_launch launch = {CUDA_KERNEL_decode,
                          layer->kv_heads * ((group + DECODE_HEADS - 1) / DECODE_HEADS),
                          rows,
                          step->splits,
                          DECODE_THREADS,
                          (uint32_t)bytes,
                          CUDA_BEHIND};
    step_launch(step, &launch, &call);
    return true;
}

static void positions(cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    position_call call = position_of(step, number);
    if (tiles_position(step, number, &call))
        return;
    cuda_launch launch = {CUDA_KERNEL_position, layer->heads + 2 * layer->kv_heads,
                          step->batch->rows,    1,
                          POSITION_THREADS,     POSITION_SHARED,
                          CUDA_BEHIND};
    step_launch(step, &launch, &call);
}

static void attention(cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    cuda_scratch *scratch = step->scratch;
    static const norm_view none = {.kind = NORM_NONE};
    cuda_site site = {.x = scratch->hidden,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &none : &layer->attention_norm,
                      .place = ADAPTER_ATTENTION_NORM,
                      .layer = number,
                      .count = 3,
                      .matrix = {ADAPTER_QUERY, ADAPTER_KEY, ADAPTER_VALUE}};
    cuda_product products[] = {{&layer->query, scratch->query, layer->query.weight.rows, false, 0},
                               {&layer->key, scratch->key, layer->key.weight.rows, false, 0},
                               {&layer->value, scratch->value, layer->value.weight.rows, false, 0}};
    multiply_site(step, &site, products, 3);
    attend_rows_call call = {.kv = kv_of(step, number),
                             .query = scratch->query_form,
                             .query_bytes = attend_query_stride(layer->head_size),
                             .out = scratch->attended,
                             .heads = layer->heads,
                             .kv_heads = layer->kv_heads,
                             .window = layer->window,
                             .softcap = layer->attention_softcap};
    step->half = false;
    if (fast_attends(step, layer)) {
        position_call position = position_of(step, number);
        fast_attention(step, layer, &position, &call);
        return;
    }
    if (decode(step, number, &call))
        return;
    positions(step, number);
    if (!step->fast_tiles && tiles_attend(step, number, &call))
        return;
    cuda_launch launch = {CUDA_KERNEL_attend, layer->heads,  step->batch->rows, 1,
                          ATTEND_THREADS,     ATTEND_SHARED, CUDA_BEHIND};
    step_launch(step, &launch, &call);
}

/* ---- Products that join the residual ---- */

/* The norms behind a product. */
typedef struct joining {
    const linear_view *linear;
    const norm_view *post_norm, *own_norm;
    adapter_norm_place post_place, own_place;
} joining;

static void norm_rows(cuda_step *step, norm_rows_call *call, const norm_view *norm,
                      adapter_norm_place place, uint32_t layer, uint32_t rows, bool head) {
    step_table_reserve(step, step->batch->runs > 0 ? rows * sizeof(row_norms) : 0);
    call->norm = step_norm(step, norm, place, layer, rows, head);
    call->width = step->model->width;
    cuda_launch launch = {CUDA_KERNEL_norm, rows, 1, 1, 256, NORM_SHARED * 4, CUDA_BEHIND};
    step_launch(step, &launch, call);
}

static void join(cuda_step *step, const cuda_site *site, const joining *with) {
    const layer_view *layer = &step->model->layer[site->layer];
    cuda_scratch *scratch = step->scratch;
    uint32_t rows = step->batch->rows;
    bool plain = with->post_norm->kind == NORM_NONE && !layer->norm_after;
    cuda_product product = {with->linear, plain ? scratch->hidden : scratch->projected,
                            step->model->width, plain, layer->residual_scale};
    multiply_site(step, site, &product, 1);
    if (plain)
        return;
    norm_rows_call call = {.x = scratch->projected,
                           .out = scratch->hidden,
                           .add = true,
                           .add_scale = layer->residual_scale};
    norm_rows(step, &call, with->post_norm, with->post_place, site->layer, rows, false);
    if (!layer->norm_after || with->own_norm->kind == NORM_NONE)
        return;
    call = (norm_rows_call){.x = scratch->hidden, .out = scratch->hidden};
    norm_rows(step, &call, with->own_norm, with->own_place, site->layer, rows, false);
}

static void attention_output(cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    cuda_site site = {.x = step->scratch->attended,
                      .rows = step->batch->rows,
                      .k = layer->output.weight.k,
                      .half = step->half ? step->scratch->fast_x : NULL,
                      .layer = number,
                      .count = 1,
                      .matrix = {ADAPTER_OUTPUT}};
    joining with = {&layer->output, &layer->attention_post_norm, &layer->attention_norm,
                    ADAPTER_ATTENTION_POST_NORM, ADAPTER_ATTENTION_NORM};
    join(step, &site, &with);
}

static void feed_forward(cuda_step *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    cuda_scratch *scratch = step->scratch;
    static const norm_view none = {.kind = NORM_NONE};
    bool gated = layer->gate.weight.data != NULL;
    cuda_site site = {.x = scratch->hidden,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &none : &layer->feed_forward_norm,
                      .place = ADAPTER_FEED_FORWARD_NORM,
                      .layer = number,
                      .count = gated ? 2 : 1,
                      .matrix = {ADAPTER_UP, ADAPTER_GATE}};
    cuda_product products[] = {{&layer->up, scratch->up, layer->feed_forward, false, 0},
                               {&layer->gate, scratch->gate, layer->feed_forward, false, 0}};
    bool fast = gated && step->fast && fast_paired(layer);
    bool paired = fast ? step->batch->runs == 0
                       : gated && step->tuning->pair > 0 && !adapt_any(step, &site) &&
                             few_products(step, &site, products, 2, &layer->activation);
    if (fast) {
        site.paired = true;
        site.joined = paired;
        site.joined_activation = layer->activation;
        if (paired)
            fast_feed(step, &site, &layer->up.weight, &layer->down.weight);
    }
    if (!paired || fast)
        multiply_site(step, &site, products, gated ? 2 : 1);
    cuda_site down = {.x = scratch->up,
                      .gate = gated && !paired ? scratch->gate : NULL,
                      .activated = !paired,
                      .activation = layer->activation,
                      .half = site.next,
                      .rows = step->batch->rows,
                      .k = layer->down.weight.k,
                      .layer = number,
                      .count = 1,
                      .matrix = {ADAPTER_DOWN}};
    joining with = {&layer->down, &layer->feed_forward_post_norm, &layer->feed_forward_norm,
                    ADAPTER_FEED_FORWARD_POST_NORM, ADAPTER_FEED_FORWARD_NORM};
    join(step, &down, &with);
}

static void tap(cuda_step *step, uint32_t layer) {
    const stream_shape *shape = &step->stream->base.shape;
    size_t width = step->model->width;
    for (uint32_t i = 0; i < shape->taps; i++) {
        if (shape->tap[i] != layer || step->result != 0)
            continue;
        step->follows = false;
        step->result = step->port->operations->copy_across(
            step->port, CUDA_QUEUE_STEPS,
            (uint8_t *)(step->scratch->tap + i * (size_t)shape->rows_max * width),
            (const uint8_t *)step->scratch->hidden, step->batch->rows * width * sizeof(float));
    }
}

/* ---- The head ---- */

static const uint32_t *logit_rows(const cuda_step *step) {
    return (const uint32_t *)(const void *)(step->stream->memory + step->stream->input.logit_row);
}

static void find_tops(cuda_step *step) {
    const model_view *model = step->model;
    const batch_view *batch = step->batch;
    cuda_stream *stream = step->stream;
    cuda_scratch *scratch = step->scratch;
    head_call call = {.logits = scratch->logits,
                      .vocabulary = model->vocabulary,
                      .chunks = stream->chunks,
                      .top = batch->top,
                      .finish = model->logit_scale != 1.0f || model->logit_softcap != 0.0f,
                      .scale = model->logit_scale,
                      .cap = model->logit_softcap,
                      .sums = scratch->sums,
                      .chunk_logit = scratch->chunk_logit,
                      .chunk_token = scratch->chunk_token,
                      .chunk_count = scratch->chunk_count,
                      .out = scratch->top};
    if (batch->target != NULL)
        call.target = (const int32_t *)(const void *)(stream->memory + stream->input.target);
    uint32_t rows = batch->logit_rows;
    cuda_launch chunks = {CUDA_KERNEL_head_chunk, stream->chunks,    rows,       1,
                          HEAD_THREADS,           HEAD_CHUNK_SHARED, CUDA_BEHIND};
    if (batch->top > 0 || call.finish)
        step_launch(step, &chunks, &call);
    if (batch->top == 0)
        return;
    cuda_launch merge = {CUDA_KERNEL_head_merge,
                         rows,
                         1,
                         1,
                         HEAD_THREADS,
                         HEAD_THREADS * 8 + (stream->chunks + 3) / 4 * 4,
                         CUDA_BEHIND};
    step_launch(step, &merge, &call);
    stream->top_rows = rows;
    size_t sums = stream->base.shape.head_rows * sizeof(head_top);
    const cuda_port_operations *port = step->port->operations;
    if (step->result == 0)
        step->result = port->copy_out(step->port, CUDA_QUEUE_STEPS, stream->host_output,
                                      (const uint8_t *)scratch->top, rows * sizeof(head_top));
    if (step->result == 0)
        step->result = port->copy_out(step->port, CUDA_QUEUE_STEPS, stream->host_output + sums,
                                      (const uint8_t *)scratch->sums,
                                      (size_t)rows * stream->chunks * sizeof(head_sum));
}

static void head(cuda_step *step) {
    const model_view *model = step->model;
    cuda_scratch *scratch = step->scratch;
    step->stream->top_rows = 0;
    if (step->batch->logit_rows == 0)
        return;
    cuda_site site = {.x = scratch->hidden,
                      .index = logit_rows(step),
                      .rows = step->batch->logit_rows,
                      .k = model->width,
                      .norm = &model->final_norm,
                      .place = ADAPTER_FINAL_NORM,
                      .head = true,
                      .matrix = {ADAPTER_HEAD}};
    if (model->head_project.weight.data != NULL) {
        cuda_product project = {&model->head_project, scratch->projected, model->head.weight.k,
                                false, 0};
        multiply_site(step, &site, &project, 1);
        site = (cuda_site){.x = scratch->projected,
                           .rows = site.rows,
                           .k = model->head.weight.k,
                           .head = true,
                           .matrix = {ADAPTER_HEAD}};
    }
    site.count = 1;
    cuda_product product = {&model->head, scratch->logits, model->vocabulary, false, 0};
    multiply_site(step, &site, &product, 1);
    find_tops(step);
}

static void hidden(cuda_step *step) {
    norm_rows_call call = {
        .x = step->scratch->hidden, .index = logit_rows(step), .out = step->scratch->normed};
    norm_rows(step, &call, &step->model->final_norm, ADAPTER_FINAL_NORM, 0, step->batch->logit_rows,
              true);
}

/* ---- The whole ---- */

void step_compute(cuda_step *step, device_work work) {
    if (work == DEVICE_NORM) {
        hidden(step);
        return;
    }
    for (uint32_t layer = 0; work == DEVICE_FORWARD && layer < step->model->layers; layer++) {
        tap(step, layer);
        attention(step, layer);
        attention_output(step, layer);
        feed_forward(step, layer);
    }
    if (work == DEVICE_FORWARD)
        tap(step, step->model->layers);
    head(step);
}

/* ---- Starting ---- */

/* How far attention reaches, rounded up to powers of two, so that few recordings serve. */
static void measure_batch(cuda_step *step) {
    const batch_view *batch = step->batch;
    uint32_t farthest = 0;
    step->alone = true;
    for (uint32_t row = 0; row < batch->rows; row++)
        farthest = batch->position[row] > farthest ? batch->position[row] : farthest;
    for (uint32_t i = 0; i < batch->segments; i++)
        step->alone = step->alone && batch->segment[i].rows <= 1;
    step->splits = 1;
    while (step->splits * CALL_SPLIT <= farthest)
        step->splits *= 2;
    step->pages = 1;
    while (step->pages < CALL_SPLIT / CALL_PAGE && step->pages * CALL_PAGE <= farthest)
        step->pages *= 2;
}

avo_status cuda_start(device_stream *base, device_work work, const device_step *given,
                      avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    const cuda_weights *weights = (const cuda_weights *)(const void *)given->weights;
    cuda_step step = {.stream = stream,
                      .port = cuda_of(base->device)->port,
                      .model = &weights->base.view,
                      .batch = given->batch,
                      .kv = given->kv,
                      .scratch = &stream->scratch,
                      .tuning = &cuda_of(base->device)->tuning,
                      .fast = cuda_of(base->device)->fast};
    stream->tables_used = 0;
    if (work == DEVICE_FORWARD)
        measure_batch(&step);
    if (!step_send_batch(&step, work))
        return status_fail(error, AVO_ERROR_LIMIT, "the page tables of %u rows are too long",
                           given->batch->rows);
    float_mode mode; /* the host computes embeddings, angles and factors */
    float_mode_enter(&mode);
    if (work == DEVICE_FORWARD)
        step_embed(&step, weights);
    if (step.result == 0)
        step_recorded(&step, work, weights->memory);
    float_mode_leave(&mode);
    if (step.result != 0) { /* nothing of it goes on behind the caller's back */
        (void)step.port->operations->wait(step.port, CUDA_QUEUE_STEPS);
        return cuda_status(step.port, step.result, "starting a step", error);
    }
    return AVO_OK;
}
