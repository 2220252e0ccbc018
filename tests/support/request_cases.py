"""Requests that every interface must treat alike: HTTP, `run --prompts` and Python."""

SAID = [{"role": "user", "content": "a"}]
MOST = 16777216

# (members beside or instead of the messages, part of the error). The whole texts are compared, too.
REFUSED = [
    ({"messages": [{"role": "usr", "content": "a"}]}, 'role is "usr", must be system'),
    ({"messages": [{"role": "user"}]}, "content is missing"),
    ({"messages": []}, "the list is empty"),
    ({"tempreature": 1}, 'unknown key "tempreature" in a request; did you mean "temperature"?'),
    ({"guided_json": {}}, 'unknown key "guided_json"'),
    ({"max_tokens": 0}, f"max_tokens is 0, must be 1 to {MOST}"),
    ({"max_tokens": -1}, f"max_tokens is -1, must be 1 to {MOST}"),
    ({"max_tokens": MOST + 1}, f"must be 1 to {MOST}"),
    ({"max_tokens": 1e300}, "max_tokens: 1e+300 is out of range"),
    ({"max_tokens": "9"}, "max_tokens must be an integer, found a string"),
    ({"max_completion_tokens": 0}, "max_completion_tokens is 0"),
    ({"temperature": -0.5}, "temperature is -0.5, must be 0 to 1e+06"),
    ({"temperature": 1000001}, "temperature is 1e+06, must be 0 to 1e+06"),
    ({"temperature": "hot"}, "temperature must be a number"),
    ({"top_p": 1.5}, "top_p is 1.5, must be 0 to 1"),
    ({"min_p": -1}, "min_p is -1, must be 0 to 1"),
    ({"typical_p": 0}, "typical_p is 0, must be 1e-06 to 1"),
    ({"top_k": -2}, "top_k is -2"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0"),
    ({"presence_penalty": 2e6}, "presence_penalty is 2e+06"),
    ({"frequency_penalty": -2e6}, "frequency_penalty is -2e+06"),
    ({"seed": 0.5}, "seed must be an integer"),
    ({"stop": 3}, "stop must be a string"),
    ({"stop": ["x"] * 65}, "stop has 65 strings, must have at most 64"),
    ({"stop": "x" * 1025}, "stop has 1025 bytes, must have at most 1024"),
    ({"stop": "a\0b"}, "zero byte"),
    ({"ignore_eos": 1}, "ignore_eos must be true or false, found an integer"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls must be true or false"),
    ({"priority": 16}, "priority is 16, must be 0 to 15"),
    ({"cache_salt": "x" * 257}, "cache_salt has 257 bytes, must have at most 256"),
    ({"cache_salt": 1}, "cache_salt must be a string"),
    ({"tools": 3}, "tools must be an array"),
    ({"tool_choice": "required"}, "tool_choice needs tools"),
    ({"response_format": {"type": "xml"}}, "xml"),
    ({"chat_template_kwargs": []}, "must be an object"),
]

ACCEPTED = [
    {"messages": [{"role": "developer", "content": "a"}, *SAID]},
    {"max_tokens": 2.0},
    {"max_completion_tokens": 2},
    {"temperature": 1e6, "top_p": 1, "top_k": -1, "seed": -1},
    {"temperature": None, "stop": None, "tempreature": None},
    {"typical_p": 1e-6, "repetition_penalty": 1e-6},
    {"stop": ["", "x"], "priority": 15},
    {"stop": ["x" * 1024] * 64},
]


def request(members):
    """With messages and a short answer, where the case does not say otherwise."""
    short = {} if "max_tokens" in members or "max_completion_tokens" in members else \
        {"max_tokens": 2}
    return {"messages": SAID, **short, **members}
