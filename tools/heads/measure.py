#!/usr/bin/env python3
"""Measures drafters on answers to questions they were not trained on.

usage: measure.py MODEL.gguf HEADS.safetensors… --texts TEXTS.npz [--json FILE]
       measure.py MODEL.gguf --write --prompts QUESTIONS.jsonl --texts TEXTS.npz --avocet COMMAND

With --write, Avocet answers every fourth question of a Spec-Bench file, first turn, greedily and at
temperature 0.7: those of --part 1 (question_id % 4) are for choosing settings, those of --part 3
for the figures that are reported, after all choices. Otherwise it prints, for each file, how
often the first 1, 2, 3, 4 drafts all equal the text that follows: greedy text, sampled text, and
sampled text with drafts that are drawn at 0.7 with the same uniform number as the token was
(inverse CDF in order of ids, as Avocet's sampler draws). That number is drawn anew from those that
give the token in the text. Then how often the next token is among the 1, 2, 3 likeliest, and the
speed-up that follows from costs measured on two Zen 4 cores.

Of a prompt, layers see the last `window` tokens only, as in use.
"""
import argparse
import json
import pathlib

import numpy
import torch
from torch.nn import functional

from base import GgufFile, Llama, rms_norm
from heads import Eagle, Medusa
from store import load_heads, round4
from train import STEPS, TEMPERATURE

ANSWER_TOKENS, PROMPT_TOKENS_MAX = 96, 512
STEP_COST = (1.0, 1.05, 1.1, 1.2, 1.5)  # of 1…5 rows, two Zen 4 cores
BASE_BYTES, LATENCY = 94e6, 0.015


def write_texts(options):
    from generate import AvocetWriter
    from text import ANSWER, END, QUESTION, Tokenizer
    tokenizer = Tokenizer(GgufFile(options.model).metadata)
    prompts = []
    for line in pathlib.Path(options.prompts).read_text().splitlines():
        question = json.loads(line)
        prompt = tokenizer.encode(QUESTION + question["turns"][0]) + [END] + tokenizer.encode(
            ANSWER)
        if question["question_id"] % 4 == options.part and len(prompt) <= PROMPT_TOKENS_MAX:
            prompts.append(prompt)
    writer = AvocetWriter(options, tokenizer)
    texts, lengths, greedy = [], [], []
    for temperature in (0.0, TEMPERATURE):
        answers = writer.write(prompts, [temperature] * len(prompts), ANSWER_TOKENS)
        for prompt, (answer, _) in zip(prompts, answers):
            texts.append(numpy.array(prompt + answer, dtype=numpy.int32))
            lengths.append(len(prompt))
            greedy.append(temperature == 0.0)
    numpy.savez(options.texts, tokens=numpy.concatenate(texts),
                ends=numpy.cumsum([len(text) for text in texts]),
                prompts=numpy.array(lengths), greedy=numpy.array(greedy))
    print(f"{len(prompts)} prompts, {sum(map(len, texts)) - sum(lengths)} answer tokens")


def draw(logits, uniform):
    """Inverse CDF over columns in order."""
    cumulative = (logits / TEMPERATURE).softmax(-1).double().cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(
        max=logits.shape[1] - 1)


def uniform_of(logits, tokens, generator):
    """A uniform number among those for which the base draws `tokens`."""
    probability = (logits / TEMPERATURE).softmax(-1).double()
    upper = probability.cumsum(-1).gather(1, tokens[:, None]).squeeze(1)
    width = probability.gather(1, tokens[:, None]).squeeze(1)
    return upper - width * torch.rand(len(tokens), generator=generator, dtype=torch.float64).to(
        logits.device)


