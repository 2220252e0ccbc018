#!/usr/bin/env python3
"""Writes tests/fixtures/heads: what an implementation of docs/heads.md must compute.

usage: fixtures.py tiny                          random heads of the tiny model smollm2
       fixtures.py real MODEL.gguf HEADS-FOLDER  trained heads, one short prompt

Each folder holds expected.json (configuration, tokens, top ids, drafts) and .npy files (float32):
`taps` [rows, tap, width]; tiny: `medusa` [head, row, frequent] and `eagle` [row, frequent], all
logits; `eagle_chain` [step, frequent], the logits of a chain of four greedy drafts behind the last
token. The real one lists the eight highest logits instead.
"""
import argparse
import json
import pathlib
import zlib

import numpy
import torch
from torch.nn import functional

from base import GgufFile, Llama, rms_norm
from heads import Eagle, Medusa
from store import load_heads, save_heads

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
TINY_TAPS, TINY_FREQUENT, TINY_ROWS = (1, 2, 3), 61, 20
STEPS, TOP = 4, 8
BYTES_MAX = 300 * 1024
PROMPT = "<|im_start|>user\nWhy is the sky blue?"


class EagleChain:
    """One row at a time with a cache of keys and values, as an engine runs the layer. Written apart
    from Eagle.forward so that each checks the other."""

    def __init__(self, eagle, base, head):
        self.eagle, self.base, self.head = eagle, base, head
        self.keys, self.values = [], []

    def row(self, state, token):
        """Appends the row of `token`; returns the layer's output and the logits."""
        eagle = self.eagle
        x = eagle.project(state, self.base.embedding[token].float())
        position = torch.tensor([len(self.keys)])
        q, k, v = eagle.qkv(x[None], position)
        self.keys.append(k[0])
        self.values.append(v[0])
        group = eagle.heads // eagle.kv_heads
        keys = torch.stack(self.keys).repeat_interleave(group, dim=1)  # [rows, heads, head_size]
        values = torch.stack(self.values).repeat_interleave(group, dim=1)
        weights = (torch.einsum("hd,jhd->hj", q[0], keys) * eagle.head_size ** -0.5).softmax(-1)
        y = eagle.feed_forward(x, torch.einsum("hj,jhd->hd", weights, values).flatten())
        output = rms_norm(y, eagle.output_norm, eagle.epsilon)
        return y, functional.linear(output, self.head)


@torch.no_grad()
def eagle_logits(eagle, base, frequent, tokens, taps):
    """(logits of every row with true states, logits of the chain, its drafts)"""
    head = base.head.float()[frequent]
    chain = EagleChain(eagle, base, head)
    every = []
    for row in range(1, len(tokens)):
        y, logits = chain.row(eagle.first_state(taps[row - 1]), tokens[row])
        every.append(logits)
    steps, drafts = [logits], [int(frequent[logits.argmax()])]
    while len(steps) < STEPS:
        y, logits = chain.row(y, torch.tensor(drafts[-1]))
        steps.append(logits)
        drafts.append(int(frequent[logits.argmax()]))
    check_against_training(eagle, base, head, tokens, taps, drafts, steps)
    return torch.stack(every), torch.stack(steps), drafts


def check_against_training(eagle, base, head, tokens, taps, drafts, steps):
    """The pass that training runs must give the same chain; states of drafts do not matter."""
    rows = len(tokens) - 1
    whole = torch.cat([tokens, torch.tensor(drafts[:-1])])
    padded = torch.cat([taps, torch.randn(STEPS, *taps.shape[1:])])[:len(whole) - 1]
    outputs = eagle(padded[None], base.embedding[whole[1:]].float()[None], STEPS)
    for step, expected in enumerate(steps):
        found = functional.linear(outputs[step][0, rows - 1 + step], head)
        error = float((found - expected).abs().max() / expected.abs().max())
        if error > 1e-4:
            raise SystemExit(f"step {step} differs from the training pass by {error:.2g}")


@torch.no_grad()
def medusa_logits(medusa, base, frequent, tokens, taps):
    """[head, row, frequent]: row t has the state of position t and the token behind it."""
    head = base.head.float()[frequent]
    normed = rms_norm(taps[:-1, -1], base.norm.float(), base.epsilon)
    unit = rms_norm(base.embedding[tokens[1:]].float(), torch.ones(base.width), base.epsilon)
    return torch.stack([functional.linear(medusa(k, normed, unit), head)
                        for k in range(medusa.count)])


