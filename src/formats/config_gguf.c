/* GGUF metadata to a configuration.
 *
 * Every key of the architecture's own namespace is in the table below: read, harmless, or refused.
 * A key that is not there may change the results, so it is refused by name rather than ignored.
 */
#include "formats/formats_int.h"

#include <math.h>
#include <stdio.h>

typedef struct gguf_architecture {
    const char *name; /* general.architecture */
    source_architecture architecture;
    bool interleaved; /* q and k come permuted for rotation of neighbours */
    bool layer_norm;
    source_activation activation;
} gguf_architecture;

static const gguf_architecture architectures[] = {
    {"llama", ARCHITECTURE_LLAMA, true, false, SOURCE_ACTIVATION_SILU},
    {"qwen2", ARCHITECTURE_QWEN2, false, false, SOURCE_ACTIVATION_SILU},
    {"qwen3", ARCHITECTURE_QWEN3, false, false, SOURCE_ACTIVATION_SILU},
    {"smollm3", ARCHITECTURE_SMOLLM3, true, false, SOURCE_ACTIVATION_SILU},
    {"gemma3", ARCHITECTURE_GEMMA3, false, false, SOURCE_ACTIVATION_GELU_TANH},
    {"phi3", ARCHITECTURE_PHI3, false, false, SOURCE_ACTIVATION_SILU},
    {"gpt2", ARCHITECTURE_GPT2, false, true, SOURCE_ACTIVATION_GELU_TANH},
    {"qwen2moe", ARCHITECTURE_QWEN2_MOE, false, false, SOURCE_ACTIVATION_SILU},
    {"qwen3moe", ARCHITECTURE_QWEN3_MOE, false, false, SOURCE_ACTIVATION_SILU},
    {"olmoe", ARCHITECTURE_OLMOE, false, false, SOURCE_ACTIVATION_SILU},
    {"granitemoe", ARCHITECTURE_GRANITE_MOE, true, false, SOURCE_ACTIVATION_SILU},
    {"gpt-oss", ARCHITECTURE_GPT_OSS, false, false, SOURCE_ACTIVATION_SWIGLU_CLIPPED},
};

/* What is done with a key behind "<architecture>.". */
typedef enum key_rule {
    KEY_READ,     /* by this file */
    KEY_HARMLESS, /* says nothing about the computation, or repeats what tensors say */
    KEY_IF_ZERO   /* zero, false or empty switches it off; anything else we do not do */
} key_rule;

static const struct {
    const char *key;
    key_rule rule;
} known_keys[] = {
    {"block_count", KEY_READ},
    {"context_length", KEY_READ},
    {"embedding_length", KEY_READ},
    {"feed_forward_length", KEY_READ},
    {"vocab_size", KEY_READ},
    {"attention.head_count", KEY_READ},
    {"attention.head_count_kv", KEY_READ},
    {"attention.key_length", KEY_READ},
    {"attention.value_length", KEY_READ},
    {"attention.layer_norm_epsilon", KEY_READ},
    {"attention.layer_norm_rms_epsilon", KEY_READ},
    {"attention.sliding_window", KEY_READ},
    {"attention.sliding_window_pattern", KEY_READ},
    {"attention.scale", KEY_READ},
    {"attn_logit_softcapping", KEY_READ},
    {"final_logit_softcapping", KEY_READ},
    {"logit_scale", KEY_READ},
    {"residual_scale", KEY_READ},
    {"embedding_scale", KEY_READ},
    {"rope.dimension_count", KEY_READ},
    {"rope.freq_base", KEY_READ},
    {"rope.freq_base_swa", KEY_READ},
    {"rope.scale_linear", KEY_READ},
    {"rope.scaling.type", KEY_READ},
    {"rope.scaling.factor", KEY_READ},
    {"rope.scaling.attn_factor", KEY_READ},
    {"rope.scaling.original_context_length", KEY_READ},
    {"rope.scaling.yarn_attn_factor", KEY_READ},
    {"rope.scaling.yarn_ext_factor", KEY_READ},
    {"rope.scaling.yarn_beta_fast", KEY_READ},
    {"rope.scaling.yarn_beta_slow", KEY_READ},
    {"attention.causal", KEY_READ},
    {"rope.scaling.finetuned", KEY_HARMLESS},
    {"tensor_data_layout", KEY_HARMLESS},
    {"expert_used_count", KEY_READ},
    {"expert_count", KEY_READ},
    {"expert_feed_forward_length", KEY_READ},
    {"expert_shared_feed_forward_length", KEY_READ},
    {"expert_weights_norm", KEY_READ},
    {"expert_shared_count", KEY_HARMLESS}, /* its tensors say it */
    {"expert_weights_scale", KEY_IF_ZERO},
    {"expert_group_count", KEY_IF_ZERO},
    {"expert_gating_func", KEY_IF_ZERO},
    {"use_parallel_residual", KEY_IF_ZERO},
    {"attention.max_alibi_bias", KEY_IF_ZERO},
    {"attention.clamp_kqv", KEY_IF_ZERO},
    {"rope.scaling.alpha", KEY_IF_ZERO},
    {"rope.scaling.yarn_log_multiplier", KEY_IF_ZERO},
    {"nextn_predict_layers", KEY_IF_ZERO},
    {"pooling_type", KEY_IF_ZERO},
    {"attention.shared_kv_layers", KEY_IF_ZERO},
};

