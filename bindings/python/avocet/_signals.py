"""Signals while the library calls back.

Python runs the handlers of signals in its main thread, wherever Python code runs there next: within
a call to the library that is the first instruction of a callback, before its `try`. What the
handler raises there (KeyboardInterrupt) ctypes prints and forgets. So while such a call lasts,
handlers wait until a callback asks for them within its `try`, or until the call has returned. Nor
may they run anywhere in that `try`: what is raised while garbage is collected is forgotten, too."""
import signal
import threading
from typing import Callable, Dict, List

from ._ending import ending


_SIGNALS = tuple(int(number) for number in signal.valid_signals() if number < 32)


class Guard:
    """Around a call to the library, with callback() for what it calls, and user() for what that
    calls of the user's. What a handler or a callback raises ends the call and is raised behind
    it."""

    def __init__(self):
        self._handlers: Dict[int, Callable] = {}
        self._waiting: List[tuple] = []
        self._safe = False  # within the user's own code, which handlers interrupt as ever
        self.raised: List[BaseException] = []

    def _arrived(self, number, frame):
        if self._safe:
            self._handlers[number](number, frame)
        else:
            self._waiting.append((number, frame))

    def _handle(self) -> None:
        while self._waiting:
            number, frame = self._waiting.pop(0)
            self._handlers[number](number, frame)

    def callback(self, function: Callable[..., bool]) -> Callable[..., bool]:
        """For ctypes: never raises; False ends the call."""
        def guarded(*arguments):
            try:
                self._handle()
                return not self.raised and not ending() and function(*arguments)
            except BaseException as error:  # not through C
                self.raised.append(error)
                return False
        return guarded

    def user(self, function: Callable, *arguments):
        self._safe = True
        try:
            return function(*arguments)
        finally:
            self._safe = False

    def __enter__(self) -> "Guard":
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _SIGNALS:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._handlers[number] = handler
                        signal.signal(number, self._arrived)
            except BaseException:  # one that is not ours yet
                self._restore()
                raise
        return self

    def _restore(self) -> None:
        left = list(self._handlers.items())
        while left:
            number, handler = left[-1]
            try:
                if signal.getsignal(number) == self._arrived:  # or a callback has set its own
                    signal.signal(number, handler)
                left.pop()
            except BaseException as error:  # by one that is its owner's again
                self.raised.append(error)

    def __exit__(self, kind, error, trace) -> None:
        self._restore()
        self._handle()
        if self.raised:
            raise self.raised[0]
