/* PEFT's tensors: every key finds its module, and every module that the configuration means has its
 * tensors.
 *
 *   base_model.model.MODULE.lora_A.weight             [rank][k]
 *   base_model.model.MODULE.lora_B.weight             [rows][rank], also .bias
 *   base_model.model.MODULE.lora_embedding_A          [rank][vocabulary]
 *   base_model.model.MODULE.lora_embedding_B          [width][rank]
 *   base_model.model.MODULE.lora_magnitude_vector     [rows], also with .weight behind
 *   base_model.model.MODULE.base_layer.weight, .bias  what LoRA wraps; a trained bias
 *   base_model.model.MODULE.weight, .bias             trained as a whole
 *   base_model.model.MODULE.token_adapter.trainable_tokens_delta
 *                                                     [tokens][width]: rows in place of the base's
 */
#include "adapters/adapters_int.h"

#include <math.h>
#include <stdio.h>

#define PREFIX "base_model.model."

typedef struct peft_reader {
    adapter_draft *draft;
    const model_source *source;
    const peft_config *config;
    const peft_matcher *matcher;
    const char *wrapper;         /* NULL until a tensor has shown it */
    const source_tensor *tokens; /* trainable_tokens_delta */
    avo_error *error;
} peft_reader;

typedef enum key_kind {
    KEY_DOWN,
    KEY_UP,
    KEY_UP_BIAS,
    KEY_LOOK,
    KEY_LOOK_UP,
    KEY_MAGNITUDE,
    KEY_COPY,
    KEY_LAYER_BIAS,
    KEY_TOKENS,
    KEY_WEIGHT,
    KEY_BIAS
} key_kind;

/* Longer endings first: ".weight" ends most of them. */
static const struct {
    const char *ending;
    key_kind kind;
} endings[] = {
    {".lora_A.weight", KEY_DOWN},
    {".lora_B.weight", KEY_UP},
    {".lora_B.bias", KEY_UP_BIAS},
    {".lora_embedding_A", KEY_LOOK},
    {".lora_embedding_B", KEY_LOOK_UP},
    {".lora_magnitude_vector", KEY_MAGNITUDE},
    {".lora_magnitude_vector.weight", KEY_MAGNITUDE},
    {".token_adapter.trainable_tokens_delta", KEY_TOKENS},
    {".base_layer.weight", KEY_COPY},
    {".base_layer.bias", KEY_LAYER_BIAS},
    {".weight", KEY_WEIGHT},
    {".bias", KEY_BIAS},
};

static avo_status refuse(const peft_reader *reader, const source_tensor *tensor, const char *why) {
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: tensor %.*s %s", reader->draft->path,
                       TEXT_ARGUMENT(tensor->name), why);
}

static avo_status no_module(const peft_reader *reader, const source_tensor *tensor) {
    const model_config *config = reader->draft->base->config;
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: tensor %.*s matches no part of the model (%s, %u layers, module names "
                       "begin with \"" PREFIX "%s\"); it was probably trained on another model",
                       reader->draft->path, TEXT_ARGUMENT(tensor->name),
                       source_architecture_name(config->architecture), config->layers,
                       reader->wrapper != NULL ? reader->wrapper
                                               : module_wrapper(config->architecture));
}

/* ---- Sorting tensors into modules ---- */

static const source_tensor **place_of(module_draft *module, key_kind kind, bool embedding) {
    switch (kind) {
    case KEY_DOWN:
        return embedding ? NULL : &module->down;
    case KEY_UP:
        return embedding ? NULL : &module->up;
    case KEY_UP_BIAS:
        return embedding ? NULL : &module->up_bias;
    case KEY_LOOK:
        return embedding ? &module->down : NULL;
    case KEY_LOOK_UP:
        return embedding ? &module->up : NULL;
    case KEY_MAGNITUDE:
        return &module->magnitude;
    case KEY_COPY:
        return &module->copy;
    case KEY_TOKENS:
        return embedding ? &module->weight : NULL;
    case KEY_WEIGHT:
        return &module->weight;
    case KEY_LAYER_BIAS:
    case KEY_BIAS:
        return &module->bias;
    }
    return NULL;
}

