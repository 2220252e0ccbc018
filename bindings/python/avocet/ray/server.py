"""One `avocet serve` of a replica, on a Unix socket. It dies with the process that started it."""
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

_PACKAGE = Path(__file__).resolve().parent.parent
# Runs in the child before the command: prctl(PR_SET_PDEATHSIG, SIGKILL), so that no engine survives
# a replica that was killed. The parent may have died before that call; then nothing is started.
_LAUNCH = ("import ctypes, os, sys\n"
           "ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)\n"
           "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
           "os.execv(sys.argv[2], sys.argv[2:])\n")
START_SECONDS = 600


def command_path(given: Optional[str] = None) -> str:
    """The command `avocet`: the given one, AVOCET_COMMAND, the package's own, or from PATH."""
    packaged = _PACKAGE / "bin/avocet"
    found = given or os.environ.get("AVOCET_COMMAND") or (
        str(packaged) if packaged.is_file() else shutil.which("avocet"))
    if not found or not os.access(found, os.X_OK):
        raise FileNotFoundError(
            f"the command avocet was not found ({found or 'not in PATH'}); install the wheel of "
            "`make wheel`, or name the command by AVOCET_COMMAND or the option command")
    return os.path.abspath(found)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("avocet", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Server:
    """Started by the constructor, which returns when the model is open."""

    def __init__(self, model: str, arguments: List[str], command: Optional[str] = None):
        self._folder = tempfile.TemporaryDirectory(prefix="avocet-replica-")
        self.socket = os.path.join(self._folder.name, "http")
        words = [command_path(command), "serve", model, "--unix-socket", self.socket, *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _LAUNCH, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace")
        said = []
        for line in self.process.stderr:
            said.append(line)
            print(line, end="", file=sys.stderr)
            if line.startswith("  sandbox"):  # the last line of the banner
                return
        status = self.process.wait()
        self._folder.cleanup()
        raise RuntimeError(f"avocet serve ended with status {status}: {''.join(said[-5:]).strip()}")

    def pass_on_lines(self) -> int:
        """Copies what the server says to stderr until it ends; its exit status."""
        for line in self.process.stderr:
            print(line, end="", file=sys.stderr)
        return self.process.wait()

    def ask(self, method: str, path: str, body: Optional[bytes] = None, headers=None,
            timeout: float = 60):
        """(status, bytes)"""
        connection = _UnixConnection(self.socket, timeout)
        try:
            given = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self, seconds: float = 40) -> None:
        """SIGTERM: running requests may finish; SIGKILL after `seconds`."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._folder.cleanup()
