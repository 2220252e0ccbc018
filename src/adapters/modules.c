/* The modules of every architecture, as Hugging Face and as GGUF call them. */
#include "adapters/adapters_int.h"

#include "formats/names.h"

#include <stdio.h>

uint32_t module_count(const model_config *config) {
    return config->layers * MODULE_LAYER_ROLES + MODULE_TOP_ROLES;
}

uint32_t module_index(const model_config *config, uint32_t layer, module_role role) {
    return role < MODULE_LAYER_ROLES
               ? layer * MODULE_LAYER_ROLES + role
               : config->layers * MODULE_LAYER_ROLES + role - MODULE_LAYER_ROLES;
}

module_role module_role_of(const model_config *config, uint32_t index, uint32_t *layer) {
    uint32_t layered = config->layers * MODULE_LAYER_ROLES;
    *layer = index < layered ? index / MODULE_LAYER_ROLES : UINT32_MAX;
    return (module_role)(index < layered ? index % MODULE_LAYER_ROLES
                                         : index - layered + MODULE_LAYER_ROLES);
}

/* ---- Hugging Face ---- */

static const char *const llama_names[MODULE_ROLES] = {
    [MODULE_ATTENTION_NORM] = "input_layernorm",
    [MODULE_QUERY] = "self_attn.q_proj",
    [MODULE_KEY] = "self_attn.k_proj",
    [MODULE_VALUE] = "self_attn.v_proj",
    [MODULE_OUTPUT] = "self_attn.o_proj",
    [MODULE_FEED_FORWARD_NORM] = "post_attention_layernorm",
    [MODULE_GATE] = "mlp.gate_proj",
    [MODULE_UP] = "mlp.up_proj",
    [MODULE_DOWN] = "mlp.down_proj",
    [MODULE_EMBEDDING] = "embed_tokens",
    [MODULE_FINAL_NORM] = "norm",
    [MODULE_HEAD] = "lm_head",
};

static const char *const phi3_names[MODULE_ROLES] = {
    [MODULE_ATTENTION_NORM] = "input_layernorm",
    [MODULE_QKV] = "self_attn.qkv_proj",
    [MODULE_OUTPUT] = "self_attn.o_proj",
    [MODULE_FEED_FORWARD_NORM] = "post_attention_layernorm",
    [MODULE_GATE_UP] = "mlp.gate_up_proj",
    [MODULE_DOWN] = "mlp.down_proj",
    [MODULE_EMBEDDING] = "embed_tokens",
    [MODULE_FINAL_NORM] = "norm",
    [MODULE_HEAD] = "lm_head",
};

static const char *const gpt2_names[MODULE_ROLES] = {
    [MODULE_ATTENTION_NORM] = "ln_1", [MODULE_QKV] = "attn.c_attn",
    [MODULE_OUTPUT] = "attn.c_proj",  [MODULE_FEED_FORWARD_NORM] = "ln_2",
    [MODULE_UP] = "mlp.c_fc",         [MODULE_DOWN] = "mlp.c_proj",
    [MODULE_EMBEDDING] = "wte",       [MODULE_FINAL_NORM] = "ln_f",
    [MODULE_HEAD] = "lm_head",
};

static const char *const opt_names[MODULE_ROLES] = {
    [MODULE_ATTENTION_NORM] = "self_attn_layer_norm",
    [MODULE_QUERY] = "self_attn.q_proj",
    [MODULE_KEY] = "self_attn.k_proj",
    [MODULE_VALUE] = "self_attn.v_proj",
    [MODULE_OUTPUT] = "self_attn.out_proj",
    [MODULE_FEED_FORWARD_NORM] = "final_layer_norm",
    [MODULE_UP] = "fc1",
    [MODULE_DOWN] = "fc2",
    [MODULE_EMBEDDING] = "embed_tokens",
    [MODULE_FINAL_NORM] = "final_layer_norm",
    [MODULE_HEAD] = "lm_head",
};

const char *module_suffix(source_architecture architecture, module_role role) {
    bool gemma = architecture == ARCHITECTURE_GEMMA3;
    switch (architecture) {
    case ARCHITECTURE_PHI3:
        return phi3_names[role];
    case ARCHITECTURE_GPT2:
        return gpt2_names[role];
    case ARCHITECTURE_OPT:
        return opt_names[role];
    default:
        break;
    }
    bool head_norms =
        gemma || architecture == ARCHITECTURE_QWEN3 || architecture == ARCHITECTURE_QWEN3_MOE;
    if (role == MODULE_QUERY_NORM && head_norms)
        return "self_attn.q_norm";
    if (role == MODULE_KEY_NORM && head_norms)
        return "self_attn.k_norm";
    /* Adapters change attention and norms of a mixture of experts, but no experts. */
    bool feed_forward = role == MODULE_GATE || role == MODULE_UP || role == MODULE_DOWN;
    if (feed_forward && names_have_experts(architecture))
        return NULL;
    if (gemma && role == MODULE_ATTENTION_POST_NORM)
        return "post_attention_layernorm";
    if (gemma && role == MODULE_FEED_FORWARD_NORM)
        return "pre_feedforward_layernorm";
    if (gemma && role == MODULE_FEED_FORWARD_POST_NORM)
        return "post_feedforward_layernorm";
    return llama_names[role];
}

