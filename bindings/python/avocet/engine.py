"""Engines, sessions and batches: the step by hand."""
import contextlib
import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence, Tuple, Union

from . import _abi
from ._arguments import items, must_be, path_of, text_of, texts_of
from ._ending import calling
from ._library import Owned, Turn, call, check, encoded, ids_of, library, natives_of
from ._signals import Guard
from .adapters import AdapterLike, uses_of
from .errors import OutOfMemoryError
from .grammar import GrammarLike, SchemaLike, grammar_of
from .model import Model, PathLike
from .sampling import Sampling, struct_of
from .telemetry import Telemetry

if TYPE_CHECKING:
    import numpy

    from .chat import ChatDelta

FINISH = ("stop_token", "stop_string", "length", "context", "cancelled", "deadline",
          "repetition")


@dataclass(frozen=True)
class Token:
    """One token of an answer. `text` holds whole characters and may be empty; text that was held
    back comes at the end with id −1. `delta`: what it adds to the answer to a chat request.
    `drafted`: it was an accepted draft token."""
    id: int
    text: str
    index: int
    logprob: float
    top: Tuple[Tuple[int, float], ...] = ()
    delta: Optional["ChatDelta"] = field(default=None, repr=False)
    drafted: bool = field(default=False, compare=False, repr=False)  # says nothing of the answer

    @classmethod
    def _of(cls, event: _abi.TokenEvent, delta: Optional["ChatDelta"] = None) -> "Token":
        text = ctypes.string_at(event.text, event.text_bytes).decode("utf-8", "replace")
        top = tuple((entry.token, entry.logprob) for entry in event.top[:event.top_count])
        return cls(event.token, text, event.index, event.logprob, top, delta, event.drafted)


@dataclass
class Result:
    """A whole answer, with its times. `stop_token` and `stop_string` name the stop that ended it,
    None where something else did; `stop_index` is the place of the string in the request's `stop`,
    or of the token in its `stop_tokens`."""
    text: str
    tokens: List[Token]
    finish: str
    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    preemptions: int = 0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    total_seconds: float = 0.0
    stop_token: Optional[int] = None
    stop_index: Optional[int] = None
    stop_string: Optional[str] = None
    prompt: List[Token] = field(default_factory=list)  # where prompt_logprobs is wanted
    embedding: Optional["numpy.ndarray"] = None  # float32, where pooling is wanted
    drafted_tokens: int = 0  # draft tokens that were verified,
    accepted_tokens: int = 0  # and of these accepted

    @property
    def stop_reason(self) -> Union[str, int, None]:
        """The stop of the request that ended the answer: its string, or the token id; None where
        something else did, such as the model's own end."""
        named = self.finish == "stop_token" and self.stop_index is not None
        return self.stop_token if named else self.stop_string

    @classmethod
    def _of(cls, result: _abi.Result, tokens: List[Token], prompt: List[Token]) -> "Result":
        stop = result.stop_string
        return cls("".join(token.text for token in tokens),
                   [token for token in tokens if token.id >= 0], FINISH[result.finish],
                   stop_token=None if result.stop_token < 0 else result.stop_token,
                   stop_index=None if result.stop_index < 0 else result.stop_index,
                   stop_string=None if stop is None else stop.decode(), prompt=prompt,
                   embedding=_embedding_of(result),
                   **{name: getattr(result, name) for name in _COUNTS})


_COUNTS = ("prompt_tokens", "reused_tokens", "new_tokens", "preemptions", "queue_seconds",
           "prefill_seconds", "first_token_seconds", "decode_seconds", "total_seconds",
           "drafted_tokens", "accepted_tokens")


def _embedding_of(result: _abi.Result):
    """A copy: the library's own lives for the call only."""
    if result.embedding_width == 0:
        return None
    import numpy
    data = ctypes.string_at(result.embedding, 4 * result.embedding_width)
    return numpy.frombuffer(data, numpy.float32).copy()


@dataclass(frozen=True)
class Plan:
    """What an engine takes, computed without loading or allocating anything."""
    weight_bytes: int
    repack_bytes: int
    kv_bytes: int
    scratch_bytes: int
    session_bytes: int
    draft_bytes: int
    available_bytes: int
    limit: str
    threads: int
    context_max: int
    kv_pages: int
    kv_page_tokens: int
    kv_type: str
    device: str
    streams: int
    stream_bytes: int
    arithmetic: str
    arithmetic_why: str
    cpu_layers: int
    cpu_bytes: int
    kv_host_bytes: int


