"""The script `avocet` of a wheel: becomes the command that is in the package."""
import os
import sys
from pathlib import Path


def main():
    command = Path(__file__).resolve().parent / "avocet/bin/avocet"
    try:
        os.execv(command, sys.argv)
    except OSError as error:
        sys.exit(f"avocet: {command}: {error.strerror}; install the package again")
