"""Lines of `--prompts` as requests, as src/cli/prompt_lines.c reads them: what a line says counts
over the flags, null is as if nothing had been said, and what it says wrongly fails it alone."""
import dataclasses
import difflib
import json
from typing import Any, Dict, List, Optional, Tuple

from .adapters import Adapter
from .errors import AvocetError
from .grammar import Grammar
from .model import Model
from .sampling import Sampling
from .scheduler import Request

Adapters = Dict[str, Tuple[Adapter, float]]  # by name, with the scale of the flags

_FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
           "frequency_penalty")
_KEYS = ("id", "prompt", "messages", "tokens", "prompt_logprobs", "pooling", "no_answer", "system",
         "raw", "adapter", "adapters", "max_new_tokens", "max_tokens", *_FLOATS, "top_k", "seed",
         "logprobs", "stop", "stop_tokens", "ignore_eos", "tenant", "priority", "deadline",
         "first_token_deadline", "cache_salt", "json_schema", "grammar", "json_object")
_INT_MAX = 2 ** 31 - 1
_FORM = '"name" or {"name": …, "weight": …}'


def parse(line: bytes) -> Any:
    """JSON as the standard has it: no NaN, no key twice. ValueError."""
    def unique(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("duplicate key in an object")
        return found

    def refuse(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)


# ---- Values ----

def _boolean(given, key: str, otherwise: bool) -> bool:
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false")
    return otherwise if value is None else value


def _number(given, key: str, low: float, high: float, otherwise: float) -> float:
    value = given.get(key)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} must be a number")
    if not low <= value <= high:
        raise ValueError(f"{key} is {value:g}, must be {low:g} to {high:g}")
    return float(value)


def _integer(given, key: str, high: int, otherwise: int) -> int:
    value = given.get(key)
    if value is None:
        return otherwise
    if isinstance(value, float) and value.is_integer():  # 1e4 and 16.0 are integers, too
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} must be an integer")
    if not 0 <= value <= high:
        raise ValueError(f"{key} is {value}, must be 0 to {high}")
    return value


