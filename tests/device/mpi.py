"""Ranks that mpirun has started: the answers of one process, a rank that leaves, a server that
ends. Skipped without Open MPI; tests/device/ranks.c tests ranks without it, and more of them."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import GOOD, PATIENCE, call
from mpi_job import SETTINGS, SKIPPED, environment, under_mpi
from serving import Serving


def run(ranks, *arguments):
    return subprocess.run(under_mpi(ranks, *arguments), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
                          env=environment(), check=False)


class Mpi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-mpi-")
        cls.model = tiny_model.write(Path(cls.scratch.name))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def arguments(self, *more):
        return ("run", self.model, "once upon", "--raw", "-n", 24, "--ignore-eos", "-t", 1,
                "--json", *more)

    def test_the_answer_of_one_process(self):
        alone = call(*self.arguments("--device", "cpu"))
        self.assertEqual(alone.returncode, GOOD, alone.stderr)
        for ranks, flags in (2, ()), (3, ("--device", "mpi:layers")):
            split = run(ranks, *self.arguments(*flags))
            self.assertEqual(split.returncode, GOOD, split.stderr)
            self.assertEqual(answer(split), answer(alone))

    def test_a_rank_that_leaves_is_an_error(self):
        done = run(2, *self.arguments("--device", "mpi:timeout=1,leaves=1@5"))
        self.assertNotEqual(done.returncode, GOOD)
        self.assertIn(b"rank 1 has not answered for 1.0 s", done.stderr)

    def test_a_server_ends_with_all_its_ranks(self):
        with Serving(self.model, environment=SETTINGS,
                     command=under_mpi(2, "serve", self.model, "--port", 0, "-t", 1)) as server:
            self.assertTrue(any("mpi" in line for line in server.lines))
            status, _, body = server.ask("POST", "/v1/completions",
                                         {"prompt": "once", "max_tokens": 4, "ignore_eos": True})
            self.assertEqual(status, 200, body)
            self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 4)
            leader = next(int(pid) for pid in children(server.process.pid)
                          if b"OMPI_COMM_WORLD_RANK=0" in environment_of(pid))
            os.kill(leader, signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=PATIENCE), GOOD, server.lines)


def answer(done):
    """What does not depend on the time. (In plain text mpirun's terminal hides some bytes.)"""
    found = json.loads(done.stdout)
    return {name: value for name, value in found.items() if name in ("text", "ids")}


def children(parent):
    return Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        sys.exit(SKIPPED)
    unittest.main()
