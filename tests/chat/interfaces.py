"""HTTP and `run --prompts` refuse the same requests with the same texts and accept the same. Python
compares itself with the same list in its own tests."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

from api_server import Server
from command import ROOT, call
from request_cases import ACCEPTED, REFUSED, request

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


if __name__ == "__main__":
    unittest.main()
