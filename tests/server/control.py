"""`avocet serve --control`: a server that obeys the program that started it, and ends with it."""
import json
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from api_server import sanitized
from command import AVOCET, GOOD, PATIENCE, ROOT, call

DEMO = ROOT / "models/demo.avo"
SMALL = ("--port", 0, "--threads", 1, "--sessions", 1, "--ctx", 64, "--kv-tokens", 64,
         "--drain-seconds", 1)


class Controlled:
    """The server with one socket as its standard input and output."""

    def __init__(self, *arguments):
        self.ours, theirs = socket.socketpair()
        arguments = *arguments, *(["--no-sandbox"] if sanitized() else [])
        self.process = subprocess.Popen(
            [AVOCET, "serve", "--control", *map(str, (*SMALL, *arguments)), str(DEMO)],
            stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        self.ours.settimeout(PATIENCE)
        self.lines = self.ours.makefile("r", encoding="utf-8")

    def told(self):
        return json.loads(self.lines.readline())

    def ask(self, text):
        self.ours.sendall(text.encode())
        return self.told()

    def end(self):
        self.ours.shutdown(socket.SHUT_WR)
        status = self.process.wait(PATIENCE)
        rest = self.lines.read()
        self.lines.close()
        self.ours.close()
        return status, rest


class Control(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-control-")
        cls.root = Path(cls.scratch.name)
        data = cls.root / "texts.jsonl"
        data.write_text('{"text": "A cat is a cat."}\n')
        done = call("train", "sft", DEMO, "--data", data, "-o", cls.root / "mine", "--steps", 1,
                    "--batch", 1, "--threads", 1)
        assert done.returncode == GOOD, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def line(self, name, path):
        return json.dumps({"load": name, "path": str(path)}) + "\n"

    def test_adapters_are_loaded(self):
        server = Controlled("--adapter-root", self.root)
        self.assertRegex(server.told()["listening"], r"^http://127\.0\.0\.1:\d+$")
        mine = self.line("mine", self.root / "mine")
        self.assertEqual(server.ask(mine), {"loaded": "mine"})  # sent before the model is open
        self.assertEqual(server.ask(mine + self.line("other", "mine")), {"loaded": "mine"})
        self.assertEqual(server.told(), {"loaded": "other"})
        server.ours.sendall(mine[:20].encode())
        self.assertEqual(server.ask(mine[20:]), {"loaded": "mine"})
        for wrong, text in ((self.line("mine", "/etc"), "leaves the adapter root"),
                            (self.line("no name", "mine"), "invalid adapter name"),
                            (self.line("mine", "nothing"), "nothing"),
                            ("{}\n", '"load" is missing'), ('{"load": 1}\n', '"load" is missing'),
                            ('{"load": "mine"}\n', '"path" is missing'),
                            ("what?\n", "JSON"), ("\n", "JSON")):
            said = server.ask(wrong)
            self.assertEqual(list(said), ["error"], wrong)
            self.assertIn(text, said["error"])
        self.assertEqual(server.ask(mine), {"loaded": "mine"})
        self.assertEqual(server.end(), (GOOD, ""))

    def test_what_ends_it(self):
        server = Controlled()
        server.told()
        self.assertIn("no such file", server.ask(self.line("mine", "mine"))["error"])
        server.ours.sendall(b"x" * (1 << 16) + b"y")  # no line is that long
        self.assertEqual(server.process.wait(PATIENCE), GOOD)
        server.lines.close()
        server.ours.close()
        server = Controlled()
        self.assertEqual(server.end()[0], GOOD)  # before the model is open


if __name__ == "__main__":
    unittest.main()
