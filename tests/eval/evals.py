"""tools/evals: the regression table, its record, and what counts of runs that were ended."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import AVOCET, FAILED, GOOD, PATIENCE, ROOT

TOOL = ROOT / "tools/evals"
DEMO = ROOT / "models/demo.avo"
loader = importlib.machinery.SourceFileLoader("evals", str(TOOL))
sys.dont_write_bytecode = True
evals = importlib.util.module_from_spec(importlib.util.spec_from_loader("evals", loader))
loader.exec_module(evals)


class Table(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-evals-")
        self.root = Path(self.scratch.name)
        (self.root / "eval/tasks").mkdir(parents=True)
        (self.root / "eval/tasks/piqa.jsonl").write_text("".join(
            json.dumps({"query": f"What is {n} + 1?", "choices": [str(n + 1), "a dog"],
                        "gold": 0}) + "\n" for n in range(12)))

    def tearDown(self):
        self.scratch.cleanup()

    def run_tool(self, *more):
        return subprocess.run(
            [sys.executable, TOOL, "--avocet", AVOCET, "--model", DEMO, "--data",
             self.root / "eval", "--work", self.root / "work", "--table",
             self.root / "record.csv", "--variants", "f16;as it is", "--tasks", "piqa",
             "--flags", "--threads 1", *map(str, more)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def test_record_and_check(self):
        done = self.run_tool("--record", "--jobs", 2)
        self.assertEqual(done.returncode, GOOD, done.stdout)
        self.assertIn("| as it is ", done.stdout)
        record = self.root / "record.csv"
        lines = record.read_text().splitlines()
        self.assertEqual([line.split(",")[:5] for line in lines[1:]], [
            ["demo.avo", variant, "piqa", "acc", "12"] for variant in ("f16", "as it is")])
        done = self.run_tool()
        self.assertEqual(done.returncode, GOOD, done.stdout)
        self.assertEqual(done.stdout.count("all 12 outcomes as recorded"), 2, done.stdout)
        self.run_tool("--record", "--limit", 5)  # fewer documents: the record keeps more
        self.assertEqual(record.read_text().splitlines(), lines)
        done = self.run_tool("--recorded")
        self.assertEqual(done.returncode, GOOD, done.stdout)
        self.assertRegex(done.stdout, r"\| as it is +\| [\d.]+ \| [+-]\d")
        wrong = [",".join(line.split(",")[:-1] + ["fff"]) for line in lines[1:]]
        (self.root / "eval/tasks/piqa.jsonl").write_text("".join(
            json.dumps({"query": f"What is {n} + 1?", "choices": ["a dog", str(n + 1)],
                        "gold": 0}) + "\n" for n in range(12)))
        for path in (self.root / "work").rglob("*.jsonl"):
            path.unlink()
        record.write_text("\n".join([lines[0], *wrong]) + "\n")
        done = self.run_tool()  # other documents, and worse
        self.assertEqual(done.returncode, FAILED, done.stdout)

    def tool(self):
        options = argparse.Namespace(avocet=AVOCET, model="m", work=str(self.root / "own"),
                                     seconds=0, limit=0)
        return evals.Evals(options)

    def test_documents_up_to_a_gap_count(self):
        tool = self.tool()
        rows = [{"doc_id": doc, "filter": name, "exact_match": 1.0, "prompt_hash": "0" * 16}
                for doc in (1, 0, 2, 4) for name in ("strict", "last")]
        path = tool.samples_path("f16", "gsm8k_cot")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"doc_id": 3, "fil')
        found = tool.answered("f16", "gsm8k_cot")
        self.assertEqual([(row["doc_id"], row["filter"]) for row in found],
                         [(doc, "last") for doc in (0, 1, 2)])
        self.assertEqual(tool.answered("f16", "piqa"), [])  # has not begun

    def test_differences_are_of_common_documents(self):
        found = {("f16", "piqa"): ([1, 1, 0], ""), ("q8", "piqa"): ([1, 0], ""),
                 ("f16", "arc_easy"): ([1], ""), ("q8", "arc_easy"): ([1, 1], "")}
        self.assertEqual(evals.paired(found, "q8", "f16", ["piqa", "arc_easy"]),
                         [[1, 0, 1], [1, 1, 1]])
        mean, low, high, up, down = evals.difference([1, 0, 1], [1, 1, 1])
        self.assertEqual((round(mean, 6), up, down), (-0.333333, 0, 1))
        self.assertTrue(low < mean < high)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            evals.show("m", found, ["f16", "q8"], ["piqa", "arc_easy"])
        self.assertIn("| q8                   | 50.0 of 2 | 100.0 | -33.33 |", text.getvalue())


if __name__ == "__main__":
    unittest.main()