def randomise(module, name):
    """Numbers that do not depend on the version of a library."""
    for tensor_name, value in module.tensors().items():
        seed = zlib.crc32(f"{name}/{tensor_name}".encode())
        normal = numpy.random.Generator(numpy.random.Philox(seed)).standard_normal(value.shape)
        is_norm = tensor_name.endswith("norm.weight")
        value.data.copy_(torch.tensor(0.3 * normal + 1.0 if is_norm
                                      else 1.2 * normal / value.shape[1] ** 0.5))


def top_of(logits, frequent):
    values, columns = logits.topk(TOP)
    rounded = [[round(value, 4) for value in row] for row in values.tolist()]
    return {"ids": frequent[columns].tolist(), "logits": rounded}


def save_array(folder, name, value):
    numpy.save(folder / f"{name}.npy", value.detach().float().numpy())


def make_tiny():
    folder = FIXTURES / "heads" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    source = FIXTURES / "models" / "smollm2"
    base = Llama(source)
    ids = numpy.load(source / "ids.npy").ravel()[:TINY_ROWS].astype(numpy.int64)
    tokens = torch.from_numpy(ids)
    frequent = torch.arange(base.embedding.shape[0])[::3].tolist()
    frequent += [t for t in range(base.embedding.shape[0]) if t % 3 == 1]
    frequent = torch.tensor(sorted(frequent[:TINY_FREQUENT]))
    medusa, eagle = Medusa(base), Eagle(base, TINY_TAPS)
    randomise(medusa, "medusa")
    randomise(eagle, "eagle")
    save_heads(folder, base, medusa, eagle, frequent, packed=False, name="f32")
    save_heads(folder, base, medusa, eagle, frequent, packed=True, name="q8")
    taps = base.forward(tokens[None], TINY_TAPS[:-1])[0]
    save_array(folder, "taps", taps)
    expected = {"base": "fixtures/models/smollm2", "tokens": tokens.tolist()}
    for name in ("f32", "q8"):
        medusa, _, _ = load_heads(folder / f"{name}-medusa.safetensors", base)
        eagle, _, _ = load_heads(folder / f"{name}-eagle.safetensors", base)
        every, chain, drafts = eagle_logits(eagle, base, frequent, tokens, taps)
        save_array(folder, f"{name}-medusa", medusa_logits(medusa, base, frequent, tokens, taps))
        save_array(folder, f"{name}-eagle", every)
        save_array(folder, f"{name}-eagle-chain", chain)
        expected[name] = {"drafts": drafts}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def make_real(model, heads, name="smollm2-135m"):
    from text import Tokenizer
    folder = FIXTURES / "heads" / name
    folder.mkdir(parents=True, exist_ok=True)
    base = Llama(model)
    tokens = torch.tensor(Tokenizer(GgufFile(model).metadata).encode(PROMPT))
    eagle, frequent, config = load_heads(heads / f"{name}-eagle.safetensors", base)
    medusa, _, _ = load_heads(heads / f"{name}-medusa.safetensors", base)
    frequent = torch.from_numpy(frequent)
    taps = base.forward(tokens[None], config["taps"][:-1])[0]
    save_array(folder, "taps", taps)
    every, chain, drafts = eagle_logits(eagle, base, frequent, tokens, taps)
    logits = medusa_logits(medusa, base, frequent, tokens, taps)
    expected = {"prompt": PROMPT, "tokens": tokens.tolist(), "base_sha256": base.digest(),
                "medusa": [top_of(logits[k], frequent) for k in range(medusa.count)],
                "eagle": top_of(every, frequent),
                "eagle_chain": {**top_of(chain, frequent), "drafts": drafts}}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tiny", "real"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("heads", nargs="?", type=pathlib.Path)
    options = parser.parse_args()
    torch.manual_seed(1)
    if options.what == "tiny":
        make_tiny()
    else:
        make_real(options.model, options.heads)
    size = sum(path.stat().st_size for path in (FIXTURES / "heads").rglob("*") if path.is_file())
    print(f"tests/fixtures/heads: {size} bytes")
    if size > BYTES_MAX:
        raise SystemExit(f"more than {BYTES_MAX}")


if __name__ == "__main__":
    main()
