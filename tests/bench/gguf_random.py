"""bench/gguf_random.py: files that Avocet opens and that mean the same to both sides of a
comparison; what it cannot write it says."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import FAILED, GOOD, ROOT, call

SCRIPT = ROOT / "bench" / "gguf_random.py"


class Random(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "random.gguf"

    def tearDown(self):
        self.folder.cleanup()

    def write(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), *arguments, str(self.path)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def test_files_run(self):
        for kind in ("q4_0", "q4_1", "q8_0", "f16"):
            with self.subTest(type=kind):
                self.assertEqual(self.write("tiny", kind).returncode, 0)
                shown = json.loads(call("inspect", self.path, "--json").stdout)
                self.assertEqual(shown["architecture"], "llama")
                done = call("bench", self.path, "-p", "8", "-n", "2", "-t", "1", "-r", "1",
                            "--limits-mib", "1", "--json")
                self.assertEqual((done.returncode, done.stderr), (GOOD, b""))
                self.assertEqual(len(json.loads(done.stdout)["results"]), 2)

    def test_the_same_seed_gives_the_same_bytes(self):
        self.write("tiny", "q4_0")
        first = self.path.read_bytes()
        self.write("tiny", "q4_0")
        self.assertEqual(first, self.path.read_bytes())
        self.write("tiny", "q4_0", "--seed", "2")
        self.assertNotEqual(first, self.path.read_bytes())
        self.assertEqual([path.name for path in self.path.parent.iterdir()], ["random.gguf"])

    def test_refusals(self):
        done = self.write("tiny", "q4_k_s")  # 64 is no multiple of 256
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"q5_0", done.stderr)
        self.assertFalse(self.path.exists())
        self.assertEqual(self.write("huge", "q4_0").returncode, 2)
        self.assertEqual(self.write("tiny", "q3").returncode, 2)


if __name__ == "__main__":
    unittest.main()
