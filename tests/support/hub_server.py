"""A hub on 127.0.0.1 that misbehaves on request, and how tests run `avocet pull` against it.

Two servers: the hub itself (API, redirects) and the store it redirects to, on another port. Every
request is recorded. A fault is a function called instead of the ordinary answer, once per entry in
the queue of its path.
"""
import hashlib
import http.server
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import urllib.parse
from pathlib import Path

import certificates
from command import PATIENCE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sum(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        world = self.server.world
        with world.lock:
            world.requests.append((self.server.role, self.path, dict(self.headers.items())))
            queue = world.faults.get(self.path.split("?")[0], [])
            fault = queue.pop(0) if queue else None
        try:
            if fault is not None and fault(self) is not False:
                return
            if self.server.role == "store":
                self.send_content(world.store[self.path])
            else:
                self.answer_hub()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_text(self, status, text, headers=()):
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_content(self, data, etag=None):
        """What a good server does: ranges, ETag, If-Range."""
        etag = etag or '"%s"' % sha256(data)[:16]
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        begin = int(wanted.group(1)) if wanted and condition in (None, etag) else 0
        if begin >= len(data) > 0:
            self.send_text(416, "", [("Content-Range", "bytes */%d" % len(data))])
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range",
                             "bytes %d-%d/%d" % (begin, len(data) - 1, len(data)))
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        self.wfile.write(data[begin:])

    def answer_hub(self):
        world = self.server.world
        path, _, query = self.path.partition("?")
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path)
        if match and match.group(1) in world.repositories:
            repository = world.repositories[match.group(1)]
            if match.group(2) == "revision":
                self.send_text(200, json.dumps(repository["facts"]))
            else:
                self.send_list(repository, path, urllib.parse.parse_qs(query))
            return
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match and match.group(1) in world.repositories:
            name = urllib.parse.unquote(match.group(3))
            content = world.repositories[match.group(1)]["files"].get(name)
            if content is not None and name in world.repositories[match.group(1)]["large"]:
                self.send_text(302, "moved", [
                    ("Location", world.store_url + "/" + match.group(3)),
                    ("X-Linked-Etag", '"%s"' % sha256(content))])
                return
            if content is not None:
                self.send_content(content, '"%s"' % git_sum(content))
                return
        self.send_text(404, "not here")

    def send_list(self, repository, path, query):
        entries, size = repository["list"], repository["page"]
        begin = int(query.get("cursor", ["0"])[0])
        headers = []
        if begin + size < len(entries):
            headers.append(("Link", '<%s?recursive=true&cursor=%d>; rel="next"'
                            % (path, begin + size)))
        self.send_text(200, json.dumps(entries[begin:begin + size]), headers)


class World:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests, self.faults, self.repositories, self.store = [], {}, {}, {}
        self.servers = []
        self.hub_url = self.start("hub")
        # Another name for the same machine: another host to whoever must not leak a token.
        self.store_url = self.start("store").replace("127.0.0.1", "localhost")
        self.home = tempfile.TemporaryDirectory(prefix="avocet-hub-")

    def start(self, role):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.role, server.world = role, self
        server.handle_error = lambda *arguments: None  # clients that hang up are the point
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.servers.append(server)
        return "http://127.0.0.1:%d" % server.server_address[1]

    def start_tls(self):
        """The store once more, by https, with a certificate of its own; None without openssl."""
        made = certificates.make(Path(self.home.name))
        if made is None:
            return None
        url = self.start("store")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*made)
        server = self.servers[-1]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return url.replace("http://127.0.0.1", "https://localhost")

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.home.cleanup()

    def add(self, name, files, large=(), page=1000, facts=None):
        """A model; files named in `large` live in the store, with a SHA-256 in the list."""
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"}]
        for path, content in files.items():
            entry = {"type": "file", "path": path, "size": len(content), "oid": git_sum(content)}
            if path in large:
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
                self.store["/" + urllib.parse.quote(path)] = content
            entries.append(entry)
        self.repositories[name] = {
            "files": files, "large": set(large), "list": entries, "page": page,
            "facts": facts or {"sha": COMMIT, "cardData": {"license": "apache-2.0"}}}

    def fault(self, path, *functions):
        self.faults.setdefault(path, []).extend(functions)

    def asked(self, part, role=None):
        return [r for r in self.requests if part in r[1] and role in (None, r[0])]

    def environment(self, **more):
        keep = {k: v for k, v in os.environ.items()
                if not k.lower().endswith("_proxy") and not k.startswith(("HF_", "AVOCET_"))}
        keep.update({"HF_ENDPOINT": self.hub_url, "AVOCET_HOME": self.home.name, **more})
        return keep

    def avocet(self, *arguments, timeout=PATIENCE, **environment):
        return subprocess.run([os.environ["AVOCET"], *arguments], timeout=timeout, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=self.environment(**environment))

    def pull(self, *arguments, **environment):
        """Runs a pull with short delays and checks that its progress never went back."""
        result = self.avocet("pull", *arguments, "--progress=plain", "--retry-delay=5",
                             **environment)
        check_progress(result.stderr)
        return result

    def folder(self, name):
        return os.path.join(self.home.name, "models", name.replace("/", "--"))

    def read(self, name, path):
        with open(os.path.join(self.folder(name), path), "rb") as file:
            return file.read()

    def leftovers(self, name):
        return sorted(f for _, _, files in os.walk(self.folder(name)) for f in files
                      if f.endswith((".part", ".etag")))


def check_progress(text):
    done, fraction = 0, 0.0
    for line in text.splitlines():
        match = re.fullmatch(r"progress (\d+) (\d+)", line)
        if not match:
            continue
        now, total = int(match.group(1)), int(match.group(2))
        assert now >= done, "progress went back: %d after %d" % (now, done)
        assert total == 0 or now <= total, "progress past its end: %d of %d" % (now, total)
        assert total == 0 or now / total >= fraction, "the bar went back"
        done, fraction = now, now / total if total else fraction


# ---- Faults ----

def drop(count):
    """The right head, then only `count` bytes of the content, then a dead connection."""
    def fault(handler):
        data = handler.server.world.store[handler.path]
        begin = int((re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "")) or
                     [0, 0])[1])
        etag = '"%s"' % sha256(data)[:16]
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range",
                                "bytes %d-%d/%d" % (begin, len(data) - 1, len(data)))
        handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(data) - begin))
        handler.end_headers()
        handler.wfile.write(data[begin:begin + count])
        handler.close_connection = True
    return fault


def status(code, *headers, text="no"):
    return lambda handler: handler.send_text(code, text, headers)


def content(data, *headers, code=200):
    """Any answer at all."""
    def fault(handler):
        handler.send_response(code)
        for name, value in headers:
            handler.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True
    return fault
