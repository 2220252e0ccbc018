"""bench/gate: what passes, what fails, what is measured again, on a command that only pretends."""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import ROOT

SCRIPT = ROOT / "bench" / "gate"
# Answers version, pack and bench; shares come from a file, one number per call of bench.
PRETENDER = """#!{python}
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
if sys.argv[1] == "version":
    print(json.dumps({{"isas": "ref avx2 avx512", "cpu": "pretended", "threads": 2}}))
elif sys.argv[1] == "plan":
    sys.exit(0 if os.path.getsize(sys.argv[2]) > 0 else 1)
elif sys.argv[1] == "pack":
    with open(sys.argv[sys.argv.index("-o") + 1], "w") as file:
        file.write("a model")
    with open(folder + "/packed", "a") as file:
        file.write("one\\n")
else:
    with open(folder + "/shares") as file:
        shares = file.read().split()
    with open(folder + "/shares", "w") as file:
        file.write(" ".join(shares[1:]))
    with open(folder + "/calls", "a") as file:
        file.write(os.environ["AVO_ISA"] + "\\n")
    print(json.dumps({{"results": [
        {{"share": 9.0, "read_share": float(shares[0]), "arithmetic_share": 0.125,
          "bound": "arithmetic", "tps": 100.0}}]}}))
"""


