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
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        self.assertGreater(len(needed), 5)
        for library in needed:
            if re.match(r"lib(c|m|asan|ubsan|tsan|gcc_s)\.so|ld-linux", library):
                continue
            path = re.search(rf"{re.escape(library)} .*x86-64.* => (\S+)", cache).group(1)
            real = os.path.realpath(path)  # /lib and /usr/lib are one, and packages know either
            owner = subprocess.run(["dpkg", "-S", real, real.removeprefix("/usr")],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   check=False).stdout
            if not owner:
                self.skipTest(f"SKIPPED: no package here has {path}")
            name = owner.split(":")[0]
            if name == "libtinfo6":  # with libncursesw6
                continue
            self.assertIn(name, listed, f"{library} is missing from the second stage")


if __name__ == "__main__":
    unittest.main()
