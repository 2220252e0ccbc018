"""The application for Ray Serve: an ingress with the HTTP API, and replicas with an engine each."""
import asyncio
import json
import os
import sys
import threading


import aiohttp
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .options import Options
from .request import Call, read_call
from .router import AffinityRouter, RoundRobinRouter
from .server import Server

ROUTERS = {"affinity": AffinityRouter, "round_robin": RoundRobinRouter, "ray": None}
PATHS = {("POST", path) for path in (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/responses", "/tokenize", "/detokenize")}
PATHS |= {("GET", path) for path in ("/v1/models", "/tokenizer_info", "/version", "/health")}
BODY_BYTES_MAX = 16 << 20
LOADS_MAX = 3  # of an adapter that another request evicts between its load and its use


def _problem(status: int, code: str, message: str, **headers: str) -> Response:
    """An error in the shape of the server's own."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Response(json.dumps(body), status, headers, "application/json")


class Loaded:
    """An adapter in a replica's engine. Ray Serve calls __del__ when it evicts the adapter."""

    def __init__(self, engine: "Engine", name: str):
        self._engine, self._name = engine, name

    def __del__(self):
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.unload(self._name)


class Engine:
    """A replica: one engine, in a process of its own. engine_deployment adds `adapter`."""

    def __init__(self, options: Options):
        self._options = options
        self._server = Server(options.model, options.serve_arguments(), options.command)
        self._session = None
        self._ends = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        status = self._server.pass_on_lines()
        if not self._ends:  # one kind of failure for all: the replica has died
            print(f"avocet serve ended with status {status}; so does its replica", file=sys.stderr)
            os._exit(1)

    def _headers(self) -> dict:
        key = os.environ.get("AVOCET_ADMIN_KEY")
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def check_health(self) -> None:
        status, said = await asyncio.get_running_loop().run_in_executor(
            None, self._server.ask, "GET", "/health")
        if status != 200:
            raise RuntimeError(f"/health: {status} {said[:300]!r}")

    def load(self, name: str) -> None:
        path = self._options.adapter_paths()[name]
        status, said = self._server.ask(
            "POST", "/v1/load_lora_adapter",
            json.dumps({"lora_name": name, "lora_path": path}).encode(), self._headers())
        if status != 200:
            raise RuntimeError(f"adapter {name} ({path}): {status} {said[:600].decode()}")

    def unload(self, name: str) -> None:
        if self._server.process.poll() is None:
            self._server.ask("POST", "/v1/unload_lora_adapter",
                             json.dumps({"lora_name": name}).encode(), self._headers())

    async def load_adapter(self, name: str) -> Loaded:
        await asyncio.get_running_loop().run_in_executor(None, self.load, name)
        return Loaded(self, name)

    async def _forward(self, call: Call):
        """(status, headers), then the body's bytes as they come."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._server.socket, limit=0),
                timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        async with self._session.request(call.method, "http://avocet" + call.path,
                                         data=call.body or None, headers=call.headers) as answer:
            headers = {name: answer.headers[name] for name in (
                "Content-Type", "Retry-After", "X-Request-Id") if name in answer.headers}
            headers["X-Replica"] = serve.get_replica_context().replica_id.unique_id
            yield answer.status, headers
            async for piece in answer.content.iter_any():
                yield piece

    async def answer(self, call: Call):
        for attempt in range(LOADS_MAX):
            for name in call.adapters:
                await self.adapter(name)
            pieces = self._forward(call)
            status, headers = await pieces.__anext__()
            if status == 404 and call.adapters and attempt + 1 < LOADS_MAX:
                await pieces.aclose()
                continue
            yield status, headers
            async for piece in pieces:
                yield piece
            return

    def __del__(self):
        self._ends = True
        if hasattr(self, "_server"):
            self._server.close()


def engine_deployment(options: Options):
    class AvocetEngine(Engine):
        @serve.multiplexed(max_num_models_per_replica=options.adapters_max)
        async def adapter(self, name: str) -> Loaded:
            return await self.load_adapter(name)

    settings = {"max_ongoing_requests": options.ongoing_max,
                "ray_actor_options": {"num_cpus": options.cpus},
                "health_check_period_s": options.health_seconds,
                "graceful_shutdown_timeout_s": options.drain_seconds}
    router = ROUTERS[options.router]
    if router is not None:
        settings["request_router_config"] = RequestRouterConfig(
            request_router_class=router, request_router_kwargs=options.router_options())
    if options.replicas_max > options.replicas:
        settings["autoscaling_config"] = {
            "min_replicas": options.replicas, "max_replicas": options.replicas_max,
            "target_ongoing_requests": options.target_requests,
            "upscale_delay_s": options.upscale_seconds,
            "downscale_delay_s": options.downscale_seconds,
            "metrics_interval_s": options.metrics_seconds,
            "look_back_period_s": options.look_back_seconds}
    else:
        settings["num_replicas"] = options.replicas
    return serve.deployment(AvocetEngine, name="AvocetEngine", **settings)


class Ingress:
    """Takes HTTP requests and sends each to a replica; to another one when that dies before the
    first byte of the answer has gone to the client."""

    def __init__(self, engine, options: Options):
        self._engine = engine.options(stream=True)
        self._options = options
        self._adapters = options.adapter_paths()

    async def __call__(self, request: Request) -> Response:
        path, method = request.url.path, request.method
        if (method, path) not in PATHS:
            return _problem(404, "not_found", f"{method} {path}: not offered by this ingress; it "
                            "has " + ", ".join(sorted(" ".join(one) for one in PATHS)))
        data = b""
        async for piece in request.stream():
            data += piece
            if len(data) > BODY_BYTES_MAX:
                return _problem(413, "body_too_large",
                                f"the body is longer than {BODY_BYTES_MAX} bytes")
        call = read_call(method, path, dict(request.headers), data, self._adapters,
                         request.headers.get("serve_multiplexed_model_id"))
        last = None
        for attempt in range(self._options.attempts):
            if attempt > 0:  # a replica that has just died may still be offered
                await asyncio.sleep(min(0.1 * 2 ** attempt, 2.0))
            try:
                return await self._ask(call)
            except (RayActorError, DeploymentUnavailableError, aiohttp.ClientError) as error:
                last = error
            except BackPressureError as error:
                return _problem(503, "overloaded", str(error), **{"Retry-After": "1"})
        return _problem(503, "no_replica", f"{self._options.attempts} replicas failed, the last "
                        f"one by {type(last).__name__}; try again", **{"Retry-After": "1"})

    async def _ask(self, call: Call) -> Response:
        pieces = self._engine.options(
            multiplexed_model_id=call.adapters[0] if call.adapters else "").answer.remote(call)
        status, headers = await pieces.__anext__()
        if call.stream and status == 200:
            try:
                first = await pieces.__anext__()
            except StopAsyncIteration:
                first = b""
            return StreamingResponse(self._stream(first, pieces), status, headers)
        body = [piece async for piece in pieces]  # whole: another replica can still answer
        if call.path == "/v1/models" and status == 200:
            body = [self._all_models(b"".join(body))]
        return Response(b"".join(body), status, headers)

    async def _stream(self, first: bytes, pieces):
        yield first
        try:
            async for piece in pieces:
                yield piece
        except (RayActorError, aiohttp.ClientError) as error:
            problem = {"error": {"message": "the replica ended within the answer: "
                                 f"{type(error).__name__}", "type": "server_error", "param": None,
                                 "code": "replica_lost"}}
            yield f"data: {json.dumps(problem)}\n\n".encode()

    def _all_models(self, data: bytes) -> bytes:
        """Adds the adapters that the replica has not loaded."""
        models = json.loads(data)
        there = {model["id"] for model in models["data"]}
        base = models["data"][0]
        models["data"] += [{"id": name, "object": "model", "created": base["created"],
                            "owned_by": base["owned_by"], "parent": base["id"]}
                           for name in self._adapters if name not in there]
        return json.dumps(models).encode()


def build(arguments: dict):
    """The application: `serve run avocet.ray:build model=MODEL replicas=2`, or
    `serve.run(avocet.ray.build({"model": …}))`. Options: avocet.ray.Options."""
    options = Options.read(arguments)
    ingress = serve.deployment(Ingress, name="Avocet", num_replicas=options.ingresses,
                               max_ongoing_requests=4096,
                               ray_actor_options={"num_cpus": options.ingress_cpus})
    return ingress.bind(engine_deployment(options).bind(options), options)
