import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from command import PATIENCE
from conftest import ROOT


def call(*arguments, given=""):
    return subprocess.run([sys.executable, "-m", "avocet", *map(str, arguments)], input=given,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_run(model_path):
    plain = call("run", model_path, "once upon", "-n", 8, "--ignore-eos")
    assert plain.returncode == 0 and plain.stderr == ""
    answer = call("run", model_path, "-", "-n", 8, "--ignore-eos", "--json", given="once upon\n")
    record = json.loads(answer.stdout)
    assert record["text"] + "\n" == plain.stdout and len(record["ids"]) == 8
    assert record["finish_reason"] == "length" and record["usage"]["completion_tokens"] == 8


def command(*arguments, given=""):
    """The command itself, where it was built."""
    program = os.environ.get("AVOCET")
    if not program:
        pytest.skip("no AVOCET")
    return subprocess.run([program, *map(str, arguments)], input=given, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)


def test_values_of_flags_are_those_of_the_command():
    """What the help says that each takes: N, X, auto|on|off."""
    def values(text):
        options = text[text.lower().index("options:"):text.lower().index("examples:")]
        return dict(re.findall(r"^ {2,6}(?:-\w(?: \S+)?, )?--([a-z-]+)(?: (\S+))?(?: |$)", options,
                               re.M))
    theirs, ours = (ask("run", "--help").stdout for ask in (command, call))
    for text in (theirs, ours):
        assert values(text)["device"].startswith("auto|cpu|ref|")
    ours = {name: value for name, value in values(ours).items()
            if name not in ("help", "telemetry")}
    assert ours == {name: value for name, value in values(theirs).items()
                    if name not in ("help", "telemetry")}


def test_flags_are_those_of_the_command():
    """By the same names, long and short."""
    def flags(text):
        options = text[text.lower().index("options:"):text.lower().index("examples:")]
        found = [re.match(r" {2,6}(-[^ ,]+( [^ ,-][^ ,]*)?(, --[^ ]+)?)", line)
                 for line in options.splitlines()]
        return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", " ".join(
            match.group(1) for match in found if match))) - {"-h"}
    assert flags(command("run", "--help").stdout) == flags(call("run", "--help").stdout)


@pytest.mark.parametrize("more", [
    (), ("--logprobs", 2), ("--stop", "a"), ("--stop-token", 260), ("--logit-bias", "300=50"),
    ("--logit-bias", "300=-inf", "--temperature", 0.9, "--seed", 5), ("--json-object",),
    ("--json-schema", '{"type":"integer"}'), ("--raw", "--special"), ("-c", 64),
    ("--kv-type", "int8"), ("--isa", "avx2"), ("--top-k", 3, "--temperature", 1)])
def test_json_is_the_commands(model_path, adapter_paths, more):
    arguments = ("run", model_path, "-n", 8, "once upon", "--ignore-eos", "--json", "--adapter",
                 f"one={adapter_paths[0]}", "-a", f"two={adapter_paths[1]}:-0.3", *more)
    theirs, ours = command(*arguments), call(*arguments)
    assert theirs.returncode == ours.returncode == 0, (theirs.stderr, ours.stderr)
    theirs, ours = json.loads(theirs.stdout), json.loads(ours.stdout)
    assert list(theirs) == list(ours) and same(theirs, ours)
    assert list(theirs["timings"]) == list(ours["timings"]) and ours["timings"]["prefill_tps"] > 0
    assert [entry["name"] for entry in ours["adapters"]] == ["one", "two"]
    assert all(entry["modules_matched"] == entry["modules_expected"] > 0 and entry["digest"]
               for entry in ours["adapters"])


def test_grammars_and_traces_are_files(model_path, tmp_path):
    (tmp_path / "rules").write_text('root ::= "abc" | "abd"')
    answer = call("run", model_path, "once", "--grammar", tmp_path / "rules", "--trace",
                  tmp_path / "trace.json", "-v")
    assert answer.stdout in ("abc\n", "abd\n") and "avx" in answer.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["name"] == "step" for event in events)
    assert call("run", model_path, "once", "--grammar", tmp_path / "none").returncode == 1


