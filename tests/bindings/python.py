"""The Python package: its own tests against the library just built, and its installation."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "bindings/python"
BUILD = Path(os.environ.get("AVO_BINARY_FOLDER", ROOT / "build")).resolve()
LIBRARY = BUILD / "libavocet.so"
SKIPPED = 77


def interpreter(*modules):
    """A Python that has these modules: this one, or the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run(
                [python, "-c", f"import {', '.join(modules)}"], check=False,
                stderr=subprocess.DEVNULL).returncode == 0:
            return python
    print(f"skipped: no Python with {', '.join(modules)} (tools/bootstrap test installs them)")
    sys.exit(SKIPPED)


def sanitized():
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    return "AVO_SANITIZE:STRING=\n" not in cache


def suite(python):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "AVOCET_LIBRARY": str(LIBRARY),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                           str(PACKAGE / "tests")], env=environment, check=False).returncode


def installation(python):
    """`pip install` into an environment of its own, then a call from somewhere else."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"  # pip writes beside what it builds
        subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
        # This Python's own pip serves: unpacking another one takes longer than all the rest.
        subprocess.run([python, "-m", "venv", "--system-site-packages", "--without-pip",
                        f"{folder}/venv"], check=True)
        inside = f"{folder}/venv/bin/python"
        subprocess.run([inside, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                        "--no-build-isolation", str(source)], check=True,
                       env={**os.environ, "AVOCET_LIBRARY": str(LIBRARY)})
        clean = {name: value for name, value in os.environ.items()
                 if name not in ("AVOCET_LIBRARY", "PYTHONPATH")}
        said = subprocess.run([inside, "-m", "avocet", "--version"], check=True, env=clean,
                              cwd=folder, capture_output=True, text=True).stdout
        assert said.startswith("avocet "), said


def main():
    if sanitized():
        print("skipped: Python does not load a library with sanitizers")
        return SKIPPED
    status = suite(interpreter("numpy", "pytest"))
    if status == 0:
        installation(interpreter("setuptools", "wheel", "venv", "pip"))
    return status


sys.exit(main())
