/* Opening and closing the differentiable model: the engine with its taps, parameters, buffers. */
#include "train/core_int.h"

#include "base/checked.h"
#include "base/options.h"
#include "device/adapter.h"
#include "train/heads.h"

#include <string.h>

/* ---- Options ---- */

static avo_status check_options(const avo_model *model, const train_core_options *o,
                                avo_error *error) {
    const model_view *view = &model->view;
    if (o->rows_max == 0 || o->rows_max > TRAIN_ROWS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "rows_max is %u, must be 1 to %d",
                           o->rows_max, TRAIN_ROWS_MAX);
    if (o->sequences_max == 0 || o->sequences_max > TRAIN_SEQUENCES_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "sequences_max is %u, must be 1 to %d",
                           o->sequences_max, TRAIN_SEQUENCES_MAX);
    if (o->context_max < 2 || o->context_max > o->rows_max + 1)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "context_max is %u, must be 2 to rows_max + 1 (%u)", o->context_max,
                           o->rows_max + 1);
    if (o->method == TRAIN_DRAFT_HEADS)
        return train_heads_check(model, &o->heads, error);
    if (view->layers >= DEVICE_TAPS_MAX)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s has %u layers; models of at most %d can be trained",
                           model->source->path, view->layers, DEVICE_TAPS_MAX - 1);
    if (view->embedding_norm.kind != NORM_NONE)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: a norm on embeddings cannot be trained through yet",
                           model->source->path);
    for (uint32_t i = 0; i < view->layers; i++)
        if (view->layer[i].experts.count > 0)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "%s: layer %u has experts, which cannot be trained",
                               model->source->path, i);
    return AVO_OK;
}

/* The engine's: the caller's choice of device and placement, and our sizes where they are larger.
 */
static avo_engine_options engine_options(const train_core *core, uint32_t taps[DEVICE_TAPS_MAX]) {
    const train_core_options *o = &core->options;
    avo_engine_options own = o->engine;
    uint32_t layers = core->model->view.layers;
    uint32_t tap_count = layers + 1;
    if (core->heads != NULL)
        train_heads_taps(core, taps, &tap_count);
    for (uint32_t i = 0; i < tap_count && core->heads == NULL; i++)
        taps[i] = i;
    own.size = sizeof(own);
    own.taps = taps;
    own.tap_count = tap_count;
    own.rows_max = o->rows_max;
    own.context_max = own.context_max > o->context_max ? own.context_max : o->context_max;
    own.sessions_max = own.sessions_max > o->sequences_max ? own.sessions_max : o->sequences_max;
    own.logits_max = own.logits_max > TRAIN_HEAD_ROWS ? own.logits_max : TRAIN_HEAD_ROWS;
    uint64_t tokens = o->rows_max + (uint64_t)o->sequences_max * KV_PAGE_TOKENS;
    own.kv_tokens = own.kv_tokens > tokens ? own.kv_tokens : tokens;
    if (core->rank > own.adapter_rank_max)
        own.adapter_rank_max = core->rank;
    return own;
}

/* ---- Memory ---- */

/* Those that are As of LoRA, or those that are not: As are neighbours, as train_group wants them.
 */
static void place_parameters(train_core *core, bool as, size_t *at) {
    for (uint32_t i = 0; i < core->parameters.count; i++) {
        train_parameter *own = &core->parameters.item[i];
        if ((own->role == TRAIN_LORA_A) != as)
            continue;
        own->value = (float *)(void *)core->values.data + *at;
        own->gradient = (float *)(void *)core->gradients.data + *at;
        *at += ((size_t)own->rows * own->k + 15) / 16 * 16;
    }
}

