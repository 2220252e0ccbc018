/* Hugging Face tensor names to canonical ones, table by table. */
#include "formats/names.h"

#include <stdio.h>

typedef struct name_pair {
    const char *from;
    const char *to;
} name_pair;

#define WEIGHT_AND_BIAS(from, to)                                                                  \
    {from ".weight", to ".weight"}, {                                                              \
        from ".bias", to ".bias"                                                                   \
    }

/* Llama and everything with its names. */
static const name_pair llama_layer[] = {
    WEIGHT_AND_BIAS("input_layernorm", "attn_norm"),
    WEIGHT_AND_BIAS("self_attn.q_proj", "attn_q"),
    WEIGHT_AND_BIAS("self_attn.k_proj", "attn_k"),
    WEIGHT_AND_BIAS("self_attn.v_proj", "attn_v"),
    WEIGHT_AND_BIAS("self_attn.o_proj", "attn_output"),
    WEIGHT_AND_BIAS("self_attn.qkv_proj", "attn_qkv"),
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    WEIGHT_AND_BIAS("post_attention_layernorm", "ffn_norm"),
    WEIGHT_AND_BIAS("mlp.gate_proj", "ffn_gate"),
    WEIGHT_AND_BIAS("mlp.up_proj", "ffn_up"),
    WEIGHT_AND_BIAS("mlp.gate_up_proj", "ffn_up"),
    WEIGHT_AND_BIAS("mlp.down_proj", "ffn_down"),
    {NULL, NULL},
};

/* Gemma 3 has norms on both sides; "post_attention" means something else there. */
static const name_pair gemma3_layer[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {NULL, NULL},
};

/* Mixtures of experts; gpt-oss's router is called like Granite's module. */
static const name_pair experts_layer[] = {
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    WEIGHT_AND_BIAS("mlp.router", "ffn_gate_inp"),
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_up_exps.blocks"},
    {"mlp.experts.gate_up_proj_scales", "ffn_gate_up_exps.scales"},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.blocks"},
    {"mlp.experts.down_proj_scales", "ffn_down_exps.scales"},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {NULL, NULL},
};

/* One expert's matrix, behind "mlp.experts.7." or "block_sparse_moe.experts.7.". */
static const name_pair expert_part[] = {
    {"gate_proj.weight", "ffn_gate"},
    {"up_proj.weight", "ffn_up"},
    {"down_proj.weight", "ffn_down"},
    {"w1.weight", "ffn_gate"},
    {"w3.weight", "ffn_up"},
    {"w2.weight", "ffn_down"},
    {NULL, NULL},
};

static const name_pair gpt2_layer[] = {
    WEIGHT_AND_BIAS("ln_1", "attn_norm"),
    WEIGHT_AND_BIAS("attn.c_attn", "attn_qkv"),
    WEIGHT_AND_BIAS("attn.c_proj", "attn_output"),
    WEIGHT_AND_BIAS("ln_2", "ffn_norm"),
    WEIGHT_AND_BIAS("mlp.c_fc", "ffn_up"),
    WEIGHT_AND_BIAS("mlp.c_proj", "ffn_down"),
    {"attn.bias", ""},
    {"attn.masked_bias", ""},
    {NULL, NULL},
};

static const name_pair opt_layer[] = {
    WEIGHT_AND_BIAS("self_attn_layer_norm", "attn_norm"),
    WEIGHT_AND_BIAS("self_attn.q_proj", "attn_q"),
    WEIGHT_AND_BIAS("self_attn.k_proj", "attn_k"),
    WEIGHT_AND_BIAS("self_attn.v_proj", "attn_v"),
    WEIGHT_AND_BIAS("self_attn.out_proj", "attn_output"),
    WEIGHT_AND_BIAS("final_layer_norm", "ffn_norm"),
    WEIGHT_AND_BIAS("fc1", "ffn_up"),
    WEIGHT_AND_BIAS("fc2", "ffn_down"),
    {NULL, NULL},
};

static const name_pair top_names[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"wte.weight", "token_embd.weight"},
    {"wpe.weight", "position_embd.weight"},
    {"embed_positions.weight", "position_embd.weight"},
    WEIGHT_AND_BIAS("norm", "output_norm"),
    WEIGHT_AND_BIAS("ln_f", "output_norm"),
    WEIGHT_AND_BIAS("final_layer_norm", "output_norm"),
    {"project_in.weight", "project_in.weight"},
    {"project_out.weight", "project_out.weight"},
    WEIGHT_AND_BIAS("lm_head", "output"),
    {NULL, NULL},
};

/* `to` of the pair, "" for names without weights, NULL when there is none. */
static const char *find_pair(const name_pair *pairs, text_view name) {
    for (; pairs->from != NULL; pairs++)
        if (text_is(name, pairs->from))
            return pairs->to;
    return NULL;
}

