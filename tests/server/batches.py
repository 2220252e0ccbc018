"""Files and batches: the same answers as single requests, owners, limits, cancelling, restarts."""
import json
import signal
import tempfile
import unittest
from pathlib import Path

import tiny_model
from chat_model import write_model
from command import wait_until
from serving import ENDLESS, Serving, write_slow_model

ONE, TWO = ({"Authorization": f"Bearer {key}"} for key in ("one-key-22", "two-key-333"))
TEXT = "/v1/completions"
OVER = ("completed", "failed", "expired", "cancelled")


def form(data, purpose="batch", boundary="xYz", name="in.jsonl"):
    parts = [(f'name="purpose"', purpose.encode()), (f'name="file"; filename="{name}"', data)]
    body = b"".join(f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode()
                    + text + b"\r\n" for head, text in parts)
    return (body + f"--{boundary}--\r\n".encode(),
            {"Content-Type": f"multipart/form-data; boundary={boundary}"})


def line(number, url, **body):
    return json.dumps({"custom_id": f"c{number}", "method": "POST", "url": url, "body": body})


class Batches(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-batches-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.state = self.folder / "state"

    def serve(self, model, *flags):
        server = Serving(model, "--state", self.state, "--name", "tiny", "--threads", 1, *flags)
        self.addCleanup(server.__exit__)
        return server

    def ask(self, server, method, path, body=None, who=None, status=200):
        got, _, text = server.ask(method, path, body, who)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def upload(self, server, data, who=None, status=200, **more):
        body, headers = form(data if isinstance(data, bytes) else "\n".join(data).encode(), **more)
        got, _, text = server.ask("POST", "/v1/files", body, {**headers, **(who or {})})
        self.assertEqual(got, status, text)
        return json.loads(text)

    def start(self, server, lines, endpoint=TEXT, who=None, **more):
        file = self.upload(server, lines, who)
        return self.ask(server, "POST", "/v1/batches", {
            "input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h", **more},
            who)

    def wait(self, server, batch, who=None, want="completed"):
        def over():
            told = self.ask(server, "GET", f"/v1/batches/{batch['id']}", None, who)
            return told if told["status"] in OVER else None
        told = wait_until(over, "the batch to end") or over()
        self.assertEqual(told["status"], want, told)
        return told

    def lines(self, server, file, who=None):
        status, _, text = server.ask("GET", f"/v1/files/{file}/content", None, who)
        self.assertEqual(status, 200, text)
        return {entry["custom_id"]: entry for entry in map(json.loads, text.splitlines())}

    def test_answers_are_those_of_single_requests(self):
        folder = write_model(self.folder)
        server = self.serve(folder)
        hello = [{"role": "user", "content": "hi \u00e9"}]
        cases = {
            "/v1/chat/completions": [{"messages": hello, "max_tokens": 5, "seed": i,
                                      "temperature": 1.0} for i in range(3)],
            "/v1/completions": [{"prompt": ["a", "bc"], "max_tokens": 4, "n": 2, "seed": 7},
                                {"prompt": "x" * 12000, "max_tokens": 1},  # too long
                                {"prompt": "ab", "max_tokens": 3, "seed": 1, "logprobs": 2}],
            "/v1/embeddings": [{"input": ["a", "b"]}, {"input": "a", "encoding_format": "base64"}]}
        for endpoint, bodies in cases.items():
            batch = self.start(server, [line(i, endpoint, **body)
                                        for i, body in enumerate(bodies)], endpoint)
            told = self.wait(server, batch)
            seen = {}
            for file in (told["output_file_id"], told["error_file_id"]):
                seen.update(self.lines(server, file) if file else {})
            self.assertEqual(len(seen), len(bodies))
            for i, body in enumerate(bodies):
                status, _, text = server.ask("POST", endpoint, body)
                response = seen[f"c{i}"]["response"]
                self.assertEqual(response["status_code"], status)
                self.assertIsNone(seen[f"c{i}"]["error"])
                alone = json.loads(text)
                for answer in (alone, response["body"]):  # what differs from request to request
                    for name in ("id", "created"):
                        answer.pop(name, None)
                    usage = answer.get("usage") or {}
                    for name in ("timings", "prompt_tokens_details",
                                 "completion_tokens_details"):
                        usage.pop(name, None)
                self.assertEqual(json.dumps(response["body"]), json.dumps(alone))
        counts = [self.ask(server, "GET", "/v1/batches")["data"][i]["request_counts"]
                  for i in range(3)]
        self.assertEqual([(one["completed"], one["failed"]) for one in counts],
                         [(2, 0), (2, 1), (3, 0)])
        self.assertEqual(server.end(), 0)

    def test_wrong_inputs(self):
        server = self.serve(tiny_model.write(self.folder))
        good = line(1, TEXT, prompt="a")
        for data, code in (([], "empty_file"), ([good, "{"], "invalid_line"),
                           ([good, good], "duplicate_custom_id"), (["[]"], "invalid_line"),
                           ([line(1, "/v1/embeddings", input="a")], "invalid_line"),
                           ([good.replace("POST", "GET")], "invalid_line"),
                           ([line(1, TEXT, prompt="a", stream=True)], "invalid_line"),
                           ([good.replace("custom_id", "id")], "invalid_line"),
                           ([good[:-1] + ', "more": 1}'], "invalid_line"),
                           ([good + " " * (1 << 20)], "line_too_long")):
            told = self.wait(server, self.start(server, data), want="failed")
            self.assertEqual(told["errors"]["data"][0]["code"], code)
            self.assertIsNone(told["output_file_id"])
        file = self.upload(server, [good])["id"]
        base = {"input_file_id": file, "endpoint": TEXT, "completion_window": "24h"}
        for change, status in (({"endpoint": "/v1/responses"}, 400),
                               ({"completion_window": "1h"}, 400), ({"more": 1}, 400),
                               ({"input_file_id": "file-00"}, 404),
                               ({"input_file_id": "../keys"}, 404),
                               ({"metadata": {"a": 1}}, 400), ({"metadata": {"a": "b" * 513}}, 400),
                               ({"output_expires_after": {"anchor": "created_at", "seconds": 1}},
                                400)):
            self.ask(server, "POST", "/v1/batches", {**base, **change}, status=status)
        for more, status in (({"purpose": "assistants"}, 400), ({"boundary": "y" * 71}, 400)):
            self.upload(server, b"x", status=status, **more)
        body, headers = form(b"x")
        for cut in (body[:-4], body[1:], b"", body.replace(b'name="file"', b'name="fill"')):
            self.assertEqual(server.ask("POST", "/v1/files", cut, headers)[0], 400)
        self.assertEqual(server.ask("POST", "/v1/files", body)[0], 400)
        for path in ("/v1/files/..%2fkeys", "/v1/files/file-0", "/v1/files/file-0/content",
                     "/v1/batches/batch_0", "/v1/files/" + "f" * 200):
            self.assertEqual(server.ask("GET", path)[0], 404, path)
        self.assertEqual(server.ask("DELETE", "/v1/batches")[0], 405)
        told = self.ask(server, "DELETE", f"/v1/files/{file}")
        self.assertEqual(told, {"id": file, "object": "file", "deleted": True})
        self.assertEqual(server.ask("GET", f"/v1/files/{file}")[0], 404)

    def test_owners_and_quotas(self):
        keys = self.folder / "keys" / "keys.json"
        keys.parent.mkdir()
        entries = [{"name": "one", "key": "one-key-22", "token_quota": 40},
                   {"name": "two", "key": "two-key-333"}]
        keys.write_text(json.dumps({"keys": entries}))
        server = self.serve(tiny_model.write(self.folder), "--keys", keys)
        lines = [line(i, TEXT, prompt="once", max_tokens=4, ignore_eos=True) for i in range(12)]
        batch = self.start(server, lines, who=ONE)
        other = self.start(server, lines[:2], who=TWO, metadata={"a": "b"})
        self.assertEqual(self.wait(server, other, TWO)["metadata"], {"a": "b"})
        for path in (f"/v1/batches/{batch['id']}", f"/v1/files/{batch['input_file_id']}",
                     f"/v1/files/{batch['input_file_id']}/content"):
            self.assertEqual(server.ask("GET", path, None, TWO)[0], 404)
        self.assertEqual(server.ask("DELETE", f"/v1/files/{batch['input_file_id']}", None,
                                    TWO)[0], 404)
        self.ask(server, "POST", "/v1/batches", {
            "input_file_id": batch["input_file_id"], "endpoint": TEXT,
            "completion_window": "24h"}, TWO, status=404)
        self.assertEqual([one["id"] for one in
                          self.ask(server, "GET", "/v1/batches", None, TWO)["data"]], [other["id"]])
        # Its quota is used up: the batch waits for the next window.
        short = {"prompt": "a", "max_tokens": 1}
        wait_until(lambda: server.ask("POST", TEXT, short, ONE)[0] == 429)
        told = self.ask(server, "GET", f"/v1/batches/{batch['id']}", None, ONE)
        self.assertEqual(told["status"], "in_progress")
        self.assertLess(told["request_counts"]["completed"], 12)
        rows = self.ask(server, "GET", "/v1/usage", None, ONE)["data"]
        self.assertGreaterEqual(rows[0]["prompt_tokens"] + rows[0]["new_tokens"], 40)
        # A larger quota lets it go on; a key that goes takes its batches along.
        entries[0]["token_quota"] = 10000
        keys.write_text(json.dumps({"keys": entries}))
        server.process.send_signal(signal.SIGHUP)
        told = self.wait(server, batch, ONE)
        self.assertEqual(told["request_counts"], {"total": 12, "completed": 12, "failed": 0})

    def test_results_survive_kills(self):
        model = write_slow_model(self.folder, width=64, layers=2, context=4096)
        lines = [line(i, TEXT, prompt=f"p{i}", max_tokens=30, ignore_eos=True, seed=i)
                 for i in range(40)]
        flags = ("--batch-lines", 3, "--sessions", 4)
        server = self.serve(model, *flags)
        batch = self.start(server, lines)

        def done():
            return self.ask(server, "GET", f"/v1/batches/{batch['id']}")["request_counts"][
                "completed"]
        least, kills = 0, 0
        while least < 30 and kills < 3:
            wait_until(lambda: done() >= least + 5, "some answers")
            least = done()
            server.process.kill()
            server.process.wait()
            kills += 1
            outputs = [path for path in self.state.glob("file-*") if ".json" not in path.name
                       and path.name != batch["input_file_id"]]
            record = json.loads((self.state / f"{batch['id']}.json").read_text())
            if kills == 2 and record["status"] == 1:  # as if half a line had been written
                for path in outputs:
                    path.write_bytes(path.read_bytes() + b'{"id":"batch_req_')
            server = self.serve(model, *flags)
            wait_until(lambda: done() >= least, "what was answered before")
        told = self.wait(server, batch)
        self.assertEqual(told["request_counts"], {"total": 40, "completed": 40, "failed": 0})
        text = server.ask("GET", f"/v1/files/{told['output_file_id']}/content")[2].splitlines()
        self.assertEqual(len(text), 40)
        seen = {entry["custom_id"]: entry for entry in map(json.loads, text)}
        for i in (0, 17, 39):
            alone = self.ask(server, "POST", TEXT, json.loads(lines[i])["body"])
            self.assertEqual(seen[f"c{i}"]["response"]["body"]["choices"], alone["choices"])
        self.assertEqual(self.ask(server, "GET", "/v1/files?purpose=batch_output")["data"][0]["id"],
                         told["output_file_id"])

    def change(self, name, **fields):
        path = self.state / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def test_expiry(self):
        """Times are on disk: the next start sees that they are over."""
        model = write_slow_model(self.folder)
        server = self.serve(model, "--batch-lines", 2)
        lines = [line(0, TEXT, prompt="a", max_tokens=2)]
        lines += [line(i, TEXT, prompt="a", max_tokens=ENDLESS, ignore_eos=True)
                  for i in range(1, 4)]
        batch, other = self.start(server, lines), self.upload(server, [lines[0]])
        path = f"/v1/batches/{batch['id']}"
        wait_until(lambda: self.ask(server, "GET", path)["request_counts"]["completed"] == 1)
        self.assertEqual(batch["expires_at"], batch["created_at"] + 86400)
        server.process.kill()
        server.process.wait()
        for name in (batch["id"], batch["input_file_id"], other["id"]):
            self.change(name, expires=batch["created_at"])
        server = self.serve(model, "--batch-lines", 2)
        told = self.wait(server, batch, want="expired")
        self.assertEqual(told["request_counts"], {"total": 4, "completed": 1, "failed": 3})
        self.assertEqual(list(self.lines(server, told["output_file_id"])), ["c0"])
        missed = self.lines(server, told["error_file_id"])
        self.assertEqual({name: entry["error"]["code"] for name, entry in missed.items()},
                         {f"c{i}": "batch_expired" for i in range(1, 4)})
        for name in (batch["input_file_id"], other["id"]):  # the input as soon as nobody reads it
            wait_until(lambda: server.ask("GET", f"/v1/files/{name}")[0] == 404)
            self.assertEqual(list(self.state.glob(f"{name}*")), [])
        self.ask(server, "GET", f"/v1/files/{told['output_file_id']}")

    def test_cancelling(self):
        server = self.serve(write_slow_model(self.folder), "--batch-lines", 2)
        lines = [line(0, TEXT, prompt="a", max_tokens=2)]
        lines += [line(i, TEXT, prompt="a", max_tokens=ENDLESS, ignore_eos=True)
                  for i in range(1, 9)]
        batch = self.start(server, lines)
        path = f"/v1/batches/{batch['id']}"
        wait_until(lambda: self.ask(server, "GET", path)["request_counts"]["completed"] == 1)
        told = self.ask(server, "POST", path + "/cancel")
        self.assertIn(told["status"], ("cancelling", "cancelled"))
        told = self.wait(server, batch, want="cancelled")
        self.assertEqual(list(self.lines(server, told["output_file_id"])), ["c0"])
        self.assertEqual(self.ask(server, "POST", path + "/cancel")["status"], "cancelled")
        server.wait_idle()
        # One that runs when the server ends does not hold it up, and goes on behind the next start.
        batch = self.start(server, lines[1:3])
        wait_until(lambda: server.requests()["running"] > 0)
        self.assertEqual(server.end(), 0)
        server = self.serve(self.folder / "model.bin")
        wait_until(lambda: server.requests()["running"] > 0)
        self.ask(server, "POST", f"/v1/batches/{batch['id']}/cancel")
        self.wait(server, batch, want="cancelled")

    def test_lists_and_limits(self):
        server = self.serve(tiny_model.write(self.folder), "--state-mib", 1, "--max-body", 4096)
        ids = [self.upload(server, [f"{i}"])["id"] for i in range(5)]
        seen, after = [], ""
        while True:
            told = self.ask(server, "GET", f"/v1/files?limit=2{after}")
            seen += [file["id"] for file in told["data"]]
            if not told["has_more"]:
                break
            after = f"&after={told['last_id']}"
        self.assertEqual(sorted(seen), sorted(ids))
        self.assertEqual(len(seen), 5)
        for limit in ("0", "1001", "x", "-1", ""):
            self.assertEqual(server.ask("GET", f"/v1/files?limit={limit}")[0], 400)
        self.upload(server, b"x" * (900 << 10))
        error = self.upload(server, b"x" * (200 << 10), status=429)
        self.assertEqual(error["error"]["code"], "storage_full")
        self.ask(server, "DELETE", f"/v1/files/{ids[0]}")
        off = Serving(self.folder / "model.bin", "--threads", 1)
        self.addCleanup(off.__exit__)
        error = self.ask(off, "GET", "/v1/batches", status=404)
        self.assertIn("--state", error["error"]["message"])


if __name__ == "__main__":
    unittest.main()
