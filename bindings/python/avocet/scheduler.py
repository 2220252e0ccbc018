"""Many requests on one engine: continuous batching, streaming, adapters per request."""
import atexit
import contextlib
import ctypes
import itertools
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import (TYPE_CHECKING, Callable, Dict, Iterable, Iterator, List, Literal, Mapping,
                    Optional, Sequence, Tuple, Union, overload)

from . import _abi
from ._arguments import items, must_be, path_of, shown, text_of, texts_of
from ._library import Owned, call, check, encoded, ids_of, library, natives_of
from .adapters import Adapter, AdapterLike, NameLike, Registry, names_of, uses_of
from .chat import ChatDelta, ChatRequest, Messages, Parser, ToolCall, body_of
from .engine import Engine, Result, Token
from .errors import ArgumentError, AvocetError, CancelledError, FullError, exception_of
from .grammar import GrammarLike, SchemaLike, grammar_of
from .model import PathLike, chat_options, conversation
from .sampling import Sampling, struct_of

if TYPE_CHECKING:
    import numpy

Prompt = Union[str, Sequence[int]]


@dataclass(frozen=True)
class Request:
    """One request. The prompt is text to be continued, token ids, or messages for the model's own
    chat template. Adapters are Adapter objects or names of the scheduler's registry, plain or as
    (adapter, weight). `grammar` (a Grammar, or GBNF) or `schema` (of JSON) says what the answer may
    be; a Grammar is compiled once, the others with every request. `prompt_logprobs`: the result has
    the prompt's tokens, each with its logprob given those before it (the first has NaN) and
    sampling's top_logprobs. `max_tokens` None: until the context is full; 0, or
    `answer=False`, computes the prompt alone, without an answer (messages refuse 0);
    `pooling` ("mean" or "last",
    see Scheduler.embed) needs that. `speculation` ("off", "auto" or draft sources) and
    `draft_tokens` stay within what the engine was opened with."""
    prompt: Optional[Prompt] = None
    messages: Optional[Sequence[Mapping[str, object]]] = None
    adapters: Sequence[Union[AdapterLike, NameLike]] = ()
    max_tokens: Optional[int] = None
    sampling: Optional[Sampling] = None
    stop: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    ignore_end: bool = False
    special: bool = False
    tenant: Optional[str] = None
    tenant_weight: float = 0.0
    tenant_kv_tokens: int = 0
    priority: int = 8
    first_token_deadline: float = 0.0
    deadline: float = 0.0
    cache_salt: Optional[str] = None
    chat_variables: Optional[Mapping[str, object]] = None
    grammar: GrammarLike = None
    schema: SchemaLike = None
    prompt_logprobs: bool = False
    answer: bool = True
    pooling: Optional[str] = None
    speculation: Optional[str] = None
    draft_tokens: int = 0


@dataclass
class ChatResult(Result):
    """The answer to a chat request; `text` is all that the model wrote."""
    content: str = ""
    reasoning: str = ""
    tool_calls: List[ToolCall] = field(default_factory=list)

    @property
    def finish_reason(self) -> str:
        """As OpenAI's clients know it: "tool_calls", "stop", "length", …"""
        if self.tool_calls:
            return "tool_calls"
        return "stop" if self.finish in ("stop_token", "stop_string") else self.finish

    @property
    def message(self) -> Dict[str, object]:
        """To be appended to the conversation."""
        calls = [call.as_dict() for call in self.tool_calls]
        return {"role": "assistant", "content": self.content,
                **({"tool_calls": calls} if calls else {})}


_POOLING = {None: 0, "mean": 1, "last": 2}


@dataclass(frozen=True)
class SchedulerInfo:
    waiting: int
    running: int
    waiting_tokens: int
    submitted: int
    finished: int
    cancelled: int
    expired: int
    refused: int
    failed: int
    preemptions: int
    prompt_tokens: int
    reused_tokens: int
    new_tokens: int
    recomputed_tokens: int
    steps: int
    step_seconds: float
    busy_seconds: float
    tokenizer_seconds: float
    delivery_seconds: float
    pages_free: int
    pages_cached: int
    pages_used: int
    prefix_queried_tokens: int
    prefix_hit_tokens: int
    prefill_steps: int
    prefill_seconds: float
    prefill_threads: int
    resumed_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    device_failures: int


