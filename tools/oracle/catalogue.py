"""The tiny random models that stand for every architecture: their shapes, and why each is so.

Sizes are odd on purpose (head sizes 8 to 20, widths and vocabularies that are no multiples of 16,
windows and original contexts shorter than the sequence), so that every tail, border and scaling
rule is passed through within 48 positions. Epsilons are large enough to be seen in the logits.
"""
from dataclasses import dataclass

import transformers as hf


@dataclass
class Case:
    name: str
    config: object
    storage: str = "float32"  # what the safetensors hold
    positions: int = 48
    stepwise: bool = False  # one token at a time with a cache (dynamic NTK)
    legacy: bool = False  # config.json as transformers 4 wrote it
    shard: str = ""  # largest shard, to make several files
    gguf: bool = False  # a GGUF twin beside it
    bare_names: bool = False  # tensor names without the model prefix, as the hub's gpt2 has them
    mxfp4: bool = False  # experts in MXFP4, as gpt-oss is published
    wrapped: bool = False  # as the text half of a model with vision (Gemma 3 from 4B on)


def rope(base, **scaling):
    return {"rope_theta": float(base), "rope_type": scaling.pop("kind", "default"), **scaling}


def llama(**changes):
    shape = dict(
        hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52,
        num_hidden_layers=2, vocab_size=97, max_position_embeddings=64,
            rms_norm_eps=3e-4,
        rope_parameters=rope(10000), tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        pad_token_id=None)
    return hf.LlamaConfig(**{**shape, **changes})


def gemma(**changes):
    shape = dict(
        hidden_size=28, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
        intermediate_size=36, num_hidden_layers=7, vocab_size=111, max_position_embeddings=64,
        sliding_window=9, query_pre_attn_scalar=12, rms_norm_eps=2e-4,
        rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)})
    return hf.Gemma3TextConfig(**{**shape, **changes})


def phi(**changes):
    shape = dict(
        hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=44,
        num_hidden_layers=2, vocab_size=93, max_position_embeddings=64,
            rms_norm_eps=3e-4,
        rope_parameters=rope(10000), sliding_window=13, bos_token_id=1, eos_token_id=2,
        pad_token_id=None)
    return hf.Phi3Config(**{**shape, **changes})


def longrope(pairs, **more):
    short = [round(1.0 + 0.07 * i, 2) for i in range(pairs)]
    long = [round(1.1 + 0.9 * i * i / pairs, 3) for i in range(pairs)]
    return rope(10000, kind="longrope", short_factor=short, long_factor=long, **more)


def opt(**changes):
    shape = dict(
        hidden_size=36, num_attention_heads=3, ffn_dim=52, num_hidden_layers=2, vocab_size=95,
        max_position_embeddings=48, word_embed_proj_dim=36, do_layer_norm_before=True,
        pad_token_id=1, bos_token_id=2, eos_token_id=2)
    return hf.OPTConfig(**{**shape, **changes})


def gpt2(**changes):
    shape = dict(n_embd=36, n_head=3, n_inner=50, n_layer=2, vocab_size=94, n_positions=48,
                 layer_norm_epsilon=4e-4,
                 bos_token_id=0, eos_token_id=0)
    return hf.GPT2Config(**{**shape, **changes})


def moe(kind, **changes):
    """Mixtures of experts: odd numbers of experts, widths that end inside a panel."""
    shape = dict(
        hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=36,
        num_hidden_layers=2, vocab_size=93, max_position_embeddings=64, rms_norm_eps=3e-4,
        rope_parameters=rope(10000), tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        pad_token_id=None)
    return kind(**{**shape, **changes})


def gpt_oss(**changes):
    return moe(hf.GptOssConfig, **{**dict(
        hidden_size=64, head_dim=16, intermediate_size=32, num_local_experts=5,
        num_experts_per_tok=3, sliding_window=9, max_position_embeddings=128,
        rope_parameters=rope(150, kind="yarn", factor=4.0, beta_fast=2.0, beta_slow=1.0,
                             truncate=False, original_max_position_embeddings=32)), **changes})