typedef struct config_reader {
    model_source *source;
    model_config *config;
    const gguf_metadata *metadata;
    const char *file;
    const gguf_architecture *architecture;
    avo_error *error;
} config_reader;

/* ---- Typed reads ---- */

#define KEY_TEXT_MAX 128

static const gguf_value *find_key(const config_reader *reader, const char *suffix,
                                  char name[KEY_TEXT_MAX]) {
    snprintf(name, KEY_TEXT_MAX, "%s.%s", reader->architecture->name, suffix);
    return gguf_find(reader->metadata, name);
}

/* Absent leaves *out as it is. A value per layer is accepted when all are equal. */
static avo_status read_u32(const config_reader *reader, const char *suffix, uint32_t minimum,
                           uint32_t maximum, uint32_t *out) {
    char name[KEY_TEXT_MAX];
    const gguf_value *value = find_key(reader, suffix, name);
    if (value == NULL)
        return AVO_OK;
    int64_t first = 0;
    for (uint64_t i = 0; i < value->count || i == 0; i++) {
        int64_t number;
        if (!gguf_integer(value, i, &number))
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: %s has type %s, must be an integer", reader->file, name,
                               gguf_type_name(value->item_type));
        if (number < minimum || number > maximum)
            return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is %lld, must be %u to %u",
                               reader->file, name, (long long)number, minimum, maximum);
        if (i > 0 && number != first)
            return status_fail(
                reader->error, AVO_ERROR_UNSUPPORTED,
                "%s: %s differs between layers (%lld and %lld), which is not supported",
                reader->file, name, (long long)first, (long long)number);
        first = number;
    }
    *out = (uint32_t)first;
    return AVO_OK;
}

static avo_status need_u32(const config_reader *reader, const char *suffix, uint32_t minimum,
                           uint32_t maximum, uint32_t *out) {
    char name[KEY_TEXT_MAX];
    if (find_key(reader, suffix, name) == NULL)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is missing", reader->file,
                           name);
    return read_u32(reader, suffix, minimum, maximum, out);
}

static avo_status read_number(const config_reader *reader, const char *suffix, double minimum,
                              double maximum, double *out) {
    char name[KEY_TEXT_MAX];
    const gguf_value *value = find_key(reader, suffix, name);
    double number;
    if (value == NULL)
        return AVO_OK;
    if (value->type == GGUF_ARRAY || !gguf_number(value, 0, &number))
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s has type %s, must be a number",
                           reader->file, name, gguf_type_name(value->type));
    if (!(number >= minimum && number <= maximum))
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is %g, must be %g to %g",
                           reader->file, name, number, minimum, maximum);
    *out = number;
    return AVO_OK;
}

