"""`avocet train --publish`: a running server has the adapter while it is trained, requests keep the
version that they began with, and nothing that goes wrong there stops the training."""
import json
import os
import tempfile
import unittest
from pathlib import Path

import certificates
import tiny_model
from api_server import Server
from command import GOOD, ROOT, FAILED, call

DEMO = ROOT / "models/demo.avo"
COMPLETIONS = "/v1/completions"
ADAPTER = "adapter_model.safetensors"
TEXTS = ["The duck went to the hill and saw a red boat.", "A cat is a cat is a cat."]
KEYS = {"keys": [{"name": "boss", "key": "boss-key-1", "admin": True},
                 {"name": "guest", "key": "guest-key-2"}]}


class Publishing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-publish-")
        cls.root = Path(cls.scratch.name)
        cls.data = cls.root / "texts.jsonl"
        cls.data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def train(self, output, *more, status=GOOD, key=None, authorities=None):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("AVOCET_API_KEY", "SSL_CERT_FILE")}
        if key:
            environment["AVOCET_API_KEY"] = key
        if authorities:
            environment["SSL_CERT_FILE"] = str(authorities)
        done = call("train", "sft", DEMO, "--data", self.data, "-o", self.root / output, "--batch",
                    2, "--lr", 1e-2, "--threads", 1, *more, env=environment)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done.stderr.decode()

    def serve(self, *more, model=DEMO):
        return Server(model, "--adapter-root", self.root, "--threads", 1,
                      *(more or ["--allow-adapter-loading"]))

    def text(self, server, model, **body):
        told = server.post(COMPLETIONS, {"model": model, "prompt": "The duck", "max_tokens": 24,
                                         "temperature": 0, **body})
        return told["choices"][0]["text"]

    def test_answers_change(self):
        log = self.root / "access.jsonl"
        with self.serve("--allow-adapter-loading", "--access-log", log) as server:
            said = self.train("mine", "--steps", 1, "--save-every", 1, "--publish", server.url)
            self.assertIn(f'{server.url} has the adapter of step 1 as "mine"', said)
            first = self.text(server, "mine")
            said = self.train("mine", "--steps", 40, "--save-every", 30, "--schedule", "constant",
                              "--publish-every", 10, "--publish", f"{server.url}/v1=mine",
                              "--resume", status=FAILED)  # other settings: nothing is published
            self.assertEqual(first, self.text(server, "mine"))
            said = self.train("more", "--steps", 40, "--save-every", 30, "--publish-every", 10,
                              "--publish", f"{server.url}/v1=mine")
            self.assertNotIn("loaded", said)
            last = self.text(server, "mine")
            self.assertNotEqual(first, last)
            self.assertTrue(last.startswith(" went to the hill"), last)
            self.assertNotEqual(self.text(server, "demo"), last)
        loads = [line for line in map(json.loads, log.read_text().splitlines())
                 if line["path"] == "/v1/load_lora_adapter"]
        self.assertEqual([line["status"] for line in loads], [200] * 5)  # 1; 10, 20, 30, 40
        alone = call("run", DEMO, "The duck", "--raw", "-n", 24, "--temperature", 0, "--adapter",
                     f"mine={self.root / 'more'}", "--adapter-type", "q8")
        self.assertEqual(alone.stdout.decode().rstrip("\n"), last.rstrip("\n"))
        self.train("alone", "--steps", 40, "--save-every", 30)
        self.assertEqual((self.root / "alone" / ADAPTER).read_bytes(),
                         (self.root / "more" / ADAPTER).read_bytes())

    def test_requests_keep_their_version(self):
        self.train("old", "--steps", 3)
        self.train("new", "--steps", 20)
        body = {"model": "kept", "prompt": "The duck", "max_tokens": 400, "ignore_eos": True,
                "temperature": 0, "n": 4, "stream": True}
        live = self.root / "kept"
        live.mkdir()

        def put(name):
            """As training does it: the file is replaced, then loaded."""
            for part in (ADAPTER, "adapter_config.json"):
                fresh = live / f".{part}"
                fresh.write_bytes((self.root / name / part).read_bytes())
                fresh.rename(live / part)
            self.assertEqual(server.ask("POST", "/v1/load_lora_adapter",
                                        {"lora_name": "kept", "lora_path": str(live)})[0], 200)

        def texts(data):
            found = [""] * body["n"]
            for line in data.decode().splitlines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        found[choice["index"]] += choice["text"]
            return found
        with self.serve() as server:
            put("old")
            old = texts(server.ask("POST", COMPLETIONS, body)[2])
            put("new")
            new = texts(server.ask("POST", COMPLETIONS, body)[2])
            self.assertNotEqual(old, new)
            for _ in range(50):
                put("old")
                connection = server.connect()
                connection.request("POST", COMPLETIONS, json.dumps(body),
                                   {"Content-Type": "application/json"})
                answer = connection.getresponse()
                begin = answer.readline()
                put("new")
                running = server.get("/health")["running"] > 0
                self.assertEqual(texts(begin + answer.read()), old)
                connection.close()
                if running:
                    break
            else:
                self.fail("no answer was running when the adapter was replaced")
            self.assertEqual(texts(server.ask("POST", COMPLETIONS, body)[2]), new)

    def test_keys(self):
        keys = self.root / "keys.json"
        keys.write_text(json.dumps(KEYS))
        keys.chmod(0o600)
        with self.serve("--keys", keys) as server:
            few = ["--steps", 2, "--publish", f"{server.url}=locked"]
            said = self.train("k1", *few)
            self.assertIn("answered 401", said)
            self.assertIn("administrator's key", said)
            self.assertIn("needs an admin key", self.train("k2", *few, key="guest-key-2"))
            self.assertIn('step 2 as "locked"', self.train("k3", *few, key="boss-key-1"))
            self.assertIn('step 2 as "locked"',
                          self.train("k4", *few, "--publish-key", "boss-key-1", key="wrong"))

    def test_tls(self):
        made = certificates.make(self.root)
        if made is None:
            self.skipTest("SKIPPED: openssl is not here (apt-get install openssl)")
        with self.serve("--allow-adapter-loading", "--tls-cert", made[0], "--tls-key",
                        made[1]) as server:
            few = ["--steps", 2, "--publish", f"{server.url}=safe"]
            self.assertTrue(server.url.startswith("https://"))
            self.assertIn("certificate", self.train("t1", *few))  # of nobody that is trusted
            self.assertIn('step 2 as "safe"', self.train("t2", *few, "--publish-ca", made[0]))
            self.assertIn('step 2 as "safe"', self.train("t3", *few, authorities=made[0]))

    def test_faults_are_warnings(self):
        with Server(DEMO, "--threads", 1) as server:
            gone = server.url
            said = self.train("w1", "--steps", 3, "--save-every", 1, "--publish", server.url)
            self.assertEqual(said.count("--publish:"), 1, said)  # once, not for every checkpoint
            self.assertIn("--allow-adapter-loading", said)
        said = self.train("w2", "--steps", 3, "--publish", gone)
        self.assertIn("onnect", said)
        self.assertIn("training goes on", said)
        self.assertTrue((self.root / "w2" / ADAPTER).exists())
        with self.serve(model=tiny_model.write(self.root)) as server:
            said = self.train("w3", "--steps", 2, "--publish", server.url)
            self.assertIn("whose weights differ", said)
            self.assertIn("answered 400", said)
        with tempfile.TemporaryDirectory() as other, \
                Server(DEMO, "--threads", 1, "--adapter-root", other,
                       "--allow-adapter-loading") as server:
            said = self.train("w4", "--steps", 2, "--publish", server.url)
            self.assertIn("leaves the adapter root", said)
        with self.serve() as server:
            said = self.train("w5", "--steps", 2, "--publish", f"{server.url}=by-path",
                              "--publish-path", "w5")
            self.assertIn('as "by-path"', said)
            self.assertIn("invalid adapter name",
                          self.train("w6", "--steps", 2, "--publish", f"{server.url}=no name"))

    def test_refusals(self):
        for arguments, text in (
                (["--publish", "localhost:80"], "must begin with http:// or https://"),
                (["--publish", "http://x="], "name is missing"),
                (["--publish", "http://x", "--full"], "needs an adapter"),
                (["--publish-every", 2], "need --publish"),
                (["--publish", "http://" + "x" * 3000], "too long"),
                (["--publish-ca", "x"], "need --publish"),
                (["--publish-key", "x"], "need --publish")):
            self.assertIn(text, self.train("refused", "--steps", 1, *arguments, status=FAILED))


if __name__ == "__main__":
    unittest.main()