static avo_status keep_name(const peft_reader *reader, module_draft *module, text_view name) {
    if (module->name != NULL)
        return AVO_OK;
    module->name = arena_copy_text(reader->draft->arena, name.data, name.size);
    return module->name == NULL ? status_no_memory(reader->error, "a name", name.size) : AVO_OK;
}

static avo_status place_tensor(peft_reader *reader, const source_tensor *tensor) {
    adapter_draft *draft = reader->draft;
    const model_config *config = draft->base->config;
    text_view name = tensor->name;
    if (!text_starts(name, TEXT_LITERAL(PREFIX)))
        return refuse(reader, tensor, "does not begin with \"" PREFIX "\", as PEFT tensors do");
    name.data += sizeof(PREFIX) - 1;
    name.size -= sizeof(PREFIX) - 1;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        text_view ending = text_from(endings[i].ending);
        if (!text_ends(name, ending))
            continue;
        text_view module_text = {name.data, name.size - ending.size};
        uint32_t index = module_find(config, module_text, &reader->wrapper);
        if (index == UINT32_MAX)
            return no_module(reader, tensor);
        module_draft *module = &draft->modules[index];
        uint32_t layer;
        bool embedding = module_role_of(config, index, &layer) == MODULE_EMBEDDING;
        const source_tensor **place = place_of(module, endings[i].kind, embedding);
        if (place == NULL)
            return no_module(reader, tensor);
        if (*place != NULL)
            return refuse(reader, tensor, "appears under two names");
        *place = tensor;
        reader->tokens = endings[i].kind == KEY_TOKENS ? tensor : reader->tokens;
        return keep_name(reader, module, module_text);
    }
    return no_module(reader, tensor);
}

/* ---- What the configuration says about a module ---- */

/* Whether the base's module has a bias; fused ones have that of their first part. */
static bool has_bias(const model_view *view, uint32_t layer, module_role role) {
    adapter_site sites[MODULE_SITES_MAX];
    (void)module_sites(role, sites);
    uint32_t width;
    const norm_view *norm = site_norm(view, layer, sites[0], &width);
    const linear_view *linear = site_linear(view, layer, sites[0]);
    return norm != NULL ? norm->bias != NULL : linear != NULL && linear->bias != NULL;
}

static avo_status module_refuse(const peft_reader *reader, const char *name, const char *why) {
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: module %s %s", reader->draft->path,
                       name, why);
}

static double scale_of(const peft_config *config, const peft_match *match) {
    double rank = (double)match->rank;
    return config->rslora ? match->alpha / sqrt(rank) : match->alpha / rank;
}

/* Which row of the file's tensor belongs to which token. */
static avo_status map_tokens(const peft_reader *reader, module_draft *embedding) {
    const adapter_draft *draft = reader->draft;
    const json_value *list = reader->config->tokens;
    size_t vocabulary = draft->base->view->embedding.rows;
    if ((list == NULL) != (reader->tokens == NULL))
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: trainable_token_indices and trainable_tokens_delta must both be "
                           "present, one is missing",
                           draft->path);
    if (list == NULL)
        return AVO_OK;
    if (!text_ends(text_from(embedding->name), reader->config->tokens_of))
        return status_fail(
            reader->error, AVO_ERROR_UNSUPPORTED,
            "%s: trainable_token_indices is supported for the embedding only, not for %.*s",
            draft->path, TEXT_ARGUMENT(reader->config->tokens_of));
    if (reader->tokens->shape[0] != list->array.count)
        return refuse(reader, reader->tokens,
                      "must have one row per entry of trainable_token_indices");
    uint32_t *rows = arena_take_array(draft->arena, vocabulary, sizeof(*rows));
    if (rows == NULL)
        return status_no_memory(reader->error, "tokens", vocabulary * sizeof(*rows));
    memset(rows, 0xff, vocabulary * sizeof(*rows));
    for (size_t i = 0; i < list->array.count; i++) {
        int64_t token = list->array.items[i].integer;
        if ((uint64_t)token >= vocabulary || rows[token] != TOKEN_ROW_NONE)
            return status_fail(
                reader->error, AVO_ERROR_FORMAT, "%s: trainable_token_indices: token %lld is %s",
                draft->path, (long long)token,
                (uint64_t)token >= vocabulary ? "not in the vocabulary" : "named twice");
        rows[token] = (uint32_t)i;
    }
    embedding->token_row = rows;
    return AVO_OK;
}

