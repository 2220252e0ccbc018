/* Draft heads in training: parameters, buffers, the walk over sequences. */
#include "train/heads_int.h"

#include "base/checked.h"
#include "base/mathd.h"
#include "formats/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WINDOW_MIN 8 /* rows; drafts in a row must fit */

/* ---- What can be trained ---- */

static avo_status check_model(const avo_model *model, avo_error *error) {
    const model_view *view = &model->view;
    const char *path = model->source->path;
    if (view->embedding.k != view->width || view->head.weight.k != view->width ||
        view->final_norm.kind != NORM_RMS || view->final_norm.weight == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: draft heads need a model whose embedding and output matrix have "
                           "its own width, and an RMS norm behind its layers",
                           path);
    if (view->layers == 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: has no layers whose hidden states heads could read", path);
    return AVO_OK;
}

avo_status train_heads_check(const avo_model *model, const train_heads_options *options,
                             avo_error *error) {
    uint32_t most = options->kind == HEADS_EAGLE ? HEADS_EAGLE_STEPS : HEADS_DRAFTS_MAX;
    AVO_TRY(check_model(model, error));
    if (options->drafts == 0 || options->drafts > most)
        return status_fail(error, AVO_ERROR_ARGUMENT, "drafts is %u, with %s must be 1 to %u",
                           options->drafts, heads_kind_name(options->kind), most);
    if (options->kind == HEADS_LAYERS && (options->depth == 0 || options->depth > HEADS_DEPTH_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT, "depth is %u, must be 1 to %d",
                           options->depth, HEADS_DEPTH_MAX);
    if (options->tokens == 0 || options->tokens > HEADS_TRAINED_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "tokens is %u, must be 1 to %d",
                           options->tokens, HEADS_TRAINED_MAX);
    if (options->window > HEADS_WINDOW_MAX || (options->window > 0 && options->window < WINDOW_MIN))
        return status_fail(error, AVO_ERROR_ARGUMENT, "window is %u, must be 0 or %d to %d",
                           options->window, WINDOW_MIN, HEADS_WINDOW_MAX);
    return AVO_OK;
}

/* ---- Fields ---- */

/* Three taps in the places that did best (docs/heads.md), fewer where the model has few layers. */
static void choose_taps(heads_config *config) {
    static const uint32_t thirtieths[] = {8, 20, 30};
    config->taps = 0;
    for (size_t i = 0; i < sizeof(thirtieths) / sizeof(thirtieths[0]); i++) {
        uint32_t tap = thirtieths[i] * config->layers / 30;
        if (config->taps == 0 || tap > config->tap[config->taps - 1])
            config->tap[config->taps++] = tap;
    }
}

static void fill_config(const train_core *core, heads_config *config) {
    const train_heads_options *o = &core->options.heads;
    const model_view *view = &core->model->view;
    const layer_view *layer = &view->layer[view->layers - 1];
    uint32_t tokens = o->tokens < view->vocabulary ? o->tokens : view->vocabulary;
    *config = (heads_config){.kind = o->kind,
                             .width = view->width,
                             .layers = view->layers,
                             .vocabulary = view->vocabulary,
                             .frequent = tokens,
                             .norm_epsilon = (double)view->final_norm.epsilon};
    snprintf(config->base_digest, sizeof(config->base_digest), "%016" PRIx64,
             source_digest(core->model->source));
    if (o->kind == HEADS_MEDUSA) {
        config->taps = 1;
        config->tap[0] = view->layers;
        config->heads = o->drafts;
        config->blocks = 1;
        config->token = true;
        return;
    }
    if (o->kind == HEADS_EAGLE)
        choose_taps(config);
    config->depth = o->kind == HEADS_EAGLE ? 1 : o->depth;
    config->window = o->window;
    config->attention_heads = layer->heads;
    config->kv_heads = layer->kv_heads;
    config->head_size = layer->head_size;
    config->feed_forward = layer->feed_forward;
    config->rope_base = core->model->source->config.rope_base;
    if (!(config->rope_base >= 1.0)) /* positions are not rotated there */
        config->rope_base = 10000.0;
}

/* ---- Parameters ---- */

static avo_status add(train_core *core, const char *name, train_role role, uint32_t rows,
                      uint32_t k, avo_error *error) {
    train_parameter *parameter = &core->parameters.item[core->parameters.count++];
    *parameter = (train_parameter){.name = arena_copy_text(&core->arena, name, strlen(name)),
                                   .role = role,
                                   .rows = rows,
                                   .k = k};
    return parameter->name == NULL ? status_no_memory(error, "a name", strlen(name)) : AVO_OK;
}

static avo_status list_medusa(train_core *core, avo_error *error) {
    const heads_config *c = &core->heads->config;
    for (uint32_t k = 0; k < c->heads; k++) {
        char name[64];
        snprintf(name, sizeof(name), "medusa.%u.state.weight", k);
        AVO_TRY(add(core, name, TRAIN_MATRIX, c->width, c->width, error));
        snprintf(name, sizeof(name), "medusa.%u.token.weight", k);
        AVO_TRY(add(core, name, TRAIN_MATRIX, c->width, c->width, error));
    }
    return AVO_OK;
}

typedef struct parameter_shape {
    const char *name;
    train_role role;
    uint32_t rows, k;
} parameter_shape;

static avo_status list(train_core *core, const char *prefix, const parameter_shape *all,
                       size_t count, avo_error *error) {
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s.weight", prefix, all[i].name);
        AVO_TRY(add(core, name, all[i].role, all[i].rows, all[i].k, error));
    }
    return AVO_OK;
}

static avo_status list_layer(train_core *core, const char *prefix, avo_error *error) {
    const heads_config *c = &core->heads->config;
    uint32_t query = c->attention_heads * c->head_size, kv = c->kv_heads * c->head_size;
    const parameter_shape all[LAYER_PARAMETERS] = {
        [LAYER_QUERY] = {"attn_q", TRAIN_MATRIX, query, c->width},
        [LAYER_KEY] = {"attn_k", TRAIN_MATRIX, kv, c->width},
        [LAYER_VALUE] = {"attn_v", TRAIN_MATRIX, kv, c->width},
        [LAYER_OUTPUT] = {"attn_output", TRAIN_MATRIX, c->width, query},
        [LAYER_GATE] = {"ffn_gate", TRAIN_MATRIX, c->feed_forward, c->width},
        [LAYER_UP] = {"ffn_up", TRAIN_MATRIX, c->feed_forward, c->width},
        [LAYER_DOWN] = {"ffn_down", TRAIN_MATRIX, c->width, c->feed_forward},
        [LAYER_ATTENTION_NORM] = {"attn_norm", TRAIN_VECTOR, 1, c->width},
        [LAYER_FEED_FORWARD_NORM] = {"ffn_norm", TRAIN_VECTOR, 1, c->width},
    };
    return list(core, prefix, all, LAYER_PARAMETERS, error);
}

static avo_status list_eagle(train_core *core, avo_error *error) {
    const heads_config *c = &core->heads->config;
    const parameter_shape all[EAGLE_LAYER] = {
        [EAGLE_TAP_NORM] = {"tap_norm", TRAIN_VECTOR, c->taps, c->width},
        [EAGLE_FUSE] = {"fuse", TRAIN_MATRIX, c->width, c->taps * c->width},
        [EAGLE_STATE_NORM] = {"state_norm", TRAIN_VECTOR, 1, c->width},
        [EAGLE_TOKEN_NORM] = {"token_norm", TRAIN_VECTOR, 1, c->width},
        [EAGLE_INPUT] = {"input", TRAIN_MATRIX, c->width, 2 * c->width},
    };
    AVO_TRY(list(core, "eagle.", all, EAGLE_LAYER, error));
    AVO_TRY(list_layer(core, "eagle.layer.0.", error));
    return add(core, "eagle.output_norm.weight", TRAIN_VECTOR, 1, c->width, error);
}

static avo_status list_draft(train_core *core, avo_error *error) {
    const heads_config *c = &core->heads->config;
    for (uint32_t layer = 0; layer < c->depth; layer++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "layers.%u.", layer);
        AVO_TRY(list_layer(core, prefix, error));
    }
    return add(core, "output_norm.weight", TRAIN_VECTOR, 1, c->width, error);
}

