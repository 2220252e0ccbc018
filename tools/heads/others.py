#!/usr/bin/env python3
"""Writes tests/fixtures/heads/others: folders of draft heads as other projects write them, with
random weights for the tiny model smollm2, and the logits that follow from the published formulas.

usage: others.py

Nothing here knows Avocet's own format: names and shapes are those of the folders. `NAME.npy` has
the logits of all rows ([head, row, token] for Medusa, [row, token] for layers), `NAME-chain.npy`
those of four greedy drafts behind the last token.
"""
import json
import pathlib
import shutil
import zlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from base import Llama
from fixtures import FIXTURES, STEPS, TINY_ROWS, TINY_TAPS

FOLDER = FIXTURES / "heads" / "others"
HEADS, KV_HEADS, HEAD_SIZE, INNER, ROPE, EPSILON = 3, 1, 12, 40, 20000.0, 0.0002
DRAFTED = 61


def random(name, *shape):
    """Numbers that do not depend on the version of a library; norms are near 1."""
    values = numpy.random.Generator(numpy.random.Philox(zlib.crc32(name.encode()))
                                    ).standard_normal(shape)
    if "norm" in name:
        return torch.tensor(0.3 * values + 1.0)
    return torch.tensor(1.2 * values / shape[-1] ** 0.5 if len(shape) > 1 else 0.2 * values)


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def rotate(x, position):
    """x: [heads, size], as Hugging Face's Llama."""
    angle = position / ROPE ** (torch.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    cos, sin = (f(torch.cat([angle, angle])) for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer:
    """One decoder layer with its cache, from tensors called PREFIX + Hugging Face's names."""

    def __init__(self, tensors, prefix):
        self.get = lambda name: tensors[prefix + name]
        self.has = lambda name: prefix + name in tensors
        self.keys, self.values = [], []

    def linear(self, x, name):
        bias = self.get(name + ".bias") if self.has(name + ".bias") else None
        return functional.linear(x, self.get(name + ".weight"), bias)

    def row(self, seen, residual):
        """seen: what queries, keys and values are made of."""
        q, k, v = (self.linear(seen, f"self_attn.{which}_proj").reshape(-1, HEAD_SIZE)
                   for which in "qkv")
        position = len(self.keys)
        self.keys.append(rotate(k, position))
        self.values.append(v)
        keys, values = (torch.stack(rows).repeat_interleave(HEADS // KV_HEADS, dim=1)
                        for rows in (self.keys, self.values))
        scores = torch.einsum("hd,jhd->hj", rotate(q, position), keys) / HEAD_SIZE ** 0.5
        attended = torch.einsum("hj,jhd->hd", scores.softmax(-1), values).flatten()
        x = residual + self.linear(attended, "self_attn.o_proj")
        y = norm(x, self.get("post_attention_layernorm.weight"))
        y = functional.silu(self.linear(y, "mlp.gate_proj")) * self.linear(y, "mlp.up_proj")
        return x + self.linear(y, "mlp.down_proj")


class Eagle:
    """EAGLE and EAGLE-2: a projection of [token; state] and layers, the first without a norm."""

    def __init__(self, tensors, base, fc, layers):
        self.tensors, self.base, self.fc = tensors, base, fc
        self.layers = [Layer(tensors, prefix) for prefix in layers]

    def first_state(self, taps):
        x = taps[-1]  # behind the base's final norm
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.base.epsilon) * self.base.norm

    def row(self, state, token):
        x = functional.linear(torch.cat([self.base.embedding[token], state]),
                              self.tensors[self.fc + ".weight"],
                              self.tensors.get(self.fc + ".bias"))
        for index, layer in enumerate(self.layers):
            x = layer.row(x if index == 0 else norm(x, layer.get("input_layernorm.weight")), x)
        return x, functional.linear(x, self.base.head)

    def token_of(self, column):
        return column


class Eagle3:
    """EAGLE-3: the first layer sees norms of token and state side by side."""

    def __init__(self, tensors, base, layers, norm_before_residual):
        self.tensors, self.base, self.normed = tensors, base, norm_before_residual
        self.layers = [Layer(tensors, prefix) for prefix in layers]

    def first_state(self, taps):
        return functional.linear(taps.flatten(), self.tensors["fc.weight"])

    def row(self, state, token):
        first = self.layers[0]
        hidden = norm(state, first.get("hidden_norm.weight"))
        embedded = norm(self.base.embedding[token], first.get("input_layernorm.weight"))
        x = first.row(torch.cat([embedded, hidden]), hidden if self.normed else state)
        for layer in self.layers[1:]:
            x = layer.row(norm(x, layer.get("input_layernorm.weight")), x)
        logits = functional.linear(norm(x, self.tensors["norm.weight"]),
                                   self.tensors["lm_head.weight"])
        return x, logits

    def token_of(self, column):
        return column + int(self.tensors["d2t"][column])


def layer_tensors(prefix, width, name, wide=False, first_norm=True, bias=False):
    seen = 2 * width if wide else width
    shapes = {"self_attn.q_proj": (HEADS * HEAD_SIZE, seen),
              "self_attn.k_proj": (KV_HEADS * HEAD_SIZE, seen),
              "self_attn.v_proj": (KV_HEADS * HEAD_SIZE, seen),
              "self_attn.o_proj": (width, HEADS * HEAD_SIZE), "mlp.gate_proj": (INNER, width),
              "mlp.up_proj": (INNER, width), "mlp.down_proj": (width, INNER)}
    found = {f"{prefix}{part}.weight": random(name + prefix + part, *shape)
             for part, shape in shapes.items()}
    norms = ["post_attention_layernorm"] + ["input_layernorm"] * first_norm + ["hidden_norm"] * wide
    for part in norms:
        found[f"{prefix}{part}.weight"] = random(name + prefix + part + "norm", width)
    for which in "qkv" if bias else "":
        part = f"{prefix}self_attn.{which}_proj"
        found[part + ".bias"] = random(name + part + "bias", found[part + ".weight"].shape[0])
    return found


def layer_config(base, depth):
    return {"hidden_size": base.width, "intermediate_size": INNER, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE, "num_hidden_layers": depth,
            "vocab_size": base.embedding.shape[0], "hidden_act": "silu", "rms_norm_eps": EPSILON,
            "rope_theta": ROPE, "rope_scaling": None, "model_type": "llama"}


def eagle3_tensors(base, prefixes, name, bias=False):
    """Draft tokens as EAGLE-3 has them: d2t is the distance from a column to its token."""
    width, vocabulary = base.width, base.embedding.shape[0]
    order = numpy.random.Generator(numpy.random.Philox(7)).permutation(vocabulary)
    drafted = sorted(order[:DRAFTED])
    tensors = {"fc.weight": random(name + "fc", width, len(TINY_TAPS) * width),
               "norm.weight": random(name + "norm", width),
               "lm_head.weight": random(name + "lm_head", DRAFTED, width),
               "d2t": torch.tensor([int(t) - i for i, t in enumerate(drafted)]),
               "t2d": torch.tensor([t in drafted for t in range(vocabulary)])}
    for index, prefix in enumerate(prefixes):
        tensors.update(layer_tensors(prefix, width, name, wide=index == 0, bias=bias))
    return tensors


def write_folder(name, config, tensors, dtype, file="model.safetensors"):
    """Returns the tensors as the file has them."""
    folder = FOLDER / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    stored = {key: value.to(dtype) if value.is_floating_point() else value
              for key, value in tensors.items()}
    save_file({key: value.contiguous() for key, value in stored.items()}, folder / file)
    (folder / file).chmod(0o644)
    return {key: value.float() if value.is_floating_point() else value
            for key, value in load_file(folder / file).items()}


def save(name, every, chain=None):
    numpy.save(FOLDER / f"{name}.npy", every.float().numpy())
    if chain is not None:
        numpy.save(FOLDER / f"{name}-chain.npy", chain.float().numpy())


@torch.no_grad()
def run_layers(name, module, tokens, taps):
    every = []
    for row in range(1, len(tokens)):
        state, logits = module.row(module.first_state(taps[row - 1]), int(tokens[row]))
        every.append(logits)
    steps, drafts = [logits], [module.token_of(int(logits.argmax()))]
    while len(steps) < STEPS:
        state, logits = module.row(state, drafts[-1])
        steps.append(logits)
        drafts.append(module.token_of(int(logits.argmax())))
    save(name, torch.stack(every), torch.stack(steps))
    print(f"{{\"others/{name}\", HEADS_EAGLE, {{{', '.join(map(str, drafts))}}}}},")


@torch.no_grad()
def make_medusa(base, taps):
    """Four heads of two residual blocks and an output matrix each."""
    tensors, width, vocabulary = {}, base.width, base.embedding.shape[0]
    for head in range(4):
        for block in range(2):
            for part, shape in (("weight", (width, width)), ("bias", (width,))):
                name = f"{head}.{block}.linear.{part}"
                tensors[name] = random("medusa" + name, *shape)
        tensors[f"{head}.2.weight"] = random(f"medusa{head}", vocabulary, width)
    config = {"medusa_num_heads": 4, "medusa_num_layers": 2, "base_model_name_or_path": "smollm2"}
    stored = write_folder("medusa", config, tensors, torch.float16, "medusa_lm_head.safetensors")
    x = taps[:-1, -1]
    state = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + base.epsilon) * base.norm
    every = []
    for head in range(4):
        y = state
        for block in range(2):
            prefix = f"{head}.{block}.linear."
            y = y + functional.silu(functional.linear(y, stored[prefix + "weight"],
                                                      stored[prefix + "bias"]))
        every.append(functional.linear(y, stored[f"{head}.2.weight"]))
    save("medusa", torch.stack(every))


def make_eagle(base, tokens, taps):
    width = base.width
    tensors = {"fc.weight": random("eagle-fc", width, 2 * width),
               "fc.bias": random("eagle-bias", width), "embed_tokens.weight": base.embedding}
    for index, prefix in enumerate(("layers.0.", "layers.1.")):
        tensors.update(layer_tensors(prefix, width, "eagle", first_norm=index > 0))
    config = {"architectures": ["LlamaForCausalLM"], **layer_config(base, 2)}
    stored = write_folder("eagle", config, tensors, torch.bfloat16)
    run_layers("eagle", Eagle(stored, base, "fc", ("layers.0.", "layers.1.")), tokens, taps)


def make_speculators_eagle(base, tokens, taps):
    tensors = {"fusion_fc.weight": random("spec-fc", base.width, 2 * base.width),
               **layer_tensors("transformer.", base.width, "spec-eagle", first_norm=False)}
    config = {"speculators_model_type": "eagle", "architectures": ["EagleSpeculator"],
              "layernorms": False, "fusion_bias": False,
              "transformer_layer_config": layer_config(base, 1)}
    stored = write_folder("speculators-eagle", config, tensors, torch.bfloat16)
    run_layers("speculators-eagle", Eagle(stored, base, "fusion_fc", ("transformer.",)), tokens,
               taps)


def make_eagle3(base, tokens, taps):
    """As EAGLE's own scripts and SpecForge write it; the list names layers whose outputs are
    read."""
    config = {"architectures": ["LlamaForCausalLMEagle3"], **layer_config(base, 1),
              "draft_vocab_size": DRAFTED, "eagle_config": {
                  "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in TINY_TAPS]}}
    stored = write_folder("eagle3", config, eagle3_tensors(base, ("midlayer.",), "eagle3"),
                          torch.bfloat16)
    run_layers("eagle3", Eagle3(stored, base, ("midlayer.",), False), tokens, taps)


def make_speculators(base, tokens, taps):
    """As speculators writes it; the list names layers whose inputs are read."""
    prefixes = ("layers.0.", "layers.1.")
    config = {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"],
              "draft_vocab_size": DRAFTED, "norm_before_residual": True,
              "eagle_aux_hidden_state_layer_ids": list(TINY_TAPS),
              "transformer_layer_config": layer_config(base, 2)}
    stored = write_folder("speculators", config,
                          eagle3_tensors(base, prefixes, "speculators", True), torch.float16)
    run_layers("speculators", Eagle3(stored, base, prefixes, True), tokens, taps)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    source = FIXTURES / "models" / "smollm2"
    base = Llama(source)
    tokens = torch.from_numpy(numpy.load(source / "ids.npy").ravel()[:TINY_ROWS].astype("int64"))
    taps = base.forward(tokens[None], TINY_TAPS[:-1])[0]
    make_medusa(base, taps)
    for make in (make_eagle, make_speculators_eagle, make_eagle3, make_speculators):
        make(base, tokens, taps)


if __name__ == "__main__":
    main()
