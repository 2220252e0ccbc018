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
        form = {"F32": "f", "F16": "e", "I8": "b", "U8": "B", "I32": "i"}[entry["dtype"]]
        return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))

    def rows(self, name):
        return rows_of(self.raw(name), self.entries[name]["shape"][1])

    def matrix(self, name, columns=0):
        """columns: of the matrix, needed where it has 4 bits."""
        values, kind = self.rows(name), self.entries[name]["dtype"]
        if kind not in ("I8", "U8"):
            return values
        scales = self.rows(name.replace(".weight", ".scale"))
        if kind == "I8":
            return [[value * scale[k // BLOCK] for k, value in enumerate(row)]
                    for row, scale in zip(values, scales)]
        minima = self.rows(name.replace(".weight", ".minimum"))
        return [[level4(row, k) * scale[k // BLOCK] + minimum[k // BLOCK] for k in range(columns)]
                for row, scale, minimum in zip(values, scales, minima)]


def level4(row, k):
    """Column k of a row of 4-bit values, two to a byte: columns 0…15 of a block of 32 are the low
    halves of its bytes, columns 16…31 the high ones."""
    block, inner = divmod(k, BLOCK)
    byte = row[block * BLOCK // 2 + inner % (BLOCK // 2)]
    return byte & 15 if inner < BLOCK // 2 else byte >> 4


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


class Layers(Heads):
    """The part that the EAGLE layers and the distilled draft have in common."""

    def __init__(self, kind, name):
        super().__init__(kind, name)
        self.keys = [[] for _ in range(self.config["depth"])]
        self.values = [[] for _ in range(self.config["depth"])]
        self.weights = {}
        prefix = "eagle." if kind == "eagle" else ""
        for name, entry in self.file.entries.items():
            if name.endswith(".weight"):
                is_matrix = len(entry["shape"]) == 2
                self.weights[name.removeprefix(prefix).removesuffix(".weight")] = (
                    self.file.matrix(name, self.columns(name)) if is_matrix
                    else self.file.raw(name))

    def columns(self, name):
        width = self.config["width"]
        special = {"fuse": len(self.config.get("taps", [])) * width, "input": 2 * width,
                   "attn_output": self.config["attention_heads"] * self.config["head_size"],
                   "ffn_down": self.config["feed_forward"]}
        return special.get(name.split(".")[-2], width)

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

    def attend(self, q, keys, values):
        window = self.config["window"]
        keys, values = keys[-window:], values[-window:]  # 0: all
        size, out = self.config["head_size"], []
        group = self.config["attention_heads"] // self.config["kv_heads"]
        for h, query in enumerate(q):
            scores = [sum(a * b for a, b in zip(query, key[h // group])) / math.sqrt(size)
                      for key in keys]
            highest = max(scores)
            weights = [math.exp(score - highest) for score in scores]
            total = sum(weights)
            for d in range(size):
                out.append(sum(w * value[h // group][d]
                               for w, value in zip(weights, values)) / total)
        return out

    def through_layers(self, x, prefix):
        for index, (keys, values) in enumerate(zip(self.keys, self.values)):
            w = {name.removeprefix(f"{prefix}.{index}."): value
                 for name, value in self.weights.items() if name.startswith(f"{prefix}.{index}.")}
            position = len(keys)
            y = norm(x, w["attn_norm"], self.epsilon)
            q = self.heads_of(product(w["attn_q"], y), position)
            keys.append(self.heads_of(product(w["attn_k"], y), position))
            values.append(self.heads_of(product(w["attn_v"], y)))
            x = add(x, product(w["attn_output"], self.attend(q, keys, values)))
            y = norm(x, w["ffn_norm"], self.epsilon)
            inner = [silu(gate) * up for gate, up in zip(product(w["ffn_gate"], y),
                                                         product(w["ffn_up"], y))]
            x = add(x, product(w["ffn_down"], inner))
        return x, product(self.head, norm(x, self.weights["output_norm"], self.epsilon))


class EagleLayers(Layers):
    def first_state(self, taps):
        w = self.weights
        normed = [norm(tap, weight, self.epsilon) for tap, weight in zip(taps, w["tap_norm"])]
        return product(w["fuse"], sum(normed, []))

    def row(self, state, token):
        """(output that is the next draft's state, logits)"""
        w = self.weights
        x = product(w["input"], norm(state, w["state_norm"], self.epsilon) +
                    norm(self.embedding[token], w["token_norm"], self.epsilon))
        return self.through_layers(x, "layer")


class DraftLayers(Layers):
    def first_state(self, _):
        return None

    def row(self, _, token):
        return self.through_layers(self.embedding[token], "layers")


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

    def check_rows(self, name, layers, first):
        """Every row from that of token `first`, then four drafts."""
        every = rows_of(read_npy(TINY / f"{name}.npy")[1], 61)
        chain = rows_of(read_npy(TINY / f"{name}-chain.npy")[1], 61)
        for j in range(first, len(self.tokens)):
            state = layers.first_state(self.taps[j - 1])
            state, logits = layers.row(state, self.tokens[j])
            self.close(logits, every[j - first])
        drafts = []
        for step, expected in enumerate(chain):
            if step > 0:
                state, logits = layers.row(state, drafts[-1])
            self.close(logits, expected)
            drafts.append(layers.frequent[logits.index(max(logits))])
        self.assertEqual(drafts, self.expected[name]["drafts"])

    def test_eagle(self):
        for name in ("f32", "q8", "deep"):
            self.check_rows(f"{name}-eagle", EagleLayers("eagle", name), 1)

    def test_layers(self):
        for name in ("f32", "q4"):
            self.check_rows(f"{name}-layers", DraftLayers("layers", name), 0)

    def test_q8_differs(self):
        """The two files must not be the same weights twice."""
        self.assertNotEqual(read_npy(TINY / "f32-eagle.npy"), read_npy(TINY / "q8-eagle.npy"))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