/* ---- Keys ---- */

static bool value_is_off(const gguf_value *value) {
    double number;
    bool boolean;
    if (value->type == GGUF_ARRAY || value->type == GGUF_STRING)
        return value->data.size == 0;
    if (gguf_boolean(value, 0, &boolean))
        return !boolean;
    return gguf_number(value, 0, &number) && number == 0;
}

static avo_status check_key(const config_reader *reader, const gguf_value *value, text_view rest) {
    for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++) {
        if (!text_is(rest, known_keys[i].key))
            continue;
        if (known_keys[i].rule != KEY_IF_ZERO || value_is_off(value))
            return AVO_OK;
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %.*s is set, which is not supported", reader->file,
                           TEXT_ARGUMENT(value->key));
    }
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: unknown metadata key \"%.*s\", which may change the results",
                       reader->file, TEXT_ARGUMENT(value->key));
}

static avo_status check_keys(const config_reader *reader) {
    char prefix[KEY_TEXT_MAX];
    snprintf(prefix, sizeof(prefix), "%s.", reader->architecture->name);
    text_view own = text_from(prefix);
    for (size_t i = 0; i < reader->metadata->count; i++) {
        const gguf_value *value = &reader->metadata->values[i];
        if (text_starts(value->key, own))
            AVO_TRY(check_key(reader, value,
                              (text_view){value->key.data + own.size, value->key.size - own.size}));
    }
    return AVO_OK;
}

static avo_status find_architecture(config_reader *reader) {
    text_view type;
    if (gguf_string(gguf_find(reader->metadata, "general.type"), 0, &type) &&
        !text_is(type, "model"))
        return status_fail(
            reader->error, AVO_ERROR_UNSUPPORTED,
            "%s: general.type is \"%.*s\", must be \"model\"; the file is not a language model",
            reader->file, TEXT_ARGUMENT(type));
    text_view name;
    if (!gguf_string(gguf_find(reader->metadata, "general.architecture"), 0, &name))
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: general.architecture is missing or not a string", reader->file);
    for (size_t i = 0; i < sizeof(architectures) / sizeof(architectures[0]); i++)
        if (text_is(name, architectures[i].name)) {
            reader->architecture = &architectures[i];
            return AVO_OK;
        }
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: architecture \"%.*s\" is not supported in GGUF; supported: llama, "
                       "qwen2, qwen3, smollm3, gemma3, phi3, gpt2, qwen2moe, qwen3moe, olmoe, "
                       "granitemoe, gpt-oss",
                       reader->file, TEXT_ARGUMENT(name));
}

/* ---- Sizes ---- */

/* The embedding has as many rows as the model has logits; the metadata may say so too. */
static avo_status read_vocabulary(const config_reader *reader) {
    const source_tensor *embedding = source_find(reader->source, TEXT_LITERAL("token_embd.weight"));
    if (embedding == NULL || embedding->rank != 2)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: tensor token_embd.weight is missing or not a matrix", reader->file);
    uint64_t rows = embedding->shape[0];
    if (rows > SOURCE_VOCABULARY_MAX)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: token_embd.weight has %llu rows, must have at most %d",
                           reader->file, (unsigned long long)rows, SOURCE_VOCABULARY_MAX);
    uint32_t stated = (uint32_t)rows;
    AVO_TRY(read_u32(reader, "vocab_size", 1, SOURCE_VOCABULARY_MAX, &stated));
    if (stated != rows)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: %s.vocab_size is %u, but token_embd.weight has %llu rows",
                           reader->file, reader->architecture->name, stated,
                           (unsigned long long)rows);
    reader->config->vocabulary = stated;
    return AVO_OK;
}

