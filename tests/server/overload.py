"""Many times more than fits: everything is answered, refusals say when to come again, memory stays.

The short form of bench/overload.py, which has the times."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import AVOCET, ROOT
from serving import write_slow_model


class Overload(unittest.TestCase):
    def test_everything_is_answered(self):
        with tempfile.TemporaryDirectory(prefix="avocet-overload-") as folder:
            model = write_slow_model(Path(folder))
            done = subprocess.run(
                [sys.executable, ROOT / "bench" / "overload.py", model, "--avocet", AVOCET,
                 "--connections", "250", "--rounds", "3", "--tokens", "40", "--seconds", "400",
                 "--occupy", "4", "--sessions", "4", "--waiting", "16", "--max-unread", "65536"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=500,
                check=False, env=os.environ)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        numbers = {name: int(number) for name, number in
                   re.findall(r"(accepted|refused|failed|unanswered|Retry-After) (\d+)", said)}
        self.assertEqual(numbers["accepted"] + numbers["refused"], 750, said)
        self.assertGreaterEqual(numbers["accepted"], 20, said)
        self.assertGreaterEqual(numbers["refused"], 100, said)
        self.assertEqual((numbers["failed"], numbers["unanswered"], numbers["Retry-After"]),
                         (0, 0, 0), said)
        memory = [int(number) for number in said.split("resident MiB: ")[1].split("\n")[0].split()]
        self.assertLess(max(memory) - memory[0], 100, said)


if __name__ == "__main__":
    unittest.main()
