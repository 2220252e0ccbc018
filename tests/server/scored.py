"""lm-eval's local-completions against the server, unchanged: its log-likelihoods are those that
`avocet eval logits` gives in process. Skipped, visibly, without lm-eval (pip install "lm-eval[api]"
transformers numpy)."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from api_server import Server
from command import ROOT, call

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from chat import write_model  # noqa: E402

from clients import needs  # noqa: E402

needs("lm_eval", "transformers", "numpy")
QUESTIONS = [("Which?", ["abc", "xyz", "no"]), ("How,then:", ["a", "bb"]), ("2+2=", ["4", "five"]),
             ("Say-so", ["yes!", "maybe", "never", "?"]), ("end", ["of", "all"])]
TASK = """task: local_choice
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
target_delimiter: ""
metric_list: [{metric: acc}]
"""


class Scored(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-scored-")
        self.root = Path(self.scratch.name)
        (self.root / "model").mkdir()
        self.model = write_model(self.root / "model")

    def tearDown(self):
        self.scratch.cleanup()

    def evaluate(self, server):
        """What lm-eval computed for every choice of every question."""
        data = self.root / "questions.jsonl"
        data.write_text("".join(json.dumps({"query": query, "choices": choices, "gold": 0}) + "\n"
                                for query, choices in QUESTIONS))
        (self.root / "task.yaml").write_text(TASK % data)
        arguments = ",".join(f"{key}={value}" for key, value in {
            "model": "tiny", "base_url": server.url + "/v1/completions", "num_concurrent": 2,
            "tokenizer": self.model, "max_length": 60}.items())
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks",
             "local_choice", "--include_path", str(self.root), "--model_args", arguments,
             "--batch_size", "3", "--output_path", str(self.root / "out"), "--log_samples"],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                 "HF_HOME": str(self.root / "home")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        samples = next((self.root / "out").rglob("samples_*.jsonl")).read_text().splitlines()
        return {(row["doc"]["query"], i): float(response[0][0])
                for row in map(json.loads, samples)
                for i, response in enumerate(row["resps"])}

    def in_process(self, query, choice):
        import numpy
        ids = json.loads(call("tokenize", self.model, query + choice, "--json").stdout)["ids"]
        out = self.root / "logits.npy"
        done = call("eval", "logits", self.model, "--ids", ",".join(map(str, ids)), "-o", out,
                    "--kv-type", "f32")
        self.assertEqual(done.returncode, 0, done.stderr)
        logits = numpy.load(out).astype(numpy.float64)
        logprobs = logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))
        return sum(logprobs[i - 1, ids[i]] for i in range(len(query), len(ids)))

    def test_loglikelihoods(self):
        with Server(self.model, "--name", "tiny", "--threads", "1", "--kv-type", "f32") as server:
            found = self.evaluate(server)
        self.assertEqual(len(found), sum(len(choices) for _, choices in QUESTIONS))
        for query, choices in QUESTIONS:
            for i, choice in enumerate(choices):
                self.assertAlmostEqual(found[query, i], self.in_process(query, choice), delta=2e-3)


if __name__ == "__main__":
    unittest.main()
