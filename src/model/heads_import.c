/* Draft heads of other projects: their folders in the format of docs/heads.md. */
#include "model/heads_import.h"

#include "model/heads_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TREE_MAX       ((size_t)16 << 20)
#define PATH_MAX_BYTES 4096

typedef struct importing {
    const avo_model *model;
    const char *folder;
    avo_error *error;
    char path[PATH_MAX_BYTES]; /* of the weights */
    arena tree;
    json_value root;
    const json_value *layer; /* where the sizes of layers are */
    model_source *source;
    bool *used; /* [tensors] */
    heads_config config;
    heads_writer writer;
    uint32_t *order; /* [frequent] of the output's rows; NULL: as they are */
    int32_t *tokens; /* [frequent] */
} importing;

/* ---- The folder ---- */

static avo_status find_weights(importing *im) {
    static const char *const names[] = {"model.safetensors", "medusa_lm_head.safetensors"};
    static const char *const others[] = {"pytorch_model.bin", "medusa_lm_head.pt"};
    for (size_t i = 0; i < 2; i++) {
        AVO_TRY(file_join(im->path, sizeof(im->path), im->folder, names[i], im->error));
        if (file_kind_of(im->path) == FILE_REGULAR)
            return AVO_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        AVO_TRY(file_join(im->path, sizeof(im->path), im->folder, others[i], im->error));
        if (file_kind_of(im->path) != FILE_REGULAR)
            continue;
        return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                           "%s is a pickle, which can run programs when it is read. Convert it: "
                           "python -c \"import torch, safetensors.torch as s; "
                           "s.save_file({k: v.clone().contiguous() for k, v in torch.load('%s', "
                           "weights_only=True).items()}, '%s')\"",
                           im->path, others[i], names[i]);
    }
    return status_fail(im->error, AVO_ERROR_FORMAT,
                       "%s: no draft heads: neither model.safetensors nor "
                       "medusa_lm_head.safetensors is there",
                       im->folder);
}

/* The configuration as a tree, and the tensors. */
static avo_status open_parts(importing *im, text_view config, bytes_view weights) {
    avo_status status = json_parse(&im->tree, config, &im->root, im->error);
    if (status != AVO_OK)
        return status_prefix(im->error, status, "%s/config.json", im->folder);
    im->layer = json_find(&im->root, "transformer_layer_config");
    if (im->layer == NULL)
        im->layer = &im->root;
    AVO_TRY(source_open_tensors(weights, im->path, im->model->allocator, &im->source, im->error));
    im->used = arena_take_array(&im->tree, im->source->tensor_count + 1, sizeof(bool));
    return im->used == NULL ? status_no_memory(im->error, "a list of tensors", 1) : AVO_OK;
}

/* ---- Fields ---- */

static avo_status named(importing *im, avo_status status) {
    return status == AVO_OK ? AVO_OK
                            : status_prefix(im->error, status, "%s/config.json", im->folder);
}

/* absent: what is taken where the field is not there; 0: it must be. */
static avo_status take_integer(importing *im, const char *key, int64_t most, int64_t absent,
                               uint32_t *out) {
    int64_t value = absent;
    AVO_TRY(named(im, json_get_integer(im->layer, key, 1, most, &value, im->error)));
    *out = (uint32_t)value;
    if (value > 0)
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_FORMAT, "%s/config.json has no %s", im->folder, key);
}

static avo_status check_field(importing *im, const char *key, uint32_t expected) {
    int64_t value = expected;
    AVO_TRY(named(im, json_get_integer(im->layer, key, 0, INT32_MAX, &value, im->error)));
    if (value == expected)
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_ARGUMENT,
                       "%s/config.json: %s is %lld, must be %u, that of the model (%s); these "
                       "heads belong to another model",
                       im->folder, key, (long long)value, expected, im->model->source->path);
}

