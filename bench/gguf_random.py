#!/usr/bin/env python3
"""Writes a GGUF file with random weights in a known shape: size without sense, for measurements.

usage: bench/gguf_random.py SHAPE TYPE FILE     (TYPE: q4_0, q4_1, q4_k_s, q8_0, f16)
       bench/gguf_random.py SHAPE lora FILE --rank 32 --targets qv|qkvo|all     an adapter in f16

Needs nothing but Python. Types per tensor are those that llama.cpp's own quantiser chooses for
that file type; the values are random blocks with scales that keep activations finite.
"""
import argparse
import math
import os
import random
import struct

# layers, width, feed-forward, heads, kv heads, vocabulary, context, rope base, tied
SHAPES = {
    "tiny": (2, 64, 96, 4, 2, 100, 256, 1e4, False),
    "smollm2-135m": (30, 576, 1536, 9, 3, 49152, 8192, 1e5, True),
    "tinyllama-1.1b": (22, 2048, 5632, 32, 4, 32000, 2048, 1e4, False),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 128256, 131072, 5e5, True),
    "llama-3.1-8b": (32, 4096, 14336, 32, 8, 128256, 131072, 5e5, False),
    "olmoe-1b-7b": (16, 2048, 1024, 16, 16, 50304, 4096, 1e4, False),
    "qwen3-30b-a3b": (48, 2048, 768, 32, 4, 151936, 40960, 1e6, False),
}
# Architecture in GGUF, experts, experts of a token; `feed-forward` is an expert's.
EXPERTS = {"olmoe-1b-7b": ("olmoe", 64, 8), "qwen3-30b-a3b": ("qwen3moe", 128, 8)}
HEAD_SIZES = {"qwen3-30b-a3b": 128}  # else width / heads
# number in GGUF, elements and bytes of a block, deviation of the block's integers
TYPES = {"f32": (0, 1, 4, 0), "f16": (1, 1, 2, 0), "q4_0": (2, 32, 18, 4.6),
         "q4_1": (3, 32, 20, 4.6),
         "q8_0": (8, 32, 34, 73.0), "q4_k": (12, 256, 144, 4.6 * 31),
         "q5_k": (13, 256, 176, 9.2 * 31), "q6_k": (14, 256, 210, 18.5 * 60)}
FILE_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k_s": 14}
ALIGNMENT = 32
PIECE = 1 << 22


def half(number):
    return struct.pack("<e", number)


def random_blocks(kind, blocks, k, generator):
    """`blocks` blocks of a type: random numbers, every scale the same."""
    _, _, size, deviation = TYPES[kind]
    data = bytearray(generator.randbytes(blocks * size))
    scale = half(1 / math.sqrt(k) / deviation) if deviation else b""

    def put(offset, what):
        for i, byte in enumerate(what):
            data[offset + i::size] = bytes([byte]) * blocks

    if kind in ("q4_0", "q8_0"):
        put(0, scale)
    elif kind == "q4_1":  # numbers 0 … 15 and a minimum that centres them
        put(0, scale + half(-7.5 / math.sqrt(k) / deviation))
    elif kind in ("q4_k", "q5_k"):
        put(0, scale + half(0))
    elif kind == "q6_k":
        put(208, scale)
    elif kind == "f16":  # sign and mantissa random, the exponent near 1 / √k
        exponent = max(1, 15 + round(math.log2(1 / math.sqrt(k))))
        data[1::2] = bytes((byte & 0x83) | exponent << 2 for byte in data[1::2])
    return bytes(data)


