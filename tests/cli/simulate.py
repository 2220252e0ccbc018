"""`avocet simulate` as a command: what it prints, pictures, refusals."""
import csv
import io
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from command import FAILED, GOOD, USAGE, call, test_data

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,48,10
2023-11-16 18:17:04.0319600,318,8
2023-11-16 18:17:05,20000,8
"""
METRICS = ("first_token", "between_tokens", "total", "queue")


class Simulate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.trace = Path(self.folder.name) / "t.csv"
        self.trace.write_text(TRACE)

    def tearDown(self):
        self.folder.cleanup()

    def good(self, *arguments):
        done = call("simulate", *arguments)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), done)
        return done.stdout.decode()

    def refuse(self, *arguments, status=USAGE):
        done = call("simulate", *arguments)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def test_seeds(self):
        self.assertIn("20 seeds from 5 on", self.good("--seeds", "20", "--seed", "5"))
        found = json.loads(self.good("--seeds", "20", "-t", "1", "--json"))
        self.assertEqual((found["first"], found["seeds"], found["failed_seed"]), (1, 20, None))
        self.assertGreater(found["steps"], 1000)

    def test_what_lasts_too_long(self):
        """A clock of 64 bits is not run over: not by arrivals, nor by the speed, nor by work."""
        zipf = ("--zipf", "1", "-p", "4", "-n", "2")
        self.assertIn("use fewer or faster requests", self.refuse(
            *zipf, "--rate", "1e-6", "--requests", "20000", status=FAILED))
        self.trace.write_text(TRACE + "2123-11-16 18:17:05,20,8\n")
        self.assertIn("request 4 would arrive", self.refuse(
            "--trace", self.trace, "--speed", "1e-6", status=FAILED))
        self.assertIn("use less work", self.refuse(
            *zipf, "--step-ms", "1e9", "--requests", "5000", "--running", "1", "--retry",
            "--waiting", "5000", status=FAILED))
        self.good(*zipf, "--rate", "1e-6", "--requests", "900", "--check")

    def test_a_trace(self):
        found = json.loads(self.good("--trace", self.trace, "--check", "--json"))
        self.assertEqual((found["requests"], found["finished"], found["refused"]), (3, 2, 1))
        everything = found["groups"][0]
        self.assertEqual((everything["kind"], everything["tokens"]), ("all", 18))
        for metric in METRICS:
            row = everything[metric]
            self.assertTrue(0 <= row["p50"] <= row["p90"] <= row["p99"] <= row["max"], row)
        slow = json.loads(self.good("--trace", self.trace, "--json", "--prefill-ms", "50"))
        self.assertGreater(slow["groups"][0]["first_token"]["p99"],
                           2 * everything["first_token"]["p99"])
        one = json.loads(self.good("--trace", self.trace, "--json", "--requests", "1"))
        self.assertEqual(one["requests"], 1)

    def test_zipf_is_repeatable_and_groups_add_up(self):
        flags = ("--zipf", "1.1", "--adapters", "5", "--tenants", "3", "--requests", "120",
                 "--rate", "5", "--prompt", "40", "--generate", "10")
        found = self.good(*flags, "--csv")
        self.assertEqual(found, self.good(*flags, "--csv"))
        self.assertNotEqual(found, self.good(*flags, "--csv", "--seed", "9"))
        rows = list(csv.DictReader(io.StringIO(found)))
        for kind, count in (("all", 1), ("tenant", 3), ("adapter", 5)):
            those = [row for row in rows if row["kind"] == kind]
            self.assertEqual(len(those), count)
            self.assertEqual(sum(int(row["requests"]) for row in those), 120)
        self.assertIn("| all | 120 | 120 |", self.good(*flags))
        for mode in ("static", "adaptive"):
            self.assertIn("| all | 120 | 120 |", self.good(*flags, "--cores-mode", mode))

    def test_a_small_pool_preempts_and_all_finish(self):
        found = json.loads(self.good("--zipf", "1", "--requests", "80", "--rate", "50", "--prompt",
                                     "60", "--generate", "60", "--kv-tokens", "512", "--ctx",
                                     "400", "--check", "--json"))
        self.assertGreater(found["preemptions"], 0)
        self.assertEqual(found["finished"], 80)

    def test_the_cost_comes_from_a_bench(self):
        cost = Path(self.folder.name) / "cost.json"
        line = {"kind": "decode", "tokens": 8, "batch": 1, "depth": 0, "tps": 100}
        cost.write_text(json.dumps({"results": [
            line, dict(line, batch=5, tps=250), dict(line, depth=1000, tps=50),
            dict(line, kind="prefill", tokens=100, tps=50)]}))
        # 10 ms a step, 20 of five rows, 10 µs a position, 2000 - 50.5 of a hundred rows.
        found = json.loads(self.good("--trace", self.trace, "--requests", "1", "--noise", "0",
                                     "--cost", cost, "--target-ms", "0", "--json"))
        first = found["groups"][0]["first_token"]["max"]
        rows = 20 + (2000 - 50.5 - 20) * (48 - 5) / (100 - 5)
        self.assertAlmostEqual(first, (rows + 48 * 49 / 2 * 0.01) / 1000, places=4)
        cost.write_text('{"results":[]}')
        for option in (["--router", "prefix"], ["--mtbf", "300"], ["--turns", "4"]):
            self.assertIn("need --replicas", self.refuse("--zipf", "1", *option))
        self.assertIn("avocet bench", self.refuse("--zipf", "1", "--cost", cost, status=FAILED))
        cost.write_text('{"results":[{"kind":"decode","tps":"x"}]}')
        self.assertIn("tps", self.refuse("--zipf", "1", "--cost", cost, status=FAILED))
        cost.write_text("[")
        self.refuse("--zipf", "1", "--cost", cost, status=FAILED)

    def test_a_picture(self):
        for name in ("a.svg", "b.png"):
            picture = Path(self.folder.name) / name
            done = call("simulate", "--trace", self.trace, "--plot", picture)
            self.assertEqual(done.returncode, GOOD, done)
            here = shutil.which("gnuplot") is not None
            self.assertEqual(picture.with_suffix(".dat").exists(), not here)
            self.assertEqual(picture.with_suffix(".gnuplot").exists(), not here)
            if shutil.which("gnuplot") is None:
                self.assertIn(b"gnuplot is not installed", done.stderr)
            else:
                self.assertGreater(picture.stat().st_size, 1000)
        self.refuse("--zipf", "1", "--plot", "x.jpg")
        self.refuse("--zipf", "1", "--plot", Path(self.folder.name) / "nowhere" / "x.svg")

    def test_replicas(self):
        flags = ("--zipf", "1", "--replicas", "2,4", "--requests", "200", "--rate", "8", "--prompt",
                 "40", "--generate", "10", "--turns", "3", "--think", "1", "--prefix-tokens", "128",
                 "--adapters", "20", "--resident", "4", "--mtbf", "20", "--restart", "2", "--check")
        found = json.loads(self.good(*flags, "--router", "all", "--json"))["runs"]
        self.assertEqual([run["replicas"] for run in found], [2] * 8 + [4] * 8)
        self.assertEqual(len({run["router"] for run in found}), 8)
        for run in found:
            ends = sum(run[end] for end in ("finished", "broken", "refused", "turned_away"))
            self.assertEqual((run["requests"], ends), (200, 200))
            self.assertLessEqual(run["good"], run["finished"])
            self.assertTrue(run["first_token"]["p50"] <= run["first_token"]["p99"], run)
        threads = json.loads(self.good(*flags, "--router", "all", "--json", "-t", "3"))["runs"]
        self.assertEqual(found, threads)
        few = ("--router", "prefix,random")
        rows = list(csv.DictReader(io.StringIO(self.good(*flags, *few, "--csv"))))
        self.assertEqual([row["router"] for row in rows], ["prefix", "random"] * 2)
        self.assertEqual(float(rows[0]["finished"]), next(
            run["finished"] for run in found if run["router"] == "prefix"))
        lines = self.good(*flags, *few).splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_replicas_of_a_trace(self):
        flags = ("--trace", self.trace, "--replicas", "2", "--json")
        one = json.loads(self.good(*flags))["runs"][0]
        self.assertEqual((one["requests"], one["finished"], one["refused"]), (3, 2, 1))
        more = json.loads(self.good(*flags, "--requests", "30"))["runs"][0]
        self.assertEqual((more["requests"], more["finished"]), (30, 20))
        slow = json.loads(self.good(*flags, "--requests", "30", "--speed", "0.5"))["runs"][0]
        self.assertGreater(slow["seconds"], 1.5 * more["seconds"])

    def test_a_picture_of_replicas(self):
        for name, replicas in ("a.svg", "2"), ("b.svg", "1,2"):
            picture = Path(self.folder.name) / name
            done = call("simulate", "--zipf", "1", "--requests", "50", "--replicas", replicas,
                        "--router", "random,adapter", "--plot", picture)
            self.assertEqual(done.returncode, GOOD, done)
            if shutil.which("gnuplot") is None:
                self.assertIn(b"gnuplot is not installed", done.stderr)
            else:
                self.assertEqual(done.stderr, b"")
                self.assertGreater(picture.stat().st_size, 1000)

    def test_the_azure_traces(self):
        trace = test_data("traces/AzureLLMInferenceTrace_conv.csv")
        if trace is None:
            self.skipTest("the shared test data has no traces")
        found = json.loads(self.good("--trace", trace, "--replicas", "8", "--requests", "1000",
                                     "--running", "32",
                                     "--step-ms", "6.5", "--decode-ms", "0.18", "--prefill-ms",
                                     "0.224", "--json"))["runs"][0]
        self.assertEqual(found["finished"], 1000)

    def test_refused_fleets(self):
        zipf = ("--zipf", "1", "--replicas")
        self.assertIn("--replicas", self.refuse(*zipf, "0"))
        self.assertIn("4097", self.refuse(*zipf, "2,4097"))
        self.assertIn("nearest", self.refuse(*zipf, "2", "--router", "random,nearest"))
        self.refuse(*zipf, "2", "--cores-mode", "static")
        self.refuse("--seeds", "3", "--replicas", "2")
        self.assertIn("--requests above", self.refuse("--zipf", "1", "--requests", "1000001"))
        self.assertIn("half of the context", self.refuse(
            *zipf, "2", "--prefix-tokens", "9000", status=FAILED))
        self.assertIn("lasts longer", self.refuse(*zipf, "2", "--rate", "1e-6", "--requests",
                                                  "9000", status=FAILED))

    def test_all_refused_says_why(self):
        done = call("simulate", "--zipf", "1", "--kv-tokens", "32", "--requests", "5", "--prompt",
                    "500")
        self.assertIn(b"none fits in --kv-tokens 32", done.stderr)

    def test_refusals(self):
        self.assertIn("--seeds N", self.refuse())
        self.refuse("word")
        self.refuse("--seeds", "0")
        self.refuse("--seeds", "3", "--zipf", "1")
        self.refuse("--seeds", "3", "--csv")
        self.refuse("--zipf", "1", "--json", "--csv")
        self.refuse("--zipf", "1", "--rows", "4", "--running", "8")
        self.refuse("--zipf", "1", "--cores-mode", "static", "--decode-cores", "2")
        self.refuse("--zipf", "nan")
        self.refuse("--trace", "/no/such/file", status=FAILED)
        self.trace.write_text(TRACE.replace("318", "x"))
        self.assertIn("t.csv:3: ContextTokens", self.refuse("--trace", self.trace, status=FAILED))
        self.trace.write_text(TRACE.split("\n", maxsplit=1)[0])
        self.assertIn("no requests", self.refuse("--trace", self.trace, status=FAILED))


if __name__ == "__main__":
    unittest.main()