class Gate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        (self.path / "avocet").write_text(PRETENDER.format(python=sys.executable))
        os.chmod(self.path / "avocet", 0o755)
        self.store([("avx2", 0.8), ("avx512", 0.9)])

    def tearDown(self):
        self.folder.cleanup()

    def store(self, rows, cpu="pretended", threads=2, bound="read"):
        with open(self.path / "gate.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["isa", "cpu", "threads", "case", "share", "bound", "tps"])
            for isa, share in rows:
                writer.writerow([isa, cpu, threads, "q4 decode", share, bound, 1])

    def rows(self, name="gate.csv"):
        with open(self.path / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def run_gate(self, shares, *arguments):
        (self.path / "shares").write_text(" ".join(map(str, shares)))
        return subprocess.run(
            [sys.executable, SCRIPT, "--avocet", self.path / "avocet", "--cases", "q4 decode",
             "--cache", self.path / "cache", "--table", self.path / "gate.csv", "--history",
             self.path / "history.csv", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def calls(self):
        return (self.path / "calls").read_text().split()

    def test_as_fast_as_before_passes(self):
        done = self.run_gate([0.8, 0.83])  # 0.83 of 0.9 is a loss of 7.8 %
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.calls(), ["avx2", "avx512"])
        self.assertIn(b"gate: 2 as fast as stored, 0 skipped", done.stdout)

    def test_noise_is_measured_again(self):
        done = self.run_gate([0.5, 0.6, 0.79, 0.9])
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"3 tries", done.stdout)
        self.assertEqual(self.calls(), ["avx2", "avx2", "avx2", "avx512"])

    def test_a_loss_fails(self):
        done = self.run_gate([0.8, 0.82, 0.82, 0.82, 0.82])
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"LOST", done.stdout)
        self.assertIn(b"1 of the shares", done.stderr)
        self.assertEqual(len(self.calls()), 5)

    def test_what_the_machine_has_not_is_skipped_visibly(self):
        self.store([("avx2", 0.8), ("amx", 0.5)])
        done = self.run_gate([0.8])
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"amx     SKIPPED: this machine does not have it", done.stdout)
        self.assertIn(b"avx512  SKIPPED: the table has no rows of pretended with 2 threads; `make",
                      done.stdout)
        self.assertIn(b"gate: 1 as fast as stored, 2 skipped", done.stdout)

    def test_another_machine_is_not_compared(self):
        """Not with another processor's rows, nor with those of another number of threads."""
        self.store([("avx2", 0.8)], cpu="another")
        done = self.run_gate([])
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"only of another with 2 threads; `make gate-record` adds them", done.stdout)
        self.store([("avx2", 0.8)])
        done = self.run_gate([], "--threads", "7")
        self.assertIn(b"no rows of pretended with 7 threads", done.stdout)
        self.assertFalse((self.path / "calls").exists())

    def test_a_case_without_a_row_is_skipped_visibly(self):
        done = self.run_gate([0.8], "--isa", "avx2", "--cases", "q4 decode;q8 decode")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"SKIPPED: not in the table", done.stdout)

    def test_recording_leaves_other_machines_alone(self):
        self.store([("amx", 0.5), ("avx2", 0.1)], cpu="another")
        done = self.run_gate([0.7, 0.75, 0.72, 0.4, 0.5, 0.6], "--record")
        self.assertEqual(done.returncode, 0, done)
        found = {(row["isa"], row["cpu"], row["threads"]): row["share"] for row in self.rows()}
        self.assertEqual(found, {("avx2", "another", "2"): "0.1", ("amx", "another", "2"): "0.5",
                                 ("avx2", "pretended", "2"): "0.7200",
                                 ("avx512", "pretended", "2"): "0.5000"})
        self.run_gate([0.8] * 3, "--record", "--isa", "avx2")
        found = {(row["isa"], row["cpu"]): row["share"] for row in self.rows()}
        self.assertEqual((found["avx2", "pretended"], found["avx512", "pretended"]),
                         ("0.8000", "0.5000"))
        self.assertEqual([row["share"] for row in self.rows("history.csv")],
                         ["0.7200", "0.5000", "0.8000"])

    def test_the_limit_that_counts_is_the_case_s_own(self):
        """Whatever binds at the moment (the pretender says arithmetic)."""
        done = self.run_gate([0.8] * 3, "--record", "--isa", "avx2")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([(row["share"], row["bound"]) for row in self.rows("history.csv")],
                         [("0.8000", "read")])
        done = self.run_gate([0.8] * 3, "--record", "--isa", "avx2", "--cases", "q4 decode × 8")
        self.assertEqual([(row["share"], row["bound"]) for row in self.rows("history.csv")][1:],
                         [("0.1250", "arithmetic")])
        self.store([("avx2", 0.8)], bound="arithmetic")
        done = self.run_gate([], "--isa", "avx2")
        self.assertIn(b"SKIPPED: its row is a share of arithmetic, not of read", done.stdout)

    def test_a_disturbed_limit_is_not_stored(self):
        done = self.run_gate([0.7, 1.3, 0.72, 1.06, 1.05], "--record", "--isa", "avx2")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([row["share"] for row in self.rows("history.csv")], ["0.7200"])
        before = self.rows()
        done = self.run_gate([1.3, 1.3, 0.7, 1.3, 0.7, 1.3], "--record", "--isa", "avx2",
                             "--tries", "3")
        self.assertIn(b"SKIPPED: above 105 % of read: the limit was disturbed", done.stdout)
        self.assertEqual(self.rows(), before)
        self.assertEqual(len(self.rows("history.csv")), 1)

    def test_a_disturbed_limit_is_not_compared(self):
        done = self.run_gate([1.3, 0.7, 0.8], "--isa", "avx2")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"3 tries", done.stdout)
        done = self.run_gate([1.3, 1.3], "--isa", "avx2", "--tries", "2")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"SKIPPED: above 105 %", done.stdout)
        self.assertIn(b"gate: 0 as fast as stored, 1 skipped", done.stdout)
        done = self.run_gate([1.3, 0.5], "--isa", "avx2", "--tries", "2")
        self.assertEqual(done.returncode, 1, done)

    def test_an_interrupted_recording_keeps_what_it_has(self):
        """The pretender has no fourth share, and fails."""
        done = self.run_gate([0.7, 0.75, 0.72], "--record", "--isa", "avx2", "--cases",
                             "q4 decode;q8 decode")
        self.assertNotEqual(done.returncode, 0, done)
        self.assertEqual([row["share"] for row in self.rows("history.csv")], ["0.7200"])
        self.assertEqual({row["share"] for row in self.rows() if row["isa"] == "avx2"}, {"0.7200"})

    def test_models_are_written_once_and_again_when_they_cannot_be_read(self):
        self.run_gate([0.8, 0.9])
        self.run_gate([0.8, 0.9])
        self.assertEqual((self.path / "packed").read_text().split(), ["one"])
        next((self.path / "cache").iterdir()).write_text("")
        self.assertEqual(self.run_gate([0.8, 0.9]).returncode, 0)
        self.assertEqual((self.path / "packed").read_text().split(), ["one", "one"])

    def test_the_history_is_drawn(self):
        if shutil.which("gnuplot") is None:
            self.skipTest("gnuplot is not here")
        self.run_gate([0.7, 0.75, 0.72, 0.4, 0.5, 0.6], "--record")
        done = self.run_gate([], "--plot", self.path / "history.svg")
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        picture = (self.path / "history.svg").read_text()
        for word in ("avx2", "avx512", "q4 decode", "</svg>"):
            self.assertIn(word, picture)

    def test_refusals(self):
        self.assertEqual(self.run_gate([1], "--cases", "q5 decode").returncode, 2)
        (self.path / "avocet").write_text("#!/bin/sh\necho nothing works >&2\nexit 1\n")
        done = self.run_gate([1], "--isa", "avx2")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing works", done.stderr)

    def test_the_stored_table_is_one(self):
        """Every row of bench/gate.csv is a share that can be, of the limit that its case names."""
        table = ROOT / "bench" / "gate.csv"
        if not table.exists():
            self.skipTest("no table yet")
        lines = subprocess.run([sys.executable, SCRIPT, "--list"], stdout=subprocess.PIPE,
                               check=True).stdout.decode().splitlines()
        limits = dict(line.split("\t") for line in lines)
        with open(table, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                self.assertEqual(row["bound"], limits[row["case"]], json.dumps(row))
                self.assertTrue(0 < float(row["share"]) <= 1.05, json.dumps(row))


if __name__ == "__main__":
    unittest.main()
