"""The GGUF of a Hugging Face model, by the conventions of llama.cpp's converter: interleaved
rotation for the llama family (rows of q and k permuted), Gemma's 1 + w added into the norms,
GPT-2's weights transposed, Llama 3's frequency factors and LongRoPE's factors as tensors."""
import math

import gguf
import numpy
import torch

RENAME = [
    ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"),
    ("transformer.wte", "token_embd"), ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
    ("model.layers.", "blk."), ("transformer.h.", "blk."),
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
    ("self_attn.qkv_proj", "attn_qkv"), ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_up_proj", "ffn_up"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"), ("input_layernorm", "attn_norm"),
    ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"), ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"), ("ln_1", "attn_norm"), ("ln_2", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"), ("pre_feedforward_layernorm", "ffn_norm"),
]
ARCHITECTURE = {"gemma3_text": "gemma3", "smollm3": "smollm3", "mixtral": "llama",
                "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
PERMUTED = ("llama", "smollm3", "granitemoe")
# Behind "model.layers.N."; of experts, all of a layer in one tensor.
EXPERTS = [
    ("block_sparse_moe.gate.", "ffn_gate_inp."), ("mlp.gate.", "ffn_gate_inp."),
    ("mlp.router.", "ffn_gate_inp."), ("block_sparse_moe.router.layer.", "ffn_gate_inp."),
    ("block_sparse_moe.router.", "ffn_gate_inp."),
    ("mlp.shared_expert_gate.", "ffn_gate_inp_shexp."),
    ("mlp.shared_expert.gate_proj.", "ffn_gate_shexp."),
    ("mlp.shared_expert.up_proj.", "ffn_up_shexp."),
    ("mlp.shared_expert.down_proj.", "ffn_down_shexp."),
    ("self_attn.sinks", "attn_sinks.weight"),
]


def expert_tensors(name, tensor, architecture):
    """Pairs of name and tensor in place of one that holds all experts of a layer."""
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    part = rest.split(".")[-1] if "experts" in rest else rest
    out = f"blk.{layer}.ffn_"
    if part in ("gate_up_proj", "gate_up_proj_bias", "block_sparse_moe.input_linear.weight"):
        kind = "bias" if part.endswith("bias") else "weight"
        if architecture == "gpt-oss":  # [experts][inputs][outputs], gate and up alternate
            gate, up = tensor[..., 0::2], tensor[..., 1::2]
            if kind == "weight":
                gate, up = gate.transpose(1, 2), up.transpose(1, 2)
        else:
            gate, up = tensor.chunk(2, dim=1)
        return [(f"{out}gate_exps.{kind}", gate), (f"{out}up_exps.{kind}", up)]
    if part in ("down_proj", "down_proj_bias", "block_sparse_moe.output_linear.weight"):
        kind = "bias" if part.endswith("bias") else "weight"
        if architecture == "gpt-oss" and kind == "weight":
            tensor = tensor.transpose(1, 2)
        return [(f"{out}down_exps.{kind}", tensor)]
    return None


def is_experts(name):
    return ".experts." in name or "_linear.weight" in name


def gguf_name(name, architecture):
    for old, new in EXPERTS:
        name = name.replace(old, new)
    for old, new in RENAME:
        name = name.replace(old, new)
    own = ("gemma3", "gpt-oss")  # gpt-oss's stands in front of its experts all the same
    after = "post_attention_norm" if architecture in own else "ffn_norm"
    return name.replace("post_attention_layernorm", after)


def permute(weight, heads):
    """Half-split pairs (i, i + n/2) become neighbours (2i, 2i + 1)."""
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(
        weight.shape)


def llama3_factors(config, pairs):
    scaling = config.rope_parameters
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    factors = []
    for i in range(pairs):
        wavelength = 2 * math.pi * scaling["rope_theta"] ** (i / pairs)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def write_rope(writer, config, head_size):
    scaling = config.rope_parameters
    if "full_attention" in scaling:
        writer.add_rope_freq_base(scaling["full_attention"]["rope_theta"])
        return
    rotary = int(head_size * scaling.get("partial_rotary_factor", 1.0))
    writer.add_rope_freq_base(scaling["rope_theta"])
    writer.add_rope_dimension_count(rotary)
    kind = scaling["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling.get("beta_fast", 32.0))
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rotary // 2))
    elif kind == "longrope":
        original = scaling["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight",
                              numpy.array(scaling[f"{which}_factor"], dtype=numpy.float32))


def write_experts(writer, config, architecture):
    count = getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0)
    if not count:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture in ("qwen2moe", "qwen3moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if architecture == "granitemoe":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def write_header(writer, config, architecture):
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    if architecture == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None):
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
    write_experts(writer, config, architecture)
    if architecture in ("gemma3", "phi3", "gpt-oss"):
        writer.add_sliding_window(config.sliding_window or 0)
    write_rope(writer, config, head_size)


def write_tensor(writer, name, tensor, storage):
    router = ".ffn_gate_inp." in name or name.endswith(".bias")
    if tensor.ndim == 1 or router or name.startswith("position_embd") or storage == "float32":
        writer.add_tensor(name, tensor.float().numpy())
    elif storage == "float16":
        writer.add_tensor(name, tensor.half().numpy())
    else:
        raw = tensor.bfloat16().contiguous().view(torch.uint8).numpy()
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)


def write(path, model, storage):
    """`model` holds numbers that `storage` can hold exactly."""
    config = model.config
    architecture = ARCHITECTURE.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, architecture)
    write_header(writer, config, architecture)
    tied = config.tie_word_embeddings
    for name, tensor in model.state_dict().items():
        if (tied and name == "lm_head.weight") or name.endswith((".attn.bias", "masked_bias")):
            continue
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            tensor = tensor.t()
        if architecture in PERMUTED and ".q_proj." in name:
            tensor = permute(tensor, config.num_attention_heads)
        if architecture in PERMUTED and ".k_proj." in name:
            tensor = permute(tensor, config.num_key_value_heads)
        if architecture == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor.float() + 1
        if is_experts(name):
            for own, part in expert_tensors(name, tensor, architecture):
                write_tensor(writer, own, part.contiguous(), storage)
            continue
        if name.endswith("shared_expert_gate.weight"):
            tensor = tensor.reshape(-1)
        write_tensor(writer, gguf_name(name, architecture), tensor, storage)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
