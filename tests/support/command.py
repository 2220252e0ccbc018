"""Calls of the built command, for tests of the command line."""
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
AVOCET = os.environ.get("AVOCET", str(ROOT / "build" / "avocet"))
GOOD, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
# Seconds that no wait takes unless something hangs, on a machine that is busy with other work, too.
PATIENCE = 300
# A shell starts its background jobs with SIGINT ignored; so would be what these begin.
signal.signal(signal.SIGINT, signal.default_int_handler)


def call(*arguments, given=b"", **options):
    """Runs the command; stdin is `given`, stdout and stderr come back as bytes."""
    return subprocess.run([AVOCET, *map(str, arguments)], input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE, check=False, **options)


def start(*arguments, **options):
    return subprocess.Popen([AVOCET, *map(str, arguments)], stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, **options)


def wait_until(condition, what="the condition"):
    """Until `condition()` is true; that value."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.01)
    return value


def wait_until_caught(process, number=signal.SIGINT):
    """Until the process has a handler for the signal; a signal before would just end it."""
    def caught():
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")]
        return masks[0] >> (number - 1) & 1
    wait_until(caught, f"a handler of signal {number}")


def wait_until_used(process, seconds):
    """Until the process has used so much CPU time: the same amount of work on any machine load."""
    def used():
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds
    wait_until(used, f"{seconds} s of CPU time")


def test_data(relative):
    """A path in the shared test data, or None."""
    folder = os.environ.get("AVOCET_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    path = Path(folder) / relative
    return path if path.exists() else None