/* Refuses a field that says what Avocet does not compute. */
static avo_status refuse_flag(importing *im, const json_value *object, const char *key) {
    bool value = false;
    AVO_TRY(named(im, json_get_boolean(object, key, &value, im->error)));
    if (!value)
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                       "%s/config.json: %s is true, which Avocet does not compute", im->folder,
                       key);
}

/* RoPE in its plain form only. */
static avo_status take_rope(importing *im) {
    const json_value *newer = json_find(im->layer, "rope_parameters");
    const json_value *scaling = json_find(im->layer, "rope_scaling");
    im->config.rope_base = 10000.0;
    AVO_TRY(named(
        im, json_get_number(im->layer, "rope_theta", 1.0, 1e12, &im->config.rope_base, im->error)));
    if (newer != NULL && newer->kind == JSON_OBJECT) {
        AVO_TRY(named(
            im, json_get_number(newer, "rope_theta", 1.0, 1e12, &im->config.rope_base, im->error)));
        scaling = newer;
    }
    if (scaling == NULL || scaling->kind != JSON_OBJECT)
        return AVO_OK;
    text_view type = text_from("default");
    AVO_TRY(named(im, json_get_string(scaling, "type", &type, im->error)));
    AVO_TRY(named(im, json_get_string(scaling, "rope_type", &type, im->error)));
    if (text_is(type, "default"))
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                       "%s/config.json: RoPE of type \"%.*s\" is not supported in draft heads, "
                       "only the default one",
                       im->folder, TEXT_ARGUMENT(type));
}

static avo_status take_sizes(importing *im) {
    heads_config *c = &im->config;
    text_view activation = text_from("silu");
    AVO_TRY(check_field(im, "hidden_size", c->width));
    AVO_TRY(check_field(im, "target_hidden_size", c->width));
    AVO_TRY(check_field(im, "vocab_size", c->vocabulary));
    AVO_TRY(named(im, json_get_string(im->layer, "hidden_act", &activation, im->error)));
    if (!text_is(activation, "silu"))
        return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                           "%s/config.json: hidden_act is \"%.*s\", must be silu", im->folder,
                           TEXT_ARGUMENT(activation));
    AVO_TRY(take_integer(im, "num_attention_heads", SOURCE_HEADS_MAX, 0, &c->attention_heads));
    AVO_TRY(take_integer(im, "num_key_value_heads", SOURCE_HEADS_MAX, c->attention_heads,
                         &c->kv_heads));
    AVO_TRY(take_integer(im, "head_dim", SOURCE_HEAD_SIZE_MAX, c->width / c->attention_heads,
                         &c->head_size));
    AVO_TRY(take_integer(im, "intermediate_size", SOURCE_FEED_FORWARD_MAX, 0, &c->feed_forward));
    AVO_TRY(take_integer(im, "num_hidden_layers", HEADS_DEPTH_MAX, 1, &c->depth));
    c->norm_epsilon = 1e-6;
    AVO_TRY(named(
        im, json_get_number(im->layer, "rms_norm_eps", 0.0, 1.0, &c->norm_epsilon, im->error)));
    return take_rope(im);
}

/* ---- Tensors ---- */

static const source_tensor *find(importing *im, const char *name) {
    const source_tensor *tensor = source_find(im->source, text_from(name));
    if (tensor != NULL)
        im->used[tensor - im->source->tensors] = true;
    return tensor;
}

static avo_status need(importing *im, const char *name, uint64_t rows, uint64_t columns,
                       const source_tensor **out) {
    const source_tensor *t = *out = find(im, name);
    if (t == NULL)
        return status_fail(im->error, AVO_ERROR_FORMAT, "%s: tensor \"%s\" is missing", im->path,
                           name);
    bool flat = rows == 1 && t->rank == 1 && t->shape[0] == columns;
    if (flat || (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns))
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_FORMAT,
                       "%s: tensor \"%s\" has shape [%llu, %llu], must have [%llu, %llu]", im->path,
                       name, (unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
                       (unsigned long long)rows, (unsigned long long)columns);
}

