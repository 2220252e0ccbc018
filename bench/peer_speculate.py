#!/usr/bin/env python3
"""Speculation of Avocet and of llama.cpp beside each other: same prompts, same GGUF, in turn.

usage: bench/peer_speculate.py MODEL.gguf --peer llama-speculative-simple [--avocet build/avocet]
       [--set summarise,editing,chat] [--limit 4] [-n 96] [--rounds 2] [--threads 2] [--lock FILE]

MODEL.gguf must have a ChatML template: llama.cpp gets the prompt as Avocet renders it ("--raw
--special" gives the same tokens, which is checked). Each answer is a process of its own, greedy;
tokens per second are those that the programs report for decoding, without loading and prompt.
llama.cpp's own plain decoding is the same program with a lookup that never finds anything. A ratio
is the speed with drafts over the plain speed of the same program for the same prompt in the same
round. With --lock, a process runs while this file is locked.

llama-speculative-simple is built from the sources that bench/peers downloads:
  cmake -B build -DLLAMA_BUILD_EXAMPLES=ON -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
  cmake --build build --target llama-speculative-simple
"""
import argparse
import fcntl
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
NEVER = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1000"]
OURS = {"plain": ["--speculate", "off"],
        "lookups": ["--speculate", "suffix,corpus,grammar", "--draft-heads", "none"],
        "auto": []}
PEERS = {
    "plain": NEVER,
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple 3/8": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3",
                         "--spec-ngram-simple-size-m", "8"],
    "ngram-map-k 3/8": ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3",
                        "--spec-ngram-map-k-size-m", "8"],
    "ngram-cache": ["--spec-type", "ngram-cache", "--spec-draft-n-max", "8"],
}


def prompt_sets():
    """The texts of src/bench/prompt_sets.c."""
    source = (ROOT / "src/bench/prompt_sets.c").read_text(encoding="utf-8")
    sets = {}
    for name, body in re.findall(r"bench_set_text (\w+)\[BENCH_SET_SIZE\] = \{\n(.*?)\n\};", source,
                                 re.S):
        texts = []
        for entry in re.findall(r'\{((?:\s*"(?:[^"\\]|\\.)*")+)', body):
            parts = re.findall(r'"((?:[^"\\]|\\.)*)"', entry)
            texts.append("".join(json.loads(f'"{part}"') for part in parts))
        sets[name] = texts
    return sets


def render(prompt):
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n"
            "<|im_start|>assistant\n")


class Runner:
    def __init__(self, given):
        self.given = given
        self.lock = open(given.lock, "a", encoding="utf-8") if given.lock else None

    def call(self, command):
        if self.lock:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False, timeout=300)
        finally:
            if self.lock:
                fcntl.flock(self.lock, fcntl.LOCK_UN)

    def ours(self, prompt, arguments):
        g = self.given
        done = self.call([g.avocet, "run", g.model, "--json", "-t", str(g.threads), "-n",
                          str(g.tokens), "--temperature", "0", *arguments, prompt])
        if done.returncode != 0:
            raise SystemExit(done.stdout.decode(errors="replace"))
        answer = json.loads(done.stdout.decode().splitlines()[-1])
        usage = answer["usage"]
        return {"rate": answer["timings"]["decode_tps"], "prompt": usage["prompt_tokens"],
                "drafted": usage.get("drafted", 0), "accepted": usage.get("accepted", 0)}

    def peer(self, prompt, arguments):
        g = self.given
        done = self.call([g.peer, "-m", g.model, "-p", render(prompt), "-t", str(g.threads), "-n",
                          str(g.tokens), "--temp", "0", "-c", "1024", *arguments])
        text = done.stdout.decode(errors="replace")
        found = {key: re.search(pattern, text) for key, pattern in
                 (("prompt", r"encoded +(\d+) tokens"), ("rate", r"decoded .*speed: +([\d.]+) t/s"),
                  ("drafted", r"n_drafted += (\d+)"), ("accepted", r"n_accept +?= (\d+)"))}
        if done.returncode != 0 or not all(found.values()):
            raise SystemExit(text[-2000:])
        return {key: float(match.group(1)) for key, match in found.items()}


def parse():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("model")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--avocet", default=str(ROOT / "build/avocet"))
    parser.add_argument("--set", default="summarise,editing,code,chat")
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("-n", dest="tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lock")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(given):
    runner, sets, rows = Runner(given), prompt_sets(), []
    cases = [("avocet", name, runner.ours, arguments) for name, arguments in OURS.items()]
    cases += [("llama.cpp", name, runner.peer, arguments) for name, arguments in PEERS.items()]
    for kind in given.set.split(","):
        for prompt in sets[kind][:given.limit]:
            for number in range(given.rounds):
                tokens = set()
                for turn in range(len(cases)):
                    program, name, run, arguments = cases[(turn + number) % len(cases)]
                    seen = run(prompt, arguments)
                    tokens.add(int(seen["prompt"]))
                    rows.append({"set": kind, "prompt": prompt, "round": number,
                                 "program": program, "case": name, **seen})
                if len(tokens) != 1:
                    raise SystemExit(f"prompts of {tokens} tokens: not the same text")
            print(kind, prompt[:50].replace("\n", " "), file=sys.stderr, flush=True)
    return rows


def report(given, rows):
    plain = {(r["program"], r["set"], r["prompt"], r["round"]): r["rate"]
             for r in rows if r["case"] == "plain"}
    kinds = given.set.split(",")
    print("| program, drafts | " + " | ".join(kinds) + " | accepted of drafted |")
    print("|---|" + "---|" * (len(kinds) + 1))
    for program, names in (("avocet", OURS), ("llama.cpp", PEERS)):
        for name in names:
            own = [r for r in rows if (r["program"], r["case"]) == (program, name)]
            cells = []
            for kind in kinds:
                mine = [r for r in own if r["set"] == kind]
                rate = statistics.median(r["rate"] for r in mine)
                ratio = statistics.median(
                    r["rate"] / plain[(program, kind, r["prompt"], r["round"])] for r in mine)
                cells.append(f"{rate:.0f} tokens/s" if name == "plain" else
                             f"{ratio:.2f} ({rate:.0f})")
            drafted = sum(r["drafted"] for r in own)
            share = f"{100 * sum(r['accepted'] for r in own) / drafted:.0f} %" if drafted else "–"
            print(f"| {program}, {name} | " + " | ".join(cells) + f" | {share} |")


def main():
    given = parse()
    rows = measure(given)
    if given.json:
        print(json.dumps(rows))
    else:
        report(given, rows)


if __name__ == "__main__":
    main()
