"""Requests of tests/golden/answers.py: sampling, stops, limits, grammars and tools as tables."""
import json

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                           "tags": {"type": "array", "items": {"enum": ["a", "b"]},
                                                    "maxItems": 2}},
          "required": ["name", "age"], "additionalProperties": False}
CHOICE = {"anyOf": [{"const": "yes"}, {"const": "no"}, {"type": "boolean"}]}
DATE = {"type": "object", "properties": {"on": {"type": "string", "format": "date"}},
        "required": ["on"], "additionalProperties": False}
LIST = 'root ::= item ("," item)*\nitem ::= [a-z]{2,4} ("=" [0-9]+)?\n'
ANSWER = 'root ::= ("yes" | "no" | "perhaps") "!"\n'
ALL = {"temperature": 1.25, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.9}
PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25}

# Lines of --prompts, also turned into flags of `run`. completed() adds defaults.
REQUESTS = {
    "greedy": {"prompt": "hello"},
    "greedy-long": {"prompt": "Once,there", "max_new_tokens": 40},
    "one-token": {"prompt": "x", "max_new_tokens": 1},
    "seed-1": {"prompt": "hello", "temperature": 1, "seed": 1},
    "seed-2": {"prompt": "hello", "temperature": 1, "seed": 2},
    "seed-large": {"prompt": "hello", "temperature": 1, "seed": 9223372036854775807},
    "hot": {"prompt": "hello", "temperature": 3.5, "seed": 3},
    "cold": {"prompt": "hello", "temperature": 0.125, "seed": 3},
    "top-k": {"prompt": "hello", "temperature": 1, "top_k": 5, "seed": 4},
    "top-p": {"prompt": "hello", "temperature": 1, "top_p": 0.5, "seed": 5},
    "min-p": {"prompt": "hello", "temperature": 2, "min_p": 0.1, "seed": 6},
    "typical-p": {"prompt": "hello", "temperature": 1, "typical_p": 0.5, "seed": 7},
    "all-filters": {"prompt": "hello", **ALL, "seed": 8, "max_new_tokens": 24},
    "repetition": {"prompt": "aabb", "repetition_penalty": 1.5, "max_new_tokens": 30},
    "presence": {"prompt": "aabb", "presence_penalty": 1.5, "max_new_tokens": 30},
    "frequency": {"prompt": "aabb", "frequency_penalty": 0.75, "max_new_tokens": 30},
    "penalties": {"prompt": "aabb", "temperature": 1, "seed": 9, **PENALTIES,
                  "max_new_tokens": 30},
    "everything": {"prompt": "aabb", **ALL, **PENALTIES, "seed": 10, "logprobs": 2},
    "logprobs-1": {"prompt": "hello", "logprobs": 1},
    "logprobs-20": {"prompt": "hello", "logprobs": 20, "max_new_tokens": 5},
    "logprobs-sampled": {"prompt": "hello", "temperature": 1, "seed": 11, "logprobs": 3},
    "stop": {"prompt": "hello", "stop": ['$"F', "8\x10"], "max_new_tokens": 45},
    "stops": {"prompt": "hello", "stop": ["never", 'G$"x', 'FRG$"', "[\u0627", "$"],
              "temperature": 1, "seed": 12, "max_new_tokens": 45},
    "stop-never": {"prompt": "hello", "stop": ["no such text"]},
    "stop-token": {"prompt": "hello", "stop_tokens": [72, 40, 41, 42], "temperature": 1,
                   "seed": 14, "max_new_tokens": 45},
    "stop-logprobs": {"prompt": "hello", "stop": ['"/_', "\u0765"], "logprobs": 1,
                      "max_new_tokens": 45},
    "ends": {"prompt": "hello", "temperature": 2, "seed": 46, "max_new_tokens": 45,
             "ignore_eos": False},
    "ends-late": {"prompt": "hello", "temperature": 2, "seed": 0, "max_new_tokens": 45,
                  "ignore_eos": False, "logprobs": 1},
    "ends-ignored": {"prompt": "hello", "temperature": 2, "seed": 46, "max_new_tokens": 45},
    "raw": {"prompt": "hello", "raw": True},
    "raw-sampled": {"prompt": "hello", "raw": True, "temperature": 1, "seed": 17},
    "system": {"prompt": "hello", "system": "be"},
    "json-object": {"prompt": "hello", "json_object": True, "temperature": 1, "seed": 18,
                    "max_new_tokens": 40},
    "schema": {"prompt": "hello", "json_schema": PERSON, "temperature": 1, "seed": 19,
               "max_new_tokens": 48},
    "schema-greedy": {"prompt": "hi", "json_schema": PERSON, "max_new_tokens": 48},
    "schema-choice": {"prompt": "hello", "json_schema": CHOICE, "temperature": 1, "seed": 20},
    "schema-date": {"prompt": "hello", "json_schema": DATE, "temperature": 1, "seed": 21,
                    "max_new_tokens": 48, "logprobs": 1},
    "gbnf": {"prompt": "hello", "grammar": LIST, "temperature": 1, "seed": 22,
             "max_new_tokens": 30},
    "gbnf-ends": {"prompt": "hello", "grammar": ANSWER, "temperature": 1, "seed": 23,
                  "ignore_eos": False},
    "gbnf-penalties": {"prompt": "hello", "grammar": LIST, **PENALTIES, "max_new_tokens": 30,
                       "stop": ["=7", ",zz"]},
}

