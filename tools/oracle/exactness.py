#!/usr/bin/env python3
"""Avocet against transformers, in one table. Run through tools/exactness, which sees to the Python
environment.

Tiny models: the oracle's logits are computed afresh and compared with the committed ones and with
Avocet's, from safetensors, packed as .avo, and from the GGUF twin. Real weights: the same on real
text; there the two may differ by rounding, so the verdict is by the top token and the divergence."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import catalogue
import real_models
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "models"
BOUND = 2e-5  # of the logits' range
NEAR_TIE = 1e-4  # two best logits closer than this may change places
KL_BOUND = 1e-6
# Gemma sees windows of 512 positions: more than that, so that they end.
REAL_POSITIONS = {"stories15M": 512, "stories260K": 512, "smollm2-135m": 512, "gemma3-270m": 640}


class Table:
    COLUMNS = "{:15s} {:34s} {:>9s} {:>11s} {:>8s} {:>9s}  {}"

    def __init__(self):
        self.failed = 0
        self.done = 0
        print(self.COLUMNS.format("model", "what was compared", "positions", "difference", "top",
                                  "mean KL", "verdict"))

    def row(self, model, what, positions, difference, top="", kl="", good=True, why=""):
        self.done += 1
        self.failed += not good
        print(self.COLUMNS.format(model, what, str(positions), f"{difference:.1e}", top, kl,
                                  "ok" if good else f"FAILED {why}"), flush=True)

    def missing(self, model, why, failed):
        self.failed += failed
        verdict = f"FAILED: {why}" if failed else f"skipped: {why}"
        print(self.COLUMNS.format(model, "", "", "", "", "", verdict), flush=True)


class Avocet:
    def __init__(self, binary):
        self.binary = binary
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-exactness-")

    def call(self, *arguments, text=None):
        # The reference: the vector back ends quantise activations and are held to it by tests.
        done = subprocess.run([self.binary, *map(str, arguments)], input=text, text=True,
                              capture_output=True, check=False,
                              env={**os.environ, "AVO_ISA": "ref"})
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip()
                               else f"exit status {done.returncode}")
        return done.stdout

    def logits(self, model, ids):
        """Planned for exactly these positions, as the oracle's single pass is."""
        out = pathlib.Path(self.scratch.name) / "logits.npy"
        out.unlink(missing_ok=True)
        self.call("eval", "logits", model, "--ids", ",".join(map(str, ids)), "--ctx", len(ids),
                  "-o", out)
        return numpy.load(out, mmap_mode="r")

    def packed(self, model):
        out = pathlib.Path(self.scratch.name) / "packed.avo"
        self.call("pack", model, "-o", out, "--type", "f32")
        return out

    def tokens(self, model, text):
        return json.loads(self.call("tokenize", model, "-", "--json", "--begin", text=text))["ids"]


def compare_tiny(table, avocet, case):
    folder = FIXTURES / case.name
    ids = numpy.load(folder / "ids.npy")
    oracle = reference.logits(reference.load(folder), ids, case.stepwise)
    stored = reference.difference(numpy.load(folder / "logits.npy"), oracle)
    if stored > BOUND:
        table.row(case.name, "committed oracle", len(ids), stored, good=False,
                  why="tests/fixtures and transformers disagree")
    twin = FIXTURES / f"{case.name}.gguf"  # gpt-oss's safetensors are not packed
    to_pack = twin if case.config.model_type == "gpt_oss" else folder
    files = [(f"safetensors {case.storage}", lambda: folder)]
    if to_pack.exists():
        files.append((".avo packed as f32", lambda: avocet.packed(to_pack)))
    if case.gguf:
        files.append((f"GGUF {case.storage}", lambda: FIXTURES / f"{case.name}.gguf"))
    for what, path in files:
        try:
            found = avocet.logits(path(), ids)
            if found.shape != oracle.shape:
                raise RuntimeError(f"shape {found.shape}, expected {oracle.shape}")
            difference = reference.difference(found, oracle)
        except RuntimeError as error:
            table.row(case.name, what, len(ids), float("nan"), good=False, why=str(error))
            continue
        table.row(case.name, what, len(ids), difference, good=difference <= BOUND)


def compare_rows(found, oracle):
    """Sum of KL, rows whose top token differs without a near tie, largest difference, range."""
    kl, wrong, largest, low, high = 0.0, 0, 0.0, numpy.inf, -numpy.inf
    for mine, theirs in zip(found, oracle):
        mine, theirs = mine.astype(numpy.float64), theirs.astype(numpy.float64)
        p, q = theirs - numpy.logaddexp.reduce(theirs), mine - numpy.logaddexp.reduce(mine)
        kl += float((numpy.exp(p) * (p - q)).sum())
        best = numpy.partition(theirs, -2)[-2:]
        wrong += bool(mine.argmax() != theirs.argmax() and best[1] - best[0] >= NEAR_TIE)
        largest = max(largest, float(numpy.abs(mine - theirs).max()))
        if not numpy.isfinite(mine).all():
            wrong += 1
        low, high = min(low, theirs.min()), max(high, theirs.max())
    return kl, wrong, largest, high - low