@dataclass(frozen=True)
class KvInfo:
    page_tokens: int
    pages: int
    pages_free: int
    pages_cached: int
    pages_used: int
    prefix_queried_tokens: int
    prefix_hit_tokens: int
    pages_host: int
    pages_host_cached: int
    pages_moved_out: int
    pages_moved_in: int


@dataclass(frozen=True)
class EngineOptions:
    """Zero and None leave the choice to the library; include/avocet.h says what each means. But for
    sessions_max, which is 8 then, as `avocet run --prompts` has it, with a KV pool for as many full
    contexts, or for 32768 tokens where that is less (one context at least). `taps` are the layers
    whose hidden states Batch.tap gives. `speculate` is "off", "auto" (None) or a list of draft
    sources such as "suffix,corpus"; answers do not depend on it."""
    threads: int = 0
    context_max: int = 0
    sessions_max: int = 0
    rows_max: int = 0
    logits_max: int = 0
    kv_tokens: int = 0
    memory_max: int = 0
    rope_context: int = 0
    kv_type: Optional[str] = None
    device: Optional[str] = None
    huge_pages: Optional[str] = None
    numa: Optional[str] = None
    pin: Optional[str] = None
    lock: bool = False
    adapter_rank_max: int = 0
    streams: int = 0
    taps: Sequence[int] = ()
    speculate: Optional[str] = None
    draft_tokens: int = 0
    draft_controller: Optional[str] = None
    arithmetic: Optional[str] = None
    gpu_layers: Union[int, str, None] = None
    kv_host_bytes: int = 0

    def as_struct(self) -> _abi.EngineOptions:
        values = {name: getattr(self, name) for name in EngineOptions.__dataclass_fields__}
        taps = [_abi.in_range(ctypes.c_uint32, "taps", layer)
                for layer in items("taps", values["taps"], "layers")]
        if isinstance(values["gpu_layers"], int):
            values["gpu_layers"] = str(values["gpu_layers"])
        values.update(taps=(ctypes.c_uint32 * len(taps))(*taps), tap_count=len(taps))
        return _abi.EngineOptions(**{name: encoded(value) if isinstance(value, str) else value
                                     for name, value in values.items()})


SESSIONS_DEFAULT, KV_TOKENS_DEFAULT = 8, 32768


def _planned(native, struct: _abi.EngineOptions) -> _abi.Plan:
    found = _abi.Plan()
    call(library.avo_engine_plan, native, ctypes.byref(struct), ctypes.byref(found))
    return found


def _struct_of(native, options, draft=None, heads=()) -> _abi.EngineOptions:
    """The options, with our default of sessions_max, which takes no more memory than there is."""
    def fresh():
        struct = EngineOptions(**options).as_struct()
        if draft is not None:
            struct.draft_model = draft.pointer
        struct.draft_heads = (_abi.Handle * len(heads))(*(one.pointer for one in heads))
        struct.draft_heads_count = len(heads)
        return struct

    struct = fresh()
    if struct.sessions_max > 0:
        return struct
    context, tokens = _planned(native, struct).context_max, struct.kv_tokens
    full = min(SESSIONS_DEFAULT * context, max(KV_TOKENS_DEFAULT, context))
    struct.context_max, struct.sessions_max = context, SESSIONS_DEFAULT
    for struct.kv_tokens in (tokens,) if tokens > 0 else (full, context):
        try:
            _planned(native, struct)
            return struct
        except OutOfMemoryError:
            continue
    return fresh()  # one session, which fits


def plan(model: Model, **options) -> Plan:
    must_be(Model, model=model)
    native = model.handle
    found = _planned(native, _struct_of(native, options))
    values = {name: getattr(found, name) for name in Plan.__dataclass_fields__}
    return Plan(**{name: value.decode() if isinstance(value, bytes) else value
                   for name, value in values.items()})


def _logger(log: Callable[[str], None]):
    @_abi.LOG
    def tell(_, line):
        with contextlib.suppress(Exception):  # not through C
            log(line.decode("utf-8", "replace"))
    return tell