/* What may stand in front of an architecture's layers: the causal model's own first, then the bare
 * model, then the wrappers of models with eyes. */
#define WRAPPERS_MAX 6
static const char *const *wrappers_of(source_architecture architecture) {
    static const char *const llama[] = {"model.", "", NULL};
    static const char *const gemma[] = {
        "model.", "", "model.language_model.", "language_model.model.", "language_model.", NULL};
    static const char *const gpt2[] = {"transformer.", "", NULL};
    static const char *const opt[] = {"model.decoder.", "decoder.", NULL};
    switch (architecture) {
    case ARCHITECTURE_GEMMA3:
        return gemma;
    case ARCHITECTURE_GPT2:
        return gpt2;
    case ARCHITECTURE_OPT:
        return opt;
    default:
        return llama;
    }
}

const char *module_wrapper(source_architecture architecture) {
    return wrappers_of(architecture)[0];
}

/* The head stands beside the wrapped model, not in it. */
static const char *head_wrapper(const char *wrapper) {
    return strcmp(wrapper, "language_model.model.") == 0 ? "language_model." : "";
}

bool module_name(const model_config *config, const char *wrapper, uint32_t index, char *out,
                 size_t capacity) {
    uint32_t layer;
    module_role role = module_role_of(config, index, &layer);
    const char *suffix = module_suffix(config->architecture, role);
    if (suffix == NULL)
        return false;
    const char *layers = config->architecture == ARCHITECTURE_GPT2 ? "h" : "layers";
    int length = layer == UINT32_MAX
                     ? snprintf(out, capacity, "%s%s",
                                role == MODULE_HEAD ? head_wrapper(wrapper) : wrapper, suffix)
                     : snprintf(out, capacity, "%s%s.%u.%s", wrapper, layers, layer, suffix);
    return length > 0 && (size_t)length < capacity;
}

static bool take_layer(text_view *text, uint32_t layers, uint32_t *layer) {
    return text_take_number(text, layer) && *layer < layers;
}

/* The module behind a wrapper. */
static uint32_t find_behind(const model_config *config, const char *wrapper, text_view name) {
    const char *layers = config->architecture == ARCHITECTURE_GPT2 ? "h." : "layers.";
    text_view rest = name;
    if (text_take(&rest, head_wrapper(wrapper)) &&
        text_is(rest, module_suffix(config->architecture, MODULE_HEAD)))
        return module_index(config, 0, MODULE_HEAD);
    rest = name;
    if (!text_take(&rest, wrapper))
        return UINT32_MAX;
    uint32_t layer = 0;
    int begin = MODULE_LAYER_ROLES, end = MODULE_HEAD;
    if (text_take(&rest, layers)) {
        if (!take_layer(&rest, config->layers, &layer))
            return UINT32_MAX;
        begin = 0;
        end = MODULE_LAYER_ROLES;
    }
    for (int role = begin; role < end; role++) {
        const char *suffix = module_suffix(config->architecture, (module_role)role);
        if (suffix != NULL && text_is(rest, suffix))
            return module_index(config, layer, (module_role)role);
    }
    return UINT32_MAX;
}

uint32_t module_find(const model_config *config, text_view name, const char **wrapper) {
    if (*wrapper != NULL)
        return find_behind(config, *wrapper, name);
    const char *const *all = wrappers_of(config->architecture);
    for (size_t i = 0; i < WRAPPERS_MAX && all[i] != NULL; i++) {
        uint32_t found = find_behind(config, all[i], name);
        if (found == UINT32_MAX)
            continue;
        /* The head's name says little about the wrapper. */
        if (found != module_index(config, 0, MODULE_HEAD))
            *wrapper = all[i];
        return found;
    }
    return UINT32_MAX;
}

/* ---- GGUF ---- */

uint32_t module_find_gguf(const model_config *config, text_view name) {
    static const struct {
        const char *name;
        module_role role;
    } layered[] = {
        {"attn_q", MODULE_QUERY},       {"attn_k", MODULE_KEY},    {"attn_v", MODULE_VALUE},
        {"attn_output", MODULE_OUTPUT}, {"attn_qkv", MODULE_QKV},  {"ffn_gate", MODULE_GATE},
        {"ffn_up", MODULE_UP},          {"ffn_down", MODULE_DOWN},
    };
    if (text_is(name, "token_embd"))
        return module_index(config, 0, MODULE_EMBEDDING);
    if (text_is(name, "output"))
        return module_index(config, 0, MODULE_HEAD);
    uint32_t layer;
    if (!text_take(&name, "blk.") || !take_layer(&name, config->layers, &layer))
        return UINT32_MAX;
    for (size_t i = 0; i < sizeof(layered) / sizeof(layered[0]); i++) {
        if (!text_is(name, layered[i].name))
            continue;
        module_role role = layered[i].role;
        /* Phi-3 keeps gate and up in one matrix called "up". */
        if (role == MODULE_UP && config->architecture == ARCHITECTURE_PHI3)
            role = MODULE_GATE_UP;
        return module_suffix(config->architecture, role) == NULL
                   ? UINT32_MAX
                   : module_index(config, layer, role);
    }
    return UINT32_MAX;
}
