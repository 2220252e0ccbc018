#!/usr/bin/env python3
"""Makes tests/fixtures/models: tiny random models of every architecture with the logits that
transformers computes for them at every position. Run by hand when the catalogue changes:
    .venv/bin/python tools/oracle/make_models.py [NAME…]
Each folder holds the model as Hugging Face would save it, ids.npy (int32) and logits.npy (float32,
[positions][vocabulary]); NAME.gguf beside it is the same model as llama.cpp's converter would write
it."""
import copy
import json
import pathlib
import shutil
import sys
import zlib

import numpy
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import catalogue
import gguf_twin
import reference

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "models"
BYTES_MAX = 300 * 1024


def random_tensor(case, name, shape):
    """Numbers of a healthy size: attention is neither flat nor a single peak, norms are not 1."""
    generator = numpy.random.Generator(numpy.random.Philox(zlib.crc32(f"{case}/{name}".encode())))
    normal = generator.standard_normal(shape)
    gemma = case.startswith("gemma")
    if len(shape) == 1:
        is_norm = name.endswith("weight")
        return 0.3 * normal + (1.0 if is_norm and not gemma else 0.0)
    if "embed" in name or "wte" in name or "wpe" in name:
        return normal * (4.0 / shape[-1] ** 0.5 if gemma else 0.7)
    if name.endswith("_bias"):  # of all experts
        return 0.3 * normal
    if len(shape) == 3 and not case.startswith("gpt-oss"):  # [experts][outputs][inputs]
        return normal * 1.5 / shape[2] ** 0.5
    if name.endswith("gate_up_proj"):  # so large that gpt-oss's activation clips some
        return normal * 6.0 / shape[1] ** 0.5
    inputs = shape[0] if ".c_" in name else shape[1]
    return normal * 1.5 / inputs ** 0.5


def build(case, storage):
    hf.set_seed(0)
    model = hf.AutoModelForCausalLM.from_config(case.config, attn_implementation="eager",
                                                   experts_implementation="eager").eval()
    seen = set()
    for name, parameter in model.named_parameters():
        if parameter.data_ptr() in seen:
            continue
        seen.add(parameter.data_ptr())
        values = random_tensor(case.name, name, tuple(parameter.shape))
        parameter.data.copy_(torch.tensor(values).to(storage))
    return model


def legacy_config(path):
    """The file as transformers 4 wrote it: rope_theta and rope_scaling beside each other."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern", None) or (
            config["layer_types"].index("full_attention") + 1)
        config.pop("layer_types")
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] == "default":
        config["rope_scaling"] = None
    else:
        if rope["rope_type"] == "longrope":
            rope.pop("original_max_position_embeddings")
            rope = {"type": rope.pop("rope_type"), **rope}
        config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype", "float32")
    path.write_text(json.dumps(config, indent=2) + "\n")


def bare_names(folder):
    """The hub's gpt2: no "transformer." in front, the causal mask saved with every layer."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("h."))
    for layer in range(layers):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, 8, 8))
    save_file(tensors, path, metadata={"format": "pt"})


def wrap(folder):
    """As Gemma 3 from 4B on is published: text_config inside, vision tensors beside."""
    path = folder / "config.json"
    text = json.loads(path.read_text())
    text.pop("architectures")
    path.write_text(json.dumps({"architectures": ["Gemma3ForConditionalGeneration"],
                                "model_type": "gemma3", "text_config": text,
                                "vision_config": {"model_type": "siglip_vision_model"}},
                               indent=2) + "\n")
    path = folder / "model.safetensors"
    tensors = {f"language_model.{name}": tensor for name, tensor in load_file(path).items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(5)
    tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(5)
    save_file(tensors, path, metadata={"format": "pt"})


def round_mxfp4(tensor):
    """[experts][inputs][outputs] as blocks, scales and the numbers that they hold."""
    blocks = tensor.transpose(1, 2).float().unflatten(2, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
    near = (blocks * 2 ** -exponents[..., None])[..., None] - reference.MXFP4
    numbers = near.abs().argmin(-1).to(torch.uint8)
    packed = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return packed, (exponents + 127).to(torch.uint8)


def save_mxfp4(folder, model):
    """Experts on MXFP4's grid, in the model itself and in the file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales = round_mxfp4(tensors.pop(name))
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks.contiguous(), scales
        exact = reference.mxfp4_numbers(blocks, scales).transpose(1, 2)
        model.get_parameter(name).data.copy_(exact)
    save_file(tensors, path, metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    path.write_text(json.dumps(config, indent=2) + "\n")


def save_hidden(case):
    folder = FIXTURES / case.name
    found = reference.hidden(reference.load(folder), numpy.load(folder / "ids.npy"), case.stepwise)
    numpy.save(folder / "hidden.npy", found.astype(numpy.float32))


def make(case):
    folder = FIXTURES / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    storage = getattr(torch, case.storage)
    exact = build(case, storage)  # F32 that holds the rounded numbers
    model = copy.deepcopy(exact).to(storage)
    shard = {"max_shard_size": case.shard} if case.shard else {}
    model.save_pretrained(folder, **shard)
    if case.mxfp4:
        save_mxfp4(folder, exact)
    if case.legacy:
        legacy_config(folder / "config.json")
    if case.wrapped:
        wrap(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    draw = numpy.random.Generator(numpy.random.Philox(zlib.crc32(case.name.encode())))
    ids = draw.integers(0, case.config.vocab_size, case.positions).astype(numpy.int32)
    single = reference.logits(reference.load(folder), ids, case.stepwise)
    built = reference.logits(exact, ids, case.stepwise)
    assert numpy.array_equal(built, single), f"{case.name}: the folder reads back differently"
    double = reference.logits(reference.load(folder, torch.float64), ids, case.stepwise)
    numpy.save(folder / "ids.npy", ids)
    numpy.save(folder / "logits.npy", single.astype(numpy.float32))
    save_hidden(case)
    if case.bare_names:
        bare_names(folder)
        again = reference.logits(reference.load(folder), ids)
        assert numpy.array_equal(again, single), case.name
    twin = FIXTURES / f"{case.name}.gguf"
    if case.gguf:
        gguf_twin.write(twin, model, case.storage)

    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size <= BYTES_MAX, f"{case.name}: {size} bytes"
    top = numpy.sort(torch.softmax(torch.tensor(single), -1).numpy())[:, -1]
    print(f"{case.name:14s} {size:7d} bytes  range {single.min():7.2f} …{single.max():6.2f}  "
          f"top p {top.mean():.2f}  float64 differs by {reference.difference(double, single):.1e}")


def main():
    wanted = sys.argv[1:]
    hidden_only = "--hidden" in wanted  # of the models that are there
    wanted = [name for name in wanted if name != "--hidden"]
    for case in catalogue.cases():
        if not wanted or case.name in wanted:
            (save_hidden if hidden_only else make)(case)


if __name__ == "__main__":
    main()
