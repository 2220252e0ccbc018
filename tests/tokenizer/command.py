"""`avocet tokenize`: every kind of bare file, both directions, and what it refuses."""
import json
import os
import subprocess
import unittest
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tokenizer"


def tokenize(*arguments, text=None):
    data = text.encode() if isinstance(text, str) else text
    return subprocess.run([os.environ["AVOCET"], "tokenize", *map(str, arguments)], input=data,
                          capture_output=True, check=False)


class Tokenize(unittest.TestCase):
    def good(self, *arguments, text=None):
        done = tokenize(*arguments, text=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_there_and_back(self):
        for name in ("gpt2.json", "llama2.json", "bpe.model", "bpe.bin"):
            path = FIXTURES / name
            for text in ("The avocet feeds by touch.", "é 水 🙂  x"):
                told = json.loads(self.good(path, text, "--json"))
                self.assertEqual(sorted(told), ["ids", "pieces"])
                self.assertEqual(len(told["ids"]), len(told["pieces"]))
                ids = ",".join(map(str, told["ids"]))
                self.assertEqual(self.good(path, ids, "--decode").decode(), text + "\n")
                piped = json.loads(self.good(path, "-", "--json", text=text))
                self.assertEqual(piped, told)

    def test_lines(self):
        texts = ["", "a", "two\nlines", "<|x|>", "\u0000 é"]
        path = FIXTURES / "gpt2.json"
        lines = "".join(json.dumps(t) + "\n" for t in texts)
        ids = self.good(path, "--jsonl", text=lines)
        self.assertEqual(len(ids.splitlines()), len(texts))
        back = self.good(path, "--jsonl", "--decode", text=ids)
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_special(self):
        path = FIXTURES / "gpt2.json"
        plain = json.loads(self.good(path, "<|x|>", "--json"))["pieces"]
        special = json.loads(self.good(path, "<|x|>", "--json", "--special"))["pieces"]
        self.assertGreater(len(plain), 1)
        self.assertEqual(special, ["<|x|>"])

    def test_begin(self):
        path = FIXTURES / "llama2.json"
        plain = json.loads(self.good(path, "a", "--json"))["ids"]
        begun = json.loads(self.good(path, "a", "--json", "--begin"))["ids"]
        self.assertEqual(begun, [1] + plain)

    def test_refusals(self):
        path = FIXTURES / "gpt2.json"
        self.assertEqual(tokenize().returncode, 2)
        self.assertEqual(tokenize(path, "a", "b").returncode, 2)
        self.assertEqual(tokenize(path, "a", "--jsonl").returncode, 2)
        for ids in ("1,x", "999999"):
            self.assertEqual(tokenize(path, ids, "--decode").returncode, 2)
        for arguments, text in (((path, "-", "--decode"), "1,x"),
                                ((path, "-", "--decode"), "999999"),
                                ((path, "--jsonl"), "[1]\n"), ((FIXTURES / "none.json", "a"), None),
                                ((FIXTURES / "expected.json", "a"), None)):
            done = tokenize(*arguments, text=text)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