@pytest.mark.parametrize("wrong", [
    ("x", "--stream"), ("x", "--batch", 2), ("x", "--kv-tokens", 64), ("x", "--cores", "mixed"),
    ("x", "--logprobs", 2), ("x", "--special"), ("x", "--raw", "--system", "s"),
    ("x", "--json-object", "--grammar", "g"), ("x", "y"), ("x", "--prompts", "f"),
    ("--prompts", "f", "--telemetry"), ("x", "--logit-bias", "5"), ("x", "--logit-bias", "5=a"),
    ("x", "--logit-bias", "999999=1"), ("x", "--stop-token", "-1"), ("x", "--stop", ""),
    ("x", "--temperature", "-1"), ("x", "--top-p", 2), ("x", "--seed", "a"),
    ("x", "--adapter", "a"),
    ("x", "--batch", 0), ("x", "--logprobs", 21, "--json"), ("x", "--isa", "z80"), ("x", "--temp")])
def test_wrong_flags(model_path, wrong):
    ours = call("run", model_path, *wrong)
    assert ours.returncode == 2 and ours.stdout == "" and ours.stderr
    assert command("run", model_path, *wrong).returncode == 2


def test_many_with_flags(model_path, tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"once {index}", "id": index} for index in range(12)] + [{"no": 1}]
    file.write_text("\n".join(map(json.dumps, lines)))
    arguments = ("run", model_path, "--prompts", file, "-n", 9, "--ignore-eos", "-b", 3,
                 "--kv-tokens", 256, "-t", 2, "--cores", "static", "--stop-token", 300, "--grammar",
                 tmp_path / "rules")
    (tmp_path / "rules").write_text("root ::= [a-f ]+")
    theirs, ours = command(*arguments), call(*arguments)
    assert theirs.returncode == ours.returncode == 1
    theirs = [json.loads(line) for line in theirs.stdout.splitlines()]
    ours = [json.loads(line) for line in ours.stdout.splitlines()]
    assert all(set(record["text"]) <= set("abcdef ") for record in ours[:-1])
    assert len(ours) == 13 and all(map(same, theirs[:-1], ours[:-1]))
    streamed = [json.loads(line) for line in call(*arguments, "--stream").stdout.splitlines()]
    tokens = [record for record in streamed if "token" in record]
    ends = {record["index"]: record for record in streamed if "token" not in record}
    assert ends.keys() == {record["index"] for record in ours} and list(tokens[0]) == [
        "index", "line", "id", "token", "text"]
    for record in ours[:-1]:
        own = [token for token in tokens if token["index"] == record["index"]]
        assert "".join(token["text"] for token in own) == record["text"]
        assert [token["token"] for token in own if token["token"] >= 0] == record["ids"]
        assert same(record, ends[record["index"]])


def interrupted(*arguments):
    """What is printed when Ctrl-C comes behind the first output."""
    with subprocess.Popen([sys.executable, "-m", "avocet", *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, (first + rest).decode(), errors.decode()


def test_ctrl_c(model_path, tmp_path):
    status, text, errors = interrupted("run", model_path, "once", "-n", 1000000, "-c", 1000000,
                                       "--kv-type", "int8", "--ignore-eos", "-t", 1)
    assert (status, errors) == (
        130, "avocet: --ctx is 1000000, but the model was trained for 128 tokens\n")
    assert text
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "once"}\n' * 100)
    status, text, errors = interrupted("run", model_path, "--prompts", file, "-c", 4096, "--stream",
                                       "--ignore-eos", "-t", 1, "-b", 2)
    assert (status, errors) == (130, "")
    ends = [record for record in map(json.loads, text.splitlines()) if "token" not in record]
    assert sorted(record["index"] for record in ends) == list(range(100))
    assert any(record["finish_reason"] == "cancelled" for record in ends)


def test_times_are_the_engines(model_path, tmp_path):
    """What a row says of the first token is what it says of its time."""
    log = tmp_path / "times.csv"
    answer = call("run", model_path, f"--telemetry={log}", "-n", 9, "--ignore-eos", "once")
    assert answer.returncode == 0
    row, = csv.DictReader(log.read_text().splitlines())
    times = [float(text) for text in row["token_ms"].split(";")]
    assert len(times) == 9 and times[0] == pytest.approx(float(row["ttft_ms"]), abs=0.002)
    assert times[0] >= float(row["prefill_ms"]) - 0.002 and float(row["tokenise_ms"]) >= 0
    assert float(row["prefill_tps"]) > 0 and float(row["decode_tps"]) > 0
    answer = call("run", model_path, "--telemetry", "once", "-n", 2)  # the prompt stays one
    assert answer.returncode == 0 and "token_ms" in answer.stderr


def test_adapters_and_telemetry(model_path, adapter_paths, tmp_path):
    base = call("run", model_path, "once", "-n", 8, "--ignore-eos")
    log = tmp_path / "times.csv"
    for _ in range(2):
        other = call("run", model_path, "once", "-n", 8, "--ignore-eos", "--adapter",
                     f"one={adapter_paths[0]}", f"--telemetry={log}")
        assert other.returncode == 0 and other.stdout != base.stdout
    assert len(log.read_text().splitlines()) == 3
    none = call("run", model_path, "once", "-n", 8, "--ignore-eos", "--adapter",
                f"one={adapter_paths[0]}:0")
    assert none.stdout == base.stdout


def test_prompts(model_path, adapter_paths, tmp_path):
    lines = [{"prompt": "once", "id": "a"}, {"prompt": "once", "adapter": "one"},
             {"prompt": "once", "adapter": "nobody"}, {"no": 1},
             {"prompt": "the", "max_tokens": 2, "adapters": []}, {"prompt": 5},
             {"prompt": "once", "adapters": [{"name": "one", "weight": 0}]},
             {"prompt": "once", "stop": "END", "adapter": None}]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\nbroken\n")
    arguments = ("run", model_path, "--prompts", file, "-n", 6, "--ignore-eos", "--adapter",
                 f"one={adapter_paths[0]}")
    answer = call(*arguments)
    records = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.returncode == 1 and [record["index"] for record in records] == list(range(9))
    assert records[0]["id"] == "a" and records[0]["text"] == records[1]["text"]
    assert "nobody" in records[2]["error"] and "line 4" in records[3]["error"]
    assert records[4]["usage"]["completion_tokens"] == 2
    assert "string" in records[5]["error"] and "line 9" in records[8]["error"]
    assert records[6]["text"] == records[7]["text"] != records[0]["text"]
    command = os.environ.get("AVOCET")
    if command:  # the command says the same
        theirs = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True,
                                check=False)
        other = [json.loads(line) for line in theirs.stdout.splitlines()]
        assert [record.get("ids") for record in other] == [record.get("ids") for record in records]


