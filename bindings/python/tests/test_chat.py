"""Conversations: tools, formats, reasoning, streams."""
import gc
import json
import os
import re
import subprocess
import weakref

import pytest

import avocet
import request_cases
from avocet import errors

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
    "additionalProperties": False}}}]
SAID = [{"role": "user", "content": "ab"}]


@pytest.fixture
def chat(chat_model_path):
    with avocet.Model(chat_model_path) as model:
        yield model


def test_content(chat):
    answer = chat.chat(SAID, max_tokens=8)
    assert isinstance(answer, avocet.ChatResult) and answer.new_tokens == 8
    assert answer.content == answer.text != "" and answer.reasoning == ""
    assert answer.tool_calls == [] and answer.finish_reason == "length"
    assert answer.message == {"role": "assistant", "content": answer.content}
    again = chat.chat([*SAID, answer.message, {"role": "user", "content": "c"}], max_tokens=4)
    assert again.prompt_tokens > answer.prompt_tokens


def test_tool_calls(chat):
    answer = chat.chat(SAID, tools=TOOLS, tool_choice="required", max_tokens=60)
    call, = answer.tool_calls
    assert call.name == "look" and json.loads(call.arguments)["n"] in (1, 2)
    assert (answer.content, answer.finish_reason) == ("", "tool_calls")
    assert "look" in answer.text  # all that the model wrote
    result = {"role": "tool", "tool_call_id": call.id, "content": "7"}
    after = chat.chat([*SAID, answer.message, result], tools=TOOLS, tool_choice="none",
                      max_tokens=4)
    assert after.tool_calls == [] and after.new_tokens == 4
    named = chat.chat(SAID, tools=TOOLS, max_tokens=60,
                      tool_choice={"type": "function", "function": {"name": "look"}})
    assert named.tool_calls[0].name == "look"


def test_stream(chat):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {
        "type": "object", "properties": {"n": {"enum": [1, 2]},
                                         "s": {"type": "string", "maxLength": 20}},
        "required": ["n", "s"], "additionalProperties": False}}}]
    asked = dict(tools=tools, tool_choice="required", max_tokens=120)
    whole = chat.chat(SAID, **asked)
    with chat.chat(SAID, **asked, stream=True) as stream:
        parts = [part for delta in stream for part in delta.tool_calls]
        result = stream.result()
    assert parts[0].name == "look" and parts[-1].complete and not parts[0].complete
    assert all(part.index == 0 for part in parts)
    assert [part.name for part in parts[1:]] == [None] * (len(parts) - 1)
    joined = "".join(part.arguments for part in parts)
    assert joined == result.tool_calls[0].arguments == whole.tool_calls[0].arguments
    words = chat.chat(SAID, max_tokens=8, stream=True)
    assert "".join(delta.content for delta in words) == chat.chat(SAID, max_tokens=8).content
    assert list(words) == [] and words.result().new_tokens == 8


def test_a_stream_that_is_left_is_cancelled(endless_model_path):
    with avocet.Model(endless_model_path) as model:
        stream = model.chat(SAID, max_tokens=130000, ignore_eos=True, stream=True)
        next(stream)
        stream.close()
        assert stream.result().finish == "cancelled" and list(stream) == []


def test_response_formats(chat):
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes"]}}}
    answer = chat.chat(SAID, response_format=schema, max_tokens=60)
    assert answer.content == '"yes"' and answer.finish_reason == "stop"
    assert chat.chat(SAID, grammar='root ::= "no"', max_tokens=9).content == "no"
    plain = chat.chat(SAID, response_format={"type": "text"}, max_tokens=8)
    assert plain.content == chat.chat(SAID, max_tokens=8).content


