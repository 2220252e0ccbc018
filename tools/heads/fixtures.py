#!/usr/bin/env python3
"""Writes tests/fixtures/heads: what an implementation of docs/heads.md must compute.

usage: fixtures.py tiny                          random heads of the tiny model smollm2
       fixtures.py real MODEL.gguf HEADS-FOLDER  trained heads, one short prompt

Each folder holds expected.json (configuration, tokens, top ids, drafts) and .npy files (float32):
`taps` [rows, tap, width]; tiny: `medusa` [head, row, frequent], `eagle` and `layers` [row,
frequent], all logits; `…-chain` [step, frequent], the logits of a chain of four greedy drafts
behind the last token. The real one lists the eight highest logits instead.
"""
import argparse
import json
import pathlib
import zlib

import numpy
import torch
from torch.nn import functional

from base import GgufFile, Llama, rms_norm
from heads import Draft, Eagle, Medusa
from store import load_heads, save_heads

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
TINY_TAPS, TINY_FREQUENT, TINY_ROWS = (1, 2, 3), 61, 20
TINY_DEPTH, TINY_WINDOW = 2, 7
STEPS, TOP = 4, 8
BYTES_MAX = 800 * 1024
PROMPT = "<|im_start|>user\nWhy is the sky blue?"


class Rows:
    """One row at a time with caches of keys and values, as an engine runs the layers. Written apart
    from the passes of heads.py so that each checks the other."""

    def __init__(self, module, base, head):
        self.module, self.base, self.head = module, base, head
        self.keys = [[] for _ in module.layers]
        self.values = [[] for _ in module.layers]

    def row(self, state, token):
        """Appends the row of `token`; returns the last layer's output and the logits. state: None
        for a distilled draft."""
        module = self.module
        x = self.base.embedding[token].float()
        if state is not None:
            x = module.project(state, x, module.input)
        position = torch.tensor([len(self.keys[0])])
        for w, keys, values in zip(module.live_layers(), self.keys, self.values):
            q, k, v = module.qkv(w, x[None], position)
            keys.append(k[0])
            values.append(v[0])
            x = module.behind_attention(w, x, self.attend(q[0], keys, values))
        output = rms_norm(x, module.output_norm, module.epsilon)
        return x, functional.linear(output, self.head)

    def attend(self, q, keys, values):
        module = self.module
        group = module.heads // module.kv_heads
        keys = torch.stack(keys[-module.window:]).repeat_interleave(group, dim=1)
        values = torch.stack(values[-module.window:]).repeat_interleave(group, dim=1)
        weights = (torch.einsum("hd,jhd->hj", q, keys) * module.head_size ** -0.5).softmax(-1)
        return torch.einsum("hj,jhd->hd", weights, values).flatten()


@torch.no_grad()
def row_logits(module, base, frequent, tokens, taps, first=1):
    """(logits of every row with true states from that of token `first`, logits of the chain, its
    drafts)"""
    head = base.head.float()[frequent]
    chain = Rows(module, base, head)
    eagle = isinstance(module, Eagle)
    every = []
    for row in range(first, len(tokens)):
        state = module.first_state(taps[row - 1]) if eagle else None
        y, logits = chain.row(state, tokens[row])
        every.append(logits)
    steps, drafts = [logits], [int(frequent[logits.argmax()])]
    while len(steps) < STEPS:
        y, logits = chain.row(y if eagle else None, torch.tensor(drafts[-1]))
        steps.append(logits)
        drafts.append(int(frequent[logits.argmax()]))
    check_against_training(module, base, head, tokens, taps, drafts, steps, first)
    return torch.stack(every), torch.stack(steps), drafts


def check_against_training(module, base, head, tokens, taps, drafts, steps, first):
    """The pass that training runs must give the same chain; states of drafts do not matter."""
    rows = len(tokens) - 1
    whole = torch.cat([tokens, torch.tensor(drafts[:-1])])
    if isinstance(module, Eagle):
        padded = torch.cat([taps, torch.randn(STEPS, *taps.shape[1:])])[:len(whole) - 1]
        outputs = module(padded[None], base.embedding[whole[1:]].float()[None], STEPS,
                         torch.tensor([first - 1]))
        found = [outputs[step][0, rows - 1 + step] for step in range(STEPS)]
    else:
        output = module(base.embedding[whole].float()[None], torch.tensor([first]))
        found = [output[0, rows + step] for step in range(STEPS)]
    for step, expected in enumerate(steps):
        error = functional.linear(found[step], head) - expected
        error = float(error.abs().max() / expected.abs().max())
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


def tiny_modules(base):
    """The files of the tiny model: name, module, bits."""
    return (("f32-medusa", Medusa(base), 32), ("q8-medusa", Medusa(base), 8),
            ("f32-eagle", Eagle(base, TINY_TAPS), 32), ("q8-eagle", Eagle(base, TINY_TAPS), 8),
            ("deep-eagle", Eagle(base, TINY_TAPS, TINY_DEPTH, TINY_WINDOW), 4),
            ("f32-layers", Draft(base, TINY_DEPTH), 32),
            ("q4-layers", Draft(base, TINY_DEPTH, TINY_WINDOW), 4))


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
    taps = base.forward(tokens[None], TINY_TAPS[:-1])[0]
    save_array(folder, "taps", taps)
    expected = {"base": "fixtures/models/smollm2", "tokens": tokens.tolist()}
    for name, module, bits in tiny_modules(base):
        randomise(module, name.split("-")[1])
        path = folder / f"{name}.safetensors"
        save_heads(path, base, module, frequent, bits)
        module, _, _ = load_heads(path, base)
        if isinstance(module, Medusa):
            save_array(folder, name, medusa_logits(module, base, frequent, tokens, taps))
            continue
        first = 1 if isinstance(module, Eagle) else 0
        every, chain, drafts = row_logits(module, base, frequent, tokens, taps, first)
        save_array(folder, name, every)
        save_array(folder, f"{name}-chain", chain)
        expected[name] = {"drafts": drafts}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def make_real(model, heads, name="smollm2-135m"):
    """Of those files of `heads` that exist."""
    from text import Tokenizer
    folder = FIXTURES / "heads" / name
    folder.mkdir(parents=True, exist_ok=True)
    base = Llama(model)
    tokens = torch.tensor(Tokenizer(GgufFile(model).metadata).encode(PROMPT))
    expected = {"prompt": PROMPT, "tokens": tokens.tolist(), "base_sha256": base.digest()}
    for kind in ("medusa", "eagle", "draft"):
        path = heads / f"{name}-{kind}.safetensors"
        if not path.exists():
            continue
        module, frequent, config = load_heads(path, base)
        frequent = torch.from_numpy(frequent)
        taps = base.forward(tokens[None], config.get("taps", [base.layers])[:-1])[0]
        if kind == "medusa":
            logits = medusa_logits(module, base, frequent, tokens, taps)
            expected[kind] = [top_of(logits[k], frequent) for k in range(module.count)]
            continue
        if kind == "eagle":
            save_array(folder, "taps", taps)
        first = 1 if kind == "eagle" else 0
        every, chain, drafts = row_logits(module, base, frequent, tokens, taps, first)
        expected[kind] = top_of(every, frequent)
        expected[f"{kind}_chain"] = {**top_of(chain, frequent), "drafts": drafts}
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