class Heads(Owned):
    """Draft heads of a model: an EAGLE, Medusa or distilled file. What does not fit the model is
    refused by name."""

    _close = "avo_heads_close"

    def __init__(self, model: Model, path: PathLike):
        must_be(Model, model=model)
        handle = _abi.Handle()
        natives = natives_of(model)
        call(library.avo_heads_open, natives[0], path_of("path", path), ctypes.byref(handle))
        super().__init__(handle, natives, (model,))


class Engine(Owned):
    """What computes: thread team, KV pool, scratch, all allocated here. Threads may share it: calls
    wait for one another; the GIL is released meanwhile. While a Scheduler has it, it is that
    scheduler's alone."""

    _close = "avo_engine_close"

    def __init__(self, model: Model, *, telemetry: Optional[Telemetry] = None,
                 log: Optional[Callable[[str], None]] = None,
                 draft_model: Optional[Model] = None, draft_heads: Sequence[Heads] = (),
                 **options):
        """`log` gets lines that say which instruction set was chosen and why, and where things
        lie; `draft_model` is a smaller model whose tokens are drafts, best one with the same
        vocabulary; `draft_heads` are heads of this model that draft; the options are those of
        EngineOptions."""
        must_be(Model, model=model)
        must_be(Model, optional=True, draft_model=draft_model)
        must_be(Telemetry, optional=True, telemetry=telemetry)
        heads = items("draft_heads", draft_heads, "Heads")
        for one in heads:
            must_be(Heads, draft_heads=one)
        given = tuple(part for part in (model, telemetry, draft_model) if part is not None)
        parents = given + tuple(heads)
        natives = natives_of(*parents)
        struct = _struct_of(natives[0], options,
                            None if draft_model is None else natives[len(given) - 1],
                            natives[len(given):])
        if log is not None:
            self._log = struct.log = _logger(log)
        if telemetry is not None:
            struct.telemetry = natives[1].pointer
        self.model = model
        self.telemetry = telemetry
        self._turn = Turn()
        self._scheduler = None
        self._vocabulary, self._width = model.info.vocabulary, model.info.width
        handle = _abi.Handle()
        with model._telling():
            call(library.avo_engine_open, natives[0], ctypes.byref(struct), ctypes.byref(handle))
        super().__init__(handle, natives, parents)

    @contextlib.contextmanager
    def _mine(self):
        with self._turn:
            if self._scheduler is not None:
                raise ValueError("a Scheduler uses this engine; close it first")
            yield

    @property
    def device(self) -> str:
        return library.avo_engine_device(self.handle).decode()

    @property
    def kv(self) -> KvInfo:
        info = _abi.KvInfo()
        with self._mine():
            library.avo_engine_kv(self.handle, ctypes.byref(info))
        return KvInfo(**{name: getattr(info, name) for name in KvInfo.__dataclass_fields__})

    def measure(self) -> float:
        """Bytes a second that its threads can read: takes half a second and up to 512 MiB."""
        found = ctypes.c_double()
        with self._mine():
            call(library.avo_engine_measure, self.handle, ctypes.byref(found))
        return found.value

    def session(self, adapters: Sequence[AdapterLike] = (), *, cache_salt: Optional[str] = None,
                ring_window: int = 0, ring_keep: int = 0) -> "Session":
        return Session(self, adapters, cache_salt=cache_salt, ring_window=ring_window,
                       ring_keep=ring_keep)

    def batch(self) -> "Batch":
        return Batch(self)

    def step(self, batch: "Batch") -> None:
        """Computes the batch; its sessions grow by their tokens."""
        must_be(Batch, batch=batch)
        with self._mine():
            batch._check(library.avo_step(self.handle, batch.handle))