static avo_status take_matrix(importing *im, const char *theirs, const char *ours, uint32_t rows,
                              uint32_t columns, bool swap) {
    heads_numbers numbers = {.rows = rows, .columns = columns, .swap = swap};
    AVO_TRY(need(im, theirs, rows, columns, &numbers.from));
    return heads_write_matrix(&im->writer, ours, &numbers);
}

static avo_status take_vector(importing *im, const char *theirs, const char *ours, uint32_t count) {
    const source_tensor *tensor;
    AVO_TRY(need(im, theirs, 1, count, &tensor));
    return heads_write_vector(&im->writer, ours, tensor, count);
}

/* What is neither used nor known to be of no use. */
static avo_status check_rest(importing *im) {
    static const char *const known[] = {"t2d", "verifier_norm.weight", "verifier_lm_head.weight",
                                        "embed_tokens.weight"};
    for (uint32_t i = 0; i < im->source->tensor_count; i++) {
        text_view name = im->source->tensors[i].name;
        bool fine = im->used[i];
        for (size_t k = 0; !fine && k < sizeof(known) / sizeof(known[0]); k++)
            fine = text_is(name, known[k]);
        const char end[] = "rotary_emb.inv_freq";
        size_t length = sizeof(end) - 1;
        fine = fine ||
               (name.size >= length && memcmp(name.data + name.size - length, end, length) == 0);
        if (!fine)
            return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                               "%s: tensor \"%.*s\" belongs to no architecture of draft heads that "
                               "Avocet computes",
                               im->path, TEXT_ARGUMENT(name));
    }
    return AVO_OK;
}

/* ---- Tokens ---- */

#define EMBEDDINGS 32
#define ALIKE      0.9

/* Heads with an embedding of their own are those of the base model, of which quantising leaves
 * nearly the same directions. */
static avo_status check_embedding(importing *im) {
    const heads_config *c = &im->config;
    const source_tensor *tensor;
    if (find(im, "embed_tokens.weight") == NULL)
        return AVO_OK;
    AVO_TRY(need(im, "embed_tokens.weight", c->vocabulary, c->width, &tensor));
    float *theirs = arena_take_array(&im->tree, 2 * (size_t)c->width, sizeof(float));
    if (theirs == NULL)
        return status_no_memory(im->error, "embeddings", 2 * (size_t)c->width * sizeof(float));
    float *ours = theirs + c->width;
    double dot = 0.0, own = 0.0, base = 0.0;
    weight_view view = {.type = tensor->type,
                        .layout = QUANT_LAYOUT_ROWS,
                        .rows = c->vocabulary,
                        .k = c->width,
                        .data = tensor->data};
    if (tensor->type != QUANT_F32 && tensor->type != QUANT_F16 && tensor->type != QUANT_BF16)
        return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"embed_tokens.weight\" has type %s, must have f32, f16 or "
                           "bf16",
                           im->path, quant_name(tensor->type));
    for (uint32_t i = 0; i < EMBEDDINGS; i++) {
        size_t row = (size_t)((uint64_t)c->vocabulary * i / EMBEDDINGS);
        weight_decode_row(&view, row, theirs);
        weight_decode_row(&im->model->view.embedding, row, ours);
        for (uint32_t k = 0; k < c->width; k++) {
            dot += (double)theirs[k] * ours[k];
            own += (double)theirs[k] * theirs[k];
            base += (double)ours[k] * ours[k];
        }
    }
    if (dot >= ALIKE * sqrt(own * base) && own > 0.0)
        return AVO_OK;
    return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                       "%s: embed_tokens.weight is not the embedding of the model (%s); heads must "
                       "use that",
                       im->path, im->model->source->path);
}

typedef struct pair {
    int32_t token;
    uint32_t row;
} pair;

static int by_token(const void *a, const void *b) {
    int32_t left = ((const pair *)a)->token, right = ((const pair *)b)->token;
    return (left > right) - (left < right);
}

