/* config.json to a configuration, with the defaults of transformers 5 for what is absent. */
#include "formats/config_hf_int.h"

#include <math.h>

#define KEYS(...) .keys = {__VA_ARGS__}
#define LLAMA_KEYS                                                                                 \
    KEYS("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",           \
         "max_position_embeddings", "rms_norm_eps", "hidden_act")
#define FAMILY(type, name, ...)                                                                    \
    { .model_type = type, .architecture = ARCHITECTURE_##name, __VA_ARGS__ }

static const hf_family families[] = {
    FAMILY("llama", LLAMA, LLAMA_KEYS, .vocabulary = 32000, .width = 4096, .feed_forward = 11008,
           .layers = 32, .heads = 32, .context = 2048, .epsilon = 1e-6, .rope_base = 1e4,
           .activation = "silu", .token_begin = 1, .token_end = 2),
    FAMILY("mistral", MISTRAL, LLAMA_KEYS, .vocabulary = 32000, .width = 4096,
           .feed_forward = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072,
           .epsilon = 1e-6, .rope_base = 1e4, .activation = "silu", .token_begin = 1,
           .token_end = 2),
    FAMILY("qwen2", QWEN2, LLAMA_KEYS, .vocabulary = 151936, .width = 4096, .feed_forward = 22016,
           .layers = 32, .heads = 32, .kv_heads = 32, .context = 32768, .epsilon = 1e-6,
           .rope_base = 1e4, .activation = "silu", .token_begin = -1, .token_end = -1),
    FAMILY("qwen3", QWEN3, LLAMA_KEYS, .vocabulary = 151936, .width = 4096, .feed_forward = 22016,
           .layers = 32, .heads = 32, .kv_heads = 32, .head_size = 128, .context = 32768,
           .epsilon = 1e-6, .rope_base = 1e4, .activation = "silu", .token_begin = -1,
           .token_end = -1),
    FAMILY("smollm3", SMOLLM3, LLAMA_KEYS, .vocabulary = 128256, .width = 2048,
           .feed_forward = 11008, .layers = 36, .heads = 16, .kv_heads = 4, .context = 32768,
           .epsilon = 1e-6, .rope_base = 2e6, .activation = "silu", .tied = true,
           .token_begin = 128000, .token_end = 128001),
    FAMILY("gemma3_text", GEMMA3,
           KEYS("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                "max_position_embeddings", "rms_norm_eps", "hidden_activation"),
           .vocabulary = 262208, .width = 2304, .feed_forward = 9216, .layers = 26, .heads = 8,
           .kv_heads = 4, .head_size = 256, .context = 131072, .epsilon = 1e-6, .rope_base = 1e6,
           .activation = "gelu_pytorch_tanh", .tied = true, .token_begin = 2, .token_end = 1),
    FAMILY("phi3", PHI3, LLAMA_KEYS, .vocabulary = 32064, .width = 3072, .feed_forward = 8192,
           .layers = 32, .heads = 32, .context = 4096, .epsilon = 1e-5, .rope_base = 1e4,
           .activation = "silu", .token_begin = 1, .token_end = 32000),
    FAMILY("gpt2", GPT2,
           KEYS("n_layer", "n_embd", "n_inner", "n_head", "n_positions", "layer_norm_epsilon",
                "activation_function"),
           .vocabulary = 50257, .width = 768, .feed_forward_times = 4, .layers = 12, .heads = 12,
           .context = 1024, .epsilon = 1e-5, .activation = "gelu_new", .tied = true,
           .token_begin = 50256, .token_end = 50256),
    FAMILY("opt", OPT,
           KEYS("num_hidden_layers", "hidden_size", "ffn_dim", "num_attention_heads",
                "max_position_embeddings", NULL, "activation_function"),
           .vocabulary = 50272, .width = 768, .feed_forward = 3072, .layers = 12, .heads = 12,
           .context = 2048, .epsilon = 1e-5, .activation = "relu", .tied = true, .token_begin = 2,
           .token_end = 2),
    FAMILY("mixtral", MIXTRAL, LLAMA_KEYS, .vocabulary = 32000, .width = 4096,
           .feed_forward = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072,
           .epsilon = 1e-5, .rope_base = 1e6, .activation = "silu", .token_begin = 1,
           .token_end = 2),
    FAMILY("qwen2_moe", QWEN2_MOE, LLAMA_KEYS, .vocabulary = 151936, .width = 2048,
           .feed_forward = 5632, .layers = 24, .heads = 16, .kv_heads = 16, .context = 32768,
           .epsilon = 1e-6, .rope_base = 1e4, .activation = "silu", .token_begin = -1,
           .token_end = -1),
    FAMILY("qwen3_moe", QWEN3_MOE, LLAMA_KEYS, .vocabulary = 151936, .width = 2048,
           .feed_forward = 6144, .layers = 24, .heads = 32, .kv_heads = 4, .context = 32768,
           .epsilon = 1e-6, .rope_base = 1e4, .activation = "silu", .token_begin = -1,
           .token_end = -1),
    FAMILY("olmoe", OLMOE, LLAMA_KEYS, .vocabulary = 50304, .width = 2048, .feed_forward = 2048,
           .layers = 16, .heads = 16, .context = 4096, .epsilon = 1e-5, .rope_base = 1e4,
           .activation = "silu", .token_begin = -1, .token_end = 50279),
    FAMILY("granitemoe", GRANITE_MOE, LLAMA_KEYS, .vocabulary = 32000, .width = 4096,
           .feed_forward = 11008, .layers = 32, .heads = 32, .context = 2048, .epsilon = 1e-6,
           .rope_base = 1e4, .activation = "silu", .token_begin = 1, .token_end = 2),
    FAMILY("gpt_oss", GPT_OSS, LLAMA_KEYS, .vocabulary = 201088, .width = 2880,
           .feed_forward = 2880, .layers = 36, .heads = 64, .kv_heads = 8, .head_size = 64,
           .context = 131072, .epsilon = 1e-5, .rope_base = 150000, .activation = "silu",
           .token_begin = -1, .token_end = -1),
};

/* ---- Typed reads ---- */

const json_value *hf_find(const json_value *object, const char *key) {
    const json_value *value = json_find(object, key);
    return value != NULL && value->kind == JSON_NULL ? NULL : value;
}

static avo_status in_file(const hf_reader *reader, avo_status status) {
    return status == AVO_OK ? AVO_OK : status_prefix(reader->error, status, "%s", reader->file);
}

avo_status hf_u32(const hf_reader *reader, const json_value *object, const char *key,
                  uint32_t minimum, uint32_t maximum, uint32_t *value) {
    int64_t number = *value;
    AVO_TRY(
        in_file(reader, json_get_integer(object, key, minimum, maximum, &number, reader->error)));
    *value = (uint32_t)number;
    return AVO_OK;
}

avo_status hf_number(const hf_reader *reader, const json_value *object, const char *key,
                     double minimum, double maximum, double *value) {
    return in_file(reader, json_get_number(object, key, minimum, maximum, value, reader->error));
}

avo_status hf_boolean(const hf_reader *reader, const char *key, bool *value) {
    return in_file(reader, json_get_boolean(reader->root, key, value, reader->error));
}

avo_status hf_string(const hf_reader *reader, const json_value *object, const char *key,
                     text_view *value) {
    return in_file(reader, json_get_string(object, key, value, reader->error));
}

/* ---- What we do not do ---- */

static bool value_is_off(const json_value *value, double neutral) {
    switch (value->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOLEAN:
        return !value->boolean;
    case JSON_INTEGER:
        return (double)value->integer == neutral;
    case JSON_NUMBER:
        return value->number == neutral;
    case JSON_STRING:
        return value->string.size == 0;
    case JSON_ARRAY:
        return value->array.count == 0;
    case JSON_OBJECT:
        return value->object.count == 0;
    }
    return false;
}

/* Keys that other families do not have, but this one reads. */
static bool family_reads(const hf_reader *reader, const char *key) {
    static const char *const experts[] = {"num_local_experts", "num_experts"};
    static const char *const granite[] = {"attention_multiplier", "residual_multiplier",
                                          "embedding_multiplier", "logits_scaling"};
    source_architecture architecture =
        reader->family == NULL ? ARCHITECTURE_COUNT : reader->family->architecture;
    for (size_t i = 0; i < 2 && hf_has_experts(architecture); i++)
        if (strcmp(key, experts[i]) == 0)
            return true;
    for (size_t i = 0; i < 4 && architecture == ARCHITECTURE_GRANITE_MOE; i++)
        if (strcmp(key, granite[i]) == 0)
            return true;
    return false;
}

/* gpt-oss is published with its experts in MXFP4, which the tensors say by themselves. */
static bool is_mxfp4(const hf_reader *reader, const char *key, text_view method) {
    return reader->family != NULL && reader->family->architecture == ARCHITECTURE_GPT_OSS &&
           strcmp(key, "quantization_config") == 0 && text_is(method, "mxfp4");
}

/* Keys that would change the results, with the value that switches them off. */
static avo_status check_unsupported(const hf_reader *reader, const json_value *object) {
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {
        {"quantization_config", 0},
        {"compression_config", 0},
        {"is_encoder_decoder", 0},
        {"add_cross_attention", 0},
        {"use_bidirectional_attention", 0},
        {"scale_attn_by_inverse_layer_idx", 0},
        {"attn_logit_softcapping", 0}, /* transformers 5 reads it for Gemma 3 and never uses it */
        {"num_local_experts", 0},
        {"num_experts", 0},
        {"n_routed_experts", 0},
        {"alibi", 0},
        {"rope_interleaved", 0},
        {"parallel_attn", 0},
        {"clip_qkv", 0},
        {"use_qk_norm", 0},
        {"qk_layernorm", 0},
        {"attention_multiplier", 1},
        {"residual_multiplier", 1},
        {"embedding_multiplier", 1},
        {"logits_scaling", 1},
        {"logit_scale", 1},
        {"num_kv_shared_layers", 0},
        {"attention_chunk_size", 0},
        {"per_layer_config", 0},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_value *value = json_find(object, keys[i].key);
        if (value == NULL || value_is_off(value, keys[i].neutral) ||
            family_reads(reader, keys[i].key))
            continue;
        text_view method = TEXT_LITERAL("");
        const json_value *name = hf_find(value, "quant_method");
        if (name != NULL && name->kind == JSON_STRING)
            method = name->string;
        if (is_mxfp4(reader, keys[i].key, method))
            continue;
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s (line %u)%s%.*s is set, which is not supported", reader->file,
                           keys[i].key, value->line, method.size > 0 ? " with quant_method " : "",
                           TEXT_ARGUMENT(method));
    }
    return AVO_OK;
}

static avo_status check_class(const hf_reader *reader, const json_value *root) {
    const json_value *name = json_item(hf_find(root, "architectures"), 0);
    if (name == NULL || name->kind != JSON_STRING)
        return AVO_OK;
    static const char *const endings[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration",
                                          "Model"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (text_ends(name->string, text_from(endings[i])) &&
            !text_ends(name->string, TEXT_LITERAL("RewardModel")))
            return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: architectures names %.*s, which is not a text generation model",
                       reader->file, TEXT_ARGUMENT(name->string));
}

/* ---- Family ---- */

static avo_status find_family(hf_reader *reader) {
    text_view type = TEXT_LITERAL("");
    AVO_TRY(hf_string(reader, reader->root, "model_type", &type));
    if (type.size == 0)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: model_type is missing",
                           reader->file);
    if (text_is(type, "gemma3")) {
        const json_value *text = hf_find(reader->root, "text_config");
        if (text == NULL || text->kind != JSON_OBJECT)
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: gemma3 needs a text_config object", reader->file);
        AVO_TRY(check_unsupported(reader, reader->root));
        reader->root = text;
        type = TEXT_LITERAL("gemma3_text");
        AVO_TRY(hf_string(reader, reader->root, "model_type", &type));
    }
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (text_is(type, families[i].model_type)) {
            reader->family = &families[i];
            return AVO_OK;
        }
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: model_type \"%.*s\" is not supported; supported: llama, mistral, "
                       "qwen2, qwen3, smollm3, gemma3, gemma3_text, phi3, gpt2, opt, mixtral, "
                       "qwen2_moe, qwen3_moe, olmoe, granitemoe, gpt_oss",
                       reader->file, TEXT_ARGUMENT(type));
}

