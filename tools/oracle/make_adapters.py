#!/usr/bin/env python3
"""Makes tests/fixtures/adapters: an adapter for every option of PEFT's LoRA on the tiny models of
tests/fixtures/models, with the logits that peft and transformers compute. Run by hand when the
list changes:
    .venv/bin/python tools/oracle/make_adapters.py [NAME…]
Each folder holds the adapter as PEFT saves it, and beside it base.txt (which model it is for),
ids.npy (int32), logits.npy (float32, the last positions only) and modules.txt: one line for every
module that changes, with kind, rank, scale and the Frobenius norm of the change. NAME.gguf is the
same adapter as llama.cpp's converter would write it."""
import copy
import json
import pathlib
import shutil
import sys
import warnings
import zlib

import gguf
import numpy
import peft
import torch
from safetensors.torch import load_file, save_file

import gguf_twin
import reference

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures"
FOLDER = ROOT / "adapters"
POSITIONS, KEPT = 20, 2
MUTATING = ("pissa", "olora")
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def cases():
    """name, base, storage, options of LoraConfig, what is written over the saved file."""
    def case(name, base, storage="float32", edit=None, twin=False, **options):
        options.setdefault("r", 4)
        options.setdefault("lora_alpha", 6)
        return name, base, storage, options, edit or {}, twin
    return [
        # Plain LoRA; a rank and widths that are no multiples of 16.
        case("plain", "llama2", target_modules=["q_proj", "v_proj"], r=3, lora_alpha=5, twin=True),
        case("rank-one", "tinyllama", "float16", target_modules=["o_proj", "down_proj"], r=1),
        case("rank-forty", "smollm2", "bfloat16", target_modules=["layers.1.self_attn.k_proj"], r=40),
        # Every linear layer, by the shorthand that older files hold.
        case("all-linear", "llama2", "float16", target_modules="all-linear", use_rslora=True, r=2,
             edit={"target_modules": "All-Linear"}, twin=True),
        # Patterns: which modules, which rank, which alpha.
        case("patterns", "llama3", "bfloat16",
             target_modules=r".*layers\.[02]\.(self_attn\.(q|k|v)_proj|mlp\.down_proj)",
             rank_pattern={"^model.layers.0.self_attn.k_proj": 5, r"down_proj": 2,
                           r"layers\.\d+\.self_attn\.k_proj": 7},
             alpha_pattern={r".*\.2\..*": 11, "q_proj": 3.5}, twin=False),
        case("excluded", "smollm2", "bfloat16", target_modules=LLAMA, r=2,
             exclude_modules=["layers.1.mlp.up_proj", "k_proj"]),
        case("excluded-pattern", "qwen3", "bfloat16", target_modules=LLAMA, r=2,
             exclude_modules=r"model\.layers\.0\..*"),
        case("layers", "mistral", "bfloat16", target_modules=["q_proj", "o_proj"],
             layers_to_transform=[0, 2]),
        case("layers-pattern", "smollm3", "float16", layers_to_transform=3,
             target_modules=["v_proj", "k_proj", "model.layers.1.mlp.up_proj"],
             layers_pattern=["blocks", "layers"], twin=True),
        # Starts that change the base, saved as PEFT converts them: plain LoRA of twice the rank.
        case("pissa-converted", "llama2", target_modules=["q_proj", "down_proj"], r=3,
             init_lora_weights="pissa"),
        case("olora-converted", "tinyllama", "float16", target_modules=["v_proj", "up_proj"], r=2,
             init_lora_weights="olora"),
        # Biases.
        case("bias-all", "gpt2", target_modules=["c_attn"], bias="all", fan_in_fan_out=True, r=2),
        case("bias-lora", "qwen2", "float16", target_modules=["q_proj", "k_proj", "up_proj"],
             bias="lora_only", r=2),
        case("bias-of-b", "qwen2", "float16", target_modules=["k_proj", "v_proj"], lora_bias=True,
             r=2),
        # Attention of mixtures of experts.
        case("experts", "olmoe", target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], r=2,
             twin=True),
        case("experts-sinks", "gpt-oss", "bfloat16", target_modules=["q_proj", "o_proj"], r=2),
        # Fused and transposed modules.
        case("fused", "phi3", "float16", target_modules=["qkv_proj", "gate_up_proj", "o_proj"], r=2,
             twin=True),
        case("conv1d", "gpt2", target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True,
             r=2, twin=True),
        case("opt", "opt", target_modules=["q_proj", "out_proj", "fc1", "fc2"], r=2, bias="all"),
        case("opt-old", "opt-350m", target_modules=["k_proj", "v_proj", "fc2"], r=2),
        # DoRA.
        case("dora", "llama2", target_modules=LLAMA, use_dora=True, r=2),
        case("dora-bias", "qwen2", "float16", target_modules=["q_proj", "v_proj", "down_proj"],
             use_dora=True, bias="lora_only", r=2),
        case("dora-fused", "phi3", target_modules=["qkv_proj", "gate_up_proj"], use_dora=True, r=2),
        case("dora-conv1d", "gpt2", target_modules=["c_attn", "c_proj"], use_dora=True,
             fan_in_fan_out=True, r=2),
        case("dora-embedding", "tinyllama", "float16", target_modules=["embed_tokens", "q_proj"],
             use_dora=True, r=2),
        # Embedding and head.
        case("embedding", "tinyllama", "float16", target_modules=["embed_tokens", "q_proj"], r=5,
             twin=True),
        case("embedding-head", "tinyllama", "float16", target_modules=["embed_tokens", "lm_head"],
             r=3),
        case("embedding-gemma", "gemma3", "bfloat16", target_modules=["embed_tokens", "v_proj"],
             r=3, twin=True),
        case("embedding-tied", "smollm2", "bfloat16", target_modules=["embed_tokens"], r=3),
        case("embedding-ensured", "smollm2", "bfloat16", target_modules=["embed_tokens", "v_proj"],
             r=3, ensure_weight_tying=True),
        case("head-tied", "smollm2", "bfloat16", target_modules=["lm_head", "o_proj"], r=3),
        # Single tokens; where the head is the embedding, of both.
        case("tokens", "tinyllama", "float16", target_modules=["q_proj"], r=2,
             trainable_token_indices=[61, 10, 79]),
        case("tokens-tied", "smollm2", "bfloat16", target_modules=["q_proj"], r=2,
             trainable_token_indices={"embed_tokens": [48, 8, 90, 40]}),
        # Trained as a whole.
        case("saved-head", "tinyllama", "float16", target_modules=["q_proj"], r=2,
             modules_to_save=["embed_tokens", "lm_head"]),
        case("saved-tied", "llama3", "bfloat16", target_modules=["q_proj"], r=2,
             modules_to_save=["embed_tokens"]),
        case("saved-ensured", "llama3", "bfloat16", target_modules=["q_proj"], r=2,
             modules_to_save=["embed_tokens"], ensure_weight_tying=True),
        case("saved-norms", "gemma3", "bfloat16", target_modules=["q_proj"], r=2,
             modules_to_save=["norm"]),
        case("saved-linear", "qwen2", "float16", target_modules=["q_proj", "k_proj"], r=2,
             modules_to_save=["layers.0.self_attn.k_proj", "layers.1.mlp.up_proj"]),
        case("saved-conv1d", "gpt2", target_modules=["c_attn"], r=2, fan_in_fan_out=True,
             modules_to_save=["h.0.attn.c_proj", "ln_f"]),
    ]


