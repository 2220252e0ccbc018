"""A running `avocet serve`, and clients that speak HTTP by hand: they send what is meant."""
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import random

from command import AVOCET, PATIENCE, wait_until


ENDLESS = 60000  # tokens of an answer that takes minutes: it runs until it is cancelled


def write_slow_model(folder, width=192, layers=4, context=65536, seed=3):
    """A llama2.c model with room for an ENDLESS answer. Weights repeat one block of random numbers,
    since nobody reads what it says."""
    generator = random.Random(seed)
    tokens = ["<unk>", "\n<s>\n", "\n</s>\n"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [chr(code) for code in range(32, 127)]
    heads, feed_forward, vocabulary = 4, 4 * width, len(tokens)
    block = struct.pack("<4096f", *(generator.gauss(0, 0.08) for _ in range(4096)))

    def weights(count):
        return (block * (count // 4096 + 1))[:4 * count]

    def ones(count):
        return struct.pack("<f", 1.0) * count

    parts = [struct.pack("<7i", width, feed_forward, layers, heads, heads, vocabulary, context),
             weights(vocabulary * width), ones(layers * width)]
    parts += [weights(layers * width * width) for _ in range(4)]
    parts += [ones(layers * width)]
    parts += [weights(layers * width * feed_forward) for _ in range(3)]
    parts += [ones(width), ones(context * (width // heads))]
    (folder / "model.bin").write_bytes(b"".join(parts))
    with open(folder / "tokenizer.bin", "wb") as file:
        file.write(struct.pack("<i", max(len(token) for token in tokens)))
        for number, token in enumerate(tokens):
            data = token.encode()
            file.write(struct.pack("<fi", float(-number), len(data)) + data)
    return folder / "model.bin"


class Serving:
    """Starts on a free port and waits until it says where it is."""

    def __init__(self, model, *flags, environment=None, command=None, port=True,
                 keep=None):
        place = ["--port", "0"] if port else []
        words = command or [AVOCET, "serve", str(model), *place, *map(str, flags)]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})},
                                        pass_fds=(keep.fileno(),) if keep else ())
        self.lines, self.url = [], None
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.search(r" at (\S+)$", line)
            if match:
                self.url = match.group(1)
            if line.startswith("  sandbox"):
                break
        if self.url is None or not line.startswith("  sandbox"):
            self.process.wait()
            raise AssertionError("did not start: " + "".join(self.lines))
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url.startswith("http") else None
        self.reader = threading.Thread(target=self.read_lines, daemon=True)
        self.reader.start()

    def read_lines(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def end(self, number=signal.SIGTERM):
        """The exit status after a signal; what it said is in `lines`."""
        self.process.send_signal(number)
        status = self.process.wait(timeout=PATIENCE)
        self.reader.join()
        return status

    def wait_said(self, part):
        wait_until(lambda: any(part in line for line in list(self.lines)), f'"{part}"')

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def raw(self, data, pieces=1):
        """Sends bytes (in so many pieces) and reads one answer."""
        with self.connect() as client:
            step = max(1, len(data) // pieces)
            for at in range(0, len(data), step):
                client.sendall(data[at:at + step])
            return read_answer(client)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body) over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            return ask(connection, method, path, body, headers)
        finally:
            connection.close()

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def requests(self):
        """Numbers of requests, as /telemetry tells."""
        counts = json.loads(self.ask("GET", "/telemetry")[2])["requests"]
        return {name: count or 0 for name, count in counts.items()}

    def wait_submitted(self, count):
        """Until the scheduler has taken so many, since the start; some may have ended."""
        wait_until(lambda: self.requests()["submitted"] >= count, f"{count} requests")

    def wait_idle(self):
        """Until all that were taken have ended; "running" and "waiting" leave out one that is
        being tokenised."""
        def idle():
            counts = self.requests()
            return counts["submitted"] == sum(counts[name] for name in (
                "finished", "failed", "cancelled", "expired"))
        wait_until(idle, "all requests to end")


def ask(connection, method, path, body=None, headers=None):
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    given = {"Content-Type": "application/json"} if data else {}
    connection.request(method, path, body=data, headers={**given, **(headers or {})})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def read_answer(client, body=True):
    """(status, headers, body) from a socket; None when it closes without one."""
    file = client.makefile("rb")
    return parse_answer(file, body)


def parse_answer(file, body=True):
    line = file.readline()
    if not line:
        return None
    status, headers = int(line.split()[1]), {}
    for line in file:
        if line in (b"\r\n", b"\n"):
            break
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    text = b""
    if body and "content-length" in headers:
        text = file.read(int(headers["content-length"]))
    elif body and headers.get("transfer-encoding") == "chunked":
        while True:
            size = int(file.readline().split(b";")[0], 16)
            text += file.read(size)
            file.readline()
            if size == 0:
                break
    return status, headers, text


def head(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()
