"""Training under mpirun: the adapter of one process, whatever the number of ranks; a run that other
ranks continue; a rank that is killed. Skipped without Open MPI; tests/train/ranks.c tests more of
it without."""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import AVOCET, FAILED, GOOD, PATIENCE, call
from mpi_job import SKIPPED, environment, under_mpi

TEXTS = ("once upon a time", "a dog ran", "the dog sat on the mat", "dogs", "a cat and a dog")


class Mpi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-train-mpi-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.data = cls.folder / "texts.jsonl"
        cls.data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        done = call(*cls.arguments("alone", "--micro-batch", 1))
        if done.returncode != GOOD:
            raise AssertionError(done.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def arguments(cls, output, *more):
        return ("train", "sft", cls.model, "--data", cls.data, "-o", cls.folder / output, "--steps",
                4, "--batch", 5, "--rank", 4, "--lr", 0.01, "--save-every", 2, "--threads", 1,
                *more)

    def start(self, ranks, *arguments):
        return subprocess.run(under_mpi(ranks, *self.arguments(*arguments)),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE, env=environment(),
                              check=False)

    def adapter(self, output):
        return (self.folder / output / "adapter_model.safetensors").read_bytes()

    def test_the_adapter_of_one_process(self):
        done = self.start(3, "three", "--json")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertEqual(json.loads(done.stdout)["step"], 4)  # of rank 0 alone
        self.assertEqual(self.adapter("three"), self.adapter("alone"))

    def test_another_number_of_ranks_continues(self):
        begun = self.start(2, "parts", "--steps", 2, "--schedule", "constant")
        self.assertEqual(begun.returncode, GOOD, begun.stderr)
        done = self.start(3, "parts", "--schedule", "constant", "--resume")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        whole = call(*self.arguments("whole", "--schedule", "constant", "--micro-batch", 1))
        self.assertEqual(whole.returncode, GOOD, whole.stderr)
        self.assertEqual(self.adapter("parts"), self.adapter("whole"))

    def test_what_ranks_do_not_do(self):
        done = self.start(2, "served", "--serve")
        self.assertNotEqual(done.returncode, GOOD)
        self.assertIn(b"--serve cannot be combined with several ranks", done.stderr)
        pairs = self.folder / "pairs.jsonl"
        pairs.write_text('{"prompt": "a", "chosen": " dog", "rejected": " cat"}\n')
        done = subprocess.run(
            under_mpi(2, "train", "dpo", self.model, "--data", pairs, "-o", self.folder / "dpo"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=PATIENCE, env=environment(), check=False)
        self.assertNotEqual(done.returncode, GOOD)
        self.assertIn(b"dpo is not divided among ranks", done.stderr)

    def test_a_rank_that_sees_other_data(self):
        """mpirun gives each rank options of its own: A : B."""
        other = self.folder / "other.jsonl"
        other.write_text('{"text": "a dog"}\n')
        first = [str(word) for word in self.arguments("differ")]
        second = [str(other) if word == str(self.data) else word for word in first]
        done = subprocess.run(["mpirun", "-n", "1", AVOCET, *first,
                               ":", "-n", "1", AVOCET, *second],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE, env=environment(),
                              check=False)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn(b"rank 1 has other data than rank 0", done.stderr)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        sys.exit(SKIPPED)
    unittest.main()
