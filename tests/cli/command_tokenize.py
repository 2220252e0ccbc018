"""`avocet tokenize` as a command: lists of ids, lines of JSON, refusals. That the ids are right is
the business of tests/tokenizer."""
import json
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import AVOCET, FAILED, GOOD, USAGE, call

TEXTS = ["", "once upon a time", "the \"quoted\" \\ one", "tab\tand\nnewline\0", "über 😀 \u2028",
         " the a the", "1 2,3]", "x" * 70000]


class Tokenize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-tokenize-")
        cls.model = tiny_model.write(Path(cls.scratch.name))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def good(self, *arguments, given=b""):
        done = call("tokenize", self.model, *arguments, given=given)
        self.assertEqual((done.returncode, done.stderr), (GOOD, b""), arguments)
        return done.stdout

    def refuse(self, *arguments, status, given=b"", out=b""):
        done = call("tokenize", self.model, *arguments, given=given)
        self.assertEqual((done.returncode, done.stdout), (status, out), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def ids(self, text):
        return json.loads(self.good("--json", "-", given=text.encode()))["ids"]

    def test_printed_ids_can_be_decoded(self):
        for text in TEXTS:
            plain = self.good("-", given=text.encode())
            wanted = text.encode() + (b"" if text.endswith("\n") or not text else b"\n")
            self.assertEqual(self.good("--decode", "-", given=plain), wanted)
            listed = json.dumps(self.ids(text)).encode()
            self.assertEqual(self.good("--decode", "-", given=listed), wanted)
        self.assertEqual(self.good("--decode", "70,71"), self.good("--decode", "[70, 71]"))

    def test_ids_that_are_none(self):
        for ids in ("1,2,abc", "1,2x", "-1", "99999999999", "99999", '1,2 "a" 3', '1 "a', '"a"'):
            with self.subTest(ids=ids):
                self.assertIn("--help", self.refuse("--decode", "--", ids, status=USAGE))
                self.refuse("--decode", "-", given=ids.encode(), status=FAILED)

    def test_lines(self):
        wanted = [self.ids(text) for text in TEXTS]
        for ascii_only in (True, False):
            lines = "\n".join(json.dumps(text, ensure_ascii=ascii_only) for text in TEXTS)
            for given in (lines, lines + "\n"):
                out = self.good("--jsonl", given=given.encode())
                self.assertEqual([json.loads(line) for line in out.splitlines()], wanted)
                back = self.good("--jsonl", "--decode", given=out)
                self.assertEqual([json.loads(line) for line in back.splitlines()], TEXTS)
        self.assertEqual(self.good("--jsonl"), b"")

    def test_lines_of_every_length(self):
        """Lines end before, at and behind the ends of blocks and of words."""
        generator = random.Random(7)
        texts = ["".join(generator.choices('ab"\\é\u0001', k=generator.randrange(40)))
                 for _ in range(3000)]
        texts[1000:1000] = ["y" * 1500000, "z" * 1048574]
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        out = self.good("--jsonl", given=lines.encode())
        back = self.good("--jsonl", "--decode", given=out)
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_bad_lines_end_it_behind_the_good_ones(self):
        for bad in ("x", "", "1", '["a"]', '"a', '"a\\', '"\\x"', '"a" "b"', '"a\tb"'):
            with self.subTest(bad=bad):
                given = f'"a"\n"b"\n{bad}\n"c"\n'.encode()
                out = self.good("--jsonl", given=b'"a"\n"b"\n')
                self.assertIn("line 3:", self.refuse("--jsonl", given=given, out=out,
                                                     status=FAILED))
        self.assertIn("UTF-8", self.refuse("--jsonl", given=b'"a\xff"', status=FAILED))
        self.assertIn("line 2:", self.refuse("--jsonl", "--decode", given=b"[70]\n[x]\n",
                                             out=b'"C"\n', status=FAILED))

    def test_every_line_is_answered_at_once(self):
        """Whoever waits for an answer before the next line gets one."""
        with subprocess.Popen([AVOCET, "tokenize", self.model, "--jsonl"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            for text in ("a", "b", "once"):
                process.stdin.write(json.dumps(text).encode() + b"\n")
                process.stdin.flush()
                self.assertEqual(json.loads(process.stdout.readline()), self.ids(text))
            process.stdin.close()
            self.assertEqual(process.wait(60), GOOD)


if __name__ == "__main__":
    unittest.main()
