#!/usr/bin/env python3
"""Measures heads on answers to questions they were not trained on.

usage: measure.py MODEL.gguf HEADS.safetensors… --texts TEXTS.npz [--taps TAPS.npy] [--json]
       measure.py MODEL.gguf --write --prompts QUESTIONS.jsonl --texts TEXTS.npz [--avocet COMMAND]

With --write it answers every fourth question of a Spec-Bench file, first turn, greedily and at
temperature 0.7: those of --part 1 (question_id % 4) are for choosing settings, those of --part 3
for the figures that are reported, once, after all choices. Otherwise it prints, for each head, how
often the first 1, 2, 3, 4 drafts all equal the text that follows: greedy text, sampled text, and
sampled text with drafts that are drawn at 0.7 with the same uniform number as the token was
(inverse CDF in order of ids, as Avocet's sampler draws). That number is drawn anew from those that
give the token in the text.
"""
import argparse
import json
import pathlib

import numpy
import torch
from torch.nn import functional

from base import GgufFile, Llama, rms_norm
from corpus import Corpus
from heads import Eagle
from store import load_heads
from train import STEPS, TEMPERATURE

ANSWER_TOKENS, PROMPT_TOKENS_MAX = 96, 512


def write_texts(options):
    from generate import AvocetWriter, TorchWriter
    from text import ANSWER, END, QUESTION, Tokenizer
    tokenizer = Tokenizer(GgufFile(options.model).metadata)
    prompts = []
    for line in pathlib.Path(options.prompts).read_text().splitlines():
        question = json.loads(line)
        prompt = tokenizer.encode(QUESTION + question["turns"][0]) + [END] + tokenizer.encode(
            ANSWER)
        if question["question_id"] % 4 == options.part and len(prompt) <= PROMPT_TOKENS_MAX:
            prompts.append(prompt)
    writer = AvocetWriter(options, tokenizer) if options.avocet else TorchWriter(options)
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


class Chains:
    """Counts how many of the first 1…STEPS drafts are right, over all places to start."""

    def __init__(self):
        self.right, self.count = numpy.zeros(STEPS), 0

    def add(self, drafts, wanted, starts):
        """drafts, wanted: [starts, STEPS]."""
        together = (drafts == wanted).long().cumprod(1).float()
        self.right += together.sum(0).cpu().numpy()
        self.count += len(starts)

    def rates(self):
        return (self.right / max(self.count, 1)).tolist()


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
    return upper - width * torch.rand(len(tokens), generator=generator, dtype=torch.float64)


class Measure:
    def __init__(self, base, module, frequent, seed=1):
        self.base, self.module = base, module
        self.frequent = torch.as_tensor(frequent)
        self.head = base.head.float()[self.frequent]
        self.generator = torch.Generator().manual_seed(seed)
        self.tables = {"greedy text": Chains(), "sampled text": Chains(),
                       "sampled text, coupled draws": Chains()}

    def outputs(self, tokens, taps, starts):
        """What the head's rows are multiplied with, [starts, STEPS, width]. A start j is the
        position of the last known token."""
        embedded = self.base.embedding.float()[tokens]
        if isinstance(self.module, Eagle):
            steps = self.module(taps[None, :-1], embedded[None, 1:], STEPS)
            return torch.stack([steps[s][0, starts - 1 + s] for s in range(STEPS)], dim=1)
        normed = rms_norm(taps[:, -1], self.base.norm.float(), self.base.epsilon)
        unit = rms_norm(embedded, torch.ones(self.base.width), self.base.epsilon)
        return torch.stack([self.module(k, normed[starts - 1], unit[starts])
                            for k in range(STEPS)], dim=1)

    @torch.no_grad()
    def add(self, tokens, taps, prompt, greedy):
        """Everything of one text: [rows], [rows, tap, width]."""
        starts = torch.arange(prompt, len(tokens) - STEPS)
        if len(starts) == 0:
            return
        following = starts[:, None] + 1 + torch.arange(STEPS)
        wanted = tokens[following]
        logits = functional.linear(self.outputs(tokens, taps, starts), self.head)
        drafts = self.frequent[logits.argmax(-1)]
        if greedy:
            self.tables["greedy text"].add(drafts, wanted, starts)
            return
        self.tables["sampled text"].add(drafts, wanted, starts)
        rows = torch.arange(prompt, len(tokens))  # position of each token that was drawn
        uniform = torch.zeros(len(tokens), dtype=torch.float64)
        base_logits = self.base.logits(taps[rows - 1, -1].to(self.base.dtype)).float()
        uniform[rows] = uniform_of(base_logits, tokens[rows], self.generator)
        drawn = torch.stack([self.frequent[draw(logits[:, s], uniform[following[:, s]])]
                             for s in range(STEPS)], dim=1)
        self.tables["sampled text, coupled draws"].add(drawn, wanted, starts)


def load_texts(options, base, layers):
    corpus = Corpus(options.texts, options.taps, base, layers)
    greedy = numpy.load(options.texts)["greedy"]
    for index in range(len(corpus.lengths)):
        tokens, taps, _, prompts = corpus.load([index])
        yield tokens[0], taps[0], int(prompts[0]), bool(greedy[index])


@torch.no_grad()
def likeliest_rate(base, texts, frequent):
    """(how often sampled tokens are the base's likeliest, share of tokens that are frequent)"""
    right = count = inside = 0
    for tokens, taps, prompt, greedy in texts:
        if greedy or len(tokens) <= prompt:
            continue
        best = base.logits(taps[prompt - 1:-1, -1].to(base.dtype)).argmax(-1)
        right += int((best == tokens[prompt:]).sum())
        inside += int(numpy.isin(tokens[prompt:].numpy(), frequent).sum())
        count += len(tokens) - prompt
    return right / count, inside / count


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("heads", nargs="*")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--taps")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--prompts")
    parser.add_argument("--part", type=int, choices=(1, 3), default=3)
    parser.add_argument("--avocet")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tap-layers", default="8,20,30", help="of the taps file")
    parser.add_argument("--seed", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.write:
        return write_texts(options)
    base = Llama(options.model, "cpu", torch.float32)
    layers = [int(layer) for layer in options.tap_layers.split(",")]
    texts = list(load_texts(options, base, layers))
    found = {}
    for path in options.heads:
        module, frequent, config = load_heads(path, base)
        columns = [layers.index(layer) for layer in config.get("taps", layers)]
        measure = Measure(base, module, frequent)
        for tokens, taps, prompt, greedy in texts:
            measure.add(tokens, taps[:, columns], prompt, greedy)
        found[path] = {name: chains.rates() for name, chains in measure.tables.items()}
        if not options.json:
            for name, chains in measure.tables.items():
                rates = " ".join(f"{rate:.3f}" for rate in chains.rates())
                print(f"{pathlib.Path(path).name}, {name}: {rates} ({chains.count} starts)")
    if options.heads:
        likeliest, inside = likeliest_rate(base, texts, frequent)
        found["likeliest"], found["frequent"] = likeliest, inside
        if not options.json:
            print(f"likeliest token of the base, sampled text: {likeliest:.3f}; "
                  f"{inside:.3f} of its tokens are frequent ones")
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
