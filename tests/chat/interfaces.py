"""HTTP and `run --prompts` refuse the same requests with the same texts and accept the same, but
for a list of differences. Python compares itself with the same lists in its own tests."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

from api_server import Server
from command import ROOT, call
from request_cases import (ACCEPTED, DIFFERENT, RAW_ACCEPTED, RAW_REFUSED, REFUSED, request)

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from chat import write_model  # noqa: E402  a model with a template, one token per character


class Interfaces(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-interfaces-")
        self.addCleanup(self.scratch.cleanup)
        self.model = write_model(Path(self.scratch.name))

    def prompts(self, requests):
        path = Path(self.scratch.name) / "lines.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in requests), encoding="utf-8")
        done = call("run", self.model, "--prompts", path, "--threads", "1")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_alike(self):
        refused = [request(members) for members, _ in REFUSED]
        accepted = [request(members) for members in ACCEPTED]
        answers = self.prompts(refused + accepted)
        self.assertEqual(len(answers), len(refused) + len(accepted))
        with Server(self.model, "--threads", "1", "--sessions", "2", "--rows", "64") as server:
            for index, (asked, (_, part)) in enumerate(zip(refused, REFUSED)):
                with self.subTest(refused=asked):
                    over_http = server.post("/v1/chat/completions", asked, 400)["error"]["message"]
                    in_line = answers[index].get("error", "accepted")
                    self.assertIn(part, over_http)
                    self.assertEqual(in_line, f"line {index + 1}: {over_http}")
            for index, asked in enumerate(accepted):
                with self.subTest(accepted=asked):
                    server.post("/v1/chat/completions", asked)
                    self.assertNotIn("error", answers[len(refused) + index])

    def test_raw_alike(self):
        """The least max_tokens of a prompt is 0, which computes no answer."""
        bodies = [{"prompt": "a", **members} for members, _ in RAW_REFUSED] + \
            [{"prompt": "a", **members} for members in RAW_ACCEPTED]
        answers = self.prompts([{**body, "raw": True} for body in bodies])
        with Server(self.model, "--threads", "1") as server:
            for index, (body, answer) in enumerate(zip(bodies, answers)):
                with self.subTest(body=body):
                    if index < len(RAW_REFUSED):
                        said = server.post("/v1/completions", body, 400)["error"]["message"]
                        self.assertIn(RAW_REFUSED[index][1], said)
                        self.assertEqual(answer.get("error"), f"line {index + 1}: {said}")
                        continue
                    told = server.post("/v1/completions", body)["usage"]["completion_tokens"]
                    self.assertEqual(answer["usage"]["completion_tokens"], told)
                    self.assertEqual(told == 0, body.get("max_tokens") == 0)

    def test_differences(self):
        bodies = [request(members) for members, _, _ in DIFFERENT]
        answers = self.prompts(bodies)
        with Server(self.model, "--threads", "1") as server:
            for body, answer, (_, http, others) in zip(bodies, answers, DIFFERENT):
                with self.subTest(body=body):
                    status, _, said = server.ask("POST", "/v1/chat/completions",
                                                 json.dumps(body).encode())
                    self.assertEqual(status == 200, http is None, said)
                    self.assertIn((http or "").replace('"', '\\"'), said.decode())
                    self.assertEqual("error" in answer, others is not None, answer)
                    self.assertIn(others or "", answer.get("error", ""))

    def test_stops_are_named(self):
        """By the id of a token or by the string; the model's own end is none."""
        asked = {**request({"max_tokens": 6}), "ignore_eos": True}
        first = self.prompts([asked])[0]
        token, text = first["ids"][2], first["text"][1:3]
        self.assertIsNone(first["stop_reason"])
        requests = [{**asked, "stop_token_ids": [token]}, {**asked, "stop_tokens": [token]},
                    {**asked, "stop": text}]
        wanted = [token, token, text]
        self.assertEqual([line["stop_reason"] for line in self.prompts(requests)], wanted)
        with Server(self.model, "--threads", "1") as server:
            for body, stop in zip(requests, wanted):
                answer = server.post("/v1/chat/completions", {**body, "temperature": 0})
                choice = answer["choices"][0]
                self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))
        done = call("run", self.model, "a", "-n", "6", "--json", "--ignore-eos", "--stop-token",
                    str(token))
        self.assertEqual(json.loads(done.stdout)["stop_reason"], token)


if __name__ == "__main__":
    unittest.main()
