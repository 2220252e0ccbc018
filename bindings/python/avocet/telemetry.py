"""Counters, histograms and spans of engines and their schedulers."""
import contextlib
import ctypes
import json
import sys
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from . import _abi
from ._arguments import path_of
from ._ending import calling
from ._library import Owned, call, encoded, library
from ._signals import Guard

PROMETHEUS, JSON, CSV = range(3)
FINISH = ("stop_token", "stop_string", "length", "context", "cancelled", "deadline",
          "repetition")


class Telemetry(Owned):
    """Given to engines (`Engine(model, telemetry=…)`), which record into it, and so do their
    schedulers. Any thread may ask at any time.

        telemetry = avocet.Telemetry()
        engine = avocet.Engine(model, telemetry=telemetry)
        …
        print(telemetry.snapshot()["rates"])
        with telemetry.tracing():
            …
        telemetry.write_trace("trace.json")
    """

    _close = "avo_telemetry_close"

    def __init__(self, *, spans_max: int = 0, adapters_max: int = 0, hardware: bool = False,
                 model_name: Optional[str] = None):
        options = _abi.TelemetryOptions(spans_max=spans_max, adapters_max=adapters_max,
                                        hardware=hardware, model_name=encoded(model_name))
        handle = _abi.Handle()
        call(library.avo_telemetry_open, ctypes.byref(options), None, ctypes.byref(handle))
        super().__init__(handle)

    @staticmethod
    def _collect(function: Callable[[Any, Guard], Any]) -> str:
        """What `function`, given a writer for C and the guard of its callbacks, writes."""
        pieces, guard = [], Guard()

        @_abi.WRITE
        @guard.callback
        def write(_, text, size):
            pieces.append(ctypes.string_at(text, size))
            return True

        with calling(), guard:
            function(write, guard)
        return b"".join(pieces).decode("utf-8")

    def _trace(self, seconds: float) -> str:
        return self._collect(lambda write, _: call(
            library.avo_telemetry_trace_write, self.handle, seconds, write, None))

    def _export(self, form: int) -> str:
        return self._collect(lambda write, _: call(
            library.avo_telemetry_export, self.handle, form, write, None))

    def prometheus(self) -> str:
        """Prometheus's text format 0.0.4: vLLM's names and our own."""
        return self._export(PROMETHEUS)

    def csv(self) -> str:
        """Every counter and histogram, a line each: name, labels, value."""
        return self._export(CSV)

    def snapshot(self) -> Dict[str, Any]:
        """What a dashboard shows; docs/telemetry.md has its members."""
        return json.loads(self._export(JSON))

    def append_history(self, path, bytes_max: int = 0) -> None:
        """A row of everything, appended to a CSV file as `avocet serve --telemetry` does it;
        docs/telemetry.md has its columns."""
        call(library.avo_telemetry_history, self.handle, path_of("path", path),
             _abi.in_range(ctypes.c_uint64, "bytes_max", bytes_max))

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """While this lasts, spans within steps are recorded, too."""
        native = self.handle
        library.avo_telemetry_trace_begin(native)
        try:
            yield
        finally:
            library.avo_telemetry_trace_end(native)

    def trace(self, seconds: float = 1e9) -> Dict[str, Any]:
        """The spans of the last seconds as a Chrome trace."""
        return json.loads(self._trace(seconds))

    def record(self, seconds: float, spans_max: int = 0) -> Dict[str, Any]:
        """A trace of the seconds to come, with all spans of that time, however many."""
        def record(write, guard):
            wanted = _abi.WANTED(guard.callback(lambda _: True))
            reader = _abi.TraceReader(wanted=wanted, write=write)
            call(library.avo_telemetry_trace_record, self.handle, seconds, spans_max,
                 ctypes.byref(reader))
        return json.loads(self._collect(record))

    def write_trace(self, path, seconds: float = 1e9) -> None:
        """The same as a file for Perfetto and chrome://tracing."""
        text = self._trace(seconds)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def append_row(path, *, model_name: str, finish: str, token_seconds: Sequence[float],
               **numbers) -> None:
    """A row of a CSV table of answers, as `avocet run --telemetry` writes it: appended to a file
    (which gets a header when it is new), or with the header to standard error where `path` is
    None. Numbers that are not given stay empty."""
    unknown = dict.fromkeys(("load_seconds", "tokenize_seconds", "prefill_seconds",
                             "first_token_seconds", "prefill_rate", "decode_rate"), -1.0)
    seconds = (ctypes.c_double * len(token_seconds))(*token_seconds)
    times = _abi.AnswerTimes(model_name=encoded(model_name), finish=FINISH.index(finish),
                             token_seconds=seconds, token_count=len(seconds),
                             **{**unknown, **numbers})
    if path is None:
        sys.stderr.write(Telemetry._collect(lambda write, _: call(
            library.avo_telemetry_row, ctypes.byref(times), write, None)))
    else:
        call(library.avo_telemetry_append, encoded(path), ctypes.byref(times))


def check_rows(path) -> None:
    """Makes sure that append_row can write there: a new file gets its header."""
    call(library.avo_telemetry_append, encoded(path), None)


__all__ = ["Telemetry", "append_row", "check_rows"]
