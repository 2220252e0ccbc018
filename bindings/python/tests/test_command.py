import json
import os
import subprocess
import sys

import pytest

from avocet.__main__ import line_adapters
from conftest import ROOT


def call(*arguments, given=""):
    return subprocess.run([sys.executable, "-m", "avocet", *map(str, arguments)], input=given,
                          capture_output=True, text=True, timeout=120, check=False)


def test_run(model_path):
    plain = call("run", model_path, "once upon", "-n", 8, "--ignore-eos")
    assert plain.returncode == 0 and plain.stderr == ""
    answer = call("run", model_path, "-", "-n", 8, "--ignore-eos", "--json", given="once upon\n")
    record = json.loads(answer.stdout)
    assert record["text"] + "\n" == plain.stdout and len(record["ids"]) == 8
    assert record["finish_reason"] == "length" and record["usage"]["completion_tokens"] == 8


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


def test_wrong_usage():
    assert call("run").returncode == 2
    missing = call("run", ROOT / "no-such-model", "x")
    assert missing.returncode == 1 and "no-such-model" in missing.stderr


@pytest.mark.parametrize("given", [{"adapter": ["a", "b"]}, {"adapter": {"a": 0.5}}, {"adapter": 7},
                                   {"adapters": [{"name": "a", "scale": 2}]}])
def test_adapters_of_a_line_have_one_form(given):
    with pytest.raises(ValueError, match='"adapters"'):
        line_adapters(given, {"a": (None, 1.0), "b": (None, 1.0)})
