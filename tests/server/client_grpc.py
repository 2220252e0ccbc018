"""gRPC by grpcio: the same answers as REST, byte by byte; errors, keys, deadlines, cancellation,
health, reflection, many streams, TLS, the end of the server. Skipped where grpcio is absent."""
import importlib.util
import json
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

from grpc_client import Stub, code_of, files, grpc, make
from api_server import Server, sanitized
from clients import HELLO, TEMPLATE, TOOL, write_model
from command import AVOCET, PATIENCE, ROOT, wait_until
import certificates
import tiny_model
from serving import ENDLESS, write_slow_model

SERVICE, OIP, HEALTH = "avocet.v1.Inference", "inference.GRPCInferenceService", (
    "grpc.health.v1.Health")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SCHEMA = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
          "additionalProperties": False}


def channel_of(server, *options):
    return grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=[
        ("grpc.use_local_subchannel_pool", 1), *options])


def bearer(key):
    return (("authorization", f"Bearer {key}"),)


def wiped(message):
    """Without what differs between two answers to one request."""
    for name in ("id", "created"):
        message.ClearField(name)
    for choice in message.choices:
        for call in [*getattr(getattr(choice, "message", None), "tool_calls", ()),
                     *getattr(getattr(choice, "delta", None), "tool_calls", ())]:
            call.id = ""
    message.usage.ClearField("timings")
    message.usage.prompt_tokens_details.ClearField("cached_tokens")
    message.usage.completion_tokens_details.Clear()
    return message


