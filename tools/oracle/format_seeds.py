#!/usr/bin/env python3
"""Writes the seeds of the model file fuzzers, fuzz/corpus/{gguf,llama2c,safetensors,config_hf}.

Only the standard library. The configurations are those of tests/fixtures/models, compact.
"""
import json
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz" / "corpus"


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_value(value):
    kind, data = value
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
               12: "d"}
    if kind == 8:
        return gguf_string(data)
    if kind == 9:
        item, items = data
        return struct.pack("<IQ", item, len(items)) + b"".join(gguf_value((item, i)) for i in items)
    return struct.pack("<" + formats[kind], data)


def gguf(path, version, values, tensors, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    for key, value in values.items():
        out += gguf_string(key) + struct.pack("<I", value[0]) + gguf_value(value)
    offset = 0
    for name, shape, kind, size in tensors:
        out += gguf_string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", kind, offset)
        offset += (size + alignment - 1) // alignment * alignment
    out += b"\0" * (-len(out) % alignment)
    path.write_bytes(out + bytes(i % 251 for i in range(offset)))


def model_values(name, **more):
    values = {"general.architecture": (8, name)}
    for key, number in {"block_count": 1, "context_length": 16, "embedding_length": 32,
                        "feed_forward_length": 32, "attention.head_count": 2}.items():
        values[f"{name}.{key}"] = (4, number)
    norm = "layer_norm_epsilon" if name == "gpt2" else "layer_norm_rms_epsilon"
    values[f"{name}.attention.{norm}"] = (6, 1e-5)
    values.update({key.replace("__", "."): value for key, value in more.items()})
    return values


def write_gguf(folder):
    embedding = [("token_embd.weight", (32, 4), 8, 136), ("output_norm.weight", (32,), 0, 128)]
    tokenizer = {
        "tokenizer.ggml.model": (8, "llama"),
        "tokenizer.ggml.tokens": (9, (8, ["<s>", "</s>", "<|im_end|>", "a"])),
        "tokenizer.ggml.scores": (9, (6, [0.0, -1.0, -2.0, -3.0])),
        "tokenizer.ggml.token_type": (9, (5, [3, 3, 3, 1])),
        "tokenizer.ggml.eos_token_id": (4, 1), "tokenizer.chat_template": (8, "{{ x }}"),
    }
    gguf(folder / "llama", 3, {**model_values("llama", llama__rope__freq_base=(6, 1e4),
                                              llama__attention__head_count_kv=(4, 1)),
                               **tokenizer}, embedding)
    gguf(folder / "llama-v2-yarn", 2,
         model_values("llama", llama__rope__scaling__type=(8, "yarn"),
                      llama__rope__scaling__factor=(6, 4.0),
                      llama__rope__scaling__original_context_length=(4, 8)), embedding)
    gguf(folder / "gemma3", 3,
         model_values("gemma3", gemma3__attention__sliding_window=(4, 8),
                      gemma3__attention__key_length=(4, 16),
                      gemma3__attention__value_length=(4, 16),
                      gemma3__attention__sliding_window_pattern=(9, (7, [True]))), embedding)
    gguf(folder / "phi3", 3,
         model_values("phi3", phi3__rope__scaling__original_context_length=(4, 8)),
         embedding + [("rope_factors_long.weight", (8,), 0, 32),
                      ("rope_factors_short.weight", (8,), 0, 32)])
    gguf(folder / "gpt2", 3, model_values("gpt2"),
         embedding + [("position_embd.weight", (32, 16), 1, 1024)])
    every = {f"test.{kind}": (kind, 1) for kind in (0, 1, 2, 3, 4, 5, 6, 10, 11, 12)}
    every["test.7"] = (7, True)
    every["test.9"] = (9, (9, [(0, [1, 2]), (8, ["deep"])]))
    gguf(folder / "types", 3, {**model_values("smollm3"), **every}, embedding)
    gguf(folder / "aligned", 3, {**model_values("qwen3"), "general.alignment": (4, 64),
                                 "split.count": (2, 1), "split.no": (2, 0)}, embedding, 64)


def write_llama2c(folder):
    for name, vocabulary in (("tied", 5), ("untied", -5)):
        floats = 5 * 8 + (8 + 64 + 32 + 32 + 64 + 8 + 96 * 3) + 8 + 2 * 6 * 2
        floats += 40 if vocabulary < 0 else 0
        header = struct.pack("<7i", 8, 12, 1, 2, 1, vocabulary, 6)
        (folder / name).write_bytes(header + struct.pack(f"<{floats}f", *range(floats)))


def write_safetensors(folder):
    def write(name, entries, data):
        header = json.dumps(entries, separators=(",", ":")).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(data))

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    write("empty", {}, 0)
    write("three", {"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24),
                    "b": entry("BF16", [4], 24, 32), "c": entry("BOOL", [], 32, 33)}, 33)
    names = ["F64", "F16", "F8_E4M3", "F8_E5M2", "I8", "U8", "I16", "U16", "I32", "U32", "I64",
             "U64"]
    sizes = [8, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8]
    begin, entries = 0, {}
    for dtype, size in zip(names, sizes):
        entries[dtype] = entry(dtype, [1], begin, begin + size)
        begin += size
    write("dtypes", entries, begin)


def write_configs(folder):
    for path in sorted((ROOT / "tests" / "fixtures" / "models").glob("*/config.json")):
        config = json.loads(path.read_text())
        text = json.dumps(config, separators=(",", ":"))
        (folder / path.parent.name).write_bytes(b"\0" + text.encode())
    (folder / "gemma3-vision").write_bytes(
        b'\0{"model_type":"gemma3","eos_token_id":[1,106],"text_config":{"hidden_size":32}}')
    (folder / "generation").write_bytes(
        b'\1{"bos_token_id":1,"eos_token_id":[2,3],"temperature":0.6,"top_p":0.9,"top_k":20,'
        b'"min_p":0.1,"typical_p":1,"repetition_penalty":1.1,"do_sample":true}')
    (folder / "tokenizer").write_bytes(
        b'\2{"chat_template":[{"name":"default","template":"{{ x }}"}]}')
    (folder / "index").write_bytes(b'\3{"weight_map":{"a":"m-1-of-1.safetensors"}}')


def main():
    for name, write in (("gguf", write_gguf), ("llama2c", write_llama2c),
                        ("safetensors", write_safetensors), ("config_hf", write_configs)):
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)


if __name__ == "__main__":
    main()
