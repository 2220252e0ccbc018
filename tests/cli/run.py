"""`avocet run` on a tiny model that is made here: text, JSON, flags, telemetry, signals."""
import csv
import json
import os
import pty
import re
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import (AVOCET, FAILED, GOOD, INTERRUPTED, PATIENCE, USAGE, call, start,
                     wait_until_caught, wait_until_used)

KEYS = ["model", "prompt", "text", "ids", "finish_reason", "stop_reason", "usage",
        "timings"]
ESCAPE = 3 + 0x1B  # the token of the byte that begins terminal sequences
PROMPT = "once upon a time"

WARNING = b"avocet: --ctx is 60000, but the model was trained for 128 tokens\n"


def read_terminal(leader):
    """All that was written to the other end; closes this one."""
    out = b""
    try:
        while chunk := os.read(leader, 1000):
            out += chunk
    except OSError:  # the end of a terminal
        pass
    os.close(leader)
    return out


class TinyModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-run-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def ask(self, *arguments, prompt=PROMPT, **options):
        done = call("run", self.model, prompt, "--json", *arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), arguments)
        return json.loads(done.stdout)

    def refuse(self, *arguments, status=FAILED, given=b""):
        done = call("run", self.model, *arguments, given=given)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()


class Run(TinyModel):
    def test_panel_cache_sizes(self):
        for size in ("lots", "", "0", "-1", "4X", "G", "99999999999T"):
            self.assertIn("--panel-cache", self.refuse(PROMPT, "--panel-cache", size))
        for size in ("off", "auto", "1", "500M", "4G"):
            self.ask("-n", "1", "--panel-cache", size)

    def test_names_are_checked_before_anything_is_opened(self):
        for flag, names in (("--kv-type", "f32, f16, bf16, int8, fp8"),
                            ("--pin", "none, core, node"),
                            ("--numa", "first-touch, interleave, off"),
                            ("--huge-pages", "auto, on, off")):
            self.assertIn(f'{flag}: "x" must be one of {names}',
                          self.refuse(flag, "x", status=USAGE))
        for flag in ("--isa", "--device"):
            self.assertRegex(self.refuse(flag, "x", status=USAGE),
                             f"{flag}: unknown device 'x'; available: auto cpu .*ref")
            has = call("version").stdout.decode()
            for other in {"avx2", "neon"} - set(re.findall("[a-z0-9]+", has)):
                self.assertRegex(self.refuse(flag, other, status=USAGE),
                                 f"'{other}' is not available on this machine: .*; available: ")

    def test_devices_take_parameters(self):
        plain = self.ask("-n", "7", "--device", "ref")
        for flag in ("--device", "--isa"):
            remote = self.ask("-n", "7", flag, "remote:ref,delay=100")
            self.assertEqual(remote["ids"], plain["ids"])
        for name, fault in (("remote:vmx", "must be a CPU device"),
                            ("remote:delay=-1", "must be a CPU device"),
                            ("remote:memory=17592186044417", "must be a CPU device"),
                            ("remote:lost=99999999999999999999", "must be a CPU device"),
                            ("ref:1", "take no parameters"), ("auto:1", "the name of one device"),
                            ("npu:1", "unknown device 'npu'"), (":1", "the name of one device")):
            self.assertIn(fault, self.refuse("--device", name, status=USAGE))

    def test_json_shape(self):
        answer = self.ask("-n", "7", "--ignore-eos")
        self.assertEqual(list(answer), KEYS)
        self.assertEqual(answer["model"], str(self.model))
        self.assertEqual(answer["prompt"], PROMPT)
        self.assertEqual(len(answer["ids"]), 7)
        self.assertEqual(answer["finish_reason"], "length")
        usage = answer["usage"]
        self.assertEqual(list(usage), ["prompt_tokens", "completion_tokens", "total_tokens",
                                       "drafted", "accepted"])
        self.assertLessEqual(usage["accepted"], usage["drafted"])
        self.assertEqual(usage["completion_tokens"], 7)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 7)
        self.assertEqual(list(answer["timings"]),
                         ["load_ms", "ttft_ms", "prefill_tps", "decode_tps"])
        for name, value in answer["timings"].items():
            self.assertGreater(value, 0, name)

    def test_text_is_what_json_says(self):
        for flags in ([], ["--temperature", "1.5", "--seed", "3"]):
            answer = self.ask("-n", "40", "--ignore-eos", *flags)
            done = call("run", self.model, PROMPT, "-n", "40", "--ignore-eos", *flags)
            text = answer["text"].encode()
            self.assertEqual(done.stdout, text if text.endswith(b"\n") else text + b"\n")
            self.assertEqual((done.returncode, done.stderr), (GOOD, b""))

    def test_prompt_from_input(self):
        wanted = self.ask("-n", "9")
        for arguments, given in ((["-"], PROMPT), ([], PROMPT), (["-"], PROMPT + "\n")):
            done = call("run", self.model, *arguments, "-n", "9", "--json", given=given.encode())
            self.assertEqual(json.loads(done.stdout)["ids"], wanted["ids"])
        two = json.loads(call("run", self.model, "-", "-n", "9", "--json",
                              given=PROMPT.encode() + b"\n\n").stdout)
        self.assertEqual(two["prompt"], PROMPT + "\n")
        self.assertIn("zero byte", self.refuse("-", given=b"a\0b"))
        dashed = call("run", self.model, "-n", "3", "--json", "--", "--dashed")
        self.assertEqual(json.loads(dashed.stdout)["prompt"], "--dashed")

    def test_one_rule_for_numbers(self):
        """What requests accept, the command line does: -1 is no seed, and no top-k."""
        hot = ("-n", "9", "--ignore-eos", "--temperature", "1.5")
        plain = self.ask(*hot)["ids"]
        for flags in ("--seed", "-1"), ("--seed=-1",), ("--top-k", "-1"):
            self.assertEqual(self.ask(*hot, *flags)["ids"], plain)
        self.assertEqual(self.ask(*hot, "--seed", "-7")["ids"],
                         self.ask(*hot, "--seed", str(2**64 - 7))["ids"])
        for flags in ("--seed", "-x"), ("--seed", "-99999999999999999999"), ("--top-k", "-2"):
            self.assertIn(flags[0], self.refuse(*flags, status=USAGE))
        self.assertEqual(self.ask("--max-tokens", "3", "--ignore-eos")["ids"],
                         self.ask("--max-new-tokens", "3", "--ignore-eos")["ids"])

    def test_seeds_and_threads(self):
        hot = ["-n", "30", "--temperature", "2", "--ignore-eos"]
        first = self.ask(*hot, "--seed", "5")["ids"]
        self.assertEqual(self.ask(*hot, "--seed", "5", "--threads", "1")["ids"], first)
        self.assertEqual(self.ask(*hot, "--seed", "5", "--ctx", "100")["ids"], first)
        self.assertNotEqual(self.ask(*hot, "--seed", "6")["ids"], first)
        self.assertEqual(self.ask(*hot)["ids"], self.ask(*hot, "--seed", "0")["ids"])
        greedy = self.ask("-n", "30", "--ignore-eos", "--temperature", "0")["ids"]
        self.assertEqual(self.ask("-n", "30", "--ignore-eos", "--temperature", "0", "--seed",
                                  "9")["ids"], greedy)
        self.assertEqual(self.ask(*hot, "--top-k", "1", "--seed", "8")["ids"], greedy)
        self.assertEqual(self.ask(*hot, "--top-p", "0.000001", "--seed", "8")["ids"], greedy)
        self.assertEqual(self.ask(*hot, "--min-p", "1", "--seed", "8")["ids"], greedy)

    def test_stops(self):
        whole = self.ask("-n", "60", "--ignore-eos", "--temperature", "1.2", "--logit-bias",
                         "1=-inf", "--logit-bias", "2=-inf")
        same = ["-n", "60", "--ignore-eos", "--temperature", "1.2", "--logit-bias", "1=-inf",
                "--logit-bias", "2=-inf"]
        text = whole["text"]
        self.assertGreater(len(text), 20)
        stop = next(text[i:i + 3] for i in range(8, len(text)) if text[i:i + 3].isascii())
        cut = self.ask(*same, "--stop", stop, "--stop", "never to be seen")
        self.assertEqual(cut["text"], text[:text.index(stop)])
        self.assertEqual((cut["finish_reason"], cut["stop_reason"]), ("stop", stop))
        self.assertIsNone(whole["stop_reason"])
        self.assertLess(len(cut["ids"]), 60)
        token = whole["ids"][10]
        ended = self.ask(*same, "--stop-token", str(token))
        self.assertEqual(ended["ids"], whole["ids"][:whole["ids"].index(token) + 1])
        self.assertEqual(ended["finish_reason"], "stop")

    def test_bias_and_penalties(self):
        first = self.ask("-n", "1", "--ignore-eos")["ids"][0]
        other = self.ask("-n", "1", "--ignore-eos", "--logit-bias", f"{first}=-inf")["ids"][0]
        self.assertNotEqual(first, other)
        self.assertEqual(self.ask("-n", "4", "--logit-bias", "70=1e6")["ids"], [70] * 4)
        punished = self.ask("-n", "6", "--logit-bias", "70=50", "--frequency-penalty", "1000")
        self.assertEqual(punished["ids"].count(70), 1)
        self.assertEqual(len(set(self.ask("-n", "20", "--presence-penalty", "1000",
                                          "--ignore-eos")["ids"])), 20)

    def test_logprobs(self):
        answer = self.ask("-n", "5", "--ignore-eos", "--logprobs", "3", "--temperature", "0")
        self.assertEqual(set(answer), {*KEYS, "logprobs"})
        self.assertEqual([row["id"] for row in answer["logprobs"]], answer["ids"])
        for row in answer["logprobs"]:
            self.assertEqual(list(row), ["id", "token", "logprob", "top"])
            self.assertEqual(len(row["top"]), 3)
            values = [one["logprob"] for one in row["top"]]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(row["top"][0]["id"], row["id"])  # greedy
            self.assertEqual(row["logprob"], values[0])
            self.assertLess(values[0], 0)

    def test_context(self):
        text = self.refuse("x" * 300)
        self.assertRegex(text, r"30\d tokens")
        self.assertIn("128", text)
        done = call("run", self.model, PROMPT, "-n", "1", "--ctx", "60000")
        self.assertEqual((done.returncode, done.stderr), (GOOD, WARNING))
        text = self.refuse("x" * 40, "--ctx", "20")
        self.assertRegex(text, r"4\d tokens.* 20 .*--ctx")
        full = self.ask("--ignore-eos", prompt="x" * 20)
        self.assertEqual(full["finish_reason"], "context")
        self.assertEqual(full["usage"]["total_tokens"], 128 + 1)  # the last one is not computed

    def test_refusals(self):
        self.assertIn("chat template", self.refuse("x", "--system", "be kind"))
        for flags in (["--logit-bias", "x"], ["--logit-bias", "99999=1"], ["--logit-bias", "5=nan"],
                      ["--logit-bias", "=1"], ["--stop-token", "-1"], ["--stop-token", "99999"],
                      ["--stop", ""]):
            with self.subTest(flags=flags):
                self.refuse("x", *flags, status=USAGE)
        self.assertIn("64 times", self.refuse("x", *["--stop=a"] * 65, status=USAGE))

    def test_telemetry(self):
        path = self.folder / "times.csv"
        for count in (3, 8):
            self.ask("-n", str(count), "--ignore-eos", *(["--telemetry", path] if count % 2 else
                                                         [f"--telemetry={path}"]))
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["new_tokens"] for row in rows], ["3", "8"])
        row = rows[1]
        self.assertEqual(row["model"], str(self.model))
        self.assertRegex(row["time"], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
        times = [float(value) for value in row["token_ms"].split(";")]
        self.assertEqual(len(times), 8)
        self.assertEqual(float(row["token_max_ms"]), max(times[1:]))
        self.assertIn(float(row["token_p50_ms"]), times[1:])
        for name in ("load_ms", "tokenise_ms", "prefill_ms", "ttft_ms", "prefill_tps",
                     "decode_tps", "peak_memory_bytes", "prompt_tokens"):
            self.assertGreater(float(row[name]), 0, name)
        done = call("run", self.model, "x", "-n", "2", "--telemetry")
        self.assertEqual(done.returncode, GOOD)
        self.assertEqual(len(done.stderr.splitlines()), 2)
        foreign = self.folder / "letter.txt"
        foreign.write_text("Dear reader\n")
        self.assertIn("first line", self.refuse("x", f"--telemetry={foreign}"))
        self.assertEqual(foreign.read_text(), "Dear reader\n")
        self.refuse("x", "--telemetry=/no/such/folder/times.csv")
        self.refuse("x", "--trace=/no/such/folder/trace.json")

    def test_interrupt(self):
        endless = ["--ignore-eos", "--ctx", "60000", "-n", "50000"]
        process = start("run", self.model, "x", "--json", *endless, stdout=-1)
        wait_until_caught(process)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, INTERRUPTED)
        answer = json.loads(out)
        self.assertEqual(answer["finish_reason"], "cancelled")
        self.assertEqual(len(answer["ids"]), answer["usage"]["completion_tokens"])
        process = start("run", self.model, "x", *endless, stdout=-1)
        first = os.read(process.stdout.fileno(), 10)
        self.assertTrue(first)
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, error), (INTERRUPTED, WARNING))
        self.assertTrue((first + rest).endswith(b"\n"))

    def test_interrupt_before_the_first_token(self):
        path = self.folder / "interrupted.csv"
        long = ["--ctx", "60000", "-t", "1", "--json", f"--telemetry={path}"]
        for used in (0, 0.4):  # while loading, or in the middle of the prompt
            process = start("run", self.model, "x" * 50000, *long, stdout=-1)
            wait_until_caught(process)
            wait_until_used(process, used)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, INTERRUPTED)
            answer = json.loads(out)
            self.assertEqual((answer["text"], answer["ids"], answer["finish_reason"]),
                             ("", [], "cancelled"))
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["finish_reason"], row["new_tokens"], row["token_ms"])
                          for row in rows], [("cancelled", "0", "")] * 2)

    def test_second_interrupt_ends_at_once(self):
        process = start("run", self.model, "x" * 50000, "--ctx", "60000", "-t", "1", stdout=-1)
        wait_until_caught(process)
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))

    def test_ignored_interrupts_stay_ignored(self):
        process = start("run", self.model, "x", "--ignore-eos", "--ctx", "4000", "-n", "2000",
                        stdout=-1, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.assertTrue(os.read(process.stdout.fileno(), 1))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, GOOD)

    def test_reader_that_leaves(self):
        process = start("run", self.model, "x", "--ignore-eos", "--ctx", "60000", "-n", "50000",
                        stdout=-1)
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        error = process.stderr.read()
        self.assertEqual((process.wait(PATIENCE), error), (-signal.SIGPIPE, WARNING))
        process.stderr.close()

    def test_telemetry_begins_its_own_line(self):
        leader, follower = pty.openpty()
        process = subprocess.Popen([AVOCET, "run", self.model, "x", "-n", "3", "--telemetry"],
                                   stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
        os.close(follower)
        self.assertRegex(read_terminal(leader), rb"(\A|\n)time,model,")
        self.assertEqual(process.wait(PATIENCE), GOOD)

    def test_terminals_get_no_sequences(self):
        flags = ["--logit-bias", f"{ESCAPE}=1e6", "-n", "5"]
        self.assertIn(b"\x1b\x1b\x1b", call("run", self.model, "x", *flags).stdout)
        leader, follower = pty.openpty()
        process = start("run", self.model, "x", *flags, stdout=follower)
        os.close(follower)
        out = read_terminal(leader)
        process.stderr.close()
        self.assertEqual(process.wait(PATIENCE), GOOD)
        self.assertNotIn(b"\x1b", out)


class Constrained(TinyModel):
    """Answers that a schema or a grammar binds."""

    def test_schemas_and_grammars(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9,
                                                         "minimum": 0}}, "required": ["a"]}
        path = self.folder / "schema.json"
        path.write_text(json.dumps(schema))
        for given in (json.dumps(schema), path):
            answer = self.ask("--json-schema", given, "--temperature", "2", "--seed", "3")
            self.assertEqual(list(json.loads(answer["text"])), ["a"])
            self.assertEqual(answer["finish_reason"], "stop")
        grammar = self.folder / "list.gbnf"
        grammar.write_text('root ::= "- " [a-z]{3} "\\n" # three letters\n')
        self.assertRegex(self.ask("--grammar", grammar)["text"], r"\A- [a-z]{3}\n\Z")
        self.assertEqual(self.ask("--json-object", "-n", "1")["text"], "{")

    def test_lines(self):
        lines = [{"prompt": PROMPT, "json_schema": {"const": [1, "x"]}},
                 {"prompt": PROMPT, "json_schema": '{"enum":["x"]}'},
                 {"prompt": PROMPT, "grammar": 'root ::= "on" "ce"'},
                 {"prompt": PROMPT},
                 {"prompt": PROMPT, "json_object": True, "grammar": "root"},
                 {"prompt": PROMPT, "grammar": 7}]
        done = call("run", self.model, "--prompts", "-", "--json-schema", '{"const":"flag"}',
                    given="\n".join(map(json.dumps, lines)).encode())
        said = [json.loads(line) for line in done.stdout.decode().splitlines()]
        self.assertEqual([answer.get("text") for answer in said[:4]],
                         ['[1,"x"]', '"x"', "once", '"flag"'])
        self.assertIn("cannot be combined", said[4]["error"])
        self.assertIn("grammar must be a string", said[5]["error"])

    def test_refused(self):
        self.assertIn("one of", self.refuse(PROMPT, "--json-object", "--json-schema", "{}",
                                            status=USAGE))
        self.assertIn('"multipleOf" is not supported',
                      self.refuse(PROMPT, "--json-schema", '{"multipleOf":3}'))
        self.assertIn("nowhere.gbnf", self.refuse(PROMPT, "--grammar", "nowhere.gbnf"))


if __name__ == "__main__":
    unittest.main()