static avo_status take_lists(importing *im) {
    uint32_t count = im->config.frequent;
    im->tokens = arena_take_array(&im->tree, count, sizeof(*im->tokens));
    im->order = arena_take_array(&im->tree, count, sizeof(*im->order));
    if (im->tokens == NULL || im->order == NULL)
        return status_no_memory(im->error, "tokens", count * sizeof(*im->tokens));
    for (uint32_t i = 0; i < count; i++) {
        im->tokens[i] = (int32_t)i;
        im->order[i] = i;
    }
    return AVO_OK;
}

/* Column i of the logits is token i + d2t[i]. */
static avo_status take_d2t(importing *im) {
    uint32_t count = im->config.frequent;
    const source_tensor *tensor = find(im, "d2t");
    AVO_TRY(take_lists(im));
    if (tensor == NULL && count == im->config.vocabulary)
        return AVO_OK;
    AVO_TRY(need(im, "d2t", 1, count, &tensor));
    if (tensor->type != QUANT_I64)
        return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"d2t\" has type %s, must have i64", im->path,
                           quant_name(tensor->type));
    pair *pairs = arena_take_array(&im->tree, count, sizeof(*pairs));
    if (pairs == NULL)
        return status_no_memory(im->error, "tokens", count * sizeof(*pairs));
    for (uint32_t i = 0; i < count; i++) {
        int64_t offset;
        memcpy(&offset, tensor->data + (size_t)i * sizeof(offset), sizeof(offset));
        if (offset < -(int64_t)i || offset >= (int64_t)im->config.vocabulary - i)
            return status_fail(im->error, AVO_ERROR_FORMAT,
                               "%s: d2t[%u] is %lld, which is no token of %u", im->path, i,
                               (long long)offset, im->config.vocabulary);
        pairs[i] = (pair){(int32_t)(i + offset), i};
    }
    qsort(pairs, count, sizeof(*pairs), by_token);
    for (uint32_t i = 0; i < count; i++) {
        im->tokens[i] = pairs[i].token;
        im->order[i] = pairs[i].row;
        if (i > 0 && pairs[i].token == pairs[i - 1].token)
            return status_fail(im->error, AVO_ERROR_FORMAT, "%s: d2t names token %d twice",
                               im->path, pairs[i].token);
    }
    return AVO_OK;
}

/* Own rows of the output matrix where the file has them. */
static avo_status take_output(importing *im, const char *theirs, const char *ours) {
    heads_numbers numbers = {
        .rows = im->config.frequent, .columns = im->config.width, .order = im->order};
    AVO_TRY(need(im, theirs, numbers.rows, numbers.columns, &numbers.from));
    im->config.output = true;
    return heads_write_matrix(&im->writer, ours, &numbers);
}

/* ---- Medusa ---- */

static avo_status take_block(importing *im, const char *prefix, uint32_t head, uint32_t block) {
    char theirs[96], ours[64], bias[72];
    uint32_t width = im->config.width;
    snprintf(theirs, sizeof(theirs), "%s%u.%u.linear.weight", prefix, head, block);
    if (block == 0)
        snprintf(ours, sizeof(ours), "medusa.%u.state", head);
    else
        snprintf(ours, sizeof(ours), "medusa.%u.block.%u", head, block);
    AVO_TRY(take_matrix(im, theirs, ours, width, width, false));
    if (!im->config.bias)
        return AVO_OK;
    snprintf(theirs, sizeof(theirs), "%s%u.%u.linear.bias", prefix, head, block);
    snprintf(bias, sizeof(bias), "%s.bias", ours);
    return take_vector(im, theirs, bias, width);
}

static bool has_block(importing *im, const char *prefix, uint32_t head, uint32_t block) {
    char name[96];
    snprintf(name, sizeof(name), "%s%u.%u.linear.weight", prefix, head, block);
    return find(im, name) != NULL;
}