class Session(Owned):
    """One timeline of tokens, with its adapters."""

    _close = "avo_session_close"

    def __init__(self, engine: Engine, adapters: Sequence[AdapterLike] = (), *,
                 cache_salt: Optional[str] = None, ring_window: int = 0, ring_keep: int = 0):
        must_be(Engine, engine=engine)
        uses, _held = uses_of(adapters)
        options = _abi.SessionOptions(adapters=uses, adapter_count=len(uses),
                                      cache_salt=encoded(cache_salt), ring_window=ring_window,
                                      ring_keep=ring_keep)
        self.engine = engine
        handle = _abi.Handle()
        with engine._mine():
            natives = natives_of(engine)
            call(library.avo_session_open, natives[0], ctypes.byref(options),
                 ctypes.byref(handle))
            super().__init__(handle, natives, (engine,), engine._turn)

    @classmethod
    def _of(cls, handle, natives, engine: Engine) -> "Session":
        session = cls.__new__(cls)
        session.engine = engine
        Owned.__init__(session, handle, natives, (engine,), engine._turn)
        return session

    def __len__(self) -> int:
        return library.avo_session_length(self.handle)

    @property
    def tokens(self) -> List[int]:
        with self.engine._mine():
            return library.avo_session_tokens(self.handle)[:len(self)] if len(self) > 0 else []

    def truncate(self, length: int) -> None:
        """Forgets everything from `length` on."""
        with self.engine._mine():
            call(library.avo_session_truncate, self.handle,
                 _abi.in_range(ctypes.c_uint32, "length", length))

    def fork(self) -> "Session":
        """Another session with the same timeline; pages are shared until one of both writes."""
        handle = _abi.Handle()
        with self.engine._mine():
            natives = natives_of(self.engine)
            call(library.avo_session_fork, self.handle, ctypes.byref(handle))
            return Session._of(handle, natives, self.engine)

    def reuse(self, tokens: Sequence[int]) -> int:
        """Fills the empty session with what is cached of `tokens`; how many that were."""
        array, count, _keep = ids_of(tokens)
        reused = ctypes.c_size_t()
        with self.engine._mine():
            call(library.avo_session_reuse, self.handle, array, count, ctypes.byref(reused))
        return reused.value

    def save(self, path: PathLike) -> None:
        with self.engine._mine():
            call(library.avo_session_save, self.handle, path_of("path", path))

    def restore(self, path: PathLike) -> None:
        with self.engine._mine():
            call(library.avo_session_restore, self.handle, path_of("path", path))

    def generate(self, tokens: Sequence[int] = (), *, max_tokens: Optional[int] = None,
                 sampling: Optional[Sampling] = None, stop: Sequence[str] = (),
                 stop_tokens: Sequence[int] = (), ignore_end: bool = False,
                 on_token: Optional[Callable[[Token], Optional[bool]]] = None,
                 grammar: GrammarLike = None, schema: SchemaLike = None,
                 on_prefill: Optional[Callable[[int, int], Optional[bool]]] = None,
                 speculation: Optional[str] = None, draft_tokens: int = 0,
                 repetition: Optional[Tuple[int, int, int]] = None) -> Result:
        """Appends tokens (none: goes on with the answer) and generates at most `max_tokens` (None:
        until the context is full; a session cannot compute a prompt alone, as 0 would ask for).
        `on_token` sees each token
        as it comes; returning False ends the answer, an exception (and so Ctrl-C) ends it and is
        raised here. `on_prefill` sees how many of the tokens are computed, of how many, and may
        end it likewise. `grammar` (a Grammar, or GBNF) or `schema` (of JSON) says what the answer
        may be. `repetition`, (least, most, times): a pattern of that many tokens that has come so
        often in a row ends the answer. `speculation` and `draft_tokens`: as the engine's, within
        what it was opened with."""
        if max_tokens == 0:
            raise ValueError("max_tokens is 0, must be at least 1, or None for no limit")
        bound = grammar_of(self.engine.model, grammar, schema)
        rules = None if bound is None else bound.handle
        array, count, _keep = ids_of(tokens)
        stop_array, stop_count, _keep_stop = ids_of(stop_tokens)
        texts = texts_of("stop", stop)
        stops = (ctypes.c_char_p * len(texts))(*texts)
        seen: List[Token] = []
        guard = Guard()

        @guard.callback
        def see(_, told):
            event = told.contents
            if event.kind == _abi.EVENT_PREFILL:
                return on_prefill is None or \
                    guard.user(on_prefill, event.done, event.total) is not False
            seen.append(Token._of(event.token.contents))
            return on_token is None or guard.user(on_token, seen[-1]) is not False

        struct = struct_of(sampling)
        request = _abi.Request(
            tokens=array, token_count=count, stop=stops,
            max_new_tokens=0 if max_tokens is None else max_tokens,
            stop_count=len(texts), stop_tokens=stop_array, stop_token_count=stop_count,
            ignore_end=ignore_end, on_event=_abi.EVENT(see), draft_tokens=draft_tokens,
            speculate=None if speculation is None else text_of("speculation", speculation),
            grammar=None if rules is None else rules.pointer)
        if repetition is not None:
            request.repetition = _abi.Repetition.of(repetition)
        if struct is not None:
            request.sampling = ctypes.pointer(struct)
        result = _abi.Result()
        with calling(), self.engine._mine(), guard:
            call(library.avo_generate, self.engine.handle, self.handle, ctypes.byref(request),
                 ctypes.byref(result))
        return Result._of(result, seen, [])