# Open schedulers call back from threads of their own, so none may be collected as garbage, least of
# all by such a thread: they live until they are closed, at the latest when Python ends.
_OPEN: "set[Scheduler]" = set()


@atexit.register
def _close_all() -> None:
    for scheduler in list(_OPEN):
        scheduler.close()


class Answer:
    """A request on its way: iterate for tokens as they come, or ask for the result."""

    def __init__(self, scheduler: "Scheduler", request: Union[Request, ChatRequest]):
        self._scheduler = scheduler
        self._parser = Parser(request) if isinstance(request, ChatRequest) else None
        self._rest = ChatDelta()  # what the parser held back until the end
        self.request = request
        self.number = 0
        self._events: "queue.SimpleQueue" = queue.SimpleQueue()
        self._done = threading.Event()
        self._outcome: Union[Result, AvocetError, None] = None
        self._tokens: List[Token] = []
        self._prompt: List[Token] = []
        self._watch: Callable[[Optional[Token]], None] = lambda token: None

    def _see(self, event: _abi.Event) -> None:
        if event.kind == _abi.EVENT_TOKEN:
            delta = None if self._parser is None else self._parser.push(event.token)
            token = Token._of(event.token.contents, delta)
            self._tokens.append(token)
            self._events.put(token)
            self._watch(token)
            return
        if event.kind == _abi.EVENT_PROMPT:
            self._prompt.append(Token._of(event.token.contents))
            return
        if event.kind == _abi.EVENT_FINISHED:
            self._outcome = self._result(event)
        else:
            error = event.error.contents
            self._outcome = exception_of(error.status)(error.text.decode("utf-8", "replace"),
                                                       error.status)
        self._end()

    def _result(self, event: _abi.Event) -> Result:
        found = event.result.contents
        if self._parser is None:
            return Result._of(found, self._tokens, self._prompt)
        self._rest = self._parser.push()
        result = ChatResult._of(found, self._tokens, self._prompt)
        result.content = "".join(self._parser.content)
        result.reasoning = "".join(self._parser.reasoning)
        result.tool_calls = self._parser.tool_calls(event.request)
        return result

    def _break(self, error: Exception) -> None:
        self._outcome = AvocetError(f"unknown event: {error!r}", 0)
        self._end()

    def _end(self) -> None:
        self._done.set()
        self._events.put(None)
        self._watch(None)

    def __iter__(self) -> "Tokens":
        """Tokens as they come; raises at the end where the request failed. To be walked once:
        whoever leaves early, by `break`, an exception or close(), cancels the request."""
        return Tokens(self)

    def _next(self) -> Token:
        token = self._events.get()
        if token is not None:
            return token
        self._events.put(None)
        if isinstance(self._outcome, AvocetError):
            raise self._outcome
        raise StopIteration

    def result(self, timeout: Optional[float] = None) -> Result:
        """Waits for the end; raises where the request failed, TimeoutError when time is up."""
        if not self._done.wait(timeout):
            raise TimeoutError("the request has not finished")
        if isinstance(self._outcome, AvocetError):
            raise self._outcome
        assert isinstance(self._outcome, Result)
        return self._outcome

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_) -> None:
        """Cancels what has not ended."""
        self.cancel()

    def cancel(self) -> bool:
        """Ends the request within a step; False: it was over."""
        try:
            with self._scheduler._using() as handle:
                return library.avo_scheduler_cancel(handle, self.number)
        except ValueError:
            return False


