#!/usr/bin/env python3
"""Makes tests/fixtures/train/heads.NAME.safetensors: gradients that PyTorch computes in float64 for
draft heads of tests/fixtures/models/smollm2, with the losses of docs/heads.md. The weights are those
of tests/fixtures/heads/tiny/f32-medusa, f32-eagle and f32-layers. Run by hand when the cases change:
    .venv/bin/python tools/oracle/make_head_gradients.py

Each file has, for every parameter, its gradient, or of more than SAMPLE numbers those at
i · count ÷ SAMPLE, its largest magnitude under NAME.max, and how far PyTorch is off when it
computes in float32 under NAME.single (as a part of that magnitude); and "sums": loss and distance
of every draft, as the trainer sums them up."""
import json
import pathlib
import struct
import sys

import numpy
import torch
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "heads"))
from base import Llama, Rope, rms_norm  # noqa: E402
from heads import Draft, Eagle, Medusa  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures"
SAMPLE = 192
DECAY = 0.7
TOKENS = 20
# name: kind, drafts, window, first row, temperature of the teacher, share of the distance
CASES = {"medusa": ("medusa", 4, 0, 0, 0.7, 0.0), "medusa-hard": ("medusa", 4, 0, 0, 0.0, 0.0),
         "eagle": ("eagle", 3, 8, 3, 0.7, 0.5), "eagle-hard": ("eagle", 2, 0, 0, 0.0, 0.0),
         "layers": ("layers", 1, 0, 0, 0.7, 0.0), "layers-hard": ("layers", 1, 8, 3, 0.0, 0.0)}
# From the row that a draft is read from to its token.
DISTANCE = {"medusa": 2, "eagle": 2, "layers": 1}
TAPS = (0, 2, 3)


def read_tensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    types = {"F32": numpy.float32, "I32": numpy.int32}
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        found[name] = torch.from_numpy(numpy.frombuffer(data[begin:end], types[entry["dtype"]])
                                       .reshape(entry["shape"]).copy())
    return found


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        raw = value.detach().to(torch.float32).numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def is_wanted(token):
    return token >= 7 and token % 5 != 0


def module_of(base, kind, window, dtype):
    module = {"medusa": lambda: Medusa(base), "eagle": lambda: Eagle(base, TAPS, 1, window),
              "layers": lambda: Draft(base, 2, window)}[kind]()
    stored = read_tensors(FIXTURES / "heads" / "tiny" / f"f32-{kind}.safetensors")
    module.to(dtype)
    for name, parameter in module.tensors().items():
        parameter.data = stored[name].to(dtype).reshape(parameter.shape)
    if kind != "medusa":
        module.rope = Rope(module.head_size, module.rope_base, 64, "cpu", dtype)
    return module, stored["frequent"].long()


def outputs_of(base, module, case, tokens, taps):
    """For every draft the outputs of all rows: row t has the state of position t, of a distilled
    draft the token."""
    kind, drafts, _, first, _, _ = case
    if kind == "layers":
        return [module(base.embedding[tokens[:-1]][None], torch.tensor([first]))[0]]
    if kind == "eagle":
        cut = torch.tensor([first])
        return [rows[0] for rows in module(taps[None, :-1], base.embedding[tokens[1:]][None],
                                           drafts, cut)]
    normed = rms_norm(taps[:-1, -1], base.norm, base.epsilon)
    unit = rms_norm(base.embedding[tokens[1:]], torch.ones_like(base.norm), base.epsilon)
    return [module(k, normed, unit) for k in range(drafts)]


def compute(name, dtype):
    case = kind, drafts, window, first, temperature, share = CASES[name]
    source = FIXTURES / "models" / "smollm2"
    base = Llama(source, dtype=dtype)
    base.rope = Rope(base.head_size, base.rope_base, 64, "cpu", dtype)
    tokens = torch.from_numpy(numpy.load(source / "ids.npy").ravel()[:TOKENS].astype(numpy.int64))
    module, frequent = module_of(base, kind, window, dtype)
    taps = base.forward(tokens[None], TAPS[:-1])[0]
    states = rms_norm(taps[:, -1], base.norm, base.epsilon)
    scale = base.norm.pow(2).mean().sqrt()
    outputs = outputs_of(base, module, case, tokens, taps)
    targets = [t for t in range(2, TOKENS) if is_wanted(t)]
    sums, total = [], 0.0
    for k in range(drafts):
        loss = distance = torch.zeros((), dtype=dtype)
        for token in targets:
            if token - DISTANCE[kind] - k < first:
                continue
            output = outputs[k][token - DISTANCE[kind] - (k if kind == "medusa" else 0)]
            logp = (functional.linear(output, base.head[frequent]) / (temperature or 1.0)) \
                .log_softmax(-1)
            wanted = (frequent == tokens[token]).to(dtype)
            if temperature > 0:
                logits = functional.linear(states[token - 1], base.head) / temperature
                wanted = logits.softmax(-1)[frequent]
            loss = loss - (wanted * logp).sum()
            far = functional.smooth_l1_loss(output, states[token - 1], reduction="mean")
            distance = distance + share * far / scale
        sums.append([loss.item(), distance.item()])
        total = total + DECAY ** k * (loss + distance)
    (total / len(targets)).backward()
    return {key: value.grad for key, value in module.tensors().items()}, torch.tensor(sums)


def sampled(tensor):
    flat = tensor.reshape(-1)
    if flat.numel() <= SAMPLE:
        return flat
    return flat[torch.arange(SAMPLE) * flat.numel() // SAMPLE]


def main():
    for name in CASES:
        gradients, sums = compute(name, torch.float64)
        single, _ = compute(name, torch.float32)
        found = {"sums": sums}
        for key, gradient in gradients.items():
            most = gradient.abs().max()
            found[key] = sampled(gradient)
            found[f"{key}.max"] = most.reshape(1)
            found[f"{key}.single"] = ((single[key] - gradient).abs().max() / most).reshape(1)
            print(f"{name} {key} {float(most):.3g} {float(found[f'{key}.single'][0]):.1e}")
        write_tensors(FIXTURES / "train" / f"heads.{name}.safetensors", found)


if __name__ == "__main__":
    main()