def tensors_of(shape, file_type):
    """(name, type, rows, k) in the order of a forward pass."""
    layers, width, inner, heads, kv_heads, vocabulary, _, _, tied = SHAPES[shape]
    size = HEAD_SIZES.get(shape, width // heads)
    query, kv = size * heads, size * kv_heads
    own, experts, _ = EXPERTS.get(shape, ("llama", 1, 0))
    base = {"q4_k_s": "q4_k"}.get(file_type, file_type)

    def fits(kind, k):
        """Super-blocks need a multiple of 256; others fall back as llama.cpp's quantiser does."""
        if k % TYPES[kind][1] == 0:
            return kind
        return {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}.get(kind, "f16")

    def more(layer):
        return "q5_k" if file_type == "q4_k_s" and layer < layers // 8 else base

    head = {"q4_0": "q6_k", "q4_1": "q6_k", "q4_k_s": "q6_k"}.get(file_type, base)
    found = [("token_embd.weight", fits(head if tied else base, width), vocabulary, width)]
    for layer in range(layers):
        value = "q5_k" if file_type == "q4_k_s" and layer < 4 else base
        parts = [("attn_norm", "f32", 1, width), ("attn_q", base, query, width),
                 ("attn_k", base, kv, width), ("attn_v", value, kv, width),
                 ("attn_output", base, width, query), ("ffn_norm", "f32", 1, width)]
        stacked = "_exps" if shape in EXPERTS else ""
        if stacked:
            whole = own == "olmoe"  # its norms of q and k are over all heads
            parts += [("attn_q_norm", "f32", 1, query if whole else size),
                      ("attn_k_norm", "f32", 1, kv if whole else size),
                      ("ffn_gate_inp", "f32", experts, width)]
        parts += [(f"ffn_gate{stacked}", base, experts * inner, width),
                  (f"ffn_up{stacked}", base, experts * inner, width),
                  (f"ffn_down{stacked}", more(layer), experts * width, inner)]
        for part, kind, rows, k in parts:
            kind = kind if kind == "f32" else fits(kind, k)
            found.append((f"blk.{layer}.{part}.weight", kind, rows, k))
    found.append(("output_norm.weight", "f32", 1, width))
    if not tied:
        found.append(("output.weight", fits(head, width), vocabulary, width))
    return found


TARGETS = {"qv": ("attn_q", "attn_v"), "qkvo": ("attn_q", "attn_k", "attn_v", "attn_output")}


def adapter_tensors(shape, rank, targets):
    """A and B of the matrices that are adapted, as tensors_of has theirs."""
    wanted = TARGETS.get(targets)
    found = []
    for name, kind, rows, k in tensors_of(shape, "f16"):
        part = name.split(".")[2] if name.startswith("blk.") else None
        if kind == "f32" or part is None or (wanted and part not in wanted):
            continue
        found += [(f"{name}.lora_a", "f16", rank, k), (f"{name}.lora_b", "f16", rows, rank)]
    return found


def adapter_metadata(rank):
    pairs = [("general.architecture", struct.pack("<I", 8) + text("llama")),
             ("general.type", struct.pack("<I", 8) + text("adapter")),
             ("adapter.type", struct.pack("<I", 8) + text("lora")),
             ("adapter.lora.alpha", struct.pack("<If", 6, 2.0 * rank))]
    return len(pairs), b"".join(text(key) + value for key, value in pairs)


def text(string):
    data = string.encode()
    return struct.pack("<Q", len(data)) + data


def metadata_of(shape, file_type):
    layers, width, inner, heads, kv_heads, vocabulary, context, base, _ = SHAPES[shape]
    own, experts, used = EXPERTS.get(shape, ("llama", 0, 0))
    size = HEAD_SIZES.get(shape, width // heads)
    number = {"u32": lambda n: struct.pack("<II", 4, n), "f32": lambda n: struct.pack("<If", 6, n)}
    pairs = [("general.architecture", struct.pack("<I", 8) + text(own)),
             ("general.name", struct.pack("<I", 8) + text(f"random {shape} {file_type}")),
             ("general.file_type", number["u32"](FILE_TYPES[file_type])),
             (f"{own}.block_count", number["u32"](layers)),
             (f"{own}.context_length", number["u32"](context)),
             (f"{own}.embedding_length", number["u32"](width)),
             (f"{own}.feed_forward_length", number["u32"](inner)),
             (f"{own}.attention.head_count", number["u32"](heads)),
             (f"{own}.attention.head_count_kv", number["u32"](kv_heads)),
             (f"{own}.attention.layer_norm_rms_epsilon", number["f32"](1e-5)),
             (f"{own}.rope.dimension_count", number["u32"](size)),
             (f"{own}.rope.freq_base", number["f32"](base)),
             (f"{own}.vocab_size", number["u32"](vocabulary)),
             ("tokenizer.ggml.model", struct.pack("<I", 8) + text("no_vocab"))]
    if experts > 0:
        pairs += [(f"{own}.expert_count", number["u32"](experts)),
                  (f"{own}.expert_used_count", number["u32"](used)),
                  (f"{own}.expert_feed_forward_length", number["u32"](inner))]
    if shape in HEAD_SIZES:
        pairs += [(f"{own}.attention.key_length", number["u32"](size)),
                  (f"{own}.attention.value_length", number["u32"](size))]
    return len(pairs), b"".join(text(key) + value for key, value in pairs)


def size_of(kind, rows, k):
    _, elements, size, _ = TYPES[kind]
    return rows * k // elements * size


def pad(count):
    return -count % ALIGNMENT


def write_tensor(file, kind, rows, k, generator):
    if kind == "f32" and rows > 1:  # a router
        numbers = [generator.gauss(0, k ** -0.5) for _ in range(rows * k)]
        file.write(struct.pack(f"<{rows * k}f", *numbers))
        return
    if kind == "f32":  # norms
        file.write(struct.pack("<f", 1.0) * (rows * k))
        return
    _, elements, size, _ = TYPES[kind]
    left = rows * k // elements
    while left > 0:
        blocks = min(left, PIECE // size)
        file.write(random_blocks(kind, blocks, k, generator))
        left -= blocks


def write(shape, file_type, path, seed=1):
    tensors = tensors_of(shape, file_type)
    unknown = {kind for _, kind, _, _ in tensors} - set(TYPES)
    if unknown:
        raise SystemExit(f"gguf_random: {file_type} of {shape} needs {sorted(unknown)}, which "
                         "this does not write")
    experts = EXPERTS.get(shape, ("llama", 1, 0))[1]
    write_file(tensors, metadata_of(shape, file_type), path, seed, experts)


def write_adapter(shape, rank, targets, path, seed=1):
    write_file(adapter_tensors(shape, rank, targets), adapter_metadata(rank), path, seed)


def dimensions(name, kind, rows, k, experts):
    """Innermost first."""
    if "_exps" in name:
        return (k, rows // experts, experts)
    return (k,) if kind == "f32" and rows == 1 else (k, rows)


def write_file(tensors, head, path, seed, experts=1):
    """The file appears under its name whole or not at all."""
    generator = random.Random(seed)
    count, metadata = head
    infos, offset = b"", 0
    for name, kind, rows, k in tensors:
        sizes = dimensions(name, kind, rows, k, experts)
        infos += text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        infos += struct.pack("<IQ", TYPES[kind][0], offset)
        offset += size_of(kind, rows, k)
        offset += pad(offset)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + metadata + infos
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(head + bytes(pad(len(head))))
        for _, kind, rows, k in tensors:
            write_tensor(file, kind, rows, k, generator)
            file.write(bytes(pad(size_of(kind, rows, k))))
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser(prog="bench/gguf_random.py",
                                     description="a GGUF file with random weights")
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("type", choices=sorted(FILE_TYPES) + ["lora"])
    parser.add_argument("file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=32, help="of lora (32)")
    parser.add_argument("--targets", choices=["qv", "qkvo", "all"], default="qv", help="of lora")
    given = parser.parse_args()
    if given.type == "lora":
        write_adapter(given.shape, given.rank, given.targets, given.file, given.seed)
        return
    write(given.shape, given.type, given.file, given.seed)


if __name__ == "__main__":
    main()
