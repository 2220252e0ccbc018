#!/usr/bin/env python3
"""A server at many times its capacity: N connections that all ask at once, again and again.

usage: bench/overload.py MODEL [--connections 1000] [--rounds 3] [--tokens 32] [--avocet PATH]
                         [--occupy N] [-- options of avocet serve]

Every connection sends a streamed completion; those that are refused (429, 503) note how long that
took and ask again after a pause, until the rounds are over. Prints accepted, refused and failed
requests, percentiles of the time to a refusal and to the first byte of an accepted answer, and the
server's memory before, in between and after. One process, one thread, raw sockets.
--occupy: N answers without end keep the server busy until a hundred requests were refused, so that
some are, however fast the server and slow the clients.
"""
import argparse
import json
import selectors
import socket
import subprocess
import sys
import time


class Client:
    """One connection: asks, reads to the end of the answer, asks again."""

    def __init__(self, port, request, tally, rounds):
        self.port, self.request, self.tally, self.left = port, request, tally, rounds
        self.socket, self.data, self.begun, self.not_before = None, b"", 0.0, 0.0
        self.first = None

    def begin(self, selector):
        if self.socket is None:
            self.socket = socket.socket()
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.connect_ex(("127.0.0.1", self.port))
        self.data, self.first, self.begun = b"", None, time.monotonic()
        selector.register(self.socket, selectors.EVENT_WRITE, self)

    def ready(self, selector, events):
        try:
            if events & selectors.EVENT_WRITE:
                self.socket.send(self.request)
                self.begun = time.monotonic()
                selector.modify(self.socket, selectors.EVENT_READ, self)
                return
            got = self.socket.recv(65536)
        except OSError:
            got = b""
        if got and self.first is None:
            self.first = time.monotonic()
        self.data += got
        whole = self.data.endswith(b"\r\n0\r\n\r\n") or b"\r\n\r\n{" in self.data and \
            self.data.endswith(b"}")
        if got and not whole:
            return
        selector.unregister(self.socket)
        self.end(whole, not got or b"connection: close" in self.data[:600].lower())

    def end(self, whole, closed):
        status = int(self.data[9:12]) if self.data[:5] == b"HTTP/" else 0
        if whole and status in (429, 503):
            self.tally["refused"].append(self.first - self.begun)
            if b"retry-after:" not in self.data[:1000].lower():
                self.tally["without Retry-After"] += 1
        elif whole and status == 200 and b"[DONE]" in self.data:
            self.tally["accepted"].append(self.first - self.begun)
        else:
            self.tally["failed"] += 1
        self.left -= 1
        self.not_before = time.monotonic() + 0.2
        if closed:
            self.socket.close()
            self.socket = None


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] * 1e3 if values else float("nan")


def resident(process):
    with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def request_of(tokens):
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "stream": True,
                       "ignore_eos": True}).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def occupy(port):
    """A client whose answer has begun."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(request_of(60000))
    client.recv(1)
    return client


def run(port, arguments, process):
    request = request_of(arguments.tokens)
    occupants = [occupy(port) for _ in range(arguments.occupy)]
    tally = {"refused": [], "accepted": [], "failed": 0, "without Retry-After": 0}
    clients = [Client(port, request, tally, arguments.rounds) for _ in range(arguments.connections)]
    selector = selectors.DefaultSelector()
    memory = [resident(process)]
    waiting, active, begun = list(clients), 0, time.monotonic()
    while waiting or active:
        now = time.monotonic()
        for client in [client for client in waiting if client.not_before <= now]:
            waiting.remove(client)
            client.begin(selector)
            active += 1
        for key, events in selector.select(0.02):
            left = key.data.left
            key.data.ready(selector, events)
            if key.data.left < left:
                active -= 1
                if key.data.left > 0:
                    waiting.append(key.data)
        if len(tally["refused"]) >= 100:
            while occupants:
                occupants.pop().close()
        if now - begun > len(memory) * 2:
            memory.append(resident(process))
        if now - begun > arguments.seconds:
            break
    tally["unanswered"] = active
    memory.append(resident(process))
    return tally, memory, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120, help="give up after")
    parser.add_argument("--occupy", type=int, default=0)
    parser.add_argument("--avocet", default="build/avocet")
    arguments, options = parser.parse_known_args()
    options = [option for option in options if option != "--"]
    words = [arguments.avocet, "serve", arguments.model, "--port", "0", *options]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    port = None
    for line in process.stderr:
        if " serves " in line:
            port = int(line.rsplit(":", 1)[1])
        if line.startswith("  sandbox"):
            break
    if port is None:
        sys.exit("the server did not start")
    tally, memory, seconds = run(port, arguments, process)
    process.terminate()
    process.stderr.read()
    status = process.wait()
    refused, accepted = tally["refused"], tally["accepted"]
    print(f"{arguments.connections} connections, {arguments.rounds} requests each, "
          f"{seconds:.1f} s: accepted {len(accepted)}, refused {len(refused)}, "
          f"failed {tally['failed']}, unanswered {tally['unanswered']}, "
          f"without Retry-After {tally['without Retry-After']}")
    for name, values in (("time to a refusal", refused), ("time to the first byte", accepted)):
        print(f"{name}: p50 {percentile(values, .5):.1f} ms, p99 {percentile(values, .99):.1f} ms, "
              f"max {percentile(values, 1):.1f} ms")
    print("resident MiB: " + " ".join(f"{value:.0f}" for value in memory))
    print(f"exit status {status}")
    return 1 if tally["failed"] or tally["unanswered"] or status else 0


if __name__ == "__main__":
    sys.exit(main())