class Texts:
    """The texts with all states that the base has behind them, a few at a time."""

    def __init__(self, path, base, layers, texts=8):
        file = numpy.load(path)
        self.base, self.layers, self.batches = base, layers, []
        begins = numpy.concatenate([[0], file["ends"][:-1]])
        lengths = file["ends"] - begins
        generator = torch.Generator().manual_seed(9)
        order = numpy.argsort(lengths, kind="stable")
        for first in range(0, len(order), texts):
            chosen = order[first:first + texts]
            tokens = torch.zeros((len(chosen), int(lengths[chosen].max())), dtype=torch.long)
            for row, index in enumerate(chosen):
                text = file["tokens"][begins[index]:begins[index] + lengths[index]]
                tokens[row, :len(text)] = torch.from_numpy(text.astype(numpy.int64))
            self.batches.append(self.batch(tokens.to(base.device), lengths[chosen],
                                           file["prompts"][chosen], file["greedy"][chosen],
                                           generator))

    @torch.no_grad()
    def batch(self, tokens, lengths, prompts, greedy, generator):
        """tokens, taps, starts (text and position of the last known token), prompts, whether each
        start's text is greedy, uniform numbers."""
        taps = self.base.forward(tokens, self.layers)
        pairs = [(row, at) for row in range(len(lengths))
                 for at in range(prompts[row], lengths[row] - STEPS)]
        text = torch.tensor([row for row, _ in pairs], dtype=torch.long, device=tokens.device)
        start = torch.tensor([at for _, at in pairs], dtype=torch.long, device=tokens.device)
        uniform = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
        for row in range(len(lengths)):
            drawn = torch.arange(prompts[row], lengths[row], device=tokens.device)
            logits = self.base.logits(taps[row, drawn - 1, -1]).float()
            uniform[row, drawn] = uniform_of(logits, tokens[row, drawn], generator)
        return (tokens, taps, text, start, torch.as_tensor(prompts, device=tokens.device),
                torch.as_tensor(greedy, device=tokens.device)[text], uniform)


def outputs_of(module, base, texts, batch):
    """What the head's rows are multiplied with, [starts, STEPS, width]."""
    tokens, taps, text, start, prompts, _, _ = batch
    embedded = base.embedding[tokens]
    if isinstance(module, Medusa):
        normed = rms_norm(taps[:, :, -1], base.norm, base.epsilon)
        unit = rms_norm(embedded, torch.ones_like(base.norm), base.epsilon)
        return torch.stack([module(k, normed[text, start - 1], unit[text, start])
                            for k in range(min(STEPS, module.count))], dim=1)
    first = (prompts - module.window).clamp(min=0) if module.window > 0 else prompts * 0
    if isinstance(module, Eagle):
        columns = [texts.layers.index(layer) if layer in texts.layers else len(texts.layers)
                   for layer in module.taps]
        steps = module(taps[:, :-1, columns], embedded[:, 1:], STEPS, (first - 1).clamp(min=0))
        return torch.stack([steps[s][text, start - 1 + s] for s in range(STEPS)], dim=1)
    output = module(embedded, first)
    return torch.stack([output[text, start + s] for s in range(STEPS)], dim=1)


class Counter:
    def __init__(self):
        self.sums, self.count = {}, {}

    def add(self, name, rows):
        """rows: [starts, columns] of 0 and 1."""
        self.sums[name] = self.sums.get(name, 0) + rows.double().sum(0)
        self.count[name] = self.count.get(name, 0) + len(rows)

    def rates(self):
        return {name: [round(rate, 4) for rate in (total / max(1, self.count[name])).tolist()]
                for name, total in self.sums.items()}


