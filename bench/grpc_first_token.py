#!/usr/bin/env python3
"""The first token over gRPC beside the first one over server-sent events.

usage: bench/grpc_first_token.py MODEL [--rounds 300] [--tokens 4] [--words 8] [--avocet PATH]
                                 [-- options of avocet serve]

One server, one connection of each kind, both on plain sockets in this process; every round asks
both, in turns which one first, with a prompt of its own that no cache has. Prints, in milliseconds,
the medians of the time from sending a request to the first byte of its first event or message, of
the time to its end, and the median of the ratios of the rounds with their quartiles.
"""
import argparse
import json
import socket
import statistics
import struct
import subprocess
import sys
import time


class Events:
    """HTTP/1.1 and server-sent events."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, prompt, tokens):
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        request = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                   b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        data, first, begun = b"", None, time.perf_counter()
        self.socket.sendall(request)
        while not data.endswith(b"0\r\n\r\n"):
            data += self.socket.recv(65536)
            if first is None and b"data: " in data:
                first = time.perf_counter() - begun
        return first, time.perf_counter() - begun


def varint(number):
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def frame(kind, flags, stream, data):
    return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data


class Calls:
    """HTTP/2 and gRPC, as little of them as this needs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(
            8, 0, 0, struct.pack(">I", 1 << 30)))
        self.stream, self.data = 1, b""
        fields = {":method": "POST", ":scheme": "http", ":authority": "localhost",
                  ":path": "/avocet.v1.Inference/Complete", "content-type": "application/grpc",
                  "te": "trailers"}
        self.head = b"".join(b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) +
                             value.encode() for name, value in fields.items())

    def ask(self, prompt, tokens):
        text = prompt.encode()
        message = (b"\x12" + varint(len(text)) + text + b"\x20" + varint(tokens) +
                   b"\x38\x01\x60\x01\x69" + bytes(8))
        body = b"\0" + struct.pack(">I", len(message)) + message
        request = frame(1, 4, self.stream, self.head) + frame(0, 1, self.stream, body)
        first, begun = None, time.perf_counter()
        self.socket.sendall(request)
        while True:
            while len(self.data) >= 9:
                size = int.from_bytes(self.data[:3], "big")
                if len(self.data) < 9 + size:
                    break
                kind, flags = self.data[3], self.data[4]
                self.data = self.data[9 + size:]
                if kind == 0 and first is None:
                    first = time.perf_counter() - begun
                if kind in (3, 7) or (kind == 1 and flags & 1 and first is None):
                    sys.exit("the call failed")
                if kind in (0, 1) and flags & 1:
                    self.stream += 2
                    return first, time.perf_counter() - begun
            self.data += self.socket.recv(65536)


def serve(arguments, more):
    process = subprocess.Popen([arguments.avocet, "serve", arguments.model, "--port", "0", "--grpc",
                                "0", *more], stderr=subprocess.PIPE, text=True)
    ports = {}
    for line in process.stderr:
        if " at http://" in line:
            ports["http"] = int(line.rsplit(":", 1)[1])
        if "gRPC at port" in line:
            ports["grpc"] = int(line.rsplit(" ", 1)[1])
            return process, ports
    sys.exit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--avocet", default="build/avocet")
    known = sys.argv[1:]
    more = known[known.index("--") + 1:] if "--" in known else []
    arguments = parser.parse_args(known[:known.index("--")] if "--" in known else known)
    process, ports = serve(arguments, more)
    try:
        kinds = {"events": Events(ports["http"]), "grpc": Calls(ports["grpc"])}
        times = {name: [] for name in kinds}
        for turn in range(-10, arguments.rounds):
            for name in sorted(kinds, reverse=turn % 2 == 0):
                prompt = f"{turn} {name[0]}" + " word" * arguments.words
                found = kinds[name].ask(prompt, arguments.tokens)
                if turn >= 0:
                    times[name].append(found)
    finally:
        process.terminate()
        process.communicate()
    for index, what in enumerate(("first", "whole")):
        ratios = [new[index] / old[index] for new, old in zip(times["grpc"], times["events"])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        old, new = (1e3 * statistics.median(found[index] for found in times[name])
                    for name in ("events", "grpc"))
        print(f"{what}: events {old:.3f} ms, grpc {new:.3f} ms, "
              f"ratio {middle:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