/* RoPE of the layer's rows, which count from 0. */
static avo_status make_rotary(train_core *core, avo_error *error) {
    struct train_heads *heads = core->heads;
    uint32_t pairs = heads->config.head_size / 2;
    double *frequency = arena_take_array(&core->arena, pairs, sizeof(*frequency));
    if (frequency == NULL)
        return status_no_memory(error, "frequencies", pairs * sizeof(*frequency));
    for (uint32_t i = 0; i < pairs; i++)
        frequency[i] = mathd_power(heads->config.rope_base, -2.0 * i / heads->config.head_size);
    heads->rotary = (rotary_table){.pairs = pairs, .frequency = frequency, .magnitude = 1.0};
    return AVO_OK;
}

avo_status train_heads_open(train_core *core, avo_error *error) {
    struct train_heads *heads = arena_take_array(&core->arena, 1, sizeof(*heads));
    if (heads == NULL)
        return status_no_memory(error, "draft heads", sizeof(*heads));
    core->heads = heads;
    core->parameters.heads = core;
    fill_config(core, &heads->config);
    heads->teacher = core->options.heads.teacher;
    heads->drafts = core->options.heads.drafts;
    heads->outputs = heads->config.kind == HEADS_LAYERS ? 1 : heads->drafts;
    heads->window = core->options.heads.window;
    uint32_t most = EAGLE_PARAMETERS + HEADS_RUNS_MAX * LAYER_PARAMETERS + 2 * HEADS_MEDUSA_MAX;
    core->parameters.item = arena_take_array(&core->arena, most, sizeof(train_parameter));
    if (core->parameters.item == NULL)
        return status_no_memory(error, "parameters", most * sizeof(train_parameter));
    if (heads->config.kind == HEADS_MEDUSA)
        return list_medusa(core, error);
    AVO_TRY(heads->config.kind == HEADS_EAGLE ? list_eagle(core, error) : list_draft(core, error));
    return make_rotary(core, error);
}

