/* Inside model/: what an architecture file fills in, and how tensors find their place. */
#ifndef AVO_MODEL_MODEL_INT_H
#define AVO_MODEL_MODEL_INT_H

#include "model/model.h"

/* ---- An architecture: what the configuration does not say ---- */

typedef enum bias_rule { BIAS_NONE, BIAS_OPTIONAL, BIAS_REQUIRED } bias_rule;

typedef struct architecture {
    norm_kind norm;
    bool norm_bias;           /* norms have a bias */
    bool gated;               /* gate · up, else up alone */
    bool head_norms;          /* q and k are normed per head */
    bool post_norms;          /* outputs are normed before they join the residual */
    bool whole_norms;         /* q and k are normed, all heads together */
    bool sinks;               /* heads have a score without a value */
    bias_rule attention_bias; /* q, k, v */
    bias_rule output_bias;    /* o, up, down, gate */
    bias_rule router_bias;
    bool shared_gate;         /* the shared expert is weighed by a gate */
    bool alternating_experts; /* rows of gate and up alternate in safetensors */
    /* What differs from describe_layer's defaults; NULL: nothing. */
    void (*adjust_layer)(const model_config *config, uint32_t number, layer_view *layer);
    void (*adjust_model)(const model_config *config, model_view *model);
} architecture;

extern const architecture architecture_llama;
extern const architecture architecture_mistral;
extern const architecture architecture_qwen2;
extern const architecture architecture_qwen3;
extern const architecture architecture_smollm3;
extern const architecture architecture_gemma3;
extern const architecture architecture_phi3;
extern const architecture architecture_gpt2;
extern const architecture architecture_opt;
extern const architecture architecture_mixtral;
extern const architecture architecture_qwen2_moe;
extern const architecture architecture_qwen3_moe;
extern const architecture architecture_olmoe;
extern const architecture architecture_granite_moe;
extern const architecture architecture_gpt_oss;

const architecture *architecture_of(source_architecture id);

/* Every number of a layer and of the model that the configuration gives, for all architectures. */
void describe_layer(const model_config *config, uint32_t number, layer_view *layer);
void describe_model(const model_config *config, model_view *model);

/* ---- Tensors by role ---- */

/* X(role, canonical name behind "blk.N.") */
#define LAYER_ROLE_TABLE(X)                                                                        \
    X(ROLE_ATTENTION_NORM, "attn_norm.weight")                                                     \
    X(ROLE_ATTENTION_NORM_BIAS, "attn_norm.bias")                                                  \
    X(ROLE_QUERY, "attn_q.weight")                                                                 \
    X(ROLE_QUERY_BIAS, "attn_q.bias")                                                              \
    X(ROLE_KEY, "attn_k.weight")                                                                   \
    X(ROLE_KEY_BIAS, "attn_k.bias")                                                                \
    X(ROLE_VALUE, "attn_v.weight")                                                                 \
    X(ROLE_VALUE_BIAS, "attn_v.bias")                                                              \
    X(ROLE_QKV, "attn_qkv.weight")                                                                 \
    X(ROLE_QKV_BIAS, "attn_qkv.bias")                                                              \
    X(ROLE_OUTPUT, "attn_output.weight")                                                           \
    X(ROLE_OUTPUT_BIAS, "attn_output.bias")                                                        \
    X(ROLE_QUERY_NORM, "attn_q_norm.weight")                                                       \
    X(ROLE_KEY_NORM, "attn_k_norm.weight")                                                         \
    X(ROLE_ATTENTION_POST_NORM, "post_attention_norm.weight")                                      \
    X(ROLE_FEED_FORWARD_NORM, "ffn_norm.weight")                                                   \
    X(ROLE_FEED_FORWARD_NORM_BIAS, "ffn_norm.bias")                                                \
    X(ROLE_GATE, "ffn_gate.weight")                                                                \
    X(ROLE_GATE_BIAS, "ffn_gate.bias")                                                             \
    X(ROLE_UP, "ffn_up.weight")                                                                    \
    X(ROLE_UP_BIAS, "ffn_up.bias")                                                                 \
    X(ROLE_DOWN, "ffn_down.weight")                                                                \
    X(ROLE_DOWN_BIAS, "ffn_down.bias")                                                             \
    X(ROLE_FEED_FORWARD_POST_NORM, "post_ffw_norm.weight")                                         \
    X(ROLE_SINKS, "attn_sinks.weight")                                                             \
    X(ROLE_ROUTER, "ffn_gate_inp.weight")                                                          \
    X(ROLE_ROUTER_BIAS, "ffn_gate_inp.bias")                                                       \
    X(ROLE_GATE_EXPERTS, "ffn_gate_exps.weight")                                                   \
    X(ROLE_GATE_EXPERTS_BIAS, "ffn_gate_exps.bias")                                                \
    X(ROLE_UP_EXPERTS, "ffn_up_exps.weight")                                                       \
    X(ROLE_UP_EXPERTS_BIAS, "ffn_up_exps.bias")                                                    \
    X(ROLE_DOWN_EXPERTS, "ffn_down_exps.weight")                                                   \
    X(ROLE_DOWN_EXPERTS_BIAS, "ffn_down_exps.bias")                                                \
    X(ROLE_GATE_UP_EXPERTS, "ffn_gate_up_exps.weight")                                             \
    X(ROLE_GATE_UP_EXPERTS_BIAS, "ffn_gate_up_exps.bias")                                          \
    X(ROLE_GATE_UP_EXPERTS_BLOCKS, "ffn_gate_up_exps.blocks")                                      \
    X(ROLE_GATE_UP_EXPERTS_SCALES, "ffn_gate_up_exps.scales")                                      \
    X(ROLE_DOWN_EXPERTS_BLOCKS, "ffn_down_exps.blocks")                                            \
    X(ROLE_DOWN_EXPERTS_SCALES, "ffn_down_exps.scales")                                            \
    X(ROLE_GATE_SHARED, "ffn_gate_shexp.weight")                                                   \
    X(ROLE_UP_SHARED, "ffn_up_shexp.weight")                                                       \
    X(ROLE_DOWN_SHARED, "ffn_down_shexp.weight")                                                   \
    X(ROLE_SHARED_GATE, "ffn_gate_inp_shexp.weight")

