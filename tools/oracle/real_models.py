"""Real weights as transformers models: a llama2.c file, or a GGUF's own weights decoded to F32."""
import math

import gguf
import numpy
import torch
import transformers as hf

LLAMA = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA3 = {
    **LLAMA, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def half_split(weight, heads):
    """Neighbouring pairs (2i, 2i + 1) back to halves (i, i + n/2)."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(
        weight.shape)


def build(config, tensors):
    """A model with exactly these weights; a name too many or too few is an error."""
    config._attn_implementation = "eager"
    model = hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    state = {name: torch.from_numpy(numpy.array(t)) for name, t in tensors.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


def load_llama2c(path):
    """Seven int32, then F32 tensors: see karpathy/llama2.c, export of version 0."""
    header = numpy.fromfile(path, dtype="<i4", count=7)
    width, hidden, layers, heads, kv_heads, vocabulary, context = map(int, header)
    data = numpy.memmap(path, dtype="<f4", mode="r", offset=28)
    size, at = width // heads, 0

    def take(*shape):
        nonlocal at
        count = math.prod(shape)
        at += count
        return data[at - count:at].reshape(shape)

    tied, vocabulary = vocabulary > 0, abs(vocabulary)
    tensors = {"model.embed_tokens.weight": take(vocabulary, width)}
    parts = [("input_layernorm", (width,)), ("self_attn.q_proj", (heads * size, width)),
             ("self_attn.k_proj", (kv_heads * size, width)),
             ("self_attn.v_proj", (kv_heads * size, width)),
             ("self_attn.o_proj", (width, heads * size)), ("post_attention_layernorm", (width,)),
             ("mlp.gate_proj", (hidden, width)), ("mlp.down_proj", (width, hidden)),
             ("mlp.up_proj", (hidden, width))]
    for part, shape in parts:
        for layer in range(layers):
            tensor = take(*shape)
            if part.endswith(("q_proj", "k_proj")):
                tensor = half_split(tensor, shape[0] // size)
            tensors[f"model.layers.{layer}.{part}.weight"] = tensor
    tensors["model.norm.weight"] = take(width)
    take(2, context, size // 2)  # rotation tables that nobody reads any more
    if not tied:
        tensors["lm_head.weight"] = take(vocabulary, width)
    assert at == data.size, f"{path}: {data.size - at} numbers left over"
    config = hf.LlamaConfig(
        hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocabulary,
        max_position_embeddings=context, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    return build(config, tensors)


def gguf_config(architecture, number):
    heads = number("attention.head_count")
    width = number("embedding_length")
    shape = dict(
        hidden_size=width, intermediate_size=number("feed_forward_length"),
        num_hidden_layers=number("block_count"), num_attention_heads=heads,
        num_key_value_heads=number("attention.head_count_kv"),
        head_dim=number("attention.key_length", width // heads),
        max_position_embeddings=number("context_length"),
        rms_norm_eps=number("attention.layer_norm_rms_epsilon"))
    base = number("rope.freq_base", 10000.0)
    if architecture == "llama":
        return hf.LlamaConfig(**shape, rope_parameters={"rope_theta": base, "rope_type": "default"})
    if architecture == "gemma3":
        return hf.Gemma3TextConfig(
            **shape, sliding_window=number("attention.sliding_window"),
            query_pre_attn_scalar=shape["head_dim"],
            rope_parameters={"full_attention": {"rope_theta": base, "rope_type": "default"},
                             "sliding_attention": {"rope_theta": number("rope.freq_base_swa", 1e4),
                                                   "rope_type": "default"}})
    raise SystemExit(f"no oracle for GGUF architecture {architecture}")


def load_gguf(path):
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()

    def number(key, default=None):
        field = reader.fields.get(f"{architecture}.{key}")
        return field.contents() if field is not None else default

    config = gguf_config(architecture, number)
    decoded = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    config.vocab_size = decoded["token_embd.weight"].shape[0]
    config.tie_word_embeddings = "output.weight" not in decoded
    tensors = {"model.embed_tokens.weight": decoded.pop("token_embd.weight"),
               "model.norm.weight": decoded.pop("output_norm.weight")}
    if not config.tie_word_embeddings:
        tensors["lm_head.weight"] = decoded.pop("output.weight")
    for layer in range(config.num_hidden_layers):
        for ours, theirs in (GEMMA3 if architecture == "gemma3" else LLAMA).items():
            tensor = decoded.pop(f"blk.{layer}.{theirs}.weight")
            if architecture == "llama" and ours.endswith(("q_proj", "k_proj")):
                tensor = half_split(tensor, tensor.shape[0] // config.head_dim)
            tensors[f"model.layers.{layer}.{ours}.weight"] = tensor
    assert not decoded, f"{path}: tensors nobody asked for: {sorted(decoded)[:5]}"
    if architecture == "gemma3":
        for name in tensors:
            if name.endswith("norm.weight"):
                tensors[name] = tensors[name] - 1  # the converter added 1
    return build(config, tensors)
