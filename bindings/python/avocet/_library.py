"""Finds and loads libavocet, and turns its statuses into exceptions."""
import ctypes
import ctypes.util
import os
import shutil
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import List, Optional, Tuple

from . import _abi
from ._arguments import shown
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


def command() -> str:
    """The path of the program avocet: of AVOCET_COMMAND, a wheel, a source tree; else in PATH."""
    named = os.environ.get("AVOCET_COMMAND")
    if named:
        return named
    built = _FOLDER.parent.parent.parent / "build/avocet"
    for path in (_FOLDER / "bin/avocet", built):
        if path.is_file():
            return str(path)
    found = shutil.which("avocet")
    if found is None:
        raise FileNotFoundError("the program avocet was not found; install it, or set "
                                "AVOCET_COMMAND to its path")
    return found


def check(status: int, error: Optional[_abi.Error]) -> None:
    """Raises what the library said."""
    if status != 0:
        text = error.text.decode("utf-8", "replace") if error is not None else ""
        raise exception_of(status)(text or library.avo_status_text(status).decode(), status)


def call(function, *arguments) -> None:
    """A function whose last argument is an avo_error."""
    error = _abi.Error()
    status = function(*arguments, ctypes.byref(error))
    del arguments  # a traceback keeps nothing open
    check(status, error)


def encoded(text) -> Optional[bytes]:
    """A str or path as the library takes it."""
    if text is None:
        return None
    if not isinstance(text, (str, bytes, os.PathLike)):
        raise TypeError(f"must be a text or a path, not {shown(text)}")
    given = os.fspath(text)
    data = given if isinstance(given, bytes) else given.encode("utf-8")  # or ValueError
    if b"\0" in data:
        raise ValueError("the text contains a zero byte")
    return data


def ids_of(tokens):
    """Token ids as a C array, its length, and what must stay alive. A contiguous int32 NumPy array
    is used where it lies."""
    try:
        import numpy
        if isinstance(tokens, numpy.ndarray):
            array = numpy.ascontiguousarray(tokens, dtype=numpy.int32)
            if tokens.dtype.kind not in "iu" or (array != tokens).any():
                raise ValueError("token ids must be 32-bit integers")
            return array.ctypes.data_as(_abi.IDS), array.size, array
    except ImportError:
        pass
    if isinstance(tokens, (str, bytes, dict)) or not hasattr(tokens, "__iter__"):
        raise TypeError(f"token ids must be a list of integers, not {shown(tokens)}")
    tokens = list(tokens)
    for token in tokens:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise TypeError(f"token ids must be integers, not {shown(token)}")
    if any(not -2**31 <= token < 2**31 for token in tokens):  # ctypes would cut them
        raise ValueError("token ids must be 32-bit integers")
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    return ctypes.cast(array, _abi.IDS), len(tokens), array


class Turn:
    """One call at a time, of whichever thread. What must be closed in turn and was let go while
    somebody is inside is closed as soon as he has left: letting go never waits, since the garbage
    collector may do it anywhere."""

    def __init__(self):
        self._lock = threading.RLock()
        self._late: "deque[tuple]" = deque()

    def __enter__(self) -> "Turn":
        self._lock.acquire()
        self._close_late()
        return self

    def __exit__(self, *_) -> None:
        self._lock.release()
        self._settle()

    def close(self, close, pointer, parents: tuple) -> None:
        self._late.append((close, pointer, parents))
        self._settle()

    def _settle(self) -> None:
        """Whoever has the lock comes by here when he has given it back."""
        while self._late and self._lock.acquire(blocking=False):
            try:
                self._close_late()
            finally:
                self._lock.release()

    def _close_late(self) -> None:
        while self._late:
            try:
                close, pointer, _parents = self._late.popleft()  # open until this one is closed
            except IndexError:
                return
            close(pointer)


_take, _give = ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef
_take.argtypes = _give.argtypes = [ctypes.py_object]
_take.restype = _give.restype = None


class Native:
    """What the library opened, closed when nobody holds it any more: neither its Owned, nor a call
    that got it as its argument (ctypes takes what `_as_parameter_` says, and the caller's frame
    holds the argument), nor whatever was opened from it, nor an array that shows its memory."""

    __slots__ = ("_as_parameter_", "_close", "_parents", "_turn")

    def __init__(self, handle, close: str, parents: tuple, turn: Optional[Turn]):
        self._as_parameter_ = handle
        self._close = getattr(library, close)
        self._parents = parents
        self._turn = turn
        # The garbage collector finalises what it finds together in any order. A reference that it
        # cannot see keeps the parents out of that until this one is closed.
        _take(parents)

    @property
    def pointer(self):
        """For structures; this must be held until the library has read them."""
        return self._as_parameter_

    def __del__(self):
        if self._as_parameter_ and self._turn is None:
            self._close(self._as_parameter_)
        elif self._as_parameter_:
            self._turn.close(self._close, self._as_parameter_, self._parents)
        _give(self._parents)


class Owned:
    """Something the library opened: closed by close(), a `with` block or the garbage collector.
    Closing it closes first whatever was opened from it and is open still. Any thread may close it
    at any time: calls that are inside end as if nothing had been, and the last of them frees it;
    those that come later are refused."""

    _close = ""

    def __init__(self, handle, natives: "Tuple[Native, ...]" = (),
                 parents: "Tuple[Owned, ...]" = (), turn: Optional[Turn] = None):
        """`natives`: what natives_of(*parents) said before the library was called."""
        self._native: Optional[Native] = Native(handle, self._close, natives, turn)
        self._parents = parents  # alive as long as this is
        self._children: "weakref.WeakSet[Owned]" = weakref.WeakSet()
        for parent in parents:
            parent._children.add(self)
        for parent in parents:
            if parent.closed:  # meanwhile, and perhaps without having seen this child
                self.close()
                parent.handle

    @property
    def handle(self) -> Native:
        native = self._native
        if native is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return native

    @property
    def closed(self) -> bool:
        return self._native is None

    def _open_children(self) -> "List[Owned]":
        while True:
            try:
                return [child for child in self._children if not child.closed]
            except RuntimeError:  # another thread has opened one meanwhile
                pass

    def close(self) -> None:
        native, self._native = self._native, None
        for child in self._open_children():
            child.close()
        self._parents = ()
        del native

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_native", None) is not None:
            self.close()


def natives_of(*owned: Owned) -> Tuple[Native, ...]:
    """What keeps them open while something is opened from them; ValueError where one is closed."""
    return tuple(one.handle for one in owned)


__all__ = ["AvocetError", "Native", "Owned", "Turn", "call", "check", "command", "encoded",
           "ids_of", "library", "natives_of"]
