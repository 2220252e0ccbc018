#!/usr/bin/env python3
"""Trains the draft heads of a frozen base model on its own text and writes them.

usage: train.py MODEL.gguf TEXTS.npz OUT-FOLDER [--taps TAPS.npy] [--seconds S]
                [--only medusa|eagle] [--start FOLDER]

The targets are the base model's own probabilities at temperature 0.7 over the frequent tokens. The
EAGLE layer is unrolled: its later steps get its own output as their state, as in use. Beside the
probabilities it learns the base model's next hidden state, which a short run needs most.
"""
import argparse
import math
import pathlib
import time

import numpy
import torch
from torch.nn import functional

from base import Llama, rms_norm
from corpus import Corpus, frequent_tokens
from heads import Eagle, Medusa
from store import load_heads, save_heads

TEMPERATURE = 0.7
STEPS = 4  # drafts of a chain


class Trainer:
    def __init__(self, base, corpus, frequent, medusa, eagle, options):
        self.base, self.corpus, self.medusa, self.eagle = base, corpus, medusa, eagle
        self.options = options
        self.head = base.head[torch.as_tensor(frequent, device=base.device).long()]
        self.modules = [module for module in (medusa, eagle) if module is not None]
        parameters = [p for module in self.modules for p in module.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=options.rate, betas=(0.9, 0.95),
                                           weight_decay=0.0)

    def set_rate(self, done):
        """Warm-up over 3 %, then a cosine down to 3 %."""
        rate = min(1.0, done / 0.03 + 0.01) * (0.515 + 0.485 * math.cos(math.pi * min(done, 1.0)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate * rate

    def loss(self, batch, steps, generator):
        tokens, taps, lengths, prompts = self.corpus.load(batch)
        embedded = self.base.embedding[tokens].float()
        normed = rms_norm(taps[:, :, -1], self.base.norm.float(), self.base.epsilon)
        # Row i of the EAGLE layer drafts token i + 2: what the base predicts at position i + 1.
        rows = tokens.shape[1] - 2
        position = torch.arange(rows, device=tokens.device)[None, :]
        wanted = normed[:, 1:-1]
        valid = (position + 2 < lengths[:, None]) & (position >= STEPS)
        weight = torch.where(position + 2 >= prompts[:, None], 1.0, 0.3) * valid
        chosen = valid & (torch.rand(valid.shape, generator=generator).to(valid.device)
                          < self.options.share) & (position + 2 >= prompts[:, None])
        teacher = (functional.linear(wanted[chosen].to(self.head.dtype), self.head)
                   .float() / TEMPERATURE).softmax(-1)
        losses = {}
        if self.eagle is not None:
            outputs = self.eagle(taps[:, :rows], embedded[:, 1:-1], steps)
            scale = (wanted * wanted).mean().sqrt()
            for step, output in enumerate(outputs):
                distance = functional.smooth_l1_loss(output.float(), wanted, reduction="none")
                losses[f"state{step}"] = (distance.mean(-1) * weight).sum() / weight.sum() / scale
                losses[f"eagle{step}"] = self.cross_entropy(output[chosen], teacher)
        if self.medusa is not None:
            token_unit = rms_norm(embedded, torch.ones_like(embedded[0, 0]), self.base.epsilon)
            text, row = chosen.nonzero(as_tuple=True)
            for k in range(self.medusa.count):
                at = row - k  # head k at position t drafts token t + 2 + k
                output = self.medusa(k, normed[text, at], token_unit[text, at + 1])
                losses[f"medusa{k}"] = self.cross_entropy(output, teacher)
        return losses

    def cross_entropy(self, output, teacher):
        logits = functional.linear(output.to(self.head.dtype), self.head).float() / TEMPERATURE
        return -(teacher * logits.log_softmax(-1)).sum(-1).mean()

    def step(self, batch, steps, generator):
        device = "cpu" if self.base.device == "cpu" else "cuda"
        with torch.autocast(device, torch.bfloat16):
            losses = self.loss(batch, steps, generator)
        total = sum(value * (self.options.state_weight if name.startswith("state") else 1.0)
                    * 0.8 ** int(name[-1]) for name, value in losses.items())
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        for module in self.modules:
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        self.optimizer.step()
        return {name: float(value.detach()) for name, value in losses.items()}

    def run(self):
        """One pass after another until the time is up; the rate follows the clock."""
        shuffle, pick = numpy.random.default_rng(1), torch.Generator().manual_seed(1)
        begin, count, rows, mean = time.time(), 0, 0, {}
        while True:
            for batch in self.corpus.batches(self.options.rows, shuffle):
                done = (time.time() - begin) / self.options.seconds
                if done >= 1.0:
                    return
                self.set_rate(done)
                losses = self.step(batch, 2 if done < self.options.short else STEPS, pick)
                for name, value in losses.items():
                    mean[name] = 0.95 * mean.get(name, value) + 0.05 * value
                count, rows = count + 1, rows + int(self.corpus.lengths[batch].sum())
                if count % self.options.report == 0:
                    print(f"{time.time() - begin:.0f} s, step {count}, {rows} rows: " +
                          " ".join(f"{name} {value:.3f}" for name, value in mean.items()),
                          flush=True)
                if count % 50 == 0:
                    self.save()

    def save(self):
        save_heads(self.options.out, self.base, self.medusa, self.eagle, self.options.frequent)


def start_of(options, base, kind):
    """The heads of --start. Their outputs do not depend on the table of frequent tokens."""
    if options.start is None:
        return None
    return load_heads(next(options.start.glob(f"*-{kind}.safetensors")), base)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--taps", help="file of corpus.py; default: computed on the fly")
    parser.add_argument("--layers", default="8,20,30")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rows", type=int, default=16384, help="tokens of a batch")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--share", type=float, default=1.0, help="of positions that compare logits")
    parser.add_argument("--short", type=float, default=0.3, help="part of the time with 2 steps")
    parser.add_argument("--state-weight", type=float, default=1.0)
    parser.add_argument("--frequent-count", type=int, default=8192)
    parser.add_argument("--start", type=pathlib.Path, help="folder of heads to continue with")
    parser.add_argument("--only", choices=("medusa", "eagle"), help="train one of the two")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--report", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    layers = [int(layer) for layer in options.layers.split(",")]
    base = Llama(options.model, options.device, torch.bfloat16)
    corpus = Corpus(options.texts, options.taps, base, layers)
    options.frequent = frequent_tokens(corpus.tokens, options.frequent_count,
                                       base.embedding.shape[0])
    options.out.mkdir(parents=True, exist_ok=True)
    medusa = eagle = None
    if options.only != "eagle":
        medusa = start_of(options, base, "medusa") or Medusa(base)
        medusa = medusa.to(options.device)
    if options.only != "medusa":
        eagle = start_of(options, base, "eagle") or Eagle(base, layers, base.layers - 1)
        eagle = eagle.to(options.device)
    trainer = Trainer(base, corpus, options.frequent, medusa, eagle, options)
    trainer.run()
    trainer.save()


if __name__ == "__main__":
    main()
