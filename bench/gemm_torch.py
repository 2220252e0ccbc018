#!/usr/bin/env python3
"""Matrix products of training, avocet and torch in turn, for a matrix W of outputs x inputs:
x·Wᵀ (forward), y·W (gradient of x), yᵀ·x (gradient of W), in f32 and bf16.

usage: bench/gemm_torch.py [--avocet FILE] [--shape NxK,…] [--rows M,…] [--threads N] [--rounds N]

Needs torch. Prints GFLOPS, medians of the rounds, as a Markdown table. "bf16, cast" is torch with
the conversion of f32 operands, which avocet's figures include; avocet's matrices are f32 panels.
Everything is measured with operands that caches may hold.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch

KINDS = ("x·Wᵀ", "y·W", "yᵀ·x")


def avocet(options, shapes, rows):
    done = subprocess.run(
        [options.avocet, "bench", "--kernels", "--op", "gemm", "--type", "f32", "--shape",
         ",".join(f"{n}x{k}" for n, k in shapes), "-b", ",".join(map(str, rows)), "-t",
         str(options.threads), "-r", "3", "--limits-mib", "4", "--json"],
        check=True, stdout=subprocess.PIPE)
    found = {}
    for line in json.loads(done.stdout)["results"]:
        words = line["model"].split()  # gemm f32 x·Wᵀ f32 1536×576
        n, k = map(int, words[-1].split("×"))
        kind = next(word for word in words if word in KINDS)
        found[words[1], kind, line["tokens"], n, k] = line["gops"]
    return found


def torch_rate(run, operations):
    run()
    times = []
    for _ in range(5):
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.01:
            run()
            count += 1
        times.append((time.perf_counter() - begin) / count)
    return operations / statistics.median(times) / 1e9


def torch_rates(shapes, rows):
    found = {}
    for n, k in shapes:
        for m in rows:
            x, y, w = torch.randn(m, k), torch.randn(m, n), torch.randn(n, k)
            half = [t.bfloat16() for t in (x, y, w)]
            operations = 2.0 * m * n * k
            for precision, (a, b, c), cast in (("f32", (x, y, w), False), ("bf16", half, False),
                                               ("bf16, cast", (x, y, w), True)):
                to = (lambda t: t.bfloat16()) if cast else (lambda t: t)
                runs = (lambda: to(a) @ to(c).T, lambda: to(b) @ to(c), lambda: to(b).T @ to(a))
                for kind, run in zip(KINDS, runs):
                    found[precision, kind, m, n, k] = torch_rate(run, operations)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--avocet", default="build/avocet")
    parser.add_argument("--shape", default="576x576,1536x576,576x1536,2048x2048")
    parser.add_argument("--rows", default="256,1024")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shape.split(",")]
    rows = [int(m) for m in options.rows.split(",")]
    torch.set_num_threads(options.threads)
    ours, theirs = [], []
    for _ in range(options.rounds):
        for shape in shapes:
            ours.append(avocet(options, [shape], rows))
            theirs.append(torch_rates([shape], rows))
    print("| W | rows | product | f32: avocet | torch | ratio | bf16: avocet | torch | ratio "
          "| torch, cast | ratio |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for n, k in shapes:
        for m in rows:
            for kind in KINDS:
                def rate(found, precision):
                    return statistics.median(f[precision, kind, m, n, k] for f in found
                                             if (precision, kind, m, n, k) in f)
                cells = [f"{n}×{k}", str(m), kind]
                for precision in ("f32", "bf16"):
                    own, other = rate(ours, precision), rate(theirs, precision)
                    cells += [f"{own:.0f}", f"{other:.0f}", f"{own / other:.2f}"]
                cast = rate(theirs, "bf16, cast")
                cells += [f"{cast:.0f}", f"{rate(ours, 'bf16') / cast:.2f}"]
                print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