avo_status train_parameters_take(train_core *core, avo_error *error) {
    train_parameters *p = &core->parameters;
    size_t total = 0, bytes;
    p->numbers = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        size_t numbers = (size_t)p->item[i].rows * p->item[i].k;
        p->numbers += numbers;
        if (!size_round_up(numbers, 16, &numbers) || !size_add(total, numbers, &total))
            return status_fail(error, AVO_ERROR_LIMIT, "the parameters are too large");
    }
    if (!size_multiply(total, sizeof(float), &bytes) || bytes == 0)
        return status_fail(error, AVO_ERROR_LIMIT, "%u parameters: nothing to train, or too much",
                           p->count);
    core->parameter_bytes = bytes;
    if (core->planning)
        return AVO_OK;
    const region_options options = {.huge = true};
    AVO_TRY(region_open(core->allocator, bytes, &options, "parameters", &core->values, error));
    AVO_TRY(region_open(core->allocator, bytes, &options, "gradients", &core->gradients, error));
    memset(core->values.data, 0, bytes);
    memset(core->gradients.data, 0, bytes);
    size_t at = 0;
    place_parameters(core, true, &at);
    place_parameters(core, false, &at);
    return AVO_OK;
}

float *train_cut(train_cutter *c, size_t rows, size_t width) {
    float *out = c->memory == NULL ? NULL : c->memory + c->at;
    c->at += (rows * width + 15) / 16 * 16;
    return out;
}

/* Widths of a row. */
typedef struct row_widths {
    size_t width, query, kv, feed_forward, heads;
} row_widths;

static row_widths widths_of(const model_view *view) {
    row_widths w = {.width = size_max(view->width, view->embedding.k)};
    for (uint32_t i = 0; i < view->layers; i++) {
        const layer_view *layer = &view->layer[i];
        w.query = size_max(w.query, (size_t)layer->heads * layer->head_size);
        w.kv = size_max(w.kv, (size_t)layer->kv_heads * layer->head_size);
        w.feed_forward = size_max(w.feed_forward, layer->feed_forward);
        w.heads = size_max(w.heads, layer->heads);
    }
    return w;
}

static bool has_softcap(const model_view *view) {
    for (uint32_t i = 0; i < view->layers; i++)
        if (view->layer[i].attention_softcap > 0.0f)
            return true;
    return false;
}

static void cut_layer(train_core *core, train_cutter *c, size_t rows) {
    train_buffers *b = &core->buffers;
    row_widths w = widths_of(core->net.view);
    b->normed = train_cut(c, rows, w.width);
    b->query_raw = train_cut(c, rows, w.query);
    b->key_raw = train_cut(c, rows, w.kv);
    b->query = train_cut(c, rows, w.query);
    b->key = train_cut(c, rows, w.kv);
    b->value = train_cut(c, rows, w.kv);
    b->attended = train_cut(c, rows, w.query);
    b->projected = train_cut(c, rows, w.width);
    b->joined = train_cut(c, rows, w.width);
    b->before = train_cut(c, rows, w.width);
    b->normed_up = train_cut(c, rows, w.width);
    b->down = train_cut(c, rows, w.width);
    b->after = train_cut(c, rows, w.width);
    b->low = train_cut(c, rows * ADAPTER_MATRICES, core->rank);
    b->dlow = train_cut(c, rows * TRAIN_GROUP_MAX, core->rank);
    b->hidden = train_cut(c, rows, w.width);
    b->width_a = train_cut(c, rows, w.width);
    b->width_b = train_cut(c, rows, w.width);
    b->dquery = train_cut(c, rows, w.query);
    b->dkey = train_cut(c, rows, w.kv);
    b->dvalue = train_cut(c, rows, w.kv);
    b->dattended = train_cut(c, rows, w.query);
    size_t shared = c->at;
    b->gate = train_cut(c, rows, w.feed_forward);
    b->up = train_cut(c, rows, w.feed_forward);
    b->active = train_cut(c, rows, w.feed_forward);
    b->dactive = train_cut(c, rows, w.feed_forward);
    train_cutter logits = {c->memory, shared};
    b->logits = train_cut(&logits, TRAIN_HEAD_ROWS, core->net.view->vocabulary);
    c->at = size_max(c->at, logits.at);
    b->units = train_cut(c, rows, w.width);
    size_t weights = w.heads * core->options.rows_max * core->options.context_max;
    core->weights_floats = size_min(weights, TRAIN_WEIGHTS_FLOATS);
    b->weights = train_cut(c, 1, core->weights_floats);
}