# Requests that only --prompts can express.
LINES = {
    "messages": {"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "a"},
                              {"role": "assistant", "content": "b"},
                              {"role": "user", "content": "c"}]},
    "id-text": {"prompt": "hello", "id": "x\u00e9\n", "max_new_tokens": 3},
    "id-object": {"prompt": "hello", "id": {"b": [1, 2.5, None], "a": "x"}, "max_new_tokens": 3},
    "tokens": {"tokens": [5, 6, 7, 8, 9], "logprobs": 2},
    "scored": {"tokens": [5, 6, 7, 8, 9, 10, 11, 12], "prompt_logprobs": True, "logprobs": 3,
               "no_answer": True},
    "scored-answered": {"prompt": "hello", "prompt_logprobs": True, "logprobs": 1},
    "mean": {"tokens": list(range(5, 45)), "pooling": "mean"},
    "last": {"prompt": "hello", "pooling": "last"},
    "mean-scored": {"prompt": "hello", "raw": True, "pooling": "mean", "prompt_logprobs": True},
    "tenant": {"prompt": "hello", "tenant": "t", "priority": 3, "cache_salt": "s"},
    "whole-context": {"prompt": "hello", "max_new_tokens": 0},
}

# Stop strings for script C below: matches that start or end inside a token, overlapping stops, and
# a partial match that is still held back at the end of the answer.
STOPS = {
    "middle": {"stop": ["quoted"]},
    "across": {"stop": ["ds, \u201eq"]},
    "character": {"stop": ["\U0001f426"]},
    "first": {"stop": ["Plain"]},
    "last": {"stop": ["> 2."]},
    "earlier-wins": {"stop": ["call", "any"]},
    "overlapping": {"stop": ["without all", "out any"]},
    "one-in-the-other": {"stop": ["words, X", "word"]},
    "same-end": {"stop": ["uoted", "quoted"]},
    "held-back": {"stop": ["> 2.!"]},
    "held-back-cut": {"stop": ["words, X"], "max_new_tokens": 5},
    "token": {"stop_tokens": [371]},
    "both": {"stop": ["any"], "stop_tokens": [370]},
    "many": {"stop": [f"{first}{second}" for first in "xyz" for second in "abcdefg"] + ["ll"]},
    "logprobs": {"stop": ["words"], "logprobs": 1},
    "not-there": {"stop": ["no such text"]},
}


