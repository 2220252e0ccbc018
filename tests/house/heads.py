#!/usr/bin/env python3
"""docs/heads.md computed line by line in plain Python, against what PyTorch computed for the tiny
heads (tests/fixtures/heads/tiny). Shows that the page is enough to implement the heads."""
import array
import json
import math
import pathlib
import struct
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/fixtures/heads/tiny"
MODEL = ROOT / "tests/fixtures/models/smollm2"
BLOCK = 32


def read_npy(path):
    """(shape, flat floats) of a little-endian float32 array."""
    data = path.read_bytes()
    length, = struct.unpack_from("<H", data, 8)
    header = data[10:10 + length].decode()
    assert "'<f4'" in header and "False" in header, header
    shape = [int(n) for n in header.split("(")[1].split(")")[0].split(",") if n.strip()]
    return shape, array.array("f", data[10 + length:])


def rows_of(flat, columns):
    return [list(flat[i:i + columns]) for i in range(0, len(flat), columns)]


class Safetensors:
    def __init__(self, path):
        data = path.read_bytes()
        length, = struct.unpack_from("<Q", data, 0)
        self.entries = json.loads(data[8:8 + length])
        self.metadata = self.entries.pop("__metadata__", {})
        self.data = data[8 + length:]

    def raw(self, name):
        entry = self.entries[name]
        data = self.data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0]
                    for i in range(0, len(data), 2)]
        form = {"F32": "f", "F16": "e", "I8": "b", "I32": "i"}[entry["dtype"]]
        return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))

    def matrix(self, name):
        values = rows_of(self.raw(name), self.entries[name]["shape"][1])
        if self.entries[name]["dtype"] != "I8":
            return values
        scale_name = name.replace(".weight", ".scale")
        scales = rows_of(self.raw(scale_name), self.entries[scale_name]["shape"][1])
        return [[value * scale[k // BLOCK] for k, value in enumerate(row)]
                for row, scale in zip(values, scales)]


def product(matrix, x):
    return [sum(w * v for w, v in zip(row, x)) for row in matrix]


def norm(x, weight, epsilon):
    factor = 1.0 / math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
    return [v * factor * w for v, w in zip(x, weight)]


def silu(x):
    return x / (1.0 + math.exp(-x))


def add(x, y):
    return [a + b for a, b in zip(x, y)]


class Heads:
    def __init__(self, kind, name):
        self.file = Safetensors(TINY / f"{name}-{kind}.safetensors")
        self.config = json.loads(self.file.metadata["avocet.heads"])
        self.epsilon = self.config["norm_epsilon"]
        model = Safetensors(MODEL / "model.safetensors")
        self.embedding = model.matrix("model.embed_tokens.weight")  # tied: also the head
        self.final_norm = model.raw("model.norm.weight")
        self.frequent = self.file.raw("frequent")
        self.head = [self.embedding[token] for token in self.frequent]


class MedusaHeads(Heads):
    def logits(self, k, last_tap, token):
        n = norm(last_tap, self.final_norm, self.epsilon)
        u = norm(self.embedding[token], [1.0] * len(n), self.epsilon)
        inner = add(product(self.file.matrix(f"medusa.{k}.state.weight"), n),
                    product(self.file.matrix(f"medusa.{k}.token.weight"), u))
        return product(self.head, add(n, [silu(v) for v in inner]))


class EagleLayer(Heads):
    def __init__(self, name):
        super().__init__("eagle", name)
        self.keys, self.values = [], []
        self.weights = {name.removeprefix("eagle.").removesuffix(".weight"):
                        self.file.matrix(name) if len(entry["shape"]) == 2 else self.file.raw(name)
                        for name, entry in self.file.entries.items() if name.endswith(".weight")}

    def first_state(self, taps):
        w = self.weights
        normed = [norm(tap, weight, self.epsilon) for tap, weight in zip(taps, w["tap_norm"])]
        return product(w["fuse"], sum(normed, []))

    def heads_of(self, x, position=None):
        size = self.config["head_size"]
        heads = rows_of(x, size)
        if position is None:
            return heads
        half, rotated = size // 2, []
        for head in heads:
            out = list(head)
            for i in range(half):
                angle = position * self.config["rope_base"] ** (-2 * i / size)
                a, b = head[i], head[i + half]
                out[i] = a * math.cos(angle) - b * math.sin(angle)
                out[i + half] = b * math.cos(angle) + a * math.sin(angle)
            rotated.append(out)
        return rotated

    def attend(self, q):
        size, out = self.config["head_size"], []
        group = self.config["attention_heads"] // self.config["kv_heads"]
        for h, query in enumerate(q):
            scores = [sum(a * b for a, b in zip(query, key[h // group])) / math.sqrt(size)
                      for key in self.keys]
            highest = max(scores)
            weights = [math.exp(score - highest) for score in scores]
            total = sum(weights)
            for d in range(size):
                out.append(sum(w * value[h // group][d]
                               for w, value in zip(weights, self.values)) / total)
        return out

    def row(self, state, token):
        """(output that is the next draft's state, logits)"""
        w, position = self.weights, len(self.keys)
        x = product(w["input"], norm(state, w["state_norm"], self.epsilon) +
                    norm(self.embedding[token], w["token_norm"], self.epsilon))
        y = norm(x, w["layer.attn_norm"], self.epsilon)
        q = self.heads_of(product(w["layer.attn_q"], y), position)
        self.keys.append(self.heads_of(product(w["layer.attn_k"], y), position))
        self.values.append(self.heads_of(product(w["layer.attn_v"], y)))
        x = add(x, product(w["layer.attn_output"], self.attend(q)))
        y = norm(x, w["layer.ffn_norm"], self.epsilon)
        inner = [silu(gate) * up for gate, up in zip(product(w["layer.ffn_gate"], y),
                                                     product(w["layer.ffn_up"], y))]
        x = add(x, product(w["layer.ffn_down"], inner))
        return x, product(self.head, norm(x, w["output_norm"], self.epsilon))


class HeadsTest(unittest.TestCase):
    def setUp(self):
        self.expected = json.loads((TINY / "expected.json").read_text())
        self.tokens = self.expected["tokens"]
        (rows, taps, width), flat = read_npy(TINY / "taps.npy")
        self.taps = [rows_of(flat[i * taps * width:(i + 1) * taps * width], width)
                     for i in range(rows)]

    def close(self, found, expected):
        self.assertEqual(len(found), len(expected))
        bound = 2e-5 * max(abs(v) for v in expected)
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), bound)

    def test_medusa(self):
        for name in ("f32", "q8"):
            shape, flat = read_npy(TINY / f"{name}-medusa.npy")
            heads = MedusaHeads("medusa", name)
            expected = rows_of(flat, shape[2])
            for k in range(shape[0]):
                for t in (0, 7, shape[1] - 1):
                    found = heads.logits(k, self.taps[t][-1], self.tokens[t + 1])
                    self.close(found, expected[k * shape[1] + t])

    def test_eagle(self):
        for name in ("f32", "q8"):
            every = rows_of(read_npy(TINY / f"{name}-eagle.npy")[1], 61)
            chain = rows_of(read_npy(TINY / f"{name}-eagle-chain.npy")[1], 61)
            layer = EagleLayer(name)
            for j in range(1, len(self.tokens)):
                state, logits = layer.row(layer.first_state(self.taps[j - 1]), self.tokens[j])
                self.close(logits, every[j - 1])
            drafts = []
            for step, expected in enumerate(chain):
                if step > 0:
                    state, logits = layer.row(state, drafts[-1])
                self.close(logits, expected)
                drafts.append(layer.frequent[logits.index(max(logits))])
            self.assertEqual(drafts, self.expected[name]["drafts"])

    def test_q8_differs(self):
        """The two files must not be the same weights twice."""
        self.assertNotEqual(read_npy(TINY / "f32-eagle.npy"), read_npy(TINY / "q8-eagle.npy"))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
