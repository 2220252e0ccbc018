"""`python -m avocet run MODEL [PROMPT|-]`: the command's `run`, from Python."""
import argparse
import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import tempfile
import time
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import (Adapter, AvocetError, CancelledError, ChatRequest, ChatResult, ContextError, Engine,
               Heads, Model, NotFoundError, Result, Scheduler, Telemetry, Token)
from . import __version__, library_version
from ._flags import (UsageError, engine_options, grammar_of, model_options, parse,
                     repetition_of, sampling_of,
                     stop_tokens_of)
from .telemetry import append_row, check_rows

Adapters = Dict[str, Tuple[Adapter, float]]  # by name, with the scale of the flags

GOOD, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
FINISH_NAMES = {"stop_token": "stop", "stop_string": "stop"}
TRACE_SPANS = 1 << 18
ROWS_ONE, ROWS_MANY = 128, 512  # between steps Ctrl-C is looked at
BATCH_DEFAULT, KV_TOKENS_DEFAULT = 8, 32768


# ---- Ctrl-C, output ----

class Interrupts:
    """The first Ctrl-C is noted, and told to `then`; a second one ends at once."""

    def __init__(self):
        self.came = False
        self.then: Callable[[], None] = lambda: None

    def _arrived(self, number, frame):
        if self.came:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.came = True
        self.then()

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._arrived)
        return self

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        if self.came:
            raise CancelledError("interrupted")


def warn(text: str) -> None:
    print(f"avocet: {text}", file=sys.stderr)


def harmless(text: str) -> str:
    """What a model says shall not steer a terminal."""
    if not sys.stdout.isatty():
        return text
    return "".join(letter for letter in text
                   if letter in "\n\t" or unicodedata.category(letter) != "Cc")


def write(record: dict) -> None:
    print(json.dumps(record, ensure_ascii=False), flush=True)


# ---- Records ----