static avo_status read_sizes(const config_reader *reader) {
    model_config *c = reader->config;
    AVO_TRY(need_u32(reader, "block_count", 1, SOURCE_LAYERS_MAX, &c->layers));
    AVO_TRY(need_u32(reader, "embedding_length", 1, SOURCE_WIDTH_MAX, &c->width));
    AVO_TRY(need_u32(reader, "feed_forward_length", 1, SOURCE_FEED_FORWARD_MAX, &c->feed_forward));
    AVO_TRY(need_u32(reader, "attention.head_count", 1, SOURCE_HEADS_MAX, &c->heads));
    AVO_TRY(need_u32(reader, "context_length", 1, SOURCE_CONTEXT_MAX, &c->context));
    c->kv_heads = c->heads;
    AVO_TRY(read_u32(reader, "attention.head_count_kv", 1, SOURCE_HEADS_MAX, &c->kv_heads));
    c->embedding_width = c->width;
    c->head_size = c->width / c->heads;
    AVO_TRY(read_u32(reader, "attention.key_length", 1, SOURCE_HEAD_SIZE_MAX, &c->head_size));
    uint32_t value_size = c->head_size;
    AVO_TRY(read_u32(reader, "attention.value_length", 1, SOURCE_HEAD_SIZE_MAX, &value_size));
    if (value_size != c->head_size)
        return status_fail(
            reader->error, AVO_ERROR_UNSUPPORTED,
            "%s: attention.value_length (%u) differs from key_length (%u), which is not supported",
            reader->file, value_size, c->head_size);
    const char *epsilon = reader->architecture->layer_norm ? "attention.layer_norm_epsilon"
                                                           : "attention.layer_norm_rms_epsilon";
    char name[KEY_TEXT_MAX];
    if (find_key(reader, epsilon, name) == NULL)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is missing", reader->file,
                           name);
    AVO_TRY(read_number(reader, epsilon, 0, 1, &c->norm_epsilon));
    return read_vocabulary(reader);
}

/* ---- Positions ---- */

/* A vector of f32 as doubles; NULL when there is no such tensor. */
static avo_status read_factors(const config_reader *reader, const char *name, uint32_t *count,
                               const double **factors) {
    const source_tensor *tensor = source_find(reader->source, text_from(name));
    *factors = NULL;
    if (tensor == NULL)
        return AVO_OK;
    if (tensor->type != QUANT_F32 || tensor->rank != 1 || tensor->shape[0] > SOURCE_HEAD_SIZE_MAX)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: tensor %s must be an f32 vector of at most %d values", reader->file,
                           name, SOURCE_HEAD_SIZE_MAX);
    void *numbers;
    size_t length = (size_t)tensor->shape[0];
    AVO_TRY(source_take(reader->source, length, sizeof(double), name, &numbers, reader->error));
    for (size_t i = 0; i < length; i++) {
        float number;
        memcpy(&number, tensor->data + 4 * i, sizeof(number));
        ((double *)numbers)[i] = number;
    }
    *count = (uint32_t)length;
    *factors = numbers;
    return AVO_OK;
}

static avo_status read_yarn(const config_reader *reader, rope_scaling *rope) {
    rope->kind = ROPE_YARN;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    double extrapolation = 1;
    double factor = 0;
    AVO_TRY(read_number(reader, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &rope->beta_fast));
    AVO_TRY(read_number(reader, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &rope->beta_slow));
    AVO_TRY(read_number(reader, "rope.scaling.yarn_ext_factor", -1e6, 1e6, &extrapolation));
    AVO_TRY(read_number(reader, "rope.scaling.attn_factor", 1e-6, 1e6, &factor));
    AVO_TRY(read_number(reader, "rope.scaling.yarn_attn_factor", 1e-6, 1e6, &factor));
    if (extrapolation != 1 && extrapolation != -1)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: rope.scaling.yarn_ext_factor is %g, only 1 is supported",
                           reader->file, extrapolation);
    /* The file's factor comes on top of YaRN's own. */
    if (factor != 0 && factor != 1)
        rope->attention_factor = factor * (0.1 * log(rope->factor) + 1.0);
    if (rope->original_context == 0)
        rope->original_context = reader->config->context;
    return AVO_OK;
}

