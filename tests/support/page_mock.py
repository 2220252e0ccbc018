"""A server that serves web/ as it lies and answers as it is told to: the double of `avocet serve`
for tests of the page, and the only one that says hostile things on purpose.

The headers are those of src/server/page/page.c, read from there.
"""
import http.server
import json
import re
import threading
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def page_headers():
    """{name: value} of every answer with a page file."""
    header = (ROOT / "src/server/page/page.h").read_text().replace("\\\n", " ")
    macros = {name: "".join(re.findall(r'"([^"]*)"', value)) for name, value in
              re.findall(r'#define (PAGE_\w+)\s+((?:"[^"]*"\s*)+)', header)}
    table = re.search(r"page_headers\[PAGE_HEADERS\] = \{(.*?)\n\};",
                      (ROOT / "src/server/page/page.c").read_text(), re.DOTALL).group(1)
    return {name: value.strip('"') if value.startswith('"') else macros[value]
            for name, value in re.findall(r'\{"([^"]+)", ("[^"]*"|\w+)\}', table)}


class Answer:
    """What the next chat request gets. `pieces` stream with `delay` seconds before each; `status`
    other than 200 is an error with `message`; `cut` closes the connection in the middle; `error`
    is an error inside the stream."""

    def __init__(self, *pieces, delay=0.0, status=200, message=None, headers=(), cut=False,
                 error=None, finish="stop", raw=None, hold=None, usage=None):
        self.pieces, self.delay, self.status, self.message = pieces, delay, status, message
        self.headers, self.cut, self.error, self.finish = headers, cut, error, finish
        self.raw, self.hold = raw, hold  # hold: an event to wait for after the first piece
        self.usage = usage or {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            pass

    def send(self, status, kind, data, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def send_json(self, value, status=200, headers=()):
        self.send(status, "application/json", json.dumps(value).encode(), headers)

    def send_error_text(self, status, message, headers=()):
        self.send_json({"error": {"message": message, "type": "error", "param": None,
                                  "code": None}}, status, headers)

    def allowed(self):
        key = self.server.mock.key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def do_GET(self):
        mock = self.server.mock
        path = self.path.split("?")[0]
        mock.seen.append(path)
        if path in mock.broken:  # one that got no answer at all would be asked again by the browser
            mock.broken.remove(path)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\n{\"ver\r\n")
            self.close_connection = True
            return
        file = ROOT / "web" / ("index.html" if path == "/" else path[1:])
        if re.fullmatch(r"/([a-z_]+\.[a-z]+)?", path) and file.is_file():
            self.send(200, TYPES[file.suffix], file.read_bytes(), page_headers().items())
        elif not self.allowed():
            self.send_error_text(401, "no or unknown API key")
        elif path == "/v1/models":
            self.send_json({"object": "list", "data": [
                {"id": name, "object": "model", "owned_by": "avocet", "created": 0,
                 "parent": mock.models[0] if i else None} for i, name in enumerate(mock.models)]})
        elif path == "/telemetry":
            self.send_json(mock.telemetry())
        elif path == "/version":
            self.send_json({"version": "0", "training": mock.training is not None})
        elif path == "/training" and mock.training is not None:
            run = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("run")
            mock.runs_asked += run or []
            told = mock.training(run[0] if run else None)
            if told is None:
                self.send_error_text(404, f'no training run is named "{run[0]}"')
            else:
                self.send_json(told)
        else:
            self.send_error_text(404, "no such path")

    def do_POST(self):
        mock = self.server.mock
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        mock.seen.append(self.path)
        mock.bodies.append((self.path, body))
        if not self.allowed():
            self.send_error_text(401, "no or unknown API key")
        elif self.path == "/v1/load_lora_adapter":
            mock.models.append(body["lora_name"])
            self.send(200, "text/plain", b"loaded")
        elif self.path == "/v1/chat/completions":
            self.chat(mock.answers.pop(0) if mock.answers else Answer("A ", "plain ", "answer."),
                      body)
        else:
            self.send_error_text(404, "no such path")

    def chat(self, answer, body):
        if answer.status != 200:
            self.send_error_text(answer.status, answer.message, answer.headers)
            return
        mock = self.server.mock
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        mock.running.append(body.get("model"))
        try:
            self.stream(answer, body)
        except ConnectionError:
            mock.gone += 1
        finally:
            mock.running.remove(body.get("model"))

    def event(self, value):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self.wfile.write(f"data: {text}\n\n".encode("utf-8", "surrogatepass"))
        self.wfile.flush()

    def stream(self, answer, body):
        mock = self.server.mock
        if answer.raw is not None:
            for part in answer.raw:
                self.wfile.write(part)
                self.wfile.flush()
                time.sleep(0.005)
            return
        def chunk(delta, finish=None, **more):
            return {"id": "x", "object": "chat.completion.chunk", "model": body["model"],
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
        self.event(chunk({"role": "assistant", "content": ""}))
        for i, piece in enumerate(answer.pieces):
            time.sleep(answer.delay)
            self.event(chunk({"content": piece}))
            mock.tokens += 1
            if i == 0 and answer.hold is not None:
                answer.hold.wait(30)
        if answer.cut:
            return
        if answer.error is not None:
            self.event({"error": {"message": answer.error, "type": "server_error"}})
            return
        self.event(chunk({}, answer.finish))
        self.event({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": {
            "prompt_tokens": 12, "completion_tokens": len(answer.pieces),
            "total_tokens": 12 + len(answer.pieces), **answer.usage}})
        self.event("[DONE]")


class Mock:
    """with Mock() as mock: mock.url, mock.answers.append(Answer(…)), mock.bodies, mock.seen"""

    def __init__(self):
        self.models = ["avocet-tiny", "poetry", "sql-helper"]
        self.key = None
        self.answers, self.bodies, self.seen, self.running = [], [], [], []
        self.gone = self.tokens = 0
        self.broken = set()  # paths whose next answer ends in the middle
        self.training = None  # what /training says of a run, or of None: all; None: not offered
        self.runs_asked = []
        self.figures = None  # a function that makes the telemetry; None: from what happened here
        self.begin = time.time()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.mock = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *unused):
        self.server.shutdown()
        self.server.server_close()

    def chats(self):
        return [body for path, body in self.bodies if path == "/v1/chat/completions"]

    def telemetry(self):
        if self.figures is not None:
            return self.figures()
        now = time.time()
        running = list(self.running)
        names = sorted(set(running))
        some = {"p50": 0.012, "p90": 0.02, "p99": 0.03, "count": 10}
        return {
            "time": now, "uptime": now - self.begin, "isa": "avx512", "threads": 2,
            "requests": {"running": len(running), "waiting": 0, "submitted": self.tokens,
                         "finished": self.tokens, "failed": 0, "cancelled": self.gone,
                         "refused": 0, "expired": 0, "preemptions": 0},
            "tokens": {"prompt": 0, "new": self.tokens, "reused": 0, "recomputed": 0},
            "rates": {"new_tokens": float(self.tokens), "prompt_tokens": 0.0},
            "latency": {"first_token": some, "inter_token": some,
                        "queue": {"p50": None, "p90": None, "p99": None, "count": 0},
                        "total": some},
            "batch": {"rows": len(running), "decode": len(running), "prefill": 0,
                      "adapters": [{"name": name, "running": running.count(name)}
                                   for name in names]},
            "kv": {"pages": 1000, "free": 900, "cached": 60, "used": 40, "page_tokens": 32},
            "prefix": {"queried_tokens": int(now * 100), "hit_tokens": int(now * 60)},
            "speculation": {"drafts": int(now * 10), "draft_tokens": int(now * 40),
                            "accepted_tokens": int(now * 30), "accepted_by_position": [1]},
            "stages": [{"name": "prefill", "seconds": now % 1e6 * 0.2, "count": int(now)},
                       {"name": "decode", "seconds": now % 1e6 * 0.7, "count": int(now * 50)},
                       {"name": "attention_input", "seconds": now % 1e6 * 0.1, "count": int(now)}],
            "memory": {"resident_bytes": 9e8, "weight_bytes": 6e8, "kv_bytes": 2e8,
                       "scratch_bytes": 5e7},
            "bandwidth": {"bytes_per_second": 2.1e10, "limit_bytes_per_second": None},
        }
