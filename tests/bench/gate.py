"""bench/gate: what passes, what fails, what is measured again, on a command that only pretends."""
import csv
import json
import os
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
    print(json.dumps({{"isas": "ref avx2 avx512"}}))
elif sys.argv[1] == "pack":
    open(sys.argv[sys.argv.index("-o") + 1], "w").close()
else:
    with open(folder + "/shares") as file:
        shares = file.read().split()
    with open(folder + "/shares", "w") as file:
        file.write(" ".join(shares[1:]))
    with open(folder + "/calls", "a") as file:
        file.write(os.environ["AVO_ISA"] + "\\n")
    print(json.dumps({{"machine": {{"cpu": "pretended"}}, "results": [
        {{"share": float(shares[0]), "bound": "read", "tps": 100.0}}]}}))
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

    def store(self, rows):
        with open(self.path / "gate.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["isa", "case", "share", "bound", "tps", "cpu"])
            for isa, share in rows:
                writer.writerow([isa, "q4 decode", share, "read", 1, "x"])

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
        self.assertIn(b"amx     SKIPPED", done.stdout)
        self.assertIn(b"not in the table", done.stdout)

    def test_recording(self):
        self.store([("amx", 0.5), ("avx2", 0.1)])
        done = self.run_gate([0.7, 0.75, 0.72, 0.4, 0.5, 0.6], "--record")
        self.assertEqual(done.returncode, 0, done)
        with open(self.path / "gate.csv", newline="", encoding="utf-8") as file:
            rows = {row["isa"]: row["share"] for row in csv.DictReader(file)}
        self.assertEqual(rows, {"avx2": "0.7500", "avx512": "0.6000", "amx": "0.5"})
        self.run_gate([0.7] * 6, "--record")
        with open(self.path / "history.csv", newline="", encoding="utf-8") as file:
            self.assertEqual([row["share"] for row in csv.DictReader(file)],
                             ["0.7500", "0.6000", "0.7000", "0.7000"])

    def test_refusals(self):
        self.assertEqual(self.run_gate([1], "--cases", "q5 decode").returncode, 2)
        (self.path / "avocet").write_text("#!/bin/sh\necho nothing works >&2\nexit 1\n")
        done = self.run_gate([1], "--isa", "avx2")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing works", done.stderr)

    def test_the_stored_table_is_one(self):
        """Every row of bench/gate.csv names a case that the gate knows."""
        table = ROOT / "bench" / "gate.csv"
        if not table.exists():
            self.skipTest("no table yet")
        names = subprocess.run([sys.executable, SCRIPT, "--cases", "?"], stderr=subprocess.PIPE,
                               check=False).stderr.decode()
        with open(table, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                self.assertIn(row["case"], names)
                self.assertTrue(0 < float(row["share"]) < 1.5, json.dumps(row))


if __name__ == "__main__":
    unittest.main()
