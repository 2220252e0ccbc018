"""Golden answers: runs about 3,000 requests and compares every byte of the answers with the record
in tests/fixtures/golden/answers.txt. The requests cover all instruction sets, architectures, weight
and KV types, adapters, grammars, streams, endpoints and sessions.

usage: answers.py [--avocet FILE] [--library FILE --bindings FOLDER] [--device] [--only TEXT]
                  [--keep FOLDER] [--jobs N] [--record]

A refactoring must pass unchanged. A change that alters answers on purpose runs --record and
commits the new record; its diff names the answers that changed. To see how an answer changed, run
both builds with --keep and compare the two folders.

Each line of the record has an arithmetic class: `fast` (avx2, avx512, amx and neon, which must give
the same bits), `ref` (the reference rounds differently) or `any` (no arithmetic). Timings, random
ids and the version are replaced before hashing. Error texts are not recorded.
"""
import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "tests" / "fixtures" / "golden" / "answers.txt"
HEAD = """\
# Arithmetic class, request, first half of the SHA-256 of the normalised answer.
# Written by tests/golden/answers.py --record.
"""
SHOWN = 20  # failures printed in full
DIGITS = 32  # hexadecimal digits of a digest that are recorded
SKIPPED = 77


def arguments():
    build = Path(os.environ.get("AVO_BINARY_FOLDER", ROOT / "build"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--avocet", default=os.environ.get("AVOCET", str(build / "avocet")))
    parser.add_argument("--library", help="libavocet.so for Python (default: next to avocet)")
    parser.add_argument("--bindings", default=str(ROOT / "bindings" / "python"))
    parser.add_argument("--device", action="store_true", help="select by --device, not by --isa")
    parser.add_argument("--only", default="", help="only requests whose name contains this text")
    parser.add_argument("--keep", help="folder to write every normalised answer to")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--record", action="store_true", help="write the record, do not compare")
    return parser.parse_args()


def instruction_sets(avocet):
    """The instruction sets that this machine can run."""
    from golden_jobs import ISA_FLAG, ISAS
    with tempfile.TemporaryDirectory(prefix="avocet-golden-") as folder:
        return [isa for isa in ISAS if subprocess.run(
            [avocet, "plan", ROOT / "tests/fixtures/models/llama2", ISA_FLAG, isa], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0]


class Tally:
    """Counts results per section, which is the first part of a request's name."""

    def __init__(self, record, keep):
        self.record = record  # (arithmetic, name) to digest; None while recording
        self.found = {}
        self.keep = keep and Path(keep)
        self.rows = {}
        self.failures = []
        self.asked = set()  # also those that failed or were skipped
        self.reasons = {}

    def count(self, name, column):
        row = self.rows.setdefault(name.split("/")[0], [0, 0, 0])
        row[column] += 1

    def fail(self, job, name, text):
        self.count(name, 1)
        self.asked.add((job.arithmetic, name))
        self.failures.append(f"{name} ({job.isa or 'any'}{', ' * bool(job.variant)}{job.variant}): "
                             f"{text}")

    def skip(self, job, reason):
        for name in job.names:
            self.count(name, 2)
            self.asked.add((job.arithmetic, name))
            self.reasons.setdefault(reason, set()).add(name)

    def see(self, job, name, answer):
        key = job.arithmetic, name
        digest = hashlib.sha256(answer).hexdigest()[:DIGITS]
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{job.arithmetic}.{name.replace('/', '.')}").write_bytes(answer)
        wanted = self.found.setdefault(key, digest) if self.record is None else \
            self.record.get(key)
        self.found.setdefault(key, digest)
        if wanted == digest:
            self.count(name, 0)
        elif wanted is None:
            self.fail(job, name, f"not recorded: {answer[:120]!r}")
        else:
            self.fail(job, name, f"{digest} instead of {wanted}: {answer[:120]!r}")

    def miss(self):
        """Fails recorded requests that no job runs any more."""
        for arithmetic, name in sorted(set(self.record) - set(self.found) - self.asked):
            self.count(name, 1)
            self.failures.append(f"{name} ({arithmetic}): in the record, but no job runs it")

    def print(self):
        print(f"{'answers':<12} {'passed':>7} {'failed':>7} {'skipped':>7}")
        for section, row in sorted(self.rows.items()):
            print(f"{section:<12} {row[0]:>7} {row[1]:>7} {row[2]:>7}")
        for reason, names in sorted(self.reasons.items()):
            print(f"skipped: {len(names)} names ({min(names)}, …): {reason}")
        for failure in self.failures[:SHOWN]:
            print("FAILED", failure)
        if len(self.failures) > SHOWN:
            print(f"FAILED … and {len(self.failures) - SHOWN} more")
        columns = [sum(row[column] for row in self.rows.values()) for column in range(3)]
        print("%d passed, %d failed, %d skipped" % tuple(columns))
        return columns


def all_jobs(scratch, isas, given):
    """Two lists: jobs that write files for the others, and the others, longest first."""
    import golden_jobs as jobs
    import golden_serving as serving
    library = given.library or jobs.library_of(Path(given.avocet).parent)
    first = list(jobs.pack_jobs(scratch))
    rest = []
    arm = "neon" in isas  # and no set of another family
    for isa in [isa for isa in jobs.ISAS if isa == "ref" or (isa == "neon") == arm]:
        own = [*serving.serve_jobs(scratch, isa), *jobs.prompts_jobs(scratch, isa),
               *jobs.python_jobs(scratch, isa, library, Path(given.bindings).resolve()),
               *jobs.run_jobs(scratch, isa), *jobs.stop_jobs(scratch, isa),
               *jobs.model_jobs(scratch, isa),
               *jobs.packed_jobs(scratch, isa), *jobs.adapter_jobs(scratch, isa),
               *jobs.eval_jobs(scratch, isa), *jobs.chat_jobs(scratch, isa),
               *jobs.real_jobs(scratch, isa)]
        if isa in ("ref", "avx2", "neon"):
            own += serving.tool_jobs(scratch, isa)
        for job in own:
            if isa not in isas:
                job.missing = f"this build or machine has no {isa}"
        rest += own
    rest += jobs.tokenizer_jobs(scratch)
    return first, rest


def perform(job, tally, only, always):
    """Runs a job; returns a function that counts its results, for the main thread."""
    if not always and not any(only in name for name in job.names):
        return lambda: None
    if job.missing:
        return lambda: tally.skip(job, job.missing)
    try:
        answers = job.work()
        assert len(answers) == len(job.names), f"{len(answers)} answers, expected {len(job.names)}"
    except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        text = f"{type(error).__name__}: {error}"
        return lambda: [tally.fail(job, name, text) for name in job.names]
    return lambda: [tally.see(job, name, answer) for name, answer in zip(job.names, answers)
                    if only in name]


def read_record():
    record = {}
    for line in RECORD.read_text().splitlines() if RECORD.exists() else []:
        if not line.startswith("#"):
            arithmetic, name, digest = line.split()
            record[arithmetic, name] = digest
    return record


def write_record(found):
    RECORD.parent.mkdir(exist_ok=True)
    lines = [f"{arithmetic} {name} {digest}\n" for (arithmetic, name), digest in
             sorted(found.items(), key=lambda item: item[0][::-1])]
    RECORD.write_text(HEAD + "".join(lines))


def main():
    given = arguments()
    given.avocet = str(Path(given.avocet).resolve())
    os.environ["AVOCET"] = given.avocet
    os.environ["AVO_GOLDEN_FLAG"] = "--device" if given.device else "--isa"
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import api_server
    import golden_models
    from golden_requests import SCRIPTED
    if api_server.sanitized():
        print("skipped: sanitizer build; the normal build compares the answers")
        return SKIPPED
    isas = instruction_sets(given.avocet)
    tally = Tally(None if given.record else read_record(), given.keep)
    with tempfile.TemporaryDirectory(prefix="avocet-golden-") as folder:
        scratch = Path(folder)
        golden_models.write_all(scratch, SCRIPTED)
        first, rest = all_jobs(scratch, isas, given)
        for jobs in (first, rest):
            with ThreadPoolExecutor(given.jobs) as pool:
                for count in pool.map(lambda job: perform(job, tally, given.only, jobs is first),
                                      jobs):
                    count()
    if not given.only and not given.record:
        tally.miss()
    passed, failed, _ = tally.print()
    if given.record and not failed:
        if given.only:
            tally.found = {**read_record(), **tally.found}
        write_record(tally.found)
        print(f"{len(tally.found)} answers recorded in {RECORD.relative_to(ROOT)}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
