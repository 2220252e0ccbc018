"""Jobs of tests/golden/answers.py that run the `avocet` command. A job is one or a few processes
that answer several requests; it names them in advance, so that they can be reported as skipped."""
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Optional

import golden_models
import golden_requests
from command import AVOCET, ROOT, test_data
from golden_requests import LINES, REQUESTS, STOPS, completed, flags_of
from golden_sessions import NAMES

ISAS = ("ref", "avx2", "avx512", "amx", "neon")
ISA_FLAG = os.environ.get("AVO_GOLDEN_FLAG", "--isa")  # option that selects one
KV_TYPES = ("f32", "f16", "bf16", "int8", "fp8")
PACK_TYPES = ("f32", "f16", "bf16", "f8c", "q8", "q8c", "q5_0", "q5_1", "q4", "q4_0", "q4_1",
              "q4b64", "q4m64", "keep")
SECONDS = 300


@dataclass
class Job:
    """`isa` is None for jobs without arithmetic. `work` returns one normalised answer per name."""
    isa: Optional[str]
    names: List[str]
    work: Callable[[], List[bytes]]
    variant: str = ""
    missing: str = ""  # reason to skip the job

    @property
    def arithmetic(self):
        """All vector instruction sets give the same bits; the reference rounds differently."""
        return "any" if self.isa is None else "ref" if self.isa == "ref" else "fast"


def environment():
    """The caller's environment without AVO_ISA and the like, which would change answers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AVO_")}


def speculation(arguments):
    """Flags that answers must not depend on: avx2 drafts nothing, avx512 as much as it can, others
    what pays, and one record holds for all of them."""
    words = list(map(str, arguments))
    isa = words[words.index(ISA_FLAG) + 1] if words[0] == "run" and ISA_FLAG in words else ""
    return {"avx2": ["--speculate", "off"], "avx512": ["--draft-controller", "fixed"]}.get(isa, [])


def greedy(arguments):
    """Most answers are greedy, which is not the command's default; the model "sampling" has its
    own."""
    words = list(map(str, arguments))
    names = {"--temperature", "--top-k", "--top-p", "--min-p", "--typical-p"}
    asks = words[0] in ("run", "chat") and words[1] != "sampling" and "--help" not in words
    return ["--temperature", "0"] if asks and not names & set(words) else []


def call(scratch, *arguments, given=b"", **more):
    arguments = (*arguments, *greedy(arguments), *speculation(arguments))
    done = subprocess.run([AVOCET, *map(str, arguments)], input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS, check=False, cwd=scratch,
                          env={**environment(), **more})
    if done.returncode != 0:
        words = " ".join(map(str, arguments))[:300]
        said = b"".join(re.findall(rb'"error":"[^"]*"', done.stdout)[:1]) + done.stderr
        raise AssertionError(f"avocet {words}: exit {done.returncode}: "
                             f"{said.decode(errors='replace')[-600:].strip()}")
    return done.stdout


def without_times(data):
    """Replaces timings by #, and counters that depend on what else was in the batch. Leaves out
    how much was drafted, which depends on what steps cost."""
    data = re.sub(rb'"timings":\{[^}]*\}',
                  lambda found: re.sub(rb":(?:-?[\d.eE+-]+|null)", b":#", found[0]), data)
    data = re.sub(rb',"drafted":\d+,"accepted":\d+', b"", data)
    return re.sub(rb'"(reused_tokens|preemptions)":\d+', rb'"\1":#', data)


def rounded(data):
    """Twelve digits of each number: exp and log of the C library are not the same everywhere."""
    return re.sub(rb"-?\d+\.\d+(?:e[+-]?\d+)?", lambda found: b"%.12g" % float(found[0]), data)


def prompts(scratch, model, lines, *flags):
    """Answers of `run --prompts`, one per line."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    said = without_times(call(scratch, "run", model, "--prompts", "-", *flags, given=text))
    answers = said.splitlines()
    if len(answers) != len(lines):
        raise AssertionError(f"{len(answers)} answers, expected {len(lines)}")
    return answers