void train_heads_taps(const train_core *core, uint32_t *tap, uint32_t *taps) {
    *taps = core->heads->config.taps;
    memcpy(tap, core->heads->config.tap, *taps * sizeof(*tap));
}

/* ---- Buffers ---- */

static void cut_medusa(struct train_heads *heads, train_cutter *c, size_t rows) {
    size_t width = heads->config.width;
    heads->medusa.normed = train_cut(c, rows, width);
    heads->medusa.token = train_cut(c, rows, width);
    for (uint32_t k = 0; k < heads->drafts; k++)
        heads->medusa.inner[k] = train_cut(c, rows, width);
}

static void cut_run(const heads_config *config, train_cutter *c, size_t rows, heads_layer_run *s) {
    size_t width = config->width, query = (size_t)config->attention_heads * config->head_size;
    size_t kv = (size_t)config->kv_heads * config->head_size;
    float **const wide[] = {&s->input, &s->normed, &s->joined, &s->normed_up, &s->result};
    float **const longer[] = {&s->gate, &s->up, &s->active};
    float **const keys[] = {&s->key, &s->value, &s->dkey, &s->dvalue};
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
        *wide[i] = train_cut(c, rows, width);
    for (size_t i = 0; i < sizeof(longer) / sizeof(longer[0]); i++)
        *longer[i] = train_cut(c, rows, config->feed_forward);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        *keys[i] = train_cut(c, rows, kv);
    s->query = train_cut(c, rows, query);
    s->attended = train_cut(c, rows, query);
}

static void cut_layer(struct train_heads *heads, train_cutter *c, size_t rows, uint32_t runs) {
    const heads_config *config = &heads->config;
    heads_layer_buffers *b = &heads->layer;
    size_t width = config->width, query = (size_t)config->attention_heads * config->head_size;
    float **const wide[] = {&b->embedded, &b->dresult, &b->dinput, &b->djoined, &b->dnormed};
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
        *wide[i] = train_cut(c, rows, width);
    for (uint32_t i = 0; i < runs; i++)
        cut_run(config, c, rows, &b->run[i]);
    b->cosine = train_cut(c, rows, config->head_size / 2);
    b->sine = train_cut(c, rows, config->head_size / 2);
    b->scores = train_cut(c, (size_t)config->kv_heads * 2, rows);
    b->dquery = train_cut(c, rows, query);
    b->dattended = train_cut(c, rows, query);
    b->dactive = train_cut(c, rows, config->feed_forward);
    b->dgate = train_cut(c, rows, config->feed_forward);
}