class Answers(unittest.TestCase):
    """A model with a template; one token per character."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-grpc-")
        folder = write_model(Path(cls.scratch.name), template=TEMPLATE,
                             generation={"do_sample": True, "temperature": 1.0})
        cls.log = Path(cls.scratch.name) / "log"
        cls.server = Server(folder, "--name", "tiny", "--threads", "1", "--sessions", "8",
                            "--rows", "64", "--grpc", "0", "--access-log", cls.log)
        cls.channel = channel_of(cls.server)
        cls.stub = Stub(cls.channel, SERVICE)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        with cls.server:
            pass
        cls.scratch.cleanup()

    def compare(self, method, path, kind, **body):
        """Whole answers are equal in every field; so are the joined pieces of streams."""
        told = self.server.post(path, body)
        wanted = wiped(make(f"avocet.v1.{kind}Response", told))
        found = list(getattr(self.stub, method)(make(f"avocet.v1.{kind}Request", body)))
        self.assertEqual(len(found), 1)
        # NaN, where REST has null, is not equal to itself; its bytes are.
        self.assertEqual(wiped(found[0]).SerializeToString(deterministic=True),
                         wanted.SerializeToString(deterministic=True), body)
        pieces = list(getattr(self.stub, method)(make(f"avocet.v1.{kind}Request", {
            **body, "stream": True, "stream_options": {"include_usage": True}})))
        self.compare_stream(found[0], pieces, body)

    def compare_stream(self, whole, pieces, body):
        self.assertEqual(pieces[-1].usage.completion_tokens, whole.usage.completion_tokens)
        for index, choice in enumerate(whole.choices):
            own = [part for piece in pieces for part in piece.choices if part.index == index]
            chat = hasattr(choice, "message")
            text = "".join(part.delta.content if chat else part.text for part in own)
            self.assertEqual(text, choice.message.content if chat else choice.text, body)
            self.assertEqual((own[-1].finish_reason, own[-1].stop_reason, own[-1].seed),
                             (choice.finish_reason, choice.stop_reason, choice.seed), body)
            calls = {}
            for part in own if chat else ():
                for call in part.delta.tool_calls:
                    name, arguments = calls.get(call.index, ("", ""))
                    calls[call.index] = (name + call.function.name,
                                         arguments + call.function.arguments)
            self.assertEqual(list(calls.values()), [
                (call.function.name, call.function.arguments)
                for call in (choice.message.tool_calls if chat else ())])

    def test_chats_are_those_of_rest(self):
        many = [{"temperature": 0, "seed": 1}, {"seed": 1},
                {"seed": 2, "temperature": 0.7, "top_p": 0.9},
                {"seed": 3, "top_k": 5, "min_p": 0.05}, {"seed": 4, "n": 3},
                {"seed": 5, "logprobs": True, "top_logprobs": 2},
                {"seed": 6, "presence_penalty": 1.5, "frequency_penalty": -0.5},
                {"seed": 7, "repetition_penalty": 1.3, "typical_p": 0.8},
                {"seed": 8, "stop": ["a", "b", "0"]}, {"seed": 9, "stop_token_ids": [20, 21, 22]},
                {"seed": 10, "logit_bias": {"30": 5, "31": -100}},
                {"seed": 11, "grammar": "root ::= [a-c]+ \"!\""}, {"seed": 12, "json_object": True},
                {"seed": 13, "response_format": {"type": "json_schema", "json_schema": {
                    "name": "s", "schema": SCHEMA, "strict": True}}},
                {"seed": 14, "json_schema": SCHEMA}, {"seed": -7, "speculation": "off"},
                {"seed": 15, "tools": [TOOL], "tool_choice": "required"},
                {"seed": 16, "tools": [TOOL], "tool_choice": {
                    "type": "function", "function": {"name": "f"}}},
                {"seed": 17, "reasoning_format": "deepseek"}, {"seed": 18, "ignore_eos": True},
                {"seed": 19, "chat_template_kwargs": {"x": [1, {"y": None}]}},
                {"seed": 20, "priority": 3, "cache_salt": "s", "deadline_ms": 1e6}]
        for options in many:
            self.compare("Chat", CHAT, "Chat", messages=HELLO, max_tokens=12, **options)
        talk = [*HELLO, {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "7"}]
        self.compare("Chat", CHAT, "Chat", messages=talk, max_completion_tokens=3, tools=[TOOL],
                     seed=1, model="tiny")

    def test_completions_are_those_of_rest(self):
        many = [{}, {"temperature": 0, "echo": True}, {"logprobs": 3},
                {"logprobs": 2, "echo": True}, {"n": 2, "seed": 5}, {"prompt": ["ab", "c"]},
                {"prompt": [20, 21, 22]}, {"prompt": [[20, 21], [22]]}, {"max_tokens": 0,
                                                                       "echo": True},
                {"prompt": "ümlaut \U0001F600"}, {"grammar": "root ::= [0-9]+"}, {"stop": "e"}]
        for options in many:
            self.compare("Complete", TEXT, "Complete", **{
                "prompt": "ab", "max_tokens": 8, "seed": 3, **options})
        body = {"prompt": "ab", "max_tokens": 4, "best_of": 3, "seed": 1}
        wanted = wiped(make("avocet.v1.CompleteResponse", self.server.post(TEXT, body)))
        found, = self.stub.Complete(make("avocet.v1.CompleteRequest", body))
        self.assertEqual(wiped(found), wanted)

    def test_embeddings_tokens_and_models_are_those_of_rest(self):
        for body in ({"input": ["abc", "de"]}, {"input": [20, 21], "dimensions": 8},
                     {"input": "a", "normalize": False, "pooling": "last"}):
            wanted = make("avocet.v1.EmbedResponse", self.server.post("/v1/embeddings", body))
            found = self.stub.Embed(make("avocet.v1.EmbedRequest", body))
            for message in (wanted, found):
                message.usage.ClearField("timings")
            self.assertEqual(found, wanted)
        for body in ({"content": "abc"}, {"content": "x", "add_special": True,
                                          "return_token_strs": True}, {"messages": HELLO}):
            self.assertEqual(self.stub.Tokenize(make("avocet.v1.TokenizeRequest", body)), make(
                "avocet.v1.TokenizeResponse", self.server.post("/tokenize", body)))
        self.assertEqual(self.stub.ListModels(make("avocet.v1.ListModelsRequest")), make(
            "avocet.v1.ListModelsResponse", self.server.get("/v1/models")))

    def test_large_messages(self):
        """Beyond what the connections' threads read themselves, in and out."""
        body = {"content": "abc " * 20000}
        self.assertEqual(self.stub.Tokenize(make("avocet.v1.TokenizeRequest", body)), make(
            "avocet.v1.TokenizeResponse", self.server.post("/tokenize", body)))
        code, text = code_of(lambda: self.stub.Tokenize(
            make("avocet.v1.TokenizeRequest", content="x" * (4 << 20))))
        self.assertEqual(code, "RESOURCE_EXHAUSTED")
        self.assertIn("must have at most 4194304", text)

    def test_errors_have_the_words_of_rest(self):
        cases = [({"messages": HELLO, "temperature": -3}, "INVALID_ARGUMENT"),
                 ({"messages": HELLO, "model": "none"}, "NOT_FOUND"), ({}, "INVALID_ARGUMENT"),
                 ({"messages": [{"role": "üser", "content": "x%"}]}, "INVALID_ARGUMENT"),
                 ({"messages": HELLO, "grammar": "root ::= ("}, "INVALID_ARGUMENT"),
                 ({"messages": [{"role": "user", "content": "x" * 500}]}, "INVALID_ARGUMENT"),
                 ({"messages": HELLO, "json_schema": {"not": {}}, "stream": True},
                  "INVALID_ARGUMENT")]
        for body, wanted in cases:
            status, _, data = self.server.ask("POST", CHAT, body)
            code, text = code_of(lambda body=body: self.stub.Chat(
                make("avocet.v1.ChatRequest", body)))
            self.assertEqual(code, wanted, text)
            self.assertEqual(text, json.loads(data)["error"]["message"])
            self.assertGreaterEqual(status, 400)
        for data in (b"\xff", b"\x0a\x05", b"\x98\x06\x01", b"\x0a\x01\xff"):
            method = self.channel.unary_stream(f"/{SERVICE}/Chat")
            self.assertEqual(code_of(lambda method=method, data=data: method(data))[0],
                             "INVALID_ARGUMENT")
        for path in (f"/{SERVICE}/Nothing", "/x.Y/Z", "/"):
            method = self.channel.unary_unary(path)
            self.assertEqual(code_of(lambda method=method: method(b""))[0], "UNIMPLEMENTED")

    def test_compressed_messages(self):
        """gzip is understood and answered; what inflates to too much is refused on the way."""
        ask = self.stub.Tokenize
        for size in (3, 9000):
            request = make("avocet.v1.TokenizeRequest", content="abc" * size)
            self.assertEqual(ask(request, compression=grpc.Compression.Gzip), ask(request))
        for name, compression in (("packed", grpc.Compression.Gzip), ("plain", None)):
            ask(request, compression=compression, metadata=(("x-request-id", name),))
        wait_until(lambda: '"id":"plain"' in self.log.read_text(), "a line in the log")
        lines = {line["id"]: line["bytes"]
                 for line in map(json.loads, self.log.read_text().splitlines())}
        self.assertGreater(lines["plain"], 10 * lines["packed"])
        pieces = self.stub.Chat(make("avocet.v1.ChatRequest", messages=HELLO, max_tokens=9, seed=1,
                                     stream=True), compression=grpc.Compression.Gzip)
        whole = next(self.stub.Chat(make("avocet.v1.ChatRequest", messages=HELLO, max_tokens=9,
                                         seed=1)))
        self.assertEqual("".join(piece.choices[0].delta.content for piece in pieces
                                 if piece.choices), whole.choices[0].message.content)
        code, text = code_of(lambda: ask(make("avocet.v1.TokenizeRequest", content="a" * (5 << 20)),
                                         compression=grpc.Compression.Gzip))
        self.assertEqual(code, "RESOURCE_EXHAUSTED")
        self.assertIn("inflates to more than 4194304", text)
        code, text = code_of(lambda: ask(request, compression=grpc.Compression.Deflate))
        self.assertEqual(code, "UNIMPLEMENTED")
        self.assertIn("grpc-encoding deflate is not supported; use gzip or identity", text)

    def test_loading_adapters_needs_permission(self):
        for name in ("Load", "Unload"):
            action = getattr(self.stub, f"{name}Adapter")
            code, text = code_of(lambda action=action, name=name: action(
                make(f"avocet.v1.{name}AdapterRequest", lora_name="x")))
            self.assertEqual(code, "PERMISSION_DENIED")
            self.assertIn("admin key", text)

    def test_the_access_log_has_lines(self):
        self.stub.Tokenize(make("avocet.v1.TokenizeRequest", content="a"),
                           metadata=(("x-request-id", "mine-1"),))
        def line():
            return [line for line in map(json.loads, self.log.read_text().splitlines())
                    if line["id"] == "mine-1"]
        wait_until(line, "the line of the log")
        self.assertEqual((line()[0]["method"], line()[0]["path"], line()[0]["status"]),
                         ("POST", f"/{SERVICE}/Tokenize", 200))

    # ---- Health and reflection ----

    def test_health(self):
        stub = Stub(self.channel, HEALTH)
        for service in ("", SERVICE, OIP, "liveness"):
            self.assertEqual(stub.Check(make("grpc.health.v1.HealthCheckRequest",
                                             service=service)).status, 1)
        unknown = make("grpc.health.v1.HealthCheckRequest", service="x.Y")
        self.assertEqual(code_of(lambda: stub.Check(unknown))[0], "NOT_FOUND")
        watch = stub.Watch(unknown)
        self.assertEqual(next(watch).status, 3)
        watch.cancel()

    @unittest.skipUnless(importlib.util.find_spec("grpc_reflection"),
                         "SKIPPED: grpcio-reflection is not here")
    def test_reflection_by_its_own_client(self):
        """What grpcurl does: names, then descriptors, then a call with messages made of these."""
        from google.protobuf import descriptor_pool, message_factory
        from grpc_reflection.v1alpha import proto_reflection_descriptor_database as reflection
        database = reflection.ProtoReflectionDescriptorDatabase(self.channel)
        self.assertIn(SERVICE, database.get_services())
        pool = descriptor_pool.DescriptorPool(database)
        method = pool.FindServiceByName(SERVICE).FindMethodByName("Tokenize")
        request, answer = map(message_factory.GetMessageClass,
                              (method.input_type, method.output_type))
        call = self.channel.unary_unary(f"/{SERVICE}/Tokenize",
                                        request_serializer=request.SerializeToString,
                                        response_deserializer=answer.FromString)
        self.assertEqual(list(call(request(content="abc")).tokens),
                         self.server.post("/tokenize", {"content": "abc"})["tokens"])

    def test_reflection(self):
        for version in ("v1", "v1alpha"):
            package = f"grpc.reflection.{version}"
            stub = Stub(self.channel, f"{package}.ServerReflection")
            asked = queue.Queue()
            told = stub.ServerReflectionInfo(iter(asked.get, None))

            def ask(asked=asked, told=told, package=package, **question):
                request = make(f"{package}.ServerReflectionRequest", host="h", **question)
                asked.put(request)
                answer = next(told)  # while the client has not ended its side
                self.assertEqual((answer.original_request, answer.valid_host), (request, "h"))
                return answer
            listed = ask(list_services="*").list_services_response.service
            self.assertEqual({entry.name for entry in listed}, {
                SERVICE, OIP, HEALTH, "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"})
            for name, data in files().items():
                found = ask(file_by_filename=name).file_descriptor_response
                self.assertEqual(list(found.file_descriptor_proto), [data])
            for symbol in (SERVICE, f"{SERVICE}.Chat", "avocet.v1.ChatRequest",
                           "inference.ModelInferRequest.InferInputTensor"):
                found = ask(file_containing_symbol=symbol).file_descriptor_response
                self.assertEqual(len(found.file_descriptor_proto), 1)
            self.assertEqual(ask(file_containing_symbol="x.Y").error_response.error_code, 5)
            self.assertEqual(ask(file_by_filename="x").error_response.error_code, 5)
            self.assertEqual(ask(all_extension_numbers_of_type="avocet.v1.Model")
                             .all_extension_numbers_response.base_type_name, "avocet.v1.Model")
            asked.put(None)
            self.assertEqual(list(told), [])

    def test_descriptors_are_protocs(self):
        try:
            from grpc_tools import protoc
        except ImportError:
            self.skipTest("SKIPPED: no grpcio-tools")
        from google.protobuf import descriptor_pb2
        out = Path(self.scratch.name) / "set"
        for name, data in files().items():
            protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={out}", name])
            found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
            self.assertEqual(found.SerializeToString(deterministic=True), data)

    def test_grpcurl(self):
        if shutil.which("grpcurl") is None:
            self.skipTest("SKIPPED: no grpcurl")
        done = subprocess.run(
            ["grpcurl", "-plaintext", "-d", '{"messages":[{"role":"user","content":"hi"}],'
             '"max_tokens":3,"temperature":0}', f"127.0.0.1:{self.server.grpc_port}",
             f"{SERVICE}/Chat"], check=True, stdout=subprocess.PIPE)
        self.assertIn("choices", json.loads(done.stdout))

    # ---- The Open Inference Protocol ----

    def infer(self, text=b"ab", flags=(), parameters=None, **members):
        request = make("inference.ModelInferRequest", model_name="tiny", id="7", **members)
        def add(name, kind, field, value):
            tensor = request.inputs.add(name=name, datatype=kind, shape=[1])
            getattr(tensor.contents, field).append(value)
        add("text_input", "BYTES", "bytes_contents", text)
        for name, value in dict(flags).items():
            add(name, "BOOL", "bool_contents", value)
        if parameters is not None:
            add("sampling_parameters", "BYTES", "bytes_contents", json.dumps(parameters).encode())
        return request

    def texts(self, answer):
        raw = answer.raw_output_contents[0]
        found = []
        while raw:
            size = int.from_bytes(raw[:4], "little")
            found.append(raw[4:4 + size])
            raw = raw[4 + size:]
        return found

    def test_open_inference(self):
        stub = Stub(self.channel, OIP)
        self.assertTrue(stub.ServerLive(make("inference.ServerLiveRequest")).live)
        self.assertTrue(stub.ServerReady(make("inference.ServerReadyRequest")).ready)
        for name, ready in (("tiny", True), ("none", False)):
            self.assertEqual(stub.ModelReady(make("inference.ModelReadyRequest",
                                                  name=name)).ready, ready)
        self.assertEqual(stub.ServerMetadata(make("inference.ServerMetadataRequest")).name,
                         "avocet")
        known = stub.ModelMetadata(make("inference.ModelMetadataRequest", name="tiny"))
        self.assertIn("text_input", [tensor.name for tensor in known.inputs])
        options = {"max_tokens": 6, "seed": 4, "n": 2}
        wanted = self.server.post(TEXT, {"prompt": "ab", **options})
        answer = stub.ModelInfer(self.infer(parameters=options, flags={
            "exclude_input_in_output": True, "return_finish_reason": True,
            "return_num_output_tokens": True}))
        self.assertEqual([choice["text"].encode() for choice in wanted["choices"]],
                         self.texts(answer))
        self.assertEqual([output.name for output in answer.outputs],
                         ["text_output", "finish_reason", "num_output_tokens"])
        self.assertEqual(int.from_bytes(answer.raw_output_contents[2], "little"), 12)
        self.assertEqual((answer.id, list(answer.outputs[0].shape)), ("7", [2]))
        # With the prompt, by the request's parameters, from raw contents.
        request = make("inference.ModelInferRequest", model_name="tiny")
        request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        request.raw_input_contents.append(b"\2\0\0\0ab")
        request.parameters["max_tokens"].int64_param = 6
        request.parameters["temperature"].double_param = 0
        wanted = self.server.post(TEXT, {"prompt": "ab", "max_tokens": 6, "temperature": 0})
        self.assertEqual(self.texts(stub.ModelInfer(request)),
                         [b"ab" + wanted["choices"][0]["text"].encode()])
        for broken, code in ((self.infer(parameters={"temperature": -1}), "INVALID_ARGUMENT"),
                             (self.infer(flags={"stream": True}), "INVALID_ARGUMENT"),
                             (self.infer(flags={"what": True}), "INVALID_ARGUMENT"),
                             (self.infer(parameters={"echo": True}), "INVALID_ARGUMENT"),
                             (self.infer(parameters={"lora_name": "x"}), "NOT_FOUND"),
                             (self.infer(model_version="2"), "NOT_FOUND"),
                             (make("inference.ModelInferRequest"), "INVALID_ARGUMENT")):
            self.assertEqual(code_of(lambda broken=broken: stub.ModelInfer(broken))[0], code)

    def test_streams_of_triton(self):
        stub = Stub(self.channel, OIP)
        asked = queue.Queue()
        told = stub.ModelStreamInfer(iter(asked.get, None))
        options = {"max_tokens": 8, "seed": 2}
        wanted = self.server.post(TEXT, {"prompt": "ab", **options})["choices"][0]["text"]
        for stream in (True, False):
            asked.put(self.infer(parameters=options, flags={
                "stream": stream, "exclude_input_in_output": True}))
            text, last = b"", False
            while not last:
                answer = next(told)
                self.assertEqual(answer.error_message, "")
                text += self.texts(answer.infer_response)[0]
                last = answer.infer_response.parameters["triton_final_response"].bool_param
            self.assertEqual(text.decode(), wanted)
        asked.put(self.infer(parameters={"temperature": -1}))  # an error, and the stream goes on
        answer = next(told)
        self.assertIn("temperature", answer.error_message)
        self.assertEqual(answer.infer_response.id, "7")
        for _ in range(20):  # more than one at once: answered in their order
            asked.put(self.infer(parameters=options, flags={"exclude_input_in_output": True}))
        asked.put(None)
        self.assertEqual([self.texts(answer.infer_response) for answer in told],
                         [[wanted.encode()]] * 20)

    # ---- Many ----

    def test_a_thousand_streams_over_eight_connections(self):
        body = {"messages": HELLO, "max_tokens": 4, "seed": 1, "stream": True}
        whole = self.server.post(CHAT, {**body, "stream": False})
        wanted = whole["choices"][0]["message"]["content"]
        channels = [channel_of(self.server, ("grpc.dummy", number)) for number in range(8)]
        request = make("avocet.v1.ChatRequest", body)
        calls = [Stub(channels[number % 8], SERVICE).Chat(request) for number in range(1000)]
        for call in calls:
            text = "".join(part.delta.content for piece in call for part in piece.choices)
            self.assertEqual(text, wanted)
        for channel in channels:
            channel.close()


