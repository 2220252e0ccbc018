"""Adapters and keys at the endpoints: chosen by model, weights and numbers, loaded and unloaded
under way, hidden from keys that may not; caches are not shared between keys."""
import json
import tempfile
import unittest
from pathlib import Path

import tiny_model
from api_server import Server
from command import call

TEXT = "/v1/completions"
KEYS = {"keys": [{"name": "boss", "key": "boss-key-1", "admin": True},
                 {"name": "one", "key": "one-key-22", "adapters": ["one", "base"]},
                 {"name": "only", "key": "only-key-3", "adapters": ["two"]}]}


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-api-adapters-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.root = cls.folder / "adapters"
        cls.root.mkdir()
        cls.one = tiny_model.write_adapter(cls.root / "one", 1)
        cls.two = tiny_model.write_adapter(cls.root / "two", 2)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def serve(self, *arguments):
        return Server(self.model, "--name", "tiny", "--threads", "1", "--adapter-root", self.root,
                      "--adapter", "one=one", *arguments)

    def alone(self, *flags):
        done = call("run", self.model, "hello", "--raw", "--json", "-n", "12", "--threads", "1",
                    "--temperature", "0", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["text"]

    def text(self, server, headers=None, **body):
        told = server.post(TEXT, {"prompt": "hello", "max_tokens": 12, "temperature": 0, **body},
                           headers=headers)
        return told["choices"][0]["text"]

    def test_chosen_in_three_ways(self):
        base, one = self.alone(), self.alone("--adapter", f"one={self.one}")
        half = self.alone("--adapter", f"one={self.one}:0.5", "--adapter", f"two={self.two}:0.5")
        self.assertNotEqual(base, one)
        with self.serve("--allow-adapter-loading") as server:
            self.assertEqual(self.text(server), base)
            self.assertEqual(self.text(server, model="one"), one)
            self.assertEqual(self.text(server, adapters=[{"name": "one"}]), one)
            status, _, said = server.ask("POST", "/v1/load_lora_adapter",
                                         {"lora_name": "two", "lora_path": "two"})
            self.assertEqual((status, said[:8]), (200, b"Success:"))
            self.assertEqual([model["id"] for model in server.get("/v1/models")["data"]],
                             ["tiny", "one", "two"])
            both = [{"name": "one", "weight": 0.5}, {"name": "two", "weight": 0.5}]
            self.assertEqual(self.text(server, adapters=both), half)
            numbers = {entry["name"]: entry["id"] for entry in server.get("/lora-adapters")}
            self.assertEqual(self.text(server, lora=[{"id": numbers["one"], "scale": 0.5},
                                                     {"id": numbers["two"], "scale": 0.5}]), half)
            server.post("/lora-adapters", [{"id": numbers["one"], "scale": 1}])
            self.assertEqual(self.text(server), one)
            self.assertEqual(self.text(server, adapters=[]), base)
            server.post("/lora-adapters", [])
            self.assertEqual(self.text(server), base)
            status, _, _ = server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "two"})
            self.assertEqual(status, 200)
            error = server.post(TEXT, {"prompt": "a", "model": "two"}, 404)["error"]
            self.assertEqual((error["param"], error["code"]), ("model", "model_not_found"))
            self.assertIn("tiny, one", error["message"])

    def test_numbers(self):
        """The command line's order, as in llama.cpp, then as they come; a name keeps its own."""
        for name in ("zebra", "mouse", "ant"):
            tiny_model.write_adapter(self.root / name, 3)
        with Server(self.model, "--name", "tiny", "--threads", "1", "--adapter-root", self.root,
                    "--adapter", "zebra=zebra", "--adapter", "mouse=mouse",
                    "--allow-adapter-loading") as server:
            def numbers():
                return [(entry["id"], entry["name"]) for entry in server.get("/lora-adapters")]

            def change(what, name, path=None):
                body = {"lora_name": name} | ({"lora_path": path} if path else {})
                self.assertEqual(server.ask("POST", f"/v1/{what}_lora_adapter", body)[0], 200)
            self.assertEqual(numbers(), [(0, "zebra"), (1, "mouse")])
            change("load", "two", "two")
            change("load", "ant", "ant")
            self.assertEqual(numbers(), [(0, "zebra"), (1, "mouse"), (2, "two"), (3, "ant")])
            change("unload", "mouse")
            self.assertEqual(numbers(), [(0, "zebra"), (2, "two"), (3, "ant")])
            error = server.post(TEXT, {"prompt": "a", "lora": [{"id": 1, "scale": 1}]}, 404)
            self.assertEqual(error["error"]["param"], "lora")
            change("load", "one", "one")
            change("load", "mouse", "mouse")
            self.assertEqual(numbers(), [(0, "zebra"), (1, "mouse"), (2, "two"), (3, "ant"),
                                         (4, "one")])
            self.assertEqual(self.text(server, lora=[{"id": 2, "scale": 1}]),
                             self.text(server, model="two"))

    def test_refused(self):
        with self.serve("--allow-adapter-loading") as server:
            for path, body, status in (
                    ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "../model.bin"}, 400),
                    ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "nothing"}, 404),
                    ("/v1/load_lora_adapter", {"lora_name": "tiny", "lora_path": "one"}, 400),
                    ("/v1/load_lora_adapter", {"lora_name": "base", "lora_path": "one"}, 400),
                    ("/v1/load_lora_adapter", {"lora_name": "x"}, 400),
                    ("/v1/unload_lora_adapter", {"lora_name": "x"}, 404),
                    ("/lora-adapters", [{"id": 9, "scale": 1}], 400),
                    ("/lora-adapters", {"id": 0}, 400),
                    (TEXT, {"prompt": "a", "lora": [{"id": 9, "scale": 1}]}, 400),
                    (TEXT, {"prompt": "a", "adapters": [{"name": "one"}, {"name": "one"}]}, 400),
                    (TEXT, {"prompt": "a", "adapters": [{"name": "one", "weight": "x"}]}, 400),
                    (TEXT, {"prompt": "a", "model": "one", "adapters": [{"name": "one"}]}, 400)):
                got, _, said = server.ask("POST", path, body)
                self.assertEqual(got, status, (path, body, said))
                self.assertIn("error", json.loads(said))
            for body, param in (([{"id": 0, "scale": "x"}], "[0].scale"),
                                ([{"id": 0, "scale": 1}, {"id": 9, "scale": 1}], "[1].id"),
                                ([{"id": 0}], "[0]"),
                                ([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}], "id")):
                error = server.post("/lora-adapters", body, 400)["error"]
                self.assertEqual(error["param"], param)
            error = server.post(TEXT, {"prompt": "a", "lora": [{"id": 9, "scale": 1}]}, 400)
            self.assertEqual(error["error"]["param"], "lora[0].id")
            error = server.post("/v1/unload_lora_adapter", {"lora_name": "x"}, 404)["error"]
            self.assertEqual(error["code"], "not_found")
            error = server.post("/v1/load_lora_adapter",
                                {"lora_name": "x", "lora_path": str(self.root.parent / "one")}, 400)
            self.assertIn("below the root", error["error"]["message"])
            self.assertEqual(server.ask("POST", "/v1/load_lora_adapter",
                                        {"lora_name": "x", "lora_path": str(self.root / "one")})[0],
                             200)
        with self.serve() as server:
            self.assertEqual(server.ask("POST", "/v1/load_lora_adapter",
                                        {"lora_name": "x", "lora_path": "one"})[0], 403)

    def test_keys(self):
        keys = self.folder / "keys.json"
        keys.write_text(json.dumps(KEYS))
        keys.chmod(0o600)
        boss, one, only = ({"Authorization": f"Bearer {entry['key']}"} for entry in KEYS["keys"])
        long = "the same beginning of a prompt, long enough for a page of the cache. " * 1
        with self.serve("--adapter", "two=two", "--keys", keys) as server:
            self.assertEqual(server.ask("GET", "/v1/models")[0], 401)

            def names(who):
                return [model["id"] for model in
                        json.loads(server.ask("GET", "/v1/models", headers=who)[2])["data"]]
            self.assertEqual(names(boss), ["tiny", "one", "two"])
            self.assertEqual(names(one), ["tiny", "one"])
            self.assertEqual(names(only), ["two"])
            error = server.post(TEXT, {"prompt": "a", "model": "two"}, 404, one)["error"]
            self.assertNotIn("two,", error["message"])
            server.post(TEXT, {"prompt": "a"}, 403, only)
            for weight, status in ((0, 403), (-0.0, 403), (1e-30, 403), (1e-50, 403), (1, 200)):
                server.post(TEXT, {"prompt": "a", "max_tokens": 1,
                                   "adapters": [{"name": "two", "weight": weight}]}, status, only)
            server.post(TEXT, {"prompt": "a", "adapters": [{"name": "one", "weight": 0}]}, 404,
                        only)
            server.post("/v1/unload_lora_adapter", {"lora_name": "one"}, 403, one)

            def cached(who, **more):
                return server.post(TEXT, {"prompt": long, "max_tokens": 1, **more},
                                   headers=who)["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertEqual(cached(one), 0)
            self.assertGreater(cached(one), 0)
            self.assertEqual(cached(boss), 0)  # another key: nothing is told by its speed
            self.assertEqual(cached(one, cache_salt="other"), 0)


if __name__ == "__main__":
    unittest.main()
