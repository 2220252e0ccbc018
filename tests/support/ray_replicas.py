"""A small Ray on this machine for tests and measurements of avocet.ray: requests by loopback, a
token for everything else, the smallest object store, no dashboard, no usage reports. Import it
before ray."""
import http.client
import json
import logging
import os
import secrets
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bindings/python"))
os.environ.update({
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_memory_monitor_refresh_ms": "0", "RAY_prestart_worker_first_driver": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # a busy machine takes longer than Ray expects
    "RAY_agent_register_timeout_ms": "300000", "RAY_raylet_start_wait_time_s": "300",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
    "RAY_worker_register_timeout_seconds": "300", "RAY_gcs_server_request_timeout_seconds": "300",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "bindings/python"), str(ROOT / "tests/support")])})

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve._private import api as serve_api  # noqa: E402

import avocet.ray  # noqa: E402

serve_api.HTTP_PROXY_TIMEOUT = 300  # no setting of Ray's


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Replicas:
    """Ray and Serve; `deploy` replaces the application."""

    def __init__(self):
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80 << 20,
                 log_to_driver=False, logging_level=logging.ERROR, configure_logging=False,
                 _node_ip_address="127.0.0.1")
        self.port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": self.port},
                    logging_config={"log_level": "ERROR", "enable_access_log": False})

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        serve.shutdown()
        ray.shutdown()

    def deploy(self, **options):
        small = {"cpus": 0.1, "ingress_cpus": 0.1, "health_seconds": 2, "drain_seconds": 5}
        serve.run(avocet.ray.build({**small, **options}), name="avocet", route_prefix="/")

    def remove(self):
        serve.delete("avocet")

    def ask(self, path, body=None, timeout=300):
        """(status, headers, bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request("POST" if data else "GET", path, data,
                               {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            said = answer.read()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, said
        finally:
            connection.close()

    def post(self, path, body):
        """(the answer as JSON, the replica's name)"""
        status, headers, said = self.ask(path, body)
        if status != 200:
            raise AssertionError(f"{path}: {status} {said[:600]!r}")
        return json.loads(said), headers["x-replica"]

    def first_token(self, path, body, timeout=300):
        """(seconds to the first event, all events as bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            begin = time.monotonic()
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            first = answer.read1(65536)
            seconds = time.monotonic() - begin
            return seconds, first + answer.read()
        finally:
            connection.close()
