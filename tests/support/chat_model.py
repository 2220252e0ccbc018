"""A model with a chat template, small enough for every test: the weights are a fixture's; the
tokenizer is made here, one token per character."""
import json
import random
import shutil
import struct

from command import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "models" / "smollm2"  # 97 tokens, a context of 64
SPECIAL = ["<|pad|>", "<|user|>", "<|end|>", "<|system|>", "<|assistant|>"]
TEMPLATE = ("{% for m in messages %}"
            "{% if m.role == 'user' %}<|user|>{% else %}<|system|>{% endif %}"
            "{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def write_tokenizer(folder, vocabulary):
    added = [{"id": number, "content": piece, "special": True, "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False}
             for number, piece in enumerate(SPECIAL)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": []}}))


def write_model(folder, template=TEMPLATE, generation=None):
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(FIXTURE / name, folder / name)
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "`~"]
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *letters])}
    assert len(vocabulary) == 97
    write_tokenizer(folder, vocabulary)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if generation is None:
        (folder / "generation_config.json").unlink(missing_ok=True)
    else:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def byte_letters():
    """The 256 letters that stand for bytes in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (number for number in range(256) if number not in plain)
    return [chr(byte) for byte in plain] + [chr(256 + i) for i, _ in enumerate(others)]


def write_random_model(folder, width=32, layers=2, context=2048, seed=5):
    """A Llama with random weights that knows every byte, can chat, and does not come to an end by
    itself: the end's row of the head is zero, and the others are not. Weights repeat one block of
    random numbers."""
    generator = random.Random(seed)
    block = struct.pack("<4099f", *(generator.gauss(0, 1.5 / width ** 0.5) for _ in range(4099)))
    vocabulary = [*SPECIAL, *byte_letters()]
    shapes = {"model.embed_tokens": [len(vocabulary), width], "lm_head": [len(vocabulary), width],
              "model.norm": [width]}
    for layer in range(layers):
        place = f"model.layers.{layer}."
        shapes.update({place + f"self_attn.{name}_proj": [width, width] for name in "qkvo"})
        shapes.update({place + "mlp.gate_proj": [4 * width, width],
                       place + "mlp.up_proj": [4 * width, width],
                       place + "mlp.down_proj": [width, 4 * width],
                       place + "input_layernorm": [width],
                       place + "post_attention_layernorm": [width]})
    header, parts, at = {}, [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data = (block * (count // 4099 + 1))[:4 * count]
        if len(shape) == 1:
            data = struct.pack("<f", 1.0) * count
        if name == "lm_head":
            rest = count - len(SPECIAL) * width
            data = bytes(4 * len(SPECIAL) * width) + struct.pack(
                f"<{rest}f", *(generator.gauss(0, 1.0) for _ in range(rest)))
        header[name + ".weight"] = {"dtype": "F32", "shape": shape,
                                    "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(parts))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
        "intermediate_size": 4 * width, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": width // 4, "vocab_size": len(vocabulary),
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 0, "eos_token_id": 2}))
    write_tokenizer(folder, {piece: number for number, piece in enumerate(vocabulary)})
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "chat_template": TEMPLATE}))
    return folder
