"""Traces over OTLP: what a collector gets, that nobody waits for it, and what a confined server may
do. The messages are parsed by opentelemetry-proto where that is installed."""
import base64
import contextlib
import importlib.util
import json
import socket
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import tiny_model
from command import USAGE, FAILED, call, wait_until
from serving import Serving

TEXT = "/v1/completions"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(HTTPServer):
    def __init__(self, status=200):
        self.bodies, self.paths, self.status = [], [], status

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.server.bodies.append(json.loads(body))
                self.server.paths.append((self.path, self.headers["Content-Type"]))
                self.send_response(self.server.status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *ignored):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self):
        return [span for body in self.bodies for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]

    def close(self):
        self.shutdown()
        self.server_close()


def attributes(span):
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


class Traces(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-traces-")
        self.addCleanup(self.scratch.cleanup)
        self.model = tiny_model.write(Path(self.scratch.name))

    def serve(self, url):
        server = Serving(self.model, "--otlp", url, "--name", "tiny", "--threads", 1)
        self.addCleanup(server.__exit__)
        return server

    def ask(self, server, headers=None, status=200, **more):
        body = {"prompt": "once", "max_tokens": 3, "ignore_eos": True, **more}
        got, answer, text = server.ask("POST", TEXT, body, headers)
        self.assertEqual(got, status, text)
        return answer["x-request-id"], json.loads(text)

    def test_spans(self):
        with contextlib.closing(Collector()) as collector:
            server = self.serve(collector.url)
            ids = [self.ask(server, {"traceparent": f"00-{TRACE}-{SPAN}-01"})[0],
                   self.ask(server)[0], self.ask(server, prompt=5, status=400)[0]]
            self.ask(server, {"traceparent": f"00-{TRACE}-{SPAN}-00"})  # the client traces nothing
            server.ask("GET", "/health")
            self.assertEqual(server.end(), 0)  # what waits is sent
            spans = collector.spans()
            self.assertEqual(set(collector.paths), {("/v1/traces", "application/json")})
            roots = {attributes(span)["avocet.request_id"]: span for span in spans
                     if span["kind"] == 2}
            self.assertEqual(set(roots), set(ids))
            first, second, third = (roots[one] for one in ids)
            self.assertEqual((first["traceId"], first["parentSpanId"]), (TRACE, SPAN))
            self.assertNotIn("parentSpanId", second)
            self.assertEqual(len({span["spanId"] for span in spans}), len(spans))
            self.assertEqual(first["name"], f"POST {TEXT}")
            said = attributes(first)
            self.assertEqual((said["http.response.status_code"], said["gen_ai.request.model"],
                              said["gen_ai.usage.output_tokens"]), ("200", "tiny", "3"))
            self.assertEqual(attributes(third)["http.response.status_code"], "400")
            for root, names in ((first, ["queue", "prefill", "decode"]), (third, [])):
                parts = [span for span in spans if span.get("parentSpanId") == root["spanId"]]
                self.assertEqual([span["name"] for span in parts], names)
                at = int(root["startTimeUnixNano"])
                for span in parts:  # one behind the other, within the whole
                    self.assertEqual(span["traceId"], root["traceId"])
                    self.assertEqual(int(span["startTimeUnixNano"]), at)
                    at = int(span["endTimeUnixNano"])
                    self.assertLessEqual(at, int(root["endTimeUnixNano"]))
            self.check_schema(collector.bodies)

    def check_schema(self, bodies):
        """Ids are hexadecimal in OTLP's JSON, where protobuf's own JSON has base64."""
        if importlib.util.find_spec("opentelemetry") is None or \
                importlib.util.find_spec("opentelemetry.proto") is None:
            print("not checked by opentelemetry-proto, which is not installed")
            return
        from google.protobuf import json_format
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        for body in bodies:
            for resource in body["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        for name in ("traceId", "spanId", "parentSpanId"):
                            if name in span:
                                span[name] = base64.b64encode(
                                    bytes.fromhex(span[name])).decode()
            parsed = json_format.ParseDict(body, trace_service_pb2.ExportTraceServiceRequest())
            for span in parsed.resource_spans[0].scope_spans[0].spans:
                self.assertEqual((len(span.trace_id), len(span.span_id)), (16, 8))

    def test_nobody_waits_for_a_collector(self):
        """One that refuses, one that is not there, and one that never answers."""
        with contextlib.closing(Collector(status=503)) as collector:
            server = self.serve(collector.url + "/other")
            self.ask(server)
            server.wait_said("answered with status 503")
            self.assertEqual(collector.paths[0][0], "/other")
            collector.status = 200
            wait_until(lambda: self.ask(server) and
                       any("works again" in line for line in list(server.lines)))
            self.assertEqual(server.end(), 0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            server = self.serve(f"http://localhost:{port}")
            for _ in range(5):
                self.ask(server)
            self.assertEqual(server.end(), 0)
            self.assertIn("5 traces were not delivered", "".join(server.lines))
        server = self.serve(f"http://127.0.0.1:{port}")  # nobody listens any more
        self.ask(server)
        server.wait_said("cannot connect")
        self.assertEqual(server.end(), 0)

    def test_addresses(self):
        for url in ("https://127.0.0.1:1", "http://collector:4318", "http://127.0.0.1:0",
                    "http://127.0.0.1:65536", "http://127.0.0.1:x", "http://[::1", "http://",
                    "127.0.0.1:4318", "http://127.0.0.1:1/a b", "http://127.0.0.1:1/" + "a" * 300):
            done = call("serve", self.model, "--port", 0, "--otlp", url)
            self.assertIn(done.returncode, (FAILED, USAGE))
            self.assertIn(b"--otlp", done.stderr)


if __name__ == "__main__":
    unittest.main()
