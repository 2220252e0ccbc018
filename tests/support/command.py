"""Calls of the built command, for tests of the command line."""
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
AVOCET = os.environ.get("AVOCET", str(ROOT / "build" / "avocet"))
GOOD, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
# A shell starts its background jobs with SIGINT ignored; so would be what these begin.
signal.signal(signal.SIGINT, signal.default_int_handler)


def call(*arguments, given=b"", **options):
    """Runs the command; stdin is `given`, stdout and stderr come back as bytes."""
    return subprocess.run([AVOCET, *map(str, arguments)], input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300, check=False, **options)


def start(*arguments, **options):
    return subprocess.Popen([AVOCET, *map(str, arguments)], stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, **options)


def wait_until_caught(process, number=signal.SIGINT):
    """Until the process has a handler for the signal; a signal before would just end it."""
    for _ in range(3000):
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("SigCgt:") and int(line.split()[1], 16) >> (number - 1) & 1:
                    return
        time.sleep(0.01)
    raise AssertionError("the process never caught the signal")


def test_data(relative):
    """A path in the shared test data, or None."""
    folder = os.environ.get("AVOCET_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    path = Path(folder) / relative
    return path if path.exists() else None