/* The head that PEFT ties to an embedding of which tokens are trained, or with ensure_weight_tying
 * to a trained one. Of an embedding with LoRA it then has A and B exchanged and transposed, which
 * PEFT saves as its own although target_modules does not name it. */
static avo_status tie_head(const peft_reader *reader, module_draft *head) {
    const adapter_draft *draft = reader->draft;
    const model_config *config = draft->base->config;
    const module_draft *embedding = &draft->modules[module_index(config, 0, MODULE_EMBEDDING)];
    bool tokens = embedding->token_row != NULL;
    if ((!reader->config->tie_ensured && !tokens) || !config->tied_head)
        return AVO_OK;
    if (tokens && (head->targeted || head->weight != NULL || head->down != NULL))
        return module_refuse(
            reader, head->name != NULL ? head->name : "output head",
            "is tied to the embedding, which has trained tokens, and cannot have an adapter too");
    if (head->weight == NULL && !head->targeted && embedding->weight != NULL) {
        head->weight = embedding->weight;
        head->token_row = embedding->token_row;
        head->saved = true;
    }
    if (embedding->down != NULL || embedding->up != NULL)
        head->targeted = true;
    return AVO_OK;
}

/* Magnitudes and biases of B belong to a low rank: there where the options say so, and nowhere else
 * (a gain without its matrix would be 0). */
static avo_status check_extras(const peft_reader *reader, const module_draft *module,
                               module_role role, const char *name) {
    const peft_config *config = reader->config;
    if (!module->targeted && module->magnitude != NULL)
        return module_refuse(reader, name,
                             "has a magnitude vector, but target_modules does not match it");
    if (!module->targeted && module->up_bias != NULL)
        return module_refuse(reader, name,
                             "has a lora_B.bias, but target_modules does not match it");
    if (module->targeted && config->dora != (module->magnitude != NULL))
        return module_refuse(reader, name,
                             config->dora ? "has no magnitude vector, but use_dora is set"
                                          : "has a magnitude vector, but use_dora is not set");
    if (module->targeted && config->lora_bias != (module->up_bias != NULL) &&
        role != MODULE_EMBEDDING)
        return module_refuse(reader, name, "and the option lora_bias disagree about lora_B.bias");
    return AVO_OK;
}

/* What the configuration means by it: a low rank, the whole, its bias. */
static avo_status match_module(const peft_reader *reader, module_draft *module, module_role role,
                               bool biased, const char *name) {
    const peft_config *config = reader->config;
    bool norm = module_is_norm(role);
    bool linear = !norm && role != MODULE_EMBEDDING;
    peft_match match = {0};
    AVO_TRY(peft_matcher_ask(reader->matcher, text_from(name), linear, role == MODULE_HEAD, &match,
                             reader->error));
    module->targeted = match.targeted && !norm;
    module->saved = match.saved;
    module->rank = match.rank;
    module->scale = scale_of(config, &match);
    module->bias_saved =
        biased && (config->bias == PEFT_BIAS_ALL ||
                   (config->bias == PEFT_BIAS_LORA && module->targeted) || module->saved);
    return AVO_OK;
}

/* Layers that the file has anything of, counted to the last one; 0: none. */
static uint32_t layers_present(const adapter_draft *draft) {
    uint32_t layers = 0;
    for (uint32_t i = 0; i < draft->module_count; i++) {
        const module_draft *module = &draft->modules[i];
        uint32_t layer = 0;
        module_role role = module_role_of(draft->base->config, i, &layer);
        bool there = module->down != NULL || module->up != NULL || module->weight != NULL;
        if (there && role != MODULE_EMBEDDING && role != MODULE_HEAD && role != MODULE_FINAL_NORM &&
            layer >= layers)
            layers = layer + 1;
    }
    return layers;
}

/* A file whose layers end before the model's was made for a smaller one: the name of the first
 * module that it lacks would not tell. */
static avo_status no_low_rank(const peft_reader *reader, module_role role, uint32_t layer,
                              const char *name) {
    const model_config *config = reader->draft->base->config;
    uint32_t layers = layers_present(reader->draft);
    bool whole = role == MODULE_EMBEDDING || role == MODULE_HEAD;
    if (whole || layers == 0 || layer < layers)
        return module_refuse(reader, name,
                             "is in target_modules, but its LoRA tensors are missing");
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: has tensors for %u layers, the model has %u (%s): the adapter was "
                       "probably trained on another model (module %s is in target_modules, but its "
                       "LoRA tensors are missing)",
                       reader->draft->path, layers, config->layers,
                       source_architecture_name(config->architecture), name);
}

