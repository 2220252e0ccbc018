"""Beginning and ending: drain, signals, clients that go, systemd, sandbox."""
import errno
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import tiny_model
from api_server import sanitized
from command import AVOCET, PATIENCE, wait_until
from refused_calls import LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, SECCOMP, refusing
from serving import ENDLESS, Serving, head, read_answer, write_slow_model


def completion(tokens, stream=False, **more):
    return {"prompt": "a", "max_tokens": tokens, "ignore_eos": True, "stream": stream, **more}


def post(body):
    data = json.dumps(body).encode()
    return head("POST", "/v1/completions", f"Content-Length: {len(data)}") + data


class Lifecycle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-life-")
        cls.folder = Path(cls.scratch.name)
        cls.slow = write_slow_model(cls.folder)
        (cls.folder / "tiny").mkdir()
        cls.tiny = tiny_model.write(cls.folder / "tiny")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_what_runs_may_finish(self):
        """An answer that goes on until its client leaves keeps the server from ending meanwhile."""
        with Serving(self.slow, "--sessions", 4, "--drain-seconds", PATIENCE, "--max-unread",
                     1 << 16) as server:
            answers = []
            request = completion(300)
            clients = [threading.Thread(target=lambda: answers.append(
                server.ask("POST", "/v1/completions", request))) for _ in range(3)]
            for client in clients:
                client.start()
            holder = server.connect()
            holder.sendall(post(completion(ENDLESS, stream=True)))
            server.wait_submitted(4)
            waiting = server.connect()  # connected before, asks later
            server.process.send_signal(signal.SIGTERM)
            server.wait_said("shutting down: ")
            self.assertEqual(server.ask("GET", "/ready")[0], 503)
            waiting.sendall(post(completion(1)))
            refused = read_answer(waiting)
            self.assertEqual(refused[0], 503)
            self.assertIn("retry-after", refused[1])
            self.assertEqual(json.loads(refused[2])["error"]["code"], "shutting_down")
            waiting.close()
            for client in clients:
                client.join()
            holder.close()
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)
            self.assertEqual([answer[0] for answer in answers], [200] * 3)
            for answer in answers:
                self.assertEqual(json.loads(answer[2])["usage"]["completion_tokens"], 300)

    def test_what_takes_too_long_is_ended(self):
        """And told so: a stream by its last event, others by 503."""
        log = self.folder / "late.jsonl"
        with Serving(self.slow, "--drain-seconds", 0.2, "--access-log", log) as server:
            with server.connect() as client, server.connect() as other:
                client.sendall(post(completion(ENDLESS, stream=True, n=2)))
                other.sendall(post(completion(ENDLESS)))
                self.assertIn(b"200", client.recv(100))
                server.wait_submitted(3)
                self.assertEqual(server.end(signal.SIGINT), 0)
                said = b""
                while piece := client.recv(65536):
                    said += piece
                self.assertTrue(said.endswith(b"\r\n0\r\n\r\n"), said[-200:])  # complete
                last = [line for line in said.splitlines() if line.startswith(b"data: ")][-1]
                self.assertEqual(json.loads(last[6:])["error"]["code"], "shutting_down")
                answer = read_answer(other)
                self.assertEqual(answer[0], 503)
                self.assertEqual(json.loads(answer[2])["error"]["code"], "shutting_down")
            server.wait_said("did not finish in time")
        ends = {json.loads(line)["status"]: json.loads(line)["end"]
                for line in log.read_text().splitlines() if '"/v1/completions"' in line}
        self.assertEqual(ends, {200: "failed", 503: "complete"})

    def test_a_second_signal_ends_at_once(self):
        with Serving(self.slow, "--drain-seconds", 600) as server:
            with server.connect() as client:
                client.sendall(post(completion(ENDLESS, stream=True, n=4)))
                client.recv(100)
                server.process.send_signal(signal.SIGTERM)
                server.wait_said("shutting down")
                self.assertEqual(server.end(), 130)

    def test_a_hang_up_while_it_starts(self):
        """SIGHUP means the keys and the logs from the first moment on."""
        process = subprocess.Popen([AVOCET, "serve", str(self.tiny), "--port", "0", "--threads",
                                    "1", *(["--no-sandbox"] if sanitized() else [])],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def holds_or_catches():
            status = Path(f"/proc/{process.pid}/status").read_text()
            masks = re.findall(r"^Sig(?:Blk|Cgt):\s*(\w+)", status, re.M)
            return any(int(mask, 16) & 1 << signal.SIGHUP - 1 for mask in masks)
        wait_until(holds_or_catches, "a server that expects SIGHUP")
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline()
        while line and b"http://" not in line:
            line = process.stderr.readline()
        self.assertIn(b"http://", line)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)

    def test_clients_that_go_free_their_place(self):
        with Serving(self.slow, "--sessions", 2) as server:
            for round_, stream in enumerate((True, False), 1):
                clients = [server.connect() for _ in range(4)]
                for client in clients:
                    client.sendall(post(completion(ENDLESS, stream=stream)))
                server.wait_submitted(4 * round_)
                for client in clients:
                    client.close()
                server.wait_idle()
            # In the middle of a long prompt, too.
            with server.connect() as client:
                client.sendall(post(completion(ENDLESS) | {"prompt": "b" * 3900}))
                server.wait_submitted(9)
            server.wait_idle()
            self.assertEqual(server.requests()["cancelled"], 9)
            self.assertEqual(server.ask("POST", "/v1/completions", completion(3))[0], 200)
            self.assertEqual(server.end(), 0)

    def test_clients_that_are_killed_or_half_open(self):
        """By their process's end, by a reset, by closing the sending side: free at once."""
        def killed(server):
            code = ("import socket, sys, time; s = socket.create_connection(('127.0.0.1', "
                    f"{server.port})); s.sendall({post(completion(ENDLESS, stream=True))!r}); "
                    "s.recv(100); print('reads', flush=True); time.sleep(600)")
            with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
                self.assertEqual(process.stdout.readline(), b"reads\n")
                process.kill()

        def reset(server):
            client = server.connect()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(post(completion(ENDLESS, stream=True)))
            client.recv(100)
            client.close()

        def half_open(server):
            client = server.connect()
            self.addCleanup(client.close)
            client.sendall(post(completion(ENDLESS, stream=True)))
            client.recv(100)
            client.shutdown(socket.SHUT_WR)

        log = self.folder / "gone.jsonl"
        with Serving(self.slow, "--sessions", 1, "--access-log", log) as server:
            for number, leave in enumerate((killed, reset, half_open), 1):
                leave(server)
                server.wait_idle()
                wait_until(lambda: log.read_text().count('"end":"client gone"') == number, leave)
                self.assertEqual(server.ask("POST", "/v1/completions", completion(3))[0], 200)
            self.assertEqual(server.end(), 0)
        for line in map(json.loads, log.read_text().splitlines()):
            if line["end"] == "client gone":
                self.assertLess(line["usage"]["new_tokens"], ENDLESS, line)

    def test_clients_that_do_not_wait_for_anything(self):
        with Serving(self.slow, "--sessions", 2) as server:
            for i in range(40):
                with server.connect() as client:
                    client.sendall(post(completion(ENDLESS, stream=i % 2 == 0, n=2)))
            server.wait_idle()
            self.assertEqual(server.end(), 0)

    @unittest.skipIf(sanitized(), "megabytes of events fill the sockets first")
    def test_slow_readers_harm_nobody(self):
        with Serving(self.slow, "--max-unread", 16) as server:
            slow = server.connect()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            slow.sendall(post(completion(ENDLESS, stream=True, n=4, logprobs=5)))  # large events
            answer = server.ask("POST", "/v1/completions", completion(50))
            self.assertEqual(answer[0], 200)
            server.wait_idle()
            slow.close()
            self.assertEqual(server.end(), 0)

    def test_a_device_that_fails_for_good(self):
        """Every request ends at once with the device's error, /health says so, and the server ends
        without waiting for anything."""
        with Serving(self.tiny, "--device", "remote:lost=60", "--drain-seconds",
                     PATIENCE) as server:
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            answers = []
            while len(answers) < 100 and answers[-3:] != [500] * 3:
                status, _, data = server.ask("POST", "/v1/completions", completion(8))
                self.assertIn(status, (200, 500), data)
                if status == 500:
                    self.assertEqual(json.loads(data)["error"]["code"], "device_failed")
                answers.append(status)
            self.assertEqual(answers[-3:], [500] * 3)
            for path in "/health", "/ready":
                wait_until(lambda path=path: server.ask("GET", path)[0] == 503)
                status = json.loads(server.ask("GET", path)[2])["status"]
                self.assertEqual(status, "device_failed")
            begin = time.monotonic()
            self.assertEqual(server.end(), 0)
            self.assertLess(time.monotonic() - begin, PATIENCE / 2)

    def test_systemd(self):
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notices.bind(str(self.folder / "notify"))
        notices.settimeout(PATIENCE)
        listener = socket.create_server(("127.0.0.1", 0))
        launch = (f"import os; os.dup2({listener.fileno()}, 3); "
                  f"os.environ['LISTEN_PID'] = str(os.getpid()); "
                  f"os.execv('{AVOCET}', ['avocet', 'serve', '{self.tiny}'])")
        with Serving(None, command=[sys.executable, "-c", launch], keep=listener, environment={
                "LISTEN_FDS": "1", "NOTIFY_SOCKET": str(self.folder / "notify"),
                "WATCHDOG_USEC": "300000"}) as server:
            self.assertEqual(server.port, listener.getsockname()[1])
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            self.assertIn(b"READY=1", notices.recv(1000))
            for _ in range(3):
                self.assertEqual(notices.recv(1000), b"WATCHDOG=1")
            server.process.send_signal(signal.SIGTERM)
            while b"STOPPING=1" not in notices.recv(1000):
                pass
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)
        notices.close()
        listener.close()

    def test_the_real_socket_activation(self):
        """systemd's own program holds the socket and starts the server when a client comes."""
        if shutil.which("systemd-socket-activate") is None:
            self.skipTest("SKIPPED: systemd-socket-activate is not here (apt-get install systemd)")
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        process = subprocess.Popen(["systemd-socket-activate", "-l", f"127.0.0.1:{port}", AVOCET,
                                    "serve", self.tiny], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        try:
            self.assertIn(b"Listening", process.stderr.readline())
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                client.sendall(post(completion(3)))  # waits in the queue of the socket
                self.assertEqual(read_answer(client)[0], 200)
            lines = []  # it may answer before it says where it is
            while not any(f"at http://127.0.0.1:{port}\n" in line for line in lines):
                lines.append(process.stderr.readline().decode())
                self.assertTrue(lines[-1], "".join(lines))
            process.send_signal(signal.SIGTERM)  # it has become the server
            said = process.communicate(timeout=PATIENCE)[1].decode()
            self.assertEqual(process.returncode, 0, "".join(lines) + said)
        finally:
            process.kill()
            process.wait()

    def test_the_sandbox_holds_all_threads(self):
        with Serving(self.tiny) as server:
            banner = "".join(server.lines)
            if "Landlock (" not in banner or "seccomp" not in banner:
                self.skipTest("SKIPPED: this kernel has no Landlock or no seccomp: " + banner)
            threads = os.listdir(f"/proc/{server.process.pid}/task")
            self.assertGreater(len(threads), 4)
            for thread in threads:
                facts = Path(f"/proc/{server.process.pid}/task/{thread}/status").read_text()
                self.assertIn("Seccomp:\t2", facts)
                self.assertIn("NoNewPrivs:\t1", facts)
            self.assertEqual(server.end(), 0)

    def test_kernels_without_landlock(self):
        """The banner says so, and the rest of the sandbox stands."""
        for reason in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            with Serving(None, command=refusing({LANDLOCK_CREATE_RULESET: reason}, AVOCET, "serve",
                                                self.tiny, "--port", 0)) as server:
                self.assertRegex(server.lines[-1], r"no Landlock \(" + os.strerror(reason) +
                                 r"\): file access is not restricted, seccomp")
                self.assertEqual(server.ask("POST", "/v1/completions", completion(3))[0], 200)
                self.assertEqual(server.end(), 0)

    def test_a_sandbox_that_is_refused(self):
        """Half a confinement is none that was asked for: it does not start, and says what helps."""
        for call, name in ((SECCOMP, "seccomp"), (LANDLOCK_RESTRICT_SELF, "Landlock")):
            for reason in (errno.EPERM, errno.ENOSYS):
                def command(*flags, call=call, reason=reason):
                    return refusing({call: reason}, AVOCET, "serve", self.tiny, "--port", 0, *flags)
                with self.assertRaisesRegex(AssertionError,
                                            f"sandbox: {name} failed: .*; use --no-sandbox"):
                    Serving(None, command=command())
                with Serving(None, command=command("--no-sandbox")) as server:
                    self.assertEqual(server.ask("POST", "/v1/completions", completion(3))[0], 200)

    def test_adapters_load_inside_the_sandbox_and_nothing_else_does(self):
        root = self.folder / "adapters"
        root.mkdir()
        tiny_model.write_adapter(root / "good", 1)
        tiny_model.write_adapter(self.folder / "outside", 2)
        (root / "way-out").symlink_to(self.folder / "outside")
        with Serving(self.tiny, "--adapter-root", root, "--allow-adapter-loading") as server:
            def load(name, path):
                return server.ask("POST", "/v1/load_lora_adapter",
                                  {"lora_name": name, "lora_path": str(path)})
            self.assertEqual(load("good", "good")[0], 200)
            for path in ("way-out", "../outside", self.folder / "outside", "/etc", "absent"):
                answer = load("bad", path)
                self.assertTrue(400 <= answer[0] < 500, (path, answer))
            answer = server.ask("POST", "/v1/completions", completion(5, model="good"))
            self.assertEqual(answer[0], 200, answer)
        with Serving(self.tiny, "--adapter-root", root) as server:  # not allowed: not done
            answer = server.ask("POST", "/v1/load_lora_adapter",
                                {"lora_name": "good", "lora_path": "good"})
            self.assertIn(answer[0], (401, 403))

    def test_telemetry_and_trace_are_written(self):
        place = self.folder / "written"
        place.mkdir()
        with Serving(self.tiny, "--telemetry", place / "t.csv", "--telemetry-seconds", 0.1,
                     "--trace", place / "trace.json") as server:
            self.assertEqual(server.ask("POST", "/v1/completions", completion(9))[0], 200)
            wait_until((place / "t.csv").exists)
            self.assertEqual(server.end(), 0)
        self.assertRegex((place / "t.csv").read_text(), r"\Atime,uptime_seconds,.*\n20.*\n")
        events = json.loads((place / "trace.json").read_text())["traceEvents"]
        self.assertGreater(len(events), 10)

    def test_a_draft_corpus_is_kept(self):
        """Written at the end, inside the sandbox, and read at the next start."""
        place = self.folder / "kept"
        place.mkdir()
        corpus = place / "drafts"
        sizes = []
        for _ in range(2):
            with Serving(self.tiny, "--draft-corpus", corpus) as server:
                self.assertEqual(server.ask("POST", "/v1/completions", completion(30))[0], 200)
                self.assertEqual(server.end(), 0)
            sizes.append(corpus.stat().st_size)
            self.assertEqual(corpus.stat().st_mode & 0o777, 0o600)
        self.assertGreater(sizes[0], 128 + 30 * 4)
        self.assertGreater(sizes[1], sizes[0])
        self.assertEqual(os.listdir(place), ["drafts"])
        corpus.write_bytes(corpus.read_bytes()[:-3])
        for flags, said in (([], b"must have"), (["--speculate", "off"], b'"corpus"')):
            done = subprocess.run([AVOCET, "serve", self.tiny, "--port", "0", "--draft-corpus",
                                   corpus, *flags], capture_output=True, timeout=PATIENCE,
                                  check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def test_an_idle_server_uses_no_processor(self):
        """Worker threads that went on spinning would use whole processors; a tenth of one is more
        than timers need, however loaded the machine is."""
        def used_seconds(process):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        with Serving(self.tiny, "--threads", 4) as server:
            for _ in range(3):
                self.assertEqual(server.ask("POST", "/v1/completions", completion(20))[0], 200)
            time.sleep(0.5)
            before = used_seconds(server.process)
            time.sleep(2)
            self.assertLess(used_seconds(server.process) - before, 0.2)

    def test_no_thread_of_an_idle_server_wakes_up(self):
        """Not even with a client connected; sleeping threads switch no more on a busy machine."""
        def switches(process):
            counts = {}
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                fields = dict(line.split(":", 1) for line in
                              (task / "status").read_text().splitlines())
                counts[task.name] = int(fields["voluntary_ctxt_switches"])
            return counts
        with Serving(self.tiny, "--threads", 4, "--stall-seconds", 1) as server:
            with server.connect() as client:
                for _ in range(3):
                    client.sendall(post(completion(20)))
                    self.assertEqual(read_answer(client)[0], 200)
                seen = [switches(server.process)]
                def settled():
                    time.sleep(0.5)
                    seen.append(switches(server.process))
                    return seen[-1] == seen[-2]
                wait_until(settled, "all threads to sleep")
                time.sleep(3)
                after = switches(server.process)
                woken = {task: count - seen[-1].get(task, 0) for task, count in after.items()}
                self.assertTrue(all(count <= 1 for count in woken.values()), woken)
                # Being idle for longer than --stall-seconds is not a stall.
                client.sendall(head("GET", "/health"))
                self.assertEqual(read_answer(client)[0], 200)
                client.sendall(post(completion(20)))
                self.assertEqual(read_answer(client)[0], 200)

    def test_the_sandbox_can_be_left_out(self):
        with Serving(self.tiny, "--no-sandbox") as server:
            self.assertIn("off (--no-sandbox)", "".join(server.lines))
            self.assertEqual(server.ask("POST", "/v1/completions", completion(3))[0], 200)


if __name__ == "__main__":
    unittest.main()