size_t train_buffers_cut(train_core *core, float *memory) {
    const model_view *view = core->net.view;
    train_buffers *b = &core->buffers;
    train_cutter c = {.memory = memory};
    size_t rows = size_max(core->options.rows_max, TRAIN_HEAD_ROWS);
    size_t longest = size_max(size_max(view->k_max, view->vocabulary), view->width);
    core->attention_floats = train_attention_floats(view, core->options.context_max);
    cut_layer(core, &c, rows);
    b->cosine = train_cut(&c, (size_t)core->options.rows_max * 2, core->pairs_max);
    b->sine = train_cut(&c, (size_t)core->options.rows_max * 2, core->pairs_max);
    b->scores = train_cut(&c, 1, core->attention_floats);
    b->dscores = train_cut(&c, 1, core->attention_floats);
    b->slopes = train_cut(&c, 1, has_softcap(view) ? core->attention_floats : 0);
    b->sums = train_cut(&c, 2, longest);
    b->order_b = train_cut(&c, longest, core->rank);
    return c.at * sizeof(float);
}

/* ---- The call's rows ---- */

static avo_status take_call(train_core *core, avo_error *error) {
    const train_core_options *o = &core->options;
    train_call *call = &core->call;
    arena *arena = &core->arena;
    call->span = arena_take_array(arena, o->sequences_max, sizeof(*call->span));
    call->part = arena_take_array(arena, o->sequences_max, sizeof(*call->part));
    call->position = arena_take_array(arena, o->rows_max, sizeof(*call->position));
    call->token = arena_take_array(arena, o->rows_max, sizeof(*call->token));
    call->want = arena_take_array(arena, o->rows_max, sizeof(*call->want));
    core->session = arena_take_array(arena, o->sequences_max, sizeof(avo_session *));
    if (call->span == NULL || call->part == NULL || call->position == NULL || call->token == NULL ||
        call->want == NULL || core->session == NULL)
        return status_no_memory(error, "rows of a call", o->rows_max * sizeof(*call->want));
    return AVO_OK;
}

/* ---- The model ---- */

static void set_linear(train_linear *linear, const linear_view *base) {
    linear->base = base;
}

static void set_layer(train_layer *layer, const layer_view *view) {
    set_linear(&layer->query, &view->query);
    set_linear(&layer->key, &view->key);
    set_linear(&layer->value, &view->value);
    set_linear(&layer->output, &view->output);
    set_linear(&layer->gate, &view->gate);
    set_linear(&layer->up, &view->up);
    set_linear(&layer->down, &view->down);
    layer->attention_norm.base = &view->attention_norm;
    layer->feed_forward_norm.base = &view->feed_forward_norm;
    layer->attention_post_norm.base = &view->attention_post_norm;
    layer->feed_forward_post_norm.base = &view->feed_forward_post_norm;
    layer->query_norm.base = &view->query_norm;
    layer->key_norm.base = &view->key_norm;
}

/* Weights as the backward pass reads them: what the device has prepared where that is memory of the
 * host, since the file may not have to be read then, else the file's; full tuning: the parameters.
 */
