"""Models: weights, tokenizer and chat template of one file or folder."""
import contextlib
import ctypes
import json
import threading
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Callable, Iterable, List, Literal, Mapping, Optional, Sequence,
                    Union, overload)

from . import _abi
from ._arguments import items, must_be, path_of, shown, text_of
from ._ending import calling, ending
from ._library import Owned, call, check, ids_of, library, natives_of
from .errors import CancelledError

if TYPE_CHECKING:
    from .adapters import AdapterLike
    from .chat import Chat, Messages
    from .sampling import Sampling
    from .scheduler import ChatResult, ChatStream, Scheduler

PathLike = Union[str, bytes, "os.PathLike[str]"]  # noqa: F821

_PLAIN, _SPECIAL, _BEGIN, _CONTINUE = 0, 1, 2, 4


@dataclass(frozen=True)
class ModelInfo:
    architecture: str
    format: str
    layers: int
    width: int
    vocabulary: int
    context: int
    parameters: int
    weight_bytes: int
    token_begin: int
    has_tokenizer: bool
    has_chat_template: bool


def conversation(messages: Sequence[Mapping[str, object]],
                 variables: Optional[Mapping[str, object]]):
    """Messages as a C array, and the variables that go with them. Where a message has more than a
    role and a content (tool_calls, tool_call_id, name, …), all go to the template as they are,
    among the variables."""
    messages = items("messages", messages, "messages")
    for given in messages:
        if not isinstance(given, Mapping):
            raise TypeError(f"a message must have a role and a content, not {shown(given)}")
        for name in ("role", "content"):
            if name not in given:
                raise ValueError(f'a message lacks "{name}": {shown(given)}')
    if variables is not None and not isinstance(variables, Mapping):
        raise TypeError(f"variables must be a mapping, not {shown(variables)}")
    if any(len(given) > 2 for given in messages):
        return (_abi.Message * 0)(), {"messages": [dict(given) for given in messages],
                                      **(variables or {})}
    array = (_abi.Message * len(messages))()
    for message, given in zip(array, messages):
        for name in ("role", "content"):
            setattr(message, name, text_of(f"the {name} of a message", given[name]))
    return array, variables


class Value(Owned):
    """A JSON value that the library has parsed."""

    _close = "avo_value_close"

    def __init__(self, value: object):
        text = json.dumps(value).encode("utf-8")
        handle = _abi.Handle()
        call(library.avo_value_open, text, len(text), None, ctypes.byref(handle))
        super().__init__(handle)


def chat_options(now: int = 0, variables: Optional[Mapping[str, object]] = None,
                 generation_prompt: bool = True) -> _abi.ChatOptions:
    value = None if variables is None else Value(dict(variables))
    options = _abi.ChatOptions(now=now, no_generation_prompt=not generation_prompt,
                               variables=None if value is None else value.handle.pointer)
    options.held = value  # lives as long as the structure
    return options


