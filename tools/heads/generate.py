#!/usr/bin/env python3
"""Makes the training text: questions and answers that the base model itself generates.

usage: generate.py MODEL.gguf OUT.npz [--questions N] [--device cuda]      sampler below, PyTorch
       generate.py MODEL.gguf OUT.npz [--questions N] --avocet build/avocet   `avocet run --prompts`

A question is sampled at temperature 1 behind the chat prefix up to "user". Its answer is sampled at
temperature 0.7, every fourth one greedily. OUT holds `tokens` (all texts, one after another),
`ends` (where each ends) and `prompts` (how many tokens of each are prompt).
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
import torch
from torch.nn import functional

from base import GgufFile, Llama, rms_norm
from text import ANSWER, END, QUESTION, Tokenizer

QUESTION_TOKENS, ANSWER_TOKENS = 64, 160


class Sampler:
    """Batched decoding with a fixed-size KV cache, as one CUDA graph per step. Prompts go through
    the same graph token by token: simple, and no second shape to capture."""

    def __init__(self, base, batch, context):
        self.base, self.batch, self.context = base, batch, context
        device = base.device
        shape = (base.layers, batch, context, base.kv_heads, base.head_size)
        self.keys = torch.zeros(shape, device=device, dtype=base.dtype)
        self.values = torch.zeros(shape, device=device, dtype=base.dtype)
        self.layers = [base.layer(index) for index in range(base.layers)]
        self.timeline = torch.zeros((batch, context + 1), device=device, dtype=torch.long)
        self.prompts = torch.zeros(batch, device=device, dtype=torch.long)
        self.temperature = torch.ones((batch, 1), device=device)
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.rows = torch.arange(context, device=device)
        self.graph = None

    def step(self):
        """Computes the column at `position` and writes the drawn token behind it."""
        base = self.base
        tokens = self.timeline.gather(1, self.position.expand(self.batch, 1)).squeeze(1)
        x = base.embedding[tokens]
        seen = (self.rows <= self.position)[None, None, None, :]
        for index, w in enumerate(self.layers):
            y = rms_norm(x, w["attn_norm"], base.epsilon)
            q, k, v = (functional.linear(y, w[name]).reshape(self.batch, 1, -1, base.head_size)
                       for name in ("attn_q", "attn_k", "attn_v"))
            q, k = base.rope(q, self.position), base.rope(k, self.position)
            self.keys[index].index_copy_(1, self.position, k)
            self.values[index].index_copy_(1, self.position, v)
            attended = functional.scaled_dot_product_attention(
                q.transpose(1, 2), self.keys[index].transpose(1, 2),
                self.values[index].transpose(1, 2), attn_mask=seen, enable_gqa=True)
            x = x + functional.linear(attended.reshape(self.batch, -1), w["attn_output"])
            y = rms_norm(x, w["ffn_norm"], base.epsilon)
            y = functional.silu(functional.linear(y, w["ffn_gate"])) * functional.linear(
                y, w["ffn_up"])
            x = x + functional.linear(y, w["ffn_down"])
        logits = base.logits(x).float()
        # The highest of logits + temperature · Gumbel noise is a draw at that temperature.
        noise = -torch.log(torch.empty_like(logits).exponential_())
        drawn = (logits + self.temperature * noise).argmax(-1)
        self.position += 1
        column = self.position.expand(self.batch, 1)
        given = self.timeline.gather(1, column).squeeze(1)
        next_token = torch.where(self.position < self.prompts, given, drawn)
        self.timeline.scatter_(1, column, next_token[:, None])

    @torch.no_grad()
    def run(self, prompts, temperatures, new_tokens):
        """Continues up to `batch` prompts; returns (tokens, whether it ended) for each."""
        count = len(prompts)
        self.timeline.zero_()
        for row in range(self.batch):
            prompt = prompts[min(row, count - 1)]
            self.timeline[row, :len(prompt)] = torch.tensor(prompt)
            self.prompts[row] = len(prompt)
            self.temperature[row] = temperatures[min(row, count - 1)]
        self.position.zero_()
        if self.graph is None and self.base.device != "cpu":
            self.capture()
            self.position.zero_()
        for _ in range(min(self.context, max(map(len, prompts)) + new_tokens) - 1):
            self.step() if self.graph is None else self.graph.replay()
        found = []
        for row, text in enumerate(self.timeline[:count].tolist()):
            answer = text[len(prompts[row]):len(prompts[row]) + new_tokens]
            ended = END in answer
            found.append((answer[:answer.index(END) + 1] if ended else answer, ended))
        return found

    def capture(self):
        kept = self.timeline.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        self.timeline.copy_(kept)


class TorchWriter:
    def __init__(self, options):
        dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
        self.base = Llama(options.model, options.device, dtype)
        self.batch = options.batch
        torch.manual_seed(options.seed)

    def write(self, prompts, temperatures, new_tokens):
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        context = max(map(len, prompts)) + new_tokens
        sampler = Sampler(self.base, self.batch, context)
        found = [None] * len(prompts)
        for begin in range(0, len(order), self.batch):
            chosen = order[begin:begin + self.batch]
            texts = sampler.run([prompts[i] for i in chosen], [temperatures[i] for i in chosen],
                                new_tokens)
            for i, text in zip(chosen, texts):
                found[i] = text
        return found


class AvocetWriter:
    """The same with `avocet run --prompts`, which is faster than PyTorch without a GPU."""

    def __init__(self, options, tokenizer):
        self.command, self.model, self.seed = options.avocet, options.model, options.seed
        self.tokenizer = tokenizer

    def write(self, prompts, temperatures, new_tokens):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for i, (prompt, temperature) in enumerate(zip(prompts, temperatures)):
                file.write(json.dumps({"prompt": self.tokenizer.decode(prompt), "raw": True,
                                       "seed": self.seed * 1000003 + i,
                                       "temperature": temperature,
                                       "max_new_tokens": new_tokens}) + "\n")
            file.flush()
            done = subprocess.run([self.command, "run", self.model, "--prompts", file.name, "--raw",
                                   "--special", "-b", "48"], stdout=subprocess.PIPE, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [(line["ids"], line["finish_reason"] == "stop") for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--questions", type=int, default=40000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--avocet", help="command that generates instead of PyTorch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tokenizer = Tokenizer(GgufFile(options.model).metadata)
    writer = AvocetWriter(options, tokenizer) if options.avocet else TorchWriter(options)

    prefix = tokenizer.encode(QUESTION)
    count = options.questions
    questions = writer.write([prefix] * count, [1.0] * count, QUESTION_TOKENS)
    questions = [text for text, ended in questions if ended and len(text) > 4]
    prompts = [prefix + text + tokenizer.encode(ANSWER) for text in questions]
    temperatures = [0.0 if i % 4 == 0 else 0.7 for i in range(len(prompts))]
    answers = writer.write(prompts, temperatures, ANSWER_TOKENS)
    texts = [numpy.array(prompt + answer, dtype=numpy.int32)
             for prompt, (answer, _) in zip(prompts, answers)]
    numpy.savez(options.out, tokens=numpy.concatenate(texts),
                ends=numpy.cumsum([len(text) for text in texts]),
                prompts=numpy.array([len(prompt) for prompt in prompts]))
    print(f"{len(texts)} answers of {len(questions)} questions ({count} tried), "
          f"{sum(len(answer) for answer, _ in answers)} answer tokens")


if __name__ == "__main__":
    main()
