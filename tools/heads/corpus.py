"""Texts with the base model's hidden states: read from a file of taps, or computed as needed.

usage: corpus.py MODEL.gguf TEXTS.npz TAPS.npy --layers 8,20,30     taps by Avocet's Python package

Without a GPU, Avocet computes taps three times as fast as PyTorch does, and they are the very
states that heads get in use. With one, training computes them on the fly and needs no such file.
"""
import argparse

import numpy
import torch


class Corpus:
    def __init__(self, texts, taps, base, layers):
        """texts: .npz of generate.py; taps: .npy of this script or None; layers: tapped ones."""
        file = numpy.load(texts)
        self.tokens, self.ends, self.prompts = file["tokens"], file["ends"], file["prompts"]
        self.begins = numpy.concatenate([[0], self.ends[:-1]])
        self.lengths = self.ends - self.begins
        self.taps = numpy.load(taps, mmap_mode="r") if taps else None
        self.base, self.layers = base, layers

    def batches(self, rows_max, generator):
        """Lists of texts of similar length, in random order."""
        jitter = generator.random(len(self.lengths)) * 8
        order = numpy.argsort(self.lengths + jitter)
        batches, batch = [], []
        for index in order:
            if batch and self.lengths[index] * (len(batch) + 1) > rows_max:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
        generator.shuffle(batches)
        return batches

    def load(self, batch):
        """tokens [texts, rows], taps [texts, rows, tap, width], lengths [texts], prompts."""
        device, rows = self.base.device, int(self.lengths[batch].max())
        tokens = torch.zeros((len(batch), rows), dtype=torch.long)
        for row, index in enumerate(batch):
            text = self.tokens[self.begins[index]:self.ends[index]]
            tokens[row, :len(text)] = torch.from_numpy(text.astype(numpy.int64))
        tokens = tokens.to(device)
        if self.taps is None:
            taps = self.base.forward(tokens, self.layers[:-1]).float()
        else:
            taps = torch.zeros((len(batch), rows, len(self.layers), self.base.width))
            for row, index in enumerate(batch):
                part = numpy.array(self.taps[self.begins[index]:self.ends[index]])
                taps[row, :len(part)] = torch.from_numpy(part).float()
            taps = taps.to(device)
        return (tokens, taps, torch.as_tensor(self.lengths[batch], device=device),
                torch.as_tensor(self.prompts[batch], device=device))


PRIOR = 0.5  # chosen on the development questions of measure.py; docs/heads.md has the figures


def frequent_tokens(tokens, count, vocabulary, always=(0, 1, 2)):
    """The `count` most frequent ids, ascending. A few hundred thousand tokens say little about rare
    ones, so a prior is added: BPE merges frequent pairs first, and frequency falls with the id."""
    ids = numpy.arange(vocabulary)
    amounts = numpy.bincount(tokens, minlength=vocabulary).astype(float)
    amounts += PRIOR * len(tokens) / (ids + 1000) / numpy.log(vocabulary / 1000 + 1)
    amounts[list(always)] += len(tokens)
    return numpy.sort(numpy.argsort(-amounts, kind="stable")[:count]).astype(numpy.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("taps")
    parser.add_argument("--layers", default="8,20,30")
    options = parser.parse_args()
    layers = [int(layer) for layer in options.layers.split(",")]
    import avocet  # bindings/python
    file = numpy.load(options.texts)
    tokens, ends = file["tokens"], file["ends"]
    longest = int(numpy.diff(ends, prepend=0).max())
    with avocet.Model(options.model) as model, \
            avocet.Engine(model, threads=1, sessions_max=1, context_max=longest + 1,
                          rows_max=longest, taps=layers) as engine, engine.batch() as batch:
        out = numpy.lib.format.open_memmap(options.taps, mode="w+", dtype=numpy.float16,
                                           shape=(len(tokens), len(layers), model.info.width))
        begin = 0
        for end in ends:
            with engine.session() as session:
                batch.add(session, [int(token) for token in tokens[begin:end]], 1)
                engine.step(batch)
                for column, layer in enumerate(layers):
                    states = batch.tap(session, layer)
                    if numpy.abs(states).max() > 65504:
                        raise SystemExit(f"tap {layer} exceeds the range of float16")
                    out[begin:end, column] = states
                batch.clear()
            begin = int(end)
        out.flush()


if __name__ == "__main__":
    main()