def number(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None  # JSON has no others


def logprobs_of(model: Model, tokens) -> List[dict]:
    def one(id: int, logprob: float) -> dict:
        return {"id": id, "token": model.detokenize([id], special=True, following=True),
                "logprob": number(logprob)}
    return [{**one(token.id, token.logprob), "top": [one(*entry) for entry in token.top]}
            for token in tokens]


def call_id(result: Result, index: int) -> str:
    """Of a tool call, as the command numbers it."""
    total = 0xcbf29ce484222325
    for word in (result.prompt_tokens, index, *(token.id for token in result.tokens)):
        total = (total ^ word) * 0x100000001b3 % 2**64
    return f"call_{total:016x}"


def answer_of(model: Model, result: Result, top_logprobs: int, adapters: Adapters,
              uses: Sequence[Tuple[Adapter, float]]) -> dict:
    """What the command says of an answer, in its order."""
    chat = result if isinstance(result, ChatResult) else None
    record: Dict[str, Any] = {"text": result.text if chat is None else chat.content}
    if chat is not None and chat.tool_calls:
        record["tool_calls"] = [
            {"id": call_id(result, index), "type": "function",
             "function": {"name": one.name, "arguments": one.arguments}}
            for index, one in enumerate(chat.tool_calls)]
    record["ids"] = [token.id for token in result.tokens]
    if top_logprobs > 0:
        record["logprobs"] = logprobs_of(model, result.tokens)
    if result.prompt:
        record["prompt_logprobs"] = logprobs_of(model, result.prompt)
    if result.embedding is not None:
        record["embedding"] = [number(value) for value in result.embedding.tolist()]
    record["finish_reason"] = "tool_calls" if "tool_calls" in record else \
        FINISH_NAMES.get(result.finish, result.finish)
    record["stop_reason"] = result.stop_reason
    record["usage"] = {"prompt_tokens": result.prompt_tokens,
                       "completion_tokens": result.new_tokens,
                       "total_tokens": result.prompt_tokens + result.new_tokens,
                       "drafted": result.drafted_tokens, "accepted": result.accepted_tokens}
    if uses:
        names = {id(adapter): name for name, (adapter, _) in adapters.items()}
        record["adapters"] = []
        for adapter, weight in uses:
            info = adapter.info
            record["adapters"].append({
                "name": names[id(adapter)], "weight": ctypes.c_float(weight).value,
                "digest": info.digest,
                "modules_matched": info.modules_matched,
                "modules_expected": info.modules_expected})
    return record


# ---- One prompt ----

@dataclass
class Record:
    """What there is to say about one answer; its times are the engine's own."""
    result: Result
    load_seconds: float = 0.0
    tokenize_seconds: float = 0.0
    prefilled: int = 0  # tokens of the prompt that were computed
    token_seconds: List[float] = field(default_factory=list)

    @property
    def prefill_rate(self) -> float:
        seconds = self.result.prefill_seconds
        return self.prefilled / seconds if seconds > 0 else 0.0

    @property
    def decode_rate(self) -> float:
        seconds, tokens = self.result.decode_seconds, self.result.new_tokens
        return (tokens - 1) / seconds if seconds > 0 and tokens > 1 else 0.0

    def timings(self) -> dict:
        return {"load_ms": round(self.load_seconds * 1e3, 3),
                "ttft_ms": round(self.result.first_token_seconds * 1e3, 3),
                "prefill_tps": round(self.prefill_rate, 3),
                "decode_tps": round(self.decode_rate, 3)}


def telemetry_row(flags, record: Record) -> None:
    result = record.result
    append_row(flags.telemetry or None, model_name=flags.model, finish=result.finish,
               prompt_tokens=result.prompt_tokens, new_tokens=result.new_tokens,
               load_seconds=record.load_seconds, tokenize_seconds=record.tokenize_seconds,
               prefill_seconds=result.prefill_seconds,
               first_token_seconds=result.first_token_seconds, prefill_rate=record.prefill_rate,
               decode_rate=record.decode_rate, token_seconds=record.token_seconds)


def read_prompt(argument: Optional[str]) -> str:
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        print("Type the prompt, then Ctrl-D.", file=sys.stderr)
    text = sys.stdin.buffer.read().decode("utf-8")
    return text[:-1] if text.endswith("\n") else text


def has_template(model: Model) -> bool:
    """One that cannot be used is an error of its own, never a reason to go on without."""
    try:
        model.check_chat()
    except NotFoundError:
        return False
    except AvocetError:
        pass
    return True


def tokens_of(model: Model, flags, prompt: str) -> List[int]:
    chat = not flags.raw and has_template(model)
    if flags.system is not None and not chat:
        raise ValueError("--system needs a chat template, which this model lacks")
    if "\0" in prompt:
        raise ValueError("the prompt contains a zero byte")
    if chat:
        system = [] if flags.system is None else [{"role": "system", "content": flags.system}]
        ids = model.chat_tokens([*system, {"role": "user", "content": prompt}])
    else:
        ids = model.tokenize(prompt, begin=True, special=flags.special)
    if not ids:
        raise ValueError("the prompt is empty and the model has no BOS token to start from")
    return ids


def context_of(model: Model, flags, tokens: int) -> int:
    """A context that the request fits, where none was given."""
    trained = model.info.context
    available = flags.ctx or trained
    if tokens >= available:
        raise ContextError(f"the prompt has {tokens} tokens, the context holds {available} "
                           "including at least one new token; " +
                           ("raise --ctx or " if 0 < flags.ctx < trained else "") +
                           "shorten the prompt")
    if flags.ctx > trained:
        warn(f"--ctx is {flags.ctx}, but the model was trained for {trained} tokens")
    if flags.ctx == 0 and flags.max_new_tokens > 0:
        return min(tokens + flags.max_new_tokens, trained)
    return flags.ctx


def generate(flags, model: Model, engine: Engine, ids, uses, sampling, record: Record,
             interrupts: Interrupts) -> None:
    stop_tokens, before, line_begun = stop_tokens_of(model, flags), 0.0, False

    def on_prefill(done: int, total: int) -> bool:
        record.prefilled = done
        return not interrupts.came

    def on_token(token: Token) -> bool:
        nonlocal before, line_begun
        now = time.monotonic()
        if token.id >= 0:
            record.token_seconds.append(now - before)
            before = now
        if not flags.json and token.text:
            print(harmless(token.text), end="", flush=True)
            line_begun = not token.text.endswith("\n")
        return not interrupts.came
    rules = grammar_of(model, flags)
    with engine.session(uses) as session:
        before = time.monotonic()
        try:
            record.result = session.generate(
                ids, max_tokens=flags.max_new_tokens or None, sampling=sampling, stop=flags.stop,
                stop_tokens=stop_tokens, ignore_end=flags.ignore_eos, on_token=on_token,
                on_prefill=on_prefill, grammar=rules, repetition=repetition_of(flags))
        finally:
            if line_begun:
                print(flush=True)
    if record.token_seconds:  # the engine's own: ours has the way to Python in it
        record.token_seconds[0] = record.result.first_token_seconds


def answer_one(flags, prompt: str, model: Model, adapters: Adapters, record: Record,
               interrupts: Interrupts, telemetry: Optional[Telemetry], begin: float) -> None:
    """Everything that needs the model; `record` is filled as far as it comes."""
    opened = time.monotonic()
    sampling, uses = sampling_of(model, flags), list(adapters.values())
    stop_tokens_of(model, flags)
    interrupts.check()
    ids = tokens_of(model, flags, prompt)
    record.tokenize_seconds = time.monotonic() - opened
    record.result.prompt_tokens = len(ids)
    interrupts.check()
    with open_engine(flags, model, telemetry, context_max=context_of(model, flags, len(ids)),
                     sessions_max=1, rows_max=ROWS_ONE) as engine:
        record.load_seconds = time.monotonic() - begin - record.tokenize_seconds
        interrupts.check()
        generate(flags, model, engine, ids, uses, sampling, record, interrupts)


def run_one(flags) -> int:
    if flags.telemetry:
        check_rows(flags.telemetry)
    prompt = read_prompt(flags.prompt)
    record = Record(Result("", [], "cancelled"))
    begin = time.monotonic()
    with Interrupts() as interrupts, tracing(flags) as telemetry, \
            Model(flags.model, **model_options(flags)) as model:
        adapters: Adapters = {}
        try:
            interrupts.check()
            adapters.update(open_adapters(flags, model))
            answer_one(flags, prompt, model, adapters, record, interrupts, telemetry, begin)
        except CancelledError:  # an answer too, if an empty one
            record.load_seconds = record.load_seconds or time.monotonic() - begin
        if flags.json:
            write({"model": flags.model, "prompt": prompt,
                   **answer_of(model, record.result, sampling_of(model, flags).top_logprobs,
                               adapters, list(adapters.values())),
                   "timings": record.timings()})
        if flags.telemetry is not None:
            telemetry_row(flags, record)
        return INTERRUPTED if record.result.finish == "cancelled" and interrupts.came else GOOD


# ---- Many prompts ----

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
        raise ValueError(f"{path}: no prompts in the file")
    return lines


Line = Tuple[Dict[str, Any], Optional[ChatRequest], Optional[str]]


def read_line(line: bytes, model: Model, **defaults) -> Line:
    """Its "id", where it has one, to be given back; and a request or what is wrong with it."""
    head: Dict[str, Any] = {}
    with contextlib.suppress(ValueError, RecursionError):
        given = json.loads(line)
        if isinstance(given, dict) and "id" in given:
            head["id"] = given["id"]
    try:
        return head, ChatRequest(model, line, reasoning=False, **defaults), None
    except AvocetError as error:
        return head, None, str(error)


def line_record(model: Model, request: ChatRequest, result: Result, adapters: Adapters) -> dict:
    return {**answer_of(model, result, request.top_logprobs, adapters, request.adapters),
            "reused_tokens": result.reused_tokens,
            "preemptions": result.preemptions,
            "timings": {"queue_ms": round(result.queue_seconds * 1e3, 3),
                        "ttft_ms": round(result.first_token_seconds * 1e3, 3),
                        "total_ms": round(result.total_seconds * 1e3, 3)}}


class Answers:
    """A record for each line: in their order, each as soon as those before it are there, or with
    --stream as they come."""

    def __init__(self, flags, model: Model, adapters: Adapters, numbered, read):
        self._stream, self._model, self._adapters = flags.stream, model, adapters
        self._heads = [{"index": index, "line": number, **head}
                       for index, ((number, _), (head, _, _)) in enumerate(zip(numbered, read))]
        self._requests = [request for _, request, _ in read]
        self._outcomes: Dict[int, Any] = {}
        self._next = self.failures = 0

    def token(self, index: int, token: Token) -> None:
        write({**self._heads[index], "token": token.id, "text": token.text})

    def ended(self, index: int, outcome) -> None:
        if self._stream:
            self._write(index, outcome)
            return
        self._outcomes[index] = outcome
        while self._next in self._outcomes:
            self._write(self._next, self._outcomes.pop(self._next))
            self._next += 1

    def _write(self, index: int, outcome) -> None:
        head, request = self._heads[index], self._requests[index]
        if isinstance(outcome, Result):
            write({**head, **line_record(self._model, request, outcome, self._adapters)})
        else:
            self.failures += 1
            write({**head, "error": f"line {head['line']}: {outcome}"})


def pool_of(flags, model: Model, count: int) -> Dict[str, Any]:
    """How many are computed together, and the room they have."""
    sessions = min(count, flags.batch or BATCH_DEFAULT)
    context = flags.ctx or model.info.context
    return dict(sessions_max=sessions, rows_max=max(sessions, ROWS_MANY), context_max=flags.ctx,
                kv_tokens=flags.kv_tokens or min(context * sessions,
                                                 max(context, KV_TOKENS_DEFAULT)),
                streams=2 if flags.cores in ("static", "adaptive") else 0)


def submit_all(flags, scheduler: Scheduler, read, places: List[int], answers: Answers,
               interrupts: Interrupts) -> None:
    """Ctrl-C cancels what runs; what has not begun is cancelled, too, and told to be."""
    def cancel() -> None:
        for answer in list(scheduler._answers.values()):
            answer.cancel()

    def requests() -> Iterator[ChatRequest]:
        for place in places:
            if interrupts.came:
                return
            yield read[place][1]
    interrupts.then = cancel
    ended = set()
    for index, outcome in scheduler.stream(requests(), tokens=True):
        if interrupts.came:
            cancel()
        if not isinstance(outcome, Token):
            ended.add(places[index])
            answers.ended(places[index], outcome)
        elif flags.stream:
            answers.token(places[index], outcome)
    for place in places:
        if place not in ended:
            answers.ended(place, Result("", [], "cancelled", 0, 0, 0, 0, 0.0, 0.0, 0.0))


def run_many(flags) -> int:
    numbered = read_lines(flags.prompts)
    with tracing(flags) as telemetry, Model(flags.model, **model_options(flags)) as model:
        sampling = sampling_of(model, flags, named=True)
        flags.stop_tokens = stop_tokens_of(model, flags)
        adapters = open_adapters(flags, model)
        defaults = dict(sampling=sampling, unnamed_sampling=sampling_of(model, flags),
                        repetition=repetition_of(flags),
                        max_tokens=flags.max_new_tokens or None, stop=flags.stop,
                        stop_tokens=flags.stop_tokens, ignore_end=flags.ignore_eos,
                        special=flags.special, grammar=grammar_of(model, flags), adapters=adapters,
                        system=flags.system, raw=flags.raw or not has_template(model))
        read = [read_line(line, model, **defaults) for _, line in numbered]
        answers = Answers(flags, model, adapters, numbered, read)
        places = [place for place, (_, request, _) in enumerate(read) if request is not None]
        with open_engine(flags, model, telemetry, **pool_of(flags, model, len(read))) as engine, \
                Scheduler(engine, cores=flags.cores,
                          prefill_threads=flags.prefill_threads) as scheduler:
            for place, (_, _, error) in enumerate(read):
                if error is not None:
                    answers.ended(place, error)
            with Interrupts() as interrupts:
                submit_all(flags, scheduler, read, places, answers, interrupts)
    if interrupts.came:
        return INTERRUPTED
    if answers.failures:
        warn(f'{answers.failures} of {len(read)} prompts failed; see "error" in their output lines')
    return FAILED if answers.failures else GOOD


# ---- Both ----

def open_adapters(flags, model: Model) -> Adapters:
    adapters: Adapters = {}
    for name, path, scale in flags.adapter:
        if name in adapters:
            raise ValueError(f'--adapter: "{name}" is given twice')
        adapters[name] = (Adapter(model, path, type=flags.adapter_type), scale)
    return adapters


@contextlib.contextmanager
def tracing(flags) -> Iterator[Optional[Telemetry]]:
    if flags.trace is None:
        yield None
        return
    # A file that cannot be written is better known before the answer than after it.
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(flags.trace) or "."):
        pass
    if os.path.isdir(flags.trace):
        raise IsADirectoryError(f"{flags.trace}: is a folder")
    with Telemetry(spans_max=TRACE_SPANS, hardware=True) as telemetry:
        with telemetry.tracing():
            yield telemetry
        telemetry.write_trace(flags.trace)


def open_engine(flags, model: Model, telemetry: Optional[Telemetry], **options) -> Engine:
    log = warn if flags.verbose else None
    draft_model = None if flags.draft_model is None else Model(
        flags.draft_model, draft_of=model, **model_options(flags))
    files = [] if flags.draft_heads in (None, "none") else flags.draft_heads.split(",")
    heads = [Heads(model, path) for path in files]
    return Engine(model, telemetry=telemetry, log=log, draft_model=draft_model, draft_heads=heads,
                  **engine_options(flags), **options)


def top_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m avocet", description=__doc__)
    top.add_argument("--version", action="version",
                     version=f"avocet {__version__} (library {library_version()})")
    top.add_argument("command", choices=("run",), help="answer a prompt, or many: run --help")
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    top_parser().parse_args(given[:1])
    try:
        flags = parse(given[1:])
        return run_one(flags) if flags.prompts is None else run_many(flags)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        warn(str(error))
        return USAGE
    except (AvocetError, OSError, ValueError) as error:
        warn(str(error))
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
