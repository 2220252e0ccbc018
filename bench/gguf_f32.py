#!/usr/bin/env python3
"""A GGUF file of F32 for bench/quality, from llama2.c weights (MODEL.bin with tokenizer.bin beside
it) or from another GGUF, whose weights are decoded.

usage: bench/gguf_f32.py MODEL OUT.gguf [--spread]

--spread moves every weight by a random part of half a step of the grid on which a GGUF's type has
it: weights as the model may have had them before it was rounded. A type that can hold the grid of a
GGUF loses nothing of it, which says little of models that were never rounded.
"""
import argparse
import struct
import sys
from pathlib import Path

import gguf
import numpy


def from_llama2c(path, out):
    data = path.read_bytes()
    width, inner, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", data[:28])
    if vocabulary < 0:
        sys.exit("gguf_f32: a head of its own is not supported")
    numbers, size, at = numpy.frombuffer(data, numpy.float32, offset=28), width // heads, 0

    def take(*shape):
        nonlocal at
        count = int(numpy.prod(shape))
        at += count
        return numbers[at - count:at].reshape(shape)

    top = {"token_embd": take(vocabulary, width)}
    parts = {"attn_norm": take(layers, width), "attn_q": take(layers, heads * size, width),
             "attn_k": take(layers, kv_heads * size, width),
             "attn_v": take(layers, kv_heads * size, width),
             "attn_output": take(layers, width, heads * size), "ffn_norm": take(layers, width),
             "ffn_gate": take(layers, inner, width), "ffn_down": take(layers, width, inner),
             "ffn_up": take(layers, inner, width)}
    top["output_norm"] = take(width)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size)
    writer.add_vocab_size(vocabulary)
    write_tokens(writer, path.parent / "tokenizer.bin", vocabulary)
    for name, array in top.items():
        writer.add_tensor(f"{name}.weight", array)
    for layer in range(layers):
        for name, array in parts.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", numpy.ascontiguousarray(array[layer]))
    return writer


def write_tokens(writer, path, vocabulary):
    data, at = path.read_bytes(), 4
    tokens, scores, kinds = [], [], []
    for number in range(vocabulary):
        score, length = struct.unpack("<fi", data[at:at + 8])
        text = data[at + 8:at + 8 + length]
        at += 8 + length
        if number < 3:
            text, kind = (b"<unk>", b"<s>", b"</s>")[number], 2 if number == 0 else 3
        elif number < 259:
            text, kind = b"<0x%02X>" % (number - 3), 6
        else:
            text, kind = text.replace(b" ", "\u2581".encode()), 1
        tokens.append(text)
        scores.append(score)
        kinds.append(kind)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


# Blocks along k, and steps between the least and the largest number of one.
GRIDS = {"Q4_0": (32, 15), "Q4_1": (32, 15), "Q5_0": (32, 31), "Q5_1": (32, 31), "Q8_0": (32, 254),
         "Q4_K": (32, 15), "Q5_K": (32, 31), "Q6_K": (16, 63)}


def spread(numbers, kind, random):
    """`numbers` on other places of their grid's intervals; as they are where it has none."""
    if kind not in GRIDS:
        return numbers
    block, steps = GRIDS[kind]
    blocks = numbers.reshape(-1, block)
    step = (blocks.max(axis=1) - blocks.min(axis=1)) / steps
    moved = random.uniform(-0.5, 0.5, blocks.shape).astype(numpy.float32) * step[:, None]
    return (blocks + moved).astype(numpy.float32)


def from_gguf(path, out, spreads):
    random = numpy.random.default_rng(1)
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    left_out = ("general.architecture", "general.file_type", "general.quantization_version")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in left_out:
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if spreads:
            numbers = spread(numbers, tensor.tensor_type.name, random)
        writer.add_tensor(tensor.name, numbers.reshape([int(n) for n in reversed(tensor.shape)]))
    return writer


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out")
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    if options.model.suffix == ".gguf":
        writer = from_gguf(options.model, options.out, options.spread)
    elif options.spread:
        sys.exit("gguf_f32: --spread needs a GGUF")
    else:
        writer = from_llama2c(options.model, options.out)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