static avo_status read_activation(const hf_reader *reader) {
    static const struct {
        const char *name;
        source_activation activation;
    } names[] = {
        {"silu", SOURCE_ACTIVATION_SILU},
        {"swish", SOURCE_ACTIVATION_SILU},
        {"gelu_pytorch_tanh", SOURCE_ACTIVATION_GELU_TANH},
        {"gelu_python_tanh", SOURCE_ACTIVATION_GELU_TANH},
        {"gelu_new", SOURCE_ACTIVATION_GELU_TANH},
        {"gelu_fast", SOURCE_ACTIVATION_GELU_TANH},
        {"gelu", SOURCE_ACTIVATION_GELU_ERF},
        {"gelu_python", SOURCE_ACTIVATION_GELU_ERF},
        {"relu", SOURCE_ACTIVATION_RELU},
    };
    text_view name = text_from(reader->family->activation);
    const char *key = reader->family->keys.activation;
    AVO_TRY(hf_string(reader, reader->root, key, &name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text_is(name, names[i].name)) {
            reader->config->activation = reader->family->architecture == ARCHITECTURE_GPT_OSS
                                             ? SOURCE_ACTIVATION_SWIGLU_CLIPPED
                                             : names[i].activation;
            return AVO_OK;
        }
    return status_fail(
        reader->error, AVO_ERROR_UNSUPPORTED,
        "%s: %s is \"%.*s\", must be silu, swish, gelu, gelu_new, gelu_pytorch_tanh or relu",
        reader->file, key, TEXT_ARGUMENT(name));
}

/* ---- Sizes ---- */

static avo_status read_heads(const hf_reader *reader) {
    model_config *c = reader->config;
    const hf_family *f = reader->family;
    AVO_TRY(hf_u32(reader, reader->root, f->keys.heads, 1, SOURCE_HEADS_MAX, &c->heads));
    bool grouped = f->architecture != ARCHITECTURE_GPT2 && f->architecture != ARCHITECTURE_OPT;
    c->kv_heads = c->heads;
    c->head_size = 0;
    if (grouped) {
        /* A null means "as many as heads"; only an absent key has the family's default. */
        if (f->kv_heads != 0 && json_find(reader->root, "num_key_value_heads") == NULL)
            c->kv_heads = f->kv_heads;
        AVO_TRY(
            hf_u32(reader, reader->root, "num_key_value_heads", 1, SOURCE_HEADS_MAX, &c->kv_heads));
        if (json_find(reader->root, "head_dim") == NULL)
            c->head_size = f->head_size;
        AVO_TRY(hf_u32(reader, reader->root, "head_dim", 1, SOURCE_HEAD_SIZE_MAX, &c->head_size));
    }
    if (c->head_size != 0)
        return AVO_OK;
    if (c->width % c->heads != 0)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: %s (%u) is not a multiple of %s (%u), and head_dim is missing",
                           reader->file, f->keys.width, c->width, f->keys.heads, c->heads);
    c->head_size = c->width / c->heads;
    return AVO_OK;
}

