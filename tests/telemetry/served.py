"""`avocet serve` and its telemetry: the history as CSV, the limit of reading, counters of the
processor in the banner, traces that hold all of their seconds, lanes."""
import csv
import json
import re
import tempfile
import threading
import time
import unittest
from pathlib import Path

import tiny_model
from command import FAILED, ROOT, call
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
        asked = fresh = 0
        for start in range(2):
            with Serving(self.model, "--telemetry", path, "--telemetry-seconds", 0.1) as server:
                before = len(rows_of(path))
                for _ in range(3):
                    usage = self.complete(server)
                    asked, fresh = usage["prompt_tokens"], usage["completion_tokens"]
                self.assertTrue(server.wait_for(lambda: len(rows_of(path)) >= before + 3))
                self.assertEqual(server.end(), 0)
            rows = rows_of(path)
            last = rows[-1]
            self.assertEqual(list(last), columns_of_the_documentation())
            self.assertTrue(all(None not in row and None not in row.values() for row in rows))
            self.assertEqual(int(last["new_tokens_total"]), 3 * fresh)
            self.assertEqual(int(last["prompt_tokens_total"]), 3 * asked)
            self.assertEqual(int(last["finished_total"]), 3)
            self.assertRegex(last["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertGreater(float(last["first_token_p50_seconds"]), 0)
            self.assertGreater(float(last["read_limit_bytes_per_second"]), 0)
            ups = [float(row["uptime_seconds"]) for row in rows]
            self.assertEqual(sum(a > b for a, b in zip(ups, ups[1:])), start)  # one per restart
            own = rows[-len([u for u in ups if u <= ups[-1]]):] if start == 0 else rows[before:]
            # rates are those since the row before: put together again they are the total
            made = seconds = 0.0
            for row in own:
                made += float(row["new_tokens_per_second"]) * (float(row["uptime_seconds"])
                                                               - seconds)
                seconds = float(row["uptime_seconds"])
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
            banner = "".join(server.lines)
            self.assertTrue(server.wait_for(lambda: "counters" in "".join(server.lines)), banner)
            line = next(line for line in server.lines if line.startswith("  counters"))
            self.assertRegex(line, r"cycles|no hardware counters: .*"
                                   r"(perf_event_paranoid|virtual machine|perf_event)")
        with Serving(self.model) as server:
            self.complete(server)
            self.assertNotIn("counters", "".join(server.lines))

    def trace(self, server, seconds):
        """What a trace of a server at work holds."""
        stop = threading.Event()

        def work():
            while not stop.is_set():
                self.complete(server, 64)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        time.sleep(0.2)
        status, _, body = server.ask("POST", f"/debug/trace?seconds={seconds}")
        stop.set()
        for worker in workers:
            worker.join()
        self.assertEqual(status, 200)
        return json.loads(body)["traceEvents"]

    def test_a_trace_holds_all_phases_of_its_seconds(self):
        with Serving(self.model, "--threads", 2, *self.administrator) as server:
            events = self.trace(server, 0.7)  # a model this small fills a million spans in two
        spans = [event for event in events if event["ph"] == "X"]
        steps = [event for event in spans if event["name"] == "step"]
        embeds = [event for event in spans if event["name"] == "embed"]
        self.assertEqual([event for event in events if event["name"].startswith("spans_")], [])
        phases = sum(event["cat"] == "phase" for event in spans)
        # each step has its phases in both workers, but for those that began before or end behind
        self.assertLessEqual(abs(len(embeds) - 2 * len(steps)), 8)
        self.assertGreater(max(e["ts"] for e in embeds) - min(e["ts"] for e in embeds), 0.5e6)
        self.assertGreater(phases, len(embeds) * 8)

    def test_two_lanes_are_seen(self):
        with Serving(self.model, "--threads", 2, "--cores", "static", "--no-prefix-cache",
                     *self.administrator) as server:
            events = self.trace(server, 1)
            said = json.loads(server.ask("GET", "/telemetry")[2])
        names = {event["tid"]: event["args"]["name"] for event in events
                 if event["ph"] == "M" and event["name"] == "thread_name"}
        by = {name: sum(event["ph"] == "X" and event["name"] == "step" and
                        names[event["tid"]] == name for event in events)
              for name in ("engine", "prefill")}
        self.assertGreater(by["engine"], 0)
        self.assertGreater(by["prefill"], 0)
        self.assertEqual(said["threads"], 2)


if __name__ == "__main__":
    unittest.main()
