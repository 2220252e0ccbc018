"""`avocet speculate` as a command: tables, JSON, CSV, pictures, lossy policies, refusals."""
import csv
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, GOOD, USAGE, call

PROMPTS = """once upon a time once upon a time
{"category": "writing", "turns": ["once upon a time the a", "not this"]}
{"category": "writing", "prompt": "abcabcabc"}
"""
SPREADS = ("tokens_per_second", "speedup", "acceptance", "latency_ms", "resident_mib")


class Speculate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        cls.model = tiny_model.write(cls.path)
        cls.prompts = cls.path / "prompts.jsonl"
        cls.prompts.write_text(PROMPTS)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def speculate(self, *arguments):
        return call("speculate", self.model, "--prompts", self.prompts, "-n", "24", "-i", "2",
                    "--ignore-end", *arguments)

    def good(self, *arguments):
        done = self.speculate(*arguments)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), done)
        return done.stdout.decode()

    def refuse(self, *arguments, status=USAGE):
        done = self.speculate(*arguments)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n")
        return done.stderr.decode()

    def test_tables(self):
        found = self.good("--k", "0..2,4", "--source", "suffix,ngram", "--controller", "cost,fixed")
        for title in ("All prompts", "Speed-up by kind", "Accepted drafts by position",
                      "Accepted length", "Time of a step", "Cost of a step", "Memory:"):
            self.assertIn(title, found)
        self.assertNotIn("LOSSY", found)
        table = found.split("All prompts")[1].split("\n\n")[0].splitlines()[1:]
        self.assertEqual(len(table), 2 + 1 + 2 * 2 * 3)  # a title, a line, K 0, and the others
        self.assertEqual(len({len(line) for line in table}), 1, "columns are aligned")
        for row in table[2:]:
            self.assertEqual(row.split()[-1], "100.0")

    def test_json(self):
        found = json.loads(self.good("--k", "3", "--controller", "fixed", "--source", "suffix",
                                     "--json", "--temperature", "0.8"))
        self.assertEqual((found["prompts"], found["iterations"], found["different_answers"]),
                         (3, 2, 0))
        base, other = found["configurations"]
        self.assertEqual((base["k"], base["source"], base["controller"]), (0, "off", None))
        self.assertEqual((other["k"], other["controller"], other["policy"], other["lossy"]),
                         (3, "fixed", "exact", False))
        for one in (base, other):
            self.assertEqual(one["success"], 1)
            self.assertEqual(set(one["categories"]), {"prompts", "writing"})
            for name in SPREADS:
                self.assertEqual(set(one[name]), {"mean", "sd"})
        self.assertEqual((base["speedup"]["mean"], base["speedup_median"]), (1, 1))
        self.assertGreater(other["speedup_median"], 0)
        self.assertIsNone(base["acceptance"]["mean"])
        self.assertGreater(other["steps_with_drafts"], 0)
        # Steps and their histogram, and all tokens but the first of each answer, add up.
        self.assertEqual(sum(other["accepted_length"]), other["steps_with_drafts"])
        accepted = sum(other["accepted_by_position"])
        self.assertEqual(accepted, sum(n * c for n, c in enumerate(other["accepted_length"])))
        self.assertEqual(other["steps"] + accepted, 3 * 2 * 23)
        self.assertEqual(base["steps"], 3 * 2 * 23)
        self.assertEqual(other["sources"]["suffix"]["drafted"], sum(other["drafted_by_position"]))
        self.assertEqual(other["quality"]["different_tokens"], 0)
        self.assertEqual(other["quality"]["mean_logprob"], base["quality"]["mean_logprob"])
        costs = {one["rows"]: one for one in found["cost"]}
        self.assertGreater(costs[1]["measured_ns"], 0)
        self.assertEqual(sum(one["steps"] for one in found["cost"]), base["steps"] + other["steps"])
        self.assertGreaterEqual(len(found["memory"]), 3)
        times = [point["seconds"] for point in found["memory"]]
        self.assertEqual(times, sorted(times))
        self.assertGreater(found["memory"][-1]["resident_bytes"], 1 << 20)

    def test_clients(self):
        flags = ("--k", "0,4", "--source", "suffix", "--controller", "cost,fixed", "--clients", "2",
                 "--temperature", "0.8")
        found = self.good(*flags)
        self.assertIn("2 clients of one scheduler", found)
        self.assertNotIn("Time of a step", found)
        table = found.split("All prompts")[1].split("\n\n")[0].splitlines()[1:]
        self.assertEqual([row.split()[-1] for row in table[2:]], ["100.0"] * 3)
        found = json.loads(self.good(*flags, "--json"))
        self.assertEqual((found["clients"], found["different_answers"]), (2, 0))
        base, cost, fixed = found["configurations"]
        self.assertEqual((base["controller"], cost["controller"], fixed["controller"]),
                         (None, "cost", "fixed"))
        self.assertIsNotNone(fixed["acceptance"]["mean"], "drafts were verified")
        self.assertGreater(fixed["speedup_median"], 0)
        path = self.path / "clients.csv"
        self.good(*flags, "--csv", path)
        for row in csv.DictReader(path.open()):
            self.assertEqual((row["answers"], row["equal_answers"], int(row["tokens"])),
                             ("3", "3", 3 * 24))
        self.assertIn("lossy", self.refuse("--clients", "2", "--policy", "top-k:4"))
        self.assertIn("--plot", self.refuse("--clients", "2", "--plot", self.path / "x"))
        self.refuse("--clients", "0")
        self.refuse("--clients", "257")

    def test_csv(self):
        path = self.path / "out.csv"
        self.good("--k", "0,3", "--source", "suffix+corpus", "--csv", path)
        rows = list(csv.DictReader(path.open()))
        self.assertEqual(len(rows), 2 * 2 * 2)  # configurations, categories, iterations
        for row in rows:
            self.assertEqual(row["answers"], row["equal_answers"])
            self.assertEqual(int(row["tokens"]), 23 * int(row["answers"]))
            self.assertGreater(float(row["seconds"]), 0)
        self.assertEqual({row["source"] for row in rows}, {"off", "suffix+corpus"})

    def test_pictures(self):
        folder = self.path / "pictures"
        done = self.speculate("--k", "0..3", "--controller", "fixed,ema", "--plot", folder)
        self.assertEqual(done.returncode, GOOD, done)
        for name in ("speedup", "positions", "lengths", "cost", "memory"):
            numbers = [line.split() for line in (folder / f"{name}.dat").read_text().splitlines()
                       if line and not line.startswith("#")]
            self.assertTrue(numbers)
            for line in numbers:
                [float(number) for number in line]
            if shutil.which("gnuplot"):
                self.assertIn("</svg>", (folder / f"{name}.svg").read_text())
            else:
                self.assertTrue((folder / f"{name}.gnuplot").exists())
                self.assertIn(b"gnuplot is not installed", done.stderr)

    def test_lossy_policies_are_marked_and_measured(self):
        flags = ("--k", "4", "--source", "suffix", "--controller", "fixed", "--policy",
                 "exact,top-k:1000")
        found = self.good(*flags)
        self.assertIn("top-k:1000 LOSSY", found)
        self.assertIn("LOSSY policies: these answers are not the model's own", found)
        base, exact, lossy = json.loads(self.good(*flags, "--json"))["configurations"]
        self.assertEqual((exact["lossy"], lossy["lossy"]), (False, True))
        self.assertEqual(exact["success"], 1)
        self.assertLess(lossy["success"], 1, "the comparison sees answers that differ")
        self.assertGreater(lossy["quality"]["different_tokens"], 0)
        self.assertLess(lossy["quality"]["mean_logprob"], base["quality"]["mean_logprob"])
        self.assertGreater(lossy["acceptance"]["mean"], 0.99)
        path = self.path / "lossy.csv"
        self.good(*flags, "--csv", path)
        marked = {(row["policy"], row["lossy"]) for row in csv.DictReader(path.open())}
        self.assertEqual(marked, {("exact", "0"), ("top-k", "1")})

    def test_sets(self):
        done = call("speculate", self.model, "--set", "random,story", "--limit", "1", "-n", "4",
                    "-i", "1", "--k", "0,2", "--json")
        # The tiny model's context is short: random words do not fit, and the error says what to do.
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.stderr, rb"context is \d+; use a smaller -n or other prompts")
        done = call("speculate", self.model, "--set", "story", "--limit", "1", "-n", "4", "-i", "1",
                    "--k", "0,2", "--json")
        self.assertEqual(done.returncode, GOOD, done)
        found = json.loads(done.stdout)
        self.assertEqual(found["prompts"], 1)
        self.assertIsNone(found["configurations"][1]["speedup"]["sd"])  # of one iteration

    def test_refusals(self):
        self.assertIn("such as 0..8 or 0,3,7", self.refuse("--k", "17"))
        for wrong in ("", "3..1", "0..", "1,,2", "-1", "a"):
            self.refuse(f"--k={wrong}")
        self.assertIn("must be off, auto or a list", self.refuse("--source", "magic"))
        self.assertIn("always included", self.refuse("--source", "off"))
        self.assertIn("must be one of", self.refuse("--controller", "magic"))
        self.assertIn("threshold:P", self.refuse("--policy", "threshold:2"))
        self.assertIn("give --prompts or --set", self.refuse("--set", "chat"))
        self.assertIn("more than 64 configurations", self.refuse(
            "--k", "0..16", "--controller", "cost,fixed,step,rate,ema"))
        self.assertIn("nowhere/x.csv", self.refuse(
            "--csv", self.path / "nowhere" / "x.csv", status=FAILED))
        self.assertIn("nowhere/pictures", self.refuse(
            "--plot", self.path / "nowhere" / "pictures", status=FAILED))
        done = call("speculate", self.model, "--set", "poems")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn(b'"poems" is not a prompt set; there are chat,', done.stderr)
        done = call("speculate", self.model, "--prompts", self.path / "missing")
        self.assertEqual(done.returncode, FAILED)
        done = call("speculate")
        self.assertEqual(done.returncode, USAGE)

    def test_no_other_command_takes_a_policy(self):
        for command in ("run", "chat", "serve", "bench"):
            shown = call(command, "--help").stdout
            self.assertNotIn(b"--policy", shown)
            self.assertNotIn(b"typical:", shown)


if __name__ == "__main__":
    unittest.main()
