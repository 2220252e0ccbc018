"""What callers give: an object of the wrong kind never reaches the library."""
import numbers
import os
from typing import Any, Iterable


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def must_be(kind: type, optional: bool = False, **given: Any) -> None:
    """TypeError, unless what is given is of that class. Every handle that another object gives
    away has been through here: the library believes what it gets."""
    for name, value in given.items():
        if not isinstance(value, kind) and not (optional and value is None):
            raise TypeError(f"{name} must be {article(kind.__name__)}"
                            f"{' or None' if optional else ''}, not {shown(value)}")


def article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def text_of(name: str, value: Any) -> bytes:
    """A str or bytes as the library takes it."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a text, not {shown(value)}")
    return _without_zero(name, value if isinstance(value, bytes) else value.encode("utf-8"))


def path_of(name: str, value: Any) -> bytes:
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {shown(value)}")
    path = os.fspath(value)
    return _without_zero(name, path if isinstance(path, bytes) else path.encode("utf-8"))


def _without_zero(name: str, data: bytes) -> bytes:
    if b"\0" in data:
        raise ValueError(f"{name} contains a zero byte")
    return data


def number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    return float(value)


def items(name: str, given: Any, what: str) -> list:
    """What a list holds; a text is no list of its letters."""
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list of {what}, not {shown(given)}")
    return list(given)


def texts_of(name: str, given: Any) -> list:
    return [text_of(name, entry) for entry in items(name, given, "texts")]