static void cut_eagle(struct train_heads *heads, train_cutter *c, size_t rows) {
    heads_layer_buffers *b = &heads->layer;
    size_t width = heads->config.width;
    cut_layer(heads, c, rows, heads->drafts);
    b->token_normed = train_cut(c, rows, width);
    b->dnext = train_cut(c, rows, width);
    b->dstate = train_cut(c, rows, width);
    for (uint32_t i = 0; i < heads->config.taps; i++)
        b->tap_normed[i] = train_cut(c, rows, width);
    for (uint32_t i = 0; i < heads->drafts; i++) {
        b->run[i].state = train_cut(c, rows, width);
        b->run[i].state_normed = train_cut(c, rows, width);
    }
}

size_t train_heads_cut(train_core *core, float *memory) {
    struct train_heads *heads = core->heads;
    train_cutter c = {.memory = memory};
    size_t width = heads->config.width, columns = heads->config.frequent;
    size_t rows = core->options.context_max;
    for (uint32_t i = 0; i < heads->config.taps; i++)
        heads->tap[i] = train_cut(&c, core->options.rows_max, width);
    for (uint32_t k = 0; k < heads->outputs; k++) {
        heads->output[k] = train_cut(&c, rows, width);
        heads->doutput[k] = train_cut(&c, rows, width);
        heads->right[k] = (uint8_t *)(void *)train_cut(&c, 1, rows / sizeof(float) + 1);
    }
    heads->gathered = train_cut(&c, TRAIN_HEAD_ROWS, width);
    heads->dgathered = train_cut(&c, TRAIN_HEAD_ROWS, width);
    heads->states = train_cut(&c, TRAIN_HEAD_ROWS, width);
    heads->logits = train_cut(&c, TRAIN_HEAD_ROWS, columns);
    heads->wanted = train_cut(&c, TRAIN_HEAD_ROWS, columns);
    heads->head = train_cut(&c, columns, width);
    heads->ones = train_cut(&c, 1, width);
    core->buffers.sums = train_cut(&c, 2, width);
    if (heads->config.kind == HEADS_MEDUSA)
        cut_medusa(heads, &c, rows);
    else if (heads->config.kind == HEADS_EAGLE)
        cut_eagle(heads, &c, rows);
    else
        cut_layer(heads, &c, rows, heads->config.depth);
    return c.at * sizeof(float);
}

/* ---- Tokens ---- */

void heads_embed(const train_core *core, int32_t token, float *out) {
    weight_decode_row(&core->model->view.embedding, (size_t)token, out);
}

avo_status train_heads_set_tokens(train_core *core, const int32_t *tokens, uint32_t count,
                                  avo_error *error) {
    struct train_heads *heads = core->heads;
    size_t width = heads->config.width;
    if (count != heads->config.frequent)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%u tokens can be drafted, must be %u", count,
                           heads->config.frequent);
    memset(heads->column, 0xff, heads->config.vocabulary * sizeof(*heads->column));
    for (uint32_t i = 0; i < count; i++) {
        heads->token[i] = tokens[i];
        heads->column[tokens[i]] = i;
        weight_decode_row(&core->model->view.head.weight, (size_t)tokens[i],
                          heads->head + i * width);
    }
    return AVO_OK;
}

heads_kind train_heads_kind(const train_core *core) {
    return core->heads->config.kind;
}

uint32_t train_heads_tokens(const train_core *core) {
    return core->heads->config.frequent;
}

