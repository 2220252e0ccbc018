"""`avocet serve` and its telemetry: the history as CSV, the limit of reading, counters of the
processor in the banner, traces that hold all of their seconds, lanes."""
import csv
import itertools
import json
import re
import tempfile
import threading
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, ROOT, call, wait_until
from serving import Serving


def rows_of(path):
    with open(path, encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


def columns_of_the_documentation():
    text = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    table = text.split("### Columns", 1)[1].split("\n## ", 1)[0]
    names = []
    for line in table.splitlines():
        if line.startswith("| `"):
            names += re.findall(r"`([a-z0-9_]+)`", line.split("|")[1])
    return names


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-telemetry-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.administrator = ("--adapter-root", cls.folder, "--allow-adapter-loading")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def complete(self, server, tokens=8):
        status, _, body = server.ask("POST", "/v1/completions", {
            "prompt": "once upon a time", "max_tokens": tokens, "ignore_eos": True})
        self.assertEqual(status, 200, body)
        return json.loads(body)["usage"]

    def test_a_history_grows_and_goes_on_after_a_restart(self):
        path = self.folder / "history.csv"
        asked = fresh = before = 0
        for _start in range(2):
            with Serving(self.model, "--telemetry", path, "--telemetry-seconds", 0.1) as server:
                for _ in range(3):
                    usage = self.complete(server)
                    asked, fresh = usage["prompt_tokens"], usage["completion_tokens"]
                wait_until(lambda least=before + 3: len(rows_of(path)) >= least)
                self.assertEqual(server.end(), 0)
            rows = rows_of(path)
            own, last = rows[before:], rows[-1]
            before = len(rows)
            self.assertEqual(list(last), columns_of_the_documentation())
            self.assertTrue(all(None not in row and None not in row.values() for row in rows))
            self.assertEqual(int(last["new_tokens_total"]), 3 * fresh)
            self.assertEqual(int(last["prompt_tokens_total"]), 3 * asked)
            self.assertEqual(int(last["finished_total"]), 3)
            self.assertRegex(last["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertTrue(any(row["first_token_p50_seconds"] not in ("", "0") for row in own))
            self.assertGreater(float(last["read_limit_bytes_per_second"]), 0)
            ups = [float(row["uptime_seconds"]) for row in own]
            self.assertEqual(ups, sorted(ups))
            # rates are those since the row before: put together again they are the total
            made = sum(float(row["new_tokens_per_second"]) * (up - since)
                       for row, up, since in zip(own, ups, [0.0, *ups]))
            self.assertAlmostEqual(made, 3 * fresh, delta=0.01)

    def test_another_file_is_refused_before_anything_is_served(self):
        other = self.folder / "other.csv"
        other.write_text("name,labels,value\n", encoding="ascii")
        for path, reason in ((other, rb"its first line differs"),
                             (self.folder / "no" / "t.csv", rb"No such file|Permission denied")):
            done = call("serve", self.model, "--port", 0, "--telemetry", path)
            self.assertEqual(done.returncode, FAILED)
            self.assertRegex(done.stderr, reason)
        self.assertEqual(other.read_text(encoding="ascii"), "name,labels,value\n")

    def test_the_limit_of_reading_is_known(self):
        with Serving(self.model) as server:
            self.complete(server)
            said = json.loads(server.ask("GET", "/telemetry")[2])
            self.assertGreater(said["bandwidth"]["limit_bytes_per_second"], 1e8)
            self.assertGreater(said["bandwidth"]["bytes_per_second"], 0)
            self.assertIn(b"avocet_read_limit_bytes_per_second ",
                          server.ask("GET", "/metrics")[2])

    def test_counters_or_why_there_are_none(self):
        with Serving(self.model, "--telemetry-hardware") as server:
            server.wait_said("counters")
            line = next(line for line in server.lines if line.startswith("  counters"))
            self.assertRegex(line, r"cycles|no hardware counters: .*"
                                   r"(perf_event_paranoid|virtual machine|perf_event)")
        with Serving(self.model) as server:
            self.complete(server)
            self.assertNotIn("counters", "".join(server.lines))

    def trace(self, server, enough):
        """What a trace of a server at work holds: a short one, and a longer one where that did not
        hold enough, on a busy machine. A model this small fills a million spans in two seconds."""
        stop = threading.Event()

        def work():
            while not stop.is_set():
                self.complete(server, 64)

        lengths = (0.7 * 2 ** turn for turn in itertools.count())

        def traced():
            status, _, body = server.ask("POST", f"/debug/trace?seconds={next(lengths)}")
            self.assertEqual(status, 200)
            events = json.loads(body)["traceEvents"]
            return events if enough(events) else None

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        try:
            return wait_until(traced, "a trace with enough in it")
        finally:
            stop.set()
            for worker in workers:
                worker.join()

    def test_a_trace_holds_all_phases_of_its_seconds(self):
        def named(events, name):
            return [event for event in events if event["ph"] == "X" and event["name"] == name]

        def enough(events):  # as many as no buffer that was forgotten holds
            return len(named(events, "step")) >= 100

        with Serving(self.model, "--threads", 2, *self.administrator) as server:
            events = self.trace(server, enough)
        steps, embeds = named(events, "step"), named(events, "embed")
        self.assertEqual([event for event in events if event["name"].startswith("spans_")], [])
        phases = sum(event["ph"] == "X" and event["cat"] == "phase" for event in events)
        # one embed a step, but for those that began before or end behind
        self.assertLessEqual(abs(len(embeds) - len(steps)), 8)
        self.assertGreater(phases, len(embeds) * 8)

    def test_two_lanes_are_seen(self):
        def both(events):
            names = {event["tid"]: event["args"]["name"] for event in events
                     if event["ph"] == "M" and event["name"] == "thread_name"}
            return {"engine", "prefill"} <= {names[event["tid"]] for event in events
                                             if event["ph"] == "X" and event["name"] == "step"}

        with Serving(self.model, "--threads", 2, "--cores", "static", "--no-prefix-cache",
                     *self.administrator) as server:
            self.trace(server, both)
            said = json.loads(server.ask("GET", "/telemetry")[2])
        self.assertEqual(said["threads"], 2)


if __name__ == "__main__":
    unittest.main()
