"""Finds and loads libavocet, and turns its statuses into exceptions."""
import ctypes
import ctypes.util
import os
import weakref
from pathlib import Path
from typing import Optional

from . import _abi
from .errors import AvocetError, exception_of

_FOLDER = Path(__file__).resolve().parent


def _candidates():
    named = os.environ.get("AVOCET_LIBRARY")
    if named:
        yield named
        return
    yield str(_FOLDER / "libavocet.so")
    source = _FOLDER.parent.parent.parent  # used from a source tree, as it is
    if (source / "include/avocet.h").is_file():
        yield str(source / "build/libavocet.so")
    yield "libavocet.so.0"
    found = ctypes.util.find_library("avocet")
    if found:
        yield found


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        if os.sep in path and not os.path.exists(path):
            tried.append(f"{path}: not there")
            continue
        try:
            return _bind(ctypes.CDLL(path))
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
    raise ImportError("libavocet was not found; set AVOCET_LIBRARY to its path. Tried:\n  " +
                      "\n  ".join(tried))


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()  # calls release the GIL


def check(status: int, error: Optional[_abi.Error]) -> None:
    """Raises what the library said."""
    if status != 0:
        text = error.text.decode("utf-8", "replace") if error is not None else ""
        raise exception_of(status)(text or library.avo_status_text(status).decode(), status)


def call(function, *arguments) -> None:
    """A function whose last argument is an avo_error."""
    error = _abi.Error()
    check(function(*arguments, ctypes.byref(error)), error)


def encoded(text) -> Optional[bytes]:
    """A str or path as the library takes it."""
    if text is None:
        return None
    data = text if isinstance(text, bytes) else os.fspath(text).encode("utf-8")  # or ValueError
    if b"\0" in data:
        raise ValueError("the text holds a zero byte")
    return data


def ids_of(tokens):
    """Token ids as a C array, its length, and what must stay alive. A contiguous int32 NumPy array
    is used where it lies."""
    try:
        import numpy
        if isinstance(tokens, numpy.ndarray):
            array = numpy.ascontiguousarray(tokens, dtype=numpy.int32)
            if tokens.dtype.kind not in "iu" or (array != tokens).any():
                raise ValueError("token ids are integers of 32 bits")
            return array.ctypes.data_as(_abi.IDS), array.size, array
    except ImportError:
        pass
    tokens = list(tokens)
    if any(not -2**31 <= token < 2**31 for token in tokens):  # ctypes would cut them
        raise ValueError("token ids are integers of 32 bits")
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    return ctypes.cast(array, _abi.IDS), len(tokens), array


class Native:
    """What the library opened, closed when nobody holds it any more: neither its Owned, nor
    whatever was opened from it, nor an array that shows its memory."""

    __slots__ = ("handle", "_close", "_parents")

    def __init__(self, handle, close: str, parents: tuple):
        self.handle = handle
        self._close = getattr(library, close)
        self._parents = parents

    def __del__(self):
        if self.handle:
            self._close(self.handle)


class Owned:
    """Something the library opened: closed by close(), a `with` block or the garbage collector.
    Closing it closes first whatever was opened from it and is open still."""

    _close = ""

    def __init__(self, handle, *parents: "Owned"):
        self._native: Optional[Native] = Native(
            handle, self._close, tuple(parent._native for parent in parents))
        self._parents = parents  # alive as long as this is
        self._children: "weakref.WeakSet[Owned]" = weakref.WeakSet()
        for parent in parents:
            parent._children.add(self)

    @property
    def handle(self):
        if self._native is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._native.handle

    @property
    def closed(self) -> bool:
        return self._native is None

    def close(self) -> None:
        for child in list(self._children):
            child.close()
        self._native = None
        self._parents = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_native", None) is not None:
            self.close()


__all__ = ["AvocetError", "Native", "Owned", "call", "check", "encoded", "ids_of", "library"]