avo_status train_heads_bind(train_core *core, avo_error *error) {
    struct train_heads *heads = core->heads;
    const norm_view *final = &core->model->view.final_norm;
    uint32_t vocabulary = heads->config.vocabulary;
    double sum = 0.0;
    heads->token = arena_take_array(&core->arena, heads->config.frequent, sizeof(*heads->token));
    heads->column = arena_take_array(&core->arena, vocabulary, sizeof(*heads->column));
    if (heads->token == NULL || heads->column == NULL)
        return status_no_memory(error, "tokens that can be drafted",
                                vocabulary * sizeof(*heads->column));
    for (uint32_t i = 0; i < heads->config.width; i++) {
        heads->ones[i] = 1.0f;
        sum += (double) final->weight[i] * (double) final->weight[i];
    }
    heads->state_scale = sqrt(sum / heads->config.width);
    if (heads->state_scale < HEADS_EPSILON_LEAST)
        heads->state_scale = 1.0;
    heads->unit = (norm_view){
        .kind = NORM_RMS, .epsilon = (float)heads->config.norm_epsilon, .weight = heads->ones};
    heads_start(core);
    for (uint32_t i = 0; i < heads->config.frequent; i++)
        heads->token[i] = (int32_t)i; /* until others are chosen */
    return train_heads_set_tokens(core, heads->token, heads->config.frequent, error);
}

/* Of a token's amount, in 2^-20 of a token. */
#define RANK_UNIT  1048576.0
#define RANK_PRIOR 0.5

void train_heads_rank(uint64_t *amounts, uint32_t vocabulary, uint32_t count, int32_t *tokens) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < vocabulary; i++)
        total += amounts[i];
    double weight = RANK_PRIOR * (double)(total < 300000 ? total : 300000) /
                    mathd_log(vocabulary / 1000.0 + 1.0);
    for (uint32_t i = 0; i < vocabulary; i++)
        amounts[i] =
            (uint64_t)(((double)amounts[i] + weight / ((double)i + 1000.0)) * RANK_UNIT) + 1;
    /* The largest threshold that leaves enough: those at or above it, then the rest by id. */
    uint64_t low = 0, high = UINT64_MAX;
    while (low < high) {
        uint64_t middle = high - (high - low) / 2, above = 0;
        for (uint32_t i = 0; i < vocabulary; i++)
            above += amounts[i] >= middle;
        if (above >= count)
            low = middle;
        else
            high = middle - 1;
    }
    uint32_t over = 0, taken = 0;
    for (uint32_t i = 0; i < vocabulary; i++)
        over += amounts[i] > low;
    for (uint32_t i = 0, equal = count - over; i < vocabulary && taken < count; i++) {
        if (amounts[i] < low || (amounts[i] == low && equal == 0))
            continue;
        equal -= amounts[i] == low;
        tokens[taken++] = (int32_t)i;
    }
}

/* ---- Products and norms ---- */

void heads_multiply(train_core *core, const heads_product *p, bool add) {
    const train_parameter *w = p->parameter;
    gemm_call call = {.m = p->rows,
                      .n = w->rows,
                      .k = p->columns,
                      .a = train_floats(p->x, p->columns, 1),
                      .b = train_floats(w->value + p->first, 1, w->k),
                      .c = p->y,
                      .c_stride = w->rows,
                      .scale = 1.0f,
                      .add = add,
                      .precision = core->precision};
    gemm_run(core->gemm, &call, 1);
}

void heads_multiply_back(train_core *core, const heads_product *p, const float *dy, float *dx,
                         bool add) {
    const train_parameter *w = p->parameter;
    gemm_call calls[2] = {{.m = w->rows,
                           .n = p->columns,
                           .k = p->rows,
                           .a = train_floats(dy, 1, w->rows),
                           .b = train_floats(p->x, p->columns, 1),
                           .c = w->gradient + p->first,
                           .c_stride = w->k,
                           .scale = 1.0f,
                           .add = true,
                           .precision = core->precision},
                          {.m = p->rows,
                           .n = p->columns,
                           .k = w->rows,
                           .a = train_floats(dy, w->rows, 1),
                           .b = train_floats(w->value + p->first, w->k, 1),
                           .c = dx,
                           .c_stride = p->columns,
                           .scale = 1.0f,
                           .add = add,
                           .precision = core->precision}};
    gemm_run(core->gemm, calls, dx == NULL ? 1 : 2);
}

static norm_view view_of(const train_core *core, const heads_norm *norm) {
    return (norm_view){.kind = NORM_RMS,
                       .epsilon = (float)core->heads->config.norm_epsilon,
                       .weight = norm->parameter->value + (size_t)norm->row * norm->parameter->k};
}