WRONG = [
    '{"prompt":"once","adapters":[null]}', '{"prompt":"once","adapters":{}}',
    '{"prompt":"once","adapters":{"one":0.5}}', '{"prompt":"once","adapters":"one"}',
    '{"prompt":"once","adapter":{"one":0.5}}', '{"prompt":"once","adapter":["one"]}',
    '{"prompt":"once","adapter":{"name":"one","weight":"2"}}', '{"prompt":"once","adapter":false}',
    '{"prompt":"once","temperature":"hot"}', '{"prompt":"once","temperature":true}',
    '{"prompt":"once","temperature":NaN}', '{"prompt":"once","top_k":-2}',
    '{"prompt":"once","top_k":1.5}', '{"prompt":"once","max_tokens":-2}',
    '{"prompt":"once","raw":1}', '{"prompt":"once","ignore_eos":"yes"}',
    '{"prompt":"once","priority":16}', '{"prompt":"once","stop":[1]}',
    '{"prompt":"once","stop_tokens":5}', '{"prompt":"once","stop_tokens":[-1]}',
    '{"prompt":"once","seed":1.5}', '{"prompt":"once","tenant":7}', '{"prompt":"on\\u0000ce"}',
    '{"prompt":"once","grammar":"root ::= \\"a\\"\\u0000"}', '{"prompt":"once","grammar":5}',
    '{"prompt":"once","grammar":"no"}', '{"prompt":"once","grammar":"x","json_object":true}',
    '{"prompt":"once","deadline":-1}', '{"prompt":"once","logprobs":1000}',
    '{"prompt":"once","pooling":"most"}', '{"messages":[]}', '{"messages":[{"role":"user"}]}',
    '{"messages":"once"}', '{"prompt":"once","tokens":[5]}', '{"tokens":[true]}',
    '{"prompt":"once","adapters":[{"name":"one","scale":2}]}', '{"prompt":"once","adapter":""}',
    '{"prompt":"once","adapters":[["one"]]}', '{"prompt":"once","adapter":{"name":null}}',
    '{"prompt":"once","adapter":{"weight":1}}', '{"prompt":"once","tools":[]}',
    '{"prompt":"once","response_format":3}', "[" * 100000,
    '{"prompt":"once","prompt":"the"}', '{"prompt":"once","temprature":1}', "5", "[]", "\\xff"]