static avo_status read_sizes(const hf_reader *reader) {
    model_config *c = reader->config;
    const hf_family *f = reader->family;
    const json_value *root = reader->root;
    c->vocabulary = f->vocabulary;
    c->width = f->width;
    c->layers = f->layers;
    c->heads = f->heads;
    c->context = f->context;
    c->norm_epsilon = f->epsilon;
    AVO_TRY(hf_u32(reader, root, "vocab_size", 1, SOURCE_VOCABULARY_MAX, &c->vocabulary));
    AVO_TRY(hf_u32(reader, root, f->keys.width, 1, SOURCE_WIDTH_MAX, &c->width));
    AVO_TRY(hf_u32(reader, root, f->keys.layers, 1, SOURCE_LAYERS_MAX, &c->layers));
    AVO_TRY(hf_u32(reader, root, f->keys.context, 1, SOURCE_CONTEXT_MAX, &c->context));
    c->feed_forward =
        f->feed_forward_times != 0 ? f->feed_forward_times * c->width : f->feed_forward;
    AVO_TRY(
        hf_u32(reader, root, f->keys.feed_forward, 1, SOURCE_FEED_FORWARD_MAX, &c->feed_forward));
    if (f->keys.epsilon != NULL)
        AVO_TRY(hf_number(reader, root, f->keys.epsilon, 0, 1, &c->norm_epsilon));
    c->embedding_width = c->width;
    return read_heads(reader);
}