void heads_norm_rows(train_core *core, const heads_norm *norm, float *out) {
    norm_view view = view_of(core, norm);
    train_norm own = {.base = &view};
    train_norm_rows rows = {&own, norm->x, norm->rows, norm->parameter->k};
    train_norms(core, &rows, out);
}

void heads_norm_back(train_core *core, const heads_norm *norm, const float *dy, bool add,
                     float *dx) {
    norm_view view = view_of(core, norm);
    size_t at = (size_t)norm->row * norm->parameter->k;
    train_norm own = {.base = &view, .dweight = norm->parameter->gradient + at};
    train_norm_rows rows = {&own, norm->x, norm->rows, norm->parameter->k};
    train_part all = {0, (uint32_t)norm->rows};
    train_norms_backward(core, &rows, dy, 1, &all, 1, add, dx);
}

/* ---- Passes ---- */

/* Tokens that are wanted and have two tokens before them. */
uint64_t train_heads_targets(const train_sequence *sequence) {
    uint64_t targets = 0;
    for (uint32_t i = 2; i < sequence->count; i++)
        targets += sequence->wanted[i] != 0;
    return targets;
}

/* The taps of all rows; the device may show one layer at a time. */
static avo_status copy_taps(train_core *core, avo_error *error) {
    struct train_heads *heads = core->heads;
    size_t bytes = (size_t)core->call.rows * heads->config.width * sizeof(float);
    for (uint32_t i = 0; i < heads->config.taps; i++) {
        const float *rows;
        AVO_TRY(engine_batch_hidden(core->batch, heads->config.tap[i], &rows, error));
        memcpy(heads->tap[i], rows, bytes);
    }
    return AVO_OK;
}

static avo_status run_span(const heads_span *span, train_heads_sums *sums, avo_error *error) {
    static const struct {
        void (*forward)(const heads_span *), (*backward)(const heads_span *);
    } networks[HEADS_KINDS] = {
        [HEADS_MEDUSA] = {medusa_forward, medusa_backward},
        [HEADS_EAGLE] = {eagle_forward, eagle_backward},
        [HEADS_LAYERS] = {draft_forward, draft_backward},
    };
    heads_kind kind = span->heads->config.kind;
    networks[kind].forward(span);
    AVO_TRY(heads_compare(span, sums, error));
    if (span->pass->learn)
        networks[kind].backward(span);
    return AVO_OK;
}

/* Rows that some draft of a target needs. */
static uint32_t first_row(const heads_span *span, uint32_t given) {
    if (span->heads->config.kind != HEADS_MEDUSA)
        return given;
    uint32_t token = span->want[0].row - span->span->first + 1, before = 1 + span->heads->drafts;
    return token > before ? token - before : 0;
}

static avo_status run_spans(train_core *core, const train_heads_pass *pass, train_heads_sums *sums,
                            avo_error *error) {
    const train_call *call = &core->call;
    uint32_t at = 0;
    for (uint32_t s = 0; s < call->spans; s++) {
        heads_span span = {
            .core = core, .heads = core->heads, .pass = pass, .span = &call->span[s]};
        while (at < call->wants && call->want[at].row == span.span->first)
            at++; /* has one token before it */
        span.want = call->want + at;
        while (at < call->wants && call->want[at].span == s)
            at++;
        span.wants = (uint32_t)(call->want + at - span.want);
        if (span.wants == 0)
            continue;
        size_t number = (size_t)(span.span->sequence - pass->sequences);
        span.begin = first_row(&span, pass->begin != NULL ? pass->begin[number] : 0);
        if (span.begin + 1 >= span.span->rows)
            continue;
        span.rows = span.span->rows - span.begin - heads_row_distance(core->heads) + 1;
        AVO_TRY(run_span(&span, sums, error));
    }
    return AVO_OK;
}

avo_status train_heads_run(train_core *core, const train_heads_pass *pass, train_heads_sums *sums,
                           avo_error *error) {
    AVO_TRY(train_compute(core, pass->sequences, pass->count, error));
    avo_status status = core->call.rows == 0 ? AVO_OK : copy_taps(core, error);
    AVO_THEN(status, run_spans(core, pass, sums, error));
    train_close_sessions(core);
    return status;
}
