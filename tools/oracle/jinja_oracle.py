"""jinja2 configured exactly as transformers configures it for chat templates, with a fixed clock.

The environment is transformers' own (its compile function); only strftime_now is replaced.
"""

import copy
import datetime
import functools
import json
import re

from transformers.utils.chat_template_utils import _cached_compile_jinja_template

NOW = 1753280096  # 2025-07-23 14:14:56 UTC; CASES_NOW in tests/support/template_cases.h
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def strftime_now(format):
    moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    return moment.replace(tzinfo=None).strftime(format)


@functools.lru_cache(maxsize=64)
def compile(source):
    return _cached_compile_jinja_template(source)


def render(source, variables):
    """The text, or None where jinja2 fails, and the exception."""
    try:
        template = compile(source)
        template.environment.globals["strftime_now"] = strftime_now
        template.globals["strftime_now"] = strftime_now
        text = template.render(**copy.deepcopy({**variables, **TOKENS}))  # indent changes lists in place
        text.encode()  # a lone surrogate is no text
        if re.search(" at 0x[0-9a-f]{6}", text):
            raise ValueError("the text has an address in it: we refuse to print such values")
        return text, None
    except Exception as error:
        return None, error


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write(path, value, indent=None):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)
        file.write("\n")
