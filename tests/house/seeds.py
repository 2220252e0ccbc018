"""tools/fuzz_seeds: makes the seeds in fuzz/corpus again, byte for byte. A seed of an older version
of a format would be refused at its first field, and its fuzz target would test nothing else."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import AVOCET, ROOT


class Seeds(unittest.TestCase):
    def test_seeds_are_those_of_today(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(ROOT / "tools/fuzz_seeds"), "--avocet", AVOCET,
                            "--out", f"{folder}/model"], check=True)
            made = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
            self.assertGreater(len(made), 20)
            for path in made:
                name = path.relative_to(folder)
                self.assertTrue(path.read_bytes() == (ROOT / "fuzz/corpus" / name).read_bytes(),
                                f"{name}: run tools/fuzz_seeds and commit what it writes")


if __name__ == "__main__":
    unittest.main()