class Tokens:
    """A walk through an answer; closed or dropped before its end, it cancels the request."""

    def __init__(self, answer: Answer):
        self._answer: Optional[Answer] = answer

    def __iter__(self) -> "Tokens":
        return self

    def __next__(self) -> Token:
        if self._answer is None:
            raise StopIteration
        return self._answer._next()

    def close(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done:
            answer.cancel()

    def __del__(self):
        self.close()


class ChatStream:
    """An answer to a conversation as it comes: iterate for each ChatDelta, then ask for result().
    Closed or dropped before its end, it cancels the request."""

    def __init__(self, answer: Answer):
        self._answer = answer
        self._tokens = iter(answer)
        self._over = False

    def __iter__(self) -> "ChatStream":
        return self

    def __next__(self) -> ChatDelta:
        while not self._over:
            token = next(self._tokens, None)
            self._over = token is None
            delta = self._answer._rest if token is None else token.delta
            if delta:
                return delta
        raise StopIteration

    def result(self, timeout: Optional[float] = None) -> ChatResult:
        """Waits for the end; raises where the request failed."""
        result = self._answer.result(timeout)
        assert isinstance(result, ChatResult)
        return result

    def close(self) -> None:
        self._over = True
        self._tokens.close()

    def __enter__(self) -> "ChatStream":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Scheduler(Owned):
    """Has the engine to itself until it is closed. All methods may be called from any thread;
    close() waits for those that are inside."""

    _close = "avo_scheduler_close"

    def __init__(self, engine: Engine, *, registry: Optional[Registry] = None,
                 running_max: int = 0, waiting_max: int = 0, waiting_tokens_max: int = 0,
                 token_seconds: float = 0.0, ageing_seconds: float = 0.0,
                 tokenizer_threads: int = 0, prefix_cache: bool = True,
                 adapters_max: int = 0, cores: Optional[str] = None,
                 prefill_threads: int = 0, draft_corpus: Optional[PathLike] = None):
        """`cores`: "mixed", "static" or "adaptive"; the latter two need Engine(streams=2).
        `draft_corpus`: a file of earlier answers to draft from, written by save_corpus(); one that
        does not exist is an empty one."""
        must_be(Engine, engine=engine)
        must_be(Registry, optional=True, registry=registry)
        if registry is not None and registry.model is not engine.model:
            raise ValueError("the registry belongs to another model")
        parents = (engine,) if registry is None else (engine, registry)
        natives = natives_of(*parents)
        options = _abi.SchedulerOptions(
            running_max=running_max, waiting_max=waiting_max,
            waiting_tokens_max=waiting_tokens_max, token_seconds=token_seconds,
            ageing_seconds=ageing_seconds, tokenizer_threads=tokenizer_threads,
            no_prefix_cache=not prefix_cache,
            registry=None if registry is None else natives[1].pointer,
            adapters_max=adapters_max, cores=None if cores is None else encoded(cores),
            prefill_threads=prefill_threads,
            draft_corpus=None if draft_corpus is None else path_of("draft_corpus", draft_corpus))
        self.engine = engine
        self._answers = {}  # by the number that the callback gets as its context
        self._calls = threading.Condition()
        self._inside = 0  # calls that use the handle now
        self._closing = self._draining = False
        self._keys = itertools.count(1)
        self._on_event = _abi.EVENT(self._see)
        handle = _abi.Handle()
        with engine._mine():
            if engine._open_children():
                raise ValueError("the engine has open sessions or batches; close them first")
            call(library.avo_scheduler_open, natives[0], ctypes.byref(options),
                 ctypes.byref(handle))
            engine._scheduler = self
            _OPEN.add(self)
            super().__init__(handle, natives, parents)

    def _see(self, key, event) -> bool:
        """Called by the library's delivery thread; nothing may be raised from here."""
        try:
            answer = self._answers.get(key)
            if answer is None:
                return False
            try:
                answer._see(event.contents)
            except Exception as error:  # or whoever waits for this answer would wait for ever
                answer._break(error)
                self._answers.pop(key, None)
                return False
            if event.contents.kind in (_abi.EVENT_FINISHED, _abi.EVENT_FAILED):
                self._answers.pop(key, None)
            return True
        except Exception:
            return False

    @contextlib.contextmanager
    def _using(self):
        """The handle, which close() leaves alone meanwhile."""
        with self._calls:
            if self._closing:
                raise ValueError("this Scheduler is closed")
            self._inside += 1
        try:
            yield self.handle.pointer  # nobody else holds the native: close() frees it
        finally:
            with self._calls:
                self._inside -= 1
                self._calls.notify_all()

    def close(self) -> None:
        """Ends what runs and waits. Any thread, but for on_event's."""
        with self._calls:
            if self._closing:
                return
            self._closing = True
            self._calls.wait_for(lambda: self._inside == 0)
        with self.engine._turn:
            super().close()
            self.engine._scheduler = None
        _OPEN.discard(self)

    def submit(self, request: Union[Request, ChatRequest, None] = None, **fields) -> Answer:
        """Queues a request, given whole or by its fields. FullError says when to try again."""
        if isinstance(request, ChatRequest):
            if fields:
                raise TypeError(f"a ChatRequest has all of its fields; found {shown(fields)}")
            return self._submit(request, Answer(self, request))
        if request is not None and not isinstance(request, Request):
            raise TypeError("request must be a Request (a prompt is given as prompt=…), not "
                            f"{shown(request)}")
        request = Request(**fields) if request is None else replace(request, **fields)
        return self._submit(request, Answer(self, request))

    def _submit(self, request: Union[Request, ChatRequest], answer: Answer) -> Answer:
        key = next(self._keys)
        struct, held = request._struct() if isinstance(request, ChatRequest) else \
            _struct_of(self.engine.model, request)
        struct.on_event = self._on_event
        struct.on_event_context = key
        number = ctypes.c_uint64()
        retry = ctypes.c_double()
        error = _abi.Error()
        try:
            with self._using() as handle:
                self._answers[key] = answer
                status = library.avo_scheduler_submit(handle, ctypes.byref(struct),
                                                      ctypes.byref(number), ctypes.byref(retry),
                                                      ctypes.byref(error))
        except BaseException:  # Ctrl-C, after it was queued: nobody will have this answer
            answer.number = number.value
            if answer.number > 0:
                answer.cancel()
            else:
                self._answers.pop(key, None)
            raise
        del held  # by the library from here on
        if status != 0:
            self._answers.pop(key, None)
            try:
                check(status, error)
            except FullError as full:
                full.retry_seconds = retry.value
                raise
        answer.number = number.value
        return answer

    def generate(self, request: Optional[Request] = None, **fields) -> Result:
        """One request, from beginning to end. Ctrl-C cancels it."""
        with self.submit(request, **fields) as answer:
            return answer.result()

    @overload
    def chat(self, messages: Messages, *, tools: Optional[Sequence[Mapping[str, object]]] = ...,
             tool_choice: Union[str, Mapping[str, object], None] = ...,
             response_format: Optional[Mapping[str, object]] = ...,
             stream: Literal[False] = ..., sampling: Optional[Sampling] = ...,
             adapters: Iterable[AdapterLike] = ..., **keys: object) -> ChatResult: ...

    @overload
    def chat(self, messages: Messages, *, tools: Optional[Sequence[Mapping[str, object]]] = ...,
             tool_choice: Union[str, Mapping[str, object], None] = ...,
             response_format: Optional[Mapping[str, object]] = ...,
             stream: Literal[True], sampling: Optional[Sampling] = ...,
             adapters: Iterable[AdapterLike] = ..., **keys: object) -> ChatStream: ...

    def chat(self, messages, *, tools=None, tool_choice=None, response_format=None, stream=False,
             sampling=None, adapters=(), **keys):
        """Answers a conversation, whole or with `stream` as it comes. Messages, tools, tool_choice
        and response_format are those of OpenAI's chat completions; `keys` are further ones
        (max_tokens, temperature, stop, seed, chat_template_kwargs, …: avo_chat_request in
        include/avocet.h lists them), an unknown one raises. Without `sampling`, the model's
        recommended values apply. `adapters` are Adapter objects, plain or as (adapter, weight)."""
        uses = [given if isinstance(given, tuple) else (given, 1.0)
                for given in items("adapters", adapters, "adapters")]
        body = body_of(messages, {"tools": tools, "tool_choice": tool_choice,
                                  "response_format": response_format, **keys})
        answer = self.submit(ChatRequest(
            self.engine.model, body, sampling=sampling, early_calls=bool(stream),
            adapters={str(number): use for number, use in enumerate(uses)}))
        if stream:
            return ChatStream(answer)
        with answer:
            result = answer.result()
        assert isinstance(result, ChatResult)
        return result

    def batch(self, requests: Iterable[Union[Request, ChatRequest, Prompt]],
              sampling: Optional[Sampling] = None,
              **shared) -> List[Union[Result, AvocetError]]:
        """Many requests, results in their order. `sampling` and other fields are defaults for those
        that leave them as they are. One that fails fails alone: its place holds the exception."""
        results: List[Union[Result, AvocetError]] = []
        for index, outcome in self.stream(requests, sampling, **shared):
            while len(results) <= index:
                results.append(CancelledError("no result"))
            results[index] = outcome
        return results

    def stream(self, requests: Iterable[Union[Request, ChatRequest, Prompt]],
               sampling: Optional[Sampling] = None, *, tokens: bool = False,
               **shared) -> Iterator[Tuple[int, Union[Result, AvocetError, Token]]]:
        """The same, as (index, result) in the order in which they end; with `tokens` each Token,
        too, as it comes: (index, token). Whoever stops listening cancels what has not ended."""
        if isinstance(requests, (str, bytes, Request, dict)) or not isinstance(requests, Iterable):
            raise TypeError("requests must be a list of prompts or of Request objects, not "
                            f"{shown(requests)}")
        return self._stream(requests, sampling, tokens, shared)

    def _stream(self, requests, sampling, tokens: bool, shared):
        waiting: Dict[int, Answer] = {}
        arrived: "queue.SimpleQueue" = queue.SimpleQueue()
        try:
            for index, given in enumerate(requests):
                while True:
                    try:
                        request = _with_defaults(given, sampling, shared)
                        answer = Answer(self, request)
                        answer._watch = _watcher(arrived, index, tokens)
                        waiting[index] = self._submit(request, answer)
                    except FullError as full:
                        if not self._draining:
                            yield from _arrivals(waiting, arrived,
                                                 min(max(full.retry_seconds, 0.001), 0.1))
                            continue
                        yield index, full
                    except AvocetError as error:
                        yield index, error
                    except (ValueError, TypeError, KeyError) as error:
                        if self._closing:
                            raise
                        yield index, ArgumentError(f"{type(error).__name__}: {error}")
                    break
                yield from _arrivals(waiting, arrived, 0.0)
            while waiting:
                yield from _arrivals(waiting, arrived, 1.0)
        finally:
            for answer in waiting.values():
                answer.cancel()

    def embed(self, prompts: Union[Prompt, Iterable[Union[Request, Prompt]]], *,
              pooling: str = "mean", normalise: bool = False, **shared) -> "numpy.ndarray":
        """Hidden states behind the last norm, pooled over each prompt, as float32: [width] for one
        prompt (a text, or ids), [count, width] for many. Needs NumPy. Raises what the first one
        that fails says. `normalise`: each of length 1."""
        import numpy
        if pooling not in ("mean", "last"):
            raise ValueError(f"pooling must be \"mean\" or \"last\", not {pooling!r}")
        one = _is_prompt(prompts)
        results = self.batch([prompts] if one else prompts, answer=False, pooling=pooling, **shared)
        for result in results:
            if isinstance(result, AvocetError):
                raise result
            if result.embedding is None:
                raise CancelledError("the request ended before its prompt was computed")
        if not results:
            return numpy.zeros((0, self.engine.model.info.width), numpy.float32)
        rows = numpy.stack([result.embedding for result in results])
        if normalise:
            lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows / numpy.where(lengths > 0, lengths, 1)
        return rows[0] if one else rows

    def drain(self, seconds: float) -> bool:
        """Takes nothing new and waits until all is done; False: time was up."""
        self._draining = True
        end = time.monotonic() + seconds
        while True:  # in slices, so that close() need not wait
            with self._using() as handle:
                left = end - time.monotonic()
                if library.avo_scheduler_drain(handle, max(min(left, 0.1), 0.0)):
                    return True
            if left <= 0:
                return False

    def save_corpus(self, path: PathLike) -> None:
        """Writes the earlier answers that requests draft from, readable by the owner only."""
        with self._using() as handle:
            call(library.avo_scheduler_save_corpus, handle, path_of("path", path))

    @property
    def info(self) -> SchedulerInfo:
        info = _abi.SchedulerInfo()
        with self._using() as handle:
            library.avo_scheduler_describe(handle, ctypes.byref(info))
        return SchedulerInfo(**{name: getattr(info, name)
                                for name in SchedulerInfo.__dataclass_fields__})


def _is_prompt(given) -> bool:
    if isinstance(given, (str, bytes, Request)):
        return True
    try:
        return len(given) > 0 and all(hasattr(entry, "__index__") for entry in given)
    except TypeError:
        return False


def _watcher(arrived, index: int, tokens: bool):
    def watch(token: Optional[Token]) -> None:
        if tokens or token is None:
            arrived.put((index, token))
    return watch


def _arrivals(waiting, arrived, seconds: float):
    """What has come, and what has ended, which is taken out of `waiting`; waits that long for the
    first one."""
    while True:
        try:
            index, token = arrived.get(timeout=seconds) if seconds > 0 else arrived.get_nowait()
        except queue.Empty:
            return
        seconds = 0.0
        yield index, waiting.pop(index)._outcome if token is None else token


def _with_defaults(given, sampling: Optional[Sampling], shared) -> Union[Request, ChatRequest]:
    if isinstance(given, ChatRequest):
        return given
    request = given if isinstance(given, Request) else Request(prompt=given)
    defaults = dict(shared)
    if sampling is not None:
        defaults["sampling"] = sampling
    untouched = Request()
    return replace(request, **{name: value for name, value in defaults.items()
                               if getattr(request, name) == getattr(untouched, name)})


def _named(name: str, text: Optional[str]) -> Optional[bytes]:
    return None if text is None else text_of(name, text)


def _struct_of(model, request: Request):
    """The C structure, and a list of what must stay alive until it was submitted."""
    struct = _abi.Request(
        max_new_tokens=0 if request.max_tokens is None else request.max_tokens,
        ignore_end=request.ignore_end,
        tenant=_named("tenant", request.tenant), tenant_weight=request.tenant_weight,
        tenant_kv_tokens=request.tenant_kv_tokens,
        priority=request.priority, first_token_deadline=request.first_token_deadline,
        deadline=request.deadline, cache_salt=_named("cache_salt", request.cache_salt),
        prompt_logprobs=request.prompt_logprobs,
        no_answer=not request.answer or request.max_tokens == 0,
        speculate=_named("speculation", request.speculation), draft_tokens=request.draft_tokens)
    if request.max_tokens == 0 and request.messages is not None:
        raise ValueError("max_tokens is 0, must be at least 1 for messages, or None for no limit")
    if not (request.pooling is None or isinstance(request.pooling, str)) or \
            request.pooling not in _POOLING:
        raise ValueError(f"pooling must be \"mean\" or \"last\", not {request.pooling!r}")
    struct.pooling = _POOLING[request.pooling]
    keep = [_set_prompt(struct, request), _set_adapters(struct, request.adapters)]
    texts = texts_of("stop", request.stop)
    stops = (ctypes.c_char_p * len(texts))(*texts)
    struct.stop, struct.stop_count = stops, len(stops)
    ids, count, alive = ids_of(request.stop_tokens)
    struct.stop_tokens, struct.stop_token_count = ids, count
    sampling = struct_of(request.sampling)
    if sampling is not None:
        struct.sampling = ctypes.pointer(sampling)
    held = [keep, stops, alive, sampling]
    bound = grammar_of(model, request.grammar, request.schema)
    if bound is not None:
        held.append(bound.handle)
        struct.grammar = held[-1].pointer
    return struct, held


def _set_prompt(struct: _abi.Request, request: Request):
    if (request.prompt is None) == (request.messages is None):
        raise ValueError("a request needs either a prompt or messages")
    if request.messages is not None:
        if len(items("messages", request.messages, "messages")) == 0:
            raise ValueError("messages must not be empty")
        messages, variables = conversation(request.messages, request.chat_variables)
        chat = chat_options(variables=variables)
        struct.messages, struct.message_count = messages, len(messages)
        struct.chat = ctypes.pointer(chat)
        return messages, chat
    if isinstance(request.prompt, (str, bytes)):
        struct.text = encoded(request.prompt)
        struct.text_flags = 2 | (1 if request.special else 0)
        return None
    if isinstance(request.prompt, dict) or not hasattr(request.prompt, "__iter__"):
        raise TypeError("prompt must be a text or a list of token ids, not "
                        f"{shown(request.prompt)}")
    ids, count, alive = ids_of(request.prompt)
    struct.tokens, struct.token_count = ids, count
    return alive


def _set_adapters(struct: _abi.Request, adapters):
    adapters = items("adapters", adapters, "adapters")

    def first(given):
        return given[0] if isinstance(given, tuple) and given else given
    objects, held = uses_of([given for given in adapters if isinstance(first(given), Adapter)])
    names = names_of([given for given in adapters if isinstance(first(given), str)])
    if len(objects) + len(names) != len(adapters):
        raise TypeError("an adapter must be an Adapter, a name, or (either, weight)")
    struct.adapters, struct.adapter_count = objects, len(objects)
    struct.named_adapters, struct.named_adapter_count = names, len(names)
    return objects, held, names
