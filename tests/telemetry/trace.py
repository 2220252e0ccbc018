"""`avocet run --trace` on a tiny model: JSON that tracing pages read, threads with names, spans
that nest, arrows that begin and end."""
import json
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, GOOD, call

PHASES = {"embed", "attention_input", "attention", "attention_output", "feed_forward_input",
          "feed_forward_output", "head"}


def spans_by_thread(events):
    threads = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault(event["tid"], []).append(event)
    return threads


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-trace-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def trace(self, *arguments):
        path = self.folder / "trace.json"
        done = call("run", self.model, "--trace", path, *arguments)
        self.assertEqual(done.returncode, GOOD, done.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]

    def check_nesting(self, events):
        """Any two spans of a thread lie one within the other or apart; nanoseconds are exact."""
        for spans in spans_by_thread(events).values():
            edges = sorted(((round(s["ts"] * 1000), round((s["ts"] + s["dur"]) * 1000), s["name"])
                            for s in spans), key=lambda e: (e[0], -e[1]))
            open_spans = []
            for begin, end, name in edges:
                while open_spans and open_spans[-1][0] <= begin:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(end, open_spans[-1][0], (name, open_spans[-1]))
                open_spans.append((end, name))

    def check_names(self, events):
        named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        self.assertEqual(set(spans_by_thread(events)) - named, set())

    def test_one_prompt(self):
        events = self.trace("once upon a time", "-n", "8", "-t", "2", "--ignore-eos",
                            "--speculate", "off")
        self.check_nesting(events)
        self.check_names(events)
        names = {e["name"] for e in events if e["ph"] == "X"}
        self.assertLessEqual(PHASES | {"step", "sample", "deliver"}, names)
        steps = [e for e in events if e["ph"] == "X" and e["name"] == "step"]
        self.assertEqual(len(steps), 8)
        self.assertEqual([s["args"]["decode"] for s in steps], [0] + [1] * 7)
        self.assertGreater(steps[0]["args"]["prefill"], 1)
        # the leader embeds a few rows alone; other phases are anybody's
        embeds = [e for e in events if e["name"] == "embed"]
        self.assertEqual(len(embeds), 8)
        self.assertEqual({e["tid"] for e in embeds}, {s["tid"] for s in steps})
        layers = [e["args"]["layer"] for e in events if e["name"] == "attention"]
        self.assertGreater(len(set(layers)), 1)
        pairs = [(e["name"], e["ph"]) for e in events if e["ph"] in "be"]
        self.assertEqual(sorted(pairs), [("decode", "b"), ("decode", "e"), ("prefill", "b"),
                                         ("prefill", "e")])

    def test_many_prompts(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"number {i}", "max_new_tokens": 4}) + "\n"
                                   for i in range(6)), encoding="utf-8")
        events = self.trace("--prompts", prompts, "--ignore-eos", "-t", "2")
        self.check_nesting(events)
        self.check_names(events)
        for name in ("queue", "prefill", "decode"):
            for edge in "be":
                ids = {e["id"] for e in events if e["ph"] == edge and e["name"] == name}
                self.assertEqual(len(ids), 6, (name, edge))
        # an arrow leads from where a request was tokenised into the plan that began it
        plans = [(e["ts"], e["ts"] + e["dur"], e["tid"]) for e in events
                 if e["ph"] == "X" and e["name"] == "plan"]
        begins = {e["id"] for e in events if e["ph"] == "s"}
        ends = [e for e in events if e["ph"] == "f"]
        self.assertEqual(begins, {e["id"] for e in ends})
        self.assertEqual(len(ends), 6)
        for end in ends:
            self.assertTrue(any(begin <= end["ts"] <= to and tid == end["tid"]
                                for begin, to, tid in plans), end)

    def test_a_file_that_cannot_be_written(self):
        done = call("run", self.model, "hello", "-n", "1", "--trace", self.folder / "no" / "trace")
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.stderr, rb"avocet: .*no/trace")


if __name__ == "__main__":
    unittest.main()
