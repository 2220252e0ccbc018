"""Requests that are broken, large, slow or strange: a clean answer each, and the next one works."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import tempfile
import unittest
from pathlib import Path

import certificates
import tiny_model
from command import PATIENCE, wait_until
from serving import Serving, ask, head, parse_answer, read_answer


def logged(log, ident):
    """The only line of the access log with this id."""
    def lines():
        return [line for line in map(json.loads, log.read_text().splitlines())
                if line["id"] == ident]
    wait_until(lines, f"the line of {ident}")
    assert len(lines()) == 1, lines()
    return lines()[0]


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-http-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.log = cls.folder / "access.jsonl"
        # A refusal that waited for a limit of time would not come while a test waits for it.
        cls.server = Serving(cls.model, "--max-body", 64, "--max-header", 8, "--header-seconds",
                             2 * PATIENCE, "--idle-seconds", 2 * PATIENCE, "--access-log", cls.log)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        cls.server.__exit__()
        cls.scratch.cleanup()
        assert status == 0, (status, cls.server.lines)

    def tearDown(self):
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)

    def assert_error(self, answer, status):
        self.assertEqual(answer[0], status, answer)
        self.assertIn("message", json.loads(answer[2])["error"])
        self.assertIn("x-request-id", answer[1])

    def everything(self, data, server=None):
        """All bytes that come back until the connection ends."""
        got = b""
        with (server or self.server).connect() as client:
            client.sendall(data)
            while piece := client.recv(65536):
                got += piece
        return got

    def assert_refused(self, data, status, before=b"", server=None):
        """One answer, all of it ours, at once, with a line in the log; nothing behind it."""
        got = self.everything(data, server)
        self.assertTrue(got.startswith(before), got)
        head_text, _, body = got[len(before):].partition(b"\r\n\r\n")
        lines = head_text.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in
                   (line.partition(":") for line in lines[1:])}
        self.assertEqual(int(lines[0].split()[1]), status, (data[:80], got))
        self.assertEqual(got.count(b"HTTP/1.1 "), 1, got)
        self.assertEqual(int(headers["content-length"]), len(body), got)
        self.assertEqual(headers["content-type"], "application/json")
        self.assertEqual(headers["connection"].lower(), "close")
        error = json.loads(body)["error"]
        self.assertTrue(error["message"] and error["type"] and error["code"], error)
        line = logged(self.log, headers["x-request-id"])
        self.assertEqual(line["status"], status)
        return line, error

    def test_garbage(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"\0" * 100,
                     b"GET\r\n\r\n", b"hello there\r\n\r\n", b"\r\n" * 50 + b"x" * 50 + b"\r\n\r\n",
                     b"\xff", b"\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", b"a" * 100,
                     b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n"):
            line, _ = self.assert_refused(data, 400)
            self.assertEqual(line["end"], "refused")
        line, _ = self.assert_refused(b"GET /x?y HTTP/9.9\r\nHost: a\r\n\r\n", 505)
        self.assertEqual((line["method"], line["path"]), ("GET", "/x"))

    def test_refusals_are_one_answer(self):
        for header in ("Host:", "Content-Length: 1", "Host: a\r\nHost: b"):
            data = f"GET /health HTTP/1.1\r\n{header}\r\n\r\n".encode()
            self.assert_refused(data, 400)
        for length, status in (("-5", 400), ("1" * 23, 413), ("5 ", 400), ("", 400)):
            self.assert_refused(head("POST", "/v1/completions", f"Content-Length: {length}"),
                                status)
        for coding in ("identity", "gzip, chunked", "chunked, chunked", "x"):
            self.assert_refused(head("POST", "/v1/completions", f"Transfer-Encoding: {coding}")
                                + b"0\r\n\r\n", 501)
        self.assert_refused(b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400)
        data = head("POST", "/v1/messages", "Content-Length: -5")
        got = self.everything(data)
        self.assertEqual(json.loads(got.partition(b"\r\n\r\n")[2])["type"], "error")

    def test_refusals_behind_a_good_request(self):
        """What the gate does not see is refused as well, and ends the connection."""
        with self.server.connect() as client:
            client.sendall(head("GET", "/health"))
            read_answer(client)
            client.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length : 40\r\n\r\n"
                           + head("GET", "/health"))
            self.assert_error(read_answer(client), 400)
            self.assertEqual(client.recv(1000), b"")
        for broken, status in ((head("GET", "/2", "X: " + "h" * 9000), 431),
                               (b"GET /2 HTTP/1.1\r\nHost:\r\n\r\n", 400),
                               (b"GET /2 HTTP/1.1\r\n\r\n", 400)):
            with self.server.connect() as client:
                client.sendall(head("GET", "/health"))
                read_answer(client)
                client.sendall(broken)
                answer = read_answer(client)
                self.assert_error(answer, status)
                self.assertEqual(client.recv(1000), b"")
        with self.server.connect() as client:  # libmicrohttpd's own words: a line in the log
            client.sendall(head("GET", "/health"))
            read_answer(client)
            client.sendall(b"GET /its-own-words HTTP/1.1\r\nbroken\r\n\r\n")
            self.assertEqual(read_answer(client)[0], 400)
        with self.server.connect() as client:  # and of a chunk that is none
            client.sendall(head("POST", "/no-chunk", "Transfer-Encoding: chunked") + b"zz\r\n")
            self.assertEqual(read_answer(client)[0], 400)
        wait_until(lambda: "no-chunk" in self.log.read_text())
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        for path in ("/its-own-words", "/no-chunk"):
            found = [(line["status"], line["end"]) for line in lines if line["path"] == path]
            self.assertEqual(found, [(400, "refused")])

    def test_chunks(self):
        body = json.dumps({"prompt": "ab", "max_tokens": 2}).encode()
        for chunks in (b"%x;name=value;other=\"quoted\"\r\n%s\r\n0;last\r\nTrailer: x\r\n\r\n"
                       % (len(body), body),
                       b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n",
                       b"%016X\r\n%s\r\n0\r\n\r\n" % (len(body), body)):
            with self.server.connect() as client:
                client.sendall(head("POST", "/v1/completions", "Transfer-Encoding: chunked")
                               + chunks + head("GET", "/health"))
                file = client.makefile("rb")
                self.assertEqual(parse_answer(file)[0], 200, chunks)
                self.assertEqual(parse_answer(file)[0], 200)
        for chunks in (b"-1\r\n", b"0x5\r\nhello\r\n", b"5\r\nhelloworld", b"\r\n\r\n",
                       b"ffffffffffffffffff\r\n"):
            answer = self.server.raw(head("POST", "/x", "Transfer-Encoding: chunked") + chunks)
            self.assertIn(answer[0], (400, 413), chunks)

    def test_absolute_targets(self):
        port = self.server.port
        for target, host, status in ((f"http://127.0.0.1:{port}/health", "x", 200),
                                     ("HTTP://localhost/health?a=b", "x", 200),
                                     ("http://evil.example/health", "localhost", 403),
                                     ("http://localhost", "x", 200),
                                     ("ftp://localhost/health", "localhost", 404)):
            data = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            self.assertEqual(self.server.raw(data)[0], status, target)

    def test_odd_paths(self):
        for path, status in (("//health", 404), ("/health/", 404), ("/%68ealth", 200),
                             ("/health%00x", 400), ("/./health", 404), ("/../health", 404),
                             ("/health#x", 404), ("/health%", 404), ("/%2e%2e/health", 404),
                             ("/health?%00=%zz&&&=", 200), ("/\u00e9".encode().decode("latin-1"),
                                                            404)):
            data = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1")
            answer = self.server.raw(data)
            self.assertEqual(answer[0], status, path)

    def test_many_fields_and_cookies(self):
        cookies = "Cookie: " + "; ".join(f"c{i}=" + "v" * 32 for i in range(100))
        self.assertEqual(self.server.raw(head("GET", "/health", cookies))[0], 200)
        fields = [f"X-{i}: y" for i in range(120)]
        self.assertEqual(self.server.raw(head("GET", "/health", *fields))[0], 200)
        self.assert_refused(head("GET", "/health", *(fields * 3)), 431)
        self.assert_refused(head("GET", "/health?" + "a&" * 500), 431)

    def test_requests_in_pieces(self):
        body = json.dumps({"x": "y" * 300}).encode()
        data = head("POST", "/nowhere", f"Content-Length: {len(body)}") + body
        self.assert_error(self.server.raw(data, len(data) // 5), 404)

    def test_content_length(self):
        for value in ("abc", "-1", "1, 2", "99999999999999999999999999"):
            answer = self.server.raw(head("POST", "/echo", f"Content-Length: {value}"))
            self.assert_error(answer, 413 if value[0] == "9" else 400)
        both = self.server.raw(head("POST", "/x", "Content-Length: 3", "Transfer-Encoding: chunked")
                               + b"0\r\n\r\n")
        self.assertEqual(both[0], 400)
        for lengths in (("Content-Length: 30", "Content-Length: 5"),
                        ("Content-Length: 5", "Content-Length: 5"),
                        ("Content-Length: 5", "Transfer-Encoding: chunked")):
            with self.server.connect() as client:  # nothing behind it is taken for a request
                client.sendall(head("POST", "/x", *lengths) + b"hello" + head("GET", "/health"))
                self.assert_error(read_answer(client), 400)
                self.assertEqual(client.recv(4096), b"")
        with self.server.connect() as client:  # shorter than announced, then gone
            client.sendall(head("POST", "/x", "Content-Length: 50") + b"short")
        with self.server.connect() as client:  # no body at all
            client.sendall(head("POST", "/nowhere"))
            self.assert_error(read_answer(client), 404)

    def test_large_bodies(self):
        with self.server.connect() as client:  # the answer can be read though the body was not
            client.sendall(head("POST", "/x", "Content-Length: 8000000"))
            try:
                for _ in range(80):
                    client.sendall(b"x" * 100000)
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assert_error(read_answer(client), 413)
        chunk = b"1000\r\n" + b"y" * 4096 + b"\r\n"
        answer = self.server.raw(head("POST", "/x", "Transfer-Encoding: chunked") + chunk * 40
                                 + b"0\r\n\r\n")
        self.assert_error(answer, 413)
        body = b"z" * 65536  # just fits
        answer = self.server.raw(head("POST", "/nowhere", f"Content-Length: {len(body)}") + body)
        self.assert_error(answer, 404)

    def test_expect(self):
        with self.server.connect() as client:
            client.sendall(head("POST", "/nowhere", "Content-Length: 2", "Expect: 100-continue"))
            self.assertEqual(client.recv(100).split()[1], b"100")
            client.sendall(b"{}")
            self.assert_error(read_answer(client), 404)
        with self.server.connect() as client:
            client.sendall(head("POST", "/x", "Content-Length: 800000", "Expect: 100-continue"))
            self.assert_error(read_answer(client), 413)

    def test_large_heads(self):
        self.assert_refused(head("GET", "/health", "X-Long: " + "h" * 20000), 431)
        self.assert_refused(head("GET", "/" + "p" * 20000), 414)
        answer = self.server.raw(head("GET", "/health", "X-Long: " + "h" * 4000))
        self.assertEqual(answer[0], 200)

    def test_methods(self):
        with self.server.connect() as client:
            client.sendall(head("HEAD", "/health"))
            status, headers, _ = read_answer(client, body=False)
            self.assertEqual(status, 200)
            self.assertGreater(int(headers["content-length"]), 0)
            client.sendall(head("OPTIONS", "/health"))  # no body came in between
            self.assertEqual(read_answer(client)[0], 204)
        for path, allowed in (("/health", "GET, HEAD, OPTIONS"), ("/tokenize", "POST, OPTIONS"),
                              ("/lora-adapters", "GET, HEAD, POST, OPTIONS"),
                              ("/", "GET, HEAD, OPTIONS"), ("*", "GET, HEAD, POST, OPTIONS")):
            answer = self.server.raw(head("OPTIONS", path))
            self.assertEqual((answer[0], answer[1]["allow"]), (204, allowed), path)
        answer = self.server.raw(head("PUT", "/tokenize"))
        self.assertEqual((answer[0], answer[1]["allow"]), (405, "POST, OPTIONS"))
        for method in ("TRACE", "CONNECT", "BREW"):
            answer = self.server.raw(head(method, "/health"))
            self.assertGreaterEqual(answer[0], 400, method)

    def test_connections_are_used_again(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        connection.connect()
        own = connection.sock.getsockname()
        for i in range(60):
            status, headers, _ = ask(connection, "GET", "/health")
            self.assertEqual((status, connection.sock.getsockname()), (200, own))
            body = {"n": i} if i % 2 else None
            status, headers, _ = ask(connection, "POST", "/nowhere", body)
            self.assertEqual(status, 404)
            self.assertNotEqual(headers.get("connection"), "close")
        connection.close()

    def test_codings_of_bodies(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        for coding, status in (("gzip", 415), ("identity", 200), ("br", 415)):
            answer = ask(connection, "POST", "/v1/completions", {"prompt": "ab", "max_tokens": 1},
                         {"Content-Encoding": coding})
            self.assertEqual(answer[0], status, coding)
            if status == 415:
                self.assertIn(coding, json.loads(answer[2])["error"]["message"])
        connection.close()

    def test_pipelines(self):
        with self.server.connect() as client:
            client.sendall(head("GET", "/health") * 20 + head("POST", "/no", "Content-Length: 2")
                           + b"{}" + head("GET", "/health"))
            file = client.makefile("rb")
            answers = [parse_answer(file)[0] for _ in range(22)]
        self.assertEqual(answers, [200] * 20 + [404, 200])

    def test_request_ids(self):
        self.assertEqual(self.server.raw(head("GET", "/health", "X-Request-Id: abc-1"))[1]
                         ["x-request-id"], "abc-1")
        made = {self.server.ask("GET", "/nowhere")[1]["x-request-id"] for _ in range(10)}
        self.assertEqual(len(made), 10)
        for bad in ('a"b', "x" * 200, "a b", "\x7f"):
            answer = self.server.raw(head("GET", "/health", f"X-Request-Id: {bad}"))
            self.assertNotEqual(answer[1]["x-request-id"], bad)

    def test_origins(self):
        refused = {"Origin": "https://evil.example"}
        answer = self.server.ask("POST", "/nowhere", {}, refused)
        self.assert_error(answer, 403)
        self.assertNotIn("access-control-allow-origin", answer[1])
        own = {"Origin": f"http://127.0.0.1:{self.server.port}"}
        self.assert_error(self.server.ask("POST", "/nowhere", {}, own), 404)
        with Serving(self.model, "--cors", "https://good.example") as server:
            answer = server.ask("OPTIONS", "/v1/messages", None, {"Origin": "https://good.example",
                                "Access-Control-Request-Method": "POST"})
            self.assertEqual(answer[0], 204)
            self.assertEqual(answer[1]["access-control-allow-origin"], "https://good.example")
            self.assertIn("POST", answer[1]["access-control-allow-methods"])
            answer = server.ask("POST", "/nowhere", {}, refused)
            self.assertEqual(answer[0], 403)

    def status_of(self, server, host, method="POST", path="/nowhere"):
        data = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        return server.raw(data.encode())

    def test_names_of_others_are_refused(self):
        """A page whose name points here is one origin with us: Origin says nothing."""
        foreign = ("evil.example", f"evil.example:{self.server.port}", "localhost.evil.example",
                   "127.0.0.1.evil.example", "1.2.3", "xlocalhost", "[::1", "[evil.example]",
                   "256.0.0.1", "::1", "localhost@evil.example")
        for host in foreign:
            for method, path in (("POST", "/nowhere"), ("GET", "/v1/models"), ("OPTIONS", "/")):
                answer = self.status_of(self.server, host, method, path)
                self.assert_error(answer, 403)
                self.assertIn(b"--allow-host", answer[2])
        for host in ("localhost", "LocalHost:8080", "localhost.", "127.0.0.1", "[::1]:80",
                     "192.0.2.7:8080", "[2001:db8::1]"):
            self.assert_error(self.status_of(self.server, host), 404)
        with self.server.connect() as client:  # HTTP/1.0 needs none, and no browser is so old
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            self.assertEqual(read_answer(client)[0], 200)

    def test_names_that_are_allowed(self):
        with Serving(self.model, "--allow-host", "llm.example", "--allow-host", "service", "--cors",
                     "https://good.example:444") as server:
            for host in ("LLM.example:80", "service", "good.example"):
                self.assertEqual(self.status_of(server, host)[0], 404, host)
            self.assertEqual(self.status_of(server, "evil.example")[0], 403)
        for flags in (("--allow-host", "*"), ("--cors", "*")):
            with Serving(self.model, *flags) as server:
                self.assertEqual(self.status_of(server, "any.example")[0], 404)
        for bad in ("http://name", "name:80", ""):
            with self.assertRaisesRegex(AssertionError, "--allow-host"):
                Serving(self.model, "--allow-host", bad)

    def test_access_log(self):
        secret = "a very private prompt"
        self.server.ask("POST", "/v1/completions", {"prompt": secret, "max_tokens": 2},
                        {"X-Request-Id": "logged-1"})
        wait_until(lambda: "logged-1" in self.log.read_text())
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        line = [line for line in lines if line.get("id") == "logged-1"][0]
        for name in ("time", "peer", "method", "path", "status", "bytes", "seconds", "end"):
            self.assertIn(name, line)
        self.assertNotIn(secret, self.log.read_text())
        moved = self.folder / "access.1"
        os.rename(self.log, moved)
        self.server.process.send_signal(signal.SIGUSR1)
        wait_until(self.log.exists)
        self.server.ask("GET", "/health", None, {"X-Request-Id": "logged-2"})
        wait_until(lambda: "logged-2" in self.log.read_text())
        self.assertNotIn("logged-2", moved.read_text())


class Slow(unittest.TestCase):
    """Clients that keep the server waiting. It waits for moments only, so one of these clients may
    be late itself, on a busy machine: that is seen, and it tries again."""
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-http-")
        cls.folder = Path(cls.scratch.name)
        cls.log = cls.folder / "access.jsonl"
        cls.server = Serving(tiny_model.write(cls.folder), "--header-seconds", 0.6,
                             "--idle-seconds", 2, "--access-log", cls.log)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        cls.server.__exit__()
        cls.scratch.cleanup()
        assert status == 0, (status, cls.server.lines)

    def served(self):
        """A connection with one request behind it."""
        while True:
            client = self.server.connect()
            client.sendall(head("GET", "/health"))
            answer = read_answer(client)
            if answer is not None and answer[0] == 200:
                return client
            client.close()

    def trickle(self, client):
        """A byte now and then, which is no progress; what comes until the connection ends."""
        answer = b""
        client.settimeout(0.1)
        while True:
            try:
                piece = client.recv(4000)
                if not piece:
                    return answer
                answer += piece
                continue
            except ConnectionResetError:
                return answer
            except TimeoutError:
                pass
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b"a")

    def refused(self, data, before):
        """The line in the log of a request that never comes to its end."""
        answer = b""
        while not answer:  # closed before anything of it had come: no request at all
            with self.served() if before else self.server.connect() as client:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.sendall(data)
                answer = self.trickle(client)
        self.assertIn(b"HTTP/1.1 408 ", answer)
        first, _, body = answer.partition(b"\r\n\r\n")
        self.assertEqual(json.loads(body)["error"]["code"], "too_slow")
        line = logged(self.log, re.search(rb"X-Request-Id: (\S+)", first)[1].decode())
        self.assertEqual(line["status"], 408)
        return line

    def test_heads_and_bodies(self):
        for path, data, before in (
                ("/slow-0", b"GET /slow-0 HTTP/1.1\r\nX: ", False),
                ("/slow-1", head("POST", "/slow-1", "Content-Length: 1000") + b"{", False),
                ("/slow-2", b"GET /slow-2 HTTP/1.1\r\nX: ", True),
                # Its deadline is earlier than the one that the watcher sleeps for.
                ("/slow-3", head("POST", "/slow-3", "Content-Length: 1000") + b"{", True)):
            self.assertEqual(self.refused(data, before)["path"], path)

    def test_clients_that_say_nothing_are_closed(self):
        with self.server.connect() as client:
            left = client.recv(1000)
            self.assertTrue(left == b"" or b" 408 " in left)

    def test_idle_connections_are_closed(self):
        with self.served() as client:
            left = client.recv(1000)
            self.assertTrue(left == b"" or b" 408 " in left)


class Places(unittest.TestCase):
    """Limits of connections, unix sockets, TLS."""
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-http-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_connections_have_a_maximum(self):
        for flag, status in (("--max-connections", 503), ("--max-connections-per-address", 429)):
            with Serving(self.model, flag, 4) as server:
                held = [server.connect() for _ in range(4)]
                for client in held:
                    client.sendall(head("GET", "/health"))
                    self.assertEqual(read_answer(client)[0], 200)
                answer = server.raw(head("GET", "/health"))
                self.assertEqual(answer[0], status)
                self.assertIn("retry-after", answer[1])
                self.assertIn("x-request-id", answer[1])
                self.assertIn("error", json.loads(answer[2]))
                for client in held:
                    client.close()
                wait_until(lambda server=server: server.raw(head("GET", "/health"))[0] == 200)
                self.assertEqual(server.end(), 0)

    def test_without_keys_other_machines_are_warned_of(self):
        keys = self.folder / "keys.json"
        keys.write_text(json.dumps({"keys": [{"name": "a", "key": "secret-key"}]}))
        keys.chmod(0o600)
        for flags, warned in ((("--host", "0.0.0.0"), True), (("--host", "::"), True),
                              (("--host", "127.0.0.2"), False), ((), False),
                              (("--host", "0.0.0.0", "--keys", keys), False)):
            if "::" in flags and not os.path.exists("/proc/net/if_inet6"):
                continue
            with Serving(self.model, *flags) as server:
                said = "".join(server.lines)
                self.assertEqual("other machines can reach this server" in said, warned, said)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertRaisesRegex(AssertionError, "in use; choose another port"):
                Serving(self.model, "--port", port)

    def test_unix_socket(self):
        path = self.folder / "socket"
        for _ in range(2):  # the second finds a stale one
            with Serving(self.model, "--unix-socket", path, port=False) as server:
                self.assertEqual(server.url, f"unix:{path}")
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(path))
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n")
                    self.assertEqual(read_answer(client)[0], 200)
                server.process.kill()

    def test_tls(self):
        made = certificates.make(self.folder)
        if made is None:
            self.skipTest("SKIPPED: openssl is not here (apt-get install openssl)")
        certificate, key = made
        with Serving(self.model, "--tls-cert", certificate, "--tls-key", key) as server:
            self.assertTrue(server.url.startswith("https://"))
            context = ssl.create_default_context(cafile=certificate)
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", server.port)) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as client:
                        for _ in range(3):
                            client.sendall(b"GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n")
                            self.assertEqual(read_answer(client)[0], 200)
                with socket.create_connection(("127.0.0.1", server.port)) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as client:
                        client.sendall(b"GET /health HTTP/1.1\r\nHost:\r\n\r\n")
                        status, headers, body = read_answer(client)
                        self.assertEqual(status, 400)  # the same words as without TLS
                        self.assertEqual(json.loads(body)["error"]["code"], "host")
            with server.connect() as client:  # no TLS: told so, in plain words
                client.sendall(head("GET", "/health"))
                status, headers, body = read_answer(client)
                self.assertEqual(status, 400)
                self.assertIn("https://", json.loads(body)["error"]["message"])
            self.assertEqual(server.end(), 0)
        with self.assertRaisesRegex(AssertionError, "certificate"):
            Serving(self.model, "--tls-cert", key, "--tls-key", certificate)


if __name__ == "__main__":
    unittest.main()
