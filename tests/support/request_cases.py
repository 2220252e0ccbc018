"""Requests that every interface must treat alike: HTTP, `run --prompts` and Python; and what only
one of them takes."""

SAID = [{"role": "user", "content": "a"}]
MOST = 16777216

# (members beside or instead of the messages, part of the error). The whole texts are compared, too.
REFUSED = [
    ({"messages": [{"role": "usr", "content": "a"}]}, 'role is "usr", must be system'),
    ({"messages": [{"role": "user"}]}, "content is missing"),
    ({"messages": []}, "the list is empty"),
    ({"tempreature": 1}, 'unknown key "tempreature" in a request; did you mean "temperature"?'),
    ({"guided_text": {}}, 'unknown key "guided_text"'),
    ({"guided_json": 3}, "guided_json must be an object, true, false or their text"),
    ({"guided_regex": "(a"}, "a group lacks its ')'"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice cannot be combined with"),
    ({"structured_outputs": {"lark": "x"}}, "structured_outputs.lark is not supported"),
    ({"min_tokens": -1}, "min_tokens is -1, must be 0 to"),
    ({"repetition_detection": {"max_pattern_size": 3}}, "min_count is 0"),
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
    ({"stop": ""}, "stop: an empty string would end every answer"),
    ({"stop": ["x", ""]}, "stop: an empty string would end every answer"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0] is -1, must be 0 to"),
    ({"stop_tokens": 3}, "stop_tokens must be an array"),
    ({"stop_token_ids": [1] * 65}, "stop_token_ids has 65 tokens, must have at most 64"),
    ({"max_new_tokens": -1}, f"max_new_tokens is -1, must be 0 to {MOST}"),
    ({"repeat_penalty": 0}, "repeat_penalty is 0"),
    ({"logit_bias": []}, "logit_bias must be an object"),
    ({"logit_bias": {"x": 1}}, 'logit_bias: "x" is not a token id'),
    ({"logit_bias": {"1": "x"}}, "logit_bias must be a number"),
    ({"logit_bias": {"1": 1e10}}, "logit_bias is 1e+10"),
    ({"logprobs": "x"}, "logprobs must be true, false or an integer"),
    ({"logprobs": 21}, "logprobs is 21, must be 0 to 20"),
    ({"top_logprobs": 2}, "top_logprobs needs logprobs: true"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21, must be 0 to 20"),
    ({"deadline_ms": -1}, "deadline_ms is -1, must be 0 to 1e+12"),
    ({"deadline": -1}, "deadline is -1, must be 0 to 1e+09"),
    ({"first_token_deadline_ms": "x"}, "first_token_deadline_ms must be a number"),
    ({"first_token_deadline": 1e10}, "first_token_deadline is 1e+10"),
    ({"speculation": "magic"}, "speculation"),
    ({"speculation": 3}, "speculation must be a string"),
    ({"draft_tokens": 0}, "draft_tokens is 0, must be 1 to 16"),
    ({"grammar": 3}, "grammar must be a string"),
    ({"json_object": 3}, "json_object must be true or false"),
    ({"json_schema": 3}, "json_schema must be an object, true, false or their text"),
    ({"json_object": True, "json_schema": {}}, "json_object cannot be combined with json_schema"),
    ({"grammar": "root ::= [a]", "response_format": {"type": "json_object"}},
     "grammar cannot be combined with response_format"),
    ({"adapters": 3}, "adapters must be an array"),
    ({"adapters": [3]}, "an adapter must be"),
    ({"adapters": [{"name": "x", "wieght": 1}]}, 'unknown key "wieght" in an adapter'),
    ({"adapters": [{"weight": 1}]}, 'an adapter has no "name"'),
    ({"adapters": [{"name": "x", "weight": 1e9}]}, "weight is 1e+09"),
    ({"adapter": ["x"]}, 'use "adapters" for several'),
    ({"adapter": "x", "adapters": []}, "not both"),
    ({"modalities": ["text", "audio"]}, "modalities: only text is supported"),
    ({"audio": {"voice": "x"}}, "audio is not supported: answers are text only"),
    ({"functions": [{}]}, "functions is not supported: use tools"),
    ({"n": 0}, "n is 0, must be 1 to 128"),
    ({"tools": None, "tool_choice": "required"}, "tool_choice needs tools"),
]

ACCEPTED = [
    {"messages": [{"role": "developer", "content": "a"}, *SAID]},
    {"max_tokens": 2.0},
    {"max_completion_tokens": 2},
    {"min_tokens": 2, "repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
    {"guided_regex": "[a-z]+", "guided_decoding_backend": "auto"},
    {"structured_outputs": {"choice": ["a", "b"]}},
    {"temperature": 1e6, "top_p": 1, "top_k": -1, "seed": -1},
    {"temperature": None, "stop": None, "tempreature": None},
    {"typical_p": 1e-6, "repetition_penalty": 1e-6},
    {"stop": ["y", "x"], "priority": 15},
    {"stop": [], "stop_token_ids": [3], "stop_tokens": [4]},
    {"max_new_tokens": 2},
    {"repeat_penalty": 1.5, "logit_bias": {"5": -100, "6": 2.5}},
    {"logprobs": True, "top_logprobs": 2},
    {"logprobs": False},
    {"logprobs": 3},
    {"deadline_ms": 60000, "first_token_deadline_ms": 60000},
    {"deadline": 60, "first_token_deadline": 60},
    {"speculation": "off", "draft_tokens": 3},
    {"json_object": True},
    {"json_schema": {"const": 1}},
    {"json_schema": '{"const": 1}', "response_format": {"type": "text"}},
    {"adapters": []},
    {"modalities": ["text"], "audio": None, "functions": [], "function_call": "none"},
    {"id": "mine", "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
     "safety_identifier": "x", "prompt_cache_key": "x", "reasoning_effort": "low",
     "verbosity": "low", "prediction": {}, "prompt_cache_retention": "24h", "cache_prompt": True},
    {"n": 1, "stream": False, "stream_options": None, "reasoning_format": "none", "raw": False,
     "no_answer": False},
    {"stop": ["x" * 1024] * 64},
]


def request(members):
    """With messages and a short answer, where the case does not say otherwise."""
    short = {} if "max_tokens" in members or "max_completion_tokens" in members else \
        {"max_tokens": 2}
    return {"messages": SAID, **short, **members}


# What differs, and why: (members, what HTTP says, what the others say); None: accepted.
DIFFERENT = [
    # An object of --prompts or Python is for one model, which is open; HTTP serves names.
    ({"model": "other"}, "other", "model is not supported: the model is already open"),
    # How answers travel is HTTP's own matter; elsewhere a flag or a call says it.
    ({"stream": True}, None, "stream is not supported"),
    ({"stream_options": {"include_usage": True}}, None, "stream_options is not supported"),
    ({"reasoning_format": "deepseek"}, None, "reasoning_format is not supported"),
    # One object has one answer.
    ({"n": 2}, None, "n is 2, must be 1 here"),
    # Ids of /lora-adapters.
    ({"lora": [{"id": 9, "scale": 1}]}, "no adapter has id 9", "lora is not supported"),
    # HTTP knows by the key who asks, and by the endpoint what is asked.
    ({"tenant": "t"}, "tenant is not supported", None),
    ({"prompt_logprobs": True}, "prompt_logprobs must be an integer, found a boolean", None),
    ({"prompt_logprobs": 1}, None, "prompt_logprobs must be true or false"),
    ({"no_answer": True}, "no_answer is not supported", None),
    ({"pooling": "mean"}, "pooling is not supported", None),
    ({"raw": True}, "raw is not supported: use /v1/completions", None),
    ({"system": "s"}, "system is not supported", None),
    ({"prompt": "p"}, "prompt is not supported", 'give one of "prompt", "messages" and "tokens"'),
    ({"tokens": [1]}, "tokens is not supported", 'give one of "prompt", "messages" and "tokens"'),
    # HTTP lists the names that the key may use.
    ({"adapter": "none"}, "none", 'adapter "none" is not loaded'),
    # A field of /v1/completions.
    ({"echo": True}, "echo is not supported: use /v1/completions",
     "echo is not supported: use prompt_logprobs"),
    ({"suffix": "x"}, 'unknown key "suffix"', "suffix is not supported"),
    ({"best_of": 2}, 'unknown key "best_of"', "best_of is 2, must be 1 here"),
]

# With prompts that are continued as they are: /v1/completions, and raw elsewhere.
RAW_REFUSED = [
    ({"max_tokens": -1}, f"max_tokens is -1, must be 0 to {MOST}"),
    ({"stop": ""}, "stop: an empty string would end every answer"),
    ({"logprobs": 21}, "logprobs is 21, must be 0 to 20"),
    ({"tempreature": 1}, 'did you mean "temperature"?'),
]
RAW_ACCEPTED = [{"max_tokens": 0}, {"max_tokens": 2, "logprobs": 2}, {"max_new_tokens": 2}]