static avo_status import_medusa(importing *im) {
    heads_config *c = &im->config;
    const char *prefix = has_block(im, "medusa_head.", 0, 0) ? "medusa_head." : "";
    c->kind = HEADS_MEDUSA;
    c->frequent = c->vocabulary;
    c->norm_epsilon = (double)im->model->view.final_norm.epsilon;
    AVO_TRY(check_field(im, "hidden_size", c->width));
    AVO_TRY(check_field(im, "vocab_size", c->vocabulary));
    while (c->heads <= HEADS_MEDUSA_MAX && has_block(im, prefix, c->heads, 0))
        c->heads++;
    while (c->blocks <= HEADS_BLOCKS_MAX && has_block(im, prefix, 0, c->blocks))
        c->blocks++;
    if (c->heads == 0 || c->heads > HEADS_MEDUSA_MAX || c->blocks > HEADS_BLOCKS_MAX)
        return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %u Medusa heads with %u blocks, must be 1 to %d with 1 to %d",
                           im->path, c->heads, c->blocks, HEADS_MEDUSA_MAX, HEADS_BLOCKS_MAX);
    char name[96], ours[64];
    snprintf(name, sizeof(name), "%s0.0.linear.bias", prefix);
    c->bias = find(im, name) != NULL;
    AVO_TRY(take_lists(im));
    AVO_TRY(heads_write_tokens(&im->writer, im->tokens, c->frequent));
    for (uint32_t head = 0; head < c->heads; head++) {
        for (uint32_t block = 0; block < c->blocks; block++)
            AVO_TRY(take_block(im, prefix, head, block));
        snprintf(name, sizeof(name), "%s%u.%u.weight", prefix, head, c->blocks);
        snprintf(ours, sizeof(ours), "medusa.%u.output", head);
        AVO_TRY(take_output(im, name, ours));
    }
    return AVO_OK;
}

/* ---- Layers ---- */

/* The first layer of EAGLE-3 reads [token; state]; ours are [state; token]. */
static avo_status take_attention(importing *im, const char *theirs, uint32_t number) {
    static const char *const parts[] = {"q", "k", "v"};
    const heads_config *c = &im->config;
    bool wide = number == 0 && c->form == HEADS_FORM_EAGLE3;
    char from[128], to[64];
    for (size_t i = 0; i < 3; i++) {
        uint32_t rows = (i == 0 ? c->attention_heads : c->kv_heads) * c->head_size;
        snprintf(from, sizeof(from), "%sself_attn.%s_proj.weight", theirs, parts[i]);
        snprintf(to, sizeof(to), "eagle.layer.%u.attn_%s", number, parts[i]);
        AVO_TRY(take_matrix(im, from, to, rows, (wide ? 2 : 1) * c->width, wide));
        if (!c->attention_bias)
            continue;
        snprintf(from, sizeof(from), "%sself_attn.%s_proj.bias", theirs, parts[i]);
        char bias[72];
        snprintf(bias, sizeof(bias), "%s.bias", to);
        AVO_TRY(take_vector(im, from, bias, rows));
    }
    return AVO_OK;
}

static avo_status take_layer(importing *im, const char *theirs, uint32_t number) {
    const heads_config *c = &im->config;
    uint32_t query = c->attention_heads * c->head_size;
    const struct {
        const char *theirs, *ours;
        uint32_t rows, columns;
    } parts[] = {{"self_attn.o_proj", "attn_output", c->width, query},
                 {"mlp.gate_proj", "ffn_gate", c->feed_forward, c->width},
                 {"mlp.up_proj", "ffn_up", c->feed_forward, c->width},
                 {"mlp.down_proj", "ffn_down", c->width, c->feed_forward}};
    char from[128], to[64];
    AVO_TRY(take_attention(im, theirs, number));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(from, sizeof(from), "%s%s.weight", theirs, parts[i].theirs);
        snprintf(to, sizeof(to), "eagle.layer.%u.%s", number, parts[i].ours);
        AVO_TRY(take_matrix(im, from, to, parts[i].rows, parts[i].columns, false));
    }
    if (number > 0) {
        snprintf(from, sizeof(from), "%sinput_layernorm.weight", theirs);
        snprintf(to, sizeof(to), "eagle.layer.%u.attn_norm.weight", number);
        AVO_TRY(take_vector(im, from, to, c->width));
    }
    snprintf(from, sizeof(from), "%spost_attention_layernorm.weight", theirs);
    snprintf(to, sizeof(to), "eagle.layer.%u.ffn_norm.weight", number);
    return take_vector(im, from, to, c->width);
}

