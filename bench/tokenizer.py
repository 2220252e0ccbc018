#!/usr/bin/env python3
"""Our tokenizer against Hugging Face `tokenizers` on one thread, in one run: the same text line by
line and whole, ids compared by number, rates in MB/s and their ratio.

usage: python bench/tokenizer.py AVOCET TEXT TOKENIZER.json…
(AVOCET: build/avocet; needs the package tokenizers)
"""
import json
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402


def theirs(path, text):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]

    def line_by_line():
        return sum(len(tokenizer.encode(line, add_special_tokens=False).ids) for line in lines)

    def whole():
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    result = {}
    for name, run in (("lines", line_by_line), ("whole", whole)):
        best = 1e9
        for _ in range(2):
            begin = time.thread_time()
            result["tokens_" + name] = run()
            best = min(best, time.thread_time() - begin)
        result[name + "_mb_s"] = len(text.encode()) * 1e-6 / best
    return result


def ours(program, path, text_path):
    report = json.loads(subprocess.check_output(
        [program, "bench", "--kernels", path, "--op", "tokenizer", "--text", text_path, "-r", "5",
         "--limits-mib", "1", "--json"]))
    result = {}
    for name, row in zip(("lines", "whole", "decode"), report["results"]):
        result["tokens_" + name] = row["tokens"]
        # the best of five, as theirs is the best of two
        result[name + "_mb_s"] = row["gbps"] * 1e3 * row["tps_high"] / row["tps"]
    return result


def main():
    program, text_path, *tokenizers = sys.argv[1:]
    text = open(text_path, encoding="utf-8", newline="").read()
    print("tokenizer | what | HF MB/s | ours MB/s | ratio | tokens equal")
    print("---|---|---|---|---|---")
    for path in tokenizers:
        mine = ours(program, path, text_path)
        other = theirs(path, text)
        for what in ("lines", "whole"):
            a, b = other[what + "_mb_s"], mine[what + "_mb_s"]
            equal = other["tokens_" + what] == mine["tokens_" + what]
            print(f"{path.split('/')[-2]} | {what} | {a:.2f} | {b:.2f} | {b / a:.1f}× | {equal}")


main()
