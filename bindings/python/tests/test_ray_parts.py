"""avocet.ray without Ray: which replica is chosen, what the ingress reads of a body, options, and
the server process of a replica."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from avocet.ray import Options
from avocet.ray.affinity import BLOCK_BYTES, BLOCKS_MAX, Affinity, block_keys
from avocet.ray.request import prompt_of, read_call


def test_importing_the_package_does_not_import_ray():
    program = "import avocet.ray, sys; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == "False"


def test_keys_are_those_of_prefixes():
    text = "x" * (3 * BLOCK_BYTES + 5)
    keys = block_keys("a", text)
    assert len(keys) == 3 and len(set(keys)) == 3
    assert block_keys("a", text[:2 * BLOCK_BYTES]) == keys[:2]
    assert block_keys("a", "y" + text[1:])[2] != keys[2]
    assert block_keys("b", text)[0] != keys[0]
    assert block_keys("a", "x" * (BLOCK_BYTES - 1)) == []
    assert len(block_keys("a", "x" * BLOCK_BYTES * (BLOCKS_MAX + 7))) == BLOCKS_MAX
    assert len(block_keys("a", "\ud800" * BLOCK_BYTES)) == 3  # a lone surrogate has three bytes


def test_the_longest_match_wins_while_loads_are_near():
    affinity = Affinity(match_min=0.5, gap_max=2)
    keys = block_keys("", "p" * 8 * BLOCK_BYTES)
    affinity.sent(keys[:4], "a")
    affinity.sent(keys[:6], "b")
    assert affinity.order("", keys, {"a": 0, "b": 0, "c": 0})[:2] == ["b", "a"]
    assert affinity.order("", keys, {"a": 0, "b": 2, "c": 0})[0] == "b"
    assert affinity.order("", keys, {"a": 0, "b": 3, "c": 0})[0] == "a"
    assert affinity.order("", keys, {"a": 3, "b": 3, "c": 0})[0] == "c"
    affinity.sent(keys[:2], "c")  # a quarter: less than match_min
    assert affinity.order("", keys, {"c": 1, "d": 0})[0] == "d"
    affinity.forget("b")
    assert affinity.matched(keys, "b") == 0
    assert affinity.order("", keys, {"a": 0, "b": 0, "c": 0})[0] == "a"


def test_adapters_come_second_and_load_third():
    affinity = Affinity(gap_max=2)
    assert affinity.order("s", [], {"a": 1, "b": 0}, holders={"a"})[0] == "a"
    assert affinity.order("s", [], {"a": 3, "b": 0}, holders={"a"})[0] == "b"
    assert affinity.order("s", [], {"a": 1, "b": 0})[0] == "b"
    assert affinity.order("s", [], {}) == []
    orders = {tuple(Affinity().order(scope, [], {"a": 0, "b": 0, "c": 0}))
              for scope in map(str, range(50))}
    assert len({order[0] for order in orders}) == 3  # equal loads: scopes are spread
    assert Affinity().order("7", [], {"c": 0, "a": 0, "b": 0}) == \
        Affinity().order("7", [], {"a": 0, "b": 0, "c": 0})  # in any process, in any order


def test_the_table_has_a_limit():
    affinity = Affinity(keys_max=10)
    first = block_keys("", "a" * 8 * BLOCK_BYTES)
    affinity.sent(first, "r")
    affinity.sent(block_keys("", "b" * 8 * BLOCK_BYTES), "r")
    assert len(affinity) == 10
    assert affinity.matched(first, "r") == 2  # what is left is the beginning
    for wrong in ({"match_min": 1.5}, {"gap_max": -1}, {"keys_max": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Affinity(**wrong)


def test_calls_are_read_and_bodies_left_alone():
    def read(body, headers=None, **more):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return read_call("POST", "/v1/completions", headers or {}, data, {"one", "two"}, **more)

    call = read({"model": "one", "prompt": "p" * 300, "stream": True,
                 "adapters": [{"name": "two"}]}, {"authorization": "Bearer k", "cookie": "c"})
    assert call.adapters == ["one", "two"] and call.stream and len(call.keys) == 2
    assert call.headers == {"authorization": "Bearer k"}
    assert read({"model": "base", "prompt": "p" * 300}).adapters == []
    assert read({"prompt": "p" * 300}).keys != call.keys
    assert read({"prompt": "p" * 300, "cache_salt": "s"}).keys != read({"prompt": "p" * 300}).keys
    for wrong in (b"", b"{", b"[1]", b"null", b"\xff", b'{"model": {}, "adapters": 3}',
                  b"[" * 100000):
        call = read(wrong)
        assert (call.body, call.adapters, call.keys, call.stream) == (wrong, [], [], False)
    chosen = read({"model": "base", "prompt": "p"}, adapter="two")
    assert chosen.adapters == ["two"] and json.loads(chosen.body)["model"] == "two"
    assert read({"model": "one", "prompt": "p"}, adapter="two").adapters == ["one"]
    unknown = read({"prompt": "p"}, adapter="three")  # the replica says that there is none
    assert unknown.adapters == [] and json.loads(unknown.body)["model"] == "three"


def test_prompts_that_begin_alike_have_texts_that_do():
    system = {"role": "system", "content": "You are terse."}
    one = prompt_of({"messages": [system, {"role": "user", "content": "a"}], "temperature": 1})
    two = prompt_of({"messages": [system, {"role": "user", "content": "b"}]})
    assert one != two and two[:40] == one[:40]
    assert one.startswith(json.dumps(system, sort_keys=True))
    assert prompt_of({"prompt": [1, 2, 30]}).startswith(prompt_of({"prompt": [1, 2]}))
    assert prompt_of({"system": "s", "messages": [system]}) != prompt_of({"messages": [system]})


def test_options_are_checked(tmp_path):
    read = Options.read
    assert read({"model": "m", "replicas": "3", "target_requests": "2.5"}).replicas == 3
    for given, part in (({}, "model is missing"),
                        ({"model": "m", "replica": 1}, "unknown option replica"),
                        ({"model": "m", "replicas": "x"}, "must be a number"),
                        ({"model": "m", "replicas": 0}, "at least 1"),
                        ({"model": "m", "target_requests": 0}, "more than 0"),
                        ({"model": "m", "router": "best"}, "router is 'best'"),
                        ({"model": "m", "adapter_root": str(tmp_path / "no")}, "is no folder")):
        with pytest.raises(ValueError, match=part):
            read(given)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/adapter_config.json").write_text("{}")
    (tmp_path / "two.avoa").write_text("")
    (tmp_path / "notes").mkdir()
    options = read({"model": "m", "adapter_root": str(tmp_path), "arguments": "--name 'a b'"})
    assert options.adapter_paths() == {"one": "one", "two": "two.avoa"}
    assert options.serve_arguments() == ["--no-page", "--name", "a b", "--adapter-root",
                                         str(tmp_path), "--allow-adapter-loading"]
    keyed = read({"model": "m", "adapter_root": str(tmp_path), "arguments": ["--keys", "k.json"]})
    assert "--allow-adapter-loading" not in keyed.serve_arguments()


COMMAND = os.environ.get("AVOCET")


@pytest.mark.skipif(not COMMAND, reason="AVOCET does not name the command")
def test_a_server_dies_with_its_replica(model_path):
    from avocet.ray.server import Server
    server = Server(str(model_path), ["--no-page", "--name", "tiny", "--threads", "1"], COMMAND)
    try:
        status, said = server.ask("GET", "/v1/models")
        assert status == 200 and json.loads(said)["data"][0]["id"] == "tiny"
    finally:
        server.close()
    assert server.process.returncode == 0 and not os.path.exists(server.socket)
    with pytest.raises(RuntimeError, match="status 1.*no-such-model"):
        Server("no-such-model", [], COMMAND)
    program = ("import sys, time; from avocet.ray.server import Server\n"
               "server = Server(sys.argv[1], ['--threads', '1'], sys.argv[2])\n"
               "print(server.process.pid, flush=True); time.sleep(600)\n")
    replica = subprocess.Popen([sys.executable, "-c", program, str(model_path), COMMAND],
                               stdout=subprocess.PIPE, text=True)
    child = int(replica.stdout.readline())
    replica.send_signal(signal.SIGKILL)
    replica.wait()
    replica.stdout.close()
    end = time.monotonic() + 300
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        with open(f"/proc/{child}/stat", encoding="ascii") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                break  # ended, and not yet waited for by init
        time.sleep(0.01)
    else:
        assert not os.path.exists(f"/proc/{child}")
