"""Reads and writes the files of heads: safetensors, as docs/heads.md describes them."""
import json
import pathlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from safetensors import safe_open

from heads import Eagle, Medusa

BLOCK = 32
VERSION = "1"


def pack(weight):
    """A matrix as int8 with one float16 scale for each 32 columns (the last block may be
    shorter)."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % BLOCK)).reshape(rows, -1, BLOCK)
    scale = (padded.abs().amax(-1) / 127).to(torch.float16)
    divisor = torch.where(scale == 0, 1.0, scale.float())
    values = torch.round(padded / divisor[..., None]).clamp(-127, 127).to(torch.int8)
    return values.reshape(rows, -1)[:, :columns].contiguous(), scale


def unpack(values, scale):
    return values.float() * scale.float().repeat_interleave(BLOCK, dim=1)[:, :values.shape[1]]


def save_file_of(path, kind, base, module, frequent, extra, packed=True):
    tensors = {}
    for name, value in module.tensors().items():
        value = value.detach().float().cpu()
        if value.ndim == 2 and packed and not name.endswith("norm.weight"):
            tensors[name], tensors[name.replace(".weight", ".scale")] = pack(value)
        else:
            tensors[name] = value.contiguous()
    tensors["frequent"] = torch.as_tensor(frequent).to(torch.int32)
    config = {"version": VERSION, "kind": kind, "width": base.width, "layers": base.layers,
              "vocabulary": base.embedding.shape[0], "frequent": len(frequent),
              "norm_epsilon": base.epsilon, "base_sha256": base.digest(), **extra}
    save_file(tensors, path, metadata={"avocet.heads": json.dumps(config)})


def save_heads(folder, base, medusa, eagle, frequent, packed=True, name="smollm2-135m"):
    """Either of medusa and eagle may be None."""
    folder = pathlib.Path(folder)
    if medusa is not None:
        save_file_of(folder / f"{name}-medusa.safetensors", "medusa", base, medusa, frequent,
                     {"heads": medusa.count, "token": len(medusa.token) > 0}, packed)
    if eagle is not None:
        save_file_of(folder / f"{name}-eagle.safetensors", "eagle", base, eagle, frequent,
                     {"taps": list(eagle.taps), "attention_heads": eagle.heads,
                      "kv_heads": eagle.kv_heads, "head_size": eagle.head_size,
                      "feed_forward": eagle.ffn_gate.shape[0], "rope_base": eagle.rope_base},
                     packed)


def load_heads(path, base):
    """The module of a file, on the CPU in float32, with its frequent tokens."""
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["avocet.heads"])
    if config["base_sha256"] != base.digest():
        raise SystemExit(f"{path}: made for another model ({config['base_sha256'][:12]}…)")
    stored = load_file(path)
    if config["kind"] == "medusa":
        module = Medusa(base, config["heads"], config["token"])
    else:
        module = Eagle(base, config["taps"])
    with torch.no_grad():
        for name, parameter in module.tensors().items():
            value = stored[name]
            if value.dtype == torch.int8:
                value = unpack(value, stored[name.replace(".weight", ".scale")])
            parameter.copy_(value.reshape(parameter.shape))
    return module, stored["frequent"].numpy().astype(numpy.int64), config