/* first: the name of the first layer; the others are layers.I. */
static avo_status take_layers(importing *im, const char *first) {
    char name[160];
    snprintf(name, sizeof(name), "%sself_attn.q_proj.bias", first);
    im->config.attention_bias = find(im, name) != NULL;
    AVO_TRY(take_layer(im, first, 0));
    for (uint32_t i = 1; i < im->config.depth; i++) {
        snprintf(name, sizeof(name), "layers.%u.", i);
        AVO_TRY(take_layer(im, name, i));
    }
    return AVO_OK;
}

/* ---- EAGLE and EAGLE-2 ---- */

static avo_status import_eagle(importing *im, bool speculators) {
    heads_config *c = &im->config;
    const char *fc = speculators ? "fusion_fc" : "fc";
    char name[32];
    c->kind = HEADS_EAGLE;
    c->form = HEADS_FORM_EAGLE;
    c->taps = 1;
    c->tap[0] = c->layers;
    c->frequent = c->vocabulary;
    AVO_TRY(refuse_flag(im, &im->root, "layernorms"));
    AVO_TRY(take_sizes(im));
    AVO_TRY(check_embedding(im));
    AVO_TRY(take_lists(im));
    AVO_TRY(heads_write_tokens(&im->writer, im->tokens, c->frequent));
    snprintf(name, sizeof(name), "%s.weight", fc);
    AVO_TRY(take_matrix(im, name, "eagle.input", c->width, 2 * c->width, true));
    snprintf(name, sizeof(name), "%s.bias", fc);
    c->bias = find(im, name) != NULL;
    if (c->bias)
        AVO_TRY(take_vector(im, name, "eagle.input.bias", c->width));
    if (find(im, "lm_head.weight") != NULL)
        AVO_TRY(take_output(im, "lm_head.weight", "output"));
    return take_layers(im, speculators ? "transformer." : "layers.0.");
}

/* ---- EAGLE-3 ---- */

/* Layers whose inputs are read. speculators (and vLLM) count so; SGLang and SpecForge name layers
 * whose outputs are read. Both read layers 2, L / 2 and L − 3 where nothing is said. */
static avo_status take_taps(importing *im) {
    heads_config *c = &im->config;
    const json_value *inner = json_find(&im->root, "eagle_config");
    const json_value *ids = json_find(&im->root, "eagle_aux_hidden_state_layer_ids");
    int64_t ahead = 0;
    if (ids == NULL || ids->kind == JSON_NULL) {
        ids = json_find(inner, "eagle_aux_hidden_state_layer_ids");
        ahead = 1;
    }
    const int64_t usual[] = {2, c->layers / 2, (int64_t)c->layers - 3};
    bool said = ids != NULL && ids->kind != JSON_NULL;
    c->taps = said && ids->kind == JSON_ARRAY ? (uint32_t)ids->array.count : 3;
    if (c->taps == 0 || c->taps > HEADS_TAPS_MAX || (said && ids->kind != JSON_ARRAY))
        return status_fail(im->error, AVO_ERROR_FORMAT,
                           "%s/config.json: eagle_aux_hidden_state_layer_ids must be a list of 1 "
                           "to %d layers",
                           im->folder, HEADS_TAPS_MAX);
    for (uint32_t i = 0; i < c->taps; i++) {
        const json_value *item = said ? json_item(ids, i) : NULL;
        int64_t tap =
            item == NULL ? usual[i] : (item->kind == JSON_INTEGER ? item->integer + ahead : -1);
        if (tap < 0 || tap > c->layers || (i > 0 && tap <= c->tap[i - 1]))
            return status_fail(im->error, AVO_ERROR_FORMAT,
                               "%s/config.json: hidden states in front of layer %lld cannot be "
                               "read; eagle_aux_hidden_state_layer_ids must ascend and be layers "
                               "of the model, which has %u",
                               im->folder, (long long)tap, c->layers);
        c->tap[i] = (uint32_t)tap;
    }
    return AVO_OK;
}

