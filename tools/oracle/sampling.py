#!/usr/bin/env python3
"""Writes tests/fixtures/sampling.json: what transformers' own processors make of logits, in the
order in which generate() chains them. The test draws from the same logits and compares."""
import json
import pathlib

import torch
from transformers.generation import logits_process as processors

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 48
SETTINGS = [
    {"temperature": 0.7},
    {"temperature": 1.6},
    {"top_k": 1},
    {"top_k": 7},
    {"top_p": 0.1},
    {"top_p": 0.5},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"min_p": 0.4},
    {"typical_p": 0.2},
    {"typical_p": 0.6},
    {"typical_p": 0.95},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"bias": [[3, 2.5], [7, -1.0]]},
    {"bias": [[3, 2.5], [1, -4.0]], "repetition_penalty": 1.5},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.8, "min_p": 0.05},
    {"temperature": 1.2, "top_p": 0.9, "typical_p": 0.7},
    {"temperature": 0.9, "top_k": 25, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.8,
     "repetition_penalty": 1.2, "bias": [[5, 1.5]]},
]


def chain(setting):
    """As GenerationMixin._get_logits_processor does."""
    chained = processors.LogitsProcessorList()
    if "bias" in setting:
        chained.append(processors.SequenceBiasLogitsProcessor(
            [[[token], value] for token, value in setting["bias"]]))
    if "repetition_penalty" in setting:
        chained.append(processors.RepetitionPenaltyLogitsProcessor(setting["repetition_penalty"]))
    if setting.get("temperature", 1.0) != 1.0:
        chained.append(processors.TemperatureLogitsWarper(setting["temperature"]))
    if "top_k" in setting:
        chained.append(processors.TopKLogitsWarper(setting["top_k"]))
    if "top_p" in setting:
        chained.append(processors.TopPLogitsWarper(setting["top_p"]))
    if "min_p" in setting:
        chained.append(processors.MinPLogitsWarper(setting["min_p"]))
    if "typical_p" in setting:
        chained.append(processors.TypicalLogitsWarper(setting["typical_p"]))
    return chained


def main():
    torch.manual_seed(20)
    cases = []
    for setting in SETTINGS:
        for spread in (1.0, 3.0):
            logits = torch.randn(1, VOCABULARY) * spread
            prompt = torch.randint(0, VOCABULARY, (1, 6))
            scores = chain(setting)(prompt, logits.clone())
            shares = torch.softmax(scores.double(), dim=-1)[0]
            cases.append({"setting": setting,
                          "prompt": prompt[0].tolist(),
                          "logits": [float(f"{value:.9g}") for value in logits[0].tolist()],
                          "shares": [float(f"{value:.9g}") for value in shares.tolist()]})
    path = ROOT / "tests" / "fixtures" / "sampling.json"
    with open(path, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
                   + "\n]\n")


if __name__ == "__main__":
    main()
