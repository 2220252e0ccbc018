#!/usr/bin/env python3
"""Makes tests/fixtures/rotary.json: rotation frequencies of every scaling rule, computed here in
double precision from the rules' definitions and checked against transformers (which works in
single precision). tests/model/rotary.c compares src/model/rotary.c with them.
    .venv/bin/python tools/oracle/rotary_tables.py"""
import json
import math
import pathlib

import numpy
import transformers as hf
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

PATH = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "rotary.json"

# Each: what config.json would say, and the context that the session plans for.
CASES = [
    dict(name="plain", rope_type="default", base=10000.0, dims=64),
    dict(name="plain, odd size", rope_type="default", base=500000.0, dims=6),
    dict(name="linear", rope_type="linear", base=10000.0, dims=20, factor=4.0),
    dict(name="llama3.1", rope_type="llama3", base=500000.0, dims=128, factor=8.0,
         low_freq_factor=1.0, high_freq_factor=4.0, original=8192),
    dict(name="llama3.2", rope_type="llama3", base=500000.0, dims=64, factor=32.0,
         low_freq_factor=1.0, high_freq_factor=4.0, original=8192),
    dict(name="yarn, qwen", rope_type="yarn", base=1000000.0, dims=128, factor=4.0, original=32768),
    dict(name="yarn, betas", rope_type="yarn", base=10000.0, dims=64, factor=16.0, original=4096,
         beta_fast=16.0, beta_slow=2.0),
    dict(name="yarn, not truncated", rope_type="yarn", base=150000.0, dims=64, factor=32.0,
         original=4096, truncate=False),
    dict(name="yarn, given attention factor", rope_type="yarn", base=10000.0, dims=32, factor=8.0,
         original=2048, attention_factor=1.25),
    dict(name="yarn, mscale", rope_type="yarn", base=10000.0, dims=64, factor=40.0, original=4096,
         mscale=1.0, mscale_all_dim=0.8),
    dict(name="yarn, ramp of nothing", rope_type="yarn", base=10000.0, dims=8, factor=2.0,
         original=4),
    dict(name="dynamic", rope_type="dynamic", base=10000.0, dims=32, factor=4.0, original=2048),
    dict(name="longrope, short", rope_type="longrope", base=10000.0, dims=12, original=4096,
         context=131072, planned=4096, short_factor=[1.0, 1.02, 1.03, 1.05, 1.1, 1.2],
         long_factor=[1.1, 1.3, 4.0, 9.5, 20.0, 60.0]),
    dict(name="longrope, long", rope_type="longrope", base=10000.0, dims=12, original=4096,
         context=131072, planned=4097, short_factor=[1.0, 1.02, 1.03, 1.05, 1.1, 1.2],
         long_factor=[1.1, 1.3, 4.0, 9.5, 20.0, 60.0]),
    dict(name="longrope, given attention factor", rope_type="longrope", base=10000.0, dims=8,
         original=1024, context=1024, planned=512, attention_factor=1.5,
         short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[2.0, 3.0, 4.0, 5.0]),
]


def llama3(plain, case):
    wavelength = 2 * math.pi / plain
    low, high, original = case["low_freq_factor"], case["high_freq_factor"], case["original"]
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / case["factor"] + smooth * plain
    return numpy.where(wavelength > original / low, plain / case["factor"],
                       numpy.where(wavelength < original / high, plain, blended))


def yarn(plain, case):
    dims, base, factor = case["dims"], case["base"], case["factor"]

    def pair_that_turns(times):
        return dims * math.log(case["original"] / (times * 2 * math.pi)) / (2 * math.log(base))

    low = pair_that_turns(case.get("beta_fast", 32.0))
    high = pair_that_turns(case.get("beta_slow", 1.0))
    if case.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    ramp = numpy.clip((numpy.arange(dims // 2) - low) / (high - low), 0, 1)

    def magnitude(scale):
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    attention = case.get("attention_factor")
    if attention is None:
        attention = magnitude(1.0)
        if case.get("mscale") and case.get("mscale_all_dim"):
            attention = magnitude(case["mscale"]) / magnitude(case["mscale_all_dim"])
    return plain / factor * ramp + plain * (1 - ramp), attention


def longrope(plain, case):
    which = "long_factor" if case["planned"] > case["original"] else "short_factor"
    attention = case.get("attention_factor")
    if attention is None:
        scale = case["context"] / case["original"]
        grown = math.sqrt(1 + math.log(scale) / math.log(case["original"]))
        attention = grown if scale > 1 else 1.0
    return plain / numpy.array(case[which]), attention


def table(case):
    plain = case["base"] ** (-2.0 * numpy.arange(case["dims"] // 2) / case["dims"])
    kind = case["rope_type"]
    if kind == "linear":
        return plain / case["factor"], 1.0
    if kind == "llama3":
        return llama3(plain, case), 1.0
    if kind == "yarn":
        return yarn(plain, case)
    if kind == "longrope":
        return longrope(plain, case)
    return plain, 1.0  # dynamic: up to the original context


def check(case, frequency, magnitude):
    """Against transformers."""
    kind = case["rope_type"]
    if kind == "default":
        return
    names = ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "truncate",
             "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor")
    rope = {name: case[name] for name in names if name in case}
    rope.update(rope_type=kind, rope_theta=case["base"])
    context = case.get("context", case.get("original", 4096))
    if "original" in case and kind != "dynamic":
        rope["original_max_position_embeddings"] = case["original"]
    config = hf.LlamaConfig(hidden_size=case["dims"], num_attention_heads=1,
                            head_dim=case["dims"], max_position_embeddings=context,
                            rope_parameters=rope)
    theirs, attention = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=case.get("planned"))
    assert numpy.allclose(theirs.numpy(), frequency, rtol=1e-5), (case["name"], theirs, frequency)
    assert abs(attention - magnitude) < 1e-6, (case["name"], attention, magnitude)


def main():
    out = []
    for case in CASES:
        frequency, magnitude = table(case)
        check(case, frequency, magnitude)
        out.append({**case, "frequency": list(map(float, frequency)), "magnitude": magnitude})
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]\n")
    print(f"{len(out)} tables, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
