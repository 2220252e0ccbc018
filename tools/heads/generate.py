#!/usr/bin/env python3
"""Makes the training text: questions and answers that the base model itself generates.

usage: generate.py MODEL.gguf OUT.npz [--seconds S] [--batch N]

A question is sampled at temperature 1 behind the chat prefix up to "user". Its answer is sampled at
temperature 0.7, in every fourth slot greedily. Some texts go on with a second question. In the last
third of the time the questions are tasks about a passage (`TASKS`); the passages are answers made
before. OUT holds `tokens` (all texts, one after another), `kinds` (2: part of an answer), `ends`
(where each text ends) and `prompts` (tokens in front of the first answer).
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy
import torch
from torch.nn import functional

from base import Llama, rms_norm
from text import ANSWER, END, QUESTION, Tokenizer

QUESTION_TOKENS, ANSWER_TOKENS, PASSAGE_TOKENS = 80, 160, 96
CONTEXT = 320
FORCED, ASKED, ANSWERED = 0, 1, 2  # kinds of token
KIND_AT, DONE, DROPPED = 16, 1 << 18, 1 << 19  # bits of the log, above the token
FOLLOW_UP = 0.3  # share of first answers that a second question follows
AGAIN = "\n<|im_start|>user\n"
TASKS = ("Summarize: {}", "Summarize the following text in two sentences.\n\n{}",
         "{}\n\nWrite a short summary of the text above.",
         "Translate the following text to German: {}", "Translate into French:\n{}",
         "Rewrite this text in simpler words:\n\n{}", "Correct the spelling and grammar: {}",
         "{}\n\nWhat is the main idea of this text?",
         "List the most important points of this text.\n{}",
         "Continue this text: {}", "Read the passage and answer the question. Passage: {} "
         "Question: What does the passage say, and why does it matter?",
         "Turn this text into JSON with the fields title, topic and summary: {}",
         "You are given a document. Document: {}\nWrite three questions about it and answer them.",
         "Make this text more formal:\n{}", "Extract all names and numbers from this text: {}")


class Slots:
    """Decodes many texts at once. A slot whose text is complete begins the next one in the same
    step, so all rows of a step are of use. Every text begins with the same tokens, whose K and V
    stay in the cache. One step is one CUDA graph; its log is split into texts at the end."""

    def __init__(self, base, tokenizer, batch, context=CONTEXT):
        self.base, self.batch, self.context = base, batch, context
        device = self.device = base.device
        self.prefix = torch.tensor(tokenizer.encode(QUESTION), device=device)
        headers = [tokenizer.encode(ANSWER), tokenizer.encode(AGAIN)]
        self.header_lengths = torch.tensor([len(header) for header in headers], device=device)
        longest = max(map(len, headers))
        self.headers = torch.tensor([header + [0] * (longest - len(header))
                                     for header in headers], device=device)
        shape = (batch, base.kv_heads, context, base.head_size)
        self.keys, self.values = ([torch.zeros(shape, device=device, dtype=base.dtype)
                                   for _ in range(base.layers)] for _ in range(2))
        self.layers = [base.layer(index) for index in range(base.layers)]
        number = lambda: torch.zeros(batch, device=device, dtype=torch.long)
        self.position, self.job, self.header, self.which = number(), number(), number(), number()
        self.phase, self.answered, self.turn = number(), number(), number()
        self.token = self.prefix[:1].expand(batch).clone()
        self.temperature = torch.where(torch.arange(batch, device=device) % 4 == 0, 0.0, 0.7)
        self.next_job = torch.zeros(1, device=device, dtype=torch.long)
        self.users = torch.zeros((1 << 16, 160), device=device, dtype=torch.int32)
        self.user_lengths = torch.zeros(1 << 16, device=device, dtype=torch.long)
        self.drawn = number()
        self.logged = torch.zeros(batch, device=device, dtype=torch.int32)
        self.rows = torch.arange(batch, device=device)
        self.columns = torch.arange(context, device=device)
        self.graph, self.log = None, []

    def forward(self):
        """Logits of the token of each slot."""
        base, batch = self.base, self.batch
        x = base.embedding[self.token]
        hidden = self.columns[None, :] > self.position[:, None]
        bias = torch.zeros(hidden.shape, device=self.device, dtype=base.dtype).masked_fill(
            hidden, float("-inf"))[:, None, None, :]
        group = base.heads // base.kv_heads
        bias = bias.expand(batch, base.kv_heads, group, -1)
        heads = torch.arange(base.kv_heads, device=self.device)[None, :]
        place = (self.rows[:, None], heads, self.position[:, None])
        for index, w in enumerate(self.layers):
            y = rms_norm(x, w["attn_norm"], base.epsilon)
            q, k, v = (functional.linear(y, w[name]).reshape(batch, -1, base.head_size)
                       for name in ("attn_q", "attn_k", "attn_v"))
            q, k = base.rope(q, self.position), base.rope(k, self.position)
            self.keys[index].index_put_(place, k)
            self.values[index].index_put_(place, v)
            # The heads of a group are the rows of one attention.
            attended = functional.scaled_dot_product_attention(
                q.reshape(batch, base.kv_heads, group, -1), self.keys[index], self.values[index],
                attn_mask=bias)
            x = x + functional.linear(attended.reshape(batch, -1), w["attn_output"])
            y = rms_norm(x, w["ffn_norm"], base.epsilon)
            y = functional.silu(functional.linear(y, w["ffn_gate"])) * functional.linear(
                y, w["ffn_up"])
            x = x + functional.linear(y, w["ffn_down"])
        return base.logits(x)

    def step(self):
        logits = self.forward()
        temperature = torch.where(self.phase == 0, 1.0, self.temperature)[:, None]
        # The highest of logits + temperature · Gumbel noise is a draw at that temperature.
        noise = torch.empty(logits.shape, device=self.device).exponential_().log_()
        self.drawn.copy_((logits - temperature * noise).argmax(-1))
        self.advance()

    def advance(self):
        """Chooses the next token of each slot, logs it and begins new texts."""
        size = len(self.prefix)
        at = self.position + 1
        user_length = self.user_lengths[self.job]
        in_prefix = at < size
        in_user = ~in_prefix & (at < size + user_length)
        in_header = ~in_prefix & ~in_user & (self.header > 0)
        free = ~(in_prefix | in_user | in_header)
        user = self.users[self.job, (at - size).clamp(0, self.users.shape[1] - 1)].long()
        from_end = self.header_lengths[self.which] - self.header
        header = self.headers[self.which, from_end.clamp(0, self.headers.shape[1] - 1)]
        given = torch.where(in_prefix, self.prefix[at.clamp(max=size - 1)],
                            torch.where(in_user, user, header))
        token = torch.where(free, self.drawn, given)
        self.header -= in_header.long()
        asking, answering = free & (self.phase == 0), free & (self.phase == 1)
        # The user's header is complete: sample a question. (It never ends an answer's header.)
        self.phase.copy_(torch.where(in_header & (self.header == 0) & (self.which == 1),
                                     torch.zeros_like(self.phase), self.phase))
        self.answered.copy_(torch.where(answering, self.answered + 1, self.answered))
        ended = token == END
        asked = asking & ended
        follow = (answering & ended & (self.turn == 0) & (at + 100 < self.context)
                  & (torch.rand(self.batch, device=self.device) < FOLLOW_UP))
        full = at >= self.context - 1
        dropped = (asking & (self.turn == 0) & ((ended & (at - size < 4)) |
                                                (~ended & (at - size >= QUESTION_TOKENS))))
        done = (answering & ~follow & (ended | (self.answered >= ANSWER_TOKENS))) | full
        kind = torch.where(answering, ANSWERED, torch.where(asking, ASKED, FORCED))
        self.logged.copy_(token + (kind << KIND_AT) + DONE * (done & ~dropped)
                          + DROPPED * dropped)
        turn_over = asked | follow
        self.which.copy_(torch.where(turn_over, follow.long(), self.which))
        self.header.copy_(torch.where(turn_over, self.header_lengths[self.which], self.header))
        self.phase.copy_(torch.where(asked, torch.ones_like(self.phase), self.phase))
        self.turn += follow.long()
        self.answered.copy_(torch.where(follow, 0, self.answered))
        self.begin_texts(done | dropped, at, token)

    def begin_texts(self, over, at, token):
        size = len(self.prefix)
        jobs = (self.next_job + over.long().cumsum(0) - 1) % len(self.users)
        self.job.copy_(torch.where(over, jobs, self.job))
        self.next_job += over.sum()
        has_user = (self.user_lengths[self.job] > 0).long()
        self.position.copy_(torch.where(over, size - 1, at))
        self.token.copy_(torch.where(over, self.prefix[-1], token))
        self.phase.copy_(torch.where(over, has_user, self.phase))
        self.header.copy_(torch.where(over, has_user * self.header_lengths[0], self.header))
        self.which.copy_(torch.where(over, 0, self.which))
        self.turn.copy_(torch.where(over, has_user, self.turn))
        self.answered.copy_(torch.where(over, 0, self.answered))

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def set_users(self, texts):
        """Questions (lists of tokens) for the texts that begin from now on."""
        self.user_lengths.zero_()
        rows = numpy.zeros(tuple(self.users.shape), dtype=numpy.int32)
        lengths = numpy.zeros(len(self.users), dtype=numpy.int64)
        for row in range(len(self.users)):
            text = texts[row % len(texts)]
            rows[row, :len(text)], lengths[row] = text, len(text)
        # Slots that are in the middle of a text keep their job, so its length must stay 0.
        self.job.fill_(0)
        lengths[0] = 0
        self.users.copy_(torch.from_numpy(rows))
        self.user_lengths.copy_(torch.from_numpy(lengths))
        self.next_job.fill_(1)

    @torch.no_grad()
    def run(self, seconds, steps_max=1 << 30):
        if self.graph is None and self.device != "cpu":
            self.capture()
            self.__begin_again()
        begin = time.time()
        steps = 0
        while time.time() - begin < seconds and steps < steps_max:
            self.step() if self.graph is None else self.graph.replay()
            self.log.append(self.logged.clone())
            steps += 1
            if steps % 16 == 0 and self.graph is not None:
                torch.cuda.synchronize()
        return steps

    def __begin_again(self):
        for state in (self.position, self.job, self.header, self.which, self.phase,
                      self.answered, self.turn, self.next_job):
            state.zero_()
        self.token.fill_(int(self.prefix[0]))

    def texts(self):
        """(tokens, kinds, ends) of all complete texts so far, the common beginning left out."""
        log = torch.stack(self.log)[len(self.prefix) - 1:].T.contiguous().cpu().numpy()
        slots, steps = log.shape
        flat = log.reshape(-1)
        over = (flat & (DONE | DROPPED)) != 0
        stops = numpy.flatnonzero(over) + 1
        begins = numpy.concatenate([[0], stops[:-1]])
        # What a slot left unfinished at the end of its log belongs to no text.
        first = (stops - 1) // steps * steps
        begins = numpy.maximum(begins, first)
        good = (flat[stops - 1] & DONE) != 0
        begins, stops = begins[good], stops[good]
        return [flat[a:b] for a, b in zip(begins, stops)]


def split(texts, prefix):
    """The arrays of the output file."""
    prompts = [len(prefix) + int(numpy.argmax((text >> KIND_AT & 3) == ANSWERED))
               for text in texts]
    whole = [numpy.concatenate([prefix, text]) for text in texts]
    joined = numpy.concatenate(whole)
    return {"tokens": (joined & 0xffff).astype(numpy.int32),
            "kinds": (joined >> KIND_AT & 3).astype(numpy.int8),
            "ends": numpy.cumsum([len(text) for text in whole]),
            "prompts": numpy.array(prompts)}


def tasks_of(texts, tokenizer, count, seed):
    """Tasks about passages: pieces of earlier answers."""
    random = numpy.random.default_rng(seed)
    frames = [[tokenizer.encode(part) for part in task.split("{}")] for task in TASKS]
    found = []
    for index in random.permutation(len(texts))[:count]:
        text = texts[index]
        answer = (text & 0xffff)[(text >> KIND_AT & 3) == ANSWERED]
        answer = [int(token) for token in answer if token > END]
        length = int(random.integers(20, PASSAGE_TOKENS))
        begin = int(random.integers(0, max(1, len(answer) - length)))
        before, behind = frames[random.integers(len(frames))]
        if len(answer) >= 20:
            found.append(before + answer[begin:begin + length] + behind + [END])
    return found


def generate(base, tokenizer, seconds, batch, seed=1, steps_max=1 << 30):
    torch.manual_seed(seed)
    slots = Slots(base, tokenizer, batch)
    first = slots.run(seconds * 0.67, steps_max)
    tasks = tasks_of(slots.texts(), tokenizer, 40000, seed)
    if tasks:
        slots.set_users(tasks)
    second = slots.run(seconds * 0.33, steps_max)
    print(f"{first} + {second} steps of {batch} slots", flush=True)
    return split(slots.texts(), slots.prefix.cpu().numpy())


class AvocetWriter:
    """Answers of `avocet run --prompts`; measure.py asks the questions."""

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
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--steps", type=int, default=1 << 30, help="at most, of each part")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    base = Llama(options.model, options.device, dtype)
    arrays = generate(base, Tokenizer(base.metadata), options.seconds, options.batch, options.seed,
                      options.steps)
    numpy.savez(options.out, **arrays)
    print(f"{len(arrays['ends'])} texts, {len(arrays['tokens'])} tokens, "
          f"{int((arrays['kinds'] == ANSWERED).sum())} of them in answers")


if __name__ == "__main__":
    main()
