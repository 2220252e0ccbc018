#!/usr/bin/env python3
"""Makes tests/fixtures/train: gradients that PyTorch and peft compute on the tiny models of
tests/fixtures/models, for every architecture, LoRA, rsLoRA, DoRA and full tuning. Run by hand when
the list changes:
    .venv/bin/python tools/oracle/make_gradients.py [NAME…]

The function is Σ c(i) · log p(token i | tokens before it) over positions 1 … n − 1 of the model's
ids.npy, with c(i) = ((7·i) mod 11 − 5) ÷ 10; where that is 0, the token does not count. Longer cases
go through the ids again and again, from another one each time: token i is number
(7·i + ⌊i ÷ length⌋) mod length of the file.
Each folder NAME holds the adapter as PEFT saves it (LoRA), and gradients.safetensors: for every
parameter its gradient, or of more than SAMPLE numbers those at i · count ÷ SAMPLE, its largest
magnitude under NAME.max, how far PyTorch is off when it computes in float32 under NAME.single (as a
part of that magnitude), and "logprobs". case.txt: model, method, rank, alpha, rslora, positions and
targets, one to a line."""
import copy
import pathlib
import shutil
import sys
import warnings
import zlib

import numpy
import peft
import torch
from safetensors.torch import load_file, save_file

import reference

warnings.filterwarnings("ignore")
torch.set_grad_enabled(True)
ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures"
FOLDER = ROOT / "train"
SAMPLE = 192
LONG = 300
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS = {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
           "gpt2": ["c_attn", "c_fc", "c_proj"],
           "opt": ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]}
MODELS = ["llama2", "llama3", "smollm2", "smollm3", "mistral", "qwen2", "qwen2-window", "qwen3",
          "gemma3", "gemma3-scaled", "phi3", "phi3-short", "gpt2", "opt", "opt-350m",
          "llama-linear", "llama-dynamic", "llama-yarn"]


def targets_of(model):
    return TARGETS.get(model.split("-")[0], LLAMA)


def cases():
    """name, model, method, options of LoraConfig; "positions" where it is not 40"""
    for model in MODELS:
        yield f"{model}-lora", model, "lora", dict(r=2, lora_alpha=3)
        yield f"{model}-full", model, "full", {}
    yield "llama2-head", "llama2", "lora", dict(r=3, lora_alpha=6, target_modules=["lm_head"])
    yield ("smollm2-head", "smollm2", "lora",
           dict(r=2, lora_alpha=5, target_modules=["v_proj", "lm_head"]))
    yield ("mistral-rslora", "mistral", "lora",
           dict(r=4, lora_alpha=3, use_rslora=True, target_modules=["k_proj", "down_proj"]))
    for model in ["llama3", "qwen2", "gemma3", "phi3", "gpt2", "opt-350m"]:
        yield f"{model}-dora", model, "lora", dict(r=2, lora_alpha=3, use_dora=True)
    # More than two blocks of attention (128 queries), in layers that see all and in windows.
    for model in ["smollm2", "qwen2-window", "gemma3"]:
        yield f"{model}-long", model, "lora", dict(r=2, lora_alpha=3, positions=LONG)


def draw(name, shape):
    generator = numpy.random.Generator(numpy.random.Philox(zlib.crc32(name.encode())))
    return torch.tensor(generator.standard_normal(shape))


def set_numbers(model, folder):
    """Values that differ from PEFT's first ones, in bfloat16 so that files are small."""
    for name, parameter in model.named_parameters():
        if "lora_magnitude" in name:
            parameter.data *= 1 + 0.1 * draw(folder + name, tuple(parameter.shape))
        elif "lora_" in name:
            parameter.data = 0.1 * draw(folder + name, tuple(parameter.shape))
        else:
            continue
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float64)


def coefficients(count):
    return torch.tensor([((7 * i) % 11 - 5) / 10 for i in range(1, count)], dtype=torch.float64)


def sampled(tensor):
    flat = tensor.reshape(-1)
    if flat.numel() <= SAMPLE:
        return flat.to(torch.float32)
    index = torch.arange(SAMPLE) * flat.numel() // SAMPLE
    return flat[index].to(torch.float32)


