"""`avocet bench --http --modes` against servers made here: ratio, acceptance, bytes, failures."""
import csv
import io
import json
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from command import FAILED, GOOD, USAGE, call

TOKENS = 8


class Peer(BaseHTTPRequestHandler):
    """Answers word by word: 10 ms each, but 2 ms with speculation. What it answers depends on the
    prompt alone, unless it is the server that changes answers."""
    protocol_version = "HTTP/1.1"
    behaviour = "good"
    seen = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, value):
        data = f"data: {json.dumps(value)}\r\n\r\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append((self.path, asked))
        if self.behaviour == "broken":
            body = b'{"error":{"message":"the cat sat on it"}}'
            self.send_response(500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        chat = self.path.endswith("/chat/completions")
        prompt = asked["messages"][0]["content"] if chat else asked["prompt"]
        drafts = asked["speculation"] != "off" and self.behaviour != "ignores it"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(TOKENS):
            time.sleep(0.002 if drafts else 0.01)
            word = f"é{prompt[:3]}{number} "
            if drafts and self.behaviour == "changes answers":
                word = word.upper()
            self.chunk({"choices": [{"delta": {"content": word}} if chat else {"text": word}]})
        usage = {"completion_tokens": TOKENS, "prompt_tokens": 7}
        if drafts:
            usage["completion_tokens_details"] = {"accepted_prediction_tokens": 6,
                                                  "rejected_prediction_tokens": 2}
        self.chunk({"choices": [], "usage": usage})
        end = b"data: [DONE]\n\n"
        self.wfile.write(f"{len(end):x}\r\n".encode() + end + b"\r\n0\r\n\r\n")


class Modes(unittest.TestCase):
    def setUp(self):
        self.handler = type("Handler", (Peer,), {"seen": []})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.folder = tempfile.TemporaryDirectory()
        self.prompts = Path(self.folder.name) / "p.jsonl"
        self.prompts.write_text('abc\n{"prompt": "def", "category": "other"}\n')

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def bench(self, *arguments, prompts=True):
        given = ("--prompts", self.prompts) if prompts else ()
        return call("bench", "--http", self.url, "--modes", "plain,speculative", "-r", "2", "-n",
                    TOKENS, *given, *arguments)

    def test_ratio_and_acceptance(self):
        done = self.bench("--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), done)
        found = json.loads(done.stdout)
        self.assertEqual((found["requests"], found["failed"], found["different_answers"]),
                         (8, 0, 0))
        plain, fast = found["modes"]
        self.assertEqual((plain["speculation"], fast["speculation"]), ("off", "auto"))
        self.assertEqual((plain["success"], fast["success"]), (1, 1))
        self.assertEqual(plain["ratio"]["mean"], 1)
        self.assertGreater(fast["ratio"]["mean"], 1.5)
        self.assertGreater(fast["ratio_median"], 1.5)
        self.assertIsNone(plain["acceptance"]["mean"])
        self.assertEqual(fast["acceptance"]["mean"], 0.75)
        self.assertEqual((plain["drafts_reported"], fast["drafts_reported"]), (False, True))
        self.assertEqual(set(fast["categories"]), {"prompts", "other"})

    def test_what_is_sent(self):
        self.bench("--chat", "--model", "mine", "--temperature", "0.5", "--seed", "9")
        paths = {path for path, _ in self.handler.seen}
        self.assertEqual(paths, {"/v1/chat/completions"})
        bodies = [body for _, body in self.handler.seen]
        self.assertEqual([body["speculation"] for body in bodies[:4]], ["off", "auto"] * 2)
        self.assertEqual([body["messages"][0]["content"] for body in bodies[:4]],
                         ["abc", "abc", "def", "def"])
        for body in bodies:
            self.assertEqual((body["model"], body["max_tokens"], body["temperature"],
                              body["stream"]), ("mine", TOKENS, 0.5, True))
        self.assertEqual({body["seed"] for body in bodies}, {9, 10})
        # Neither prefixes nor earlier answers are shared between modes and iterations.
        salts = {body["cache_salt"] for body in bodies}
        self.assertEqual(len(salts), 4)
        self.handler.seen.clear()
        self.bench("--chat", "--seed", "9")
        self.assertFalse(salts & {body["cache_salt"] for _, body in self.handler.seen})

    def test_table_and_csv(self):
        done = self.bench()
        self.assertEqual(done.returncode, GOOD, done)
        self.assertIn("same bytes %", done.stdout.decode())
        self.assertNotIn("may ignore", done.stdout.decode())
        rows = list(csv.DictReader(io.StringIO(self.bench("--csv").stdout.decode())))
        self.assertEqual(len(rows), 2 * 2 * 2)
        self.assertEqual({row["tokens"] for row in rows}, {str(TOKENS - 1)})

    def test_a_server_that_ignores_it_is_named(self):
        self.handler.behaviour = "ignores it"
        done = self.bench()
        self.assertEqual(done.returncode, GOOD, done)
        self.assertIn("speculative: the server reported no draft tokens; it may ignore the field",
                      done.stdout.decode())

    def test_answers_that_differ_are_a_failure(self):
        self.handler.behaviour = "changes answers"
        done = self.bench()
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"4 of 8 answers differ from those of mode plain", done.stderr)

    def test_failed_requests(self):
        self.handler.behaviour = "broken"
        done = self.bench()
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"8 of 8 requests failed, the first: status 500: the cat sat on it",
                      done.stderr)

    def test_sets_and_schemas(self):
        done = self.bench("--set", "json,chat", "--limit", "1", "--chat", prompts=False)
        self.assertEqual(done.returncode, GOOD, done)
        schemas = [body["response_format"]["json_schema"]["schema"]
                   for _, body in self.handler.seen if "response_format" in body]
        self.assertEqual(len(schemas), 4)
        self.assertEqual(schemas[0]["type"], "object")

    def test_refusals(self):
        for wrong, text in ((("--modes", "plain,magic"), b"must be plain, speculative or a source"),
                            (("--modes", ""), b"1 to 8 of plain"),
                            (("--clients", "2"), b"one client"),
                            (("--whole",), b"one client"),
                            (("--set", "chat"), b"give --prompts or --set")):
            done = self.bench(*wrong)
            self.assertEqual(done.returncode, USAGE, done)
            self.assertIn(text, done.stderr)
        done = call("bench", "--http", self.url, "--set", "chat")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn(b"need --modes", done.stderr)
        done = call("bench", "--http", "http://127.0.0.1:9", "--modes", "plain")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"127.0.0.1:9", done.stderr)


if __name__ == "__main__":
    unittest.main()