def completed(request):
    """Adds a token limit and ignore_eos, unless the request sets them."""
    rest = {} if "pooling" in request or "no_answer" in request else {"max_new_tokens": 16,
                                                                     "ignore_eos": True}
    return {**rest, **request}


def flags_of(request, grammar_file):
    """A request as flags of `avocet run`. `grammar_file` writes a grammar and returns its path."""
    found = []
    for key, value in request.items():
        flag = "--" + key.replace("_", "-")
        if key == "prompt":
            continue
        if key == "stop_tokens":
            found += [word for token in value for word in ("--stop-token", token)]
        elif key == "stop":
            found += [word for text in value for word in ("--stop", text)]
        elif key == "json_schema":
            found += [flag, json.dumps(value)]
        elif key == "grammar":
            found += [flag, grammar_file(value)]
        elif value is True:
            found += [flag]
        elif value is not False:
            found += [flag, value]
    return [request["prompt"], *found]


# ---- Scripted models: tool calls in four forms ----

START = ("{% if tools %}<|system|>{% for t in tools %}{{ t.function.name }} {% endfor %}<|end|>"
         "{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|user|>"
         "{% elif m.role == 'assistant' %}<|assistant|>{% else %}<|system|>{% endif %}"
         "{{ m.content }}{% for c in m.tool_calls or [] %}")
END = "{% endfor %}{% endfor %}"  # the last letter of the conversation selects the script
HERMES = (START + '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
          "{{ c.function.arguments | tojson }}}\n</tool_call>" + END)
MISTRAL = (START + '[TOOL_CALLS][{"name": "{{ c.function.name }}", "arguments": '
           "{{ c.function.arguments | tojson }}}]" + END)
LLAMA = (START + '{"name": "{{ c.function.name }}", "parameters": '
         "{{ c.function.arguments | tojson }}}" + END)
CODER = (START + "<tool_call>\n<function={{ c.function.name }}>\n"
         "{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n"
         "</parameter>\n{% endfor %}</function>\n</tool_call>" + END)
SCRIPTS = {
    "A": 'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "K\u00f6ln", '
         '"days": 3}}\n</tool_call>',
    "B": '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
         '<tool_call>{"name": "add", "arguments": {"a": 1.5, "b": [2, {"c": null}]}}</tool_call>',
    "C": "Plain words, \u201equoted\u201c \U0001f426, without any call: 1 < 2 & 3 > 2.",
    "D": '<tool_call>{"name": "weather", "arguments": {"city": </tool_call> is no call.',
    "E": "<think>First this, then that.</think>The answer is 42.",
}
SCRIPTED = {
    "hermes": (SCRIPTS, HERMES, ()),
    "mistral": ({"A": ["[TOOL_CALLS]", '[{"name": "weather", "arguments": {"city": "Oslo"}}, '
                       '{"name": "add", "arguments": {"a": 1, "b": 2}}]'],
                 "C": "Nothing to call."}, MISTRAL, ("[TOOL_CALLS]",)),
    "llama": ({"A": '{"name": "add", "parameters": {"a": -1e3, "b": "two"}}',
               "C": "Nothing to call."}, LLAMA, ()),
    "coder": ({"A": "Well.<tool_call>\n<function=weather>\n<parameter=city>\nNew York\n"
                    "</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
               "C": "Nothing to call."}, CODER, ()),
}
WEATHER = {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 6},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"], "additionalProperties": False}}
VARIABLES = {"a": "te\u00e4xt \"q\" <|end|>", "b": {"z": [1, 2.5, None, True], "y": {"x": ""}},
             "c": 1e300, "d": False, "enable_thinking": True}
ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": ADD}]
STRICT = [{"type": "function", "function": {**WEATHER, "strict": True}}]
RESPONSE_TOOLS = [{"type": "function", **WEATHER}, {"type": "function", **ADD}]
MESSAGE_TOOLS = [{"name": tool["name"], "description": tool.get("description", ""),
                  "input_schema": tool["parameters"]} for tool in (WEATHER, ADD)]
