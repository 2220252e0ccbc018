"""`avocet eval` and `plan` as commands: files, JSON, refusals. That the figures are right
is the business of tests/eval and of `make exactness`."""
import json
import math
import struct
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, GOOD, ROOT, USAGE, call

FIXTURE = ROOT / "tests" / "fixtures" / "models" / "llama2.gguf"


def read_npy(path):
    """Shape and values of a version 1.0 file of float32."""
    data = Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0
    header = eval(data[10:10 + length], {"__builtins__": {}})  # a dictionary, by the format
    assert header["descr"] == "<f4" and not header["fortran_order"]
    rows, columns = header["shape"]
    values = struct.unpack(f"<{rows * columns}f", data[10 + length:])
    return [values[row * columns:(row + 1) * columns] for row in range(rows)]


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-eval-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("the quick brown fox jumps over the lazy dog, once upon a time. " * 8)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def refuse(self, *arguments, status=FAILED):
        done = call(*arguments)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\A(avocet: windows have [^\n]+\n)?avocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def test_logits(self):
        out = self.folder / "a.npy"
        done = call("eval", "logits", FIXTURE, "--ids", "1, 5,9,2", "-o", out)
        self.assertEqual((done.returncode, done.stdout), (GOOD, b""))
        rows = read_npy(out)
        self.assertEqual(len(rows), 4)
        again = self.folder / "b.npy"
        call("eval", "logits", FIXTURE, "--ids", "1,5,9,2", "--chunk", "1", "--ctx", "32", "-t",
             "1", "-o", again)
        self.assertEqual(out.read_bytes(), again.read_bytes())
        longer = self.folder / "c.npy"
        call("eval", "logits", FIXTURE, "--ids", "1,5,9,2,7", "-o", longer)
        self.assertEqual(read_npy(longer)[:4], rows)

    def test_placement(self):
        """What run takes, every evaluation takes; the numbers stay."""
        flags = ("--pin", "core", "--huge-pages", "off", "--numa", "off", "-v")
        first, second = self.folder / "a.npy", self.folder / "b.npy"
        call("eval", "logits", FIXTURE, "--ids", "1,5", "-o", first, "-t", "2")
        done = call("eval", "logits", FIXTURE, "--ids", "1,5", "-o", second, "-t", "2", *flags)
        self.assertEqual(done.returncode, GOOD, done)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(done.stderr.count(b"this machine has: "), 1)
        self.assertIn(b"2 threads, pinned: core; NUMA off; huge pages off", done.stderr)
        for words in (("perplexity", self.model), ("kl", self.model, "--against", self.model)):
            done = call("eval", *words, "--file", self.text, "--ctx", "32", "--chunks", "1",
                        "--isa", "ref", *flags)
            self.assertEqual(done.returncode, GOOD, done)
            self.assertIn(b"device ref (requested", done.stderr)
        self.assertIn("none, core, node", self.refuse("eval", "logits", FIXTURE, "--ids", "1",
                                                      "-o", first, "--pin", "hard",
                                                      status=USAGE))
        self.assertIn("--against-kv-type", self.refuse(
            "eval", "kl", self.model, "--against", self.model, "--file", self.text,
            "--against-kv-type", "int3", status=USAGE))

    def test_logits_refusals(self):
        out = self.folder / "none.npy"
        for ids, part in (("", "empty"), ("1,,2", "empty"), ("1,x", "not an integer"),
                          ("1 2", "comma"), ("99999", "99999"), ("1,-2", "is negative"),
                          ("4294967297", "too large"),
                          ("1,", "empty"), ("1" * 40, "too large")):
            with self.subTest(ids=ids):
                self.assertIn(part, self.refuse("eval", "logits", FIXTURE, f"--ids={ids}", "-o",
                                                out, status=USAGE))
                self.assertFalse(out.exists())
        text = self.refuse("eval", "logits", FIXTURE, "--ids", "1,2,3", "--ctx", "2", "-o", out)
        self.assertIn("3 tokens", text)
        self.assertIn("2", text)
        self.refuse("eval", "logits", FIXTURE, "--ids", "1", "-o", "/no/such/folder/x.npy")
        self.assertEqual([path for path in self.folder.iterdir() if "none" in path.name], [])

    def test_perplexity(self):
        arguments = ["eval", "perplexity", self.model, "--file", self.text, "--ctx", "64"]
        done = call(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        result = json.loads(done.stdout)
        self.assertEqual(list(result), ["perplexity", "error", "tokens"])
        self.assertEqual(result["tokens"] % 31, 0)  # 64 − 32 − 1 in each window
        self.assertGreater(result["error"], 0)
        same = json.loads(call(*arguments, "--json", "--chunk", "5", "-t", "1").stdout)
        self.assertEqual(same, result)
        one = json.loads(call(*arguments, "--json", "--chunks", "1").stdout)
        self.assertEqual(one["tokens"], 31)
        sliding = json.loads(call(*arguments, "--json", "--stride", "16").stdout)
        self.assertGreater(sliding["tokens"], result["tokens"])
        self.assertIn("perplexity", call(*arguments).stdout.decode())

    def test_one_window_by_hand(self):
        """The first window, from `eval logits` of the same tokens."""
        context = 64
        out = self.folder / "window.npy"
        call("eval", "logits", self.model, "--file", self.text, "--ctx", "4096", "-o", out)
        rows = read_npy(out)
        ids = json.loads(call("tokenize", self.model, "--json", "-",
                              given=self.text.read_bytes()).stdout)["ids"]
        if len(ids) == len(rows) - 1:
            ids = [1] + ids  # tokenize shows the text's own tokens, eval the begin token too
        self.assertEqual(len(ids), len(rows))
        total = 0.0
        for position in range(context // 2, context - 1):
            row = rows[position]
            highest = max(row)
            norm = highest + math.log(sum(math.exp(value - highest) for value in row))
            total += norm - row[ids[position + 1]]
        wanted = math.exp(total / (context - context // 2 - 1))
        got = json.loads(call("eval", "perplexity", self.model, "--file", self.text, "--ctx",
                              context, "--chunks", "1", "--json").stdout)["perplexity"]
        self.assertAlmostEqual(got / wanted, 1, delta=1e-5)

    def test_windows_fit_the_model(self):
        """It was made for 128 tokens: that is the window; longer ones are warned of."""
        arguments = ["eval", "perplexity", self.model, "--file", self.text, "--json"]
        done = call(*arguments)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        self.assertEqual(done.stdout, call(*arguments, "--ctx", "128").stdout)
        longer = call(*arguments, "--ctx", "200")
        self.assertEqual(longer.returncode, GOOD)
        self.assertIn(b"windows have 200 tokens, but the model was trained for 128", longer.stderr)

    def test_perplexity_refusals(self):
        self.assertIn("4096", self.refuse("eval", "perplexity", self.model, "--file", self.text,
                                          "--ctx", "4096"))
        self.assertIn("gone.txt", self.refuse("eval", "perplexity", self.model, "--file",
                                              self.folder / "gone.txt"))

    def windows_of(self, model, context):
        """Rows of logits and tokens of every window of the text, by `eval logits`."""
        ids = json.loads(call("tokenize", model, "--json", "--begin", "-",
                              given=self.text.read_bytes()).stdout)["ids"]
        for begin in range(0, len(ids) - context + 1, context):
            window = [1] + ids[begin + 1:begin + context]
            out = self.folder / "window.npy"
            call("eval", "logits", model, "--ids", ",".join(map(str, window)), "-o", out)
            yield window, read_npy(out)

    def test_kl_by_hand(self):
        """Every figure of `eval kl` from the logits of both models, written out plainly."""
        context = 48
        other = self.folder / "other.avo"
        self.assertEqual(call("pack", self.model, "-o", other, "--type", "q8").returncode, GOOD)

        def log_softmax(row):
            highest = max(row)
            norm = highest + math.log(math.fsum(math.exp(value - highest) for value in row))
            return [value - norm for value in row]

        values, agreed, own, theirs = [], [], [], []
        for (window, left), (_, right) in zip(self.windows_of(self.model, context),
                                              self.windows_of(other, context)):
            for position in range(context // 2, context - 1):
                a, b = log_softmax(left[position]), log_softmax(right[position])
                values.append(math.fsum(math.exp(x) * (x - y) for x, y in zip(a, b)))
                agreed.append(a.index(max(a)) == b.index(max(b)))
                theirs.append(-a[window[position + 1]])
                own.append(-b[window[position + 1]])
        count = len(values)

        def mean(numbers):
            return math.fsum(numbers) / len(numbers)

        def error(numbers):
            centre = mean(numbers)
            return math.sqrt(mean([(x - centre) ** 2 for x in numbers]) / (len(numbers) - 1))

        def quantile(share):
            at = share * (count - 1)
            below = sorted(values)[int(at)]
            above = sorted(values)[min(int(at) + 1, count - 1)]
            return below + (at - int(at)) * (above - below)

        difference = [x - y for x, y in zip(own, theirs)]
        ratio = math.exp(mean(difference))
        wanted = {
            "kl": mean(values), "kl_error": error(values), "median": quantile(0.5),
            "p99": quantile(0.99), "max": max(values), "top1": mean(agreed),
            "top1_error": error(agreed), "perplexity": math.exp(mean(own)),
            "perplexity_error": error(own) * math.exp(mean(own)),
            "reference_perplexity": math.exp(mean(theirs)),
            "reference_perplexity_error": error(theirs) * math.exp(mean(theirs)),
            "ratio": ratio, "ratio_error": error(difference) * ratio, "tokens": count,
            "windows": count // (context - context // 2 - 1)}
        arguments = ["eval", "kl", other, "--against", self.model, "--file", self.text, "--ctx",
                     context]
        done = call(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
        result = json.loads(done.stdout)
        self.assertEqual(list(result), list(wanted))
        for key, value in wanted.items():
            with self.subTest(key=key):
                self.assertAlmostEqual(result[key], value, delta=1e-3 * abs(value) + 1e-9)
        self.assertGreater(result["kl"], 1e-7)
        same = json.loads(call(*arguments, "--json", "--chunk", "5", "-t", "1").stdout)
        self.assertEqual(same, result)
        text = call(*arguments).stdout.decode()
        for word in ("KL(reference || model)", "same top token", "perplexity", "ratio"):
            self.assertIn(word, text)

    def test_kl_with_itself(self):
        result = json.loads(call("eval", "kl", self.model, "--against", self.model, "--file",
                                 self.text, "--ctx", "64", "--stride", "32", "--json").stdout)
        self.assertEqual((result["kl"], result["max"], result["top1"], result["ratio"]),
                         (0, 0, 1, 1))

    def test_kl_refusals(self):
        self.assertIn("--against", self.refuse("eval", "kl", self.model, "--file", self.text,
                                               status=USAGE))
        self.assertIn("--file", self.refuse("eval", "kl", self.model, "--against", self.model,
                                            status=USAGE))
        self.assertIn("MODEL", self.refuse("eval", "kl", "--against", self.model, "--file",
                                           self.text, status=USAGE))
        self.assertIn("--stride is", self.refuse("eval", "kl", self.model, "--against", self.model,
                                          "--file", self.text, "--ctx", "8", "--stride", "8",
                                          status=USAGE))
        self.assertIn("tokens", self.refuse("eval", "kl", FIXTURE, "--against", self.model,
                                            "--file", self.text, "--ctx", "8"))
        self.assertIn("4096", self.refuse("eval", "kl", self.model, "--against", self.model,
                                          "--file", self.text, "--ctx", "4096"))
        self.assertIn("gone", self.refuse("eval", "kl", self.model, "--against",
                                          self.folder / "gone.gguf", "--file", self.text))

    def test_plan(self):
        plan = json.loads(call("plan", FIXTURE, "--ctx", "64", "--json").stdout)
        self.assertEqual(plan["context"], 64)
        self.assertEqual(plan["total_bytes"], sum(plan[name] for name in (
            "weight_bytes", "repack_bytes", "kv_bytes", "scratch_bytes", "session_bytes",
            "draft_bytes")))
        said = call("plan", FIXTURE, "-v").stderr.decode()
        for part in ("decode: ", "prefill: ", "probes of a few steps"):
            self.assertIn(part, said)
        self.assertIn("as requested", call("plan", FIXTURE, "-v", "-t", "1").stderr.decode())
        self.assertNotIn("decode: ", call("plan", FIXTURE).stderr.decode())
        self.assertGreaterEqual(plan["kv_pages"] * plan["kv_page_tokens"], 64)
        self.assertIn(plan["limit"], ("system", "cgroup"))
        more = json.loads(call("plan", FIXTURE, "--ctx", "64", "--sessions", "4", "--memory",
                               "1024", "--json").stdout)
        # Each in whole memory pages.
        self.assertLess(abs(more["kv_bytes"] - 4 * plan["kv_bytes"]), 4 * 4096)
        self.assertEqual((more["limit"], more["available_bytes"]),
                         ("the limit that was asked for", 1 << 30))
        table = call("plan", FIXTURE).stdout.decode()
        for word in ("weights", "KV", "scratch", "drafts", "total", "available",
                     "auto  sources: grammar suffix corpus; at most 15 draft tokens"):
            self.assertIn(word, table)
        named = call("plan", FIXTURE, "--speculate", "grammar,suffix").stdout.decode()
        self.assertIn("on  sources: grammar suffix; at most", named)
        refused = self.refuse("plan", FIXTURE, "--speculate", "magic")
        self.assertIn("medusa", refused)
        self.assertNotIn("custom", refused)
        self.assertEqual(plan["speculation"],
                         {"sources": ["grammar", "suffix", "corpus"], "draft_tokens": 15,
                          "controller": "cost", "drafters": 1, "corpus_tokens": 65536})
        off = json.loads(call("plan", FIXTURE, "--ctx", "64", "--speculate", "off",
                              "--json").stdout)
        self.assertEqual((off["draft_bytes"], off["speculation"]), (0, {"sources": []}))
        self.assertLessEqual(off["session_bytes"], plan["session_bytes"])
        self.assertIn(plan["kv_type"], ["f32", "f16"])
        short = json.loads(call("plan", FIXTURE, "--ctx", "64", "--kv-type", "int8",
                                "--json").stdout)
        self.assertEqual(short["kv_type"], "int8")
        self.assertLess(short["kv_bytes"], plan["kv_bytes"])
        for kind in ("f32", "f16", "bf16", "int8", "fp8"):
            self.assertEqual(json.loads(call("plan", FIXTURE, "--kv-type", kind,
                                             "--json").stdout)["kv_type"], kind)
        self.assertIn("--kv-type: \"int3\" must be one of f32, f16, bf16, int8, fp8",
                      self.refuse("plan", FIXTURE, "--kv-type", "int3", status=USAGE))
        self.assertIn("MiB", self.refuse("plan", FIXTURE, "--ctx", "1000000", "--memory", "1"))

    def test_plan_of_two_devices(self):
        """Layers on two devices: each part with what it takes, and pages in the host's memory."""
        flags = ("plan", FIXTURE, "--ctx", "64", "--device", "remote:memory=77")
        plan = json.loads(call(*flags, "--gpu-layers", "1", "--kv-host", "1M", "--json").stdout)
        first, second = plan["parts"]
        self.assertEqual((plan["device"], second["device"], second["layers"]),
                         ("split", "remote", 1))
        self.assertEqual(second["first_layer"], first["layers"])
        self.assertEqual(plan["kv_bytes"], second["kv_bytes"])
        self.assertTrue(0 < plan["kv_host_bytes"] <= 1 << 20)
        text = call(*flags, "--gpu-layers", "auto", "--kv-host", "1M").stdout.decode()
        self.assertIn("and the output head; weights", text)
        self.assertIn("for cached pages that leave the device", text)
        self.assertNotIn("parts", json.loads(call(*flags, "--json").stdout))
        layers = first["layers"] + second["layers"]
        self.assertIn(f"must be at most {layers}, or",
                      self.refuse(*flags, "--gpu-layers", str(layers + 1)))
        self.assertIn("must be a size such as 500M or 4G",
                      self.refuse(*flags, "--kv-host", "much", status=USAGE))
        self.assertIn("kv_host_bytes is for", self.refuse("plan", FIXTURE, "--kv-host", "1M"))

    def test_plan_of_two_memories(self):
        """A device with memory of its own: parameters count, two totals and two limits."""
        flags = ("plan", FIXTURE, "--ctx", "64", "--device", "remote:ref,memory=77")
        plan = json.loads(call(*flags, "--json").stdout)
        self.assertEqual((plan["device"], plan["host_memory"], plan["available_bytes"]),
                         ("remote", False, 77 << 20))
        self.assertEqual(plan["matrices"], [])  # those of ref, not of the best device
        self.assertEqual(plan["total_bytes"],
                         plan["repack_bytes"] + plan["kv_bytes"] + plan["scratch_bytes"] +
                         plan["adapter_prepared_bytes"])
        self.assertEqual(plan["adapter_prepared_bytes"], (77 << 20) // 16)
        self.assertEqual(plan["host_total_bytes"],
                         plan["weight_bytes"] + plan["session_bytes"] + plan["draft_bytes"])
        self.assertIn(plan["host_limit"], ("system", "cgroup"))
        table = call(*flags).stdout.decode()
        for words in ("of the device's memory", "limit from: memory= of the remote device",
                      "host total", "of the host's memory"):
            self.assertIn(words, table)
        table = call(*flags[:-1], "remote:opaque", "--cores", "static").stdout.decode()
        for words in ("threads", "NUMA", "huge pages", "(null)"):
            self.assertNotIn(words, table)
        plan = json.loads(call(*flags[:-1], "remote:opaque", "--json").stdout)
        self.assertFalse({"threads", "pin", "numa", "huge_pages"} & set(plan))
        self.assertNotIn("host_total_bytes", json.loads(call("plan", FIXTURE, "--json").stdout))
        self.assertIn("the device has 1 MiB", self.refuse(*flags[:-1], "remote:memory=1"))

    def test_plan_of_places(self):
        def plan(*flags):
            return json.loads(call("plan", FIXTURE, "--ctx", "64", "--json", *flags).stdout)
        plain = plan("--isa", "ref")
        self.assertEqual((plain["device"], plain["matrices"], plain["lock"]), ("ref", [], False))
        self.assertEqual((plain["numa"], plain["repack_bytes"]), ("first-touch", 0))
        best = plan()
        if best["device"] != "ref":
            repacked = [group for group in best["matrices"] if group["repacked"]]
            self.assertGreaterEqual(best["repack_bytes"], sum(g["bytes"] for g in repacked))
            self.assertLess(best["weight_bytes"], plain["weight_bytes"])
        table = call("plan", FIXTURE).stdout.decode()
        for word in ("device", "threads", "NUMA nodes", "huge pages", "locked: no"):
            self.assertIn(word, table)
        chosen_by = ("best", "AVO_DEVICE", "AVO_ISA")
        self.assertEqual((plain["device_from"], best["device_from"] in chosen_by),
                         ("option", True))
        self.assertIn("this machine has: ref", table)
        self.assertEqual(plan("--huge-pages", "off")["huge_pages"], "off")
        self.assertEqual(plan("--numa", "interleave", "--pin", "core")["pin"], "core")
        self.assertTrue(plan("--lock")["lock"])
        self.assertEqual((plan("-t", "3")["threads"], plan("-t", "3")["threads_from"][:9]),
                         (3, "requested"))
        for flags in ((), ("-t", "auto"), ("-t", "0")):
            self.assertRegex(plan(*flags)["threads_from"], r"^\d+ processors? .*allowed, "
                             r"(no )?quota.*, decode \d+ of \d+, prefill \d+$")
        self.assertIn("must be 0 to", self.refuse("plan", FIXTURE, "-t", "some", status=USAGE))
        self.assertIn("first-touch, interleave, off", self.refuse("plan", FIXTURE, "--numa", "x",
                                                                  status=USAGE))
        self.assertIn("auto, on, off", self.refuse("plan", FIXTURE, "--huge-pages", "yes",
                                                    status=USAGE))
        self.assertIn("none, core, node", self.refuse("plan", FIXTURE, "--pin", "0", status=USAGE))
        self.assertIn("ref", self.refuse("plan", FIXTURE, "--isa", "sse9", status=USAGE))


if __name__ == "__main__":
    unittest.main()