class Batch(Owned):
    """What the next step computes: rows of any number of sessions together."""

    _close = "avo_batch_close"

    def __init__(self, engine: Engine):
        must_be(Engine, engine=engine)
        self.engine = engine
        self._scored, self._added = {}, {}
        handle = _abi.Handle()
        with engine._mine():
            natives = natives_of(engine)
            call(library.avo_batch_open, natives[0], ctypes.byref(handle))
            super().__init__(handle, natives, (engine,), engine._turn)

    def _check(self, status: int) -> None:
        if status != 0:
            check(status, library.avo_batch_error(self.handle).contents)

    def clear(self) -> None:
        with self.engine._mine():
            library.avo_batch_clear(self.handle)
        self._scored, self._added = {}, {}

    def add(self, session: Session, tokens: Sequence[int], logits: Optional[int] = None) -> None:
        """Appends tokens to a session's timeline; the last `logits` of them (one by default) get
        logits."""
        must_be(Session, session=session)
        array, count, _keep = ids_of(tokens)
        wanted = 1 if logits is None else _abi.in_range(ctypes.c_size_t, "logits", logits)
        with self.engine._mine():
            self._check(library.avo_batch_add_scored(self.handle, session.handle, array, count,
                                                     wanted))
            self._scored[session.handle.pointer.value] = wanted
            self._added[session.handle.pointer.value] = count

    def logits(self, session: Session):
        """Logits of the session's scored tokens in the step just done, as a read-only NumPy array
        [tokens, vocabulary] without a copy: its numbers change with the engine's next step."""
        import numpy
        must_be(Session, session=session)
        owner = self.engine.handle  # open as long as the array lives
        count = self._scored.get(session.handle.pointer.value, 0)
        first = library.avo_batch_logits(self.handle, session.handle, 0) if count > 0 else None
        if not first:
            raise LookupError("the last step computed no logits of this session")
        size = count * self.engine._vocabulary
        memory = (ctypes.c_float * size).from_address(ctypes.addressof(first.contents))
        memory.owner = owner
        array = numpy.frombuffer(memory, dtype=numpy.float32).reshape(count, -1)
        array.flags.writeable = False
        return array

    def hidden(self, session: Session, first: int = 0, count: Optional[int] = None):
        """Hidden states after the final norm of the session's rows in the step just done, as a
        NumPy array [count, width]. Rows are counted from 0, one for each token that was added (and
        before them one for a token that was still to be computed). Default: as many as were added.
        """
        return self._rows(library.avo_batch_hidden, session, (), first, count)

    def tap(self, session: Session, layer: int, first: int = 0, count: Optional[int] = None):
        """The same at one of the engine's `taps`: the residual stream before that layer, or with
        the number of layers the one after the last, before the final norm."""
        return self._rows(library.avo_batch_tap, session,
                          (_abi.in_range(ctypes.c_uint32, "layer", layer),), first, count)

    def _rows(self, function, session: Session, layer: tuple, first: int, count: Optional[int]):
        """A copy: the library's own lives until the next call."""
        import numpy
        must_be(Session, session=session)
        added = self._added.get(session.handle.pointer.value, 0)
        first = _abi.in_range(ctypes.c_size_t, "first", first)
        count = _abi.in_range(ctypes.c_size_t, "count", max(added - first, 0) if count is None
                              else count)
        with self.engine._mine():
            found = function(self.handle, session.handle, *layer, first, count) if count else None
            if not found:
                raise LookupError("the last step computed no such rows of this session" +
                                  (f", or layer {layer[0]} is not in taps" if layer else ""))
            data = ctypes.string_at(found, 4 * count * self.engine._width)
        return numpy.frombuffer(data, numpy.float32).reshape(count, -1).copy()
