"""/training: runs of `avocet train` in the operator's folder, as they are, and nothing else."""
import json
import tempfile
import unittest
from pathlib import Path

import tiny_model
from api_server import Server
from command import FAILED, GOOD, ROOT, call

DEMO = ROOT / "models/demo.avo"


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-training-")
        cls.root = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.root)
        cls.runs = cls.root / "runs"
        cls.runs.mkdir()
        data = cls.root / "texts.jsonl"
        data.write_text('{"text": "The duck went to the hill."}\n{"text": "A cat is a cat."}\n')
        done = call("train", "sft", DEMO, "--data", data, "--valid", data, "-o", cls.runs / "first",
                    "--steps", 6, "--batch", 2, "--eval-every", 3)
        assert done.returncode == GOOD, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_a_run(self):
        with Server(self.model, "--training", self.runs) as server:
            self.assertTrue(server.get("/version")["training"])
            listed = server.get("/training")
            self.assertEqual(listed["more"], 0)
            run, = listed["runs"]
            self.assertEqual((run["run"], run["state"], run["step"], run["steps"], run["task"],
                              run["model"], run["batch"]),
                             ("first", "finished", 6, 6, "sft", "demo.avo", 2))
            whole = server.get("/training?run=first")
            metrics = [json.loads(line) for line in
                       (self.runs / "first/metrics.jsonl").read_text().splitlines()]
            self.assertEqual(whole["lines"], 8)
            for name in ("loss", "eval_loss", "learning_rate"):
                wanted = [[line["step"], float(f"{line[name]:.6g}")] for line in metrics
                          if name in line]
                self.assertEqual([[step, value] for step, value in whole["series"][name]], wanted)
            self.assertEqual(whole["latest"]["num_tokens"], metrics[-2]["num_tokens"])
            with open(self.runs / "first/metrics.jsonl", "a", encoding="utf-8") as file:
                file.write('broken\n{"loss": 0.25, "step": 7}\n{"loss": 0.1')
            whole = server.get("/training?run=first")
            self.assertEqual((whole["skipped"], whole["step"], whole["latest"]["loss"]),
                             (1, 7, 0.25))
            for name in ("..", "../first", "%2e%2e", "first/..", "first%2fcheckpoint-6", "none", "",
                         "%00"):
                error = server.get(f"/training?run={name}", 404)["error"]
                self.assertEqual((error["param"], error["code"]), ("run", "not_found"), name)
            second = self.runs / "second"  # while it serves
            second.mkdir()
            (second / "metrics.jsonl").write_text('{"loss": 3, "step": 1}\n')
            self.assertEqual([run["run"] for run in server.get("/training")["runs"]],
                             ["second", "first"])
            self.assertEqual(server.ask("POST", "/training", {})[0], 405)

    def test_without(self):
        with Server(self.model) as server:
            self.assertFalse(server.get("/version")["training"])
            self.assertEqual(server.get("/training", 404)["error"]["code"], "no_training")
        done = call("serve", self.model, "--training", self.root / "nowhere", "--port", 0)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("nowhere is not a folder", done.stderr.decode())

    def test_keys(self):
        keys = self.root / "keys.json"
        keys.write_text(json.dumps({"keys": [{"name": "one", "key": "one-key-22"}]}))
        keys.chmod(0o600)
        with Server(self.model, "--training", self.runs, "--keys", keys) as server:
            self.assertEqual(server.ask("GET", "/training")[0], 401)
            self.assertEqual(server.ask("GET", "/training",
                                        headers={"x-api-key": "one-key-22"})[0], 200)


if __name__ == "__main__":
    unittest.main()
