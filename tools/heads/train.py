#!/usr/bin/env python3
"""Trains drafters of a frozen base model on its own text. Several are trained side by side and
share the base model's pass.

usage: train.py MODEL.gguf TEXTS.npz OUT-FOLDER [--seconds S] [--recipes NAME,…]

The targets are the base model's own probabilities at temperature 0.7, of which those of the
`--table` most frequent tokens enter the loss, at answers only. An EAGLE drafter is unrolled: its
later steps get its own output as their state, as in use. In the last part of the time the matrices
are rounded to 4 bits in every pass, so that the file loses nothing.
"""
import argparse
import dataclasses
import json
import pathlib
import time

import numpy
import torch
from torch.nn import functional

from base import Llama, rms_norm
from corpus import ANSWERED, Corpus, rank_tokens
from heads import Draft, Eagle, Medusa, Stack
from optimise import Optimiser
from store import round4, save_heads

TEMPERATURE = 0.7
STEPS = 4  # drafts of a chain, at most
DECAY = 0.7  # weight of a draft's loss against the one before it


@dataclasses.dataclass
class Recipe:
    kind: str
    depth: int = 1
    taps: tuple = (8, 20, 30)
    window: int = 128
    steps: int = 2  # drafts of a chain in training
    muon: bool = True
    rate: float = 0.04
    adam: float = 2e-3  # rate of Adam: of norms, and of all weights without Muon
    copied: tuple = ()  # layers of the base to start from
    state: float = 1.0  # weight of the distance to the base's next state, at first

    def build(self, base):
        # Tiny models of tests have fewer layers.
        scaled = lambda layers: tuple(layer * base.layers // 30 for layer in layers)
        if self.kind == "medusa":
            return Medusa(base)
        if self.kind == "eagle":
            copied = self.copied or tuple(range(30 - self.depth, 30))
            return Eagle(base, scaled(self.taps), self.depth, self.window, scaled(copied))
        return Draft(base, self.depth, self.window, scaled(self.copied))


RECIPES = {
    "eagle1": Recipe("eagle"),
    "eagle2": Recipe("eagle", depth=2),
    "eagle3": Recipe("eagle", depth=3),
    "eagle1-adam": Recipe("eagle", muon=False),
    "eagle1-rate": Recipe("eagle", rate=0.02),
    "eagle1-taps-late": Recipe("eagle", taps=(20, 26, 30)),
    "eagle1-taps-early": Recipe("eagle", taps=(2, 15, 30)),
    "eagle1-taps-last": Recipe("eagle", taps=(30,)),
    "eagle1-steps4": Recipe("eagle", steps=4),
    "eagle1-no-state": Recipe("eagle", state=0.0),
    "medusa": Recipe("medusa"),
    "medusa-20": Recipe("medusa", rate=0.02),
    "medusa-10": Recipe("medusa", rate=0.01),
    "medusa-5": Recipe("medusa", rate=0.005),
    "medusa-adam": Recipe("medusa", muon=False, adam=1e-3),
    "draft4": Recipe("layers", depth=4, copied=(0, 1, 2, 29)),
}


def soft_loss(logits, teacher, weight):
    """(sum of weighted cross entropies at the temperature, its gradient by the logits)"""
    scaled = logits.float() / TEMPERATURE
    logp = scaled - scaled.logsumexp(-1, keepdim=True)
    wanted = teacher.float()
    loss = -((wanted * logp).sum(-1) * weight).sum()
    mass = wanted.sum(-1, keepdim=True)
    gradient = (logp.exp() * mass - wanted) * (weight / TEMPERATURE)[:, None]
    return loss, gradient.to(logits.dtype)


class HeadLoss(torch.autograd.Function):
    """soft_loss of output · headᵀ. The gradient is computed in the forward pass, so that no logits
    are kept; the head is frozen."""

    soft_loss = staticmethod(soft_loss)

    @staticmethod
    def forward(context, output, head, teacher, weight):
        logits = functional.linear(output, head)
        loss, gradient = HeadLoss.soft_loss(logits, teacher, weight)
        context.save_for_backward(gradient @ head)
        return loss

    @staticmethod
    def backward(context, above):
        gradient, = context.saved_tensors
        return gradient * above, None, None, None


class Batch:
    """What all drafters need of one batch: the base model's states, the rows that are compared and
    the base's probabilities there."""

    def __init__(self, trainer, texts, length, generator):
        base, device = trainer.base, trainer.base.device
        self.tokens, kinds, lengths, prompts = trainer.corpus.load(texts, length)
        self.layers = trainer.layers
        self.taps = base.forward(self.tokens, trainer.layers)
        self.embedded = base.embedding[self.tokens]
        self.normed = rms_norm(self.taps[:, :, -1], base.norm, base.epsilon)
        count = len(texts)
        draw = lambda: torch.rand(count, device=device, generator=generator)
        self.cut = torch.where(draw() < 0.5, 0.0, draw() * (prompts - 8).clamp(min=0)).long()
        # Row i drafts token i + 2: what the base predicts at position i + 1.
        row = torch.arange(length - 2, device=device)[None, :]
        valid = (kinds[:, 2:] == ANSWERED) & (row >= self.cut[:, None] + STEPS)
        order = torch.rand(valid.shape, device=device, generator=generator) - valid.float()
        self.flat = order.flatten().argsort()[:min(trainer.compared, order.numel())]
        self.text, self.row = self.flat // (length - 2), self.flat % (length - 2)
        weight = valid.flatten()[self.flat].float()
        self.count = weight.sum()
        self.weight = weight / self.count.clamp(min=1.0)
        self.wanted = self.normed[self.text, self.row + 1]
        logits = functional.linear(self.wanted, base.head).float() / TEMPERATURE
        total = logits.logsumexp(-1, keepdim=True)
        self.teacher = (logits[:, trainer.table] - total).exp().to(base.dtype)

    def tapped(self, layers):
        columns = [self.layers.index(layer) if layer in self.layers else len(self.layers)
                   for layer in layers]
        return self.taps[:, :-2, columns]


class Trainer:
    def __init__(self, base, corpus, table, recipes, options):
        """table: ids of the tokens that enter the loss; recipes: names."""
        self.base, self.corpus, self.options = base, corpus, options
        self.recipes = {name: RECIPES[name] for name in recipes}
        self.modules = {name: recipe.build(base).to(base.device)
                        for name, recipe in self.recipes.items()}
        for module in self.modules.values():
            module.rounded = in_bfloat16
        self.layers = sorted({tap for module in self.modules.values()
                              for tap in getattr(module, "taps", ())[:-1]})
        self.table = torch.as_tensor(table.copy(), device=base.device)
        self.head = base.head[self.table]
        self.compared = options.compared
        self.optimisers = [Optimiser([self.modules[name]], recipe.rate, recipe.adam, recipe.muon)
                           for name, recipe in self.recipes.items()]
        self.mean = {}

    def loss(self, name, batch, done):
        module, recipe = self.modules[name], self.recipes[name]
        compare = lambda output: HeadLoss.apply(output, self.head, batch.teacher, batch.weight)
        if recipe.kind == "layers":
            output = module(batch.embedded[:, 1:-1], (batch.cut - 1).clamp(min=0))
            return [compare(output[batch.text, batch.row])], 0.0
        if recipe.kind == "medusa":
            unit = rms_norm(batch.embedded, torch.ones_like(self.base.norm), self.base.epsilon)
            losses = []
            for k in range(module.count):
                at = (batch.row - k).clamp(min=0)  # head k at position t drafts token t + 2 + k
                losses.append(compare(module(k, batch.normed[batch.text, at],
                                             unit[batch.text, at + 1])))
            return losses, 0.0
        outputs = module(batch.tapped(module.taps), batch.embedded[:, 1:-1], recipe.steps,
                         batch.cut)
        chosen = [output[batch.text, batch.row] for output in outputs]
        share = recipe.state * max(0.0, 1.0 - done / 0.4)
        distance = 0.0
        if share > 0.0:
            scale = batch.wanted.float().pow(2).mean().sqrt()
            for step, output in enumerate(chosen):
                far = functional.smooth_l1_loss(output.float(), batch.wanted.float(),
                                                reduction="none").mean(-1)
                distance = distance + share * DECAY ** step * (far * batch.weight).sum() / scale
        return [compare(output) for output in chosen], distance

    def step(self, texts, length, done, generator):
        with torch.no_grad():
            batch = Batch(self, texts, length, generator)
        rate = min(1.0, done / 0.02 + 0.02) * min(1.0, max(0.0, (1.0 - done) / 0.6) + 0.005)
        for (name, module), optimiser in zip(self.modules.items(), self.optimisers):
            losses, distance = self.loss(name, batch, done)
            total = sum(loss * DECAY ** k for k, loss in enumerate(losses)) + distance
            total.backward()
            optimiser.step(rate)
            found = torch.stack([loss.detach() for loss in losses])
            self.mean[name] = 0.95 * self.mean.get(name, found) + 0.05 * found

    def run(self, seconds, report=10.0, save=None):
        """Until the time is up; the rate follows the clock. save: called now and then."""
        random = numpy.random.default_rng(self.options.seed)
        generator = torch.Generator(self.base.device).manual_seed(self.options.seed)
        begin, steps, rows, told = time.time(), 0, 0, 0.0
        passes = 0
        while True:
            passes += 1
            for texts, length in self.corpus.batches(self.options.rows, random):
                elapsed = time.time() - begin
                if elapsed >= seconds:
                    print(f"{steps} steps, {rows} rows, pass {passes}", flush=True)
                    return
                if elapsed / seconds > self.options.round_from:
                    for module in self.modules.values():
                        module.rounded = as_stored
                self.step(texts, length, elapsed / seconds, generator)
                steps, rows = steps + 1, rows + len(texts) * length
                if self.base.device != "cpu" and steps % 4 == 0:
                    torch.cuda.synchronize()  # the clock must not run ahead of the work
                if elapsed - told > report:
                    told = elapsed
                    self.tell(elapsed, steps, rows)
                    if save is not None:
                        save()

    def tell(self, elapsed, steps, rows):
        print(f"{elapsed:.0f} s, step {steps}, {rows} rows", flush=True)
        for name, mean in self.mean.items():
            print(f"  {name} " + " ".join(f"{value:.3f}" for value in mean.tolist()), flush=True)


def in_bfloat16(weight):
    return weight.to(torch.bfloat16)


def as_stored(weight):
    return round4(weight).to(torch.bfloat16)


def prepare(device, compiled):
    """Fuses the loss and the layers where asked for."""
    if compiled and device != "cpu":
        torch._dynamo.config.suppress_errors = True  # what cannot be fused runs as it is
        HeadLoss.soft_loss = staticmethod(torch.compile(soft_loss, dynamic=False))
        if compiled > 1:
            for name, function in Stack.functions.items():
                Stack.functions[name] = torch.compile(function, dynamic=True)


def add_options(parser):
    parser.add_argument("--rows", type=int, default=24576, help="of a batch")
    parser.add_argument("--compared", type=int, default=12288, help="rows of a batch in the loss")
    parser.add_argument("--table", type=int, default=16384, help="tokens in the loss")
    parser.add_argument("--round-from", type=float, default=0.6, help="part of the time")
    parser.add_argument("--compile", type=int, default=2, help="0: nothing, 1: loss, 2: layers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def save_all(folder, trainer, ranked, frequent):
    table = numpy.sort(ranked[:frequent])
    for name, module in trainer.modules.items():
        save_heads(pathlib.Path(folder) / f"{name}.safetensors", trainer.base, module, table, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--recipes", default="eagle1,medusa", help=",".join(RECIPES))
    parser.add_argument("--frequent", type=int, default=8192, help="tokens that can be drafted")
    add_options(parser)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    prepare(options.device, options.compile)
    base = Llama(options.model, options.device, torch.bfloat16)
    arrays = dict(numpy.load(options.texts))
    ranked = rank_tokens(arrays["tokens"][arrays["kinds"] == ANSWERED], base.embedding.shape[0])
    trainer = Trainer(base, Corpus(arrays, options.device), numpy.sort(ranked[:options.table]),
                      options.recipes.split(","), options)
    options.out.mkdir(parents=True, exist_ok=True)
    save = lambda: save_all(options.out, trainer, ranked, options.frequent)
    trainer.run(options.seconds, save=save)
    save()
    (options.out / "ranked.json").write_text(json.dumps(ranked.tolist()))


if __name__ == "__main__":
    main()