class Model(Owned):
    """Opens a folder with safetensors, a .gguf, a .avo or a llama2.c .bin file. Immutable: any
    number of engines and threads may share it."""

    _close = "avo_model_close"

    def __init__(self, path: PathLike,
                 progress: Optional[Callable[[str, int, int], bool]] = None, *,
                 draft_of: "Optional[Model]" = None, panel_cache: Optional[PathLike] = None,
                 panel_cache_bytes: int = 16 << 30):
        """`progress` sees what is done, also by the first Engine; returning False ends the opening,
        and so does an exception, which is raised here or there. `draft_of` opens a draft model of
        another model, whose path can then also be "exit:N": the first N layers of that model.
        `panel_cache` is a folder that keeps repacked weights for the next start, at most
        `panel_cache_bytes` of all models; 0 uses them and writes none."""
        must_be(Model, optional=True, draft_of=draft_of)
        options = _abi.ModelOptions()
        parents = () if draft_of is None else (draft_of,)
        natives = natives_of(*parents)
        if draft_of is not None:
            options.draft_of = natives[0].pointer
        if panel_cache is not None:
            options.panel_cache = path_of("panel_cache", panel_cache)
            options.panel_cache_bytes = panel_cache_bytes
        self._progress = None
        self._raised: List[BaseException] = []
        raised = self._raised
        if progress is not None:
            def tell(_, what, done, total):
                try:
                    return not ending() and bool(progress(what.decode(), done, total))
                except BaseException as error:  # not through C
                    raised.append(error)
                    return False
            self._progress = _abi.PROGRESS(tell)
            options.progress = self._progress
        handle = _abi.Handle()
        with self._telling():
            call(library.avo_model_open, path_of("path", path), ctypes.byref(options),
                 ctypes.byref(handle))
        super().__init__(handle, natives, parents)
        self.path = path
        self._lock = threading.Lock()
        self._conversations: Optional["Chat"] = None
        self._service: Optional["Scheduler"] = None

    @contextlib.contextmanager
    def _telling(self):
        """Around calls that `progress` may end."""
        try:
            with calling():
                yield
        except CancelledError:
            if self._raised:
                raise self._raised.pop()
            raise

    @property
    def info(self) -> ModelInfo:
        info = _abi.ModelInfo()
        native = self.handle  # whose texts are read below
        library.avo_model_describe(native, ctypes.byref(info))
        values = {name: getattr(info, name) for name in ModelInfo.__dataclass_fields__}
        for name in ("architecture", "format"):
            values[name] = values[name].decode()
        return ModelInfo(**values)

    def token_ends(self, token: int) -> bool:
        """Whether generation ends after this token."""
        return library.avo_model_token_ends(self.handle,
                                            _abi.in_range(ctypes.c_int32, "token", token))

    # ---- Text and tokens ----

    def tokenize(self, text: Union[str, bytes], *, special: bool = False,
                 begin: bool = False) -> List[int]:
        """Token ids of a text. `special`: special tokens written in it count as such; `begin`: the
        begin token in front where the model wants one."""
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text must be a text, not {shown(text)}")
        data = text.encode("utf-8") if isinstance(text, str) else text
        flags = (_SPECIAL if special else _PLAIN) | (_BEGIN if begin else 0)

        def fill(ids, capacity, count, error):
            return library.avo_tokenize(self.handle, data, len(data), flags, ids, capacity, count,
                                        error)
        return _ids(fill, len(data) + 8)

    def detokenize(self, ids: Sequence[int], *, special: bool = False,
                   following: bool = False) -> str:
        """The inverse. `following`: the text continues another, so that a space in front stays.
        Bytes that are no character become U+FFFD."""
        return self.detokenize_bytes(ids, special=special,
                                     following=following).decode("utf-8", "replace")

    def detokenize_bytes(self, ids: Sequence[int], *, special: bool = False,
                         following: bool = False) -> bytes:
        array, count, _keep = ids_of(ids)
        flags = (_SPECIAL if special else _PLAIN) | (_CONTINUE if following else 0)
        capacity = 16 * count + 64
        while True:
            text = ctypes.create_string_buffer(capacity)
            size = ctypes.c_size_t()
            error = _abi.Error()
            status = library.avo_detokenize(self.handle, array, count, flags, text, capacity,
                                            ctypes.byref(size), ctypes.byref(error))
            if status == 6 and size.value > capacity:  # room was too small
                capacity = size.value
                continue
            check(status, error)
            return text.raw[:size.value]

    def chat_tokens(self, messages: Sequence[Mapping[str, object]], *, now: int = 0,
                    variables: Optional[Mapping[str, object]] = None,
                    generation_prompt: bool = True) -> List[int]:
        """Messages rendered with the model's own template. Text from messages can never become a
        special token. Messages with more than a role and a content, such as tool_calls, go to the
        template as they are."""
        array, variables = conversation(messages, variables)
        options = chat_options(now, variables, generation_prompt)

        def fill(ids, capacity, count, error):
            return library.avo_chat_tokenize(self.handle, array, len(array),
                                             ctypes.byref(options), ids, capacity, count, error)
        return _ids(fill, 256 + sum(len(m.content) for m in array))

    def check_chat(self) -> None:
        """Raises where chat_tokens cannot work, saying why."""
        call(library.avo_chat_check, self.handle)

    # ---- Chat ----

    def _chat(self) -> "Chat":
        """What all chat requests of this model share."""
        from .chat import Chat
        with self._lock:
            if self._conversations is None or self._conversations.closed:
                self._conversations = Chat(self)
            return self._conversations

    def _scheduler(self) -> "Scheduler":
        from .engine import Engine
        from .scheduler import Scheduler
        with self._lock:
            if self._service is None or self._service.closed:
                self._service = Scheduler(Engine(self))
            return self._service

    @overload
    def chat(self, messages: "Messages", *, tools: Optional[Sequence[Mapping[str, object]]] = ...,
             tool_choice: Union[str, Mapping[str, object], None] = ...,
             response_format: Optional[Mapping[str, object]] = ...,
             stream: Literal[False] = ..., sampling: "Optional[Sampling]" = ...,
             adapters: "Iterable[AdapterLike]" = ..., **keys: object) -> "ChatResult": ...

    @overload
    def chat(self, messages: "Messages", *, tools: Optional[Sequence[Mapping[str, object]]] = ...,
             tool_choice: Union[str, Mapping[str, object], None] = ...,
             response_format: Optional[Mapping[str, object]] = ...,
             stream: Literal[True], sampling: "Optional[Sampling]" = ...,
             adapters: "Iterable[AdapterLike]" = ..., **keys: object) -> "ChatStream": ...

    def chat(self, messages, *, tools=None, tool_choice=None, response_format=None, stream=False,
             sampling=None, adapters=(), **keys):
        """Answers a conversation; see Scheduler.chat. The first call opens an Engine and a
        Scheduler with default options, which are closed with the model: close it, or use `with`.
        For other options, open them and use Scheduler.chat."""
        return self._scheduler().chat(messages, tools=tools, tool_choice=tool_choice,
                                      response_format=response_format, stream=stream,
                                      sampling=sampling, adapters=adapters, **keys)


def _ids(fill, capacity: int) -> List[int]:
    """Calls `fill` with room, and again with more where that was too little."""
    while True:
        ids = (ctypes.c_int32 * capacity)()
        count = ctypes.c_size_t()
        error = _abi.Error()
        status = fill(ids, capacity, ctypes.byref(count), ctypes.byref(error))
        if status == 6 and count.value > capacity:
            capacity = count.value
            continue
        check(status, error)
        return ids[:count.value]