/* ---- Layers ---- */

static uint8_t *writable(const uint8_t *table) {
    return (uint8_t *)(uintptr_t)table; /* our own, from config_layers_fill */
}

/* layer_types, where it is given, decides. */
static avo_status read_layer_types(const hf_reader *reader, bool *given) {
    model_config *c = reader->config;
    const json_value *types = hf_find(reader->root, "layer_types");
    *given = types != NULL;
    if (types == NULL)
        return AVO_OK;
    if (types->kind != JSON_ARRAY || types->array.count != c->layers)
        return status_fail(
            reader->error, AVO_ERROR_FORMAT,
            "%s: layer_types (line %u) must be an array with one entry for each of the %u layers",
            reader->file, types->line, c->layers);
    for (uint32_t i = 0; i < c->layers; i++) {
        const json_value *type = &types->array.items[i];
        text_view name = type->kind == JSON_STRING ? type->string : TEXT_LITERAL("(not a string)");
        if (text_is(name, "sliding_attention"))
            writable(c->layer_windowed)[i] = 1;
        else if (!text_is(name, "full_attention"))
            return status_fail(
                reader->error, AVO_ERROR_UNSUPPORTED,
                "%s: layer_types[%u] is \"%.*s\", must be full_attention or sliding_attention",
                reader->file, i, TEXT_ARGUMENT(name));
    }
    return AVO_OK;
}