static avo_status read_scaling_type(const config_reader *reader, rope_scaling *rope) {
    char name[KEY_TEXT_MAX];
    const gguf_value *value = find_key(reader, "rope.scaling.type", name);
    text_view type = TEXT_LITERAL("");
    if (value != NULL && !gguf_string(value, 0, &type))
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is not a string", reader->file,
                           name);
    if (value == NULL) {
        double linear = 0;
        AVO_TRY(read_number(reader, "rope.scale_linear", 0, 1e6, &linear));
        if (linear > 0)
            rope->factor = linear;
        if (rope->factor != 1)
            rope->kind = ROPE_LINEAR;
        return AVO_OK;
    }
    if (text_is(type, "none") || text_is(type, "longrope"))
        return AVO_OK; /* longrope: its tensors say the rest */
    if (text_is(type, "linear")) {
        rope->kind = ROPE_LINEAR;
        return AVO_OK;
    }
    if (text_is(type, "yarn"))
        return read_yarn(reader, rope);
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: %s is \"%.*s\", must be none, linear, yarn or longrope", reader->file,
                       name, TEXT_ARGUMENT(type));
}

/* Tensors with a factor per frequency: Llama 3's, and Phi-3's two sets. */
static avo_status read_rope_tensors(const config_reader *reader, rope_scaling *rope) {
    const double *frequencies, *shorter, *longer;
    uint32_t count = 0, short_count = 0, long_count = 0;
    AVO_TRY(read_factors(reader, "rope_freqs.weight", &count, &frequencies));
    AVO_TRY(read_factors(reader, "rope_factors_short.weight", &short_count, &shorter));
    AVO_TRY(read_factors(reader, "rope_factors_long.weight", &long_count, &longer));
    if ((shorter == NULL) != (longer == NULL) || short_count != long_count)
        return status_fail(
            reader->error, AVO_ERROR_FORMAT,
            "%s: rope_factors_short has %u values and rope_factors_long %u, must be equal",
            reader->file, short_count, long_count);
    char name[KEY_TEXT_MAX];
    const gguf_value *type = find_key(reader, "rope.scaling.type", name);
    text_view text;
    if (longer == NULL && gguf_string(type, 0, &text) && text_is(text, "longrope"))
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: %s is longrope, but tensor rope_factors_long.weight is missing",
                           reader->file, name);
    if (frequencies == NULL && longer == NULL)
        return AVO_OK;
    if (rope->kind != ROPE_PLAIN || (frequencies != NULL && longer != NULL))
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: two kinds of RoPE scaling at once are not supported", reader->file);
    rope->kind = frequencies != NULL ? ROPE_FACTORS : ROPE_LONGROPE;
    rope->short_factor = frequencies != NULL ? frequencies : shorter;
    rope->long_factor = frequencies != NULL ? frequencies : longer;
    rope->factor_count = frequencies != NULL ? count : long_count;
    if (rope->kind == ROPE_LONGROPE) {
        AVO_TRY(
            read_number(reader, "rope.scaling.attn_factor", 1e-6, 1e6, &rope->attention_factor));
        if (rope->original_context == 0)
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: rope.scaling.original_context_length is missing", reader->file);
        rope->factor = (double)reader->config->context / rope->original_context;
    }
    return AVO_OK;
}

static avo_status read_positions(const config_reader *reader) {
    model_config *c = reader->config;
    rope_scaling *rope = &c->rope;
    *rope = (rope_scaling){.kind = ROPE_PLAIN, .factor = 1, .truncate = true};
    c->rope_base = 10000;
    if (c->architecture == ARCHITECTURE_GPT2) {
        c->positions = c->context;
        return AVO_OK;
    }
    rope->truncate = c->architecture != ARCHITECTURE_GPT_OSS; /* as its config.json has it */
    c->rotary_dims = c->head_size;
    c->rope_interleaved = reader->architecture->interleaved;
    AVO_TRY(read_u32(reader, "rope.dimension_count", 2, SOURCE_HEAD_SIZE_MAX, &c->rotary_dims));
    AVO_TRY(read_number(reader, "rope.freq_base", 1.0001, 1e12, &c->rope_base));
    AVO_TRY(read_number(reader, "rope.scaling.factor", 0, 1e6, &rope->factor));
    if (rope->factor == 0)
        rope->factor = 1; /* some converters write 0 for none */
    AVO_TRY(read_u32(reader, "rope.scaling.original_context_length", 0, SOURCE_CONTEXT_MAX,
                     &rope->original_context));
    AVO_TRY(read_scaling_type(reader, rope));
    AVO_TRY(read_rope_tensors(reader, rope));
    double magnitude = 1;
    AVO_TRY(read_number(reader, "rope.scaling.attn_factor", 1e-6, 1e6, &magnitude));
    if (magnitude != 1 && rope->kind != ROPE_YARN && rope->kind != ROPE_LONGROPE)
        return status_fail(
            reader->error, AVO_ERROR_UNSUPPORTED,
            "%s: rope.scaling.attn_factor is %g, which is supported with yarn and longrope only",
            reader->file, magnitude);
    return AVO_OK;
}