class Adapters(unittest.TestCase):
    def test_adapters_and_keys(self):
        with tempfile.TemporaryDirectory(prefix="avocet-grpc-") as scratch:
            folder = Path(scratch)
            model = tiny_model.write(folder)
            (folder / "adapters").mkdir()
            for name, seed in (("one", 1), ("two", 2)):
                tiny_model.write_adapter(folder / "adapters" / name, seed)
            keys = folder / "keys" / "keys.json"
            keys.parent.mkdir()
            keys.write_text(json.dumps({"keys": [
                {"name": "boss", "key": "boss-key-1", "admin": True},
                {"name": "one", "key": "one-key-22", "adapters": ["one"]},
                {"name": "slow", "key": "slow-key-3", "requests_per_minute": 2}]}))
            with Server(model, "--name", "tiny", "--threads", "1", "--grpc", "0",
                        "--adapter-root", folder / "adapters", "--adapter", "one=one",
                        "--keys", keys) as server, channel_of(server) as channel:
                self.check(server, channel)

    def check(self, server, channel):
        stub, boss = Stub(channel, SERVICE), bearer("boss-key-1")
        def text(key="boss-key-1", **body):
            full = {"prompt": "hello", "max_tokens": 10, "temperature": 0, **body}
            answer, = stub.Complete(make("avocet.v1.CompleteRequest", full), metadata=bearer(key))
            wanted = server.post(TEXT, full, headers={"Authorization": f"Bearer {key}"})
            self.assertEqual(answer.choices[0].text, wanted["choices"][0]["text"])
            return answer.choices[0].text
        base, one = text(), text(model="one")
        self.assertNotEqual(base, one)
        load = make("avocet.v1.LoadAdapterRequest", lora_name="two", lora_path="two")
        self.assertIn("added", stub.LoadAdapter(load, metadata=boss).message)
        both = [{"name": "one", "weight": 0.5}, {"name": "two", "weight": 0.5}]
        self.assertNotIn(text(adapters=both), (base, one))
        infer = make("inference.ModelInferRequest", model_name="one")
        infer.inputs.add(name="text_input", datatype="BYTES").contents.bytes_contents.append(
            b"hello")
        infer.parameters["max_tokens"].int64_param = 10
        infer.parameters["temperature"].double_param = 0
        answer = Stub(channel, OIP).ModelInfer(infer, metadata=boss)
        self.assertEqual(answer.raw_output_contents[0][4:].decode(), "hello" + one)
        unload = make("avocet.v1.UnloadAdapterRequest", lora_name="two")
        self.assertIn("removed", stub.UnloadAdapter(unload, metadata=boss).message)
        listed = stub.ListModels(make("avocet.v1.ListModelsRequest"), metadata=bearer("one-key-22"))
        self.assertEqual([model.id for model in listed.data], ["one"])
        # Who may not.
        request = make("avocet.v1.CompleteRequest", prompt="a", max_tokens=1)
        def code(action, *arguments, **options):
            return code_of(lambda: action(*arguments, **options))[0]
        self.assertEqual(code(stub.Complete, request), "UNAUTHENTICATED")
        self.assertEqual(code(stub.Complete, request, metadata=bearer("nobody-knows")),
                         "UNAUTHENTICATED")
        self.assertEqual(code(stub.Complete, request, metadata=(("x-api-key", "boss-key-1"),)),
                         "OK")
        self.assertEqual(code(stub.Complete, request, metadata=bearer("one-key-22")),
                         "PERMISSION_DENIED")
        self.assertEqual(code(stub.LoadAdapter, load, metadata=bearer("one-key-22")),
                         "PERMISSION_DENIED")
        self.assertEqual([code(stub.Complete, request, metadata=bearer("slow-key-3"))
                          for _ in range(3)], ["OK", "OK", "RESOURCE_EXHAUSTED"])
        # Health is for everybody; descriptors are not.
        self.assertEqual(Stub(channel, HEALTH).Check(
            make("grpc.health.v1.HealthCheckRequest")).status, 1)
        self.assertTrue(Stub(channel, OIP).ServerReady(make("inference.ServerReadyRequest")).ready)
        self.assertEqual(code(Stub(channel, OIP).ModelReady,
                              make("inference.ModelReadyRequest", name="one")), "UNAUTHENTICATED")
        reflect = Stub(channel, "grpc.reflection.v1.ServerReflection").ServerReflectionInfo
        question = make("grpc.reflection.v1.ServerReflectionRequest", list_services="*")
        self.assertEqual(code(reflect, iter([question])), "UNAUTHENTICATED")
        self.assertEqual(code(reflect, iter([question]), metadata=boss), "OK")


