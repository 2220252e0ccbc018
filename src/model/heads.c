/* Opening draft heads for a model. */
#include "model/heads_import.h"
#include "model/heads_int.h"

#include "base/float_mode.h"
#include "base/mathd.h"
#include "formats/avo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- The base model ---- */

static avo_status check_equal(const avo_heads *heads, const avo_model *model, const char *field,
                              uint32_t found, uint32_t expected, avo_error *error) {
    if (found == expected)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%s: %s is %u, must be %u, that of the model (%s); these heads belong to "
                       "another model",
                       heads->path, field, found, expected, model->source->path);
}

/* The state behind the base model's final norm. */
static bool reads_normed(const heads_config *config) {
    return config->kind == HEADS_MEDUSA ||
           (config->kind == HEADS_EAGLE && config->form == HEADS_FORM_EAGLE);
}

static avo_status check_base(const avo_heads *heads, const avo_model *model, avo_error *error) {
    const heads_config *config = &heads->config;
    const model_view *view = &model->view;
    AVO_TRY(check_equal(heads, model, "width", config->width, view->width, error));
    AVO_TRY(check_equal(heads, model, "layers", config->layers, view->layers, error));
    AVO_TRY(check_equal(heads, model, "vocabulary", config->vocabulary, view->vocabulary, error));
    if (view->embedding.k == view->width && view->head.weight.k == view->width &&
        (view->final_norm.kind == NORM_RMS || !reads_normed(config)))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: draft heads need a model whose embedding and output matrix have its "
                       "own width, and Medusa and EAGLE heads an RMS norm behind its layers",
                       model->source->path);
}

/* SmolLM2-135M-Instruct as `avocet pull smollm2` gets it: the digest that heads had no field for
 * when the first ones were trained. */
static const char known_sha256[] =
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
static const char known_digest[] = "c04b32e534923261";

static bool has_digest(uint64_t digest, const char *wanted) {
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, digest);
    return strcmp(text, wanted) == 0;
}

bool heads_made_for(const heads_config *config, const avo_model *model) {
    const model_view *view = &model->view;
    const model_source *source = model->source;
    const char *wanted = config->base_digest;
    if (wanted[0] == '\0' && strcmp(config->base_sha256, known_sha256) == 0)
        wanted = known_digest;
    if (wanted[0] == '\0' || config->width != view->width || config->layers != view->layers ||
        config->vocabulary != view->vocabulary)
        return false;
    uint64_t origin = source->format == SOURCE_AVO ? avo_source_origin(source) : 0;
    return (origin != 0 && has_digest(origin, wanted)) || has_digest(source_digest(source), wanted);
}

/* ---- Views ---- */

static const norm_view no_norm = {.kind = NORM_NONE};

/* A single product with rows of the caller's: a model without layers. */
static model_view product_view(const weight_view *weight) {
    return (model_view){.width = weight->k,
                        .vocabulary = weight->rows,
                        .embedding = {.k = weight->k},
                        .embedding_scale = 1.0f,
                        .final_norm = no_norm,
                        .head = {.weight = *weight},
                        .logit_scale = 1.0f,
                        .k_max = weight->k};
}

static avo_status take_product(heads_reader *reader, const char *name, uint32_t rows, uint32_t k,
                               model_view *view) {
    const char *const names[] = {name};
    heads_matrix matrix = {.names = names, .down = 1, .across = 1, .rows = rows, .k = k};
    weight_view weight;
    AVO_TRY(heads_take_matrix(reader, &matrix, &weight));
    *view = product_view(&weight);
    return AVO_OK;
}

/* The blocks of all heads behind the first, and the biases of all blocks. */
static avo_status read_blocks(heads_reader *reader) {
    avo_heads *heads = reader->heads;
    const heads_config *config = &heads->config;
    size_t all = (size_t)config->heads * config->width;
    float *bias = NULL;
    if (config->bias) {
        heads->state_bias = bias =
            arena_take_array(&heads->arena, config->blocks * all, sizeof(float));
        if (bias == NULL)
            return status_no_memory(reader->error, "biases", config->blocks * all * sizeof(float));
    }
    for (uint32_t block = 0; block < config->blocks; block++) {
        char names[HEADS_MEDUSA_MAX][32];
        const char *list[HEADS_MEDUSA_MAX];
        for (uint32_t i = 0; i < config->heads; i++) {
            const float *one;
            char name[40];
            snprintf(names[i], sizeof(names[i]),
                     block == 0 ? "medusa.%u.state" : "medusa.%u.block.%u", i, block);
            list[i] = names[i];
            snprintf(name, sizeof(name), "%s.bias", names[i]);
            if (!config->bias)
                continue;
            AVO_TRY(heads_take_norm(reader, name, 1, config->width, &one));
            memcpy(bias + block * all + (size_t)i * config->width, one,
                   config->width * sizeof(float));
        }
        heads_matrix matrix = {.names = list,
                               .down = config->heads,
                               .across = 1,
                               .rows = config->width,
                               .k = config->width};
        weight_view weight;
        if (block == 0)
            continue;
        AVO_TRY(heads_take_matrix(reader, &matrix, &weight));
        heads->medusa_block[block] = product_view(&weight);
    }
    return AVO_OK;
}

