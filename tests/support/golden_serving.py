"""Jobs of tests/golden/answers.py that run `avocet serve`: every endpoint, whole and streamed, one
request at a time and many at once. Each job is one server."""
import json
import re
from concurrent.futures import ThreadPoolExecutor

from api_server import Server
from golden_jobs import ISA_FLAG, LETTERS_ADAPTERS, Job, environment
from golden_models import TEXT as LONG
from golden_requests import (ALL, CHOICE, LIST, MESSAGE_TOOLS, PENALTIES, PERSON, RESPONSE_TOOLS,
                             SCRIPTED, STOPS, STRICT, TOOLS, VARIABLES)

CHAT, TEXT, RESPONSES, MESSAGES = ("/v1/chat/completions", "/v1/completions", "/v1/responses",
                                   "/v1/messages")
IDENTITY = re.compile(rb"\b(chatcmpl-|cmpl-|resp_|msg_|fc_|call_|toolu_|embd-)([0-9a-zA-Z]{16,})")
HEADERS = ("date", "x-request-id", "content-length")  # not recorded: they vary


# ---- Normalising ----

def without_chance(data):
    """Replaces random ids by their order of appearance, timings and the version by #. Leaves out
    how much was drafted, which depends on what steps cost."""
    seen = {}

    def number(found):
        name = found[2][:32]  # items of a response append their index to its 32 digits
        order = seen.setdefault(name, len(seen))
        return found[1] + b"<%d>" % order + found[2][32:]
    data = re.sub(rb'"timings":\{[^}]*\}',
                  lambda found: re.sub(rb":(?:-?[\d.eE+-]+|null)", b":#", found[0]), data)
    data = re.sub(rb'"(created|created_at)":\d+', rb'"\1":#', data)
    data = re.sub(rb',"(accepted|rejected)_prediction_tokens":\d+', b"", data)
    data = re.sub(rb'"avocet-\d+\.\d+\.\d+"', b'"avocet-#"', data)
    return IDENTITY.sub(number, data)


def in_order(data):
    """Groups events by choice: events of different choices interleave in any order."""
    choices, rest = {}, []
    for event in data.split(b"\n\n"):
        found = re.match(rb"data: (\{.*\})$", event)
        told = json.loads(found[1]) if found else {}
        if told.get("choices"):
            choices.setdefault(told["choices"][0]["index"], []).append(event)
        else:
            rest.append(event)
    return b"\n\n".join([event for index in sorted(choices) for event in choices[index]] + rest)


ANSWERS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def greedy(path, body):
    """Answers that name no temperature are greedy, which is not the server's default."""
    if path not in ANSWERS or not isinstance(body, dict):
        return body
    return {"temperature": 0, **body}


def ask(server, path, body):
    body = greedy(path, body)
    status, headers, data = server.ask("POST" if body is not None else "GET", path, body)
    if status != 200:
        raise AssertionError(f"{path}: {status}: {data[:400]!r}")
    if headers["Content-Type"].startswith("text/event-stream"):
        data = in_order(data)
    return without_chance(data)


def heads(server, path, body):
    """Status and headers, sorted by name."""
    status, headers, _ = server.ask("POST" if body is not None else "GET", path, body)
    kept = sorted(f"{name.lower()}: {value}" for name, value in headers.items()
                  if name.lower() not in HEADERS)
    return "\n".join([str(status), *kept]).encode()


# ---- Requests ----

def user(text, *before):
    return [*before, {"role": "user", "content": text}]


def openai(request):
    return {"seed": 1, "max_tokens": 12, "ignore_eos": True, **request}


def schema(of):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": of}}