class Endings(unittest.TestCase):
    """A model whose answers take minutes."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-grpc-")
        self.addCleanup(self.scratch.cleanup)
        self.model = write_slow_model(Path(self.scratch.name))

    def serve(self, *flags):
        return Server(self.model, "--name", "slow", "--threads", "1", "--grpc", "0", *flags)

    def endless(self, stub, **options):
        return stub.Complete(make("avocet.v1.CompleteRequest", prompt="a", ignore_eos=True,
                                  max_tokens=ENDLESS, stream=True), **options)

    def requests(self, server):
        return {name: count or 0 for name, count in server.get("/telemetry")["requests"].items()}

    def test_cancelled_and_late(self):
        with self.serve() as server, channel_of(server) as channel:
            stub = Stub(channel, SERVICE)
            call = self.endless(stub)
            next(call)
            call.cancel()
            wait_until(lambda: self.requests(server)["cancelled"] == 1, "the cancellation")
            code, _ = code_of(lambda: self.endless(stub, timeout=0.3))
            self.assertEqual(code, "DEADLINE_EXCEEDED")
            wait_until(lambda: self.requests(server)["submitted"] == sum(
                self.requests(server)[name] for name in ("finished", "failed", "cancelled",
                                                         "expired")), "the end of all")
            call = self.endless(stub)  # the connection goes, with what runs on it
            next(call)
            channel.close()
            wait_until(lambda: self.requests(server)["running"] == 0, "the end of the last")

    def test_deadlines_are_the_servers_too(self):
        """A client that says one and does not keep it: curl."""
        message = make("avocet.v1.CompleteRequest", prompt="a", ignore_eos=True,
                       max_tokens=ENDLESS).SerializeToString()
        body = Path(self.scratch.name) / "body"
        body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        with self.serve() as server:
            for timeout, status in (("100m", 4), ("1n", 4), ("0n", 4), ("soon", 3)):
                done = subprocess.run(
                    ["curl", "-s", "--http2-prior-knowledge", "--data-binary", f"@{body}", "-D",
                     "-", "-o", "/dev/null", "-H", "content-type: application/grpc", "-H",
                     "te: trailers", "-H", f"grpc-timeout: {timeout}",
                     f"http://127.0.0.1:{server.grpc_port}/{SERVICE}/Complete"],
                    stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE)
                self.assertIn(f"grpc-status: {status}", done.stdout, timeout)

    def test_the_server_ends(self):
        server = self.serve("--drain-seconds", "0.2")
        with channel_of(server) as channel, channel_of(server, ("grpc.dummy", 1)) as other:
            watch = Stub(channel, HEALTH).Watch(make("grpc.health.v1.HealthCheckRequest"))
            self.assertEqual(next(watch).status, 1)
            call = self.endless(Stub(channel, SERVICE))
            next(call)
            held = self.endless(Stub(other, SERVICE))
            next(held)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(next(watch).status, 2)
            code, text = code_of(lambda: watch)
            self.assertEqual((code, text), ("UNAVAILABLE", "the server is shutting down"))
            for running in (call, held):
                code, text = code_of(lambda running=running: running)
                self.assertEqual((code, text), ("UNAVAILABLE", "the server is shutting down"))
            _, more = server.process.communicate(timeout=PATIENCE)
            self.assertEqual(server.process.returncode, 0, more)


class Ports(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-grpc-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.model = tiny_model.write(self.folder)

    def check(self, stub):
        answer, = stub.Complete(make("avocet.v1.CompleteRequest", prompt="a", max_tokens=2))
        self.assertEqual(answer.usage.completion_tokens, 2)

    def test_one_port_for_both(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        with Server(self.model, "--grpc", port, "--port", port) as server:
            self.assertEqual(server.port, server.grpc_port)
            with channel_of(server) as channel:
                self.check(Stub(channel, SERVICE))
            self.assertEqual(server.get("/ready")["status"], "ready")
            done = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "-w", "%{http_version}",
                                   f"{server.url}/v1/models"], stdout=subprocess.PIPE, check=True)
            self.assertTrue(done.stdout.endswith(b"]}2"), done.stdout)

    def test_other_words_are_refused_in_plain_ones(self):
        with Server(self.model, "--grpc", "0") as server:
            with socket.create_connection(("127.0.0.1", server.grpc_port)) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                self.assertIn(b"this port speaks gRPC", client.makefile("rb").read())
            status, _, _ = server.ask("GET", "/ready")
            self.assertEqual(status, 200)
            with socket.create_connection((server.host, server.port)) as client:  # not here
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                self.assertIn(b"HTTP/1.1 505", client.makefile("rb").read())

    def test_a_flood_ends_its_connection_alone(self):
        log = self.folder / "log"
        with Server(self.model, "--grpc", "0", "--access-log", log) as server, \
                channel_of(server) as channel:
            stub = Stub(channel, SERVICE)
            self.check(stub)
            with socket.create_connection(("127.0.0.1", server.grpc_port)) as client:
                ping = b"\0\0\x08\6\0\0\0\0\0abcdefgh"
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" +
                               ping * 800)
                got = b""
                while piece := client.recv(65536):
                    got += piece
            # GOAWAY, ENHANCE_YOUR_CALM.
            self.assertIn(b"\7\0\0\0\0\0", got)
            self.assertIn(b"\0\0\0\x0b", got)
            wait_until(lambda: "control frame flood" in log.read_text(), "the line of the log")
            self.check(stub)

    def test_slow_clients(self):
        """Each is ended after a time of the server's; how long that takes does not matter."""
        begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
        fields = b"".join(b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value
                          for name, value in (
                              (b":method", b"POST"), (b":scheme", b"http"),
                              (b":authority", b"localhost"),
                              (b":path", f"/{SERVICE}/Tokenize".encode()),
                              (b"content-type", b"application/grpc")))
        head = len(fields).to_bytes(3, "big") + b"\1\4\0\0\0\1" + fields
        log = self.folder / "log"
        with Server(self.model, "--grpc", "0", "--header-seconds", "0.2", "--idle-seconds", "1",
                    "--access-log", log) as server:
            for said, reset in ((begin, False), (begin + head, True), (begin[:20], False)):
                with socket.create_connection(("127.0.0.1", server.grpc_port)) as client:
                    client.sendall(said)
                    got = client.makefile("rb").read()  # to the end of the connection
                    self.assertEqual(b"\0\0\4\3\0\0\0\0\1" in got, reset)
                    if said.startswith(begin):
                        self.assertIn(b"\0\0\x08\7\0\0\0\0\0", got)  # GOAWAY
            wait_until(lambda: '"end":"too slow"' in log.read_text(), "the line of the log")

    def certificate(self):
        made = certificates.make(self.folder)
        if made is None:
            self.skipTest("SKIPPED: openssl is not here (apt-get install openssl)")
        return made

    def test_tls(self):
        certificate, key = self.certificate()
        server = TlsServer(self.model, "--grpc", "0", "--tls-cert", certificate, "--tls-key", key)
        with server:
            trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
            with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", trusted, options=[
                    ("grpc.ssl_target_name_override", "localhost")]) as channel:
                stub = Stub(channel, SERVICE)
                self.check(stub)
                text = {"content": "abc " * 100000}  # several records each way
                found = stub.Tokenize(make("avocet.v1.TokenizeRequest", text))
                self.assertGreater(len(found.tokens), 100000)
            for offered in (["http/1.1"], None):
                context = ssl.create_default_context(cafile=certificate)
                if offered:
                    context.set_alpn_protocols(offered)
                with socket.create_connection(("127.0.0.1", server.grpc_port)) as plain:
                    with self.assertRaises(OSError):
                        with context.wrap_socket(plain, server_hostname="localhost") as client:
                            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                            if not client.recv(1):
                                raise OSError("closed")
            with socket.create_connection(("127.0.0.1", server.grpc_port)) as plain:
                plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                self.assertIn(b"over TLS", plain.makefile("rb").read())

    def test_tls_on_one_port(self):
        """HTTP/2 for clients that offer it, HTTP/1.1 for all others, by the same certificate."""
        certificate, key = self.certificate()
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = str(one.getsockname()[1])
        with TlsServer(self.model, "--port", port, "--grpc", port, "--tls-cert", certificate,
                       "--tls-key", key) as server:
            self.assertEqual(server.grpc_port, int(port))
            trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
            with grpc.secure_channel(f"127.0.0.1:{port}", trusted, options=[
                    ("grpc.ssl_target_name_override", "localhost")]) as channel:
                self.check(Stub(channel, SERVICE))
            for offered, wanted in ((["http/1.1"], None), (None, None), (["h2"], "h2"),
                                    (["http/1.1", "h2"], "h2"), (["x" * 255] * 60 + ["h2"], "h2")):
                context = ssl.create_default_context(cafile=certificate)
                if offered:
                    context.set_alpn_protocols(offered)
                with socket.create_connection(("127.0.0.1", server.grpc_port)) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as client:
                        if wanted:
                            self.assertEqual(client.selected_alpn_protocol(), wanted)
                            continue
                        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        self.assertEqual(client.recv(15), b"HTTP/1.1 200 OK")
            with socket.create_connection(("127.0.0.1", server.grpc_port)) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                self.assertIn(b"this port uses TLS", plain.makefile("rb").read())


class TlsServer(Server):
    """Says https where the others say http."""

    def __init__(self, model, *arguments):
        place = () if "--port" in arguments else ("--port", "0")
        words = [AVOCET, "serve", str(model), *place, *map(str, arguments)]
        if sanitized():
            words.append("--no-sandbox")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if "gRPC at port" in line:
                self.grpc_port = int(line.split("port ")[1].split(",")[0])
                return
        raise AssertionError("the server did not start: " + "".join(self.lines))


if __name__ == "__main__":
    unittest.main()
