"""`avocet bench --zipf` on a tiny model: every format, the check, what is refused."""
import csv
import io
import json
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import GOOD, USAGE, call

SMALL = ["-p", "10", "-n", "6", "-b", "4", "--requests", "12"]


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-serving-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def measure(self, *flags):
        done = call("bench", self.model, "--zipf", "1", *SMALL, *flags)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), flags)
        return done.stdout.decode()

    def test_the_same_as_one_by_one(self):
        for flags in (["--adapters", "5", "--tenants", "3"], ["--kv-tokens", "128"],
                      ["--no-prefix-cache", "--token-ms", "-1"], ["--rate", "500", "-t", "1"]):
            figures = json.loads(self.measure("--json", "--check", *flags))
            self.assertEqual([figures[key] for key in ("requests", "finished", "failed", "checked",
                                                       "different")], [12, 12, 0, 1, 0])
            self.assertGreater(figures["new_tokens_per_second"], 0)
            self.assertGreaterEqual(figures["first_token_ms"]["p99"],
                                    figures["first_token_ms"]["p50"])
            self.assertGreater(figures["tenant_fairness"], 0)
            if "--adapters" in flags:
                self.assertGreater(figures["adapters_used"], 1)
            if "--no-prefix-cache" in flags:
                self.assertEqual(figures["prefix_hit_share"], 0)

    def test_prefixes_after_preemptions(self):
        done = call("bench", self.model, "--zipf", "1", "-p", "10", "-n", "60", "-b", "4",
                    "--requests", "16", "--adapters", "1", "--kv-tokens", "128", "--json")
        figures = json.loads(done.stdout)
        self.assertGreater(figures["preemptions"], 0)
        self.assertLessEqual(figures["prefix_hit_share"], 1)

    def test_random_adapters_of_every_type(self):
        for kind in ("q8", "f16", "f32"):
            figures = json.loads(self.measure("--json", "--adapters", "2", "--adapter-type", kind,
                                              "--check"))
            self.assertEqual((figures["finished"], figures["different"]), (12, 0))

    def test_folders_that_are_no_adapters(self):
        root = self.folder / "root"
        (root / "notes").mkdir(parents=True)
        done = call("bench", self.model, "--zipf", "1", *SMALL, "--adapter-root", root)
        self.assertIn(b"notes: skipped, a folder without adapter_config.json", done.stderr)
        self.assertIn(b"no adapters in this folder", done.stderr)

    def test_formats(self):
        text = self.measure("--check")
        self.assertIn("| time to first token |", text)
        self.assertIn("the same bytes (0 of 12 differ)", text)
        rows = list(csv.DictReader(io.StringIO(self.measure("--csv"))))
        self.assertEqual([row["finished"] for row in rows], ["12"])
        folder = self.folder / "pictures"
        done = call("bench", self.model, "--zipf", "0", *SMALL, "--plot", folder)
        self.assertEqual(done.returncode, GOOD)
        self.assertIn("between two tokens", (folder / "latency.dat").read_text())
        self.assertTrue((folder / "latency.gnuplot").exists())

    def test_refused(self):
        for flags, part in ((["--requests", "3"], "--zipf"), (["--check"], "--zipf"),
                            (["--zipf", "1", "--kernels"], "cannot be combined"),
                            (["--zipf", "1", "--rate", "1", "--concurrency", "2"], "not both"),
                            (["--zipf", "1", "-p", "1,2"], "accepts one value")):
            done = call("bench", self.model, *flags)
            self.assertEqual((done.returncode, done.stdout), (USAGE, b""), flags)
            self.assertIn(part, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
