"""`avocet bench` as a command: what its tables hold, pictures, refusals. Never how fast."""
import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from command import (FAILED, GOOD, INTERRUPTED, ROOT, USAGE, call, start, wait_until_caught,
                     wait_until_used)

FIXTURE = ROOT / "tests" / "fixtures" / "models" / "llama3.gguf"
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizer" / "gpt2.json"
SHORT = ("-t", "1", "-r", "1", "--limits-mib", "4")
FIGURES = ("tps", "tps_low", "tps_high", "gbps", "gops", "share", "seconds", "read_gbps",
           "integer_gops", "floating_gops")


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def measure(self, *arguments):
        done = call("bench", FIXTURE, *SHORT, *arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        return json.loads(done.stdout)

    def refuse(self, *arguments, status=USAGE):
        done = call("bench", *arguments)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def test_adapters(self):
        found = self.measure("--adapters", "0,1,3", "--rank", "4,8", "--targets", "qv,qkvo,all",
                             "-b", "1,4", "-p", "12", "-n", "2", "-r", "3", "-d", "32")
        self.assertEqual(set(found), {"machine", "model", "adapters"})
        wanted = {("decode", a, r, t, b) for a in (0, 1, 3) for r in (4, 8)
                  for t in ("qv", "qkvo", "all") for b in (1, 4) if b >= a}
        wanted |= {("prefill", a, r, t, max(a, 1)) for a in (0, 1, 3) for r in (4, 8)
                   for t in ("qv", "qkvo", "all")}
        seen = {(c["kind"], c["adapters"], c["rank"], c["targets"], c["batch"]): c
                for c in found["adapters"]}
        self.assertEqual(set(seen), wanted)
        for case, figures in seen.items():
            self.assertTrue(figures["tps"] > 0 and figures["base_tps"] > 0)
            self.assertLessEqual(figures["cost_low"], figures["cost"])
            self.assertGreaterEqual(figures["cost_high"], figures["cost"])
            self.assertEqual(figures["floor"] > 0, case[1] > 0, case)
        one, three = (seen["decode", a, 8, "all", 4]["floor"] for a in (1, 3))
        self.assertAlmostEqual(three, 3 * one)
        self.assertGreater(one, seen["decode", 1, 4, "all", 4]["floor"])
        self.assertGreater(one, seen["decode", 1, 8, "qkvo", 4]["floor"])

    def test_adapter_tables(self):
        arguments = ("bench", FIXTURE, *SHORT, "--adapters", "2", "-b", "2", "-n", "1", "-p", "0",
                     "--targets", "qv", "--adapter-type", "f16")
        done = call(*arguments, "--csv")
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual([(r["kind"], r["adapters"], r["targets"]) for r in rows],
                         [("decode", "2", "qv")])
        done = call(*arguments)
        self.assertIn(b"| decode | 2 | 32 | qv | 2 | 1 | 1 |", done.stdout)

    def test_adapter_refusals(self):
        self.assertIn("need --adapters", self.refuse(FIXTURE, "--rank", "8"))
        self.assertIn("needs one MODEL", self.refuse("--kernels", "--adapters", "1"))
        self.assertIn("must be qv, qkvo or all",
                      self.refuse(FIXTURE, "--adapters", "1", "--targets", "x"))
        self.assertIn("257", self.refuse(FIXTURE, "--adapters", "1", "--rank", "257"))
        self.assertIn("accepts one value", self.refuse(FIXTURE, "--adapters", "1", "-p", "1,2"))
        self.assertIn("multiple of 32", self.refuse(FIXTURE, "--adapters", "1", "-d", "40"))
        self.assertIn("q4", self.refuse(FIXTURE, "--adapters", "1", "--adapter-type", "q4"))

    def test_every_case_is_there(self):
        found = self.measure("-p", "8,40", "-n", "3", "-b", "4", "-d", "0,70", "-t", "1,2",
                             "-r", "2")
        self.assertEqual(set(found), {"machine", "results"})
        self.assertEqual(set(found["machine"]), {"cpu", "features", "threads"})
        wanted = {("prefill", p, 1, d, t) for p in (8, 40) for d in (0, 70) for t in (1, 2)}
        wanted |= {("decode", 3, b, d, t) for b in (4,) for d in (0, 70) for t in (1, 2)}
        seen = [(r["kind"], r["tokens"], r["batch"], r["depth"], r["threads"])
                for r in found["results"]]
        self.assertEqual(len(seen), len(wanted))
        self.assertEqual(set(seen), wanted)
        for result in found["results"]:
            for figure in FIGURES:
                self.assertTrue(math.isfinite(result[figure]) and result[figure] > 0,
                                (figure, result))
            self.assertLessEqual(result["tps_low"], result["tps"])
            self.assertGreaterEqual(result["tps_high"], result["tps"])
            self.assertIn(result["bound"], ("read", "arithmetic"))
            self.assertEqual(result["share"], result[result["bound"] + "_share"])
            self.assertEqual((result["model"], result["repeats"]), ("llama3", 2))
            self.assertAlmostEqual(result["tokens"] * result["batch"] / result["seconds"],
                                   result["tps"], delta=1e-6 * result["tps"])

    def test_work_does_not_depend_on_time(self):
        """GB/s × seconds is the bytes of the weights and of K and V: more of them at depth."""
        results = self.measure("-p", "0", "-n", "4", "-d", "0,96", "-b", "1,2")["results"]
        work = {(r["batch"], r["depth"]): r["gbps"] * r["seconds"] for r in results}
        again = self.measure("-p", "0", "-n", "4")["results"][0]
        self.assertAlmostEqual(work[1, 0], again["gbps"] * again["seconds"],
                               delta=1e-6 * work[1, 0])
        deeper = work[1, 96] - work[1, 0]
        self.assertGreater(deeper, 0)
        self.assertAlmostEqual((work[2, 96] - work[2, 0]) / deeper, 2, delta=1e-3)

    def test_types_of_keys_and_values(self):
        results = self.measure("-p", "8", "-n", "2", "-d", "64",
                               "--kv-type", "f32,int8")["results"]
        self.assertEqual([r["kv"] for r in results], ["f32", "f32", "int8", "int8"])
        self.assertGreater(results[1]["gbps"] * results[1]["seconds"],
                           results[3]["gbps"] * results[3]["seconds"])

    def test_a_computed_depth(self):
        results = self.measure("-p", "0", "-n", "2", "-d", "64", "--compute-depth")["results"]
        self.assertEqual([(r["kind"], r["depth"]) for r in results], [("decode", 64)])

    def test_tables(self):
        done = call("bench", FIXTURE, FIXTURE, "-p", "8", "-n", "2", *SHORT, "--csv")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual([row["kind"] for row in rows], ["prefill", "decode"] * 2)
        for row in rows:
            self.assertNotIn(None, row)
            for figure in FIGURES:
                self.assertGreater(float(row[figure]), 0)
        text = call("bench", FIXTURE, "-p", "8", "-n", "2", *SHORT).stdout.decode()
        lines = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(lines), 4)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("limits of", text)

    def test_pictures(self):
        folder = Path(self.folder.name) / "pictures"
        done = call("bench", FIXTURE, "-p", "8", "-n", "2", *SHORT, "--plot", folder)
        self.assertEqual(done.returncode, GOOD, done)
        self.assertEqual(len((folder / "figures.dat").read_text().splitlines()), 3)
        if shutil.which("gnuplot"):
            self.assertEqual(done.stderr, b"")
            for name in ("roofline.svg", "share.svg"):
                self.assertIn("</svg>", (folder / name).read_text())
        else:
            self.assertIn(b"gnuplot", done.stderr)

    def test_without_gnuplot_it_says_so(self):
        done = call("bench", FIXTURE, "-p", "8", "-n", "0", *SHORT, "--plot", self.folder.name,
                    env={**os.environ, "PATH": self.folder.name})
        self.assertEqual(done.returncode, GOOD)
        self.assertIn(b"gnuplot is not installed", done.stderr)

    def need_operations(self):
        if json.loads(call("version", "--json").stdout)["isas"] == "ref":
            self.skipTest("the reference device, the only one here, has no single operations")

    def test_operations(self):
        self.need_operations()
        done = call("bench", "--kernels", "--type", "q8b,f32", "--shape", "40x64", "-b", "1,3",
                    "--heads", "6x2x16", "-d", "0,64", "-p", "33", *SHORT, "--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        results = json.loads(done.stdout)["results"]
        names = [(r["model"], r["tokens"]) for r in results]
        for wanted in ("linear q8b 40×64", "linear f32 40×64", "norm rms, 64 wide"):
            for rows in (1, 3):
                self.assertIn((wanted, rows), names)
        self.assertEqual({r["kind"] for r in results}, {"operation"})
        first = results[0]
        self.assertAlmostEqual(first["gops"] * first["seconds"] * 1e9, 2 * 40 * 64, delta=1)
        self.assertNotIn("encode", " ".join(name for name, _ in names))

    def kernels(self, *arguments):
        self.need_operations()
        done = call("bench", "--kernels", *SHORT, *arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), done)
        return json.loads(done.stdout)["results"]

    def test_products_over_shapes(self):
        results = self.kernels("--op", "linear", "--type", "q4_1", "--shape", "40x64,16x288",
                               "-b", "2")
        self.assertEqual([r["model"] for r in results],
                         ["linear q4_1 40×64", "linear q4_1 16×288"])

    def test_products_of_training(self):
        results = self.kernels("--op", "gemm", "--type", "q4_1", "--shape", "40x64", "-b", "2,3",
                               "-t", "2")
        names = [r["model"].replace("bf16 by f32", "bf16") for r in results]
        self.assertEqual(names, 2 * [f"gemm {precision} {product} 40×64"
                                     for precision in ("f32", "bf16")
                                     for product in ("yᵀ·x", "x·Wᵀ q4_1", "y·W q4_1")])
        self.assertEqual([r["tokens"] for r in results], 6 * [2] + 6 * [3])

    def test_attention(self):
        """Bytes and operations are those of the positions that rows see."""
        results = self.kernels("--op", "attention", "--heads", "6x2x16,4x4x24", "-d", "0,64",
                               "-p", "33", "--kv-type", "f32,int8", "-t", "2")
        wanted = [(f"attention {heads}", kv, rows, depth) for heads in ("6x2x16", "4x4x24")
                  for kv in ("f32", "int8") for rows, depth in ((1, 64), (33, 0), (33, 64))]
        self.assertEqual([(r["model"], r["kv"], r["tokens"], r["depth"]) for r in results], wanted)
        for r in results[:3]:
            seen = sum(r["depth"] + row for row in range(1, r["tokens"] + 1))
            self.assertAlmostEqual(r["gops"] * r["seconds"] * 1e9, 4 * 6 * 16 * seen, delta=1)
            last = r["depth"] + r["tokens"]
            self.assertAlmostEqual(r["gbps"] * r["seconds"] * 1e9, 2 * 2 * 16 * 4 * last, delta=1)
        for r in results:
            self.assertTrue(r["share"] > 0 and r["seconds"] > 0)
            self.assertAlmostEqual(r["read_share"], r["gbps"] / r["read_gbps"], delta=1e-9)

    def test_tokenizer(self):
        text = Path(self.folder.name) / "text"
        text.write_text("Of a text, lines.\nAnd another line\n" * 50)
        results = self.kernels(TOKENIZER, "--op", "tokenizer", "--text", text)
        kinds = ("encode lines", "encode whole", "decode")
        self.assertEqual([r["model"] for r in results], [f"{kind}, gpt2.json" for kind in kinds])
        for r in results:
            self.assertAlmostEqual(r["gbps"] * r["seconds"] * 1e9, text.stat().st_size, delta=1)
            self.assertGreater(r["tokens"], 100)
        own = self.kernels(TOKENIZER, "--op", "tokenizer")
        self.assertAlmostEqual(own[0]["gbps"] * own[0]["seconds"] * 1e9, 1 << 20, delta=4096)
        (Path(self.folder.name) / "empty").write_text("")
        for wrong, status in ((("--text", Path(self.folder.name) / "empty"), FAILED),
                              (("--text", Path(self.folder.name) / "missing"), FAILED),
                              (("--op", "linear"), USAGE)):
            self.refuse("--kernels", TOKENIZER, *SHORT, "--op", "tokenizer", *wrong, status=status)

    def test_operations_as_a_table(self):
        self.need_operations()
        text = call("bench", "--kernels", TOKENIZER, *SHORT, "--type", "f32", "--shape", "16x16",
                    "-b", "1", "-d", "32", "-p", "0").stdout.decode()
        lines = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertEqual(len(lines), 2 + 1 + 5 + 2 + 3)
        rows = call("bench", "--kernels", *SHORT, "--op", "attention", "-d", "32", "-p", "0",
                    "--csv").stdout.decode()
        self.assertEqual([row["kv"] for row in csv.DictReader(io.StringIO(rows))],
                         ["f16", "int8"])

    def test_rungs(self):
        names = [line.split()[0] for line in
                 call("bench", "--rung", "list").stdout.decode().splitlines()]
        self.assertEqual(names[0], "loops")
        self.assertEqual(names[-1], "cuda-2")
        done = call("bench", "--rung", "all", "--rung-shape", "tiny", *SHORT, "--json",
                    env={**os.environ, "XDG_CACHE_HOME": self.folder.name})
        self.assertEqual(done.returncode, GOOD, done)
        seen = {(r["model"], r["kind"]) for r in json.loads(done.stdout)["results"]}
        for name in names:
            if f"rung {name}: this machine lacks".encode() not in done.stderr:
                self.assertIn((name, "decode"), seen)
        self.assertIn(("loops", "prefill"), seen)
        self.assertIn("list", self.refuse("--rung", "ladders"))
        self.refuse(FIXTURE, "--rung", "loops")
        self.assertIn("unknown shape", self.refuse("--rung", "lanes", "--rung-shape", "huge",
                                                   *SHORT, status=FAILED))

    def test_placement(self):
        """The flags that run takes: the engine opens with them, and says so once per engine."""
        done = call("bench", FIXTURE, *SHORT, "-p", "4", "-n", "2", "--pin", "core",
                    "--huge-pages", "off", "--numa", "interleave", "--verbose", "--isa", "ref",
                    "-d", "0,4", "--json")
        self.assertEqual(done.returncode, GOOD, done)
        self.assertEqual(len(json.loads(done.stdout)["results"]), 4)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("device ref (requested; this machine has: ref", lines[0])
        for word in ("1 thread,", "pinned: core", "NUMA interleave", "huge pages off"):
            self.assertIn(word, lines[1])
        for flags in (("--pin", "hard"), ("--numa", "far"), ("--huge-pages", "2M")):
            self.assertIn(f"{flags[0]}: \"{flags[1]}\" must be one of",
                          self.refuse(FIXTURE, *SHORT, *flags))
        self.refuse("--kernels", *SHORT, "--pin", "core")

    def test_instruction_sets(self):
        results = self.measure("-p", "8", "-n", "0", "--isa", "ref")["results"]
        self.assertEqual([r["backend"] for r in results], ["ref"])
        self.assertRegex(self.refuse(FIXTURE, *SHORT, "--device", "ref,vmx"),
                         "--device: unknown device 'vmx'; available: auto cpu .*ref")
        self.assertIn("take no parameters", self.refuse(FIXTURE, *SHORT, "--device", "ref:1"))
        self.assertRegex(self.refuse("--kernels", *SHORT, "--device", "remote"),
                         "--device: remote has no kernels .* CPU devices only: [a-z]")
        has = json.loads(call("version", "--json").stdout)["isas"].split()
        for isa in {"avx2", "avx512", "amx", "neon"} - set(has):
            for what in (FIXTURE, "--kernels"):
                text = self.refuse(what, *SHORT, "--isa", f"{has[-1]},{isa}")
                self.assertIn("--device: ", text)
                self.assertIn(f"'{isa}'", text)

    def test_limits_that_are_not_known(self):
        """A device whose limits cannot be measured has no shares of them, and no made-up ones."""
        for device in "ref,remote", "cuda-emulated":
            arguments = ("bench", FIXTURE, *SHORT, "-p", "8", "-n", "1", "--device", device)
            results = json.loads(call(*arguments, "--json").stdout)["results"]
            self.assertEqual(len(results), 4 if "," in device else 2)
            for result in results:
                known = result["backend"] == "ref"
                for name in "integer_gops", "floating_gops", "arithmetic_share":
                    self.assertEqual(result[name] is not None, known, result)
                if not known:
                    self.assertIn(result["bound"], (None, "read"))
                    self.assertEqual(result["share"], result["read_share"])
                self.assertTrue(result["tps"] > 0)
            text = call(*arguments).stdout.decode()
            self.assertRegex(text, "limits of (remote|cuda).*(arithmetic unknown|: unknown)\n")
            self.assertNotRegex(text, "[0-9]{9}")
            rows = list(csv.DictReader(io.StringIO(call(*arguments, "--csv").stdout.decode())))
            self.assertEqual([row["integer_gops"] != "" for row in rows],
                             [row["backend"] == "ref" for row in rows])

    def test_what_was_measured_is_printed_before_a_late_error(self):
        done = call("bench", FIXTURE, "./missing.gguf", *SHORT, "-p", "8", "-n", "2", "--json")
        self.assertEqual(done.returncode, FAILED, done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]*missing.gguf[^\n]*\n\Z")
        self.assertEqual([r["kind"] for r in json.loads(done.stdout)["results"]],
                         ["prefill", "decode"])

    def test_what_was_measured_is_printed_when_interrupted(self):
        """More cases than so much work does: some are done and some are not."""
        for used in (0.5, 2, 8, 20):
            process = start("bench", FIXTURE, "-t", "1", "-r", "8", "--limits-mib", "1", "--json",
                            "-p", ",".join(["8"] * 32), "-d", ",".join(["0"] * 32), "-n", "2",
                            stdout=subprocess.PIPE)
            wait_until_caught(process)
            wait_until_used(process, used)
            process.send_signal(signal.SIGINT)
            out, problems = process.communicate()
            self.assertEqual((process.returncode, problems),
                             (INTERRUPTED, b"avocet: interrupted\n"))
            if out == b"":
                continue  # the first case was not done yet
            found = json.loads(out)["results"]
            self.assertTrue(0 < len(found) < 32 * 32 + 32, len(found))
            return
        self.fail("nothing was printed")

    def test_too_many_cases_are_refused_at_once(self):
        """32 prompts at 32 depths with 3 numbers of threads and 2 types, and as many decodes."""
        many = ",".join(["8"] * 32)
        lists = ("-p", many, "-d", many, "-t", "1,1,1")
        self.assertIn("6336 measurements, must be at most 4096",
                      self.refuse(FIXTURE, *lists, "-n", "2", "--kv-type", "f32,f16"))
        self.assertIn("6144 measurements", self.refuse(FIXTURE, *lists, "-n", "0", "--kv-type",
                                                       "f32,f16"))
        self.assertIn("6336 measurements", self.refuse("--kernels", "--op", "attention", *lists))

    def test_refusals(self):
        self.assertIn("MODEL", self.refuse())
        for wrong in (("-p", ""), ("-p", "8,"), ("-p", ",8"), ("-p", "8;9"), ("-n", "-1"),
                      ("-b", "0"), ("-b", "x"), ("-t", "1000"), ("-d", "99999999999999999999"),
                      ("-p", ",".join(["1"] * 33)), ("-r", "0"), ("-r", "101"),
                      ("--limits-mib", "0"), ("--json", "--csv"), ("-p", "0", "-n", "0")):
            with self.subTest(flags=wrong):
                self.refuse(FIXTURE, *wrong)
        for wrong in (("--shape", "16"), ("--shape", "16x"), ("--shape", "x16"),
                      ("--shape", "0x16"), ("--shape", "16x17"), ("--type", "q9"),
                      ("--shape", "16x16x16"), ("--shape", "16x16,"), ("--type", "i8"),
                      ("--type", ","), ("--heads", "4x3x64"), ("--heads", "4x4"),
                      ("--heads", "4x4x63"), ("--heads", "4x0x64"), ("--heads", "4x4x4096"),
                      ("--op", "lineal"), ("--op", ""), ("--op", "tokenizer"),
                      ("--text", "x"), ("--kv-type", "int3"), ("--rung", "loops"),
                      (FIXTURE, FIXTURE)):
            with self.subTest(flags=wrong):
                self.refuse("--kernels", *wrong)
        self.assertIn("no single", self.refuse("--kernels", "--isa", "ref", *SHORT))
        self.assertIn("--kv-type: \"int3\" must be one of f32, f16, bf16, int8, fp8",
                      self.refuse(FIXTURE, "--kv-type", "f32,int3"))
        for flag, *value in (("-p", "8"), ("-n", "2"), ("-b", "2"), ("-d", "8"),
                             ("--device", "ref"),
                             ("--kv-type", "f16"), ("--compute-depth",), ("-t", "1,2")):
            with self.subTest(flag=flag):
                self.assertIn(f"--rung cannot be combined with {flag}" if flag != "-t"
                              else "several values of -t",
                              self.refuse("--rung", "loops", flag, *value))
        self.assertIn("--kernels cannot be combined with -n", self.refuse("--kernels", "-n", "2"))
        self.assertIn("--rung-shape", self.refuse(FIXTURE, "--rung-shape", "tiny"))
        self.assertIn("missing.gguf", self.refuse("./missing.gguf", status=FAILED))
        self.refuse(FIXTURE, *SHORT, "-p", "1", "-n", "1", "-d", "1048576", "--kv-type", "f32",
                    "-b", "4096", status=FAILED)
        # before anything is measured
        self.assertIn("--plot", self.refuse(FIXTURE, *SHORT, "-p", "8", "-n", "0", "--plot",
                                            Path(self.folder.name) / "no" / "where",
                                            status=FAILED))

    def test_http_flags(self):
        url = "http://127.0.0.1:1"
        for arguments in (["--http", url, "model"], ["--http", url, "--zipf", "1"],
                          ["--clients", "4", "model"], ["--http", url, "--clients", "0"],
                          ["--http", url, "--rate", "3", "--clients", "4"]):
            self.refuse(*arguments)
        self.assertIn("must begin with http://", self.refuse("--http", "ftp://x", status=FAILED))
        self.refuse("--http", url, "--clients", "1", status=FAILED)

    def test_what_is_longer_than_the_model_is_said(self):
        done = call("bench", FIXTURE, *SHORT, "-p", "0", "-n", "2", "-d", "100000", "--json")
        self.assertEqual(done.returncode, GOOD, done)
        self.assertRegex(done.stderr, rb"\Aavocet: llama3 was trained for a context of \d+ "
                                      rb"tokens, .+100002.+\n\Z")


if __name__ == "__main__":
    unittest.main()
