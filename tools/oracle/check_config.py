#!/usr/bin/env python3
"""Compares what Avocet reads from config.json with transformers' own configuration classes.

usage: tools/oracle/check_config.py AVOCET [--count N] [--seed N]
Random configurations of every supported class, most keys that equal a default left out, positions
in the older spelling or in that of transformers 5; `avocet inspect --json` must agree
with the attributes that transformers ends up with. Exit status 1 when anything differs.
"""
import argparse
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import (AutoConfig, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig,
                          OPTConfig, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config)

CLASSES = [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config, Gemma3TextConfig,
           Phi3Config, GPT2Config, OPTConfig]


def rope_choices(kind, context, dims):
    scaled = {"original_max_position_embeddings": context // 4}
    choices = [None, {"rope_type": "linear", "factor": 2.5},
               {"rope_type": "dynamic", "factor": 3.0},
               {"rope_type": "yarn", "factor": 4.0, **scaled},
               {"rope_type": "yarn", "factor": None, **scaled},
               {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, **scaled}]
    if kind == "phi3":
        factors = [1.0 + 0.25 * i for i in range(dims // 2)]
        return [None, {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}]
    return choices if kind != "gemma3_text" else choices[:2]


def random_keys(rng, cls):
    """Some keys of the class, by chance; the others keep their defaults."""
    kind = cls.model_type
    heads = rng.choice([4, 8, 12])
    width = heads * rng.choice([16, 32, 64])
    layers = rng.choice([3, 7, 12])
    context = rng.choice([512, 2048, 40960])
    if kind == "gpt2":
        keys = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": context,
                "n_inner": rng.choice([None, 200]), "layer_norm_epsilon": 1e-6}
    elif kind == "opt":
        keys = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
                "ffn_dim": 300, "max_position_embeddings": context,
                "word_embed_proj_dim": rng.choice([None, 48]),
                "do_layer_norm_before": rng.choice([True, False])}
    else:
        keys = {"num_hidden_layers": layers, "intermediate_size": 300,
                "num_key_value_heads": rng.choice([heads, heads // 4, heads // 2]),
                "rms_norm_eps": 1e-4, "max_position_embeddings": context,
                "sliding_window": rng.choice([None, 33, 256]), "vocab_size": 1234,
                "tie_word_embeddings": rng.choice([True, False])}
        if kind in ("qwen2", "qwen3", "smollm3"):
            keys["use_sliding_window"] = rng.choice([True, False])
        if kind in ("qwen2", "qwen3"):
            keys["max_window_layers"] = rng.choice([0, 2, 28])
        if kind in ("llama", "mistral", "qwen3", "gemma3_text"):
            keys["head_dim"] = rng.choice([16, 48])
        if kind == "smollm3":
            keys["no_rope_layer_interval"] = rng.choice([2, 4, 5])
            keys["no_rope_layers"] = rng.choice([None, [rng.randint(0, 1) for _ in range(layers)]])
        if kind == "gemma3_text":
            keys["query_pre_attn_scalar"] = 99
            keys["sliding_window"] = rng.choice([33, 256])
            keys["sliding_window_pattern"] = rng.choice([2, 3, 6])
    keys = {key: value for key, value in keys.items() if rng.random() < 0.8}
    if "num_hidden_layers" not in keys:
        keys.pop("no_rope_layers", None)
    # The defaults of absent keys may not divide; keep what must.
    if kind == "gpt2":
        keys.update(n_embd=width, n_head=heads)
    else:
        keys.update(hidden_size=width, num_attention_heads=heads)
    if kind not in ("gpt2", "opt"):
        keys.setdefault("num_key_value_heads", heads)
    return keys


def expectation(config):
    kind = config.model_type
    get = lambda name, default=None: getattr(config, name, default)
    layers = config.num_hidden_layers
    heads = config.num_attention_heads
    want = {"layers": layers, "width": config.hidden_size, "heads": heads,
            "vocabulary": config.vocab_size, "context": config.max_position_embeddings,
            "kv_heads": get("num_key_value_heads") or heads,
            "head_size": get("head_dim") or config.hidden_size // heads,
            "tied_head": bool(config.tie_word_embeddings)}
    want["feed_forward"] = (get("n_inner") or 4 * config.hidden_size if kind == "gpt2" else
                            config.ffn_dim if kind == "opt" else config.intermediate_size)
    window = get("sliding_window")
    if kind in ("mistral", "phi3"):
        windowed = [int(window is not None)] * layers
    elif kind in ("qwen2", "qwen3", "smollm3", "gemma3_text"):
        if kind == "smollm3" and not config.use_sliding_window:
            window = None
        windowed = [int(t == "sliding_attention" and window is not None)
                    for t in config.layer_types]
    else:
        window, windowed = None, [0] * layers
    want["layer_windowed"], want["window"] = windowed, window or 0
    want["layer_rotary"] = ([0] * layers if kind in ("gpt2", "opt") else
                            [int(bool(n)) for n in config.no_rope_layers][:layers]
                            if kind == "smollm3" else [1] * layers)
    want["norm_epsilon"] = (config.layer_norm_epsilon if kind == "gpt2" else
                            1e-5 if kind == "opt" else config.rms_norm_eps)
    want["positions"] = {"gpt2": want["context"], "opt": want["context"] + 2}.get(kind, 0)
    return want


def expected_rope(config):
    if config.model_type in ("gpt2", "opt"):
        return {}
    rope = config.rope_parameters
    local = None
    if config.model_type == "gemma3_text":
        local, rope = rope["sliding_attention"], rope["full_attention"]
    want = {"base": rope["rope_theta"],
            "scaling": {"default": "none"}.get(rope["rope_type"], rope["rope_type"])}
    if local is not None:
        want["base_local"] = local["rope_theta"]
    if rope["rope_type"] != "default":
        original = rope.get("original_max_position_embeddings")
        want["factor"] = rope.get("factor") or config.max_position_embeddings / original
        if original is not None:
            want["original_context"] = original
    return want


def write_folder(folder, text):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (folder / "config.json").write_text(text)


def older_spelling(data):
    """`rope_theta` and `rope_scaling` as files before transformers 5 have them."""
    rope = data.pop("rope_parameters", None)
    if rope is None:
        return data
    if "full_attention" in rope:
        data["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    data["rope_theta"] = rope.pop("rope_theta")
    data["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None
    return data


def check(avocet, folder, cls, rng):
    keys = random_keys(rng, cls)
    if cls.model_type not in ("gpt2", "opt"):
        config = cls(**keys)
        dims = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        rope = rng.choice(rope_choices(cls.model_type, config.max_position_embeddings, dims))
        if cls.model_type == "phi3" and rng.random() < 0.7:
            keys["original_max_position_embeddings"] = 256
        if rope is not None:
            keys["rope_scaling"] = dict(rope)
        keys["rope_theta"] = rng.choice([10000.0, 777.0])
    config = cls(**keys)
    data = json.loads(config.to_json_string(use_diff=False))
    defaults = json.loads(cls().to_json_string(use_diff=False))
    data = {key: value for key, value in data.items()
            if key not in defaults or defaults[key] != value or rng.random() < 0.3}
    data["model_type"] = cls.model_type
    if rng.random() < 0.5:
        data = older_spelling(data)
    write_folder(folder, json.dumps(data))
    theirs = AutoConfig.from_pretrained(folder)
    done = subprocess.run([avocet, "inspect", str(folder), "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return [done.stderr.strip()], data
    ours = json.loads(done.stdout)["config"]
    wrong = [f"{key}: {ours[key]} and {value}" for key, value in expectation(theirs).items()
             if ours[key] != value]
    wrong += [f"rope {key}: {ours['rope'].get(key)} and {value}"
              for key, value in expected_rope(theirs).items() if ours["rope"].get(key) != value]
    return wrong, data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("avocet")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        for cls in CLASSES:
            different = 0
            for _ in range(arguments.count):
                wrong, data = check(arguments.avocet, Path(name), cls, rng)
                if wrong and different < 3:
                    print(f"  {json.dumps(data)}\n    " + "\n    ".join(wrong))
                different += bool(wrong)
            print(f"{cls.__name__}: {arguments.count} configurations, {different} differ")
            bad += different
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