typedef enum layer_role {
#define ROLE_ENUM(role, name) role,
    LAYER_ROLE_TABLE(ROLE_ENUM) LAYER_ROLE_COUNT
} layer_role;

#define MODEL_ROLE_TABLE(X)                                                                        \
    X(ROLE_EMBEDDING, "token_embd.weight")                                                         \
    X(ROLE_POSITION, "position_embd.weight")                                                       \
    X(ROLE_PROJECT_IN, "project_in.weight")                                                        \
    X(ROLE_PROJECT_OUT, "project_out.weight")                                                      \
    X(ROLE_FINAL_NORM, "output_norm.weight")                                                       \
    X(ROLE_FINAL_NORM_BIAS, "output_norm.bias")                                                    \
    X(ROLE_HEAD, "output.weight")                                                                  \
    X(ROLE_HEAD_BIAS, "output.bias")                                                               \
    X(ROLE_ROPE_FACTORS, "rope_freqs.weight")                                                      \
    X(ROLE_ROPE_LONG, "rope_factors_long.weight")                                                  \
    X(ROLE_ROPE_SHORT, "rope_factors_short.weight")

typedef enum model_role { MODEL_ROLE_TABLE(ROLE_ENUM) MODEL_ROLE_COUNT } model_role;
#undef ROLE_ENUM

/* The source's tensors sorted into their places. */
typedef struct tensor_slots {
    const source_tensor **layer; /* [layers][LAYER_ROLE_COUNT] */
    const source_tensor *top[MODEL_ROLE_COUNT];
    uint8_t *layer_used;
    uint8_t top_used[MODEL_ROLE_COUNT];
    uint32_t layers;
    const source_tensor **expert; /* tensors of one expert each, slots_expert's order */
    uint8_t *expert_used;
    uint32_t experts;
} tensor_slots;

/* Where gate (part 0), up (1) or down (2) of an expert lies. */
static inline size_t slots_expert(const tensor_slots *slots, uint32_t layer, uint32_t expert,
                                  uint32_t part) {
    return ((size_t)layer * slots->experts + expert) * 3 + part;
}

/* Every tensor gets its place; one that has none, or whose place is taken, is refused by name. */
AVO_MUST_USE avo_status slots_fill(const model_source *source, arena *arena, tensor_slots *slots,
                                   avo_error *error);
/* Refuses a tensor that nobody took: it would be silently ignored otherwise. */
AVO_MUST_USE avo_status slots_check_used(const model_source *source, const tensor_slots *slots,
                                         avo_error *error);

/* ---- Rotation ---- */

/* Table 0 for all layers; table 1 for windowed layers where they have a base of their own. */
#define ROTARY_TABLES_MAX 2

#endif