def cases():
    """All of them, in the order of the table."""
    return [
        # Llama 2: every head has its own keys; old configuration file; F32.
        Case("llama2", llama(num_attention_heads=5, num_key_value_heads=5), legacy=True, gguf=True),
        # Llama 3.x: frequency factors of all three kinds (kept, blended, divided), tied, BF16.
        Case("llama3", llama(hidden_size=48, intermediate_size=68, num_hidden_layers=3,
                             vocab_size=101, tie_word_embeddings=True, max_position_embeddings=128,
                             rope_parameters=rope(100, kind="llama3", factor=8.0,
                                                  low_freq_factor=1.0, high_freq_factor=4.0,
                                                  original_max_position_embeddings=32)),
             storage="bfloat16", gguf=True),
        # TinyLlama: grouped heads, untied, F16.
        Case("tinyllama", llama(vocab_size=99), storage="float16"),
        # SmolLM2: three query heads on one key head, tied, large base.
        Case("smollm2", llama(hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
                              num_hidden_layers=3, tie_word_embeddings=True,
                              rope_parameters=rope(100000)),
             storage="bfloat16", legacy=True, gguf=True),
        # SmolLM3: the fourth layer does not rotate.
        Case("smollm3", hf.SmolLM3Config(
            hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=44,
            num_hidden_layers=5, vocab_size=90, max_position_embeddings=64, rms_norm_eps=4e-4,
            rope_parameters=rope(5000), tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
            pad_token_id=3), storage="float16", gguf=True),
        # Mistral: window of 11, head size that is not width / heads.
        Case("mistral", hf.MistralConfig(
            hidden_size=40, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
            intermediate_size=52, num_hidden_layers=3, vocab_size=97, max_position_embeddings=64,
            rms_norm_eps=3e-4,
            sliding_window=11, rope_parameters=rope(10000), bos_token_id=1, eos_token_id=2,
            pad_token_id=None), storage="bfloat16"),
        # Qwen 2: biases on q, k, v; several files.
        Case("qwen2", hf.Qwen2Config(
            hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=60,
            num_hidden_layers=2, vocab_size=105, max_position_embeddings=64, rms_norm_eps=2e-4,
            rope_parameters=rope(1e6), tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
            pad_token_id=None), storage="float16", shard="20KB", gguf=True),
        # Qwen 2 with windows from the second layer on.
        Case("qwen2-window", hf.Qwen2Config(
            hidden_size=32, num_attention_heads=4, num_key_value_heads=1, intermediate_size=36,
            num_hidden_layers=3, vocab_size=89, max_position_embeddings=64,
            use_sliding_window=True, sliding_window=10, max_window_layers=1,
            rope_parameters=rope(10000), tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
            pad_token_id=None), storage="bfloat16"),
        # Qwen 3: norms per head, head size of 20.
        Case("qwen3", hf.Qwen3Config(
            hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=20,
            intermediate_size=44, num_hidden_layers=2, vocab_size=103, max_position_embeddings=64,
            rms_norm_eps=5e-4,
            rope_parameters=rope(1e6), tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
            pad_token_id=None), storage="bfloat16", gguf=True),
        # Gemma 3: seven layers, so that both kinds occur; window of 9; two bases.
        Case("gemma3", gemma(), storage="bfloat16", gguf=True),
        # Gemma 3 as the larger ones are: linear scaling on global layers, a scale of its own.
        Case("gemma3-scaled", gemma(
            sliding_window_pattern=3, query_pre_attn_scalar=24, num_hidden_layers=4,
            rope_parameters={"full_attention": rope(1e5, kind="linear", factor=8.0),
                             "sliding_attention": rope(500)}), legacy=True),
        # Gemma 3 inside a model with vision: text_config, longer names, tensors to pass over.
        Case("gemma3-wrapped", gemma(sliding_window_pattern=2, num_hidden_layers=3),
             storage="bfloat16", wrapped=True),
        # Phi-3: fused q, k, v and gate, up; window of 13.
        Case("phi3", phi(), storage="float16", gguf=True),
        # LongRoPE within and past the original context; rotation of part of the head.
        Case("phi3-short", phi(rope_parameters=longrope(4, partial_rotary_factor=0.8),
                               original_max_position_embeddings=20, sliding_window=None,
                               partial_rotary_factor=0.8),
             storage="bfloat16", positions=20, gguf=True),
        Case("phi3-long", phi(rope_parameters=longrope(5), original_max_position_embeddings=20,
                              sliding_window=None), storage="float16", legacy=True, gguf=True),
        # GPT-2: learned positions, transposed weights, GELU by tanh.
        Case("gpt2", gpt2(), gguf=True),
        # … with the names and mask buffers of the hub's files.
        Case("gpt2-bare", gpt2(n_inner=None), storage="float16", bare_names=True),
        # OPT: ReLU, learned positions from the third row on.
        Case("opt", opt(), storage="float16"),
        # OPT-350m: norms behind the residual, embedding narrower than the hidden state.
        Case("opt-350m", opt(word_embed_proj_dim=20, do_layer_norm_before=False)),
        # RoPE scaling on Llama; biases everywhere in the first.
        Case("llama-linear", llama(attention_bias=True, mlp_bias=True,
                                   rope_parameters=rope(10000, kind="linear", factor=3.0)),
             storage="bfloat16", gguf=True),
        Case("llama-dynamic", llama(max_position_embeddings=16,
                                    rope_parameters=rope(1000, kind="dynamic", factor=4.0)),
             storage="bfloat16", stepwise=True),
        Case("llama-yarn", llama(hidden_size=60, num_attention_heads=3, num_key_value_heads=1,
                                 max_position_embeddings=128,
                                 rope_parameters=rope(50, kind="yarn", factor=4.0, beta_fast=2.0,
                                                      original_max_position_embeddings=32)),
             storage="float16", legacy=True, gguf=True),
        # Mixtral: two of five experts, softmax over these.
        Case("mixtral", moe(hf.MixtralConfig, num_local_experts=5, num_experts_per_tok=2),
             storage="bfloat16", gguf=True),
        # Qwen 2 MoE: weights that do not sum up to 1; a shared expert wider than the others.
        Case("qwen2-moe", moe(hf.Qwen2MoeConfig, num_experts=6, num_experts_per_tok=3,
                              moe_intermediate_size=20, shared_expert_intermediate_size=44),
             storage="float16", gguf=True),
        # … with a dense layer between; weights that do.
        Case("qwen2-moe-mixed", moe(hf.Qwen2MoeConfig, num_experts=6, num_experts_per_tok=2,
                                    moe_intermediate_size=20, shared_expert_intermediate_size=12,
                                    num_hidden_layers=3, mlp_only_layers=[1],
                                    norm_topk_prob=True), storage="bfloat16"),
        # Qwen 3 MoE: norms per head; eight experts, of which a row uses more than half.
        Case("qwen3-moe", moe(hf.Qwen3MoeConfig, head_dim=12, num_experts=8,
                              num_experts_per_tok=5, moe_intermediate_size=20,
                              norm_topk_prob=True), storage="bfloat16", gguf=True),
        # OLMoE: q and k normed over all heads.
        Case("olmoe", moe(hf.OlmoeConfig, num_experts=9, num_experts_per_tok=3,
                          intermediate_size=20), storage="float32", gguf=True),
        # Granite MoE: four multipliers, gate and up in one tensor.
        Case("granite-moe", moe(hf.GraniteMoeConfig, num_local_experts=5, num_experts_per_tok=2,
                                intermediate_size=20, embedding_multiplier=3.0,
                                attention_multiplier=0.2, residual_multiplier=0.4,
                                logits_scaling=2.5), storage="bfloat16", gguf=True),
        # gpt-oss: sinks, windows on every other layer, biases, YaRN that is not truncated.
        Case("gpt-oss", gpt_oss(), storage="bfloat16", gguf=True),
        # … with its experts in MXFP4.
        Case("gpt-oss-mxfp4", gpt_oss(intermediate_size=64, num_local_experts=3,
                                      num_experts_per_tok=2), storage="bfloat16", mxfp4=True),
    ]