/* `sliding_window`: absent has the family's default, null is none. */
static avo_status read_window(const hf_reader *reader, uint32_t absent, uint32_t *window) {
    const json_value *value = json_find(reader->root, "sliding_window");
    *window = value == NULL ? absent : 0;
    return hf_u32(reader, reader->root, "sliding_window", 1, SOURCE_CONTEXT_MAX, window);
}

/* Qwen: off unless use_sliding_window; then from max_window_layers on. */
static avo_status layers_qwen(const hf_reader *reader) {
    model_config *c = reader->config;
    bool used = false, given;
    uint32_t from = 28;
    AVO_TRY(hf_boolean(reader, "use_sliding_window", &used));
    AVO_TRY(hf_u32(reader, reader->root, "max_window_layers", 0, UINT32_MAX, &from));
    /* Experts' files have a window of 0 where it is off. */
    if (used || c->architecture != ARCHITECTURE_QWEN2_MOE)
        AVO_TRY(read_window(reader, 4096, &c->window));
    if (!used)
        c->window = 0;
    AVO_TRY(read_layer_types(reader, &given));
    for (uint32_t i = from; i < c->layers && !given && c->window > 0; i++)
        writable(c->layer_windowed)[i] = 1;
    return AVO_OK;
}

static avo_status layers_gemma3(const hf_reader *reader) {
    model_config *c = reader->config;
    uint32_t every = 6;
    bool given;
    AVO_TRY(read_window(reader, 4096, &c->window));
    AVO_TRY(hf_u32(reader, reader->root, "sliding_window_pattern", 1, SOURCE_LAYERS_MAX, &every));
    AVO_TRY(read_layer_types(reader, &given));
    for (uint32_t i = 0; i < c->layers && !given; i++)
        writable(c->layer_windowed)[i] = (i + 1) % every != 0;
    return AVO_OK;
}

