"""`python -m avocet run MODEL [PROMPT|-]`: the command's `run`, from Python."""
import argparse
import dataclasses
import json
import os
import sys
import time
from typing import List, Optional, Sequence, Tuple

from . import Adapter, AvocetError, Engine, Model, Request, Result, Sampling, Scheduler
from . import __version__, library_version
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


NUMBERS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
           "presence_penalty", "frequency_penalty", "seed")
SERVICE = {"max_tokens": "max_tokens", "max_new_tokens": "max_tokens", "stop_tokens": "stop_tokens",
           "ignore_eos": "ignore_end", "tenant": "tenant", "priority": "priority",
           "deadline": "deadline", "first_token_deadline": "first_token_deadline",
           "cache_salt": "cache_salt"}
KEYS = {"id", "prompt", "messages", "system", "raw", "adapter", "adapters", "logprobs", "stop",
        *NUMBERS, *SERVICE}


def line_request(chat: bool, flags, sampling: Sampling, adapters, given) -> Request:
    """A request from one line of --prompts; what the line says counts over the flags, and
    ValueError says what is wrong with it."""
    if not isinstance(given, dict):
        raise ValueError("expected a JSON object")
    unknown = sorted(set(given) - KEYS)
    if unknown:
        raise ValueError(f'"{unknown[0]}" is no key of a prompt')
    if ("prompt" in given) == ("messages" in given):
        raise ValueError('a line has either "prompt" or "messages"')
    drawn = {name: given[name] for name in NUMBERS if name in given}
    if "logprobs" in given:
        drawn["top_logprobs"] = given["logprobs"]
    stop = given.get("stop", flags.stop)
    fields = dict(max_tokens=flags.max_new_tokens, ignore_end=flags.ignore_eos,
                  sampling=dataclasses.replace(sampling, **drawn),
                  stop=[stop] if isinstance(stop, str) else stop or [],
                  adapters=line_adapters(given, adapters))
    fields.update({ours: given[name] for name, ours in SERVICE.items() if name in given})
    if "messages" in given:
        return Request(messages=given["messages"], **fields)
    if not isinstance(given["prompt"], str):
        raise ValueError("prompt must be a string")
    if given.get("raw", not chat):
        return Request(prompt=given["prompt"], **fields)
    messages = [{"role": "user", "content": given["prompt"]}]
    system = given.get("system", flags.system)
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return Request(messages=messages, **fields)


def line_adapters(given, adapters) -> List[Tuple[Adapter, float]]:
    """Those the line names, each with its scale times the line's weight; none named: all."""
    if "adapter" in given and "adapters" in given:
        raise ValueError('a line has either "adapter" or "adapters"')
    if "adapter" not in given and "adapters" not in given:
        return list(adapters.values())
    wanted = given["adapters"] if "adapters" in given else [given["adapter"]]
    uses = []
    for entry in wanted or []:
        if entry is None:
            continue
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict) or "name" not in entry or set(entry) - {"name", "weight"}:
            raise ValueError('an adapter must be "name" or {"name": …, "weight": …}; several go '
                             'into "adapters"')
        name, weight = entry["name"], entry.get("weight", 1.0)
        if name not in adapters:
            raise ValueError(f'adapter "{name}": no --adapter has that name')
        adapter, scale = adapters[name]
        uses.append((adapter, scale * float(weight)))
    return uses


def answer_of(result: Result) -> dict:
    record = {"text": result.text, "ids": [token.id for token in result.tokens]}
    if any(token.top for token in result.tokens):
        record["logprobs"] = [{"id": token.id, "logprob": token.logprob,
                               "top": [{"id": id, "logprob": value} for id, value in token.top]}
                              for token in result.tokens]
    record["finish_reason"] = FINISH_NAMES.get(result.finish, result.finish)
    record["usage"] = {"prompt_tokens": result.prompt_tokens,
                       "completion_tokens": result.new_tokens,
                       "total_tokens": result.prompt_tokens + result.new_tokens}
    return record


def decode_rate(result: Result) -> float:
    seconds = result.total_seconds - result.first_token_seconds
    return (result.new_tokens - 1) / seconds if seconds > 0 and result.new_tokens > 1 else 0.0


def record_of(flags, prompt, result: Result, load_ms: float) -> dict:
    return {"model": flags.model, "prompt": prompt, **answer_of(result),
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
        print(json.dumps(record_of(flags, prompt, result, load_ms), ensure_ascii=False))
    else:
        print()
    if flags.telemetry is not None:
        telemetry(flags.telemetry, flags, result, load_ms, arrivals)
    return INTERRUPTED if result.finish == "cancelled" else GOOD


def run_many(flags, model: Model, scheduler: Scheduler, sampling, adapters) -> int:
    chat = not flags.raw and has_template(model)
    lines, requests = [], []  # (number, id, error or None), and those without an error
    with open(flags.prompts, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            given, error = None, None
            try:
                given = json.loads(line)
                requests.append(line_request(chat, flags, sampling, adapters, given))
            except (ValueError, TypeError, KeyError, AttributeError) as reason:
                error = str(reason)
            lines.append((number, given.get("id") if isinstance(given, dict) else None, error))
    outcomes = iter(scheduler.batch(requests))
    failures = 0
    for index, (number, name, error) in enumerate(lines):
        record = {"index": index, "line": number}
        if name is not None:
            record["id"] = name
        outcome = next(outcomes) if error is None else error
        if isinstance(outcome, Result):
            record.update(answer_of(outcome))
        else:
            failures += 1
            record["error"] = f"line {number}: {outcome}"
        print(json.dumps(record, ensure_ascii=False), flush=True)
    return FAILED if failures else GOOD


def run(flags) -> int:
    begin = time.monotonic()
    with Model(flags.model) as model:
        adapters = {name: (Adapter(model, path, type=flags.adapter_type), scale)
                    for name, path, scale in flags.adapter}
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
    except (AvocetError, OSError, ValueError) as error:
        print(f"avocet: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