VARIED = {
    "greedy": {"temperature": 0},
    "seed-2": {"temperature": 1, "seed": 2},
    "filters": {**ALL, "seed": 3},
    "penalties": {"temperature": 1, "seed": 4, **PENALTIES},
    "stop": {"temperature": 1, "seed": 5, "stop": ["e", "A", "k", "9"], "max_tokens": 40},
    "stop-greedy": {"temperature": 0, "stop": ['$"F', "8\x10"], "max_tokens": 40},
    "stop-token": {"temperature": 1, "seed": 6, "stop_token_ids": [72, 40, 41], "max_tokens": 40},
    "bias": {"temperature": 0, "logit_bias": {"50": 4, "54": -100}},
    "ends": {"temperature": 2, "seed": 46, "ignore_eos": False, "max_tokens": 40},
    "json-object": {"temperature": 1, "seed": 8, "response_format": {"type": "json_object"},
                    "max_tokens": 40},
    "schema": {"temperature": 1, "seed": 9, "response_format": schema(PERSON), "max_tokens": 48},
    "choice": {"temperature": 1, "seed": 10, "response_format": schema(CHOICE)},
    "gbnf": {"temperature": 1, "seed": 11, "grammar": LIST},
    "adapter": {"model": "x", "temperature": 0},
    "adapters": {"temperature": 0, "adapters": [{"name": "x", "weight": 0.5}, {"name": "y"}]},
    "adapter-number": {"temperature": 0, "lora": [{"id": 1, "scale": 0.75}]},
}


def varied():
    """Maps a name to (path, body): each of VARIED as a chat and as a completion."""
    found = {}
    for name, request in VARIED.items():
        found[f"chat/{name}"] = CHAT, openai({"messages": user("hello"), **request})
        found[f"text/{name}"] = TEXT, openai({"prompt": "hello", **request})
    found["chat/logprobs"] = CHAT, openai({"messages": user("hello"), "logprobs": True,
                                           "top_logprobs": 3, "temperature": 1})
    found["text/logprobs"] = TEXT, openai({"prompt": "hello", "logprobs": 2, "temperature": 1})
    return found


def single():
    """Requests that are sent whole and streamed. Prompts are shorter than a KV page, so that
    cached_tokens is 0 in any order of requests."""
    found = varied()
    talk = [{"role": "system", "content": "be"}, *user("a"), {"role": "assistant", "content": "b"}]
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    found.update({
        "chat/talk": (CHAT, openai({"messages": user("c", *talk)})),
        "chat/parts": (CHAT, openai({"messages": [{"role": "user", "content": parts}]})),
        "chat/usage": (CHAT, openai({"messages": user("hello"),
                                     "stream_options": {"include_usage": True}})),
        "chat/several": (CHAT, openai({"messages": user("hello"), "n": 3, "temperature": 1,
                                       "stream_options": {"include_usage": True}})),
        "chat/several-logprobs": (CHAT, openai({"messages": user("hello"), "n": 2,
                                                "temperature": 1, "logprobs": True})),
        "text/several": (TEXT, openai({"prompt": ["ab", "cd", "ef"], "n": 2, "temperature": 1})),
        "text/ids": (TEXT, openai({"prompt": [5, 6, 7, 8]})),
        "text/echo": (TEXT, openai({"prompt": "hello", "echo": True})),
        "text/scored": (TEXT, openai({"prompt": [[5, 6, 7, 8], [9, 10]], "max_tokens": 1,
                                      "logprobs": 1, "echo": True})),
        "responses/greedy": (RESPONSES, {"input": "hello", "max_output_tokens": 8, "seed": 1}),
        "responses/sampled": (RESPONSES, {"input": "hello", "max_output_tokens": 8, "seed": 1,
                                          "temperature": 1, "top_p": 0.9, "top_k": 40,
                                          "instructions": "be", "metadata": {"b": "1", "a": "2"},
                                          "include": ["message.output_text.logprobs"],
                                          "top_logprobs": 1}),
        "responses/items": (RESPONSES, {"input": user("c", *talk), "max_output_tokens": 8,
                                        "seed": 1}),
        "responses/schema": (RESPONSES, {"input": "hello", "max_output_tokens": 48, "seed": 1,
                                         "temperature": 1, "text": {"format": {
                                             "type": "json_schema", "name": "x",
                                             "schema": PERSON}}}),
        "messages/greedy": (MESSAGES, {"messages": user("hello"), "max_tokens": 8, "seed": 1}),
        "messages/stop": (MESSAGES, {"messages": user("hello"), "max_tokens": 40, "seed": 1,
                                     "temperature": 1, "system": "be",
                                     "stop_sequences": ["e", "A", "k", "9"]}),
        "messages/talk": (MESSAGES, {"messages": user("c", *talk[1:]), "max_tokens": 8, "seed": 1,
                                     "system": [{"type": "text", "text": "be"}]}),
    })
    return found