static avo_status open_net(train_core *core, avo_error *error) {
    const avo_model *model = train_core_model(core);
    bool cpu = strcmp(engine_device(core->engine)->kind, "cpu") == 0 && core->copy == NULL;
    core->view = cpu ? *engine_model_view(core->engine) : model->view;
    AVO_TRY(model_rotary(&model->source->config, core->options.engine.rope_context, &core->arena,
                         &core->view.rotary, &core->view.rotary_tables, error));
    train_model *net = &core->net;
    net->view = &core->view;
    net->layer = arena_take_array(&core->arena, core->view.layers, sizeof(*net->layer));
    if (net->layer == NULL)
        return status_no_memory(error, "layers", core->view.layers * sizeof(*net->layer));
    for (uint32_t i = 0; i < core->view.layers; i++)
        set_layer(&net->layer[i], &core->view.layer[i]);
    net->final_norm.base = &core->view.final_norm;
    set_linear(&net->head, &core->view.head);
    set_linear(&net->head_project, &core->view.head_project);
    set_linear(&net->embedding_project, &core->view.embedding_project);
    return AVO_OK;
}

/* By method. */
static size_t cut_buffers(train_core *core, float *memory) {
    return core->heads != NULL ? train_heads_cut(core, memory) : train_buffers_cut(core, memory);
}

static avo_status open_buffers(train_core *core, avo_error *error) {
    const region_options options = {.huge = true};
    size_t bytes = cut_buffers(core, NULL);
    AVO_TRY(region_open(core->allocator, bytes, &options, "buffers of the backward pass",
                        &core->buffer_memory, error));
    (void)cut_buffers(core, (float *)(void *)core->buffer_memory.data);
    return AVO_OK;
}

static avo_status open_engine(train_core *core, avo_error *error) {
    uint32_t taps[DEVICE_TAPS_MAX];
    avo_engine_options options = engine_options(core, taps);
    AVO_TRY(avo_engine_open(train_core_model(core), &options, &core->engine, error));
    if (core->copy != NULL && strcmp(engine_device(core->engine)->kind, "cpu") != 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "full tuning computes on CPU devices, not on %s; choose --device cpu",
                           engine_device(core->engine)->name);
    AVO_TRY(engine_batch_open(core->engine, 0, &core->batch, error));
    uint32_t threads = engine_limits_of(core->engine).threads;
    AVO_TRY(team_open(core->allocator, threads == 0 ? 1 : threads, &core->team, error));
    AVO_TRY(gemm_open(core->allocator, NULL, core->team, &core->gemm, error));
    core->loops = gradient_loops_best();
    core->precision = core->options.bfloat16 && gemm_has_bf16(core->gemm) ? GEMM_BF16 : GEMM_F32;
    return AVO_OK;
}

/* Parameters of the method. */
static avo_status open_method(train_core *core, avo_error *error) {
    switch (core->options.method) {
    case TRAIN_LORA:
        return train_lora_open(core, error);
    case TRAIN_FULL:
        return train_full_open(core, error);
    case TRAIN_DRAFT_HEADS:
        break;
    }
    return train_heads_open(core, error);
}

static avo_status bind_method(train_core *core, avo_error *error) {
    if (core->heads != NULL)
        return train_heads_bind(core, error);
    return core->lora != NULL ? train_lora_bind(core, error) : train_full_bind(core, error);
}

static avo_status open_parts(train_core *core, avo_error *error) {
    AVO_TRY(take_call(core, error));
    AVO_TRY(open_method(core, error));
    AVO_TRY(train_parameters_take(core, error));
    if (core->full != NULL)
        AVO_TRY(train_full_model(core, error));
    AVO_TRY(open_engine(core, error));
    AVO_TRY(open_net(core, error));
    AVO_TRY(open_buffers(core, error));
    AVO_TRY(bind_method(core, error));
    return train_core_changed(core, error);
}

static avo_status take_core(const avo_model *model, const train_core_options *options,
                            train_core **out, avo_error *error) {
    AVO_TRY(check_options(model, options, error));
    const avo_allocator *allocator =
        options->allocator == NULL ? model->allocator : options->allocator;
    train_core *core = allocator_take_array(allocator, 1, sizeof(*core));
    if (core == NULL)
        return status_no_memory(error, "a model in training", sizeof(*core));
    core->allocator = allocator;
    core->options = *options;
    core->model = model;
    core->pairs_max = model->source->config.rotary_dims / 2;
    arena_init(&core->arena, allocator, SIZE_MAX);
    *out = core;
    return AVO_OK;
}

