"""Writes the models and adapters of tests/golden/answers.py. Weights are random integers scaled by
powers of two, so that every machine and Python version writes the same bytes."""
import json
import os
import random
import shutil
import struct
import sys

from chat_model import SPECIAL, write_model, write_tokenizer
from command import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import gguf_random  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures"
FOLDERS = sorted(path.name for path in (FIXTURES / "models").iterdir() if path.is_dir())
GGUFS = sorted(path.name for path in (FIXTURES / "models").glob("*.gguf"))
QUANTISED = {"f16": "f16", "q4_0": "q4_0", "q4_1": "q4_1", "q8_0": "q8_0", "q4_k": "q4_k_s"}
gguf_random.SHAPES["golden"] = (2, 256, 512, 8, 4, 64, 128, 1e4, False)
CHAT_TEMPLATE = ("{% for m in messages %}{% if m.role == 'user' %}<|user|>"
                 "{% elif m.role == 'assistant' %}<|assistant|>{% else %}<|system|>{% endif %}"
                 "{{ m.content }}<|end|>{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}")
# Shows everything that a template can see, so that every byte of it changes the answer.
SHOWING_TEMPLATE = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}<|user|>"
    "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}{% if m.tool_call_id is defined %}#{{ m.tool_call_id }}{% endif %}"
    "{% if m.name is defined %}@{{ m.name }}{% endif %}<|end|>{% endfor %}"
    "[{{ a }}|{{ b | default([]) | tojson }}|{{ c }}|{{ d }}|"
    "{% if enable_thinking %}T{% else %}F{% endif %}]"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
TEXT = ("The avocet feeds by touch, sweeping its bill through shallow water. It eats small animals "
        "of the mud; when the tide is out, it walks far from the shore. ") * 6