static avo_status read_no_rope(const hf_reader *reader) {
    model_config *c = reader->config;
    uint32_t every = 4;
    AVO_TRY(hf_u32(reader, reader->root, "no_rope_layer_interval", 1, SOURCE_LAYERS_MAX, &every));
    const json_value *list = hf_find(reader->root, "no_rope_layers");
    if (list != NULL && (list->kind != JSON_ARRAY || list->array.count < c->layers))
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: no_rope_layers (line %u) must be an array with one entry for each "
                           "of the %u layers",
                           reader->file, list->line, c->layers);
    for (uint32_t i = 0; i < c->layers; i++) {
        int64_t rotary = (i + 1) % every != 0;
        if (list != NULL) {
            const json_value *item = &list->array.items[i];
            if (item->kind != JSON_INTEGER || item->integer < 0 || item->integer > 1)
                return status_fail(reader->error, AVO_ERROR_FORMAT,
                                   "%s: no_rope_layers[%u] must be 0 or 1", reader->file, i);
            rotary = item->integer; /* despite the name, 1 means rotation */
        }
        writable(c->layer_rotary)[i] = (uint8_t)rotary;
    }
    return AVO_OK;
}

static avo_status layers_smollm3(const hf_reader *reader) {
    model_config *c = reader->config;
    bool used = false, given;
    AVO_TRY(read_no_rope(reader));
    AVO_TRY(hf_boolean(reader, "use_sliding_window", &used));
    AVO_TRY(read_window(reader, 0, &c->window));
    if (!used)
        c->window = 0;
    AVO_TRY(read_layer_types(reader, &given));
    for (uint32_t i = 0; i < c->layers && !given && c->window > 0; i++)
        writable(c->layer_windowed)[i] = !c->layer_rotary[i];
    return AVO_OK;
}

/* Mixtral and Qwen 3's experts: a window on all layers or on none. */
static avo_status layers_experts(const hf_reader *reader) {
    model_config *c = reader->config;
    bool mixtral = c->architecture == ARCHITECTURE_MIXTRAL, used = mixtral;
    AVO_TRY(hf_boolean(reader, "use_sliding_window", &used));
    if (used)
        AVO_TRY(read_window(reader, mixtral ? 0 : 4096, &c->window));
    memset(writable(c->layer_windowed), c->window > 0, c->layers);
    return AVO_OK;
}

/* gpt-oss: every other layer from the first on, unless layer_types says otherwise. */
static avo_status layers_gpt_oss(const hf_reader *reader) {
    model_config *c = reader->config;
    bool given;
    AVO_TRY(read_window(reader, 128, &c->window));
    AVO_TRY(read_layer_types(reader, &given));
    for (uint32_t i = 0; i < c->layers && !given; i += 2)
        writable(c->layer_windowed)[i] = 1;
    return AVO_OK;
}