static avo_status take_draft_vocabulary(importing *im) {
    heads_config *c = &im->config;
    const source_tensor *list = source_find(im->source, text_from("d2t"));
    const source_tensor *rows = source_find(im->source, text_from("lm_head.weight"));
    uint64_t count = list != NULL ? list->shape[0] : c->vocabulary;
    if (list == NULL && rows != NULL && rows->rank == 2 && rows->shape[0] < count)
        return status_fail(im->error, AVO_ERROR_FORMAT, "%s: tensor \"d2t\" is missing", im->path);
    if (count == 0 || count > c->vocabulary)
        return status_fail(im->error, AVO_ERROR_FORMAT, "%s: d2t has %llu tokens, the model has %u",
                           im->path, (unsigned long long)count, c->vocabulary);
    c->frequent = (uint32_t)count;
    AVO_TRY(take_d2t(im));
    return heads_write_tokens(&im->writer, im->tokens, c->frequent);
}

static avo_status import_eagle3(importing *im) {
    heads_config *c = &im->config;
    const char *first =
        source_find(im->source, text_from("midlayer.self_attn.q_proj.weight")) != NULL
            ? "midlayer."
            : "layers.0.";
    char name[64];
    c->kind = HEADS_EAGLE;
    c->form = HEADS_FORM_EAGLE3;
    AVO_TRY(refuse_flag(im, &im->root, "norm_before_fc"));
    AVO_TRY(named(
        im, json_get_boolean(&im->root, "norm_before_residual", &c->norm_residual, im->error)));
    AVO_TRY(take_sizes(im));
    AVO_TRY(take_taps(im));
    AVO_TRY(check_embedding(im));
    AVO_TRY(take_draft_vocabulary(im));
    AVO_TRY(take_matrix(im, "fc.weight", "eagle.fuse", c->width, c->taps * c->width, false));
    AVO_TRY(take_layers(im, first));
    snprintf(name, sizeof(name), "%shidden_norm.weight", first);
    AVO_TRY(take_vector(im, name, "eagle.state_norm.weight", c->width));
    snprintf(name, sizeof(name), "%sinput_layernorm.weight", first);
    AVO_TRY(take_vector(im, name, "eagle.token_norm.weight", c->width));
    AVO_TRY(take_vector(im, "norm.weight", "eagle.output_norm.weight", c->width));
    return find(im, "lm_head.weight") != NULL ? take_output(im, "lm_head.weight", "output")
                                              : AVO_OK;
}

/* ---- The choice ---- */

static avo_status refuse_unknown(importing *im) {
    text_view type = text_from("none");
    const json_value *first = json_item(json_find(&im->root, "architectures"), 0);
    AVO_TRY(named(im, json_get_string(&im->root, "model_type", &type, im->error)));
    AVO_TRY(named(im, json_get_string(&im->root, "speculators_model_type", &type, im->error)));
    if (first != NULL && first->kind == JSON_STRING)
        type = first->string;
    return status_fail(im->error, AVO_ERROR_UNSUPPORTED,
                       "%s: architecture \"%.*s\" is no draft heads that Avocet knows: Medusa, "
                       "EAGLE, EAGLE-2 and EAGLE-3 (also of SpecForge and speculators)",
                       im->folder, TEXT_ARGUMENT(type));
}

