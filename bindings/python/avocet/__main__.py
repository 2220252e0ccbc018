"""`python -m avocet run MODEL [PROMPT|-]`: the command's `run`, from Python."""
import argparse
import json
import math
import os
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import Adapter, AvocetError, Engine, Model, Request, Result, Sampling, Scheduler
from . import __version__, library_version
from ._lines import Adapters, Lines
from .telemetry import append_row

GOOD, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
FINISH_NAMES = {"stop_token": "stop", "stop_string": "stop"}

EXAMPLES = """examples:
  python -m avocet run model.gguf "Why is the sky blue?" -n 100
  python -m avocet run model.gguf "Dear Sir" --raw --adapter style=letters/ --json
  python -m avocet run model.gguf --prompts questions.jsonl --adapter law=law/ --adapter poet=poet/
"""


def adapter_argument(text: str) -> Tuple[str, str, float]:
    """name=path[:scale]"""
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise argparse.ArgumentTypeError(f"'{text}' is not name=path or name=path:scale")
    head, colon, tail = path.rpartition(":")
    if colon and head:
        try:
            return name, head, float(tail)
        except ValueError:
            pass
    return name, path, 1.0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m avocet", description=__doc__)
    top.add_argument("--version", action="version",
                     version=f"avocet {__version__} (library {library_version()})")
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="answer a prompt, or many", epilog=EXAMPLES,
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    add = run.add_argument
    add("model", metavar="MODEL")
    add("prompt", metavar="PROMPT", nargs="?", help="'-' or nothing: standard input")
    add("-n", "--max-new-tokens", type=int, default=0, metavar="N")
    for name in ("temperature", "top-p", "min-p", "typical-p", "repetition-penalty",
                 "presence-penalty", "frequency-penalty"):
        add(f"--{name}", type=float, metavar="X")
    add("--top-k", type=int, metavar="N")
    add("--seed", type=int, default=0, metavar="N")
    add("--logprobs", type=int, default=0, metavar="N")
    add("--stop", action="append", default=[], metavar="TEXT")
    add("--system", metavar="TEXT", help="a system message in front of the prompt")
    add("--raw", action="store_true", help="continue the prompt without the chat template")
    add("--ignore-eos", action="store_true")
    add("--adapter", action="append", default=[], type=adapter_argument,
        metavar="NAME=PATH[:SCALE]", help="may be repeated; all apply, with --prompts each line "
        "may choose by \"adapter\"")
    add("--adapter-type", choices=("q8", "f16", "f32"))
    add("--prompts", metavar="FILE", help="JSON lines, as `avocet run --prompts` has them: "
        "prompt or messages, and any of adapter(s), max_tokens, temperature, seed, stop, id, …")
    add("-t", "--threads", type=int, default=0, metavar="N")
    add("-c", "--ctx", type=int, default=0, metavar="N")
    add("--kv-type", choices=("f32", "f16", "bf16", "int8", "fp8"))
    add("--isa", choices=("ref", "avx2", "avx512", "amx"))
    add("--json", action="store_true", help="one JSON object instead of streaming text")
    add("--telemetry", nargs="?", const="", metavar="FILE",
        help="append a CSV row to FILE (default: standard error)")
    return top


def sampling_of(model: Model, flags) -> Sampling:
    given = {name: getattr(flags, name) for name in
             ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
              "presence_penalty", "frequency_penalty") if getattr(flags, name) is not None}
    return Sampling.of(model, seed=flags.seed, top_logprobs=flags.logprobs, **given)


def has_template(model: Model) -> bool:
    try:
        model.check_chat()
        return True
    except AvocetError:
        return False


def request_of(model: Model, flags, sampling: Sampling, adapters: Sequence) -> Request:
    prompt = flags.prompt
    if prompt is None or prompt == "-":
        prompt = sys.stdin.read()
        prompt = prompt[:-1] if prompt.endswith("\n") else prompt
    shared = dict(max_tokens=flags.max_new_tokens, sampling=sampling, stop=flags.stop,
                  ignore_end=flags.ignore_eos, adapters=adapters)
    if flags.raw or not has_template(model):
        return Request(prompt=prompt, **shared)
    messages = [{"role": "user", "content": prompt}]
    if flags.system:
        messages.insert(0, {"role": "system", "content": flags.system})
    return Request(messages=messages, **shared)