/* ---- Experts ---- */

/* Mixtral is a llama with experts. What routers do is not in the file but known of each
 * architecture. */
static avo_status read_experts(const config_reader *reader) {
    model_config *c = reader->config;
    AVO_TRY(read_u32(reader, "expert_count", 0, SOURCE_EXPERTS_MAX, &c->experts));
    if (c->experts == 0)
        return AVO_OK;
    if (c->architecture == ARCHITECTURE_LLAMA)
        c->architecture = ARCHITECTURE_MIXTRAL;
    if (c->architecture < ARCHITECTURE_MIXTRAL)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s.expert_count is %u, but %s has no experts", reader->file,
                           reader->architecture->name, c->experts, reader->architecture->name);
    AVO_TRY(need_u32(reader, "expert_used_count", 1, SOURCE_EXPERTS_USED_MAX, &c->experts_used));
    c->expert_feed_forward = c->feed_forward;
    AVO_TRY(read_u32(reader, "expert_feed_forward_length", 1, SOURCE_FEED_FORWARD_MAX,
                     &c->expert_feed_forward));
    AVO_TRY(read_u32(reader, "expert_shared_feed_forward_length", 0, SOURCE_FEED_FORWARD_MAX,
                     &c->shared_feed_forward));
    if (c->architecture == ARCHITECTURE_QWEN2_MOE && c->shared_feed_forward == 0)
        c->shared_feed_forward = c->feed_forward;
    bool top =
        c->architecture == ARCHITECTURE_GRANITE_MOE || c->architecture == ARCHITECTURE_GPT_OSS;
    c->router = top ? SOURCE_ROUTER_TOP_SOFTMAX : SOURCE_ROUTER_SOFTMAX;
    c->router_normalised =
        c->architecture != ARCHITECTURE_OLMOE && c->architecture != ARCHITECTURE_QWEN2_MOE;
    char name[KEY_TEXT_MAX];
    const gguf_value *normalised = find_key(reader, "expert_weights_norm", name);
    if (normalised != NULL && !gguf_boolean(normalised, 0, &c->router_normalised))
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s is not a bool", reader->file,
                           name);
    void *sparse;
    AVO_TRY(source_take(reader->source, c->layers, 1, "layers", &sparse, reader->error));
    memset(sparse, 1, c->layers);
    c->layer_experts = sparse;
    return AVO_OK;
}

/* ---- Layers ---- */

/* Which layers see a window only: an array of bools, or every n-th layer sees all. */
static avo_status read_pattern(const config_reader *reader, uint32_t every, uint8_t *windowed) {
    char name[KEY_TEXT_MAX];
    const gguf_value *value = find_key(reader, "attention.sliding_window_pattern", name);
    uint32_t layers = reader->config->layers;
    if (value != NULL && value->type == GGUF_ARRAY) {
        if (value->count != layers)
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: %s has %llu entries, must have one for each of the %u layers",
                               reader->file, name, (unsigned long long)value->count, layers);
        for (uint32_t i = 0; i < layers; i++) {
            int64_t flag;
            if (!gguf_integer(value, i, &flag))
                return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s[%u] is not a bool",
                                   reader->file, name, i);
            windowed[i] = flag != 0;
        }
        return AVO_OK;
    }
    AVO_TRY(read_u32(reader, "attention.sliding_window_pattern", 0, SOURCE_LAYERS_MAX, &every));
    for (uint32_t i = 0; i < layers; i++)
        windowed[i] = every == 0 || every == 1 ? every == 0 : i % every != every - 1;
    return AVO_OK;
}

