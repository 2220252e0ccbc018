"""A command under a kernel that refuses some system calls: a filter of seccomp puts it on.

usage: refused_calls.py NUMBER=ERRNO,… COMMAND …
"""
import ctypes
import os
import struct
import sys

SECCOMP, LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 317, 444, 446
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF: a word, a comparison, a verdict
ALLOW, FAIL_WITH = 0x7FFF0000, 0x00050000


def refusing(calls, *command):
    """The words that run a command with {number of a call: errno}."""
    table = ",".join(f"{number}={reason}" for number, reason in calls.items())
    return [sys.executable, __file__, table, *map(str, command)]


def install(calls):
    code = [(LOAD, 0, 0, 0)]  # the number of the call
    for number, reason in calls:
        code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL_WITH | reason)]
    code.append((RETURN, 0, 0, ALLOW))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(code), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                  (PR_SET_SECCOMP, MODE_FILTER, program, 0, 0)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    install([tuple(map(int, pair.split("="))) for pair in sys.argv[1].split(",")])
    os.execv(sys.argv[2], sys.argv[2:])