def reused(scratch, isa):
    """Lines that begin alike, one after the other, so that they find one another's pages. Which of
    them is tokenized first, and so how much each reuses, is not fixed."""
    prompt = golden_models.TEXT[:300]
    lines = [{"prompt": prompt, "raw": True, "max_new_tokens": 4}] * 2
    lines += [{**lines[0], "cache_salt": "s"}, {**lines[0], "prompt": prompt[:100]}]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    said = call(scratch, "run", "bytes", "--prompts", "-", "-b", 1, "-c", 512, ISA_FLAG, isa,
                given=text)
    return [without_times(line) for line in said.splitlines()]


def streamed(scratch, model, lines, *flags):
    """Events of `run --prompts --stream`, joined per line: lines interleave in any order."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    said = call(scratch, "run", model, "--prompts", "-", "--stream", *flags, given=text)
    answers = [b""] * len(lines)
    for line in said.splitlines(keepends=True):
        answers[json.loads(line)["index"]] += without_times(line)
    return answers


def threads_of(isa, number):
    """Alternates between one and two threads, so that every request runs with both."""
    return 1 + (ISAS.index(isa) + number) % 2


# ---- Models, types and adapters: prompts of token ids ----

def token_lines(ids):
    """Requests for models without a tokenizer."""
    return {
        "greedy": {"tokens": ids[:8], "max_new_tokens": 8, "logprobs": 3, "ignore_eos": True},
        "sampled": {"tokens": ids[3:23], "max_new_tokens": 12, "temperature": 1, "top_k": 30,
                    "top_p": 0.9, "seed": 5, "repetition_penalty": 1.25, "ignore_eos": True},
        "scored": {"tokens": ids[:40], "prompt_logprobs": True, "logprobs": 1, "no_answer": True},
        "embedded": {"tokens": ids[:33], "pooling": "mean"},
    }


def model_jobs(scratch, isa):
    for number, model in enumerate([*golden_models.FOLDERS, *golden_models.GGUFS]):
        ids = golden_models.ids_of(model)
        lines = token_lines(ids)
        threads = threads_of(isa, number)
        flags = [ISA_FLAG, isa, "-t", threads, "-c", 48]
        yield Job(isa, [f"models/{model}/{name}" for name in lines],
                  lambda model=model, lines=lines, flags=flags: prompts(
                      scratch, f"models/{model}", lines.values(), *flags),
                  f"{threads} threads")
        yield Job(isa, [f"logits/{model}"],
                  lambda model=model, ids=ids, flags=flags: [logits(scratch, isa, model, ids,
                                                                    *flags)])
    for model in ("llama3", "gemma3", "qwen2-window", "gpt2"):
        lines = token_lines(golden_models.ids_of(model))
        for kind in KV_TYPES:
            flags = [ISA_FLAG, isa, "-t", 2, "-c", 48, "--kv-type", kind]
            yield Job(isa, [f"kv/{model}/{kind}/{name}" for name in lines],
                      lambda model=model, lines=lines, flags=flags: prompts(
                          scratch, f"models/{model}", lines.values(), *flags))


def logits(scratch, isa, model, ids, *flags):
    out = f"{model}-{isa}.npy"
    call(scratch, "eval", "logits", f"models/{model}", "--ids", ",".join(map(str, ids)), "-o", out,
         *flags)
    return (scratch / out).read_bytes()


def random_ids(count):
    return [5 + 7 * number % 53 for number in range(count)]


def packed_jobs(scratch, isa):
    lines = token_lines(random_ids(40))
    names = [f"{kind}.avo" for kind in PACK_TYPES]
    names += ["llama3-q8.avo", "gemma3-q4.avo", "gpt2-q5_1.avo", "phi3-q8.avo", "bits.avo",
              "merged.avo", *(f"random-{kind}.gguf" for kind in golden_models.QUANTISED)]
    for number, name in enumerate(names):
        flags = [ISA_FLAG, isa, "-t", threads_of(isa, number), "-c", 48]
        yield Job(isa, [f"packed/{name}/{request}" for request in lines],
                  lambda name=name, flags=flags: prompts(scratch, name, lines.values(), *flags))


def pack_jobs(scratch):
    """Writes the packed models and adapters that other jobs read. The files are recorded too."""
    def pack(name, *arguments):
        def work():
            call(scratch, *arguments, "-o", name)
            return [(scratch / name).read_bytes()]
        return Job(None, [f"pack/{name}"], work)
    for kind in PACK_TYPES:
        yield pack(f"{kind}.avo", "pack", "bytes", "--type", kind)
    for model, kind in (("llama3", "q8"), ("gemma3", "q4"), ("gpt2", "q5_1"), ("phi3", "q8")):
        yield pack(f"{model}-{kind}.avo", "pack", f"models/{model}", "--type", kind)
    yield pack("bits.avo", "pack", "bytes", "--bits", "6")
    yield pack("merged.avo", "adapter", "merge", "bytes", "one", "two:0.5", "--type", "f32")
    for kind in ("q8", "f16", "f32"):
        yield pack(f"one-{kind}.avoa", "adapter", "pack", "one", "bytes", "--type", kind)


def adapter_fixtures():
    """Maps each base model to its adapters, PEFT folders and GGUF files."""
    found = {}
    for folder in sorted((golden_models.FIXTURES / "adapters").iterdir()):
        if (folder / "base.txt").exists():
            base = (folder / "base.txt").read_text().strip()
            found.setdefault(base, []).append(folder.name)
            if folder.with_name(folder.name + ".gguf").exists():
                found[base].append(folder.name + ".gguf")
    return found


def adapter_jobs(scratch, isa):
    for number, (base, adapters) in enumerate(adapter_fixtures().items()):
        ids = golden_models.ids_of(base)
        line = {"tokens": ids[:12], "max_new_tokens": 6, "logprobs": 2, "prompt_logprobs": True,
                "ignore_eos": True}
        lines = {name: {**line, "adapter": name} for name in adapters}
        lines["none"] = {**line, "adapters": []}
        lines["weighted"] = {**line, "adapter": {"name": adapters[0], "weight": -0.75}}
        folders = [name for name in adapters if not name.endswith(".gguf")]
        if len(folders) > 1:
            lines["several"] = {**line, "adapters": [{"name": folders[0], "weight": 0.5},
                                                     {"name": folders[1], "weight": 1.5}]}
        chosen = [word for name in adapters for word in ("-a", f"{name}=adapters/{name}")]
        for kind in ("q8", "f16", "f32"):
            flags = [ISA_FLAG, isa, "-t", threads_of(isa, number), "-c", 48, "--adapter-type", kind]
            yield Job(isa, [f"adapters/{base}/{kind}/{name}" for name in lines],
                      lambda base=base, lines=lines, flags=[*flags, *chosen]: prompts(
                          scratch, f"models/{base}", lines.values(), *flags))


# ---- Texts ----

def grammar_file(scratch):
    def write(text):
        name = "list.gbnf" if text == golden_requests.LIST else "answer.gbnf"
        (scratch / name).write_text(text)
        return name
    return write


LETTERS_ADAPTERS = ("excluded", "rank-forty", "tokens-tied")


def run_jobs(scratch, isa):
    """`avocet run`, one process per request: generation without the scheduler."""
    def run(name, model, *arguments, given=b"", threads=None):
        flags = [ISA_FLAG, isa, "-t", threads or threads_of(isa, len(name))]
        return Job(isa, [f"run/{name}"], lambda: [without_times(
            call(scratch, "run", model, *arguments, *flags, given=given))])
    for name, request in REQUESTS.items():
        words = flags_of(completed(request), grammar_file(scratch))
        yield run(name, "letters", *words, "--json")
        if isa in ("ref", "avx2", "neon"):
            yield run(f"bytes/{name}", "bytes", *words, "--json")
        if name in ("greedy", "seed-1", "stop", "schema", "gbnf-ends", "ends"):
            plain = [word for word in words if word != "--logprobs"]
            yield run(f"plain/{name}", "letters", *plain)
            yield run(f"plain/bytes/{name}", "bytes", *plain)
    for kind in KV_TYPES:
        yield run(f"kv-{kind}", "bytes", "hello there " * 6, "-n", 40, "--kv-type", kind, "--json",
                  "--logprobs", 1)
    one, two = (f"adapters/{name}" for name in LETTERS_ADAPTERS[:2])
    yield run("adapter", "letters", "hello", "-n", 12, "--json", "--logprobs", 2, "-a", f"x={one}")
    yield run("adapter-weight", "letters", "hello", "-n", 12, "--json", "-a", f"x={one}:-0.5")
    yield run("adapters", "letters", "hello", "-n", 12, "--json", "--logprobs", 2,
              "-a", f"x={one}:0.5", "-a", f"y={two}:1.25")
    for kind in ("q8", "f16", "f32"):
        yield run(f"adapters-{kind}", "bytes", "hello", "-n", 12, "--json", "--logprobs", 2,
                  "-a", "x=one", "-a", "y=two:0.5", "--adapter-type", kind)
        yield run(f"adapter-packed-{kind}", "bytes", "hello", "-n", 12, "--json", "--logprobs", 2,
                  "-a", f"x=one-{kind}.avoa", "--adapter-type", kind)
    yield run("bias", "letters", "hello", "-n", 12, "--json", "--ignore-eos", "--logit-bias",
              "50=3.5", "--logit-bias", "54=-inf", "--temperature", 1, "--seed", 3)
    yield run("special", "letters", "a<|end|><|user|>b", "-n", 6, "--json", "--raw", "--special",
              "--ignore-eos")
    yield run("standard-input", "letters", "-", "-n", 6, "--json", "--ignore-eos",
              given=b"from a pipe\n")
    yield run("context-full", "letters", "hello", "--json", "--ignore-eos")
    yield run("context-set", "bytes", "hello", "--json", "--ignore-eos", "-c", 40)
    yield run("defaults-of-the-model", "sampling", "hello", "-n", 30, "--json", "--seed", 5)
    yield run("long-prompt", "bytes", golden_models.TEXT[:900], "-n", 8, "--json", "--ignore-eos",
              "--logprobs", 1, threads=2)
    yield run("other-end", "sampling", "hello", "-n", 50, "--json", "--temperature", 3)


def text_lines():
    lines = {name: completed(request) for name, request in {**REQUESTS, **LINES}.items()}
    named = [{"name": "x", "weight": 0.5}, {"name": "y"}]
    lines.update({"adapter": completed({"prompt": "hello", "adapter": "x", "logprobs": 1}),
                  "adapters": completed({"prompt": "hello", "adapters": named, "logprobs": 1}),
                  "adapter-scored": {"prompt": "hello", "adapter": "y", "pooling": "mean",
                                     "prompt_logprobs": True}})
    return lines


def prompts_jobs(scratch, isa):
    """The same requests through the scheduler. Batch size, preemption (few pages), dedicated
    prefill cores and streaming must not change an answer."""
    lines = {name: {**line, "adapters": line.get("adapters", [])} if "adapter" not in line else line
             for name, line in text_lines().items()}
    one, two = (f"adapters/{name}" for name in LETTERS_ADAPTERS[:2])
    letters = ["-a", f"x={one}", "-a", f"y={two}"]
    mine = ["-a", "x=one", "-a", "y=two"]
    ways = {"together": ["-b", 8, "-t", 2], "alone": ["-b", 1, "-t", 1]}
    if isa in ("ref", "avx512", "neon"):
        ways["few pages"] = ["-b", 6, "-t", 1, "--kv-tokens", 288]
        ways["static"] = ["-b", 4, "-t", 2, "--cores", "static"]
    if isa == "avx2":
        ways["adaptive"] = ["-b", 16, "-t", 2, "--cores", "adaptive"]
    for model, adapters in (("letters", letters), ("bytes", [*mine, "-c", 256])):
        for way, flags in ways.items():
            yield Job(isa, [f"prompts/{model}/{name}" for name in lines],
                      lambda model=model, flags=[*flags, *adapters, ISA_FLAG, isa]: prompts(
                          scratch, model, lines.values(), *flags), way)
        yield Job(isa, [f"stream/{model}/{name}" for name in lines],
                  lambda model=model, adapters=adapters: streamed(
                      scratch, model, lines.values(), ISA_FLAG, isa, "-b", 5, *adapters))
    yield Job(isa, [f"prompts/reused/{name}" for name in ("first", "second", "salt", "prefix")],
              lambda: reused(scratch, isa))
    flags = ["-n", 20, "--temperature", 1, "--seed", 4, "--logprobs", 1, "--system", "be",
             "--top-k", 9, "--stop", "x", ISA_FLAG, isa]
    defaults = {"empty": {"prompt": "a"}, "overridden": {"prompt": "a", "temperature": 0,
                                                         "stop": [], "logprobs": 2}}
    yield Job(isa, [f"prompts/defaults/{name}" for name in defaults],
              lambda: prompts(scratch, "sampling", defaults.values(), *flags))


def stop_jobs(scratch, isa):
    """Stop strings on the scripted model, with and without the scheduler, whole and streamed."""
    lines = {name: {"prompt": "Well? C", "max_new_tokens": 60, **request}
             for name, request in STOPS.items()}
    flags = [ISA_FLAG, isa, "-t", 1]
    yield Job(isa, [f"stops/prompts/{name}" for name in lines],
              lambda: prompts(scratch, "hermes", lines.values(), *flags))
    yield Job(isa, [f"stops/stream/{name}" for name in lines],
              lambda: streamed(scratch, "hermes", lines.values(), *flags))
    if isa not in ("ref", "avx2", "neon"):
        return  # scripted logits are far apart: arithmetic does not matter
    for name, line in lines.items():
        words = flags_of(line, None)
        yield Job(isa, [f"stops/run/{name}"], lambda words=words: [without_times(
            call(scratch, "run", "hermes", *words, "--json", *flags))])
        if "logprobs" not in line:
            yield Job(isa, [f"stops/plain/{name}"], lambda words=words: [
                call(scratch, "run", "hermes", *words, *flags)])


def eval_jobs(scratch, isa):
    flags = ["--file", "text.txt", "--json", ISA_FLAG, isa]
    for name, model, more in (
            ("perplexity", "bytes", ["-c", 128]), ("stride", "bytes", ["-c", 96, "--stride", 32]),
            ("chunks", "bytes", ["-c", 64, "--chunks", 3, "--chunk", 7, "-t", 1]),
            ("kv-int8", "bytes", ["-c", 128, "--chunks", 2, "--kv-type", "int8"]),
            ("q4", "q4.avo", ["-c", 128, "--chunks", 2])):
        yield Job(isa, [f"eval/{name}"],
                  lambda model=model, more=more: [rounded(call(
                      scratch, "eval", "perplexity", model, *flags, *more))])
    yield Job(isa, ["eval/kl"], lambda: [rounded(call(
        scratch, "eval", "kl", "q4.avo", "--against", "bytes", "-c", 128, "--chunks", 2, *flags))])
    yield Job(isa, ["eval/calibrated"], lambda: [calibrated(scratch, isa)])


def calibrated(scratch, isa):
    """A calibration file and the model packed with it."""
    statistics, model = f"{isa}.cal", f"calibrated-{isa}.avo"
    call(scratch, "calibrate", "bytes", "--file", "text.txt", "-n", 256, "-c", 64, "-o", statistics,
         AVO_ISA=isa)
    call(scratch, "pack", "bytes", "--type", "q4", "--calibrate", statistics, "-o", model,
         AVO_ISA=isa)
    return (scratch / statistics).read_bytes() + (scratch / model).read_bytes()


def chat_jobs(scratch, isa):
    """`avocet chat --plain`."""
    talks = {
        "turns": ("letters", "hi\nand\nmore\n", []),
        "commands": ("letters", "hi\n/set temperature 1\n/set seed 7\nagain\n/retry\n/system be\n"
                                "so\n/clear\nnew\n", []),
        "backslash": ("bytes", "one\\\ntwo\nthree\n", ["--temperature", 1, "--seed", 2]),
        "adapter": ("bytes", "hi\n/adapter two 0.5\nhi\n/adapter none\nhi\n",
                    ["--adapter", "one=one", "--adapter", "two=two"]),
        "system": ("bytes", "hi\n", ["--system", "be brief", "--stop", "q"]),
    }
    for name, (model, said, flags) in talks.items():
        yield Job(isa, [f"chat/{name}"],
                  lambda model=model, said=said, flags=flags: [call(
                      scratch, "chat", model, "-n", 8, "--plain", ISA_FLAG, isa, *flags,
                      given=said.encode())])
    yield Job(isa, ["chat/saved"], lambda: [saved_chat(scratch, isa)])


def saved_chat(scratch, isa):
    path = f"saved-{isa}.json"
    said = call(scratch, "chat", "letters", "-n", 8, "--plain", ISA_FLAG, isa, "--system", "be",
                given=f"hi\nho\n/save {path}\n".encode())
    kept = (scratch / path).read_bytes()
    return said + kept + call(scratch, "chat", "letters", "-n", 8, "--plain", ISA_FLAG, isa,
                              "--load", path, given=b"go\n")


def tokenizer_jobs(scratch):
    texts = json.loads((golden_models.FIXTURES / "tokenizer/expected.json").read_text())["texts"]
    lines = "".join(json.dumps(text) + "\n" for text in texts).encode()
    for path in sorted((golden_models.FIXTURES / "tokenizer").iterdir()):
        if path.suffix == ".gguf" or path.name == "expected.json":
            continue
        name = f"tokenizers/{path.name}"
        yield Job(None, [f"tokenize/{path.name}/{what}" for what in
                         ("lines", "special", "json", "decoded")],
                  lambda name=name: tokenized(scratch, name, lines))


def tokenized(scratch, name, lines):
    found = [call(scratch, "tokenize", name, "-", "--jsonl", given=lines),
             call(scratch, "tokenize", name, "-", "--jsonl", "--special", "--begin", given=lines),
             call(scratch, "tokenize", name, golden_models.TEXT[:100], "--json")]
    ids = json.dumps(json.loads(found[-1])["ids"])
    return [*found, call(scratch, "tokenize", name, "--decode", ids)]


# ---- The Python package, which also reaches sessions ----

def interpreter():
    """A Python with numpy, which the package needs: this one or the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run(
                [python, "-c", "import numpy"], check=False,
                stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def python_jobs(scratch, isa, library, bindings):
    python = interpreter()
    missing = "" if python else "no Python with numpy"
    if not library or not Path(library).exists():
        missing = "no libavocet.so that Python can load"

    def work():
        done = subprocess.run(
            [python, str(Path(__file__).parent / "golden_sessions.py"), isa],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS, check=False,
            cwd=scratch, env={**environment(), "AVOCET_LIBRARY": str(library),
                              "PYTHONPATH": str(bindings), "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode(errors="replace")[-600:])
        answers = dict(line.split(b" ", 1) for line in done.stdout.splitlines())
        return [answers[name.encode()] for name in NAMES]
    yield Job(isa, [f"python/{name}" for name in NAMES], work, missing=missing)


# ---- Real models, if present ----

def real_jobs(scratch, isa):
    story = "Once upon a time, there was a little bird"
    for model in ("stories15M", "stories260K"):
        folder = test_data(f"models/{model}")
        missing = "" if folder else "AVOCET_TEST_DATA does not have it"
        path = f"{model}/{model}.bin"
        if folder and not (scratch / model).exists():
            os.symlink(folder, scratch / model)
        count = 12 if isa == "ref" else 40
        more = ["--raw", "-n", count, ISA_FLAG, isa, "--json"]
        for name, flags in (("greedy", ["--logprobs", 1]),
                            ("sampled", ["--temperature", 0.8, "--top-p", 0.9, "--seed", 3])):
            yield Job(isa, [f"real/{model}/{name}"],
                      lambda path=path, flags=[story, *flags, *more]: [without_times(
                          call(scratch, "run", path, *flags))], missing=missing)
    if isa == "ref":
        return  # too slow
    missing = "" if subprocess.run([AVOCET, "inspect", "smollm2"], check=False, timeout=SECONDS,
                                   stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL).returncode == 0 \
        else "not pulled: avocet pull smollm2"
    question = {"prompt": "Name three birds.", "max_new_tokens": 24, "temperature": 0}
    lines = {"greedy": {**question, "logprobs": 2},
             "sampled": {**question, "temperature": 0.7, "top_p": 0.9, "seed": 1},
             "schema": {**question, "json_schema": golden_requests.PERSON},
             "scored": {"prompt": story, "raw": True, "prompt_logprobs": True, "no_answer": True},
             "embedded": {"prompt": story, "raw": True, "pooling": "mean"}}
    yield Job(isa, [f"real/smollm2/{name}" for name in lines],
              lambda: prompts(scratch, "smollm2", lines.values(), ISA_FLAG, isa, "-c", 256),
              missing=missing)
    yield Job(isa, ["real/smollm2/run"], lambda: [call(
        scratch, "run", "smollm2", question["prompt"], "-n", 24, "--temperature", 0, ISA_FLAG, isa,
        "-c", 256)], missing=missing)


def library_of(folder):
    """The library of a build folder. Python cannot load one with sanitizers."""
    cache = Path(folder) / "CMakeCache.txt"
    if cache.exists() and "AVO_SANITIZE:STRING=\n" not in cache.read_text(encoding="utf-8"):
        return None
    return Path(folder) / "libavocet.so"


BINDINGS = ROOT / "bindings" / "python"