@torch.no_grad()
def measure(module, base, texts, frequent, head_bits=8):
    """Rates by name. frequent: ids in ascending order."""
    frequent = torch.as_tensor(frequent, device=base.device)
    head = base.head[frequent]
    if head_bits == 4:
        head = round4(head)
    counter = Counter()
    for batch in texts.batches:
        tokens, _, text, start, _, greedy, uniform = batch
        if len(start) == 0:
            continue
        following = start[:, None] + 1 + torch.arange(STEPS, device=base.device)
        wanted = tokens[text[:, None], following]
        outputs = outputs_of(module, base, texts, batch)
        logits = functional.linear(outputs, head).float()
        right = (frequent[logits.argmax(-1)] == wanted).long().cumprod(1)
        best = frequent[logits[:, 0].topk(3).indices] == wanted[:, :1]
        sampled = ~greedy
        for name, chosen in (("greedy", greedy), ("sampled", sampled)):
            counter.add(name, right[chosen])
            counter.add(f"{name} top 1 2 3", best.long().cumsum(1)[chosen])
        drawn = torch.stack([frequent[draw(logits[sampled, s], uniform[text, following[:, s]]
                                           [sampled])] for s in range(STEPS)], dim=1)
        counter.add("coupled", (drawn == wanted[sampled]).long().cumprod(1))
    return counter.rates()


@torch.no_grad()
def base_rates(base, texts, frequent):
    """(how often sampled tokens are the base's likeliest, share of sampled and greedy tokens that
    are frequent)"""
    inside = torch.zeros(base.embedding.shape[0], device=base.device)
    inside[torch.as_tensor(frequent, device=base.device)] = 1.0
    counter = Counter()
    for tokens, taps, text, start, _, greedy, _ in texts.batches:
        chosen, at = text[~greedy], start[~greedy]
        token = tokens[chosen, at + 1]
        best = base.logits(taps[chosen, at, -1]).argmax(-1) == token
        counter.add("likeliest", best[:, None])
        counter.add("frequent", inside[token][:, None])
    return counter.rates()


def draft_bytes(module, frequent, head_bits):
    """Of one pass of the drafter at 4 bits, without the first state, which needs no draft."""
    bits = {4: 5 / 8, 8: 34 / 32}
    head = frequent * 576 * bits[head_bits]
    matrices = [p for name, p in module.named_parameters()
                if p.ndim == 2 and not name.endswith("norm") and name != "fuse"]
    return sum(p.numel() for p in matrices) * bits[4] + head


def speed_up(rates, module, frequent, head_bits=4):
    """(best expected speed-up, its number of drafts)"""
    cost = draft_bytes(module, frequent, head_bits) / BASE_BYTES + LATENCY
    found = []
    for drafts in range(1, len(rates) + 1):
        passes = 1 if isinstance(module, Medusa) else drafts
        found.append(((1.0 + sum(rates[:drafts])) / (STEP_COST[drafts] + passes * cost), drafts))
    return max(found)


def report(name, rates, module, frequent):
    for kind in ("greedy", "sampled", "coupled"):
        best, drafts = speed_up(rates[kind], module, frequent)
        print(f"{name}, {kind}: " + " ".join(f"{rate:.3f}" for rate in rates[kind]) +
              f"   predicted {best:.3f} with {drafts} drafts", flush=True)
    print(f"{name}, top 1 2 3: greedy {rates['greedy top 1 2 3']} "
          f"sampled {rates['sampled top 1 2 3']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("heads", nargs="*")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--prompts")
    parser.add_argument("--part", type=int, choices=(1, 3), default=3)
    parser.add_argument("--avocet")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--head-bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=9)
    options = parser.parse_args()
    if options.write:
        return write_texts(options)
    base = Llama(options.model, options.device, torch.float32)
    loaded = [(path, *load_heads(path, base)) for path in options.heads]
    layers = sorted({tap for _, module, _, _ in loaded for tap in getattr(module, "taps", ())[:-1]})
    texts = Texts(options.texts, base, layers)
    found = {}
    for path, module, frequent, _ in loaded:
        name = pathlib.Path(path).name
        found[name] = measure(module.to(options.device), base, texts, frequent, options.head_bits)
        report(name, found[name], module, len(frequent))
        found[name]["base"] = base_rates(base, texts, frequent)
        print(f"{name}, base's likeliest token and frequent tokens: {found[name]['base']}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
