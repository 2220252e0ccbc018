"""Tenants: limits that survive restarts, headers, usage, metrics, owned adapters, the audit log."""
import contextlib
import csv
import io
import json
import signal
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, call, wait_until
from serving import ENDLESS, Serving, head, write_slow_model

TEXT = "/v1/completions"
BOSS, ONE, TWO = ({"Authorization": f"Bearer {key}"} for key in
                  ("boss-key-1", "one-key-22", "two-key-333"))
KEYS = {"boss": {"name": "boss", "key": "boss-key-1", "admin": True},
        "one": {"name": "one", "key": "one-key-22"},
        "two": {"name": "two", "key": "two-key-333"}}


class Tenants(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-tenants-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        (self.folder / "keys").mkdir()
        self.keys = self.folder / "keys" / "keys.json"
        self.state = self.folder / "state"

    def write(self, **changes):
        self.keys.write_text(json.dumps({"keys": [
            {**KEYS[name], **changes.get(name, {})} for name in KEYS]}))

    def serve(self, *flags, model=None):
        server = Serving(model or tiny_model.write(self.folder), "--keys", self.keys, "--threads",
                         1, *flags)
        self.addCleanup(server.__exit__)
        return server

    def ask(self, server, who, tokens=4, status=200, **more):
        body = {"prompt": "once", "max_tokens": tokens, "ignore_eos": True,
                "temperature": 0, **more}
        got, headers, text = server.ask("POST", TEXT, body, who)
        self.assertEqual(got, status, text)
        return headers, json.loads(text)

    def usage(self, server, who, query=""):
        status, _, text = server.ask("GET", "/v1/usage" + query, None, who)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def sums(self, server, who):
        rows = self.usage(server, who)["data"]
        return {name: tuple(sum(row[field] for row in rows if row["key"] == name) for field in
                            ("requests", "refused", "prompt_tokens", "new_tokens"))
                for name in sorted({row["key"] for row in rows})}

    def wait_charged(self, server, who, tokens):
        """An answer is charged when its exchange is over, which may be after the client has it."""
        wait_until(lambda: sum(row["prompt_tokens"] + row["new_tokens"] for row in
                               self.usage(server, who)["data"]) == tokens, f"{tokens} tokens")

    def test_counts_survive_an_end_and_a_kill(self):
        self.write(one={"token_quota": 50, "quota_seconds": 86400})
        flags = ("--state", self.state)
        server = self.serve(*flags)
        used = self.ask(server, ONE)[1]["usage"]["total_tokens"]
        self.wait_charged(server, ONE, used)
        headers = self.ask(server, ONE)[0]
        self.wait_charged(server, ONE, 2 * used)
        self.assertEqual(headers["x-ratelimit-limit-tokens"], "50")
        self.assertEqual(int(headers["x-ratelimit-remaining-tokens"]), 50 - used)
        self.assertRegex(headers["x-ratelimit-reset-tokens"], r"^(24h0m0s|23h59m\d+s)$")
        self.assertNotIn("x-ratelimit-limit-requests", headers)
        other = call("serve", tiny_model.write(self.folder), "--port", 0, "--keys", self.keys,
                     *flags)
        self.assertEqual(other.returncode, FAILED)  # one process at a time
        self.assertIn(b"another server uses it", other.stderr)
        self.assertEqual(server.end(), 0)
        server = self.serve(*flags)  # under the sandbox, as always
        headers, body = self.ask(server, ONE)
        self.assertEqual(int(headers["x-ratelimit-remaining-tokens"]), 50 - 2 * used)
        self.wait_charged(server, ONE, 3 * used)
        before = self.sums(server, ONE)["one"]
        self.assertEqual(before[0], 3)
        self.assertEqual(before[2] + before[3], 3 * used)
        # The thread has written before the kill: what is on disk is what was counted.
        log = self.state / "usage.log"
        size = log.stat().st_size
        self.ask(server, ONE)
        wait_until(lambda: log.stat().st_size > size + 60, "the record of the request")
        server.process.kill()
        server.process.wait()
        server = self.serve(*flags)
        self.assertEqual(self.sums(server, ONE)["one"][0], 4)
        for _ in range(6):
            status = server.ask("POST", TEXT, {"prompt": "once", "max_tokens": 8}, ONE)[0]
            if status == 429:
                break
        self.assertEqual(status, 429)
        self.ask(server, TWO)

    def test_no_key_finds_prefixes_of_another(self):
        """Counted here; bench/tenants.py asks whether times tell anything."""
        self.write()
        server = self.serve()
        text = "once upon a time a dog sat on the mat " * 3

        def cached(who, **more):
            usage = self.ask(server, who, prompt=text, **more)[1]["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(cached(ONE), 0)
        own = cached(ONE)
        self.assertGreater(own, 0)
        for salt in ({}, {"cache_salt": "one"}, {"cache_salt": "one-key-22"}):
            self.assertEqual(cached(TWO, **salt), 0, salt)
            self.assertEqual(cached(TWO, **salt), own, salt)
        self.assertEqual(cached(ONE), own)
        self.assertEqual(cached(ONE, cache_salt="private"), 0)
        self.assertEqual(cached(BOSS), 0)
        self.assertEqual(server.end(), 0)

    def test_requests_at_once(self):
        self.write(one={"concurrent_requests": 2, "requests_per_minute": 600})
        server = self.serve("--metric-keys", 2, model=write_slow_model(self.folder))
        body = json.dumps({"prompt": "a", "max_tokens": ENDLESS, "stream": True,
                           "ignore_eos": True}).encode()
        with contextlib.ExitStack() as held:
            for _ in range(2):
                client = held.enter_context(server.connect())
                client.sendall(head("POST", TEXT, f"Authorization: {ONE['Authorization']}",
                                    f"Content-Length: {len(body)}") + body)
                client.recv(100)
            headers, error = self.ask(server, ONE, status=429)
            self.assertIn("at once", error["error"]["message"])
            self.assertEqual(headers["x-ratelimit-limit-requests"], "600")
            self.assertEqual(headers["retry-after"], "1")
            self.ask(server, TWO)  # nobody else is concerned
            metrics = server.ask("GET", "/metrics", None, BOSS)[2].decode()
            for line in ('avocet_key_requests{key="one"} 2',
                         'avocet_key_requests_total{key="one"} 2',
                         'avocet_key_refused_total{key="one",reason="concurrent"} 1',
                         'avocet_key_requests_total{key="boss"} 0',
                         'avocet_key_requests_total{key="other"} 1'):
                self.assertIn(line, metrics.splitlines())
            self.assertNotIn('"two"', metrics)
        short = {"prompt": "b", "max_tokens": 1}
        wait_until(lambda: server.ask("POST", TEXT, short, ONE)[0] == 200)

    def test_kv_tokens(self):
        """A request that never fits is refused; one without a length gets what there is."""
        self.write(one={"kv_tokens": 64})
        server = self.serve()
        error = self.ask(server, ONE, tokens=100, status=400)[1]["error"]
        self.assertIn("64 KV tokens", error["message"])
        told = self.ask(server, ONE, tokens=58)[1]
        self.assertEqual(told["usage"]["completion_tokens"], 58)
        status, _, text = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "a"}], "ignore_eos": True}, ONE)
        told = json.loads(text)
        if status == 200:
            self.assertLessEqual(told["usage"]["total_tokens"], 64)
            self.assertEqual(told["choices"][0]["finish_reason"], "length")
        self.ask(server, TWO, tokens=100)

    def test_usage(self):
        self.write(one={"token_quota": 1000})
        server = self.serve()
        for who, tokens in ((ONE, 3), (TWO, 5)):
            told = self.ask(server, who, tokens=tokens)[1]["usage"]["total_tokens"]
            self.wait_charged(server, who, told)
        self.assertEqual(self.sums(server, ONE).keys(), {"one"})
        self.assertEqual(self.sums(server, BOSS)["two"][3], 5)
        self.assertEqual([row["key"] for row in self.usage(server, BOSS, "?key=two")["data"]],
                         ["two"])
        windows = self.usage(server, ONE)["windows"]
        self.assertEqual([(row["key"], row["token_quota"]) for row in windows], [("one", 1000)])
        self.assertEqual(windows[0]["end"] - windows[0]["begin"], 86400)
        self.assertEqual(self.usage(server, TWO)["windows"], [])
        self.assertEqual(self.usage(server, BOSS, "?from=2001-01-01&to=2001-12-31")["data"], [])
        status, headers, text = server.ask("GET", "/v1/usage?format=csv", None, BOSS)
        self.assertEqual((status, headers["content-type"]), (200, "text/csv; charset=utf-8"))
        rows = {row["key"]: row for row in csv.DictReader(io.StringIO(text.decode()))}
        self.assertEqual((rows["one"]["new_tokens"], rows["two"]["requests"]), ("3", "1"))
        for query, want in (("?key=two", 403), ("?key=nobody", 403), ("?format=xml", 400),
                            ("?from=yesterday", 400), ("?to=2026-02-30", 400)):
            self.assertEqual(server.ask("GET", "/v1/usage" + query, None, ONE)[0], want, query)
        self.assertEqual(server.ask("GET", "/v1/usage?key=nobody", None, BOSS)[0], 404)
        for path in ("/metrics", "/telemetry"):  # they tell of all keys together
            self.assertEqual(server.ask("GET", path, None, ONE)[0], 403)
        self.write(one={"metrics": True})
        server.process.send_signal(signal.SIGHUP)
        server.wait_said("reloaded the keys")
        self.assertEqual(server.ask("GET", "/metrics", None, ONE)[0], 200)

    def test_owned_adapters(self):
        self.write(one={"own_adapters": 1, "adapters": ["base"]}, two={"own_adapters": 2})
        root = self.folder / "adapters"
        for number, path in enumerate(("one/mine", "one/more", "two/mine", "shared"), 1):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            tiny_model.write_adapter(root / path, number)
        audit = self.folder / "logs" / "audit.jsonl"
        audit.parent.mkdir()
        server = self.serve("--adapter-root", root, "--adapter", "shared=shared", "--name", "tiny",
                            "--audit-log", audit)

        def load(who, name, path, status=200):
            got, _, text = server.ask("POST", "/v1/load_lora_adapter",
                                      {"lora_name": name, "lora_path": path}, who)
            self.assertEqual(got, status, text)
            return text.decode()

        def names(who):
            return [model["id"] for model in
                    json.loads(server.ask("GET", "/v1/models", None, who)[2])["data"]]

        load(ONE, "mine", "mine")
        load(ONE, "more", "more", 400)  # one at a time
        load(ONE, "mine", "more")       # which may be replaced
        self.assertEqual(names(ONE), ["tiny", "one:mine"])
        self.assertEqual(names(TWO), ["tiny", "shared"])
        self.assertEqual(names(BOSS), ["tiny", "one:mine", "shared"])
        for path in ("../two/mine", "/etc", "mine/../../two/mine", "", ".."):
            load(ONE, "mine", path, 400)
        load(ONE, "two:mine", "mine", 400)
        own = self.ask(server, ONE, model="mine")[1]["choices"][0]["text"]
        self.assertEqual(self.ask(server, ONE, model="one:mine")[1]["choices"][0]["text"], own)
        self.assertEqual(self.ask(server, BOSS, model="one:mine")[1]["choices"][0]["text"], own)

        # What is another key's is told exactly as what does not exist.
        for real, made_up in (("one:mine", "one:none"),):
            seen = [self.ask(server, TWO, status=404, **body)[1]["error"]["message"]
                    .replace(name, "X") for name in (real, made_up) for body in
                    ({"model": name}, {"adapters": [{"name": name, "weight": 1.0}]},
                     {"adapters": [{"name": name, "weight": 0}]})]
            self.assertEqual(seen[:3], seen[3:])
            self.assertNotIn("one:", "".join(seen).replace("X", ""))
            self.assertEqual(*[server.ask("GET", f"/v1/models/{name}", None, TWO)[0]
                               for name in (real, made_up)])
            self.assertEqual(*[server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name},
                                          TWO)[0] for name in (real, made_up)])
        numbers = {entry["name"]: entry["id"] for entry in
                   json.loads(server.ask("GET", "/lora-adapters", None, BOSS)[2])}
        self.assertNotIn(b"one:mine", server.ask("GET", "/lora-adapters", None, TWO)[2])
        theirs = self.ask(server, TWO, status=400, lora=[{"id": numbers["one:mine"], "scale": 1}])
        nobody = self.ask(server, TWO, status=400, lora=[{"id": 999, "scale": 1}])
        self.assertEqual(theirs[1]["error"]["message"].replace(str(numbers["one:mine"]), "N"),
                         nobody[1]["error"]["message"].replace("999", "N"))
        load(TWO, "mine", "mine")  # the same name, another adapter
        self.assertEqual(names(TWO), ["tiny", "shared", "two:mine"])
        self.ask(server, TWO, model="mine")
        load(BOSS, "one:gift", "two/mine")  # an administrator gives one away
        self.ask(server, ONE, model="gift")
        self.assertEqual(server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "mine"},
                                    ONE)[0], 200)
        self.ask(server, ONE, status=404, model="mine")
        self.ask(server, TWO, model="mine")
        self.assertEqual(server.ask("POST", "/lora-adapters", [], ONE)[0], 403)

        # The audit log has all of it.
        self.write(one={"priority": 3})
        server.process.send_signal(signal.SIGHUP)
        server.wait_said("reloaded the keys")
        self.keys.write_text("{")
        server.process.send_signal(signal.SIGHUP)
        server.wait_said("keeping the old keys")
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        seen = [(line["actor"], line["action"], line.get("target"), line["outcome"])
                for line in lines]
        self.assertEqual(seen, [
            ("one", "load_adapter", "one:mine", "done"),
            ("one", "load_adapter", "one:mine", "done"),
            ("two", "load_adapter", "two:mine", "done"),
            ("boss", "load_adapter", "one:gift", "done"),
            ("one", "unload_adapter", "one:mine", "done"),
            ("one", "/lora-adapters", None, "denied"),
            ("signal", "reload_keys", str(self.keys), "done"),
            ("signal", "key_changed", "one", "done"), ("signal", "key_changed", "two", "done"),
            ("signal", "reload_keys", str(self.keys), "failed")])
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertNotIn("key-", audit.read_text())

    def test_keys_that_are_refused(self):
        good = {"name": "a", "key": "long-enough"}
        for more, part in (({"weight": 0}, "weight"), ({"weight": 1e10}, "weight"),
                           ({"concurrent_requests": -1}, "concurrent_requests"),
                           ({"kv_tokens": "many"}, "kv_tokens"),
                           ({"own_adapters": 4097}, "own_adapters"),
                           ({"own_adapters": 1, "name": "a b"}, "letters"),
                           ({"own_adapters": 1, "name": "a:b"}, "letters"),
                           ({"own_adapters": 1, "name": ".."}, "letters"),
                           ({"metrics": "yes"}, "metrics")):
            self.keys.write_text(json.dumps({"keys": [{**good, **more}]}))
            done = call("serve", tiny_model.write(self.folder), "--port", 0, "--keys", self.keys)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn(part.encode(), done.stderr)


if __name__ == "__main__":
    unittest.main()
