"""Reads and writes the files of heads: safetensors, as docs/heads.md describes them."""
import json
import pathlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from safetensors import safe_open

from heads import Draft, Eagle, Medusa

BLOCK = 32
VERSION = "1"


def pack8(weight):
    """A matrix as int8 with one float16 scale for each 32 columns (the last block may be
    shorter)."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % BLOCK)).reshape(rows, -1, BLOCK)
    scale = (padded.abs().amax(-1) / 127).to(torch.float16)
    divisor = torch.where(scale == 0, 1.0, scale.float())
    values = torch.round(padded / divisor[..., None]).clamp(-127, 127).to(torch.int8)
    return {"weight": values.reshape(rows, -1)[:, :columns].contiguous(), "scale": scale}


def levels4(blocks):
    """(levels 0…15, scale, minimum) of blocks of 32 numbers; the latter two are float16 values."""
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    minimum = low.to(torch.float16).to(blocks.dtype)
    scale = ((high - minimum) / 15).to(torch.float16).to(blocks.dtype)
    divisor = torch.where(scale == 0, torch.ones_like(scale), scale)
    return torch.round((blocks - minimum) / divisor).clamp(0, 15), scale, minimum


def round4(weight):
    """The matrix that pack4 stores; its gradient passes as if nothing had been rounded."""
    with torch.no_grad():
        levels, scale, minimum = levels4(weight.float().unflatten(-1, (-1, BLOCK)))
        offset = (levels * scale + minimum).flatten(-2).to(weight.dtype) - weight
    return weight + offset


def pack4(weight):
    """A matrix as the parts of GGUF's Q4_1 blocks: byte b of a block has column b in its low and
    column b + 16 in its high half. The last block is filled up."""
    missing = -weight.shape[1] % BLOCK
    weight = torch.cat([weight, weight[:, -1:].expand(-1, missing)], dim=1)
    levels, scale, minimum = levels4(weight.unflatten(-1, (-1, BLOCK)))
    levels = levels.to(torch.uint8)
    values = levels[..., :BLOCK // 2] | levels[..., BLOCK // 2:] << 4
    return {"weight": values.flatten(-2).contiguous(), "scale": scale[..., 0].to(torch.float16),
            "minimum": minimum[..., 0].to(torch.float16)}


def unpack(stored, name, columns):
    """The matrix `name` as float32, whatever its encoding."""
    values = stored[name]
    if values.dtype == torch.int8:
        scale = stored[name.replace(".weight", ".scale")].float()
        return values.float() * scale.repeat_interleave(BLOCK, dim=1)[:, :columns]
    if values.dtype == torch.uint8:
        scale = stored[name.replace(".weight", ".scale")].float()[..., None]
        minimum = stored[name.replace(".weight", ".minimum")].float()[..., None]
        halves = values.unflatten(-1, (-1, BLOCK // 2))
        levels = torch.cat([halves & 15, halves >> 4], dim=-1).float()
        return (levels * scale + minimum).flatten(-2)[:, :columns]
    return values.float()


def fields_of(module):
    """(kind, its fields)"""
    if isinstance(module, Medusa):
        return "medusa", {"heads": module.count, "token": len(module.token) > 0}
    shape = {"depth": module.depth, "window": module.window, "attention_heads": module.heads,
             "kv_heads": module.kv_heads, "head_size": module.head_size,
             "feed_forward": module.feed_forward, "rope_base": module.rope_base}
    if isinstance(module, Eagle):
        return "eagle", {"taps": list(module.taps), **shape}
    return "layers", shape


def save_heads(path, base, module, frequent, bits=8):
    """bits: 4, 8 or 32."""
    tensors = {}
    for name, value in module.tensors().items():
        value = value.detach().float().cpu()
        if value.ndim == 2 and bits < 32 and not name.endswith("norm.weight"):
            parts = pack4(value) if bits == 4 else pack8(value)
            for part, content in parts.items():
                tensors[name.removesuffix("weight") + part] = content
        else:
            tensors[name] = value.contiguous()
    tensors["frequent"] = torch.as_tensor(frequent).to(torch.int32).cpu()
    kind, fields = fields_of(module)
    config = {"version": VERSION, "kind": kind, "width": base.width, "layers": base.layers,
              "vocabulary": base.embedding.shape[0], "frequent": len(frequent),
              "norm_epsilon": base.epsilon, "base_sha256": base.digest(), **fields}
    path = pathlib.Path(path)
    save_file(tensors, path.with_suffix(".part"), metadata={"avocet.heads": json.dumps(config)})
    path.with_suffix(".part").replace(path)


def make_module(base, config):
    if config["kind"] == "medusa":
        return Medusa(base, config["heads"], config["token"])
    depth, window = config.get("depth", 1), config.get("window", 0)
    if config["kind"] == "eagle":
        return Eagle(base, config["taps"], depth, window)
    return Draft(base, depth, window)


def load_heads(path, base):
    """(module on the CPU in float32, its frequent tokens, its fields)"""
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["avocet.heads"])
    if config["base_sha256"] != base.digest():
        raise SystemExit(f"{path}: made for another model ({config['base_sha256'][:12]}…)")
    stored = load_file(path)
    module = make_module(base, config)
    with torch.no_grad():
        for name, parameter in module.tensors().items():
            parameter.copy_(unpack(stored, name, parameter.shape[-1]).reshape(parameter.shape))
    return module, stored["frequent"].numpy().astype(numpy.int64), config