def wrap_up(folder, gradients, single, logprobs):
    found = {"logprobs": logprobs.detach().to(torch.float32)}
    for name, gradient in gradients.items():
        most = gradient.abs().max()
        off = (single[name].to(torch.float64) - gradient).abs().max() / most
        found[name] = sampled(gradient).contiguous()
        found[f"{name}.max"] = most.reshape(1).to(torch.float32)
        found[f"{name}.single"] = off.reshape(1).to(torch.float32)
    save_file(found, folder / "gradients.safetensors")


def adapted(model, base, options, folder):
    options.setdefault("target_modules", targets_of(base))
    config = peft.LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=base.startswith("gpt2"),
                             **options)
    wrapped = peft.get_peft_model(model, config)
    set_numbers(wrapped, folder.name)
    wrapped.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_model.safetensors"
    kept = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()
            if "base_layer" not in name and "lora" in name}
    save_file(kept, path, metadata={"format": "pt"})
    return wrapped


def saved_name(name):
    """As PEFT's files have it."""
    return name.replace(".default.weight", "").replace("lora_A", "lora_A.weight") \
        .replace("lora_B", "lora_B.weight") if "magnitude" not in name \
        else name.split(".default")[0]


class InDouble:
    """Models compute parts in float32 whatever their type is (softmax, norms, angles): all of it
    stays in float64 here. Rows of padding tokens get gradients like all others."""

    def __enter__(self):
        self.to, self.float, self.softmax = torch.Tensor.to, torch.Tensor.float, \
            torch.nn.functional.softmax
        own = self

        def to(tensor, *args, **more):
            if tensor.dtype == torch.float64 and torch.float32 in [*args, *more.values()]:
                return tensor
            return own.to(tensor, *args, **more)

        def softmax(tensor, dim=None, dtype=None, **more):
            return own.softmax(tensor, dim=dim, **more)
        torch.Tensor.to = to
        torch.Tensor.float = lambda tensor: own.to(tensor, torch.float64)
        torch.nn.functional.softmax = softmax

    def __exit__(self, *_):
        torch.Tensor.to, torch.Tensor.float = self.to, self.float
        torch.nn.functional.softmax = self.softmax


def prepare(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
        if hasattr(module, "inv_freq"):
            module.inv_freq = module.inv_freq.to(torch.float64)


def gradients_of(model, ids, method):
    tokens = torch.tensor(ids.astype(numpy.int64))[None]
    every = torch.log_softmax(model(tokens, use_cache=False).logits[0], -1)
    logprobs = every[:-1].gather(1, tokens[0, 1:, None])[:, 0]
    (coefficients(len(ids)).to(every.dtype) * logprobs).sum().backward()
    return {saved_name(key) if method == "lora" else key: parameter.grad
            for key, parameter in model.named_parameters()
            if parameter.grad is not None}, logprobs


def ids_of(base, count):
    ids = numpy.load(ROOT / "models" / base / "ids.npy")
    if count <= len(ids):
        return ids[:count]
    places = numpy.arange(count)
    return ids[(7 * places + places // len(ids)) % len(ids)]


def make(name, base, method, options):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids = ids_of(base, options.pop("positions", 16 if base == "llama-dynamic" else 40))
    model = reference.load(ROOT / "models" / base, torch.float64)
    if method == "lora":
        model = adapted(model, base, options, folder)
    else:
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    prepare(model)
    single = gradients_of(copy.deepcopy(model).to(torch.float32), ids, method)[0]
    with InDouble():
        gradients, logprobs = gradients_of(model, ids, method)
    wrap_up(folder, gradients, single, logprobs)
    targets = options.get("target_modules", []) if method == "lora" else []
    lines = [base, "dora" if options.get("use_dora") else method, options.get("r", 0),
             options.get("lora_alpha", 0), int(options.get("use_rslora", False)), len(ids)]
    (folder / "case.txt").write_text("".join(f"{line}\n" for line in [*lines, *targets]))
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name:20s} {size:7d} bytes, {len(gradients)} parameters")


def main():
    wanted = sys.argv[1:]
    for case in cases():
        if not wanted or case[0] in wanted:
            make(*case)


if __name__ == "__main__":
    main()
