"""The base model in PyTorch: reads SmolLM2's GGUF (or a tiny Llama folder), dequantises and runs
it. A tap is the residual stream: tap L is the input of layer L, tap `layers` is the output
of the last layer, in front of the final norm.
"""
import hashlib
import json
import math
import pathlib
import struct

import numpy
import torch
from torch.nn import functional

torch.backends.cuda.enable_cudnn_sdp(False)  # plans every new shape for seconds

GGUF_VALUES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
               10: "<Q", 11: "<q", 12: "<d"}
GGUF_STRING, GGUF_ARRAY = 8, 9
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}


class GgufFile:
    """Metadata and tensors of a GGUF file with types F32, F16, Q4_1 and Q8_0."""

    def __init__(self, path):
        self.bytes = numpy.memmap(path, mode="r")
        self.at = 0
        magic, version, tensor_count, pair_count = self.read("<IIQQ")
        if magic != 0x46554747 or version != 3:
            raise SystemExit(f"{path}: not a GGUF file of version 3")
        self.metadata = {}
        for _ in range(pair_count):
            key = self.read_string()
            self.metadata[key] = self.read_value(self.read("<I")[0])
        self.entries = {}
        for _ in range(tensor_count):
            name = self.read_string()
            shape = [self.read("<Q")[0] for _ in range(self.read("<I")[0])]
            kind, offset = self.read("<IQ")
            if kind not in TYPES:
                raise SystemExit(f"{path}: tensor {name} has type {kind}, known are {list(TYPES)}")
            self.entries[name] = (shape[::-1], kind, offset)
        alignment = self.metadata.get("general.alignment", 32)
        self.data = (self.at + alignment - 1) // alignment * alignment

    def read(self, form):
        size = struct.calcsize(form)
        values = struct.unpack(form, self.bytes[self.at:self.at + size].tobytes())
        self.at += size
        return values

    def read_string(self):
        length, = self.read("<Q")
        self.at += length
        return self.bytes[self.at - length:self.at].tobytes().decode()

    def read_value(self, kind):
        if kind == GGUF_STRING:
            return self.read_string()
        if kind == GGUF_ARRAY:
            inner, count = self.read("<IQ")
            return [self.read_value(inner) for _ in range(count)]
        return self.read(GGUF_VALUES[kind])[0]

    def tensor(self, name):
        shape, kind, offset = self.entries[name]
        label, block, block_bytes = TYPES[kind]
        count = math.prod(shape) // block
        begin = self.data + offset
        raw = numpy.array(self.bytes[begin:begin + count * block_bytes])
        return torch.from_numpy(dequantise(raw, label, count)).reshape(shape)


def dequantise(raw, label, count):
    """Bytes of `count` blocks to float32."""
    if label == "F32":
        return raw.view(numpy.float32)
    if label == "F16":
        return raw.view(numpy.float16).astype(numpy.float32)
    blocks = raw.reshape(count, -1)
    scale = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    if label == "Q8_0":
        return scale * blocks[:, 2:].view(numpy.int8).astype(numpy.float32)
    minimum = blocks[:, 2:4].copy().view(numpy.float16).astype(numpy.float32)
    nibbles = numpy.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return scale * nibbles.astype(numpy.float32) + minimum


class Rope:
    """Rotation of pairs (i, i + head_size / 2), as in Hugging Face's Llama."""

    def __init__(self, head_size, base, positions, device, dtype):
        inverse = base ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), inverse)
        angles = torch.cat([angles, angles], dim=1)
        self.cos = angles.cos().to(device, dtype)
        self.sin = angles.sin().to(device, dtype)

    def __call__(self, x, positions):
        """x: [..., rows, heads, head_size], positions: [rows] or broadcastable to x's rows."""
        first, second = x.chunk(2, dim=-1)
        cos, sin = self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
        return x * cos + torch.cat([-second, first], dim=-1) * sin


def rms_norm(x, weight, epsilon):
    """weight: [width], or [taps, width] for x of shape [..., taps, width]."""
    if weight.ndim == 1:
        return functional.rms_norm(x, weight.shape, weight.to(x.dtype), epsilon)
    return functional.rms_norm(x, weight.shape[-1:], None, epsilon) * weight.to(x.dtype)


