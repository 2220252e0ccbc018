#!/usr/bin/env python3
"""Makes tests/fixtures/template/: conversations.json and models.json (what jinja2 renders from the
shared templates: the first 8 digits of a hash, or "error"), constructs.json (templates of our own with their output).

usage: template_vectors.py SHARED_DATA_FOLDER
"""

import json
import pathlib
import sys

from jinja_oracle import fnv1a, render, write
from template_constructs import CONSTRUCTS, VARIABLES

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "tests" / "fixtures" / "template"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.\nUse it often.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Town, \"country\" <b>"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": "integer", "minimum": 1, "nullable": True},
                "options": {
                    "type": "object",
                    "properties": {"wind": {"type": "boolean"}, "levels": {"type": "array", "items": {"type": "number"}}},
                    "required": ["wind"],
                },
                "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
                "any": {"type": ["string", "null"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "required": ["place"],
        },
        "return": {"type": "string", "description": "a sentence"},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds things – überall.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}
NOTHING = {"type": "function", "function": {"name": "noop", "description": "Does nothing", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="abc123def"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


SYSTEM = {"role": "system", "content": "You are helpful.\nBe brief."}

CHATS = {
    "empty": [],
    "hello": [user("Hello!")],
    "system": [SYSTEM, user("Hi")],
    "turns": [SYSTEM, user("1+1?"), assistant("2"), user("And 2+2?"), assistant("4"), user("Thanks")],
    "ends_assistant": [user("Say"), assistant("Said.")],
    "two_users": [user("one"), user("two")],
    "assistant_first": [assistant("I begin"), user("No")],
    "unicode": [{"role": "system", "content": "Ünïcödé ✓"}, user("日本語 🎉 e\u0301 \u200d\u00a0x ﷽"), assistant("Ωμέγα ß"), user("\t tab\n\nnewlines \r\n end  ")],
    "html": [user("<b>&amp;\"'</b> {{ x }} {% if %} \\n %s {0}"), assistant("`code` <|x|>"), user("ok")],
    "blank": [user(""), assistant(""), user("   ")],
    "none_content": [user("q"), assistant(None), user("r")],
    "no_content": [user("q"), {"role": "assistant"}, user("r")],
    "parts": [user([{"type": "text", "text": "look: "}, {"type": "image"}, {"type": "text", "text": "what?"}])],
    "parts_system": [{"role": "system", "content": [{"type": "text", "text": "Sys."}]}, user([{"type": "text", "text": "Hi"}]), assistant([{"type": "text", "text": "Yo"}]), user("x")],
    "image_url": [user([{"type": "image_url", "image_url": {"url": "http://x"}}, {"type": "text", "text": "t"}, {"type": "video"}, {"type": "audio"}])],
    "reasoning": [user("q"), assistant("a", reasoning_content="Let me think.\nYes."), user("r"), assistant("b", reasoning_content="Hm."), user("s")],
    "thinking": [user("q"), assistant("<think>\nthoughts\n</think>\n\nanswer"), user("r")],
    "thinking_key": [user("q"), assistant("a", thinking="deep"), user("r")],
    "think_last": [user("q"), assistant("<think>t</think>a")],
    "call_dict": [user("w?"), assistant("", tool_calls=[call("get_weather", {"place": "Köln", "days": 2, "x": None, "f": 1.5, "ok": True, "l": [1, "a"], "o": {"k": "v"}})]), tool("sunny", tool_call_id="abc123def", name="get_weather"), user("and?")],
    "call_string": [user("w?"), assistant(None, tool_calls=[call("get_weather", '{"place": "Köln", "days": 2}')]), tool('{"t": 20}', tool_call_id="abc123def"), assistant("20 degrees")],
    "calls_two": [SYSTEM, user("w?"), assistant("I look.", tool_calls=[call("get_weather", {"place": "A"}, "aaaaaaaa1"), call("search", {"q": "<b>"}, "aaaaaaaa2")]), tool("rain", tool_call_id="aaaaaaaa1", name="get_weather"), tool("found", tool_call_id="aaaaaaaa2", name="search"), assistant("Rain."), user("ok")],
    "call_no_id": [user("w?"), assistant("", tool_calls=[{"type": "function", "function": {"name": "search", "arguments": {"q": "x"}}}]), tool("r", name="search"), user("u")],
    "call_bare": [user("w?"), assistant("", tool_calls=[{"name": "search", "arguments": {"q": "x"}}]), tool("r"), user("u")],
    "call_empty": [user("w?"), assistant("", tool_calls=[]), user("u")],
    "call_thinking": [user("w?"), assistant("", reasoning_content="I need it.", tool_calls=[call("search", {"q": "x"})]), tool("r", tool_call_id="abc123def"), assistant("done"), user("next")],
    "call_last": [user("w?"), assistant("", tool_calls=[call("search", {"q": "x"})])],
    "tool_dict": [user("w?"), assistant("", tool_calls=[call("search", {"q": "x"})]), {"role": "tool", "tool_call_id": "abc123def", "name": "search", "content": {"found": [1, 2]}}],
    "tool_parts": [user("w?"), assistant("", tool_calls=[call("search", {"q": "x"})]), tool([{"type": "text", "text": "part one"}, {"type": "text", "text": "two"}], tool_call_id="abc123def")],
    "developer": [{"role": "developer", "content": "Rules."}, user("Hi")],
    "late_system": [user("Hi"), SYSTEM, user("Again")],
    "strange_role": [user("Hi"), {"role": "narrator", "content": "Then…"}, user("?")],
    "observation": [user("w?"), {"role": "assistant", "content": "x", "metadata": "search"}, {"role": "observation", "content": "o"}, user("?")],
    "documents_role": [user("q"), {"role": "document", "content": "D"}, user("?")],
    "named": [{"role": "user", "name": "eva", "content": "I am Eva"}, {"role": "assistant", "name": "bot", "content": "Hi Eva"}, {"role": "user", "name": "eva", "content": "Bye"}],
    "not_a_list": "hello",
    "message_not_dict": ["hello"],
    "number_content": [user(42)],
    "python_tool": [user("run"), assistant("", tool_calls=[call("python", {"code": "print(1)"})]), tool("1", tool_call_id="abc123def", name="python"), user("x")],
    "long": [m for i in range(12) for m in (user(f"question {i}"), assistant(f"answer {i}"))] + [user("end")],
    "call_unicode_keys": [user("w"), assistant("", tool_calls=[call("search", {"ключ": "значение \"q\" \\ \n", "B": 1, "a": 2, "Z": -0.0, "big": 1e22, "small": 1e-7})]), tool("ok", tool_call_id="abc123def"), user("z")],
}

SPECIAL = "⟦<|im_start|>system <s></s>[INST] <|start_header_id|>x<|eot_id|> <start_of_turn><tool_call> %s<|end|>⟧"
TAINT = {
    "taint_plain": [{"role": "system", "content": SPECIAL}, user(SPECIAL), assistant(SPECIAL), user(SPECIAL.upper())],
    "taint_user": [user(SPECIAL), assistant(SPECIAL), user(SPECIAL), assistant(SPECIAL), user(SPECIAL)],
    "taint_tools": [user(SPECIAL), assistant(SPECIAL, reasoning_content=SPECIAL, tool_calls=[call("search", {"q": SPECIAL, "⟦<|k|>⟧": [SPECIAL]})]), tool(SPECIAL, tool_call_id="abc123def", name="search"), assistant(SPECIAL), user(SPECIAL)],
    "taint_string_arguments": [user(SPECIAL), assistant("", tool_calls=[call("search", json.dumps({"q": SPECIAL}, ensure_ascii=False))]), tool(SPECIAL, tool_call_id="abc123def"), user(SPECIAL)],
    "taint_parts": [user([{"type": "text", "text": SPECIAL}]), assistant("  " + SPECIAL + "  "), user(SPECIAL)],
}

OPTIONS = {
    "": {"add_generation_prompt": True, "tools": None, "documents": None},
    "_plain": {"add_generation_prompt": False, "tools": None, "documents": None},
    "_tools": {"add_generation_prompt": True, "tools": [WEATHER, SEARCH, NOTHING], "documents": None},
}
MORE_OPTIONS = {
    "_absent": {},
    "_think": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True},
    "_nothink": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    "_documents": {"add_generation_prompt": True, "documents": [{"title": "One", "text": "First text."}, {"title": "Zwei <b>", "text": "Second\ntext", "doc_id": 7}], "citation_mode": "fast", "controls": {"length": "short", "originality": "abstractive"}},
    "_options": {"add_generation_prompt": True, "tools": [SEARCH], "builtin_tools": ["python", "search"], "custom_tools": [NOTHING], "date_string": "1 Jan 2025", "tools_in_user_message": False, "reasoning_effort": "high", "thinking_effort": "high", "clear_thinking": False, "preserve_thinking": True, "tool_choice": "required", "response_format": {"type": "json_schema", "json_schema": {"schema": {"b": 1, "a": [True, None]}}}, "model_identity": "X", "xml_tools": ["a"], "keep_past_thinking": True, "functions": "[]", "datetime": "now"},
    "_lang": {"add_generation_prompt": True, "languages": ["de", "en"], "thinking_budget": 256, "reasoning_effort": "max", "thinking_mode": "on", "image_prompts": ["<i1>"], "parallel_tool_calls": False, "safety_mode": "none", "skip_preamble": True, "developer_instructions": "dev", "system_prompt": "sp"},
}


def conversations():
    """Pairs of a chat and a set of options, by name."""
    tools = json.loads(json.dumps([SEARCH]))
    tools[0]["function"]["description"] = SPECIAL
    tainted = {
        "_taint": {"add_generation_prompt": True, "enable_thinking": True},
        "_taint_tools": {"add_generation_prompt": True, "tools": tools, "documents": [{"title": SPECIAL, "text": SPECIAL}], "custom": SPECIAL, "functions": SPECIAL, "datetime": "now"},
    }
    chats = {**CHATS, **TAINT}
    options = {**OPTIONS, **MORE_OPTIONS, **tainted}
    pairs = [(chat, option) for chat in CHATS for option in OPTIONS]
    pairs += [(chat, option) for chat in ("system", "turns", "reasoning", "calls_two", "call_thinking", "parts", "thinking") for option in MORE_OPTIONS]
    pairs += [(chat, option) for chat in TAINT for option in tainted]
    return chats, options, pairs


def main():
    data = pathlib.Path(sys.argv[1]) / "templates"
    chats, options, pairs = conversations()
    table = {}
    errors = 0
    for path in sorted(data.glob("*.jinja")):
        row = []
        for chat, option in pairs:
            # JSON is what our engine gets: the same values here.
            variables = json.loads(json.dumps({"messages": chats[chat], **options[option]}))
            text, _ = render(path.read_text(encoding="utf-8"), variables)
            errors += text is None
            row.append("error" if text is None else fnv1a(text)[:8])
        table[path.stem] = row
    FIXTURES.mkdir(parents=True, exist_ok=True)
    write(FIXTURES / "conversations.json", {"chats": chats, "options": options, "pairs": pairs})
    write(FIXTURES / "models.json", table)
    print(len(table), "templates,", len(pairs), "conversations,", errors, "errors")

    cases = []
    for entry in CONSTRUCTS:
        source, variables = entry if isinstance(entry, tuple) else (entry, None)
        text, error = render(source, VARIABLES if variables is None else variables)
        case = {"template": source}
        if variables is not None:
            case["variables"] = variables
        if text is not None:
            case["output"] = text
        elif "-v" in sys.argv:
            print("error:", source, type(error).__name__, error)
        cases.append(case)
    write(FIXTURES / "constructs.json", {"variables": VARIABLES, "cases": cases}, indent=0)
    print(len(cases), "constructs,", sum("output" not in c for c in cases), "of them errors")


if __name__ == "__main__":
    main()
