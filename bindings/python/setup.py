"""Puts libavocet.so into the package: the one that AVOCET_LIBRARY names, else one built from the
source tree this folder lies in. Where there is neither, the package looks for an installed library
when it is imported."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent.parent


def library(folder: Path):
    """The library to take along, or None."""
    named = os.environ.get("AVOCET_LIBRARY")
    if named:
        return Path(named).resolve(strict=True)
    if not (ROOT / "CMakeLists.txt").is_file() or not (ROOT / "include/avocet.h").is_file():
        return None
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(folder), "-DAVO_TESTS=OFF", *generator],
                   check=True)
    subprocess.run(["cmake", "--build", str(folder), "--target", "avocet_shared", "--parallel"],
                   check=True)
    return (folder / "libavocet.so").resolve(strict=True)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        with tempfile.TemporaryDirectory() as folder:
            found = library(Path(folder))
            if found is not None:
                target = Path(self.build_lib) / "avocet" / "libavocet.so"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):  # the wheel is for this kind of machine only
        return True


setup(cmdclass={"build_py": BuildWithLibrary}, distclass=BinaryDistribution)