def _text(value, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string")
    if "\0" in value:
        raise ValueError(f"{what} contains a zero byte")
    return value


def _optional_text(given, key: str, otherwise: Optional[str] = None) -> Optional[str]:
    return otherwise if given.get(key) is None else _text(given[key], key)


def _ids(value, key: str) -> List[int]:
    if not isinstance(value, list):
        raise ValueError(f"{key} must be an array")
    if any(isinstance(id, bool) or not isinstance(id, int) or not 0 <= id <= _INT_MAX
           for id in value):
        raise ValueError(f"{key} contains a value that is not a token id")
    return value


# ---- Parts of a line ----

def _prompt(given, flags, chat: bool) -> Dict[str, Any]:
    if sum(key in given for key in ("prompt", "messages", "tokens")) != 1:
        raise ValueError('give one of "prompt", "messages" and "tokens"')
    if "tokens" in given:
        return {"prompt": _ids(given["tokens"], "tokens")}
    raw = _boolean(given, "raw", not chat)
    system = _optional_text(given, "system", flags.system)
    if "messages" in given:
        messages = given["messages"]
        if not isinstance(messages, list) or not messages:
            raise ValueError("messages must be a non-empty array")
        for key in ("tool_calls", "tool_call_id", "name"):
            if any(isinstance(message, dict) and key in message for message in messages):
                raise ValueError(f'"{key}" of a message is not supported here; use avocet run')
        return {"messages": [
            {key: _text(message.get(key) if isinstance(message, dict) else None,
                        f"the {key} of a message") for key in ("role", "content")}
            for message in messages]}
    text = _text(given["prompt"], "prompt")
    if raw:
        return {"prompt": text, "special": flags.special}
    said = [] if system is None else [{"role": "system", "content": system}]
    return {"messages": [*said, {"role": "user", "content": text}]}


def _adapter(entry, adapters: Adapters) -> Tuple[Adapter, float]:
    if isinstance(entry, list):
        raise ValueError(f'adapter must be {_FORM}, not an array; use "adapters" for several')
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise ValueError(f"an adapter must be {_FORM}")
    for key in entry:
        if key not in ("name", "weight"):
            raise ValueError(f'unknown key "{key}" in an adapter, which must be {_FORM}')
    if "name" not in entry:
        raise ValueError(f'an adapter has no "name"; it must be {_FORM}')
    name = _text(entry["name"], "name")
    if name not in adapters:
        raise ValueError(f'adapter "{name}" was not given with --adapter')
    adapter, scale = adapters[name]
    return adapter, scale * _number(entry, "weight", -1e6, 1e6, 1.0)


def adapters_of(given, adapters: Adapters) -> List[Tuple[Adapter, float]]:
    """Those the line names, each with its scale times the line's weight; none named: all."""
    if "adapter" in given and "adapters" in given:
        raise ValueError('give "adapter" or "adapters", not both')
    if "adapter" in given:
        return [] if given["adapter"] is None else [_adapter(given["adapter"], adapters)]
    if "adapters" not in given:
        return list(adapters.values())
    several = given["adapters"]
    if several is None:
        return []
    if not isinstance(several, list):
        raise ValueError(f"adapters must be an array of {_FORM}")
    return [_adapter(entry, adapters) for entry in several]


def _sampling(given, flags: Sampling) -> Sampling:
    drawn = {key: _number(given, key, -1e30, 1e30, getattr(flags, key)) for key in _FLOATS}
    return dataclasses.replace(flags, **drawn,
                               top_k=_integer(given, "top_k", _INT_MAX, flags.top_k),
                               top_logprobs=_integer(given, "logprobs", 20, flags.top_logprobs),
                               seed=_integer(given, "seed", 2 ** 63 - 1, flags.seed))


def _stops(given, flags) -> Dict[str, Any]:
    found: Dict[str, Any] = {"stop": flags.stop, "stop_tokens": flags.stop_tokens}
    stop = given.get("stop")
    if stop is not None:
        found["stop"] = [_text(one, "stop") for one in (stop if isinstance(stop, list) else [stop])]
    if given.get("stop_tokens") is not None:
        found["stop_tokens"] = _ids(given["stop_tokens"], "stop_tokens")
    return found


def _service(given, flags) -> Dict[str, Any]:
    most = _integer(given, "max_tokens", _INT_MAX, flags.max_new_tokens)
    pooling = _optional_text(given, "pooling")
    if pooling not in (None, "mean", "last"):
        raise ValueError(f'pooling is "{pooling}", must be mean or last')
    silent = _boolean(given, "no_answer", False) or pooling is not None
    return {"max_tokens": _integer(given, "max_new_tokens", _INT_MAX, most),
            "priority": _integer(given, "priority", 15, 8),
            "ignore_end": _boolean(given, "ignore_eos", flags.ignore_eos),
            "deadline": _number(given, "deadline", 0, 1e9, 0.0),
            "first_token_deadline": _number(given, "first_token_deadline", 0, 1e9, 0.0),
            "tenant": _optional_text(given, "tenant"),
            "cache_salt": _optional_text(given, "cache_salt"),
            "prompt_logprobs": _boolean(given, "prompt_logprobs", False),
            "pooling": pooling, "answer": not silent}


# ---- The whole ----

class Lines:
    """Reads lines for one model; the grammar of the line before is used again where it is the
    same."""

    def __init__(self, model: Model, flags, sampling: Sampling, adapters: Adapters, chat: bool,
                 grammar: Optional[Grammar]):
        self._grammar_of_flags = grammar
        self._model, self._flags, self._sampling = model, flags, sampling
        self._adapters, self._chat = adapters, chat
        self._last: Tuple[Optional[tuple], Optional[Grammar]] = (None, None)

    def _grammar(self, given) -> Optional[Grammar]:
        schema, text = given.get("json_schema"), given.get("grammar")
        whole = _boolean(given, "json_object", False)
        if ("json_schema" in given) + ("grammar" in given) + whole > 1:
            raise ValueError('give one of "json_schema", "grammar" and "json_object"')
        if "grammar" in given:
            made = ("grammar", _text(text, "grammar"))
        elif "json_schema" in given:
            made = ("schema", _text(schema if isinstance(schema, str) else json.dumps(schema),
                                    "json_schema"))
        elif whole:
            made = ("object", None)
        else:
            return self._grammar_of_flags
        if self._last[0] != made:
            kind, body = made
            self._last = (made, Grammar(self._model, body if kind == "grammar" else None,
                                        schema=body if kind == "schema" else None))
        return self._last[1]

    def request(self, given) -> Request:
        """ValueError and AvocetError say what is wrong."""
        if not isinstance(given, dict):
            raise ValueError("expected a JSON object")
        for key in given:
            if key not in _KEYS:
                near = difflib.get_close_matches(key, _KEYS, 1)
                raise ValueError(f'unknown key "{key}" in a prompt' +
                                 (f'; did you mean "{near[0]}"?' if near else ""))
        return Request(**_prompt(given, self._flags, self._chat),
                       adapters=adapters_of(given, self._adapters),
                       sampling=_sampling(given, self._sampling), **_stops(given, self._flags),
                       grammar=self._grammar(given), **_service(given, self._flags))

    def read(self, line: bytes) -> Tuple[Dict[str, Any], Optional[Request], Optional[str]]:
        """Its "id", where it has one, to be given back; and a request or what is wrong with it."""
        head: Dict[str, Any] = {}
        try:
            given = parse(line)
            if isinstance(given, dict) and "id" in given:
                head["id"] = given["id"]
            return head, self.request(given), None
        except (ValueError, AvocetError) as error:
            return head, None, str(error)
        except RecursionError:
            return head, None, "nested too deeply"


__all__ = ["Lines", "adapters_of", "parse"]
