"""avocet.ray on a real Ray with two replicas: answers, streams, adapters, affinity, a replica that
is killed under load, autoscaling. Not part of the package's own suite: `make test-ray` runs it.
Says that it is skipped where Ray is not installed.

    AVOCET=build/avocet AVOCET_LIBRARY=build/libavocet.so python bindings/python/tests/ray_serve.py
"""
import importlib.util
import json
import os
import signal
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
if importlib.util.find_spec("ray") is None:
    print('skipped: Ray is not installed (pip install "ray[serve]")')
    sys.exit(77)

import chat_model  # noqa: E402
import tiny_model  # noqa: E402
from api_server import Server  # noqa: E402
from command import AVOCET, PATIENCE  # noqa: E402
from ray_replicas import Replicas  # noqa: E402

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ARGUMENTS = "--name tiny --threads 1 --sessions 4 --ctx 2048 --speculate off"


def say(text):
    print(text, file=sys.stderr, flush=True)


def engines():
    """Process ids of all `avocet serve` that Ray's workers have started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if len(words) > 4 and words[1] == b"serve" and b"avocet-replica-" in words[4]:
                found.append(int(entry.name))
    return sorted(found)


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-ray-")
        folder = Path(cls.scratch.name)
        (folder / "model").mkdir()
        (folder / "adapters").mkdir()
        cls.model = chat_model.write_random_model(folder / "model")
        for number, name in enumerate(("one", "two", "three"), 1):
            tiny_model.write_adapter(folder / "adapters" / name, number)
        cls.options = {"model": str(cls.model), "arguments": ARGUMENTS, "command": AVOCET,
                       "adapter_root": str(folder / "adapters")}
        begin = time.monotonic()
        cls.ray = Replicas()
        say(f"Ray began after {time.monotonic() - begin:.1f} s")

    @classmethod
    def tearDownClass(cls):
        cls.ray.__exit__()
        cls.scratch.cleanup()

    def deploy(self, **options):
        begin = time.monotonic()
        self.ray.deploy(**{**self.options, **options})
        say(f"{self.id().rsplit('.', 1)[1]}: replicas ready after {time.monotonic() - begin:.1f} s")

    def tearDown(self):
        """Removing the application ends every engine."""
        self.ray.remove()
        end = time.monotonic() + PATIENCE
        while engines():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def alone(self, bodies):
        """What one `avocet serve` answers."""
        with Server(self.model, *ARGUMENTS.split(), "--adapter-root", self.options["adapter_root"],
                    *(word for name in ("one", "two", "three")
                      for word in ("--adapter", f"{name}={name}"))) as server:
            return [server.post(path, body)["choices"] for path, body in bodies]

    def test_1_answers(self):
        """Those of one server, whatever the replica; adapters are loaded when asked for."""
        self.deploy(replicas=2, adapters_max=1)
        bodies = [(TEXT, {"prompt": f"number {number}", "max_tokens": 8, "seed": number,
                          "model": model})
                  for number, model in enumerate(("tiny", "one", "two", "one", "three", "tiny"))]
        bodies.append((CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8,
                              "seed": 1, "model": "two"}))
        wanted = self.alone(bodies)
        replicas = set()
        for turn in range(2):
            for (path, body), choices in zip(bodies, wanted):
                said, replica = self.ray.post(path, body)
                self.assertEqual(said["choices"], choices)
                replicas.add(replica)
        self.assertEqual(len(replicas), 2)
        self.assertNotEqual(wanted[0][0]["text"], wanted[1][0]["text"])
        names = [model["id"] for model in json.loads(self.ray.ask("/v1/models")[2])["data"]]
        self.assertEqual(sorted(names), ["one", "three", "tiny", "two"])
        for path, body, status, code in (
                (TEXT, {"prompt": 3}, 400, None),
                (TEXT, {"prompt": "a", "model": "four"}, 404, None),
                ("/v1/load_lora_adapter", {"lora_name": "x"}, 404, "not_found")):
            got, _, said = self.ray.ask(path, body)
            self.assertEqual(got, status, said)
            problem = json.loads(said)["error"]
            self.assertTrue(problem["message"] and (code is None or problem["code"] == code))
        self.streams()
        self.affinities()

    def streams(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "seed": 3}
        whole = self.ray.post(CHAT, body)[0]["choices"][0]["message"]["content"]
        _, events = self.ray.first_token(CHAT, body)
        lines = [line[6:] for line in events.decode().split("\n\n") if line.startswith("data: ")]
        self.assertEqual(lines[-1], "[DONE]")
        text = "".join(json.loads(line)["choices"][0]["delta"].get("content") or ""
                       for line in lines[:-1])
        self.assertEqual(text, whole)
        if importlib.util.find_spec("openai"):
            import openai
            with openai.OpenAI(base_url=f"http://127.0.0.1:{self.ray.port}/v1", api_key="none",
                               max_retries=0) as client:
                pieces = client.chat.completions.create(model="tiny", stream=True, **body)
                self.assertEqual("".join(piece.choices[0].delta.content or "" for piece in pieces
                                         if piece.choices), whole)

    def affinities(self):
        """Conversations stay where their prefix is, and so do adapters."""
        homes, cached = {}, 0
        for turn in range(3):
            for number in range(4):
                text = f"{number} " * 300 + "and then " * turn
                said, replica = self.ray.post(TEXT, {"prompt": text, "max_tokens": 1})
                self.assertEqual(homes.setdefault(number, replica), replica)
                details = said["usage"].get("prompt_tokens_details") or {}
                cached += details.get("cached_tokens", 0)
        self.assertGreater(cached, 4 * 2 * 500)
        where = {self.ray.post(TEXT, {"prompt": f"{turn}", "model": "two", "max_tokens": 1})[1]
                 for turn in range(6)}
        self.assertEqual(len(where), 1)

    def test_2_a_replica_killed_under_load(self):
        """No request that had not begun to stream is lost; the answers are what they would have
        been."""
        self.deploy(replicas=2, adapter_root=None)
        bodies = [{"prompt": f"story {number}", "max_tokens": 300, "ignore_eos": True,
                   "seed": number} for number in range(24)]
        wanted = self.alone([(TEXT, body) for body in bodies])
        answers, begun = [None] * len(bodies), threading.Semaphore(0)

        def ask(number):
            begun.release()
            answers[number] = self.ray.ask(TEXT, bodies[number])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
        for thread in threads:
            thread.start()
        for _ in threads:
            begun.acquire()
        running = engines()
        self.assertEqual(len(running), 2)
        while sum(answer is not None for answer in answers) < 2:
            time.sleep(0.01)
        left = sum(answer is None for answer in answers)
        os.kill(running[0], signal.SIGKILL)
        for thread in threads:
            thread.join()
        say(f"killed a replica with {left} of {len(bodies)} requests unanswered")
        self.assertGreater(left, 0)
        for number, (status, headers, said) in enumerate(answers):
            self.assertEqual(status, 200, said)
            self.assertEqual(json.loads(said)["choices"], wanted[number])
        end = time.monotonic() + PATIENCE
        while len(engines()) < 2:  # Serve starts another one
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_3_more_replicas_where_requests_wait(self):
        self.deploy(replicas=1, replicas_max=2, target_requests=1, upscale_seconds=0,
                    metrics_seconds=0.5, look_back_seconds=2, adapter_root=None)
        self.assertEqual(len(engines()), 1)
        replicas, ends = set(), threading.Event()

        def ask(number):
            while not ends.is_set():
                replicas.add(self.ray.post(TEXT, {"prompt": f"{number}", "max_tokens": 200,
                                                  "ignore_eos": True})[1])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        try:
            while len(replicas) < 2 and time.monotonic() - begin < PATIENCE:
                time.sleep(0.1)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        say(f"a second replica answered after {time.monotonic() - begin:.1f} s")
        self.assertEqual(len(replicas), 2)


if __name__ == "__main__":
    unittest.main()
