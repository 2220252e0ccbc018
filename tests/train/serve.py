"""`avocet train --serve`: a server beside the training answers with the adapter as it is, changes
no bit of it, and comes and goes with it."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

import certificates
from api_server import sanitized
from command import FAILED, GOOD, INTERRUPTED, PATIENCE, ROOT, call, start, wait_until

DEMO = ROOT / "models/demo.avo"
ADAPTER = "adapter_model.safetensors"
CONSTANT = ("--schedule", "constant")  # the steps do not depend on how many there will be
TEXTS = ["The duck went to the hill and saw a red boat.", "A cat is a cat is a cat."]
LIVE = re.compile(r'(https?://[\d.]+:(\d+)) has the adapter of step (\d+) as "([^"]+)"')


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-train-serve-")
        cls.root = Path(cls.scratch.name)
        cls.data = cls.root / "texts.jsonl"
        cls.data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        cls.config = cls.root / "serve.json"
        cls.config.write_text(json.dumps({"sessions": 2, "threads": 1, "name": "toy",
                                          "no_sandbox": sanitized()}))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def arguments(self, output, steps, *more):
        return ["train", "sft", DEMO, "--data", self.data, "-o", self.root / output, "--batch", 2,
                "--lr", 1e-3, "--threads", 1, "--save-every", 0, "--steps", steps, *more]

    def begin(self, output, steps, *more):
        """Until the server has an adapter; (process, port, what was printed)."""
        process = start(*map(str, self.arguments(output, steps, "--serve=0", "--serve-config",
                                                 self.config, *more)), stdout=subprocess.DEVNULL)
        said = []
        for line in process.stderr:
            said.append(line.decode())
            found = LIVE.search(said[-1])
            if found:
                return process, int(found[2]), said
        raise AssertionError("".join(said))

    def ask(self, port, model, context=None, key="none", status=200):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        if context is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE,
                                                     context=context)
        try:
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": model, "prompt": "The duck", "max_tokens": 16, "temperature": 0}),
                {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.assertEqual(answer.status, status, data)
        return json.loads(data)["choices"][0]["text"] if status == 200 else None

    def is_gone(self, port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    def steps_of(self, output):
        path = self.root / output / "metrics.jsonl"
        return len(path.read_bytes().splitlines()) if path.exists() else 0

    def stop(self, process):
        """With a checkpoint behind the step at hand; what it printed."""
        process.send_signal(signal.SIGINT)
        rest = "" if process.stderr.closed else process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(PATIENCE), INTERRUPTED, rest)
        return rest

    def test_no_bit_changes(self):
        """Runs with a server that are stopped after any number of steps, one whose server is asked
        and one that cannot print; and a run without a server, of as many steps."""
        forever = (1000000, "--serve-every", 3, *CONSTANT)
        process, port, said = self.begin("asked", *forever)
        self.assertIn("as \"asked\"", said[-1])
        texts = {self.ask(port, "toy")}
        self.assertIsNotNone(wait_until(lambda: len(texts) > 1 or
                                        texts.add(self.ask(port, "asked")), "another answer"))
        self.assertLessEqual(self.stop(process).count("loaded"), 1)  # for the first version alone
        wait_until(lambda: self.is_gone(port), "the end of the server")
        process = self.begin("served", *forever)[0]
        process.stderr.close()
        before = self.steps_of("served")
        wait_until(lambda: self.steps_of("served") > before + 6, "steps behind the closed pipe")
        self.stop(process)
        for steps, output in sorted((self.steps_of(output), output)
                                    for output in ("asked", "served")):
            self.assertEqual(call(*self.arguments("alone", steps, *CONSTANT, "--resume"))
                             .returncode, GOOD)
            for name in (ADAPTER, "adapter_config.json", f"checkpoint-{steps}/{ADAPTER}",
                         f"checkpoint-{steps}/optimizer.safetensors"):
                self.assertEqual((self.root / "alone" / name).read_bytes(),
                                 (self.root / output / name).read_bytes(), (output, name))

    def test_it_ends_with_the_training(self):
        for number, status in ((signal.SIGINT, INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)):
            process, port, _ = self.begin(f"ended-{number}", 1000000, *CONSTANT)
            self.ask(port, f"ended-{number}")
            process.send_signal(number)
            self.assertEqual(process.wait(PATIENCE), status)
            process.stderr.close()
            wait_until(lambda: self.is_gone(port), "the end of the server")

    def test_training_outlives_the_server(self):
        process, port, _ = self.begin("outlives", 1000000, "--serve-every", 3, *CONSTANT)
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            server = int(file.read().split()[0])
        self.ask(port, "outlives")
        signal.pidfd_send_signal(handle := os.pidfd_open(server), signal.SIGKILL)
        os.close(handle)
        rest = process.stderr.readline().decode()
        before = self.steps_of("outlives")
        wait_until(lambda: self.steps_of("outlives") > before + 6, "steps without the server")
        rest += self.stop(process)
        self.assertEqual(rest.count("the server has ended (signal 9); training goes on"), 1, rest)
        self.assertTrue((self.root / "outlives" / ADAPTER).exists())

    def test_a_server_that_cannot_start(self):
        """Known before the first step: the mistake is in what was given."""
        wrong = self.root / "wrong.json"
        wrong.write_text('{"sesions": 2}')
        done = call(*self.arguments("wrong", 5, "--serve=0", "--serve-config", wrong))
        said = done.stderr.decode()
        self.assertEqual(done.returncode, FAILED, said)
        self.assertIn('sesions', said)
        self.assertIn("the server has ended", said)
        self.assertEqual(self.steps_of("wrong"), 0)

    def test_tls_and_keys(self):
        """The run needs neither a certificate nor a key: it has the server's standard input."""
        made = certificates.make(self.root)
        if made is None:
            self.skipTest("SKIPPED: openssl is not here (apt-get install openssl)")
        keys = self.root / "keys.json"
        keys.write_text('{"keys": [{"name": "guest", "key": "guest-key-1"}]}')
        keys.chmod(0o600)
        safe = self.root / "safe.json"
        safe.write_text(json.dumps({**json.loads(self.config.read_text()), "keys": str(keys),
                                    "tls_cert": str(made[0]), "tls_key": str(made[1])}))
        process, port, _ = self.begin("safe", 1000000, *CONSTANT, "--serve-config", safe)
        context = ssl.create_default_context(cafile=made[0])
        self.ask(port, "safe", context=context, key="guest-key-1")
        self.ask(port, "safe", context=context, status=401)
        self.stop(process)

    def test_refusals(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for arguments, text in (
                    ([f"--serve={port}"], "Address already in use; choose another port"),
                    (["--serve=x"], "must be PORT or HOST:PORT"),
                    (["--serve=:80"], "must be PORT or HOST:PORT"),
                    (["--serve=127.0.0.1:70000"], "must be PORT or HOST:PORT"),
                    (["--serve", "--full"], "needs an adapter"),
                    (["--serve", "--publish", "http://x"], "not both"),
                    (["--serve-config", "x"], "need --serve")):
                done = call(*self.arguments("refused", 1, *arguments))
                self.assertEqual(done.returncode, FAILED, done.stderr)
                self.assertIn(text, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