static avo_status read_layers(const hf_reader *reader) {
    model_config *c = reader->config;
    AVO_TRY(config_layers_fill(reader->source, false, c->rotary_dims > 0, reader->error));
    switch (c->architecture) {
    case ARCHITECTURE_MISTRAL:
    case ARCHITECTURE_PHI3:
        AVO_TRY(
            read_window(reader, c->architecture == ARCHITECTURE_MISTRAL ? 4096 : 0, &c->window));
        memset(writable(c->layer_windowed), c->window > 0, c->layers);
        break;
    case ARCHITECTURE_QWEN2:
    case ARCHITECTURE_QWEN3:
    case ARCHITECTURE_QWEN2_MOE:
        AVO_TRY(layers_qwen(reader));
        break;
    case ARCHITECTURE_MIXTRAL:
    case ARCHITECTURE_QWEN3_MOE:
        AVO_TRY(layers_experts(reader));
        break;
    case ARCHITECTURE_GPT_OSS:
        AVO_TRY(layers_gpt_oss(reader));
        break;
    case ARCHITECTURE_SMOLLM3:
        AVO_TRY(layers_smollm3(reader));
        break;
    case ARCHITECTURE_GEMMA3:
        AVO_TRY(layers_gemma3(reader));
        break;
    default:
        break;
    }
    if (c->window == 0 &&
        (c->architecture == ARCHITECTURE_GEMMA3 || c->architecture == ARCHITECTURE_GPT_OSS) &&
        memchr(c->layer_windowed, 1, c->layers) != NULL)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: layer_types has sliding_attention, but sliding_window is null",
                           reader->file);
    if (c->window == 0)
        memset(writable(c->layer_windowed), 0, c->layers);
    return AVO_OK;
}

/* ---- What only one architecture has ---- */

static avo_status read_gemma3(const hf_reader *reader) {
    model_config *c = reader->config;
    double scalar = 256;
    AVO_TRY(hf_number(reader, reader->root, "query_pre_attn_scalar", 1e-6, 1e9, &scalar));
    AVO_TRY(
        hf_number(reader, reader->root, "final_logit_softcapping", 1e-6, 1e6, &c->logit_softcap));
    c->attention_scale = 1.0 / sqrt(scalar);
    /* transformers rounds √width to the type of the weights in use; ours is f32. */
    c->embedding_scale = (double)sqrtf((float)c->width);
    c->norm_plus_one = true;
    return AVO_OK;
}

static avo_status read_gpt2(const hf_reader *reader) {
    model_config *c = reader->config;
    bool scaled = true;
    AVO_TRY(hf_boolean(reader, "scale_attn_weights", &scaled));
    if (!scaled)
        c->attention_scale = 1;
    c->transposed = true;
    c->positions = c->context;
    return AVO_OK;
}

static avo_status read_opt(const hf_reader *reader) {
    model_config *c = reader->config;
    bool before = true, biased = true, affine = true, no_final = false;
    AVO_TRY(hf_boolean(reader, "do_layer_norm_before", &before));
    AVO_TRY(hf_boolean(reader, "_remove_final_layer_norm", &no_final));
    AVO_TRY(hf_boolean(reader, "enable_bias", &biased));
    AVO_TRY(hf_boolean(reader, "layer_norm_elementwise_affine", &affine));
    AVO_TRY(hf_u32(reader, reader->root, "word_embed_proj_dim", 1, SOURCE_WIDTH_MAX,
                   &c->embedding_width));
    if (!biased || !affine)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s is false, which is not supported", reader->file,
                           biased ? "layer_norm_elementwise_affine" : "enable_bias");
    c->norm_after = !before;
    c->no_final_norm = !before || no_final;
    c->position_offset = 2;
    c->positions = c->context + 2;
    return AVO_OK;
}

static avo_status read_own(const hf_reader *reader) {
    const json_value *cap = hf_find(reader->root, "final_logit_softcapping");
    if (cap != NULL && reader->config->architecture != ARCHITECTURE_GEMMA3)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: final_logit_softcapping (line %u) is not supported for %s",
                           reader->file, cap->line, reader->family->model_type);
    switch (reader->config->architecture) {
    case ARCHITECTURE_GEMMA3:
        return read_gemma3(reader);
    case ARCHITECTURE_GPT2:
        return read_gpt2(reader);
    case ARCHITECTURE_OPT:
        return read_opt(reader);
    default:
        return AVO_OK;
    }
}