def noise(name, shape, size):
    generator = numpy.random.Generator(numpy.random.Philox(zlib.crc32(name.encode())))
    return torch.tensor(generator.standard_normal(shape) * size, dtype=torch.float32)


def randomise(case, model):
    """Numbers that are seen in the logits, and none that is not."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and ".lora_" not in name:
            continue
        shape = tuple(parameter.shape)
        label = f"{case}/{name}"
        if "magnitude" in name:
            parameter.data *= 1 + noise(label, shape, 0.2)
        elif "lora_embedding_A" in name:
            parameter.data.copy_(noise(label, shape, 0.5))
        elif ".lora_" in name:
            parameter.data.copy_(noise(label, shape, 0.6 / max(shape[-1], 4) ** 0.5))
        else:
            parameter.data += noise(label, shape, 0.15)


def save_converted(case, model, folder):
    """The start is saved first: what was trained is the difference to it."""
    start = folder / "start"
    model.peft_config["default"].init_lora_weights = True  # the start is loaded as it is
    model.save_pretrained(start)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.data += noise(f"{case}/{name}", tuple(parameter.shape), 0.15)
    model.save_pretrained(folder, path_initial_model_for_weight_conversion=start)
    shutil.rmtree(start)


def store(folder, storage, edit):
    """As a trainer in half precision would have saved it."""
    path = folder / "adapter_model.safetensors"
    kind = getattr(torch, storage)
    save_file({name: t.to(kind).contiguous() for name, t in load_file(path).items()}, path,
              metadata={"format": "pt"})
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = None
    config.update(edit)
    path.write_text(json.dumps(config, separators=(",", ":")) + "\n")


def load_with(base, folder):
    return peft.PeftModel.from_pretrained(reference.load(base), folder).eval()


def change_of(layer, adapter="default"):
    """W' − W of a LoRA layer."""
    before = layer.get_base_layer().weight.data.clone()
    layer.merge(adapter_names=[adapter])
    change = layer.get_base_layer().weight.data - before
    layer.get_base_layer().weight.data.copy_(before)
    layer.merged_adapters.clear()
    return change