def test_reasoning(chat):
    rules = 'root ::= "<think>why</think>\\nbecause"'
    answer = chat.chat(SAID, grammar=rules, max_tokens=60)
    assert (answer.reasoning, answer.content) == ("why", "because")
    deltas = list(chat.chat(SAID, grammar=rules, max_tokens=60, stream=True))
    assert "".join(delta.reasoning for delta in deltas) == "why"
    assert "".join(delta.content for delta in deltas) == "because"
    request = avocet.ChatRequest(chat, {"messages": SAID, "grammar": rules, "max_tokens": 60},
                                 reasoning=False)
    kept = chat._scheduler().submit(request).result()
    assert (kept.reasoning, kept.content) == ("", "<think>why</think>\nbecause")


def test_sampling_and_defaults(chat):
    drawn = avocet.Sampling(temperature=1.5, seed=3)
    one = chat.chat(SAID, sampling=drawn, max_tokens=12)
    assert one.content == chat.chat(SAID, temperature=1.5, seed=3, max_tokens=12).content
    assert one.content != chat.chat(SAID, temperature=0, max_tokens=12).content
    request = avocet.ChatRequest(chat, json.dumps({"messages": SAID, "logprobs": 2}), max_tokens=3,
                                 stop=["zz"], stop_tokens=[2])
    assert request.top_logprobs == 2 and request.adapters == []
    struct, _held = request._struct()
    assert (struct.max_new_tokens, struct.stop[0], struct.stop_tokens[0]) == (3, b"zz", 2)


def test_requests_run_together(chat):
    with avocet.Engine(chat, sessions_max=4, context_max=1024) as engine, \
            avocet.Scheduler(engine) as scheduler:
        requests = [avocet.ChatRequest(chat, {"messages": SAID, "max_tokens": n, "tools": TOOLS})
                    for n in (3, 5)]
        first, second, plain = scheduler.batch([*requests, "ab"], max_tokens=4)
        assert (first.new_tokens, second.new_tokens, plain.new_tokens) == (3, 5, 4)
        assert second.content.startswith(first.content) and not hasattr(plain, "content")
        with pytest.raises(TypeError, match="ChatRequest"):
            scheduler.submit(requests[0], max_tokens=4)


@pytest.mark.parametrize("keys, text", [
    ({"tool_choice": "most"}, "most"), ({"tools": 3}, "tools must be an array"),
    ({"tool_choice": "required"}, "tool_choice needs tools"),
    ({"response_format": {"type": "xml"}}, "xml"),
    ({"temprature": 1}, 'did you mean "temperature"'),
    ({"parallel_tool_calls": 1}, "true or false"), ({"prompt": "a"}, "one of"),
    ({"json_object": True, "grammar": "x"}, "cannot be combined"),
    ({"adapter": "none"}, "not loaded")])
def test_wrong_requests_say_why(chat, keys, text):
    with pytest.raises(avocet.AvocetError, match=text):
        chat.chat(SAID, **keys)


def test_wrong_arguments(chat, model):
    for messages in ("ab", SAID[0], b"ab"):
        with pytest.raises(TypeError, match="messages"):
            chat.chat(messages)
    with pytest.raises(avocet.ArgumentError, match="content"):
        chat.chat([{"role": "user"}])
    with pytest.raises(TypeError, match="body"):
        avocet.ChatRequest(chat, 5)
    with pytest.raises(avocet.FormatError):
        avocet.ChatRequest(chat, b'{"messages": NaN}')
    with pytest.raises(TypeError, match="Adapter"):
        chat.chat(SAID, adapters=[5])
    with pytest.raises(avocet.AvocetError, match="template"):
        model.chat(SAID)


def test_what_was_opened_is_closed(endless_model_path):
    model = avocet.Model(endless_model_path)
    stream = model.chat(SAID, max_tokens=130000, ignore_eos=True, stream=True)
    next(stream)
    model.close()
    assert stream.result().finish == "cancelled"
    with pytest.raises(ValueError, match="closed"):
        model.chat(SAID)
    gone = weakref.ref(model)
    del model, stream
    gc.collect()
    assert gone() is None


