"""Chat requests as JSON, and answers split into content, reasoning and tool calls: src/chat/ of the
library, which the server and `avocet run` use as well."""
import codecs
import ctypes
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._arguments import must_be, number, shown, text_of, texts_of
from ._library import Native, Owned, call, ids_of, library, natives_of
from .adapters import Adapter
from .grammar import Grammar
from .sampling import Sampling, struct_of

if TYPE_CHECKING:
    from .model import Model

_SPECIAL = 1
_REASONING, _EARLY_CALLS = 1, 2

Messages = Sequence[Mapping[str, object]]
NamedAdapters = Mapping[str, Tuple[Adapter, float]]


@dataclass(frozen=True)
class ToolCall:
    """A function that the model calls. `arguments` is the text of a JSON object."""
    id: str
    name: str
    arguments: str

    def as_dict(self) -> Dict[str, object]:
        """The form that tool_calls of a message have."""
        return {"id": self.id, "type": "function",
                "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ToolCallDelta:
    """A part of the answer's `index`-th call. The first part has its name, each may have more of
    its arguments, the last is complete."""
    index: int
    name: Optional[str]
    arguments: str
    complete: bool


@dataclass(frozen=True)
class ChatDelta:
    """What one token added to an answer."""
    content: str = ""
    reasoning: str = ""
    tool_calls: Tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)


class Chat(Owned):
    """How a model writes tool calls and reasoning, and the grammars compiled for it."""

    _close = "avo_chat_close"

    def __init__(self, model: "Model"):
        handle = _abi.Handle()
        natives = natives_of(model)
        call(library.avo_chat_open, natives[0], ctypes.byref(handle))
        super().__init__(handle, natives, (model,))


class ChatRequest(Owned):
    """A request from a JSON object: `body` is a mapping, or the text of one, with the keys that
    include/avocet.h lists at avo_chat_request. The arguments are values for keys that it lacks;
    without `sampling` these are the model's recommended ones. `adapters` are those that it can
    name; all apply if it names none. `unnamed_sampling` is for requests that name no temperature
    and no filter, `repetition` as of Session.generate. `reasoning`: separate it from content;
    `early_calls`: report tool calls as soon as their arguments begin."""

    _close = "avo_chat_request_close"

    def __init__(self, model: "Model", body: Union[Mapping[str, object], str, bytes], *,
                 sampling: Optional[Sampling] = None, max_tokens: Optional[int] = None,
                 stop: Sequence[str] = (), stop_tokens: Sequence[int] = (),
                 ignore_end: bool = False, special: bool = False,
                 grammar: Optional[Grammar] = None, adapters: Optional[NamedAdapters] = None,
                 system: Optional[str] = None, raw: bool = False, reasoning: bool = True,
                 early_calls: bool = False, unnamed_sampling: Optional[Sampling] = None,
                 repetition: Optional[Tuple[int, int, int]] = None):
        from .model import Model
        must_be(Model, model=model)
        must_be(Grammar, optional=True, grammar=grammar)
        self._known = {name: adapter for name, (adapter, _) in (adapters or {}).items()}
        must_be(Adapter, **self._known)
        chat = model._chat()
        parents = (chat, *self._known.values(), *(() if grammar is None else (grammar,)))
        natives = natives_of(*parents)
        rules = None if grammar is None else natives[-1].pointer
        defaults = _defaults_of(sampling, max_tokens, stop, stop_tokens, ignore_end, special, rules)
        if repetition is not None:
            defaults.repetition = _abi.Repetition.of(repetition)
        unnamed = struct_of(unnamed_sampling)
        named = (_abi.ChatAdapter * len(self._known))(*(
            _abi.ChatAdapter(name=text_of("adapters", name), adapter=adapter.handle.pointer,
                             weight=number("weight", weight))
            for name, (adapter, weight) in (adapters or {}).items()))
        options = _abi.ChatRequestOptions(
            defaults=ctypes.pointer(defaults), adapters=named, adapter_count=len(named),
            system=None if system is None else text_of("system", system), raw=raw)
        if unnamed is not None:
            options.unnamed_sampling = ctypes.pointer(unnamed)
        text = _json_of(body)
        handle = _abi.Handle()
        call(library.avo_chat_request_open, natives[0], text, len(text), ctypes.byref(options),
             ctypes.byref(handle))
        self._defaults = defaults, unnamed  # the request points to what is in it
        self._flags = (_REASONING if reasoning else 0) | (_EARLY_CALLS if early_calls else 0)
        super().__init__(handle, natives, parents)

    def _struct(self) -> Tuple[_abi.Request, List[Any]]:
        """A copy of the C structure, and what must stay alive until it was submitted."""
        native = self.handle
        given = library.avo_chat_request_get(native).contents
        return _abi.Request.from_buffer_copy(given), [native, self]

    @property
    def top_logprobs(self) -> int:
        struct, _held = self._struct()
        return struct.sampling.contents.top_logprobs

    @property
    def adapters(self) -> List[Tuple[Adapter, float]]:
        """Those that apply, with their weights."""
        struct, _held = self._struct()
        by_handle = {adapter.handle.pointer.value: adapter for adapter in self._known.values()}
        return [(by_handle[use.adapter], use.weight)
                for use in struct.adapters[:struct.adapter_count]]


