"""Events of the prefix cache over ZeroMQ: what a subscriber gets while requests run, replay, and
clients of another kind. The client is a small one of the test's own; where pyzmq and msgspec are
installed, they read the same as vLLM's subscribers do."""
import contextlib
import importlib.util
import re
import socket
import struct
import tempfile
import unittest
from pathlib import Path
from typing import List, Optional, Union

import tiny_model
from command import PATIENCE, USAGE, call, wait_until
from serving import Serving

TEXT = "/v1/completions"
LONG = "once upon a time the a the a once upon the a time"
END = 2**64 - 1


class Unpacked:
    """msgpack, as far as batches use it."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value, = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def array(self, count):
        return [self.value() for _ in range(count)]

    def text(self, size):
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self):
        kind = self.take("B")
        if kind < 0x80:
            return kind
        if 0x90 <= kind < 0xa0:
            return self.array(kind & 15)
        if 0xa0 <= kind < 0xc0:
            return self.text(kind & 31)
        return {0xc0: lambda: None, 0xcb: lambda: self.take("d"), 0xce: lambda: self.take("I"),
                0xcf: lambda: self.take("Q"), 0xda: lambda: self.text(self.take("H")),
                0xdd: lambda: self.array(self.take("I"))}[kind]()


class Client:
    """A ZMTP 3.0 peer."""

    def __init__(self, port, kind):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")
        ready = b"\5READY\13Socket-Type" + struct.pack(">I", len(kind)) + kind
        self.socket.sendall(b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) +
                            bytes([4, len(ready)]) + ready)
        assert self.file.read(64)[:11] == b"\xff\0\0\0\0\0\0\0\1\x7f\3"
        assert b"READY" in self.frame()[1]

    def frame(self):
        flags = self.file.read(1)[0]
        size, = struct.unpack(">Q", self.file.read(8)) if flags & 2 else self.file.read(1)
        return flags, self.file.read(size)

    def send(self, *frames):
        for index, frame in enumerate(frames):
            self.socket.sendall(bytes([index + 1 < len(frames), len(frame)]) + frame)

    def message(self):
        frames, more = [], True
        while more:
            flags, body = self.frame()
            frames.append(body)
            more = flags & 1
        return frames

    def close(self):
        self.file.close()
        self.socket.close()


def batch(message):
    """(sequence number, events)"""
    number = int.from_bytes(message[-2], "big")
    if not message[-1]:
        return number, None
    reader = Unpacked(message[-1])
    _, events, rank = reader.value()
    assert rank == 0 and reader.at == len(message[-1])
    return number, events


class Sockets:
    """Those of pyzmq, closed together."""

    def __init__(self, zmq):
        self.context, self.open = zmq.Context(), []

    def socket(self, kind):
        self.open.append(self.context.socket(kind))
        return self.open[-1]

    def close(self):
        for one in self.open:
            one.close(linger=0)
        self.context.term()


class KvEvents(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-kv-")
        self.addCleanup(self.scratch.cleanup)
        folder = Path(self.scratch.name)
        self.model = tiny_model.write(folder)
        tiny_model.write_adapter(folder / "pirate", 1)
        self.adapter = folder / "pirate"

    def serve(self, *flags):
        server = Serving(self.model, "--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay",
                         "tcp://127.0.0.1:0", "--name", "tiny", "--threads", 1, *flags)
        self.addCleanup(server.__exit__)
        line = next(line for line in server.lines if line.startswith("  events"))
        self.ports = [int(number) for number in re.findall(r"port (\d+)", line)]
        return server

    def client(self, kind, index):
        return self.enterContext(contextlib.closing(Client(self.ports[index], kind)))

    def subscribe(self, topic=b""):
        client = self.client(b"SUB", 0)
        client.send(b"\1" + topic)
        return client

    def enterContext(self, manager):  # before Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def ask(self, server, prompt, **more):
        status, _, said = server.ask("POST", TEXT, {"prompt": prompt, "max_tokens": 1,
                                                    "ignore_eos": True, **more})
        self.assertEqual(status, 200, said)

    def replay(self, start, kind=b"DEALER"):
        client = self.client(kind, 1)
        client.send(*([b""] if kind == b"REQ" else []), start.to_bytes(8, "big"))
        found = []
        while True:
            message = client.message()
            self.assertEqual(len(message), 3 if kind == b"REQ" else 2)
            number, events = batch(message)
            if number == END:
                return found
            found.append((number, events))

    def test_blocks_as_they_come_and_go(self):
        server = self.serve("--kv-tokens", 160, "--sessions", 1, "--adapter",
                            f"pirate={self.adapter}", "--kv-events-topic", "kv@here@tiny")
        client, other = self.subscribe(b"kv@"), self.subscribe(b"other")
        self.ask(server, list(range(40, 110)))  # so that the subscription is there
        self.ask(server, list(range(50, 120)))
        first = self.replay(0)
        self.assertEqual(first[0], (0, [["AllBlocksCleared"]]))
        kind, blocks, parent, tokens, size, number, medium, adapter = first[1][1][0]
        self.assertEqual((kind, parent, size, number, medium, adapter),
                         ("BlockStored", None, 32, None, "GPU", None))
        self.assertEqual(len(blocks), 2)
        self.assertEqual(tokens, list(range(40, 104)))
        self.ask(server, list(range(50, 120)), model="pirate")
        self.ask(server, list(range(50, 120)), model="pirate")
        known, named, numbers = {}, set(), []
        removed = 0
        for number, events in self.replay(0):
            numbers.append(number)
            for kind, *rest in events:
                if kind == "BlockStored":
                    blocks, parent, tokens = rest[:3]
                    self.assertEqual(len(tokens), 32 * len(blocks))
                    for index, block in enumerate(blocks):
                        before = blocks[index - 1] if index else parent
                        self.assertIn(before, {None, *known})
                        self.assertNotIn(block, known)
                        known[block] = tokens[32 * index:32 * index + 32]
                        if rest[6] is not None:
                            named.add((rest[6], tuple(known[block])))
                elif kind == "BlockRemoved":
                    for block in rest[0]:
                        del known[block]
                        removed += 1
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertEqual(named, {("pirate", tuple(range(first, first + 32)))
                                 for first in (50, 82)})
        self.assertGreater(removed, 0)  # the pool has five pages
        self.assertLessEqual(len(known), 5)
        topic, *rest = client.message()
        self.assertEqual(topic, b"kv@here@tiny")
        got = [batch(rest)]
        while got[-1][0] < numbers[-1]:
            got.append(batch(client.message()))
        everything = dict(self.replay(0))
        for number, events in got:
            self.assertEqual(events, everything[number])
        self.assertEqual(self.replay(numbers[-1], b"REQ"), got[-1:])
        self.assertEqual(self.replay(numbers[-1] + 1), [])
        self.assertEqual(server.end(), 0)
        self.assertEqual(other.file.read(), b"")  # nothing but the end

    def test_clients_of_another_kind(self):
        server = self.serve()
        with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=PATIENCE) as stranger:
            stranger.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 10)
            while stranger.recv(100):  # its greeting, then the end
                pass
        server.wait_said("a client was refused: it does not speak ZMTP")
        held = [self.enterContext(socket.create_connection(("127.0.0.1", self.ports[0])))
                for _ in range(33)]
        server.wait_said("there are too many")
        self.ask(server, LONG)
        for one in held:
            one.close()
        wait_until(lambda: self.tries_replay(), "a free place")

    def tries_replay(self):
        try:
            return self.replay(0)
        except (AssertionError, IndexError, OSError, struct.error):
            return None

    def test_options(self):
        for flags, part in ((["--kv-events", "5557"], b"must be tcp://ADDRESS:PORT"),
                            (["--kv-events-topic", "a"], b"belong to --kv-events")):
            done = call("serve", self.model, "--port", 0, *flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stderr)
        self.assertEqual(call("serve", self.model, "--kv-event", "x").returncode, USAGE)

    @unittest.skipUnless(importlib.util.find_spec("zmq") and importlib.util.find_spec("msgspec"),
                         "pyzmq and msgspec are not installed")
    def test_pyzmq_and_msgspec(self):
        import msgspec
        import zmq

        class Event(msgspec.Struct, array_like=True, omit_defaults=True, tag=True):
            pass

        class BlockStored(Event):
            block_hashes: List[Union[int, bytes]]
            parent_block_hash: Optional[Union[int, bytes]]
            token_ids: List[int]
            block_size: int
            lora_id: Optional[int]
            medium: Optional[str]
            lora_name: Optional[str]
            extra_keys: Optional[list] = None

        class BlockRemoved(Event):
            block_hashes: List[Union[int, bytes]]
            medium: Optional[str]

        class AllBlocksCleared(Event):
            pass

        class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
            ts: float
            events: List[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
            data_parallel_rank: Optional[int] = None

        decode = msgspec.msgpack.Decoder(Batch).decode
        server = self.serve("--kv-tokens", 160, "--sessions", 1)
        context = self.enterContext(contextlib.closing(Sockets(zmq)))
        subscriber = context.socket(zmq.SUB)
        subscriber.setsockopt_string(zmq.SUBSCRIBE, "")
        subscriber.setsockopt(zmq.RCVTIMEO, 1000 * PATIENCE)
        subscriber.connect(f"tcp://127.0.0.1:{self.ports[0]}")
        replays = context.socket(zmq.DEALER)
        replays.setsockopt(zmq.RCVTIMEO, 1000 * PATIENCE)
        replays.connect(f"tcp://127.0.0.1:{self.ports[1]}")

        def replay(start):
            replays.send_multipart([b"", start.to_bytes(8, "big")])
            found = []
            while True:
                _, number, payload = replays.recv_multipart()
                if not payload:
                    return found
                found.append((int.from_bytes(number, "big"), decode(payload)))

        at, seen = 40, None
        poller = zmq.Poller()
        poller.register(subscriber, zmq.POLLIN)
        while seen is None:  # until the subscription has arrived
            self.ask(server, list(range(at, at + 70)))
            at += 1
            if poller.poll(100):
                _, number, payload = subscriber.recv_multipart()
                seen = int.from_bytes(number, "big"), decode(payload)
        everything = replay(0)
        self.assertIsInstance(everything[0][1].events[0], AllBlocksCleared)
        self.assertIn(seen, everything)
        stored = everything[1][1].events[0]
        self.assertIsInstance(stored, BlockStored)
        self.assertEqual(stored.token_ids, list(range(40, 104)))
        request = context.socket(zmq.REQ)
        request.setsockopt(zmq.RCVTIMEO, 1000 * PATIENCE)
        request.connect(f"tcp://127.0.0.1:{self.ports[1]}")
        request.send((1).to_bytes(8, "big"))
        number, payload = request.recv_multipart()
        self.assertEqual((number, decode(payload)), ((1).to_bytes(8, "big"), everything[1][1]))


if __name__ == "__main__":
    unittest.main()