/* The file has what the configuration means, and nothing else. */
static avo_status check_module(const peft_reader *reader, const module_draft *module,
                               module_role role, uint32_t layer, bool biased, const char *name) {
    bool table = role == MODULE_EMBEDDING || role == MODULE_HEAD;
    bool low_rank = module->down != NULL || module->up != NULL;
    const char *wrong = NULL;
    if (low_rank && !module->targeted)
        wrong = "has LoRA tensors, but target_modules does not match it";
    else if (module->targeted && !low_rank)
        return no_low_rank(reader, role, layer, name);
    else if (module->copy != NULL && (!low_rank || !table))
        wrong = "has a base_layer.weight, which is allowed for embeddings and output heads with "
                "LoRA only";
    else if (module->weight != NULL && !module->saved && !table)
        /* PEFT may save embeddings and heads unasked; both are then loaded into the base. */
        wrong = "has a weight, but modules_to_save does not name it";
    else if (module->saved && module->weight == NULL)
        wrong = "is in modules_to_save, but its weight is missing";
    else if (module->bias != NULL && !module->bias_saved)
        wrong = biased ? "has a bias, but the option bias excludes it"
                       : "has a bias, but the base model has none";
    else if (module->bias_saved && module->bias == NULL)
        wrong = "must have a trained bias, but it is missing";
    return wrong != NULL ? module_refuse(reader, name, wrong)
                         : check_extras(reader, module, role, name);
}

static avo_status settle_module(peft_reader *reader, uint32_t index, const char *name) {
    adapter_draft *draft = reader->draft;
    module_draft *module = &draft->modules[index];
    uint32_t layer;
    module_role role = module_role_of(draft->base->config, index, &layer);
    bool biased = has_bias(draft->base->view, layer, role);
    AVO_TRY(match_module(reader, module, role, biased, name));
    if (role == MODULE_HEAD)
        AVO_TRY(tie_head(reader, module));
    AVO_TRY(check_module(reader, module, role, layer, biased, name));
    if (!module->targeted && module->weight == NULL && module->bias == NULL)
        return AVO_OK; /* as the base has it */
    draft->modules_expected++;
    return keep_name(reader, module, text_from(name));
}

static avo_status read_all(peft_reader *reader) {
    adapter_draft *draft = reader->draft;
    const model_config *config = draft->base->config;
    for (uint32_t i = 0; i < reader->source->tensor_count; i++)
        AVO_TRY(place_tensor(reader, &reader->source->tensors[i]));
    if (reader->wrapper == NULL)
        reader->wrapper = module_wrapper(config->architecture);
    AVO_TRY(map_tokens(reader, &draft->modules[module_index(config, 0, MODULE_EMBEDDING)]));
    for (uint32_t i = 0; i < draft->module_count; i++) {
        char name[ADAPTER_NAME_MAX];
        if (module_name(config, reader->wrapper, i, name, sizeof(name)))
            AVO_TRY(settle_module(reader, i, name));
    }
    if (draft->modules_expected == 0)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: target_modules matches no module of this model (%s)", draft->path,
                           source_architecture_name(config->architecture));
    return AVO_OK;
}

avo_status peft_read(adapter_draft *draft, const model_source *source, const peft_config *config,
                     const avo_allocator *allocator, avo_error *error) {
    peft_matcher *matcher;
    avo_status status = peft_matcher_open(config, allocator, &matcher, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s: adapter_config.json", draft->path);
    draft->method = config->dora ? "dora" : config->rslora ? "rslora" : "lora";
    draft->dora = config->dora;
    draft->transposed = draft->base->config->architecture == ARCHITECTURE_GPT2;
    draft->norm_plus_one = draft->base->config->architecture == ARCHITECTURE_GEMMA3;
    peft_reader reader = {
        .draft = draft, .source = source, .config = config, .matcher = matcher, .error = error};
    status = read_all(&reader);
    peft_matcher_close(matcher);
    return status;
}