class Parser:
    """Reads one answer to a request, token by token; one thread at a time. It works until the
    answer has ended, also when the request or its model is closed meanwhile."""

    def __init__(self, request: ChatRequest):
        handle = _abi.Handle()
        natives = natives_of(request)
        call(library.avo_chat_parser_open, natives[0], request._flags, ctypes.byref(handle))
        self._native = Native(handle, "avo_chat_parser_close", natives, None)
        self.content: List[str] = []
        self.reasoning: List[str] = []
        self._told: List[_CallState] = []

    def push(self, event=None) -> ChatDelta:
        """What a pointer to a token event completes; None: the answer has ended."""
        found = _abi.ChatDelta()
        call(library.avo_chat_parser_push, self._native, event, ctypes.byref(found))
        delta = ChatDelta(_text(found.content, found.content_bytes),
                          _text(found.reasoning, found.reasoning_bytes),
                          tuple(self._calls(found.calls)))
        self.content.append(delta.content)
        self.reasoning.append(delta.reasoning)
        return delta

    def _calls(self, count: int):
        """The parts of calls that are new."""
        first = max(len(self._told) - 1, 0)
        for index in range(first, count):
            new = index == len(self._told)
            if new:
                self._told.append(_CallState())
            told = self._told[index]
            if told.complete:
                continue
            found = _abi.ToolCall()
            if not library.avo_chat_parser_call(self._native, index, ctypes.byref(found)):
                return
            told.name = _text(found.name, found.name_bytes)
            whole = ctypes.string_at(found.arguments, found.arguments_bytes)
            part = told.decoder.decode(whole[told.bytes:], found.complete)
            told.bytes, told.complete = len(whole), found.complete
            told.arguments += part
            if new or part or told.complete:
                yield ToolCallDelta(index, told.name if new else None, part, told.complete)

    def tool_calls(self, number: int) -> List[ToolCall]:
        """Of the answer to this request; ids are unique within a scheduler."""
        return [ToolCall(f"call_{number}_{index}", told.name, told.arguments)
                for index, told in enumerate(self._told)]


class _CallState:
    """What has been told of a call."""

    def __init__(self) -> None:
        self.name, self.arguments, self.bytes, self.complete = "", "", 0, False
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")


def _text(data, size: int) -> str:
    return ctypes.string_at(data, size).decode("utf-8", "replace") if size > 0 else ""


def _json_of(body) -> bytes:
    if isinstance(body, Mapping):
        return json.dumps(dict(body)).encode("utf-8")
    if not isinstance(body, (str, bytes)):
        raise TypeError(f"body must be a mapping or a text, not {shown(body)}")
    return body.encode("utf-8") if isinstance(body, str) else body


def _defaults_of(sampling, max_tokens, stop, stop_tokens, ignore_end, special, rules):
    if max_tokens == 0:
        raise ValueError("max_tokens is 0, must be at least 1, or None for no limit")
    texts = texts_of("stop", stop)
    ids, count, held = ids_of(stop_tokens)
    struct = struct_of(sampling)
    defaults = _abi.Request(
        max_new_tokens=0 if max_tokens is None else max_tokens, ignore_end=ignore_end,
        text_flags=_SPECIAL if special else 0,
        stop=(ctypes.c_char_p * len(texts))(*texts), stop_count=len(texts), stop_tokens=ids,
        stop_token_count=count, grammar=rules)
    if struct is not None:
        defaults.sampling = ctypes.pointer(struct)
    defaults.held = held, struct
    return defaults


def body_of(messages: Messages, keys: Mapping[str, object]) -> Dict[str, object]:
    """The object of a conversation; None is as if the key had not been given."""
    if isinstance(messages, (str, bytes, Mapping)):
        raise TypeError(f"messages must be a list of messages, not {shown(messages)}")
    given = {key: value for key, value in keys.items() if value is not None}
    return {"messages": [dict(message) for message in messages], **given}


__all__ = ["Chat", "ChatDelta", "ChatRequest", "Messages", "Parser", "ToolCall", "ToolCallDelta",
           "body_of"]
