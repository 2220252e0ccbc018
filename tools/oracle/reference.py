"""Logits as transformers computes them: eager attention, every position."""
import json

import numpy
import torch
import transformers as hf
from safetensors.torch import load_file

torch.set_grad_enabled(False)
hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()


def load_wrapped(folder, kind=torch.float32):
    """The text half of a Gemma 3 with vision."""
    config = json.loads((folder / "config.json").read_text())["text_config"]
    config = hf.Gemma3TextConfig(**config, attn_implementation="eager")
    prefix = "language_model."
    state = {name.removeprefix(prefix): tensor.to(kind)
             for name, tensor in load_file(folder / "model.safetensors").items()
             if name.startswith(prefix)}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = hf.Gemma3ForCausalLM(config).to(kind)
    model.load_state_dict(state)
    return model.eval()


MXFP4 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4_numbers(blocks, scales):
    """[...][k / 32][16] bytes and [...][k / 32] exponents to [...][k]."""
    pairs = torch.stack([MXFP4[(blocks & 15).long()], MXFP4[(blocks >> 4).long()]], -1)
    numbers = torch.ldexp(pairs.flatten(-2), scales.int()[..., None] - 127)
    return numbers.flatten(-2)


def load_mxfp4(folder, config, kind=torch.float32):
    """gpt-oss as it is published: experts as blocks and exponents of outputs × inputs."""
    config.pop("quantization_config")
    config = hf.GptOssConfig(**config, attn_implementation="eager",
                             experts_implementation="eager")
    state = load_file(folder / "model.safetensors")
    for name in [name for name in state if name.endswith("_blocks")]:
        whole = name.removesuffix("_blocks")
        numbers = mxfp4_numbers(state.pop(name), state.pop(f"{whole}_scales"))
        state[whole] = numbers.transpose(1, 2).contiguous()
    model = hf.GptOssForCausalLM(config).to(kind)
    model.load_state_dict({name: tensor.to(kind) for name, tensor in state.items()})
    return model.eval()


def load(folder, kind=torch.float32):
    config = json.loads((folder / "config.json").read_text())
    if config.get("quantization_config", {}).get("quant_method") == "mxfp4":
        return load_mxfp4(folder, config, kind)
    if json.loads((folder / "config.json").read_text())["model_type"] == "gemma3":
        return load_wrapped(folder, kind)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation="eager",
                                                   experts_implementation="eager")
    return model.eval()


def logits(model, ids, stepwise=False):
    """[positions][vocabulary]. Stepwise: token by token with a cache, so that a position never
    depends on how long the sequence becomes (dynamic NTK)."""
    tokens = torch.tensor(numpy.asarray(ids), dtype=torch.long)[None]
    if not stepwise:
        return model(tokens, use_cache=False).logits[0].numpy()
    cache, rows = None, []
    for position in range(tokens.shape[1]):
        out = model(tokens[:, position:position + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0, 0].numpy())
    return numpy.stack(rows)


def hidden(model, ids, stepwise=False):
    """[positions][width] behind the last norm: last_hidden_state, but before a projection out of
    the model's width (OPT-350m)."""
    seen = []
    project = getattr(getattr(model.base_model, "decoder", None), "project_out", None)
    if project is not None:
        project.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    tokens = torch.tensor(numpy.asarray(ids), dtype=torch.long)[None]
    cache, rows = None, []
    pieces = tokens.split(1, dim=1) if stepwise else [tokens]
    for piece in pieces:
        out = model.base_model(piece, past_key_values=cache, use_cache=stepwise)
        cache = out.past_key_values if stepwise else None
        rows.append((seen[-1] if project is not None else out.last_hidden_state)[0].numpy())
    return numpy.concatenate(rows)


def difference(a, b):
    """Largest difference as a part of the range of `b`."""
    b = b.astype(numpy.float64)
    return float(numpy.abs(a - b).max() / (b.max() - b.min()))
