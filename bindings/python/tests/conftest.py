"""A tiny model with a tokenizer and random adapters for it, written by the tests themselves."""
import json
import struct
import sys
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

import avocet  # noqa: E402
import chat_model  # noqa: E402
import tiny_model  # noqa: E402


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())


def write_adapter(folder, seed, rank=4, alpha=16.0, size=0.5):
    """A PEFT folder: LoRA on q and v of the tiny model."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(seed)
    width = tiny_model.WIDTH
    kv_width = width // tiny_model.HEADS * tiny_model.KV_HEADS
    tensors = {}
    for layer in range(tiny_model.LAYERS):
        for name, rows in (("q_proj", width), ("v_proj", kv_width)):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{stem}.lora_A.weight"] = random.normal(
                0, size, (rank, width)).astype(numpy.float32)
            tensors[f"{stem}.lora_B.weight"] = random.normal(
                0, size, (rows, rank)).astype(numpy.float32)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none",
              "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def chat_model_path(tmp_path_factory):
    return chat_model.write_random_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="session")
def endless_model_path(tmp_path_factory):
    """The same with room for answers of minutes: what ends one early was not the machine's load."""
    return chat_model.write_random_model(tmp_path_factory.mktemp("endless"), context=131072)


@pytest.fixture(scope="session")
def adapter_paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [write_adapter(folder / f"adapter{seed}", seed) for seed in (1, 2)]


@pytest.fixture
def model(model_path):
    with avocet.Model(model_path) as model:
        yield model


@pytest.fixture
def engine(model):
    with avocet.Engine(model, sessions_max=8, logits_max=64, context_max=128,
                       threads=2) as engine:
        yield engine


@pytest.fixture
def heads():
    """Draft heads of a model of their own."""
    with avocet.Model(ROOT / "tests/fixtures/models/smollm2") as base, \
            avocet.Heads(base, ROOT / "tests/fixtures/heads/tiny/q8-medusa.safetensors") as heads:
        yield heads


@pytest.fixture
def scheduler(engine):
    with avocet.Scheduler(engine) as scheduler:
        yield scheduler