/* "ffn_gate.7.weight" of "mlp.experts.7.gate_proj.weight"; `room` for it. */
static const char *find_expert_name(text_view rest, char *room, size_t capacity) {
    uint32_t expert;
    bool own = text_take(&rest, "mlp.experts.") || text_take(&rest, "block_sparse_moe.experts.");
    if (!own || !text_take_number(&rest, &expert))
        return NULL;
    const char *part = find_pair(expert_part, rest);
    int length = part == NULL ? 0 : snprintf(room, capacity, "%s.%u.weight", part, expert);
    return length > 0 && (size_t)length < capacity ? room : NULL;
}

bool names_have_experts(source_architecture architecture) {
    return architecture >= ARCHITECTURE_MIXTRAL && architecture <= ARCHITECTURE_GPT_OSS;
}

static const char *find_layer_name(source_architecture architecture, text_view rest) {
    const char *found = NULL;
    if (text_ends(rest, TEXT_LITERAL("rotary_emb.inv_freq")))
        return "";
    switch (architecture) {
    case ARCHITECTURE_GPT2:
        return find_pair(gpt2_layer, rest);
    case ARCHITECTURE_OPT:
        return find_pair(opt_layer, rest);
    case ARCHITECTURE_GEMMA3:
        found = find_pair(gemma3_layer, rest);
        break;
    default:
        if (names_have_experts(architecture))
            found = find_pair(experts_layer, rest);
        break;
    }
    return found != NULL ? found : find_pair(llama_layer, rest);
}

name_result names_canonical(source_architecture architecture, text_view name, char *out,
                            size_t capacity) {
    static const char *const wrappers[] = {"language_model.", "model.", "transformer.", "decoder."};
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        (void)text_take(&name, wrappers[i]);
        /* "model.language_model.…" and "language_model.model.…" both occur. */
        if (i == 1)
            (void)text_take(&name, wrappers[0]);
    }
    if (text_ends(name, TEXT_LITERAL("rotary_emb.inv_freq")))
        return NAME_IGNORED;
    /* Gemma 3 from 4B on comes with eyes; we read and write text. */
    if (architecture == ARCHITECTURE_GEMMA3 &&
        (text_starts(name, TEXT_LITERAL("vision_tower.")) ||
         text_starts(name, TEXT_LITERAL("multi_modal_projector."))))
        return NAME_IGNORED;
    int length;
    if (text_take(&name, "layers.") || text_take(&name, "h.")) {
        uint32_t layer;
        if (!text_take_number(&name, &layer))
            return NAME_UNKNOWN;
        char room[48];
        const char *to = find_layer_name(architecture, name);
        if (to == NULL && names_have_experts(architecture))
            to = find_expert_name(name, room, sizeof(room));
        if (to == NULL || to[0] == '\0')
            return to == NULL ? NAME_UNKNOWN : NAME_IGNORED;
        length = snprintf(out, capacity, "blk.%u.%s", layer, to);
    } else {
        const char *to = find_pair(top_names, name);
        if (to == NULL)
            return NAME_UNKNOWN;
        length = snprintf(out, capacity, "%s", to);
    }
    return length > 0 && (size_t)length < capacity ? NAME_KNOWN : NAME_UNKNOWN;
}

bool names_split_layer(text_view name, uint32_t *layer, text_view *rest) {
    *rest = name;
    return text_take(rest, "blk.") && text_take_number(rest, layer);
}

bool names_split_expert(text_view name, uint32_t *part, uint32_t *expert) {
    static const char *const parts[] = {"ffn_gate.", "ffn_up.", "ffn_down."};
    for (*part = 0; *part < 3; ++*part) {
        text_view rest = name;
        if (text_take(&rest, parts[*part]) && text_take_number(&rest, expert) &&
            text_is(rest, "weight"))
            return true;
    }
    return false;
}

name_result names_of_tensor(const model_source *source, const source_tensor *tensor,
                            char room[NAMES_CANONICAL_MAX], text_view *name) {
    *name = tensor->name;
    if (source->naming != SOURCE_NAMES_HF)
        return NAME_KNOWN;
    name_result result =
        names_canonical(source->config.architecture, tensor->name, room, NAMES_CANONICAL_MAX);
    *name = result == NAME_KNOWN ? text_from(room) : TEXT_LITERAL("");
    return result;
}

avo_status names_no_place(const model_source *source, const source_tensor *tensor,
                          avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: tensor %.*s is not part of architecture %s with %u layers",
                       source->path, TEXT_ARGUMENT(tensor->name),
                       source_architecture_name(source->config.architecture),
                       source->config.layers);
}