def compare_real(table, avocet, name, path, model, text):
    """Windows of the model's own context, as many as make the positions wanted."""
    wanted = REAL_POSITIONS[name]
    window = min(wanted, model.config.max_position_embeddings)
    ids = avocet.tokens(path, text)[:wanted]
    kl, wrong, largest, span = 0.0, 0, 0.0, 0.0
    for begin in range(0, len(ids), window):
        part = ids[begin:begin + window]
        found = avocet.logits(path, part)
        more = compare_rows(found, reference.logits(model, part))
        kl, wrong = kl + more[0], wrong + more[1]
        largest, span = max(largest, more[2]), max(span, more[3])
    kl /= len(ids)
    good = len(ids) >= 500 and wrong == 0 and kl <= KL_BOUND
    table.row(name, f"real text, windows of {window}", len(ids), largest / span,
              f"{len(ids) - wrong}/{len(ids)}", f"{kl:.1e}", good)


def find_data():
    for folder in (os.environ.get("AVOCET_TEST_DATA"), ROOT.parent / "shared" / "data"):
        if folder and pathlib.Path(folder).is_dir():
            return pathlib.Path(folder)
    return None


def find_gguf(avocet, name, models, offline):
    """In --models, else where `avocet pull` puts it; pulled if absent."""
    if models:
        found = sorted(pathlib.Path(models).rglob(f"{name}*.gguf"))
        if found:
            return found[0]
    for attempt in range(2):
        for entry in json.loads(avocet.call("list", "--json")).get("models", []):
            path = pathlib.Path(entry["path"])
            if entry["name"] == name and entry["complete"]:
                return sorted(path.rglob("*.gguf"))[0] if path.is_dir() else path
        if offline or attempt:
            break
        avocet.call("pull", name)
    raise RuntimeError("not found; give --models FOLDER, or let `avocet pull` fetch it")


def compare_all_real(table, avocet, options):
    data = find_data()
    text_path = data / "text" / "wikitext2-test.txt" if data else None
    own_text = "".join(path.read_text() for path in sorted(ROOT.glob("*.md")) +
                       sorted((ROOT / "docs").glob("*.md")))
    text = text_path.read_text()[:20000] if text_path and text_path.exists() else own_text[:20000]
    for name in ("stories15M", "stories260K"):
        path = data / "models" / name / f"{name}.bin" if data else None
        if wanted(options, name) and not (path and path.exists()):
            table.missing(name, "no shared data (AVOCET_TEST_DATA)", failed=False)
        elif wanted(options, name):
            story = data / "text" / "tinystories-lowercase-4MB.txt"
            guarded(table, name, lambda: compare_real(
                table, avocet, name, path, real_models.load_llama2c(path),
                story.read_text()[:20000] if story.exists() else text))
    for name, pulled in (("smollm2-135m", "smollm2"), ("gemma3-270m", "gemma3-270m")):
        if wanted(options, name):
            def run():
                path = find_gguf(avocet, pulled, options.models, options.offline)
                compare_real(table, avocet, name, path, real_models.load_gguf(path), text)
            guarded(table, name, run)


def guarded(table, name, work):
    try:
        work()
    except RuntimeError as error:
        table.missing(name, str(error), failed=True)


def wanted(options, name):
    return not options.only or name in options.only


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--avocet", default=ROOT / "build" / "avocet", help="the command")
    parser.add_argument("--models", help="folder with smollm2*.gguf and gemma3-270m*.gguf")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models only")
    parser.add_argument("--no-real", action="store_true", help="tiny models only")
    parser.add_argument("--offline", action="store_true", help="pull nothing")
    options = parser.parse_args()
    torch.set_num_threads(max(1, min(2, os.cpu_count() or 1)))
    avocet, table = Avocet(options.avocet), Table()
    for case in catalogue.cases():
        if wanted(options, case.name):
            guarded(table, case.name, lambda: compare_tiny(table, avocet, case))
    if not options.no_real:
        compare_all_real(table, avocet, options)
    print(f"{table.done} comparisons, {table.failed} failed; bounds: {BOUND:.0e} of the logits' "
          f"range for tiny models, same top token and mean KL {KL_BOUND:.0e} for real ones")
    return 1 if table.failed or table.done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
