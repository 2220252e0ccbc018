"""tools/evals: the table of a tiny model's variants, its record, and that it tells worse from the
same."""
import argparse
import csv
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import tiny_model
from command import AVOCET, ROOT

loader = importlib.machinery.SourceFileLoader("evals", str(ROOT / "tools" / "evals"))
sys.dont_write_bytecode = True
evals = importlib.util.module_from_spec(importlib.util.spec_from_loader("evals", loader))
loader.exec_module(evals)

VARIANTS = "f16;as it is;int8 KV;f16, adapter f32;as it is, adapter q8"


def row(variant, task, outcomes, prompts="p"):
    return {"model": "m", "variant": variant, "task": task, "metric": "acc",
            "items": str(len(outcomes)), "right": str(sum(outcomes)),
            "prompts": evals.prompts_digest(prompts, len(outcomes)),
            "outcomes": evals.to_hex(outcomes)}


class Table(unittest.TestCase):
    def checked(self, now, rows):
        with redirect_stdout(StringIO()) as out:
            worse = evals.check("m", now, rows)
        return worse, out.getvalue()

    def test_outcomes_are_kept(self):
        for length in range(1, 13):
            outcomes = [i * 7 % 3 % 2 for i in range(length)]
            self.assertEqual(evals.from_hex(evals.to_hex(outcomes), length), outcomes)

    def test_worse_is_told_from_the_same(self):
        before = [1] * 60 + [0] * 40
        rows = [row("f16", "piqa", before), row("f16", "arc_easy", before)]
        same = {("f16", "piqa"): (before, "p"), ("f16", "arc_easy"): (before, "p")}
        self.assertEqual(self.checked(same, rows), (False, "evals: m: f16: all 200 outcomes as "
                                                           "recorded\n"))
        few = [1, 0] + before[2:]
        worse, text = self.checked({("f16", "piqa"): (few, "p")}, rows)
        self.assertFalse(worse)
        self.assertIn("changed: -1.00 points", text)
        many = [0] * 9 + before[9:]
        worse, text = self.checked({("f16", "piqa"): (many, "p")}, rows)
        self.assertTrue(worse)
        self.assertIn("WORSE: -9.00 points", text)
        better = [1] * 90 + [0] * 10
        self.assertFalse(self.checked({("f16", "piqa"): (better, "p")}, rows)[0])
        self.assertTrue(self.checked({("f16", "piqa"): (before, "q")}, rows)[0])  # other prompts
        self.assertIn("SKIPPED", self.checked(same, [])[1])

    def test_difference(self):
        mean, low, high, up, down = evals.difference([1, 1, 0, 0], [1, 0, 1, 0])
        self.assertEqual((mean, up, down), (0, 1, 1))
        self.assertAlmostEqual(high, 1.959963984540054 * (2 / 3) ** 0.5 / 2)
        self.assertAlmostEqual(low, -high)

    def test_documents_up_to_a_gap_count(self):
        """Of a run that was ended: documents come in no order, and the last line may be cut."""
        rows = [{"doc_id": doc, "filter": name} for doc in (1, 0, 2, 4)
                for name in ("strict", "last")]
        with tempfile.TemporaryDirectory(prefix="avocet-evals-") as scratch:
            tool = evals.Evals(argparse.Namespace(avocet=AVOCET, model="m", work=scratch,
                                                  seconds=0, limit=0))
            tool.samples_path("f16", "gsm8k_cot").write_text(
                "".join(json.dumps(one) + "\n" for one in rows) + '{"doc_id": 3, "fil')
            self.assertEqual([(one["doc_id"], one["filter"])
                              for one in tool.answered("f16", "gsm8k_cot")],
                             [(doc, "last") for doc in (0, 1, 2)])
            self.assertEqual(tool.answered("f16", "piqa"), [])  # has not begun

    def test_differences_are_of_common_documents(self):
        found = {("f16", "piqa"): ([1, 1, 0], ""), ("q8", "piqa"): ([1, 0], ""),
                 ("f16", "arc_easy"): ([1], ""), ("q8", "arc_easy"): ([1, 1], "")}
        self.assertEqual(evals.paired(found, "q8", "f16", ["piqa", "arc_easy"]),
                         [[1, 0, 1], [1, 1, 1]])
        with redirect_stdout(StringIO()) as text:
            evals.show("m", found, ["f16", "q8"], ["piqa", "arc_easy"])
        self.assertIn("| q8                   | 50.0 of 2 | 100.0 | -33.33 |", text.getvalue())

    def test_whole(self):
        with tempfile.TemporaryDirectory(prefix="avocet-evals-") as scratch:
            folder = Path(scratch)
            model = tiny_model.write(folder)
            (folder / "arc_easy.jsonl").write_text("".join(
                json.dumps({"query": f"Why {i}?", "choices": ["a", "the"], "gold": i % 2}) + "\n"
                for i in range(8)))
            (folder / "lambada_openai.jsonl").write_text("".join(
                json.dumps({"text": f"{i} once upon a time"}) + "\n" for i in range(5)))

            def run(*more):
                return subprocess.run(
                    [sys.executable, ROOT / "tools" / "evals", "--avocet", AVOCET, "--model", model,
                     "--data", folder, "--work", folder / "work", "--variants", VARIANTS, "--tasks",
                     "arc_easy,lambada_openai", "--table", folder / "table.csv", *more],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            first = run("--limit", "4")
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertIn("| f16, adapter f32     |", first.stdout)
            self.assertIn("SKIPPED: the record has no rows of model.bin", first.stdout)
            recorded = run("--record")
            self.assertEqual(recorded.returncode, 0, recorded.stderr)
            with open(folder / "table.csv", newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([(r["variant"], r["task"], r["items"]) for r in rows],
                             [(v, t, n) for v in VARIANTS.split(";")
                              for t, n in (("arc_easy", "8"), ("lambada_openai", "5"))])
            again = run()
            self.assertEqual(again.returncode, 0, again.stdout)
            self.assertEqual(again.stdout.count("all 13 outcomes as recorded"), 5)
            fewer = run("--limit", "3")
            self.assertEqual(fewer.returncode, 0, fewer.stdout)
            self.assertEqual(fewer.stdout.count("all 6 outcomes as recorded"), 5)
            # What did not run stays in the record, and rows of more documents do.
            run("--record", "--variants", "f16", "--tasks", "arc_easy", "--limit", "3")
            with open(folder / "table.csv", newline="", encoding="utf-8") as file:
                self.assertEqual(list(csv.DictReader(file)), rows)
            shown = run("--recorded")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertRegex(shown.stdout, r"\| as it is +\| [\d.]+ \| [\d.]+ \| [+-]\d")
            many = run("--jobs", "3", "--work", folder / "again")
            self.assertEqual(many.stdout.count("all 13 outcomes as recorded"), 5, many.stderr)
            refused = run("--tasks", "nothing")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))


if __name__ == "__main__":
    unittest.main()
