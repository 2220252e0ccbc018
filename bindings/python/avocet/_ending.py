"""The end of Python. Threads that are daemons may be inside the library then, and it must not call
back when there is no Python any more: calls that do are ended first, and no others begin."""
import atexit
import contextlib
import threading
from typing import Iterator

_SECONDS = 30.0  # within which a call ends that was told to: a step, or a piece of opening
_state = threading.Condition()
_inside = 0
_over = False


def ending() -> bool:
    """What a callback tells the library: end this now. Handlers of atexit may work on, in the main
    thread."""
    return _over and threading.current_thread() is not threading.main_thread()


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Around a call of the library that calls back; outermost, before any lock."""
    global _inside
    with _state:
        late = ending()
        _inside += not late
    if late:
        threading.Event().wait()  # for the end of the process, as all daemons do
    try:
        yield
    finally:
        with _state:
            _inside -= 1
            _state.notify_all()


@atexit.register
def _end() -> None:
    global _over
    with _state:
        _over = True
        _state.wait_for(lambda: _inside == 0, _SECONDS)