def number(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None  # JSON has no others


def logprobs_of(model: Model, tokens) -> List[dict]:
    def one(id: int, logprob: float) -> dict:
        return {"id": id, "token": model.detokenize([id], special=True, following=True),
                "logprob": number(logprob)}
    return [{**one(token.id, token.logprob), "top": [one(*entry) for entry in token.top]}
            for token in tokens]


def answer_of(model: Model, request: Request, result: Result, adapters: Adapters) -> dict:
    """What the command says of an answer, in its order."""
    record: Dict[str, Any] = {"text": result.text, "ids": [token.id for token in result.tokens]}
    if request.sampling is not None and request.sampling.top_logprobs > 0:
        record["logprobs"] = logprobs_of(model, result.tokens)
    if result.prompt:
        record["prompt_logprobs"] = logprobs_of(model, result.prompt)
    if result.embedding is not None:
        record["embedding"] = [number(value) for value in result.embedding.tolist()]
    record["finish_reason"] = FINISH_NAMES.get(result.finish, result.finish)
    record["usage"] = {"prompt_tokens": result.prompt_tokens,
                       "completion_tokens": result.new_tokens,
                       "total_tokens": result.prompt_tokens + result.new_tokens}
    if request.adapters:
        names = {id(adapter): name for name, (adapter, _) in adapters.items()}
        record["adapters"] = []
        for adapter, weight in request.adapters:
            info = adapter.info
            record["adapters"].append({
                "name": names[id(adapter)], "weight": weight, "digest": info.digest,
                "modules_matched": info.modules_matched,
                "modules_expected": info.modules_expected})
    return record


def decode_rate(result: Result) -> float:
    seconds = result.total_seconds - result.first_token_seconds
    return (result.new_tokens - 1) / seconds if seconds > 0 and result.new_tokens > 1 else 0.0


def record_of(flags, prompt, answer: dict, result: Result, load_ms: float) -> dict:
    return {"model": flags.model, "prompt": prompt, **answer,
            "timings": {"load_ms": round(load_ms, 3),
                        "ttft_ms": round(result.first_token_seconds * 1e3, 3),
                        "decode_tps": round(decode_rate(result), 3)}}


def telemetry(path: str, flags, result: Result, load_ms: float, arrivals: List[float]) -> None:
    """The row that the command writes, by the same function; tokenise_ms, which no one here sees,
    stays empty."""
    times = [b - a for a, b in zip(arrivals, arrivals[1:])]
    prefill = result.first_token_seconds - result.queue_seconds
    spent = sum(times[1:])
    append_row(path or None, model_name=flags.model, finish=result.finish,
               prompt_tokens=result.prompt_tokens, new_tokens=result.new_tokens,
               load_seconds=load_ms * 1e-3, prefill_seconds=prefill,
               first_token_seconds=result.first_token_seconds,
               prefill_rate=result.prompt_tokens / prefill if prefill > 0 else 0.0,
               decode_rate=(len(times) - 1) / spent if spent > 0 else 0.0, token_seconds=times)


def run_one(flags, model: Model, scheduler: Scheduler, sampling, adapters, load_ms: float) -> int:
    request = request_of(model, flags, sampling, list(adapters.values()))
    arrivals = [time.monotonic()]
    answer = scheduler.submit(request)
    try:
        for token in answer:
            if token.id >= 0:
                arrivals.append(time.monotonic())
            if not flags.json:
                print(token.text, end="", flush=True)
    except KeyboardInterrupt:
        answer.cancel()
    result = answer.result()
    if flags.json:
        prompt = request.prompt if request.messages is None else request.messages[-1]["content"]
        said = answer_of(model, request, result, adapters)
        print(json.dumps(record_of(flags, prompt, said, result, load_ms), ensure_ascii=False))
    else:
        print()
    if flags.telemetry is not None:
        telemetry(flags.telemetry, flags, result, load_ms, arrivals)
    return INTERRUPTED if result.finish == "cancelled" else GOOD


def read_lines(path: str) -> List[Tuple[int, bytes]]:
    """Those that are not blank, with their numbers."""
    if path == "-":
        text = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            text = file.read()
    lines = [(number, line.rstrip(b"\r ")) for number, line in enumerate(text.split(b"\n"), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise ValueError(f"{path}: has no prompts")
    return lines


def line_record(model: Model, request: Request, result: Result, adapters: Adapters) -> dict:
    return {**answer_of(model, request, result, adapters), "reused_tokens": result.reused_tokens,
            "preemptions": result.preemptions,
            "timings": {"queue_ms": round(result.queue_seconds * 1e3, 3),
                        "ttft_ms": round(result.first_token_seconds * 1e3, 3),
                        "total_ms": round(result.total_seconds * 1e3, 3)}}


def run_many(flags, model: Model, scheduler: Scheduler, sampling, adapters: Adapters) -> int:
    """A record for each line, in their order, each as soon as those before it are there."""
    reader = Lines(model, flags, sampling, adapters, not flags.raw and has_template(model))
    numbered = read_lines(flags.prompts)
    read = [reader.read(line) for _, line in numbered]
    places = [place for place, (_, request, _) in enumerate(read) if request is not None]
    outcomes: Dict[int, Any] = {place: error for place, (_, _, error) in enumerate(read)
                                if error is not None}
    failures = shown = 0

    def show() -> None:
        nonlocal failures, shown
        while shown in outcomes:
            outcome = outcomes.pop(shown)
            number, (head, request, _) = numbered[shown][0], read[shown]
            record = {"index": shown, "line": number, **head}
            if isinstance(outcome, Result):
                record.update(line_record(model, request, outcome, adapters))
            else:
                failures += 1
                record["error"] = f"line {number}: {outcome}"
            print(json.dumps(record, ensure_ascii=False), flush=True)
            shown += 1
    show()
    for index, outcome in scheduler.stream([read[place][1] for place in places]):
        outcomes[places[index]] = outcome
        show()
    if failures:
        print(f'avocet: {failures} of {len(read)} prompts failed: see "error" in their lines',
              file=sys.stderr)
    return FAILED if failures else GOOD


def open_adapters(flags, model: Model) -> Adapters:
    adapters: Adapters = {}
    for name, path, scale in flags.adapter:
        if name in adapters:
            raise ValueError(f'--adapter: "{name}" is given twice')
        adapters[name] = (Adapter(model, path, type=flags.adapter_type), scale)
    return adapters


def run(flags) -> int:
    begin = time.monotonic()
    with Model(flags.model) as model:
        adapters = open_adapters(flags, model)
        options = dict(threads=flags.threads, context_max=flags.ctx, kv_type=flags.kv_type,
                       isa=flags.isa, sessions_max=16 if flags.prompts else 1)
        with Engine(model, **options) as engine, Scheduler(engine) as scheduler:
            load_ms = (time.monotonic() - begin) * 1e3
            sampling = sampling_of(model, flags)
            if flags.prompts:
                return run_many(flags, model, scheduler, sampling, adapters)
            return run_one(flags, model, scheduler, sampling, adapters, load_ms)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    flags = parser().parse_args(arguments)
    try:
        return run(flags)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (AvocetError, OSError, ValueError) as error:
        print(f"avocet: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