avo_status train_core_open(const avo_model *model, const train_core_options *options,
                           train_core **out, avo_error *error) {
    train_core *core = NULL;
    *out = NULL;
    AVO_TRY(take_core(model, options, &core, error));
    avo_status status = open_parts(core, error);
    if (status != AVO_OK) {
        train_core_close(core);
        return status;
    }
    *out = core;
    return AVO_OK;
}

void train_core_close(train_core *core) {
    if (core == NULL)
        return;
    train_close_sessions(core);
    gemm_close(core->gemm);
    if (core->team != NULL)
        team_close(core->team);
    avo_batch_close(core->batch);
    avo_engine_close(core->engine);
    train_lora_close(core);
    train_full_close(core);
    region_close(&core->buffer_memory);
    region_close(&core->gradients);
    region_close(&core->values);
    arena_free(&core->arena);
    allocator_give(core->allocator, core, sizeof(*core));
}

/* ---- The plan ---- */

/* Of a region. */
static uint64_t whole_pages(size_t bytes) {
    size_t rounded;
    return region_round(bytes, true, &rounded) ? rounded : bytes;
}

static avo_status plan(train_core *core, uint64_t *bytes, avo_error *error) {
    uint32_t taps[DEVICE_TAPS_MAX];
    avo_plan engine = AVO_PLAN_INIT;
    engine_plan_details details;
    core->planning = true;
    AVO_TRY(open_method(core, error));
    AVO_TRY(train_parameters_take(core, error));
    avo_engine_options options = engine_options(core, taps);
    AVO_TRY(engine_plan_describe(core->model, &options, &engine, &details, error));
    core->net.view = &core->model->view;
    uint32_t workers = engine.threads == 0 ? 1 : engine.threads;
    *bytes = details.host_bytes + 2 * whole_pages(core->parameter_bytes) +
             whole_pages(cut_buffers(core, NULL)) + core->arena.used_bytes + GEMM_SHARED_BYTES +
             workers * (uint64_t)GEMM_WORKER_BYTES;
    if (core->adapter != NULL)
        *bytes += core->adapter->memory_bytes;
    else if (core->full != NULL) /* the engine's copy of the matrices, in panels of f32 */
        *bytes += core->parameter_bytes;
    return AVO_OK;
}

avo_status train_core_plan(const avo_model *model, const train_core_options *options,
                           uint64_t *bytes, avo_error *error) {
    train_core *core = NULL;
    AVO_TRY(take_core(model, options, &core, error));
    avo_status status = plan(core, bytes, error);
    train_core_close(core);
    return status;
}

/* ---- Parameters ---- */

team *train_core_team(const train_core *core) {
    return core->team;
}

train_parameters *train_core_parameters(train_core *core) {
    return &core->parameters;
}

avo_status train_core_changed(train_core *core, avo_error *error) {
    train_close_sessions(core);
    core->call.ready = false;
    if (core->heads != NULL)
        return AVO_OK; /* the engine does not compute them */
    return core->lora != NULL ? train_lora_changed(core, error) : train_full_changed(core, error);
}

void train_core_clear(train_core *core) {
    memset(core->gradients.data, 0, core->parameter_bytes);
}

float *train_core_gradients(train_core *core, size_t *count) {
    *count = core->parameter_bytes / sizeof(float);
    return (float *)(void *)core->gradients.data;
}

avo_engine *train_core_engine(train_core *core) {
    if (core->sessions > 0) { /* in the way of a scheduler */
        train_close_sessions(core);
        core->call.ready = false;
    }
    return core->engine;
}

avo_adapter *train_core_adapter(train_core *core) {
    return core->adapter;
}

const avo_model *train_core_model(const train_core *core) {
    return core->copy != NULL ? core->copy : core->model;
}