def whole_only():
    return {
        "text/nothing": (TEXT, {"prompt": [5, 6, 7, 8], "max_tokens": 0, "logprobs": 1,
                                "echo": True, "seed": 1}),
        "text/best": (TEXT, openai({"prompt": "hello", "n": 2, "best_of": 4, "temperature": 1,
                                    "logprobs": 0})),
        "embeddings": ("/v1/embeddings", {"input": ["abc", "d"]}),
        "embeddings/ids": ("/v1/embeddings", {"input": [5, 6, 7], "pooling": "last",
                                              "dimensions": 8, "normalize": False}),
        "embeddings/base64": ("/v1/embeddings", {"input": "abc", "encoding_format": "base64"}),
        "embeddings/adapter": ("/v1/embeddings", {"input": "abc", "model": "x"}),
        "tokenize": ("/tokenize", {"content": "hello"}),
        "tokenize/pieces": ("/tokenize", {"content": "he|o", "with_pieces": True}),
        "tokenize/talk": ("/tokenize", {"messages": user("hello"), "return_token_strs": True}),
        "tokenize/special": ("/tokenize", {"prompt": "a<|end|>", "parse_special": True}),
        "detokenize": ("/detokenize", {"tokens": [40, 41, 42, 2, 50]}),
        "count": ("/v1/messages/count_tokens", {"messages": user("hello"), "system": "be"}),
        "models": ("/v1/models", None),
        "model": ("/v1/models/x", None),
        "lora-adapters": ("/lora-adapters", None),
    }


def with_streams(requests):
    found = {}
    for name, (path, body) in requests.items():
        found[name] = path, body
        if path in (CHAT, TEXT, RESPONSES, MESSAGES):
            found[f"{name}/stream"] = path, {**body, "stream": True}
    return found


# ---- Servers ----

def served(scratch, model, requests, together, *flags):
    """Sends the requests one at a time, then those of `together` again concurrently; the answers
    must be the same."""
    with Server(model, "--name", "tiny", *flags, cwd=scratch, env=environment()) as server:
        answers = {name: ask(server, path, body) for name, (path, body) in requests.items()}
        with ThreadPoolExecutor(12) as pool:
            again = {name: pool.submit(ask, server, *requests[name]) for name in together}
            for name, future in again.items():
                if future.result() != answers[name]:
                    raise AssertionError(f"{name}: concurrent requests change the answer")
        head = [heads(server, path, body) for path, body in (
            (CHAT, openai({"messages": user("hello")})),
            (CHAT, openai({"messages": user("hello"), "stream": True})), ("/v1/models", None))]
    return [*answers.values(), *head]


def serve_jobs(scratch, isa):
    requests = {**with_streams(single()), **whole_only()}
    together = [name for name, (path, body) in requests.items() if body is not None]
    adapters = {"letters": [f"adapters/{name}" for name in LETTERS_ADAPTERS],
                "bytes": ["one", "two"]}
    for model, threads in (("letters", 1), ("bytes", 2)):
        chosen = [word for name, path in zip("xyz", adapters[model])
                  for word in ("--adapter", f"{name}={path}")]
        flags = [ISA_FLAG, isa, "--threads", threads, "--sessions", 6, "--rows", 64, *chosen]
        names = [*requests, *(f"head/{kind}" for kind in ("whole", "stream", "get"))]
        yield Job(isa, [f"serve/{model}/{name}" for name in names],
                  lambda model=model, flags=flags: served(scratch, model, requests, together,
                                                          *flags), f"{threads} threads")
    yield Job(isa, [f"serve/cached/{name}" for name in repeated()], lambda: cached(scratch, isa))