static avo_status read_outputs(heads_reader *reader) {
    const heads_config *config = &reader->heads->config;
    for (uint32_t i = 0; i < config->heads; i++) {
        char name[40];
        snprintf(name, sizeof(name), "medusa.%u.output", i);
        AVO_TRY(take_product(reader, name, config->frequent, config->width,
                             &reader->heads->medusa_output[i]));
    }
    return AVO_OK;
}

static avo_status read_medusa(heads_reader *reader) {
    avo_heads *heads = reader->heads;
    const heads_config *config = &heads->config;
    static const char *const parts[] = {"state", "token"};
    char names[HEADS_MEDUSA_MAX * 2][32];
    const char *list[HEADS_MEDUSA_MAX * 2];
    uint32_t across = config->token ? 2 : 1;
    for (uint32_t i = 0; i < config->heads * across; i++) {
        snprintf(names[i], sizeof(names[i]), "medusa.%u.%s", i / across, parts[i % across]);
        list[i] = names[i];
    }
    heads_matrix matrix = {.names = list,
                           .down = config->heads,
                           .across = across,
                           .rows = config->width,
                           .k = config->width};
    weight_view weight;
    AVO_TRY(heads_take_matrix(reader, &matrix, &weight));
    heads->medusa_states = product_view(&weight);
    AVO_TRY(read_blocks(reader));
    if (config->output)
        return read_outputs(reader);
    AVO_TRY(heads_gather(reader, &weight));
    heads->medusa_head = product_view(&weight);
    return AVO_OK;
}

/* ---- Layers ---- */

typedef struct layer_matrix {
    const char *name;
    size_t offset;
    uint32_t rows, k;
} layer_matrix;

static avo_status read_layer(heads_reader *reader, const char *prefix, uint32_t number,
                             layer_view *layer) {
    const heads_config *c = &reader->heads->config;
    uint32_t query = c->attention_heads * c->head_size, kv = c->kv_heads * c->head_size;
    /* The first layer of EAGLE-3 sees a state and a token, both normed by the host; that of EAGLE
     * sees its input as it is. */
    bool wide = number == 0 && c->form == HEADS_FORM_EAGLE3;
    bool normed = number > 0 || c->form == HEADS_FORM_AVOCET;
    uint32_t seen = wide ? 2 * c->width : c->width;
    const layer_matrix matrices[] = {
        {"attn_q", offsetof(layer_view, query), query, seen},
        {"attn_k", offsetof(layer_view, key), kv, seen},
        {"attn_v", offsetof(layer_view, value), kv, seen},
        {"attn_output", offsetof(layer_view, output), c->width, query},
        {"ffn_gate", offsetof(layer_view, gate), c->feed_forward, c->width},
        {"ffn_up", offsetof(layer_view, up), c->feed_forward, c->width},
        {"ffn_down", offsetof(layer_view, down), c->width, c->feed_forward}};
    norm_view norm = {.kind = NORM_RMS, .epsilon = (float)c->norm_epsilon};
    char name[64];
    const char *const names[] = {name};
    *layer = (layer_view){.attention_norm = norm,
                          .feed_forward_norm = norm,
                          .heads = c->attention_heads,
                          .kv_heads = c->kv_heads,
                          .head_size = c->head_size,
                          .window = c->window,
                          .attention_scale = (float)(1.0 / sqrt(c->head_size)),
                          .feed_forward = c->feed_forward,
                          .activation = ACTIVATION_SILU,
                          .residual_scale = 1.0f};
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        linear_view *linear = (linear_view *)(void *)((char *)layer + matrices[i].offset);
        heads_matrix matrix = {
            .names = names, .down = 1, .across = 1, .rows = matrices[i].rows, .k = matrices[i].k};
        snprintf(name, sizeof(name), "%s.%u.%s", prefix, number, matrices[i].name);
        AVO_TRY(heads_take_matrix(reader, &matrix, &linear->weight));
        if (!c->attention_bias || i >= 3)
            continue;
        snprintf(name, sizeof(name), "%s.%u.%s.bias", prefix, number, matrices[i].name);
        AVO_TRY(heads_take_norm(reader, name, 1, matrices[i].rows, &linear->bias));
    }
    if (normed) {
        snprintf(name, sizeof(name), "%s.%u.attn_norm.weight", prefix, number);
        AVO_TRY(heads_take_norm(reader, name, 1, c->width, &layer->attention_norm.weight));
    } else {
        layer->attention_norm = no_norm;
    }
    snprintf(name, sizeof(name), "%s.%u.ffn_norm.weight", prefix, number);
    return heads_take_norm(reader, name, 1, c->width, &layer->feed_forward_norm.weight);
}

