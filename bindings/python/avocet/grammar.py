"""Grammars: what an answer may be."""
import ctypes
import json
from typing import Optional, Union

from . import _abi
from ._arguments import must_be, shown, text_of
from ._library import Owned, call, encoded, library, natives_of
from .model import Model

_GBNF, _SCHEMA, _JSON = 0, 1, 2

SchemaLike = Union[str, dict, bool, None]


class Grammar(Owned):
    """A GBNF grammar, or with `schema` a JSON schema (a text, a dict, or True: any JSON value), or
    with neither any JSON object. Compiled once for a model; any number of requests and threads may
    use it. With `trigger` an answer is free until that text appears in it, follows the grammar
    behind it, and is free again when that is complete."""

    _close = "avo_grammar_close"

    def __init__(self, model: Model, grammar: Optional[str] = None, *,
                 schema: SchemaLike = None, trigger: Optional[str] = None):
        must_be(Model, model=model)
        if grammar is not None and schema is not None:
            raise ValueError("give a grammar or a schema, not both")
        kind, text = _JSON, None
        if grammar is not None:
            kind, text = _GBNF, text_of("grammar", grammar)
        elif schema is not None:
            kind = _SCHEMA
            if not isinstance(schema, (str, dict, bool)):
                raise TypeError(f"schema must be a text, a dict or a bool, not {shown(schema)}")
            text = text_of("schema", schema if isinstance(schema, str) else json.dumps(schema))
        options = _abi.GrammarOptions(trigger=encoded(trigger))
        handle = _abi.Handle()
        self.model = model
        natives = natives_of(model)
        call(library.avo_grammar_open, natives[0], kind, text, ctypes.byref(options),
             ctypes.byref(handle))
        super().__init__(handle, natives, (model,))


GrammarLike = Union[Grammar, str, None]


def grammar_of(model: Model, grammar: GrammarLike, schema: SchemaLike) -> Optional[Grammar]:
    """What the arguments of a request mean; None: any answer."""
    if grammar is None and schema is None:
        return None
    if isinstance(grammar, Grammar):
        if schema is not None:
            raise ValueError("give a grammar or a schema, not both")
        return grammar
    return Grammar(model, grammar, schema=schema)