static avo_status read_layers(const config_reader *reader) {
    model_config *c = reader->config;
    AVO_TRY(read_u32(reader, "attention.sliding_window", 0, SOURCE_CONTEXT_MAX, &c->window));
    AVO_TRY(config_layers_fill(reader->source, c->window > 0, c->rotary_dims > 0, reader->error));
    uint32_t every = c->architecture == ARCHITECTURE_GEMMA3    ? 6
                     : c->architecture == ARCHITECTURE_GPT_OSS ? 2
                                                               : 0;
    if (c->window > 0)
        AVO_TRY(read_pattern(reader, every, (uint8_t *)(uintptr_t)c->layer_windowed));
    if (c->architecture == ARCHITECTURE_SMOLLM3)
        for (uint32_t i = 3; i < c->layers; i += 4)
            ((uint8_t *)(uintptr_t)c->layer_rotary)[i] = 0;
    return AVO_OK;
}

static avo_status read_multipliers(const config_reader *reader) {
    model_config *c = reader->config;
    if (c->architecture == ARCHITECTURE_GEMMA3) {
        c->rope_base_local = 10000;
        c->embedding_scale = (double)sqrtf((float)c->width);
        /* The 27B scales by the width per head, not by the head's size; files do not say so. */
        if (c->layers == 62)
            c->attention_scale = 1.0 / sqrt((double)c->width / c->heads);
    }
    AVO_TRY(read_number(reader, "rope.freq_base_swa", 1.0001, 1e12, &c->rope_base_local));
    AVO_TRY(read_number(reader, "attention.scale", 0, 1e6, &c->attention_scale));
    AVO_TRY(read_number(reader, "attn_logit_softcapping", 0, 1e6, &c->attention_softcap));
    AVO_TRY(read_number(reader, "final_logit_softcapping", 0, 1e6, &c->logit_softcap));
    AVO_TRY(read_number(reader, "logit_scale", 0, 1e6, &c->logit_scale));
    AVO_TRY(read_number(reader, "residual_scale", 0, 1e6, &c->residual_scale));
    AVO_TRY(read_number(reader, "embedding_scale", 0, 1e6, &c->embedding_scale));
    if (c->architecture == ARCHITECTURE_GRANITE_MOE && c->logit_scale != 0)
        c->logit_scale = 1 / c->logit_scale; /* Granite's divides */
    char name[KEY_TEXT_MAX];
    const gguf_value *causal = find_key(reader, "attention.causal", name);
    bool flag;
    if (causal != NULL && (!gguf_boolean(causal, 0, &flag) || !flag))
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s is not true; only causal attention is supported", reader->file,
                           name);
    return AVO_OK;
}

avo_status config_from_gguf(model_source *source, avo_error *error) {
    config_reader reader = {.source = source,
                            .config = &source->config,
                            .metadata = source->gguf,
                            .file = source->path,
                            .error = error};
    AVO_TRY(find_architecture(&reader));
    AVO_TRY(check_keys(&reader));
    model_config *config = &source->config;
    config->architecture = reader.architecture->architecture;
    config->activation = reader.architecture->activation;
    config->tied_head = source_find(source, TEXT_LITERAL("output.weight")) == NULL;
    AVO_TRY(read_sizes(&reader));
    AVO_TRY(read_positions(&reader));
    AVO_TRY(read_experts(&reader));
    AVO_TRY(read_layers(&reader));
    AVO_TRY(read_multipliers(&reader));
    AVO_TRY(config_check(config, source->path, error));
    (void)gguf_string(gguf_find(source->gguf, "general.name"), 0, &source->name);
    return gguf_tokenizer_source(source, error);
}
