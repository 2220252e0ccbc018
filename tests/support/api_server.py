"""A server of the built command on any free port, for tests of its endpoints."""
import http.client
import json
import re
import signal
import subprocess

from command import AVOCET, PATIENCE


def sanitized():
    """Whether the command was built to be watched; a sandbox would keep leaks from being looked
    for."""
    version = subprocess.run([AVOCET, "version"], stdout=subprocess.PIPE, text=True, check=True)
    return bool(re.search(r"Release(address|thread)", version.stdout))


class Server:
    """`with Server(model, …) as server:`; ends by SIGTERM and must then exit with 0. `options` are
    those of Popen."""

    def __init__(self, model, *arguments, **options):
        if sanitized():
            arguments = *arguments, "--no-sandbox"
        self.process = subprocess.Popen(
            [AVOCET, "serve", str(model), "--port", "0", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            **options)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"https?://([\d.]+):(\d+)", line)
            if found:
                self.host, self.port, self.url = found[1], int(found[2]), found[0]
            grpc = re.search(r"gRPC at port (\d+)", line)
            self.grpc_port = int(grpc[1]) if grpc else None
            if grpc or (found and "--grpc" not in arguments):
                break
        else:
            raise AssertionError("the server did not start: " + "".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.process.send_signal(signal.SIGTERM)
        try:
            _, more = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if kind is None and self.process.returncode != 0:
            raise AssertionError(f"exit {self.process.returncode}: {''.join(self.lines)}{more}")

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        connection = self.connect()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json",
                                                **(headers or {})})
        answer = connection.getresponse()
        got = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return got

    def post(self, path, body, status=200, headers=None):
        got, _, data = self.ask("POST", path, body, headers)
        if got != status:
            raise AssertionError(f"{path}: {got}, wanted {status}: {data[:600]!r}")
        return json.loads(data)

    def get(self, path, status=200):
        got, _, data = self.ask("GET", path)
        if got != status:
            raise AssertionError(f"{path}: {got}, wanted {status}: {data[:600]!r}")
        return json.loads(data)

    def events(self, path, body):
        """Server-sent events as (name or None, data as text)."""
        status, headers, data = self.ask("POST", path, {**body, "stream": True})
        if status != 200 or not headers["Content-Type"].startswith("text/event-stream"):
            raise AssertionError(f"{path}: {status} {headers}: {data[:600]!r}")
        found = []
        for block in data.decode().split("\n\n"):
            if not block:
                continue
            name = re.search(r"^event: (.*)$", block, re.M)
            found.append((name and name[1], re.search(r"^data: (.*)$", block, re.M)[1]))
        return found