def byte_letter(byte):
    """The character for a byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in plain:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in plain].index(byte))


LETTERS = [byte_letter(byte) for byte in range(256)]


def spelled(text):
    return "".join(LETTERS[byte] for byte in text.encode())


def ids_of(model):
    """The token ids of a fixture model, from its ids.npy."""
    data = (FIXTURES / "models" / model.removesuffix(".gguf") / "ids.npy").read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return list(struct.unpack(f"<{(len(data) - start) // 4}i", data[start:]))


def numbers(seed, count, spread):
    """Random F32 values in [-spread, spread), exact in binary: spread is a power of two."""
    generator = random.Random(seed)
    return struct.pack(f"<{count}f", *((generator.getrandbits(16) - 32768) * spread / 32768
                                       for _ in range(count)))


def write_safetensors(path, tensors):
    """`tensors` maps a name to its shape and F32 bytes."""
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(data for _, data in tensors.values()))


def write_llama(folder, vocabulary, width, inner, layers, context, weights, template,
                heads=4, kv_heads=2):
    """A Llama with a byte-level tokenizer. `weights(name, rows, columns)` returns F32 bytes."""
    size = width // heads
    shapes = {"model.embed_tokens": (len(vocabulary), width), "lm_head": (len(vocabulary), width)}
    norms = ["model.norm"]
    for layer in range(layers):
        place = f"model.layers.{layer}."
        shapes.update({place + "self_attn.q_proj": (width, width),
                       place + "self_attn.k_proj": (kv_heads * size, width),
                       place + "self_attn.v_proj": (kv_heads * size, width),
                       place + "self_attn.o_proj": (width, width),
                       place + "mlp.gate_proj": (inner, width),
                       place + "mlp.up_proj": (inner, width),
                       place + "mlp.down_proj": (width, inner)})
        norms += [place + "input_layernorm", place + "post_attention_layernorm"]
    tensors = {f"{name}.weight": (list(shape), weights(name, *shape))
               for name, shape in shapes.items()}
    tensors.update({f"{name}.weight": ([width], struct.pack("<f", 1.0) * width) for name in norms})
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": size, "vocab_size": len(vocabulary),
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 0, "eos_token_id": 2}))
    write_tokenizer(folder, {piece: number for number, piece in enumerate(vocabulary)})
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "chat_template": template}))
    return folder


def write_bytes_model(folder, template=CHAT_TEMPLATE, seed=11):
    """Random weights, one token per byte, a context of several KV pages."""
    def weights(name, rows, columns):
        spread = {"lm_head": 0.5, "model.embed_tokens": 2.0}.get(name, 0.25)
        return numbers(f"{seed} {name}", rows * columns, spread)
    return write_llama(folder, [*SPECIAL, *LETTERS], 64, 128, 2, 1024, weights, template)


def write_adapter(folder, seed, rank, layers=2, width=64):
    """A random LoRA adapter (PEFT folder) on q_proj and o_proj of the bytes model."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "o_proj"], "bias": "none"}))
    tensors = {}
    for layer in range(layers):
        for module in ("q_proj", "o_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}."
            tensors[name + "lora_A.weight"] = [rank, width], numbers(f"{seed} {name}A",
                                                                     rank * width, 0.5)
            tensors[name + "lora_B.weight"] = [width, rank], numbers(f"{seed} {name}B",
                                                                     rank * width, 0.5)
    write_safetensors(folder / "adapter_model.safetensors", tensors)


# ---- Scripted models ----

def pieces_of(text, used):
    """Splits a text into pieces of at least two characters that are not in `used` yet."""
    found, at = [], 0
    while at < len(text):
        size = 2
        while text[at:at + size] in used and at + size < len(text):
            size += 1
        piece = text[at:at + size]
        if piece in used or len(piece) < 2:  # join the rest to the last piece
            piece = found.pop() + piece
            used.discard(piece)
            at = len(text)
        assert piece not in used, piece
        used.add(piece)
        found.append(piece)
        at += size
    return found


def write_scripted(folder, scripts, template, markers=()):
    """A model that answers with fixed texts: the last letter of the prompt selects the script, and
    each piece of a script has exactly one successor, the last one the end token. `scripts` maps a
    letter to a text, or to a list of texts and special tokens (`markers`)."""
    vocabulary = [*SPECIAL, *markers, *LETTERS]
    follow, used = {}, set()
    for letter, script in scripts.items():
        before = letter
        for part in [script] if isinstance(script, str) else script:
            for piece in [part] if part in markers else pieces_of(part, used):
                name = piece if piece in markers else spelled(piece)
                vocabulary += [] if piece in markers else [name]
                follow[before] = name
                before = name
        follow[before] = "<|end|>"
    number = {piece: index for index, piece in enumerate(vocabulary)}
    states = {piece: index + 1 for index, piece in enumerate(follow)}  # 0: all other tokens
    width = -(-(len(states) + 1) // 8) * 8

    def weights(name, rows, columns):
        cells = [0.0] * (rows * columns)
        if name == "model.embed_tokens":
            for piece, row in number.items():
                cells[row * columns + states.get(piece, 0)] = 1.0
        elif name == "lm_head":
            for piece, next_piece in follow.items():
                cells[number[next_piece] * columns + states[piece]] = 4.0
            cells[number["<|end|>"] * columns] = 4.0
        return struct.pack(f"<{len(cells)}f", *cells)
    write_llama(folder, vocabulary, width, 8, 1, 2048, weights, template, heads=4, kv_heads=4)
    if markers:
        add_markers(folder, markers, number)


def add_markers(folder, markers, number):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["added_tokens"] += [
        {"id": number[piece], "content": piece, "special": True, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False} for piece in markers]
    path.write_text(json.dumps(tokenizer))


def write_all(scratch, scripted):
    """Writes all models that need no `avocet pack`. `scripted` maps a name to (scripts, template,
    markers). Answers contain the paths of models and adapters, so jobs run in `scratch` and use
    relative paths."""
    os.symlink(FIXTURES / "models", scratch / "models")
    os.symlink(FIXTURES / "adapters", scratch / "adapters")
    os.symlink(FIXTURES / "tokenizer", scratch / "tokenizers")
    (scratch / "letters").mkdir()
    write_model(scratch / "letters", template=CHAT_TEMPLATE)
    shutil.copytree(scratch / "letters", scratch / "sampling")
    (scratch / "sampling" / "generation_config.json").write_text(json.dumps(
        {"do_sample": True, "temperature": 0.75, "top_k": 40, "eos_token_id": [2, 66]}))
    write_bytes_model(scratch / "bytes")
    write_bytes_model(scratch / "showing", SHOWING_TEMPLATE)
    write_adapter(scratch / "one", 1, 4)
    write_adapter(scratch / "two", 2, 8)
    for name, (scripts, template, markers) in scripted.items():
        write_scripted(scratch / name, scripts, template, markers)
    for name, kind in QUANTISED.items():
        gguf_random.write("golden", kind, str(scratch / f"random-{name}.gguf"), 3)
    (scratch / "text.txt").write_text(TEXT)