def modules_of(model):
    """What PEFT says it has applied."""
    lines = []
    for name, module in model.named_modules():
        name = name.removeprefix("base_model.model.")
        if isinstance(module, peft.tuners.lora.LoraLayer):
            kind = "dora" if module.use_dora.get("default") else "lora"
            kind = "embedding" if module.lora_embedding_A else kind
            lines.append((name, kind, module.r["default"], module.scaling["default"],
                          float(change_of(module).double().norm())))
        elif isinstance(module, peft.utils.TrainableTokensWrapper):
            change = module.weight.data - module.original_module.weight.data
            lines.append((name, "full", 0, 1.0, float(change.double().norm())))
        elif isinstance(module, peft.utils.ModulesToSaveWrapper):
            new = dict(module.modules_to_save["default"].named_parameters())
            for part, old in module.original_module.named_parameters():
                leaf = f"{name}.{part}".rsplit(".", 1)[0]
                change = (new[part].data - old.data).double()
                norm = change.norm().item()
                plain = old.ndim == 1
                found = [i for i, line in enumerate(lines) if line[0] == leaf]
                if found and plain:
                    i = found[0]
                    if lines[i][1] == "norm":
                        lines[i] = (*lines[i][:4], (lines[i][4] ** 2 + norm ** 2) ** 0.5)
                    continue
                lines.append((leaf, "norm" if plain else "full", 0, 1.0, norm))
    return lines


def gguf_shape(name, a, b, config, architecture):
    heads = {"q_proj": config.num_attention_heads,
             "k_proj": getattr(config, "num_key_value_heads", None)}
    for part, count in heads.items():
        if name.endswith(part) and architecture in gguf_twin.PERMUTED:
            b = torch.tensor(gguf_twin.permute(b.float().numpy(), count))
    if name.endswith(("embed_tokens", "wte")):
        a = a.T
    return a, b


def write_gguf(path, folder, model):
    """adapter.lora.alpha and two tensors a module, as convert_lora_to_gguf names them."""
    config = model.get_base_model().config
    architecture = gguf_twin.ARCHITECTURE.get(config.model_type, config.model_type)
    options = json.loads((folder / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    alpha = options["lora_alpha"]
    if options["use_rslora"]:  # GGUF knows α / r only
        alpha *= options["r"] ** 0.5
    writer.add_float32("adapter.lora.alpha", alpha)
    tensors = load_file(folder / "adapter_model.safetensors")
    for name in sorted(tensors):
        for first, second in ((".lora_A.weight", ".lora_B.weight"),
                              (".lora_embedding_A", ".lora_embedding_B")):
            if not name.endswith(first):
                continue
            module = name.removeprefix("base_model.model.").removesuffix(first)
            a, b = tensors[name], tensors[name.removesuffix(first) + second]
            a, b = gguf_shape(module, a, b, config, architecture)
            to = gguf_twin.gguf_name(module, architecture) + ".weight"
            writer.add_tensor(f"{to}.lora_a", a.float().contiguous().numpy())
            writer.add_tensor(f"{to}.lora_b", b.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name, base_name, storage, options, edit, twin):
    folder, base = FOLDER / name, ROOT / "models" / base_name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    made = peft.get_peft_model(reference.load(base), config)
    if options.get("init_lora_weights") in MUTATING:
        save_converted(name, made, folder)
    else:
        with torch.no_grad():
            randomise(name, made)
        made.save_pretrained(folder)
    store(folder, storage, edit)

    model = load_with(base, folder)
    ids = numpy.load(base / "ids.npy")[:POSITIONS]
    logits = reference.logits(model, ids)
    if options.get("init_lora_weights") in MUTATING:  # the same as on the changed base
        assert reference.difference(reference.logits(made.eval(), ids), logits) < 2e-3
    plain = reference.logits(reference.load(base), ids)
    change = reference.difference(logits, plain)
    assert change > 0.01, f"{name}: changes the logits by {change:.1e} only"
    numpy.save(folder / "ids.npy", ids.astype(numpy.int32))
    numpy.save(folder / "logits.npy", logits[-KEPT:].astype(numpy.float32))
    (folder / "base.txt").write_text(base_name + "\n")
    lines = modules_of(copy.deepcopy(model))
    (folder / "modules.txt").write_text("".join(
        f"{n} {k} {r} {s:.9g} {d:.7g}\n" for n, k, r, s, d in lines))
    path = FOLDER / f"{name}.gguf"
    path.unlink(missing_ok=True)
    if twin:
        write_gguf(path, folder, model)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name:18s} {base_name:10s} {size:6d} bytes, {len(lines):3d} modules, "
          f"logits change by {change:.2f} of their range")


def main():
    wanted = sys.argv[1:]
    for case in cases():
        if not wanted or case[0] in wanted:
            make(*case)
    print(sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()), "bytes in all")


if __name__ == "__main__":
    main()
