"""deploy/Containerfile names the packages that the build and the command need, and no others."""
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from bootstrap import packages

ROOT = Path(__file__).resolve().parent.parent.parent
AVOCET = os.environ.get("AVOCET", str(ROOT / "build" / "avocet"))


def stages():
    """The packages that each stage of the file installs."""
    text = (ROOT / "deploy/Containerfile").read_text().replace("\\\n", " ")
    return [set(found.split()) for found in
            re.findall(r"install -y --no-install-recommends (.*?)&&", text)]


class Containerfile(unittest.TestCase):
    def test_what_the_build_needs(self):
        ours = {"libcmocka-dev", "scdoc", "python3", "python3-pip"}  # tests, manual pages, scripts
        self.assertEqual(stages()[0] | ours, set(packages("run")))

    def test_what_the_command_needs(self):
        for tool in ("readelf", "dpkg", "ldconfig"):
            if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
                self.skipTest(f"SKIPPED: {tool} is not here")
        listed = stages()[1]
        said = subprocess.run(["readelf", "-d", AVOCET], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        cache = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
        needed = [library for library in re.findall(r"\(NEEDED\).*\[(.*)\]", said)
                  if not re.match(r"lib(c|m|asan|ubsan|tsan|gcc_s)\.so|ld-linux", library)]
        self.assertGreater(len(needed), 5)
        paths = []
        for library in needed:
            path = os.path.realpath(re.search(rf"{re.escape(library)} .*x86-64.* => (\S+)",
                                              cache).group(1))
            paths += [path, path.removeprefix("/usr")]  # one folder, and packages know either name
        owners = subprocess.run(["dpkg", "-S", *paths], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False).stdout
        names = {line.split(":")[0] for line in owners.splitlines()} - {"libtinfo6"}  # of ncurses
        if len(names) < len(needed) - 1:
            self.skipTest("SKIPPED: libraries here are of no package")
        self.assertEqual(names - listed, set(), "missing from the second stage")


if __name__ == "__main__":
    unittest.main()