static avo_status make_rotary(heads_reader *reader, model_view *view) {
    const heads_config *config = &reader->heads->config;
    uint32_t pairs = config->head_size / 2;
    rotary_table *table = arena_take_array(&reader->heads->arena, 1, sizeof(*table));
    double *frequency = arena_take_array(&reader->heads->arena, pairs, sizeof(double));
    if (table == NULL || frequency == NULL)
        return status_no_memory(reader->error, "RoPE tables", pairs * sizeof(double));
    for (uint32_t i = 0; i < pairs; i++)
        frequency[i] = mathd_power(config->rope_base, -2.0 * i / config->head_size);
    *table = (rotary_table){.pairs = pairs, .frequency = frequency, .magnitude = 1.0};
    view->rotary = table;
    view->rotary_tables = 1;
    return AVO_OK;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static avo_status read_layers(heads_reader *reader, const char *prefix, const char *norm) {
    avo_heads *heads = reader->heads;
    const heads_config *config = &heads->config;
    layer_view *layers = arena_take_array(&heads->arena, config->depth, sizeof(*layers));
    if (layers == NULL)
        return status_no_memory(reader->error, "layers", config->depth * sizeof(*layers));
    for (uint32_t i = 0; i < config->depth; i++)
        AVO_TRY(read_layer(reader, prefix, i, &layers[i]));
    weight_view head;
    const char *const output = "output";
    heads_matrix matrix = {
        .names = &output, .down = 1, .across = 1, .rows = config->frequent, .k = config->width};
    AVO_TRY(config->output ? heads_take_matrix(reader, &matrix, &head)
                           : heads_gather(reader, &head));
    model_view *view = &heads->layers;
    *view = product_view(&head);
    view->layer = layers;
    view->layers = config->depth;
    if (config->form != HEADS_FORM_EAGLE) {
        view->final_norm = (norm_view){.kind = NORM_RMS, .epsilon = (float)config->norm_epsilon};
        AVO_TRY(heads_take_norm(reader, norm, 1, config->width, &view->final_norm.weight));
    }
    view->query_width_max = config->attention_heads * config->head_size;
    view->kv_width_max = config->kv_heads * config->head_size;
    view->feed_forward_max = config->feed_forward;
    view->k_max =
        larger(larger(layers[0].query.weight.k, view->query_width_max), config->feed_forward);
    return make_rotary(reader, view);
}

static avo_status read_eagle(heads_reader *reader) {
    avo_heads *heads = reader->heads;
    const heads_config *config = &heads->config;
    uint32_t width = config->width;
    if (config->form == HEADS_FORM_AVOCET)
        AVO_TRY(heads_take_norm(reader, "eagle.tap_norm.weight", config->taps, width,
                                &heads->tap_norm));
    if (config->form != HEADS_FORM_EAGLE) {
        AVO_TRY(heads_take_norm(reader, "eagle.state_norm.weight", 1, width, &heads->state_norm));
        AVO_TRY(heads_take_norm(reader, "eagle.token_norm.weight", 1, width, &heads->token_norm));
        AVO_TRY(take_product(reader, "eagle.fuse", width, config->taps * width, &heads->fuse));
    }
    if (config->form != HEADS_FORM_EAGLE3)
        AVO_TRY(take_product(reader, "eagle.input", width, 2 * width, &heads->input));
    if (config->bias)
        AVO_TRY(heads_take_norm(reader, "eagle.input.bias", 1, width, &heads->input_bias));
    return read_layers(reader, "eagle.layer", "eagle.output_norm.weight");
}

/* ---- The object ---- */

static avo_status read_all(heads_reader *reader) {
    avo_heads *heads = reader->heads;
    const model_source *source = reader->source;
    AVO_TRY(heads_config_parse(source->heads, heads->path, heads->allocator, &heads->config,
                               reader->error));
    AVO_TRY(check_base(heads, reader->model, reader->error));
    AVO_TRY(heads_take_frequent(reader));
    switch (heads->config.kind) {
    case HEADS_MEDUSA:
        AVO_TRY(read_medusa(reader));
        break;
    case HEADS_EAGLE:
        AVO_TRY(read_eagle(reader));
        break;
    default:
        AVO_TRY(read_layers(reader, "layers", "output_norm.weight"));
    }
    if (reader->used == source->tensor_count)
        return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: the file has %u tensors, %s heads with these fields have %u",
                       heads->path, source->tensor_count, heads_kind_name(heads->config.kind),
                       reader->used);
}

