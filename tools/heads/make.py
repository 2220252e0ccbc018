#!/usr/bin/env python3
"""Makes the drafters of models/ in one run on a GPU: text, a short comparison of settings (if
asked for), training, measurement, files.

usage: make.py MODEL.gguf OUT-FOLDER --texts PART1.npz,PART3.npz [--generate S] [--compare S]
               [--train S]

The texts are of measure.py --write. The comparison and every choice use the first (part 1); the
second (part 3) is measured at the end only. OUT gets a 4-bit file of each drafter of `--recipes`,
`ranked.npy` (token ids, the most frequent first) and `results.json`.
"""
import argparse
import dataclasses
import json
import pathlib
import time

import numpy
import torch

import measure
import train
from base import Llama
from corpus import ANSWERED, Corpus, rank_tokens
from generate import generate
from heads import Stack
from store import round4
from text import Tokenizer

AXES = {"optimiser": ("eagle1-adam", "eagle1-rate"), "state": ("eagle1-no-state",),
        "taps": ("eagle1-taps-late", "eagle1-taps-early", "eagle1-taps-last"),
        "steps": ("eagle1-steps4",)}
EAGER = dict(Stack.functions)
TABLES = (4096, 8192, 16384, 32768)


class Maker:
    def __init__(self, options):
        self.options, self.begin = options, time.time()
        self.results = {}
        dtype = torch.bfloat16
        self.base = Llama(options.model, options.device, dtype)
        self.exact = Llama(options.model, options.device, torch.float32)
        self.base.digest()
        self.tell("model loaded")

    def tell(self, text):
        print(f"[{time.time() - self.begin:.0f} s] {text}", flush=True)

    def texts(self):
        options = self.options
        if options.corpus:
            arrays = dict(numpy.load(options.corpus))
        else:
            arrays = generate(self.base, Tokenizer(self.base.metadata), options.generate,
                              options.batch, options.seed, options.steps)
        torch.cuda.empty_cache()
        answers = arrays["tokens"][arrays["kinds"] == ANSWERED]
        self.ranked = rank_tokens(answers, self.base.embedding.shape[0])
        numpy.save(options.out / "ranked.npy", self.ranked.astype(numpy.int32))
        self.corpus = Corpus(arrays, options.device)
        self.results["texts"] = {"texts": len(arrays["ends"]), "tokens": len(arrays["tokens"]),
                                 "answers": len(answers)}
        self.tell(f"texts: {self.results['texts']}")
        self.table = numpy.sort(self.ranked[:options.table])

    def measured(self, trainer, texts, tables, bits):
        """Rates of all modules by table."""
        found = {}
        fused = dict(Stack.functions)  # compiled for bfloat16
        Stack.functions.update(EAGER)
        for name, module in trainer.modules.items():
            kept, module.rounded = module.rounded, round4 if bits == 4 else None
            for table in tables:
                frequent = numpy.sort(self.ranked[:table])
                rates = measure.measure(module, self.exact, texts, frequent, bits)
                gain = {kind: measure.speed_up(rates[kind], module, table)
                        for kind in ("greedy", "sampled", "coupled")}
                found.setdefault(name, {})[str(table)] = {**rates, "speed-up": gain}
                self.tell(f"{name} {table} greedy {rates['greedy']} sampled {rates['sampled']} "
                          f"coupled {rates['coupled'][:2]} top {rates['sampled top 1 2 3']} "
                          f"gain {gain['greedy'][0]:.3f} {gain['sampled'][0]:.3f}")
            module.rounded = kept
        Stack.functions.update(fused)
        return found

    def load_texts(self, path, layers):
        return measure.Texts(path, self.exact, layers, 32)

    def compare(self):
        """Short runs of settings against each other; returns those that the training takes."""
        options = self.options
        names = ["eagle1"] + [name for axis in AXES.values() for name in axis]
        small = argparse.Namespace(**{**vars(options), "rows": options.rows // 2,
                                      "compared": options.compared // 2, "round_from": 2.0})
        trainer = train.Trainer(self.base, self.corpus, self.table, names, small)
        trainer.run(options.compare)
        texts = self.load_texts(options.texts[0], trainer.layers)
        found = self.measured(trainer, texts, (min(8192, options.table),), options.bits)
        self.results["comparison"] = found
        score = {name: sum(next(iter(found[name].values()))["speed-up"][kind][0]
                           for kind in ("greedy", "sampled")) for name in names}
        best = train.RECIPES["eagle1"]
        for names in AXES.values():
            name = max(names, key=score.get)
            if score[name] > score["eagle1"]:
                other, plain = train.RECIPES[name], train.RECIPES["eagle1"]
                changed = {field.name: getattr(other, field.name)
                           for field in dataclasses.fields(other)
                           if getattr(other, field.name) != getattr(plain, field.name)}
                best = dataclasses.replace(best, **changed)
                self.tell(f"taken: {changed}")
        return best

    def train(self, best):
        options = self.options
        for name, recipe in train.RECIPES.items():
            if name in ("eagle1", "eagle2", "eagle3"):
                train.RECIPES[name] = dataclasses.replace(best, depth=recipe.depth)
            elif recipe.kind != "medusa":  # whose recipes have rates of their own
                train.RECIPES[name] = dataclasses.replace(recipe, muon=best.muon, rate=best.rate)
        trainer = train.Trainer(self.base, self.corpus, self.table, options.recipes.split(","),
                                options)
        save = lambda: train.save_all(options.out, trainer, self.ranked, options.frequent)
        left = options.end - (time.time() - self.begin)
        trainer.run(min(options.train, left), report=options.report, save=save)
        save()
        self.tell("trained")
        return trainer

    def finish(self, trainer):
        options = self.options
        for name, path in zip(("part 1", "part 3"), options.texts):
            texts = self.load_texts(path, trainer.layers)
            tables = [table for table in TABLES if table < self.exact.head.shape[0]] or [64]
            self.results[name] = self.measured(trainer, texts, tables, options.bits)
            frequent = [measure.base_rates(self.exact, texts, self.ranked[:table].copy())
                        for table in tables]
            self.results[name]["base"] = dict(zip(map(str, tables), frequent))
            self.save_results()

    def save_results(self):
        (self.options.out / "results.json").write_text(json.dumps(self.results))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--corpus", help="texts of generate.py, in place of new ones")
    parser.add_argument("--generate", type=float, default=75, help="seconds")
    parser.add_argument("--compare", type=float, default=0, help="seconds, 0: not at all")
    parser.add_argument("--train", type=float, default=385, help="seconds")
    parser.add_argument("--end", type=float, default=1e9,
                        help="seconds after the start at which training ends at the latest")
    parser.add_argument("--recipes", default="eagle1,eagle2,eagle3,medusa,draft4")
    parser.add_argument("--frequent", type=int, default=8192, help="tokens that can be drafted")
    parser.add_argument("--batch", type=int, default=4096, help="texts generated at a time")
    parser.add_argument("--steps", type=int, default=1 << 30, help="of generating, at most")
    parser.add_argument("--report", type=float, default=20, help="seconds between reports")
    parser.add_argument("--bits", type=int, default=4, help="of the measured weights, 4 or 8")
    train.add_options(parser)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    train.prepare(options.device, options.compile)
    maker = Maker(options)
    maker.texts()
    best = maker.compare() if options.compare > 0 else train.RECIPES["eagle1"]
    maker.save_results()
    maker.finish(maker.train(best))
    maker.tell("done")


if __name__ == "__main__":
    main()