def test_every_status_has_a_class():
    texts = {status: avocet._library.avo_status_text(status).decode() for status in range(1, 15)}
    assert texts[14] == "the device failed"
    assert errors.exception_of(14) is avocet.DeviceError
    assert len({errors.exception_of(status) for status in texts}) == len(texts)
    assert avocet.AvocetError not in {errors.exception_of(status) for status in texts}


def test_refuses_and_accepts_what_other_interfaces_do(chat, chat_model_path, tmp_path):
    """tests/chat/interfaces.py asks HTTP and `run --prompts` for the same."""
    def errors_of(bodies):
        for body in bodies:
            try:
                avocet.ChatRequest(chat, body)
                yield None
            except errors.AvocetError as error:
                yield str(error)
    cases = [(request_cases.request(members), text) for members, text in request_cases.REFUSED]
    cases += [({"prompt": "a", "raw": True, **members}, text)
              for members, text in request_cases.RAW_REFUSED]
    cases += [(request_cases.request(members), text)
              for members, _, text in request_cases.DIFFERENT]
    for (body, text), error in zip(cases, errors_of([body for body, _ in cases])):
        assert (error is None) == (text is None) and (text or "") in (error or ""), body
    accepted = [request_cases.request(members) for members in request_cases.ACCEPTED]
    accepted += [{"prompt": "a", "raw": True, **members} for members in request_cases.RAW_ACCEPTED]
    with avocet.Engine(chat, threads=1) as engine, avocet.Scheduler(engine) as scheduler:
        for result in scheduler.batch([avocet.ChatRequest(chat, body) for body in accepted]):
            assert isinstance(result, avocet.ChatResult) and result.prompt_tokens > 0, result
    program = os.environ.get("AVOCET")
    if not program:
        return
    (tmp_path / "lines").write_text("".join(json.dumps(body) + "\n" for body, _ in cases))
    done = subprocess.run([program, "run", chat_model_path, "--prompts", tmp_path / "lines"],
                          capture_output=True, timeout=120, check=False)
    for number, (line, error) in enumerate(zip(done.stdout.splitlines(), errors_of(
            [body for body, _ in cases])), 1):
        assert json.loads(line).get("error") == (error and f"line {number}: {error}")


def test_no_tokens(chat):
    """max_tokens 0 computes the prompt alone, and is refused where that cannot be."""
    with avocet.Engine(chat, threads=1) as engine:
        with engine.session() as session, pytest.raises(ValueError, match="max_tokens is 0"):
            session.generate([5], max_tokens=0)
        with avocet.Scheduler(engine) as scheduler:
            result = scheduler.generate(prompt="ab", max_tokens=0)
            assert (result.new_tokens, result.finish) == (0, "length")
            with pytest.raises(ValueError, match="max_tokens is 0"):
                scheduler.generate(messages=SAID, max_tokens=0)
            with pytest.raises(errors.ArgumentError, match="max_tokens is 0, must be 1"):
                scheduler.chat(SAID, max_tokens=0)
    with pytest.raises(ValueError, match="max_tokens is 0"):
        avocet.ChatRequest(chat, {"messages": SAID}, max_tokens=0)


def test_stop_reasons(chat):
    with avocet.Engine(chat, threads=1) as engine, avocet.Scheduler(engine) as scheduler:
        asked = dict(prompt="ab", max_tokens=6, ignore_end=True)
        whole = scheduler.generate(**asked)
        token = whole.tokens[2].id
        assert whole.stop_reason is None
        assert scheduler.generate(**asked, stop_tokens=[token]).stop_reason == token
        text = whole.text[1:3]
        assert scheduler.generate(**asked, stop=[text]).stop_reason == text


def test_roles_of_plain_requests(chat):
    with avocet.Engine(chat, threads=1) as engine, avocet.Scheduler(engine) as scheduler:
        for fields, text in (({"messages": [{"role": "usr", "content": "a"}]}, 'role is "usr"'),
                             ({"prompt": "a", "max_tokens": 16777217}, "must be at most 16777216")):
            with pytest.raises(errors.ArgumentError, match=text):
                scheduler.submit(**fields)
