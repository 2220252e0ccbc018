"""Requests that are broken, large, slow or strange: a clean answer each, and the next one works."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import tiny_model
from serving import Serving, ask, head, parse_answer, read_answer


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-http-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.log = cls.folder / "access.jsonl"
        cls.server = Serving(cls.model, "--max-body", 64, "--max-header", 8, "--header-seconds",
                             0.6, "--idle-seconds", 2, "--access-log", cls.log)

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

    def test_garbage(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"\0" * 100,
                     b"GET\r\n\r\n", b"hello there\r\n\r\n", b"\r\n" * 50 + b"x" * 50 + b"\r\n\r\n",
                     b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n"):
            try:
                answer = self.server.raw(data)
            except (ConnectionResetError, ValueError, IndexError):
                continue
            if answer is not None:
                self.assertGreaterEqual(answer[0], 400, data)

    def test_requests_in_pieces(self):
        body = json.dumps({"x": "y" * 300}).encode()
        data = head("POST", "/nowhere", f"Content-Length: {len(body)}") + body
        self.assert_error(self.server.raw(data, len(data) // 5), 404)

    def test_content_length(self):
        for value in ("abc", "-1", "1, 2", "99999999999999999999999999"):
            answer = self.server.raw(head("POST", "/echo", f"Content-Length: {value}"))
            self.assertIn(answer[0], (400, 413), value)
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
        answer = self.server.raw(head("GET", "/health", "X-Long: " + "h" * 20000))
        self.assertEqual(answer[0], 431)
        answer = self.server.raw(head("GET", "/" + "p" * 20000))
        self.assertIn(answer[0], (414, 431))
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
        for method in ("TRACE", "CONNECT", "BREW"):
            answer = self.server.raw(head(method, "/health"))
            self.assertGreaterEqual(answer[0], 400, method)

    def test_connections_are_used_again(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
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

    def test_slow_heads_and_bodies(self):
        for data in (b"GET /health HTTP/1.1\r\nX: ",
                     head("POST", "/nowhere", "Content-Length: 1000") + b"{"):
            with self.server.connect() as client:
                client.sendall(data)
                begin = time.monotonic()
                try:
                    while time.monotonic() - begin < 8:  # a byte now and then is no progress
                        client.sendall(b"a")
                        client.settimeout(0.1)
                        try:
                            answer = client.recv(1000)
                            break
                        except TimeoutError:
                            continue
                    self.assertTrue(answer == b"" or b" 408 " in answer, answer)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.assertLess(time.monotonic() - begin, 8)

    def test_clients_that_say_nothing_are_closed(self):
        with self.server.connect() as client:
            client.settimeout(10)
            left = client.recv(1000)
            self.assertTrue(left == b"" or b" 408 " in left)

    def test_idle_connections_are_closed(self):
        with self.server.connect() as client:
            client.sendall(head("GET", "/health"))
            read_answer(client)
            client.settimeout(10)
            left = client.recv(1000)
            self.assertTrue(left == b"" or b" 408 " in left)

    def test_origins(self):
        refused = {"Origin": "https://evil.example"}
        answer = self.server.ask("POST", "/nowhere", {}, refused)
        self.assert_error(answer, 403)
        self.assertNotIn("access-control-allow-origin", answer[1])
        own = {"Origin": f"http://127.0.0.1:{self.server.port}"}
        self.assert_error(self.server.ask("POST", "/nowhere", {}, own), 404)
        with Serving(self.model, "--cors", "https://good.example") as server:
            answer = server.ask("OPTIONS", "/v1/models", None, {"Origin": "https://good.example",
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
        self.assertTrue(self.server.wait_for(lambda: "logged-1" in self.log.read_text()))
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        line = [line for line in lines if line.get("id") == "logged-1"][0]
        for name in ("time", "peer", "method", "path", "status", "bytes", "seconds", "end"):
            self.assertIn(name, line)
        self.assertNotIn(secret, self.log.read_text())
        moved = self.folder / "access.1"
        os.rename(self.log, moved)
        self.server.process.send_signal(signal.SIGUSR1)
        self.assertTrue(self.server.wait_for(self.log.exists))
        self.server.ask("GET", "/health", None, {"X-Request-Id": "logged-2"})
        self.assertTrue(self.server.wait_for(lambda: "logged-2" in self.log.read_text()))
        self.assertNotIn("logged-2", moved.read_text())


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
                self.assertTrue(server.wait_for(
                    lambda server=server: server.raw(head("GET", "/health"))[0] == 200))
                self.assertEqual(server.end(), 0)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertRaisesRegex(AssertionError, "in use.*--port"):
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
        if shutil.which("openssl") is None:
            self.skipTest("SKIPPED: openssl is not here (apt-get install openssl)")
        certificate, key = self.folder / "c.pem", self.folder / "k.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", key, "-out", certificate], check=True,
                       stderr=subprocess.DEVNULL)
        with Serving(self.model, "--tls-cert", certificate, "--tls-key", key) as server:
            self.assertTrue(server.url.startswith("https://"))
            context = ssl.create_default_context(cafile=certificate)
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", server.port)) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as client:
                        for _ in range(3):
                            client.sendall(b"GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n")
                            self.assertEqual(read_answer(client)[0], 200)
            with server.connect() as client:  # no TLS: closed, and nothing worse
                client.sendall(head("GET", "/health"))
                client.settimeout(10)
                try:
                    client.recv(1000)
                except ConnectionResetError:
                    pass
            self.assertEqual(server.end(), 0)
        with self.assertRaisesRegex(AssertionError, "certificate"):
            Serving(self.model, "--tls-cert", key, "--tls-key", certificate)


if __name__ == "__main__":
    unittest.main()