def repeated():
    """Requests that find their prompts in the prefix cache, in this order."""
    prompt = LONG[:300]
    found = {"first": (TEXT, {"prompt": prompt}), "second": (TEXT, {"prompt": prompt}),
             "longer": (TEXT, {"prompt": LONG[:500]}),
             "other-salt": (TEXT, {"prompt": prompt, "cache_salt": "s"}),
             "other-adapter": (TEXT, {"prompt": prompt, "model": "x"}),
             "prefix": (TEXT, {"prompt": prompt[:100]}),
             "again-scored": (TEXT, {"prompt": prompt, "echo": True, "logprobs": 1})}
    found = {name: (path, openai(body)) for name, (path, body) in found.items()}
    for round_ in ("miss", "hit", "stream"):
        stream = {"seed": 1, "stream": round_ == "stream"}
        found[f"chat/{round_}"] = CHAT, {"messages": user(LONG[10:200]), "max_tokens": 8, **stream}
        found[f"messages/{round_}"] = MESSAGES, {"messages": user(LONG[20:200]), "max_tokens": 8,
                                                 **stream}
        found[f"responses/{round_}"] = RESPONSES, {"input": LONG[30:200], "max_output_tokens": 8,
                                                   **stream}
    return found


def cached(scratch, isa):
    """`cached_tokens` is part of the answer."""
    with Server("bytes", "--name", "tiny", ISA_FLAG, isa, "--adapter", "x=one", cwd=scratch,
                env=environment()) as server:
        return [ask(server, path, body) for path, body in repeated().values()]


# ---- Tool calls ----

def called(form):
    """Requests to a scripted model."""
    def chat(text, **more):
        return CHAT, {"messages": user(text), "seed": 1, "tools": TOOLS, **more}
    found = {}
    for letter in SCRIPTED[form][0]:
        ending = f"Well? {letter}"
        found[f"chat/{letter}"] = chat(ending)
        found[f"responses/{letter}"] = RESPONSES, {"input": ending, "seed": 1,
                                                   "tools": RESPONSE_TOOLS}
        found[f"messages/{letter}"] = MESSAGES, {"messages": user(ending), "max_tokens": 200,
                                                 "seed": 1, "tools": MESSAGE_TOOLS}
    if form == "hermes":
        found.update(stopped())
    found["chat/cut"] = chat("Well? A", max_tokens=8)
    found["responses/cut"] = RESPONSES, {"input": "Well? A", "seed": 1, "max_output_tokens": 8,
                                         "tools": RESPONSE_TOOLS}
    found["messages/cut"] = MESSAGES, {"messages": user("Well? A"), "max_tokens": 8, "seed": 1,
                                       "tools": MESSAGE_TOOLS}
    found["chat/none"] = chat("Well? A", tool_choice="none")
    found["chat/no-tools"] = CHAT, {"messages": user("Well? A"), "seed": 1}
    found["chat/logprobs"] = chat("Well? A", logprobs=True, top_logprobs=1)
    found["chat/several"] = chat("Well? A", n=2)
    found["chat/required"] = chat("x", tool_choice="required", max_tokens=120, temperature=1)
    found["chat/named"] = chat("x", max_tokens=120, temperature=1, tool_choice={
        "type": "function", "function": {"name": "weather"}})
    found["chat/strict"] = CHAT, {"messages": user("Well? A"), "seed": 1, "tools": STRICT,
                                  "max_tokens": 120}
    found["messages/any"] = MESSAGES, {"messages": user("x"), "max_tokens": 120, "seed": 1,
                                       "temperature": 1, "tools": MESSAGE_TOOLS,
                                       "tool_choice": {"type": "any"}}
    found["responses/required"] = RESPONSES, {"input": "x", "seed": 1, "max_output_tokens": 120,
                                              "temperature": 1, "tools": RESPONSE_TOOLS,
                                              "tool_choice": "required"}
    found.update(answered_calls())
    return found


def stopped():
    """Stop strings: the answer names the one that matched."""
    found = {}
    for name, request in STOPS.items():
        body = {"seed": 1, "max_tokens": request.get("max_new_tokens", 60)}
        stop = {"stop": request.get("stop", []), "stop_token_ids": request.get("stop_tokens", [])}
        asked = {"messages": user("Well? C")}
        found[f"chat/stop/{name}"] = CHAT, {**asked, **body, **stop}
        found[f"chat/stop-tools/{name}"] = CHAT, {**asked, **body, **stop, "tools": TOOLS}
        found[f"text/stop/{name}"] = TEXT, {"prompt": "Well? C", **body, **stop,
                                            "logprobs": request.get("logprobs")}
        found[f"messages/stop/{name}"] = MESSAGES, {**asked, **body,
                                                    "stop_sequences": stop["stop"]}
    return found