static bool there(const importing *im, const char *name) {
    return source_find(im->source, text_from(name)) != NULL;
}

static avo_status import_any(importing *im) {
    text_view type = {NULL, 0};
    AVO_TRY(named(im, json_get_string(&im->root, "speculators_model_type", &type, im->error)));
    if (type.size > 0 && !text_is(type, "eagle") && !text_is(type, "eagle3"))
        return refuse_unknown(im);
    if (there(im, "midlayer.self_attn.q_proj.weight") || there(im, "layers.0.hidden_norm.weight") ||
        text_is(type, "eagle3"))
        return import_eagle3(im);
    if (there(im, "fusion_fc.weight"))
        return import_eagle(im, true);
    if (there(im, "fc.weight") && there(im, "layers.0.self_attn.q_proj.weight"))
        return import_eagle(im, false);
    if (there(im, "0.0.linear.weight") || there(im, "medusa_head.0.0.linear.weight") ||
        json_find(&im->root, "medusa_num_heads") != NULL)
        return import_medusa(im);
    return refuse_unknown(im);
}

static avo_status import_parts(importing *im, text_view config, bytes_view weights, quant_type type,
                               buffer *out) {
    const model_view *view = &im->model->view;
    AVO_TRY(open_parts(im, config, weights));
    im->config = (heads_config){
        .width = view->width, .layers = view->layers, .vocabulary = view->vocabulary};
    snprintf(im->config.base_digest, sizeof(im->config.base_digest), "%016" PRIx64,
             source_digest(im->model->source));
    heads_writer_init(&im->writer, im->model->allocator, im->path, type, im->error);
    avo_status status = import_any(im);
    AVO_THEN(status, check_rest(im));
    AVO_THEN(status, heads_write_finish(&im->writer, &im->config, out));
    heads_writer_free(&im->writer);
    return status;
}

static avo_status importing_open(const avo_model *model, const char *folder, importing **out,
                                 avo_error *error) {
    importing *im = *out = allocator_take_array(model->allocator, 1, sizeof(*im));
    if (im == NULL)
        return status_no_memory(error, "draft heads", sizeof(*im));
    im->model = model;
    im->folder = folder;
    im->error = error;
    arena_init(&im->tree, model->allocator, SIZE_MAX);
    return AVO_OK;
}

static void importing_close(importing *im) {
    source_close(im->source);
    arena_free(&im->tree);
    allocator_give(im->model->allocator, im, sizeof(*im));
}

avo_status heads_import_memory(const avo_model *model, const char *folder, text_view config,
                               bytes_view weights, quant_type type, buffer *out, avo_error *error) {
    importing *im;
    AVO_TRY(importing_open(model, folder, &im, error));
    snprintf(im->path, sizeof(im->path), "%s/model.safetensors", folder);
    avo_status status = import_parts(im, config, weights, type, out);
    importing_close(im);
    return status;
}

/* Both files of the folder, mapped. */
static avo_status import_files(importing *im, quant_type type, buffer *out) {
    char path[PATH_MAX_BYTES];
    file_map config, weights;
    AVO_TRY(file_join(path, sizeof(path), im->folder, "config.json", im->error));
    AVO_TRY(file_map_open(path, &config, im->error));
    avo_status status = find_weights(im);
    AVO_THEN(status, file_map_open(im->path, &weights, im->error));
    if (status == AVO_OK) {
        text_view text = {(const char *)config.bytes.data, config.bytes.size};
        status = import_parts(im, text, weights.bytes, type, out);
        file_map_close(&weights);
    }
    file_map_close(&config);
    return status;
}

avo_status heads_import(const avo_model *model, const char *folder, quant_type type, buffer *out,
                        avo_error *error) {
    importing *im;
    AVO_TRY(importing_open(model, folder, &im, error));
    avo_status status = import_files(im, type, out);
    importing_close(im);
    return status;
}
