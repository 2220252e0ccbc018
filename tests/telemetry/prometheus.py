"""What is exported, read by Prometheus's own tools: promtool, and a real Prometheus that scrapes it
and answers the dashboard's questions. Skipped where Debian's package `prometheus` is not there."""
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

import tiny_model
from command import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ["AVO_BINARY_FOLDER"])
if "AVO_SANITIZE:STRING=\n" not in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8"):
    print("skipped: Python does not load a library with sanitizers")
    sys.exit(77)
os.environ["AVOCET_LIBRARY"] = str(BUILD / "libavocet.so")
sys.path.insert(0, str(ROOT / "bindings" / "python"))
import avocet  # noqa: E402

DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"


def expressions():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def names_in(expression):
    found = re.findall(r"(?:vllm:|avocet_|process_)\w+", expression)
    return {re.sub(r"_bucket$", "", name) for name in found}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-prometheus-")
        cls.folder = Path(cls.scratch.name)
        cls.telemetry = avocet.Telemetry(hardware=True)
        cls.model = avocet.Model(tiny_model.write(cls.folder))
        cls.engine = avocet.Engine(cls.model, sessions_max=4, threads=2, telemetry=cls.telemetry)
        cls.scheduler = avocet.Scheduler(cls.engine)
        for _ in range(2):
            cls.scheduler.batch([avocet.Request(prompt=f"once upon {i}", max_tokens=6)
                                 for i in range(8)])
        cls.text = cls.telemetry.prometheus()

    @classmethod
    def tearDownClass(cls):
        for part in (cls.scheduler, cls.engine, cls.model, cls.telemetry):
            part.close()
        cls.scratch.cleanup()

    def families(self):
        return set(re.findall(r"^# TYPE (\S+) ", self.text, re.M))

    def test_promtool_reads_it(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.text.encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        said = done.stdout.decode()
        self.assertIn(done.returncode, (0, 3), said)  # 3: it reads it, and dislikes names
        # It dislikes what vLLM calls its figures, which is what others look for; nothing of ours.
        complaints = [line for line in said.splitlines() if not line.startswith("vllm:")]
        self.assertEqual(complaints, [])
        own = "".join(line + "\n" for line in self.text.splitlines() if "vllm:" not in line)
        subprocess.run(["promtool", "check", "metrics"], input=own.encode(), check=True)

    def test_configuration_is_good(self):
        subprocess.run(["promtool", "check", "config", ROOT / "deploy" / "prometheus.yml"],
                       stdout=subprocess.DEVNULL, check=True)

    def test_every_figure_of_the_dashboard_is_exported_and_shown(self):
        optional = {"avocet_read_limit_bytes_per_second", "avocet_cycles_total",
                    "avocet_instructions_total", "avocet_cache_references_total",
                    "avocet_cache_misses_total", "avocet_read_bytes_per_second"}
        asked = set().union(*(names_in(expression) for _, expression in expressions()))
        self.assertEqual(asked - self.families() - optional, set())
        # what our dashboard shows by another name, and what gateways ask for
        twice = {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds",
                 "vllm:request_time_per_output_token_seconds", "vllm:prompt_tokens_cached_total",
                 "vllm:request_inference_time_seconds", "vllm:request_params_max_tokens",
                 "vllm:request_max_num_generation_tokens", "vllm:lora_requests_info",
                 "vllm:cache_config_info"}
        self.assertEqual(self.families() - asked - twice, set())

    def test_a_real_prometheus(self):
        own = self

        class Metrics(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = own.telemetry.prometheus().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = (ROOT / "deploy" / "prometheus.yml").read_text()
        config = config.replace("127.0.0.1:8080", f"127.0.0.1:{server.server_port}")
        config = config.replace("scrape_interval: 5s", "scrape_interval: 1s\n  scrape_timeout: 1s")
        (self.folder / "prometheus.yml").write_text(config)
        port = free_port()
        process = subprocess.Popen(
            ["prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={self.folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.ask_until_it_answers(port)
        finally:
            process.terminate()
            process.wait(timeout=30)
            server.shutdown()
            server.server_close()

    def query(self, port, expression):
        address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
            {"query": expression})
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.load(answer)

    def ask_until_it_answers(self, port):
        def scraped():
            wanted = len(re.findall(r"^[^#\n]", self.telemetry.prometheus(), re.M))
            try:
                found = self.query(port, "scrape_samples_scraped{job='avocet'}")["data"]["result"]
            except OSError:
                return False
            return found and int(found[0]["value"][1]) >= wanted
        wait_until(scraped, "Prometheus to scrape all of it")
        tokens = self.query(port, "sum(vllm:generation_tokens_total)")["data"]["result"]
        self.assertEqual(int(tokens[0]["value"][1]), 2 * 8 * 6)
        median = self.query(port, "histogram_quantile(0.5, sum by (le) "
                                  "(vllm:time_to_first_token_seconds_bucket))")["data"]["result"]
        self.assertGreater(float(median[0]["value"][1]), 0.0)
        for title, expression in expressions():  # every question of the dashboard is a good one
            expression = expression.replace("$__rate_interval", "5s").replace("$model", ".*")
            self.assertEqual(self.query(port, expression)["status"], "success", title)


if __name__ == "__main__":
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        print("SKIPPED: no Prometheus here (apt install prometheus)")
        sys.exit(77)
    unittest.main()