def answered_calls():
    """Conversations with a tool call and its result."""
    arguments = {"city": "Oslo"}
    return {
        "chat/result": (CHAT, {"seed": 1, "tools": TOOLS, "messages": user(
            "?", {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [{
                "id": "call_1", "type": "function", "function": {
                    "name": "weather", "arguments": json.dumps(arguments)}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"}) + user("so C")}),
        "responses/result": (RESPONSES, {"seed": 1, "tools": RESPONSE_TOOLS, "input": [
            {"role": "user", "content": "q"},
            {"type": "function_call", "call_id": "call_1", "name": "weather",
             "arguments": json.dumps(arguments)},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain C"}]}),
        "messages/result": (MESSAGES, {"seed": 1, "tools": MESSAGE_TOOLS, "max_tokens": 200,
                                       "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1",
                                               "name": "weather", "input": arguments}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                          "content": "rain C"}]}]}),
    }


def tool_jobs(scratch, isa):
    """Servers with tools, one per form of tool calls."""
    forms = {form: (form, called(form)) for form in SCRIPTED}
    forms["described"] = "bytes", described()
    forms["shown"] = "showing", shown()
    for form, (model, requests) in forms.items():
        requests = with_streams(requests)
        names = [*requests, *(f"head/{kind}" for kind in ("whole", "stream", "get"))]
        yield Job(isa, [f"tools/{form}/{name}" for name in names],
                  lambda model=model, requests=requests: served(
                      scratch, model, requests, [], ISA_FLAG, isa, "--threads", 1,
                      "--no-prefix-cache"))


def shown():
    """Template variables, tools and tool calls as a template sees them."""
    brief = {"max_tokens": 4}
    counted = {"messages": user("hi"), "return_token_strs": True}
    kept = {"logprobs": True, "top_logprobs": 1, "max_tokens": 4}
    found = {f"calls/{name}": (path, {**body, **brief}) for name, (path, body)
             in answered_calls().items() if path != RESPONSES}
    path, body = answered_calls()["responses/result"]
    named = [{"role": "user", "name": "ann", "content": "hi"}]
    found.update({
        "calls/responses/result": (path, {**body, "max_output_tokens": 4}),
        "chat/variables": (CHAT, {"messages": user("hi"), "seed": 1, **kept,
                                  "chat_template_kwargs": VARIABLES}),
        "chat/variables-tools": (CHAT, {"messages": user("hi"), "seed": 1, **kept, "tools": TOOLS,
                                        "chat_template_kwargs": {"a": [], "d": -0.0}}),
        "chat/no-variables": (CHAT, {"messages": user("hi"), "seed": 1, **kept}),
        "chat/developer": (CHAT, {"messages": user("hi", {"role": "developer", "content": "be"}),
                                  "seed": 1, **kept}),
        "chat/named": (CHAT, {"messages": named, "seed": 1, **kept}),
        "tokenize/variables": ("/tokenize", {**counted, "chat_template_kwargs": VARIABLES}),
        "tokenize/closed": ("/tokenize", {**counted, "add_generation_prompt": False}),
        "count/tools": ("/v1/messages/count_tokens", {"messages": user("hi"),
                                                      "tools": MESSAGE_TOOLS}),
    })
    return found


def described():
    """A template without tools: the server describes them in the system message."""
    return {
        "chat/auto": (CHAT, {"messages": user("x"), "seed": 1, "tools": TOOLS, "max_tokens": 20}),
        "chat/required": (CHAT, {"messages": user("x"), "seed": 1, "tools": TOOLS,
                                 "tool_choice": "required", "max_tokens": 150, "temperature": 1}),
        "messages/any": (MESSAGES, {"messages": user("x"), "max_tokens": 150, "seed": 1,
                                    "temperature": 1, "tools": MESSAGE_TOOLS,
                                    "tool_choice": {"type": "any"}}),
        "responses/required": (RESPONSES, {"input": "x", "seed": 1, "max_output_tokens": 150,
                                           "temperature": 1, "tools": RESPONSE_TOOLS,
                                           "tool_choice": "required"}),
    }