RIGHT = [
    {"prompt": "once", "id": None, "temperature": None, "stop": None, "adapters": None},
    {"prompt": "once", "id": {"deep": [1]}, "top_k": 4.0, "temperature": 1, "seed": 7},
    {"prompt": "once", "adapter": {"name": "one", "weight": -0.5}, "logprobs": 2},
    {"prompt": "once", "adapters": [{"name": "one", "weight": 0.5}, "two"]},
    {"tokens": [1, 5, 9], "prompt_logprobs": True, "max_new_tokens": 3},
    {"tokens": [1, 5, 9], "pooling": "mean"}, {"prompt": "once", "no_answer": True},
    {"prompt": "once", "grammar": "root ::= [a-e]+"}, {"prompt": "once", "json_object": True},
    {"prompt": "once", "grammar": "root ::= [a-e]+", "raw": True},
    {"prompt": "once", "json_schema": {"type": "integer"}}]


def same(theirs, ours):
    """Equal but for times and the last bit of numbers, which the command writes as floats."""
    if isinstance(theirs, dict):
        return theirs.keys() == ours.keys() and all(
            key in ("timings", "reused_tokens", "drafted", "accepted") or
            same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    if isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    return theirs == ours


def test_lines_mean_what_the_command_says(model_path, adapter_paths, tmp_path):
    file = tmp_path / "prompts.jsonl"
    right = [json.dumps(line) for line in RIGHT]
    file.write_bytes("\n".join(WRONG + ["", "  "] + right).replace("\\xff", "\xff")
                     .encode("latin-1") + b"\n")
    arguments = ("run", model_path, "--prompts", file, "-n", 6, "--ignore-eos", "--adapter",
                 f"one={adapter_paths[0]}", "--adapter", f"two={adapter_paths[1]}:0.5")
    answer = call(*arguments)
    assert f"{len(WRONG)} of {len(WRONG) + len(RIGHT)} prompts failed" in answer.stderr
    ours = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [record["index"] for record in ours if "error" in record] == list(range(len(WRONG)))
    assert len(ours) == len(WRONG) + len(RIGHT) and ours[-1]["line"] == len(ours) + 2
    command = os.environ.get("AVOCET")
    if command:
        theirs = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True,
                                check=False)
        assert theirs.returncode == answer.returncode and theirs.stderr == answer.stderr
        theirs = [json.loads(line) for line in theirs.stdout.splitlines()]
        for mine, other in zip(ours, theirs):
            assert same(other, mine), (mine, other)


def test_conversations_mean_what_the_command_says(chat_model_path, tmp_path):
    """Tools, formats and the messages of calls and results."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {
        "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
        "additionalProperties": False}}}]
    said = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    called = [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}]},
              {"role": "tool", "tool_call_id": "1", "content": "7"}]
    lines = [{"messages": said}, {"messages": said + called, "tools": tools},
             {"messages": said, "tools": tools, "tool_choice": "required"},
             {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {
                 "schema": {"enum": ["yes"]}}}},
             {"messages": said, "tools": tools, "tool_choice": "most"}]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    arguments = ("run", chat_model_path, "--prompts", file, "-n", 60)
    ours = [json.loads(line) for line in call(*arguments).stdout.splitlines()]
    assert ours[2]["tool_calls"][0]["function"]["name"] == "look"
    assert ours[2]["finish_reason"] == "tool_calls" and ours[2]["text"] == ""
    assert ours[3]["text"] == '"yes"' and "most" in ours[4]["error"]
    command = os.environ.get("AVOCET")
    if command:
        theirs = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True,
                                check=False).stdout.splitlines()
        assert same([json.loads(line) for line in theirs], ours)


def test_answers_come_while_others_are_computed(model_path, tmp_path):
    """The first line is printed long before the last: read from a pipe, one by one."""
    file = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "once", "max_tokens": 1}] + [{"prompt": "once", "max_tokens": 100}] * 300
    file.write_text("\n".join(map(json.dumps, lines)))
    with subprocess.Popen([sys.executable, "-m", "avocet", "run", str(model_path), "--prompts",
                           str(file), "--ignore-eos", "-t", "1"], stdout=subprocess.PIPE,
                          text=True) as process:
        first = json.loads(process.stdout.readline())
        assert first["index"] == 0 and process.poll() is None
        assert [json.loads(line)["index"] for line in process.stdout] == list(range(1, 301))
    assert process.returncode == 0


def test_an_adapter_given_twice_is_refused(model_path, adapter_paths):
    twice = call("run", model_path, "once", "--adapter", f"a={adapter_paths[0]}", "--adapter",
                 f"a={adapter_paths[1]}")
    assert twice.returncode == 1 and '"a" is given twice' in twice.stderr


def test_wrong_usage():
    assert call("run").returncode == 2
    missing = call("run", ROOT / "no-such-model", "x")
    assert missing.returncode == 1 and "no-such-model" in missing.stderr
