"""Puts libavocet.so into the package: the one that AVOCET_LIBRARY names, else one built from the
source tree this folder lies in. Where there is neither, the package looks for an installed library
when it is imported.

`make wheel` also names AVOCET_PREFIX, where the command is installed: bin/avocet, share/avocet and
licences are then put into the package, and a script `avocet` starts it."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent.parent.parent
PREFIX = os.environ.get("AVOCET_PREFIX")
SCRIPTS = ["avocet-py = avocet.__main__:main"]
if PREFIX:
    SCRIPTS.append("avocet = avocet_command:main")


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
        for part in ("bin/avocet", "share/avocet", "licences") if PREFIX else ():
            source, target = Path(PREFIX) / part, Path(self.build_lib) / "avocet" / part
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):  # the wheel is for this kind of machine only
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):  # the library is loaded by ctypes
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython},
      distclass=BinaryDistribution, entry_points={"console_scripts": SCRIPTS},
      py_modules=["avocet_command"] if PREFIX else [])