static avo_status open_memory(const avo_model *model, bytes_view bytes, const char *path,
                              bool later, avo_heads **out, avo_error *error) {
    const avo_allocator *allocator = model->allocator;
    model_source *source = NULL;
    *out = NULL;
    avo_heads *heads = allocator_take_array(allocator, 1, sizeof(*heads));
    if (heads == NULL)
        return status_no_memory(error, "draft heads", sizeof(*heads));
    heads->allocator = allocator;
    heads->file_bytes = bytes.size;
    arena_init(&heads->arena, allocator, SIZE_MAX);
    heads->path = arena_copy_text(&heads->arena, path, strlen(path));
    avo_status status =
        heads->path == NULL ? status_no_memory(error, "a path", strlen(path)) : AVO_OK;
    AVO_THEN(status, source_open_tensors(bytes, path, allocator, &source, error));
    if (status == AVO_OK) {
        heads_reader reader = {
            .source = source, .model = model, .heads = heads, .error = error, .later = later};
        float_mode mode;
        float_mode_enter(&mode);
        status = read_all(&reader);
        float_mode_leave(&mode);
    }
    source_close(source);
    if (status != AVO_OK) {
        avo_heads_close(heads);
        return status;
    }
    *out = heads;
    return AVO_OK;
}

avo_status heads_open_memory(const avo_model *model, bytes_view bytes, const char *path,
                             avo_heads **out, avo_error *error) {
    return open_memory(model, bytes, path, false, out, error);
}

/* Heads of another project. */
static avo_status open_folder(const avo_model *model, const char *path, bool later, avo_heads **out,
                              avo_error *error) {
    buffer file;
    buffer_init(&file, model->allocator, SIZE_MAX);
    avo_status status = heads_import(model, path, QUANT_Q8_0, &file, error);
    bytes_view bytes = {(const uint8_t *)file.data, file.size};
    AVO_THEN(status, open_memory(model, bytes, path, later, out, error));
    buffer_free(&file);
    return status;
}

static avo_status open_file(const avo_model *model, const char *path, bool later, avo_heads **out,
                            avo_error *error) {
    *out = NULL;
    file_map map;
    if (file_kind_of(path) == FILE_FOLDER)
        return open_folder(model, path, later, out, error);
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = open_memory(model, map.bytes, path, later, out, error);
    file_map_close(&map);
    return status;
}

avo_status avo_heads_open(const avo_model *model, const char *path, avo_heads **out,
                          avo_error *error) {
    return open_file(model, path, false, out, error);
}

avo_status heads_open_later(const avo_model *model, const char *path, avo_heads **out,
                            avo_error *error) {
    return open_file(model, path, true, out, error);
}

void avo_heads_close(avo_heads *heads) {
    if (heads == NULL)
        return;
    allocator_give(heads->allocator, heads->rest_panels, heads->rest_bytes);
    arena_free(&heads->arena);
    allocator_give(heads->allocator, heads, sizeof(*heads));
}

avo_status heads_config_read(const char *path, const avo_allocator *allocator, heads_config *config,
                             avo_error *error) {
    file_map map;
    model_source *source = NULL;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = source_open_tensors(map.bytes, path, allocator, &source, error);
    AVO_THEN(status, heads_config_parse(source->heads, path, allocator, config, error));
    source_close(source);
    file_map_close(&map);
    return status;
}
