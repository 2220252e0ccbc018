"""Keys: who may ask, how often, how much; reading them again while it serves."""
import contextlib
import hashlib
import json
import signal
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, call, wait_until
from serving import Serving, head, read_answer

ADMIN, PLAIN, SLOW, SMALL = ("admin-key-1", "plain-key-22", "slow-key-333", "small-key-444")


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


class Keys(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-keys-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.model = tiny_model.write(self.folder)
        self.path = self.folder / "keys" / "keys.json"
        self.path.parent.mkdir()

    def write(self, *keys):
        self.path.write_text(json.dumps({"keys": list(keys)}))

    def serve(self, *flags):
        server = Serving(self.model, "--keys", self.path, *flags)
        self.addCleanup(server.__exit__)
        return server

    def test_who_may_ask(self):
        self.write({"name": "boss", "key": ADMIN, "admin": True},
                   {"name": "plain", "sha256": hashlib.sha256(PLAIN.encode()).hexdigest()})
        server = self.serve("--access-log", self.folder / "log")
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        for headers in ({}, bearer("nobody-knows"), bearer(""), {"x-api-key": PLAIN + "x"},
                        {"Authorization": f"Basic {PLAIN}"}, bearer(PLAIN[:-1]),
                        bearer("k" * 5000)):
            status, answer, body = server.ask("POST", "/nowhere", {}, headers)
            self.assertEqual(status, 401, headers)
            self.assertEqual(answer["www-authenticate"], "Bearer")
            self.assertEqual(json.loads(body)["error"]["type"], "authentication_error")
            self.assertEqual(server.ask("GET", "/metrics", None, headers)[0], 401)
        for headers in (bearer(PLAIN), {"x-api-key": PLAIN}, bearer(ADMIN),
                        {"Host": "any.example", **bearer(PLAIN)},
                        {"authorization": f"bearer   {PLAIN}"}):
            self.assertEqual(server.ask("POST", "/nowhere", {}, headers)[0], 404, headers)
        wait_until(lambda: '"key":"plain"' in (self.folder / "log").read_text())
        self.assertNotIn(PLAIN, (self.folder / "log").read_text())
        self.assertEqual(server.end(), 0)

    def test_rates(self):
        """One a minute, so that no test is slow enough for another one."""
        self.write({"name": "slow", "key": SLOW, "requests_per_minute": 1},
                   {"name": "plain", "key": PLAIN})
        server = self.serve()
        seen = [server.ask("POST", "/nowhere", {}, bearer(SLOW)) for _ in range(3)]
        self.assertEqual([answer[0] for answer in seen], [404, 429, 429])
        self.assertGreater(int(seen[1][1]["retry-after"]), 0)
        self.assertEqual(json.loads(seen[1][2])["error"]["type"], "rate_limit_error")
        self.assertEqual(server.ask("POST", "/nowhere", {}, bearer(PLAIN))[0], 404)

    def test_bodies_of_the_refused_take_no_room(self):
        self.write({"name": "plain", "key": PLAIN})
        server = self.serve("--max-body", 64)  # all bodies together: 1 MiB
        good = f"Authorization: Bearer {PLAIN}"
        body = b"x" * 60000
        asked = head("POST", "/nowhere", good, "Content-Length: 60000") + body
        with contextlib.ExitStack() as held:
            for _ in range(8):  # the last bytes do not come: they stay
                client = held.enter_context(server.connect())
                client.sendall(head("POST", "/x", "x-api-key: wrong-key", "Content-Length: 250000")
                               + b"x" * 249000)
            self.settle(server)
            self.assertEqual(server.raw(asked)[0], 404)

    def test_bodies_that_found_no_room_take_none(self):
        self.write({"name": "plain", "key": PLAIN}, {"name": "other", "key": SMALL})
        server = self.serve("--max-body", 64)
        asked = head("POST", "/nowhere", f"x-api-key: {PLAIN}", "Content-Length: 65536")
        other = head("POST", "/nowhere", f"x-api-key: {SMALL}", "Content-Length: 65536")
        with contextlib.ExitStack() as held:
            for _ in range(40):  # announced alone: nothing
                held.enter_context(server.connect()).sendall(asked)
            readers = [held.enter_context(server.connect()) for _ in range(8)]
            for client in readers:  # half of what all share, which is more than one key's part
                client.sendall(asked + b"x" * 65000)
            self.settle(server)
            late = held.enter_context(server.connect())
            late.sendall(asked + b"x" * 65000)
            self.settle(server)
            answer = server.raw(asked + b"x" * 65536)
            self.assertEqual((answer[0], "retry-after" in answer[1]), (503, True))
            self.assertEqual(server.raw(other + b"x" * 65536)[0], 404)
            readers[0].close()
            wait_until(lambda: server.raw(asked + b"x" * 65536)[0] == 404)
            late.sendall(b"x" * 536)
            self.assertEqual(read_answer(late)[0], 503)

    def settle(self, server):
        """What was sent has been read: the sockets' queues are empty, as the kernel says."""
        ours = f":{server.port:04X}"

        def unread():
            lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
            fields = [line.split() for line in lines]
            return sum(int(field[4].split(":")[0], 16) + int(field[4].split(":")[1], 16)
                       for field in fields if field[1].endswith(ours) or field[2].endswith(ours))
        wait_until(lambda: unread() == 0)

    def test_quotas(self):
        self.write({"name": "small", "key": SMALL, "token_quota": 12, "quota_seconds": 3600})
        server = self.serve()
        request = {"prompt": "once upon", "max_tokens": 5, "ignore_eos": True}
        self.assertEqual(server.ask("POST", "/v1/completions", request, bearer(SMALL))[0], 200)
        for _ in range(4):
            status, headers, body = server.ask("POST", "/v1/completions", request, bearer(SMALL))
            if status == 429:
                break
        self.assertEqual(status, 429, body)
        self.assertGreater(int(headers["retry-after"]), 1000)

    def test_keys_are_read_again(self):
        self.write({"name": "slow", "key": SLOW, "requests_per_minute": 1})
        server = self.serve()
        server.ask("POST", "/nowhere", {}, bearer(SLOW))
        fresh = self.path.with_suffix(".new")  # written beside and renamed, under the sandbox
        fresh.write_text(json.dumps({"keys": [
            {"name": "slow", "key": SLOW, "requests_per_minute": 1},
            {"name": "plain", "key": PLAIN}]}))
        fresh.rename(self.path)
        server.process.send_signal(signal.SIGHUP)
        server.wait_said("reloaded the keys")
        self.assertEqual(server.ask("POST", "/nowhere", {}, bearer(PLAIN))[0], 404)
        self.assertEqual(server.ask("POST", "/nowhere", {}, bearer(SLOW))[0], 429)  # goes on
        self.path.write_text('{"keys": [{"name": "broken"')
        server.process.send_signal(signal.SIGHUP)
        server.wait_said("keeping the old keys")
        self.assertEqual(server.ask("POST", "/nowhere", {}, bearer(PLAIN))[0], 404)
        self.write({"name": "other", "key": ADMIN})
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.ask("POST", "/nowhere", {}, bearer(PLAIN))[0] == 401)

    def test_files_that_are_refused(self):
        good = {"name": "a", "key": "long-enough"}
        for keys, part in ((None, "keys"), ([], "0 keys"), ([{"name": "a"}], "either"),
                           ([{**good, "sha256": "00"}], "either"),
                           ([{"name": "a", "sha256": "zz" * 32}], "hexadecimal"),
                           ([{**good, "key": "short"}], "8 to"), ([{"key": "long-enough"}], "name"),
                           ([good, {**good, "key": "other-key"}], "same name or key"),
                           ([good, {**good, "name": "b"}], "same name or key"),
                           ([{**good, "priority": 16}], "priority"),
                           ([{**good, "priority": "high"}], "priority"),
                           ([{**good, "requests_per_minute": -1}], "requests_per_minute"),
                           ([{**good, "token_quota": 1.5}], "token_quota"),
                           ([{**good, "adapters": "all"}], "adapters"),
                           ([{**good, "admin": 1}], "admin"), ([{**good, "rate": 5}], "rate"),
                           ([{**good, "name": "a\nb"}], "control"),
                           ([{**good, "name": "a\x7fb"}], "control"), (["key"], "object")):
            self.path.write_text(json.dumps({"keys": keys} if keys is not None else {}))
            done = call("serve", self.model, "--port", 0, "--keys", self.path)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn(part.encode(), done.stderr)
            self.assertIn(b"keys.json", done.stderr)
            self.assertNotIn(b"long-enough", done.stderr)


if __name__ == "__main__":
    unittest.main()
