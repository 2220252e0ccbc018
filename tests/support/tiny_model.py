"""Writes a tiny llama2.c model with its tokenizer: random weights, a vocabulary of bytes."""
import json
import random
import struct
from pathlib import Path

WIDTH, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, CONTEXT = 32, 64, 2, 4, 2, 128
PIECES = [" the", " a", "once", "upon", " time"]


def write(folder, seed=1):
    """Makes model.bin and tokenizer.bin in a folder and returns the model's path."""
    folder = Path(folder)
    generator = random.Random(seed)
    tokens = ["<unk>", "\n<s>\n", "\n</s>\n"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [chr(code) for code in range(32, 127)] + PIECES
    vocabulary = len(tokens)
    kv_width = WIDTH // HEADS * KV_HEADS
    head_size = WIDTH // HEADS

    def weights(count, scale):
        return struct.pack(f"<{count}f", *(generator.gauss(0, scale) for _ in range(count)))

    def ones(count):
        return struct.pack(f"<{count}f", *([1.0] * count))

    with open(folder / "model.bin", "wb") as file:
        file.write(struct.pack("<7i", WIDTH, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, vocabulary,
                               CONTEXT))
        file.write(weights(vocabulary * WIDTH, 0.5))                    # embedding, and head
        file.write(ones(LAYERS * WIDTH))                                # attention norm
        file.write(weights(LAYERS * WIDTH * WIDTH, 0.2))                # query
        file.write(weights(LAYERS * WIDTH * kv_width, 0.2))             # key
        file.write(weights(LAYERS * WIDTH * kv_width, 0.2))             # value
        file.write(weights(LAYERS * WIDTH * WIDTH, 0.2))                # output
        file.write(ones(LAYERS * WIDTH))                                # feed-forward norm
        for _ in range(3):                                              # gate, down, up
            file.write(weights(LAYERS * WIDTH * FEED_FORWARD, 0.2))
        file.write(ones(WIDTH))                                         # final norm
        file.write(ones(CONTEXT * head_size // 2 * 2))                  # old tables of angles
    with open(folder / "tokenizer.bin", "wb") as file:
        file.write(struct.pack("<i", max(len(token) for token in tokens)))
        for number, token in enumerate(tokens):
            data = token.encode()
            file.write(struct.pack("<fi", float(-number), len(data)) + data)
    return folder / "model.bin"


def write_adapter(folder, seed, rank=4, layers=2, width=32, spread=0.4):
    """A PEFT folder with random A and B of q_proj and o_proj."""
    folder.mkdir()
    generator = random.Random(seed)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "o_proj"], "bias": "none"}))
    header, data = {}, b""
    for layer in range(layers):
        for module in ("q_proj", "o_proj"):
            for half, shape in (("lora_A", [rank, width]), ("lora_B", [width, rank])):
                count = shape[0] * shape[1]
                numbers = struct.pack(f"<{count}f",
                                      *(generator.gauss(0, spread) for _ in range(count)))
                name = f"base_model.model.model.layers.{layer}.self_attn.{module}.{half}.weight"
                header[name] = {"dtype": "F32", "shape": shape,
                                "data_offsets": [len(data), len(data) + len(numbers)]}
                data += numbers
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