class Llama:
    """Weights and sizes of the base model, frozen."""

    def __init__(self, path, device="cpu", dtype=torch.float32, positions=1024):
        path = pathlib.Path(path)
        self.path, self.device, self.dtype, self.sum = path, device, dtype, None
        tensors = self.open_folder(path) if path.is_dir() else self.open_gguf(path)
        self.tensors = {name: value.to(device, dtype) for name, value in tensors.items()}
        self.embedding = self.tensors["token_embd.weight"]
        self.head = self.tensors.get("output.weight", self.embedding)
        self.norm = self.tensors["output_norm.weight"]
        self.rope = Rope(self.head_size, self.rope_base, positions, device, dtype)

    def open_gguf(self, path):
        file = GgufFile(path)
        self.metadata = file.metadata
        get = lambda key: file.metadata["llama." + key]
        self.layers, self.width = get("block_count"), get("embedding_length")
        self.heads, self.kv_heads = get("attention.head_count"), get("attention.head_count_kv")
        self.feed_forward = get("feed_forward_length")
        self.rope_base = get("rope.freq_base")
        self.epsilon = get("attention.layer_norm_rms_epsilon")
        self.head_size = self.width // self.heads
        tensors = {}
        for name in file.entries:
            value = file.tensor(name)
            # llama.cpp's converter reorders the rows of Q and K for rotation of neighbours.
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                pairs = value.reshape(-1, self.head_size // 2, 2, value.shape[1])
                value = pairs.transpose(1, 2).reshape(value.shape)
            tensors[name] = value
        return tensors

    def open_folder(self, folder):
        from safetensors.torch import load_file
        self.metadata = {}
        config = json.loads((folder / "config.json").read_text())
        self.layers, self.width = config["num_hidden_layers"], config["hidden_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.feed_forward, self.head_size = config["intermediate_size"], config["head_dim"]
        self.rope_base, self.epsilon = config["rope_theta"], config["rms_norm_eps"]
        names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
                 "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
                 "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
                 "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
                 "model.layers.": "blk.", "model.embed_tokens": "token_embd",
                 "model.norm": "output_norm", "lm_head": "output"}
        tensors = {}
        for name, value in load_file(folder / "model.safetensors").items():
            for theirs, ours in names.items():
                name = name.replace(theirs, ours)
            tensors[name] = value.float()
        return tensors

    def layer(self, index):
        prefix = f"blk.{index}."
        return {name[len(prefix):-len(".weight")]: value for name, value in self.tensors.items()
                if name.startswith(prefix)}

    def digest(self):
        """SHA-256 of the file that holds the weights."""
        if self.sum is None:
            path = self.path / "model.safetensors" if self.path.is_dir() else self.path
            self.sum = hashlib.sha256(path.read_bytes()).hexdigest()
        return self.sum

    @torch.no_grad()
    def forward(self, tokens, taps=()):
        """tokens: [batch, rows], right-padded (causal attention hides the padding). Returns the
        stack of taps, [batch, rows, len(taps) + 1, width]; the last one is tap `layers`."""
        batch, rows = tokens.shape
        positions = torch.arange(rows, device=self.device)
        x = self.embedding[tokens]
        kept = []
        for index in range(self.layers):
            if index in taps:
                kept.append(x)
            w = self.layer(index)
            y = rms_norm(x, w["attn_norm"], self.epsilon)
            q, k, v = (functional.linear(y, w[name]).reshape(batch, rows, -1, self.head_size)
                       for name in ("attn_q", "attn_k", "attn_v"))
            q, k = self.rope(q, positions), self.rope(k, positions)
            attended = functional.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                enable_gqa=True)
            attended = attended.transpose(1, 2).reshape(batch, rows, -1)
            x = x + functional.linear(attended, w["attn_output"])
            y = rms_norm(x, w["ffn_norm"], self.epsilon)
            y = functional.silu(functional.linear(y, w["ffn_gate"])) * functional.linear(
                y, w["ffn_up"])
            x = x + functional.linear(y, w["ffn_down"])
        return torch.stack(kept + [x], dim=2)

    def logits(self, last_tap):
        return functional.linear(rms_norm(last_tap, self.norm, self.epsilon), self.head)
