"""`avocet bench --http` against servers made here: streams, whole answers, refusals, failures."""
import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from command import FAILED, GOOD, call


class Peer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour = "good"
    seen = []

    def log_message(self, *_):
        pass

    def send(self, status, body, kind="application/json", headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        models = {"data": [{"id": "tiny"}]} if self.behaviour != "nameless" else {}
        self.send(200, json.dumps(models).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append((self.path, dict(self.headers), asked))
        if self.behaviour == "full":
            self.send(429, b'{"error":{"message":"full"}}', headers=[("Retry-After", "1")])
        elif self.behaviour == "broken":
            self.send(500, b'{"error":{"message":"the cat sat on it"}}')
        elif asked.get("stream"):
            self.stream(asked)
        else:
            self.send(200, json.dumps({"choices": [{"text": "a b"}],
                                       "usage": {"completion_tokens": 2,
                                                 "prompt_tokens": 5}}).encode())

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def stream(self, asked):
        chat = self.path.endswith("/chat/completions")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            self.chunk('data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
        for _ in range(asked["max_tokens"]):
            time.sleep(0.002)
            choice = {"delta": {"content": "é"}} if chat else {"text": "é"}
            event = "data: " + json.dumps({"choices": [choice]}) + "\r\n\r\n"
            self.chunk(event[:9])  # cut anywhere
            self.chunk(event[9:])
        if self.behaviour == "breaks off":
            self.chunk('data: {"error":{"message":"out of luck"}}\n\n')
        self.chunk('data: {"choices":[],"usage":{"completion_tokens":%d,"prompt_tokens":7}}\n\n'
                   % asked["max_tokens"])
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


class BenchHttp(unittest.TestCase):
    def setUp(self):
        self.handler = type("Handler", (Peer,), {"seen": []})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def bench(self, *arguments, behaviour="good", status=GOOD):
        self.handler.behaviour = behaviour
        done = call("bench", "--http", self.url, "--json", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr.decode()

    def test_streams(self):
        report = self.bench("--clients", "1,4", "--requests", "12", "-n", "5", "-p", "20")
        self.assertEqual(report["model"], "tiny")
        for result, clients in zip(report["results"], (1, 4), strict=True):
            self.assertEqual((result["clients"], result["finished"], result["failed"]),
                             (clients, 12, 0))
            tokens = result["new_tokens_per_second"] * result["seconds"]
            self.assertAlmostEqual(tokens, 60, places=3)
            self.assertGreater(result["whole_p50"], 0.008)  # five pauses of 2 ms
            self.assertLessEqual(result["first_token_p50"], result["first_token_p99"])
            self.assertLessEqual(result["connections"], clients)
        path, headers, asked = self.handler.seen[0]
        self.assertEqual(path, "/v1/completions")
        self.assertTrue(asked["stream"] and asked["ignore_eos"])
        prompts = [asked["prompt"] for _, _, asked in self.handler.seen]
        self.assertEqual(len(set(prompts)), len(prompts))
        self.assertNotIn("Authorization", headers)

    def test_chat_whole_and_key(self):
        self.bench("--clients", "2", "--requests", "4", "-n", "3", "--chat", "--key", "secret")
        path, headers, asked = self.handler.seen[0]
        self.assertEqual((path, headers["Authorization"]),
                         ("/v1/chat/completions", "Bearer secret"))
        self.assertEqual(asked["messages"][0]["role"], "user")
        report = self.bench("--clients", "1", "--requests", "3", "--whole", "--any-length",
                            "--model", "other")
        self.assertEqual(report["results"][0]["finished"], 3)
        self.assertNotIn("ignore_eos", self.handler.seen[-1][2])
        self.assertEqual(self.handler.seen[-1][2]["model"], "other")

    def test_open_loop(self):
        report = self.bench("--rate", "200", "--requests", "40", "-n", "2")
        result = report["results"][0]
        self.assertEqual((result["rate"], result["finished"]), (200, 40))
        self.assertGreater(result["seconds"], 0.05)

    def test_refusals_and_failures(self):
        result = self.bench("--clients", "2", "--requests", "6", behaviour="full")["results"][0]
        self.assertEqual((result["refused"], result["finished"]), (6, 0))
        self.assertGreater(result["refusal_max"], 0)
        result = self.bench("--clients", "2", "--requests", "3", behaviour="broken",
                            status=FAILED)["results"][0]
        self.assertEqual(result["failed"], 3)
        self.assertIn("the cat sat on it", result["failure"])
        result = self.bench("--clients", "1", "--requests", "2", "-n", "2",
                            behaviour="breaks off", status=FAILED)["results"][0]
        self.assertIn("out of luck", result["failure"])
        self.assertIn("--model", self.bench(behaviour="nameless", status=FAILED))

    def test_tables(self):
        done = call("bench", "--http", self.url + "/v1/", "--clients", "1", "--requests", "2",
                    "-n", "2")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertIn(b"| tokens/s |", done.stdout)
        done = call("bench", "--http", self.url, "--clients", "1", "--requests", "2", "-n", "2",
                    "--csv")
        self.assertEqual(len(done.stdout.splitlines()), 2)


if __name__ == "__main__":
    unittest.main()
