#!/usr/bin/env python3
"""What PyTorch computes for optimizers and losses of training:
tests/fixtures/train/optimizer.txt and loss.txt. Needs torch 2.9 or newer.

usage: tools/oracle/train_optimizer.py

Inputs are not stored: the tests compute the same ones by the formula of `numbers`.
"""
import math

import torch
import torch.nn.functional as F
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "tests/fixtures/train"
STEPS = 12


def numbers(count, seed):
    """Numbers in [-1, 1) that need no generator."""
    index = torch.arange(count, dtype=torch.int64)
    mixed = (index * 2654435761 + seed * 40503 + (index * index) * 97) % 65536
    return (mixed.to(torch.float64) / 32768 - 1).to(torch.float32)


def adamw(rows, k, schedule, clip, decay):
    value = torch.nn.Parameter(numbers(rows * k, 1).reshape(rows, k))
    optimizer = torch.optim.AdamW([value], lr=0.01, betas=(0.9, 0.99), eps=1e-8,
                                  weight_decay=decay, foreach=False, fused=False)
    norms = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        value.grad = numbers(rows * k, 100 + step).reshape(rows, k) * (0.5 + step)
        norms.append(torch.nn.utils.clip_grad_norm_([value], clip if clip else float("inf")))
        optimizer.step()
    return value.detach().flatten(), torch.stack(norms)


def orthogonal(matrix):
    """Newton-Schulz as in torch.optim.Muon, but in f32."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


def muon(rows, k, decay, ours):
    value = torch.nn.Parameter(numbers(rows * k, 2).reshape(rows, k))
    optimizer = torch.optim.Muon([value], lr=0.02, weight_decay=decay, momentum=0.95,
                                 nesterov=True, ns_steps=5)
    if ours:
        torch.optim._muon._zeropower_via_newtonschulz = lambda grad, *_: orthogonal(grad)
    for step in range(STEPS):
        value.grad = numbers(rows * k, 300 + step).reshape(rows, k)
        optimizer.step()
    return value.detach().flatten()


def write(file, name, values):
    file.write(name + " " + " ".join("%.9g" % float(v) for v in values) + "\n")


def optimizers():
    def constant(_):
        return 0.01

    def cosine(step):
        if step < 3:
            return 0.01 * step / 3
        return 0.01 * 0.5 * (1 + math.cos(math.pi * (step - 3) / (STEPS - 3)))

    with open(FOLDER / "optimizer.txt", "w") as file:
        for name, arguments in (("adamw", (7, 5, constant, 0, 0)),
                                ("adamw-clip-decay", (7, 5, constant, 3.0, 0.1)),
                                ("adamw-cosine", (7, 5, cosine, 0, 0.01))):
            value, norms = adamw(*arguments)
            write(file, name, value)
            write(file, name + "-norms", norms)
        bf16 = {shape: muon(*shape, 0.1, False) for shape in ((6, 10), (10, 6))}
        for shape in ((6, 10), (10, 6)):
            write(file, "muon-%dx%d-bf16" % shape, bf16[shape])
            write(file, "muon-%dx%d" % shape, muon(*shape, 0.1, True))


def dpo(kind, beta, smoothing, pair):
    chosen, rejected, reference_chosen, reference_rejected = pair
    chosen = torch.tensor(chosen, dtype=torch.float64, requires_grad=True)
    logits = (chosen - reference_chosen) - (rejected - reference_rejected)
    if kind == "ipo":
        loss = (logits - 1 / (2 * beta)) ** 2
    else:
        loss = (-F.logsigmoid(beta * logits) * (1 - smoothing)
                - F.logsigmoid(-beta * logits) * smoothing)
    loss.backward()
    return loss, chosen.grad


def policy(advantage, now, old, reference, beta):
    now = torch.tensor(now, dtype=torch.float64, requires_grad=True)
    ratio = torch.exp(now - old)
    loss = -torch.min(ratio * advantage, torch.clamp(ratio, 1 - 0.2, 1 + 0.28) * advantage)
    kl = torch.exp(reference - now) - (reference - now) - 1
    loss = loss + beta * kl
    loss.backward()
    return loss, now.grad, kl


def losses():
    pairs = [(-10, -12, -11, -11.5), (-30, -10, -20, -20), (-5, -90, -60, -2), (-3, -3, -3, -3)]
    with open(FOLDER / "loss.txt", "w") as file:
        for kind, beta, smoothing in (("sigmoid", 0.1, 0), ("sigmoid", 0.5, 0.2), ("ipo", 0.1, 0)):
            for pair in pairs:
                loss, gradient = dpo(kind, beta, smoothing, pair)
                write(file, "dpo-" + kind, (beta, smoothing, *pair, loss, gradient))
        for advantage in (1.5, -0.7):
            for now, old, reference in ((-1, -1, -1), (-1, -2, -1.5), (-2, -1, -3), (-1, -1.1, 0)):
                for beta in (0, 0.04):
                    result = policy(advantage, now, old, reference, beta)
                    write(file, "policy", (advantage, now, old, reference, beta, *result))
        rewards = torch.tensor([[1, 0, 0, 1, 1.], [0, 0, 0, 0, 0], [0.5, 2, -1, 0, 3]],
                               dtype=torch.float64)
        write(file, "rewards", rewards.flatten())
        mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
        write(file, "spread", std.flatten())
        write(file, "grpo", ((rewards - mean) / (std + 1e-4)).flatten())
        write(file, "dr_grpo", (rewards - mean).flatten())
        write(file, "rloo", (rewards - (rewards.sum(1, keepdim=True) - rewards) / 4).flatten())
        write(file, "reinforce", (rewards - rewards.mean()).flatten())


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    optimizers()
    losses()