/* A head of its own in the file wins over tie_word_embeddings, as in transformers 5; of a model
 * with a text_config the outer key counts. */
static avo_status read_tied(const hf_reader *reader, const json_value *root) {
    bool tied = reader->family->tied;
    AVO_TRY(in_file(reader, json_get_boolean(root, "tie_word_embeddings", &tied, reader->error)));
    const model_source *source = reader->source;
    bool own = source_find(source, TEXT_LITERAL("lm_head.weight")) != NULL ||
               source_find(source, TEXT_LITERAL("language_model.lm_head.weight")) != NULL;
    reader->config->tied_head = tied && !own;
    return AVO_OK;
}

/* ---- Tokens ---- */

avo_status hf_token_ids(model_source *source, const json_value *object, const char *file,
                        bool *ends_given, avo_error *error) {
    int64_t begin = -1;
    avo_status status =
        json_get_integer(object, "bos_token_id", -1, SOURCE_VOCABULARY_MAX, &begin, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", file);
    if (begin >= 0 && begin < source->config.vocabulary)
        source->generation.token_begin = (int32_t)begin;
    const json_value *ends = hf_find(object, "eos_token_id");
    *ends_given = ends != NULL;
    size_t count = ends == NULL ? 0 : ends->kind == JSON_ARRAY ? ends->array.count : 1;
    for (size_t i = 0; i < count; i++) {
        const json_value *end = ends->kind == JSON_ARRAY ? &ends->array.items[i] : ends;
        if (end->kind != JSON_INTEGER || end->integer < -1 || end->integer > SOURCE_VOCABULARY_MAX)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: eos_token_id (line %u) is not a token id", file, end->line);
        /* An id that the vocabulary does not have can never come up. */
        if (end->integer < source->config.vocabulary)
            AVO_TRY(generation_stop_add(&source->generation, end->integer, file, error));
    }
    return AVO_OK;
}

static avo_status read_tokens(const hf_reader *reader, const json_value *root) {
    model_source *source = reader->source;
    const hf_family *family = reader->family;
    bool given, outer_given = false;
    if ((uint32_t)family->token_begin < source->config.vocabulary)
        source->generation.token_begin = family->token_begin;
    AVO_TRY(hf_token_ids(source, reader->root, reader->file, &given, reader->error));
    if (root != reader->root)
        AVO_TRY(hf_token_ids(source, root, reader->file, &outer_given, reader->error));
    if (!given && !outer_given && json_find(reader->root, "eos_token_id") == NULL &&
        (uint32_t)family->token_end < source->config.vocabulary)
        return generation_stop_add(&source->generation, family->token_end, reader->file,
                                   reader->error);
    return AVO_OK;
}

avo_status config_from_hf(model_source *source, const json_value *root, const char *file,
                          avo_error *error) {
    hf_reader reader = {
        .source = source, .config = &source->config, .root = root, .file = file, .error = error};
    if (root->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: expected an object, found %s", file,
                           json_kind_name(root->kind));
    AVO_TRY(check_class(&reader, root));
    AVO_TRY(find_family(&reader));
    AVO_TRY(check_unsupported(&reader, reader.root));
    source->config.architecture = reader.family->architecture;
    AVO_TRY(read_sizes(&reader));
    AVO_TRY(read_activation(&reader));
    AVO_TRY(hf_rope(&reader));
    AVO_TRY(read_layers(&reader));
    AVO_TRY(hf_experts(&reader));
    AVO_TRY(read_own(&reader));
    AVO_TRY(read_tied(&reader, root));
    AVO_TRY(config_check(&source->config, file, error));
    return read_tokens(&reader, root);
}
