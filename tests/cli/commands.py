"""The frame of the command: help, usage errors, exit statuses, broken outputs."""
import json
import os
import re
import signal
import subprocess
import unittest

from command import AVOCET, FAILED, GOOD, ROOT, USAGE, call

FIXTURE = ROOT / "tests" / "fixtures" / "tokenizer" / "gpt2.json"


def listed():
    """The commands that `avocet help` names."""
    text = call("help").stdout.decode()
    return re.findall(r"^  (\w+) +\S", text.split("Commands:\n")[1].split("\n\n")[0], re.M)


class Frame(unittest.TestCase):
    def one_line(self, done, status):
        """An error is one line on stderr that begins with the program's name."""
        self.assertEqual(done.returncode, status, done)
        self.assertEqual(done.stdout, b"")
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def test_overview(self):
        for arguments in (["help"], ["--help"], ["-h"], ["help", "help"]):
            done = call(*arguments)
            self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
            self.assertIn(b"Commands:", done.stdout)
        self.assertEqual(call().returncode, USAGE)
        self.assertLessEqual({"run", "eval", "plan", "bench", "version", "licenses"},
                             set(listed()))

    def test_help_of_every_command(self):
        for name in [*listed(), "eval perplexity", "eval kl", "eval logits"]:
            if name == "help":
                continue
            with self.subTest(command=name):
                done = call(*name.split(), "--help")
                self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
                text = done.stdout.decode()
                for part in ("Usage: avocet " + name.split()[0], "Options:", "--help",
                             "Examples:"):
                    self.assertIn(part, text)
                self.assertEqual(call("help", *name.split()).stdout.decode(), text)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 110, line)

    def test_unknown_flags_suggest(self):
        for name in [*listed(), "eval perplexity", "eval kl", "eval logits"]:
            if name == "help":
                continue
            with self.subTest(command=name):
                text = self.one_line(call(*name.split(), "--hlep"), USAGE)
                self.assertIn("--hlep", text)
                self.assertIn("did you mean --help?", text)
        self.assertIn("--temperature", self.one_line(call("run", "m", "--temprature", "1"), USAGE))
        self.assertIn("--temperature", self.one_line(call("run", "m", "--temp=1"), USAGE))
        text = self.one_line(call("run", "m", "--zzzzzzzz"), USAGE)
        self.assertNotIn("did you mean", text)

    def test_unknown_commands_suggest(self):
        self.assertIn("avocet version", self.one_line(call("versoin"), USAGE))
        self.assertIn("avocet run", self.one_line(call("rnu"), USAGE))
        self.assertIn("avocet help", self.one_line(call("gargantuan"), USAGE))
        self.assertIn("perplexity", self.one_line(call("eval", "preplexity", "m"), USAGE))
        self.one_line(call("help", "rnu"), USAGE)
        self.one_line(call("eval"), USAGE)
        self.one_line(call(""), USAGE)

    def test_subcommands(self):
        for name, listed_ones, near, meant in (
                ("eval", "perplexity, kl, logits, task or tasks", "perplexty", "perplexity"),
                ("adapter", "inspect, pack or merge", "merg", "merge")):
            self.assertIn(f"missing subcommand: {listed_ones}", self.one_line(call(name), USAGE))
            self.assertIn(f"did you mean {meant}?", self.one_line(call(name, near), USAGE))
            self.assertIn(f"did you mean {meant}?",
                          self.one_line(call(name, near, "m", "--data", "x"), USAGE))
        text = self.one_line(call("adapter", "zzzzzz", "--option"), USAGE)
        self.assertIn('unknown subcommand "zzzzzz"; choose inspect, pack or merge', text)

    def test_wrong_usage(self):
        for arguments in (["run"], ["run", "m", "a", "b"], ["run", "m", "-n"],
                          ["run", "m", "-n", "x"], ["run", "m", "-n", "-1"],
                          ["run", "m", "--top-p", "1.5"], ["run", "m", "--temperature", "nan"],
                          ["run", "m", "--seed", "18446744073709551616"],
                          ["run", "m", "--json=1"], ["run", "m", "--logprobs", "3"],
                          ["run", "m", "--logprobs", "21", "--json"],
                          ["run", "m", "--logprobs", "0", "--json"],
                          ["run", "m", "--special"], ["run", "m", "--raw", "--system", "x"],
                          ["plan"], ["plan", "a", "b"], ["bench"], ["bench", "m", "-r", "0"],
                          ["bench", "m", "-p0", "-n0"], ["version", "x"], ["licenses", "x"],
                          ["eval", "perplexity", "m"], ["eval", "perplexity", "--file", "x"],
                          ["eval", "perplexity", "m", "--file", "x", "--ctx", "8", "--stride", "8"],
                          ["eval", "logits", "m", "--ids", "1"], ["eval", "logits", "m", "-o", "x"],
                          ["eval", "logits", "m", "--ids", "1", "--file", "x", "-o", "x"]):
            with self.subTest(arguments=arguments):
                self.assertIn("--help", self.one_line(call(*arguments), USAGE))

    def test_missing_models(self):
        for arguments in (["run", "/no/such/model.gguf", "x"], ["run", "no-such-name", "x"],
                          ["plan", "./missing.bin"], ["bench", "missing.avo"],
                          ["eval", "logits", "gone", "--ids", "1", "-o", "/dev/null"],
                          ["plan", ""]):
            with self.subTest(arguments=arguments):
                self.one_line(call(*arguments), FAILED)

    def test_hostile_arguments_stay_in_their_line(self):
        text = self.one_line(call("run\x1b[2J\nsecond"), USAGE)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\x1b", self.one_line(call("plan", "no\x1b[2J\nmodel"), FAILED))
        self.assertNotIn("\x1b", self.one_line(call("plan", "m", "--x\x1b[2J"), USAGE))
        text = self.one_line(call("plan", "über\x9b2J\x7f.gguf"), FAILED)
        self.assertIn("über", text)
        self.assertFalse(set("\x9b\x7f") & set(text))
        bad = b"bad\xff\x9bbytes.gguf".decode(errors="surrogateescape")
        self.assertIn("bad??bytes", self.one_line(call("plan", bad), FAILED))

    def test_version(self):
        done = call("--version")
        self.assertRegex(done.stdout, rb"\Aavocet \d+\.\d+\.\d+\n\Z")
        facts = json.loads(call("version", "--json").stdout)
        self.assertEqual(set(facts), {"version", "build", "compiler", "cpu", "isa", "isas",
                                      "features", "threads", "threads_from", "processors", "cores",
                                      "numa_nodes", "huge_pages", "cuda"})
        self.assertIn(facts["isa"], facts["isas"].split())
        self.assertLessEqual(facts["threads"], facts["processors"])
        self.assertIn(facts["version"], done.stdout.decode())
        self.assertGreaterEqual(facts["threads"], 1)
        self.assertIn(facts["compiler"], call("version").stdout.decode())
        forced = call("version", env={**os.environ, "AVO_ISA": "ref"}).stdout.decode()
        self.assertIn("ref (forced by AVO_ISA; of: ref", forced)

    def test_licenses(self):
        components = {row["component"] for row in json.loads(call("licenses", "--json").stdout)}
        self.assertLessEqual({"Avocet", "PCRE2", "utf8proc", "xxHash", "libcurl"}, components)
        text = call("licenses").stdout.decode()
        for name in components:
            self.assertIn(name, text)

    def test_closed_inputs(self):
        for arguments in ("run '{0}' -", "run '{0}'", "tokenize '{0}' -", "tokenize '{0}' --jsonl"):
            with self.subTest(arguments=arguments):
                done = subprocess.run(f"'{AVOCET}' {arguments.format(FIXTURE)} <&-", shell=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                self.assertIn("cannot read standard input", self.one_line(done, FAILED))

    def test_closed_and_full_outputs(self):
        done = subprocess.run(f"'{AVOCET}' version >&-", shell=True, stderr=subprocess.PIPE,
                              check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.stderr, rb"\Aavocet: cannot write to standard output: [^\n]+\n\Z")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([AVOCET, "licenses"], stdout=full, stderr=subprocess.PIPE,
                                  check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"No space left", done.stderr)

    def test_a_reader_that_went_away(self):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([AVOCET, "licenses"], stdout=writing, stderr=subprocess.PIPE,
                              check=False)
        os.close(writing)
        self.assertEqual(done.returncode, -signal.SIGPIPE)
        self.assertEqual(done.stderr, b"")


if __name__ == "__main__":
    unittest.main()
