"""Endpoints of `avocet serve` on a tiny model: what is answered, streamed and refused; the same
bytes as `avocet run`."""
import base64
import json
import math
import struct
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from command import ROOT, call, wait_until
from api_server import Server

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from chat import write_model  # noqa: E402  a model with a template, one token per character

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def user(text):
    return [{"role": "user", "content": text}]


class Endpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-api-")
        cls.folder = write_model(Path(cls.scratch.name),
                                 generation={"do_sample": True, "temperature": 1.0})
        cls.server = Server(cls.folder, "--name", "tiny", "--threads", "1", "--sessions", "4",
                            "--rows", "64")

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass  # must end with 0
        cls.scratch.cleanup()

    def post(self, path, status=200, **body):
        return self.server.post(path, body, status)

    def refused(self, path, param, status=400, **body):
        error = self.post(path, status, **body)["error"]
        self.assertEqual(error["param"], param, error)
        self.assertIn("message", error)
        return error

    # ---- Grammars ----

    def test_wrong_grammars_are_told(self):
        """They are compiled when there is room for the request, and still refused by name."""
        for stream in (False, True):
            error = self.refused(CHAT, "response_format", messages=user("x"), stream=stream, n=2,
                                 response_format={"type": "json_schema", "json_schema": {
                                     "name": "x", "schema": {"type": "object", "not": {}}}})
            self.assertEqual(error["code"], "invalid_grammar")
            self.assertIn('"not"', error["message"])
            error = self.refused(TEXT, "grammar", prompt="x", stream=stream, grammar="")
            self.assertEqual(error["code"], "invalid_grammar")
            error = self.refused(TEXT, "grammar", prompt="x", stream=stream, grammar="root ::= a")
            self.assertEqual(error["code"], "invalid_grammar")
        said = self.post(TEXT, prompt="x", grammar='root ::= "yes" | "no"', n=3, max_tokens=8)
        self.assertTrue({c["text"] for c in said["choices"]} <= {"yes", "no"}, said)

    # ---- The same bytes ----

    def run_alone(self, text, *flags):
        done = call("run", self.folder, text, "--json", "-n", "12", "--threads", "1", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["text"]

    def test_same_bytes_as_run(self):
        for seed in (1, 2, 77):
            alone = self.run_alone("hello", "--seed", seed)
            told = self.post(CHAT, messages=user("hello"), max_tokens=12, seed=seed)
            self.assertEqual(told["choices"][0]["message"]["content"], alone)
            raw = self.run_alone("hello", "--raw", "--seed", seed, "--temperature", "0.5")
            told = self.post(TEXT, prompt="hello", max_tokens=12, seed=seed, temperature=0.5)
            self.assertEqual(told["choices"][0]["text"], raw)

    def test_choices_are_single_requests(self):
        many = self.post(CHAT, messages=user("many"), max_tokens=10, seed=40, n=5)["choices"]
        self.assertEqual([choice["index"] for choice in many], list(range(5)))
        self.assertGreater(len({choice["message"]["content"] for choice in many}), 1)
        for choice in many:
            self.assertEqual(choice["seed"], 40 + choice["index"])
            one = self.post(CHAT, messages=user("many"), max_tokens=10, seed=choice["seed"])
            self.assertEqual(one["choices"][0]["message"], choice["message"])

    def test_stream_is_the_answer(self):
        whole = self.post(CHAT, messages=user("hello"), max_tokens=20, seed=3, n=2)
        events = self.server.events(CHAT, {"messages": user("hello"), "max_tokens": 20, "seed": 3,
                                           "n": 2, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], (None, "[DONE]"))
        chunks = [json.loads(data) for _, data in events[:-1]]
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"],
                         whole["usage"]["completion_tokens"])
        for index in range(2):
            parts = [chunk["choices"][0] for chunk in chunks[:-1]
                     if chunk["choices"][0]["index"] == index]
            self.assertEqual(parts[0]["delta"]["role"], "assistant")
            text = "".join(part["delta"].get("content") or "" for part in parts)
            self.assertEqual(text, whole["choices"][index]["message"]["content"])
            self.assertEqual(parts[-1]["finish_reason"], whole["choices"][index]["finish_reason"])
            self.assertTrue(all(part["finish_reason"] is None for part in parts[:-1]))
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)

    def test_without_a_seed_answers_differ_and_name_theirs(self):
        answers = [self.post(CHAT, messages=user("hello"), max_tokens=20)["choices"][0]
                   for _ in range(4)]
        self.assertGreater(len({answer["seed"] for answer in answers}), 1)
        again = self.post(CHAT, messages=user("hello"), max_tokens=20, seed=answers[0]["seed"])
        self.assertEqual(again["choices"][0]["message"], answers[0]["message"])

    # ---- What is told ----

    def test_chat_logprobs(self):
        choice = self.post(CHAT, messages=user("hello"), max_tokens=6, seed=1, logprobs=True,
                           top_logprobs=3)["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual(len(content), 6)
        text = b"".join(bytes(entry["bytes"]) for entry in content).decode()
        self.assertTrue(text.startswith(choice["message"]["content"]) or "<|" in text)
        for entry in content:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            values = [top["logprob"] for top in entry["top_logprobs"]]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(entry["logprob"], values[0])
        streamed = []
        for _, data in self.server.events(CHAT, {"messages": user("hello"), "max_tokens": 6,
                                                 "seed": 1, "logprobs": True, "top_logprobs": 3}):
            if data != "[DONE]":
                logprobs = json.loads(data)["choices"][0]["logprobs"]
                streamed += logprobs["content"] if logprobs else []
        self.assertEqual(streamed, content)

    def test_completion_logprobs(self):
        choice = self.post(TEXT, prompt="ab", max_tokens=4, seed=1, logprobs=2)["choices"][0]
        lists = choice["logprobs"]
        self.assertEqual({len(value) for value in lists.values()}, {4})
        for token, logprob, tops in zip(lists["tokens"], lists["token_logprobs"],
                                        lists["top_logprobs"]):
            self.assertEqual(tops[token], logprob)
            self.assertLessEqual(len(tops), 3)
        self.assertEqual(lists["text_offset"][0], 0)

    def test_prompt_logprobs(self):
        """What lm-eval asks for."""
        status, _, data = self.server.ask("POST", TEXT, {
            "prompt": [[5, 6, 7, 8], [9, 10]], "max_tokens": 1, "logprobs": 1, "echo": True,
            "temperature": 0, "seed": 1})
        self.assertEqual(status, 200, data)
        choices = json.loads(data)["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1])
        for choice, prompt in zip(choices, (4, 2)):
            lists = choice["logprobs"]
            self.assertEqual({len(value) for value in lists.values()}, {prompt + 1})
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            self.assertTrue(all(value <= 0 for value in lists["token_logprobs"][1:]))
            for logprob, tops in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:]):
                self.assertIn(logprob, tops.values())
        alone = self.post(TEXT, prompt=[5, 6, 7, 8], max_tokens=0, logprobs=1, echo=True)
        self.assertEqual(alone["choices"][0]["logprobs"]["token_logprobs"],
                         choices[0]["logprobs"]["token_logprobs"][:4])
        self.assertEqual(alone["usage"]["completion_tokens"], 0)

    def test_usage(self):
        usage = self.post(CHAT, messages=user("hello"), max_tokens=5, ignore_eos=True)["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"],
                          usage["total_tokens"]), (8, 5, 13))
        self.assertIn("cached_tokens", usage["prompt_tokens_details"])
        self.assertGreater(usage["timings"]["total_ms"], 0)

    def test_speculation(self):
        """The text does not depend on it; the usage counts drafts where there were any."""
        asked = dict(prompt="abcd " * 12, max_tokens=48, ignore_eos=True, temperature=0)
        plain = self.post(TEXT, **asked, speculation="off")
        self.assertNotIn("accepted_prediction_tokens", plain["usage"]["completion_tokens_details"])
        for more in ({}, {"speculation": "auto"}, {"speculation": "suffix,corpus"},
                     {"speculation": "suffix", "draft_tokens": 2}):
            answer = self.post(TEXT, **asked, **more)
            self.assertEqual(answer["choices"][0]["text"], plain["choices"][0]["text"])
            details = answer["usage"]["completion_tokens_details"]
            if "accepted_prediction_tokens" in details:
                self.assertGreater(details["accepted_prediction_tokens"] +
                                   details["rejected_prediction_tokens"], 0)
        for path, body in ((CHAT, {"messages": user("a")}), (TEXT, {"prompt": "a"}),
                           ("/v1/responses", {"input": "a"}),
                           ("/v1/messages", {"messages": user("a"), "max_tokens": 3})):
            for field, wrong, said in (
                    ("speculation", "magic", 'speculation is "magic", must be off, auto or'),
                    ("speculation", "suffix,", "must be off, auto or a list of sources"),
                    ("speculation", 3, "speculation must be a string"),
                    ("draft_tokens", 0, "draft_tokens is 0, must be 1 to 16"),
                    ("draft_tokens", 17, "draft_tokens is 17, must be 1 to 16")):
                status, _, data = self.server.ask("POST", path, {**body, field: wrong})
                error = json.loads(data)["error"]
                self.assertEqual((status, error.get("param", field)), (400, field), data)
                self.assertIn(said, error["message"])

    def test_stop(self):
        plain = self.post(CHAT, messages=user("hello"), max_tokens=20, seed=1,
                          ignore_eos=True)["choices"][0]["message"]["content"]
        stop = plain[5:7]
        choice = self.post(CHAT, messages=user("hello"), max_tokens=20, seed=1, ignore_eos=True,
                           stop=["never there", stop])["choices"][0]
        self.assertEqual(choice["message"]["content"], plain[:plain.index(stop)])
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))
        message = self.post("/v1/messages", messages=user("hello"), max_tokens=20, seed=1,
                            stop_sequences=["qqqqqqqq", stop])
        if message["stop_reason"] == "stop_sequence":
            self.assertEqual(message["stop_sequence"], stop)

    def test_best_of(self):
        best = self.post(TEXT, prompt="hello", max_tokens=5, seed=10, n=1, best_of=4, logprobs=0,
                         ignore_eos=True)
        singles = [self.post(TEXT, prompt="hello", max_tokens=5, seed=10 + i, logprobs=0,
                             ignore_eos=True)["choices"][0] for i in range(4)]
        means = [sum(one["logprobs"]["token_logprobs"]) for one in singles]
        self.assertEqual(best["choices"][0]["text"], singles[means.index(max(means))]["text"])
        self.assertEqual(best["usage"]["completion_tokens"], 20)

    def test_bias_forbids(self):
        first = self.post(TEXT, prompt=[7, 8], max_tokens=1, temperature=0, logprobs=1)
        token = first["choices"][0]["logprobs"]["tokens"][0]
        number = self.post("/tokenize", content=token, parse_special=True)["tokens"]
        if len(number) == 1:
            other = self.post(TEXT, prompt=[7, 8], max_tokens=1, temperature=0, logprobs=1,
                              logit_bias={str(number[0]): -100})
            self.assertNotEqual(other["choices"][0]["logprobs"]["tokens"][0], token)

    def test_list_of_prompts(self):
        told = self.post(TEXT, prompt=[f"p{i}" for i in range(40)], max_tokens=3, seed=5, n=2)
        self.assertEqual([choice["index"] for choice in told["choices"]], list(range(80)))
        one = self.post(TEXT, prompt="p7", max_tokens=3, seed=6)
        self.assertEqual(told["choices"][15]["text"], one["choices"][0]["text"])

    # ---- Other families ----

    def test_responses(self):
        told = self.post("/v1/responses", input="hello", max_output_tokens=6, seed=2,
                         metadata={"a": "b"})
        text = self.post(CHAT, messages=user("hello"), max_tokens=6, seed=2)
        self.assertEqual(told["output"][0]["content"][0]["text"],
                         text["choices"][0]["message"]["content"])
        self.assertEqual(told["metadata"], {"a": "b"})
        self.assertIn(told["status"], ("completed", "incomplete"))
        events = self.server.events("/v1/responses", {"input": "hello", "max_output_tokens": 6,
                                                      "seed": 2})
        kinds = [json.loads(data)["type"] for _, data in events]
        self.assertEqual([name for name, _ in events], kinds)
        self.assertEqual(kinds[:4], ["response.created", "response.in_progress",
                                     "response.output_item.added", "response.content_part.added"])
        self.assertEqual(kinds[-1], "response." + told["status"])
        numbers = [json.loads(data)["sequence_number"] for _, data in events]
        self.assertEqual(numbers, list(range(len(numbers))))
        deltas = "".join(json.loads(data).get("delta", "") for _, data in events)
        self.assertEqual(deltas, told["output"][0]["content"][0]["text"])
        last = json.loads(events[-1][1])["response"]
        self.assertEqual(last["output"][0]["content"][0]["text"], deltas)
        self.refused("/v1/responses", "previous_response_id", input="x",
                     previous_response_id="resp_1")

    def test_messages(self):
        told = self.post("/v1/messages", messages=user("hello"), system="be", max_tokens=6, seed=2)
        text = self.post(CHAT, max_tokens=6, seed=2,
                         messages=[{"role": "system", "content": "be"}, *user("hello")])
        self.assertEqual(told["content"], [{"type": "text",
                                            "text": text["choices"][0]["message"]["content"]}])
        events = self.server.events("/v1/messages", {"messages": user("hello"), "system": "be",
                                                     "max_tokens": 6, "seed": 2})
        names = [name for name, _ in events]
        self.assertEqual(names[0], "message_start")
        self.assertEqual(names[-3:], ["content_block_stop", "message_delta", "message_stop"])
        deltas = "".join(json.loads(data)["delta"]["text"] for name, data in events
                         if name == "content_block_delta")
        self.assertEqual(deltas, told["content"][0]["text"])
        count = self.post("/v1/messages/count_tokens", messages=user("hello"), system="be")
        self.assertEqual(count["input_tokens"], 12)
        wrong = self.post("/v1/messages", 400, messages=user("hello"))
        self.assertEqual((wrong["type"], wrong["error"]["type"]),
                         ("error", "invalid_request_error"))

    def test_embeddings(self):
        status, _, data = self.server.ask("POST", "/v1/embeddings", {"input": ["abc", [5, 6]]})
        self.assertEqual(status, 200, data)
        vectors = [item["embedding"] for item in json.loads(data)["data"]]
        for vector in vectors:
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1.0, places=4)
        coded = self.post("/v1/embeddings", input="abc", encoding_format="base64")
        raw = base64.b64decode(coded["data"][0]["embedding"])
        numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
        for a, b in zip(numbers, vectors[0]):
            self.assertEqual(struct.pack("<f", a), struct.pack("<f", b))  # digits enough
        short = self.post("/v1/embeddings", input="abc", dimensions=4)["data"][0]["embedding"]
        self.assertEqual(len(short), 4)
        self.assertAlmostEqual(math.fsum(x * x for x in short), 1.0, places=4)
        last = self.post("/v1/embeddings", input="abc", pooling="last")["data"][0]["embedding"]
        self.assertNotEqual(last, vectors[0])

    def test_tokenizer(self):
        info = self.server.get("/tokenizer_info")
        self.assertEqual((info["bos_token"], info["eos_token"]), (None, "<|end|>"))
        self.assertEqual((info["add_bos_token"], info["add_eos_token"]), (False, False))
        self.assertEqual(info["vocab_size"], 97)
        self.assertEqual(info["model_max_length"], self.server.get("/version")["context"])
        self.assertIn("{% for m in messages %}", info["chat_template"])
        # As vLLM: special tokens of a prompt count, unless the request says otherwise; those of
        # llama.cpp's content do not.
        rendered = "<|user|>hi<|end|>"
        count = {"prompt": 4, "content": len(rendered)}
        for name, wanted in count.items():
            self.assertEqual(self.post("/tokenize", **{name: rendered})["count"], wanted)
            for special in (False, True):
                body = {name: rendered, "parse_special": special}
                self.assertEqual(self.post("/tokenize", **body)["count"],
                                 4 if special else len(rendered))

    def test_tokens(self):
        ids = self.post("/tokenize", content="hello")["tokens"]
        self.assertEqual(len(ids), 5)
        self.assertEqual(self.post("/tokenize", prompt="hello")["tokens"], ids)
        self.assertEqual(self.post("/detokenize", tokens=ids)["content"], "hello")
        self.assertEqual(self.post("/detokenize", tokens=ids)["prompt"], "hello")
        pieces = self.post("/tokenize", content="hello", with_pieces=True)["tokens"]
        self.assertEqual([piece["piece"] for piece in pieces], list("hello"))
        strings = self.post("/tokenize", prompt="hello", return_token_strs=True)
        self.assertEqual((strings["token_strs"], strings["count"]), (list("hello"), 5))
        self.assertEqual(self.post("/tokenize", messages=user("hello"))["count"], 8)
        self.refused("/detokenize", "tokens", tokens=[1, 97])
        self.refused("/detokenize", "tokens", tokens="abc")
        self.refused("/tokenize", "content")
        # Long ones are read by another thread, and have an end.
        long = "hello" * 4000
        self.assertEqual(self.post("/tokenize", content=long)["tokens"], ids * 4000)
        self.assertEqual(self.post("/detokenize", tokens=ids * 4000)["content"], long)
        self.assertEqual(self.post("/tokenize", messages=user(long))["count"], 20003)
        self.assertEqual(self.post("/v1/messages/count_tokens", messages=user(long)),
                         {"input_tokens": 20003})
        endless = "a" * ((1 << 20) + 1)
        for field in ("content", "prompt"):
            error = self.refused("/tokenize", field, **{field: endless})
            self.assertIn("1048577 bytes, must have at most 1048576", error["message"])
        error = self.refused("/tokenize", "messages", messages=user(endless))
        self.assertIn("must have at most 1048576", error["message"])

    # ---- Reasoning ----

    def test_reasoning_is_kept_apart_where_asked_for(self):
        """The grammar makes the model think; without reasoning_format all of it is content."""
        rules = 'root ::= "<think>" "why" "</think>" "yes"'
        asked = {"messages": user("x"), "grammar": rules, "max_tokens": 40}
        for given in ({}, {"reasoning_format": "none"}):
            told = self.post(CHAT, **asked, **given)["choices"][0]["message"]
            self.assertEqual(told["content"], "<think>why</think>yes")
            self.assertNotIn("reasoning_content", told)
        for form in ("deepseek", "auto"):
            whole = self.post(CHAT, **asked, reasoning_format=form)
            message = whole["choices"][0]["message"]
            self.assertEqual((message["reasoning_content"], message["content"]), ("why", "yes"))
            tokens = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
            self.assertTrue(3 <= tokens < whole["usage"]["completion_tokens"], tokens)
            deltas = [json.loads(data)["choices"][0]["delta"] for _, data in
                      self.server.events(CHAT, {**asked, "reasoning_format": form})
                      if data != "[DONE]"]
            for key, wanted in (("reasoning_content", "why"), ("content", "yes")):
                self.assertEqual("".join(delta.get(key) or "" for delta in deltas), wanted)
            self.assertEqual(deltas[0]["role"], "assistant")
        self.refused(CHAT, "reasoning_format", messages=user("x"), reasoning_format="loud")

    # ---- About the server ----

    def test_state(self):
        self.assertEqual(self.server.get("/health")["status"], "ok")
        self.assertEqual(self.server.get("/ready")["status"], "ready")
        models = self.server.get("/v1/models")["data"]
        self.assertEqual([model["id"] for model in models], ["tiny"])
        self.assertEqual(self.server.get("/v1/models/tiny")["id"], "tiny")
        self.assertEqual(self.server.get("/v1/models/none", 404)["error"]["code"],
                         "model_not_found")
        self.assertEqual(self.server.get("/version")["model"], "tiny")
        status, headers, _ = self.server.ask("PUT", "/v1/models")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD, OPTIONS"))
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        status, headers, page = self.server.ask("GET", "/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertIn(b"<html", page.lower())
        status, _, body = self.server.ask("GET", "/", headers={"If-None-Match": headers["ETag"]})
        self.assertEqual((status, body), (304, b""))

    def test_document(self):
        document = self.server.get("/openapi.json")
        self.assertEqual(document["openapi"], "3.1.0")
        text = (ROOT / "docs" / "api.md").read_text()
        fields = text + (ROOT / "docs" / "fields.md").read_text()
        for path, operations in document["paths"].items():
            self.assertIn(f"`{path}`", text)
            for operation in operations.values():
                body = operation.get("requestBody", {}).get("content", {})
                schema = body.get("application/json", {}).get("schema", {})
                for name in schema.get("properties", {}):
                    self.assertIn(f"`{name}`", fields, f"{path} {name}")

    def schema_of(self, path):
        body = self.server.get("/openapi.json")["paths"][path]["post"]["requestBody"]
        return body["content"]["application/json"]["schema"]

    def test_the_document_is_as_strict_as_the_server(self):
        self.assertIs(self.schema_of(CHAT)["additionalProperties"], False)
        error = self.refused(CHAT, "max_token", messages=user("a"), max_token=1)
        self.assertEqual(error["code"], "unknown_parameter")
        self.assertIn('did you mean "max_tokens"?', error["message"])
        schemas = self.server.get("/openapi.json")["components"]["schemas"]
        last = schemas["Token"]["maximum"]
        self.post(TEXT, prompt=[last], max_tokens=1)
        self.refused(TEXT, "prompt", prompt=[last + 1])
        self.post("/detokenize", tokens=[last])
        self.refused("/detokenize", "tokens", tokens=[last + 1])
        self.post(TEXT, prompt="a", max_tokens=1, stop_token_ids=[last] * 64)
        self.refused(TEXT, "stop_token_ids", prompt="a", stop_token_ids=[last + 1])
        self.refused(TEXT, "stop_token_ids", prompt="a", stop_token_ids=[1] * 65)
        bias = self.schema_of(TEXT)["properties"]["logit_bias"]
        self.post(TEXT, prompt="a", max_tokens=1,
                  logit_bias={"1": bias["additionalProperties"]["maximum"]})
        self.refused(TEXT, "logit_bias", prompt="a",
                     logit_bias={"1": bias["additionalProperties"]["maximum"] * 2})
        self.refused(TEXT, "logit_bias", prompt="a", logit_bias={"x": 1})
        empty = schemas["Prompts"]["anyOf"][0].get("minLength", 0) == 0
        self.post(TEXT, 200 if empty else 400, prompt="", max_tokens=1)
        for nothing in ([], [[]], [[], "a"]):
            self.post(TEXT, 400, prompt=nothing)
        roles = {}
        for path, more in ((CHAT, {}), ("/v1/messages", {"max_tokens": 1}), ("/tokenize", {})):
            messages = self.schema_of(path)["properties"]["messages"]
            roles[path] = set(messages["items"]["properties"]["role"]["enum"])
            for role in ("system", "developer", "user", "assistant", "tool", "model"):
                with self.subTest(path=path, role=role):
                    status, _, said = self.server.ask("POST", path, json.dumps({
                        "messages": [*user("a"), {"role": role, "content": "b"}], **more}).encode())
                    unknown = status == 400 and b"role" in said
                    self.assertEqual(role not in roles[path], unknown, said)
        self.assertEqual(roles["/v1/messages"], {"user", "assistant"})
        needed = [needs["required"][0] for needs in self.schema_of("/tokenize")["anyOf"]]
        self.assertEqual(needed, ["content", "prompt", "messages"])
        for name in needed:
            self.post("/tokenize", **{name: user("a") if name == "messages" else "a"})
            self.refused("/tokenize", "content", **{name: None})
        self.refused("/tokenize", "content")

    # ---- What is refused ----

    def test_refused(self):
        self.refused(CHAT, "temperature", messages=user("a"), temperature=-1)
        self.refused(CHAT, "messages")
        self.refused(CHAT, "messages[0]", messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "x"}}]}])
        self.refused(TEXT, "suffix", prompt="a", suffix="b")  # no tokens for a gap
        error = self.refused(CHAT, "model", 404, messages=user("a"), model="gpt-4")
        self.assertIn("tiny", error["message"])
        error = self.refused(TEXT, "prompt", prompt="a" * 500)
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertRegex(error["message"], r"501.*64")
        error = self.refused(TEXT, "prompt", prompt=[5] * 70)
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertRegex(error["message"], r"70.*64")
        error = self.refused(CHAT, "messages", messages=user("a" * 100), stream=True)
        self.assertEqual(error["code"], "context_length_exceeded")
        for text in (b"", b"{", b"[]", b"nonsense", b"\xff", b"[" * 5000):
            self.assertEqual(self.server.ask("POST", CHAT, text)[0], 400)

    def test_deadline(self):
        error = self.post(TEXT, 504, prompt="abc", max_tokens=5, first_token_deadline_ms=0.001)
        self.assertEqual(error["error"]["code"], "deadline_exceeded")

    def test_client_that_goes(self):
        for stream in (True, False):
            connection = self.server.connect()
            connection.request("POST", TEXT, json.dumps({"prompt": ["abc"] * 200, "stream": stream,
                                                         "max_tokens": 60, "ignore_eos": True}))
            connection.close()
        def idle():
            state = self.server.get("/telemetry")["requests"]
            return state["running"] + state["waiting"] == 0
        wait_until(idle, "all requests to end")

    def test_many_at_once(self):
        alone = {seed: self.post(CHAT, messages=user("hi"), max_tokens=15, seed=seed)
                 ["choices"][0]["message"] for seed in range(8)}
        found = []

        def ask(seed):
            found.append((seed, self.post(CHAT, messages=user("hi"), max_tokens=15, seed=seed)
                          ["choices"][0]["message"]))
        threads = [threading.Thread(target=ask, args=(i % 8,)) for i in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 24)
        for seed, message in found:
            self.assertEqual(message, alone[seed])


class Quotes(unittest.TestCase):
    """A model with a token that is a quotation mark and a letter."""

    def test_no_alternative_is_lost(self):
        with tempfile.TemporaryDirectory(prefix="avocet-quotes-") as scratch:
            folder = write_model(Path(scratch), template="{{ messages[0].content }}")
            for path in folder.glob("*.json"):
                path.write_text(path.read_text().replace("<|system|>", '\\"x'))
            seen = 0
            with Server(folder, "--name", "tiny", "--threads", "1") as server:
                for seed in range(4):
                    told = server.post(TEXT, {"prompt": "ab", "max_tokens": 50, "seed": seed,
                                              "temperature": 1, "logprobs": 20,
                                              "ignore_eos": True}, 200)["choices"][0]["logprobs"]
                    for token, tops in zip(told["tokens"], told["top_logprobs"]):
                        self.assertIn(token, tops)
                        self.assertGreaterEqual(len(tops), 20)
                        seen += '"x' in tops and "x" in tops
            self.assertGreater(seen, 0)


class Calls(unittest.TestCase):
    """A model whose calls begin with a special token, which is what it says first."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-calls-")
        folder = write_model(Path(cls.scratch.name), template=(
            "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|user|>"
            "{{ m.content }}{% for c in m.tool_calls or [] %}<|tool_call|>"
            '[{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}]'
            "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>"
            "{% endif %}"), generation={"do_sample": True, "temperature": 1.0})
        for path in folder.glob("*.json"):
            path.write_text(path.read_text().replace("<|system|>", "<|tool_call|>"))
        cls.server = Server(folder, "--name", "tiny", "--threads", "1", "--sessions", "4",
                            "--rows", "64")
        cls.opener = 3  # in the place of <|system|>

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass
        cls.scratch.cleanup()

    TOOLS = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer", "minimum": 3, "maximum": 40}}}}}]

    def ask(self, **more):
        return {"messages": user("x"), "tools": self.TOOLS, "max_tokens": 50,
                "logit_bias": {str(self.opener): 100}, **more}

    def test_strict_functions_in_auto(self):
        self.assertEqual(self.server.get("/version")["tools"], "granite")
        seen = 0
        for seed in range(12):
            choice = self.server.post(CHAT, self.ask(seed=seed), 200)["choices"][0]
            for call in choice["message"].get("tool_calls", []):
                arguments = json.loads(call["function"]["arguments"])
                self.assertEqual(list(arguments), ["x"])
                self.assertTrue(isinstance(arguments["x"], int) and 3 <= arguments["x"] <= 40)
                seen += 1
        self.assertGreater(seen, 8)

    def test_streams_tell_arguments_as_they_come(self):
        for seed in range(4):
            whole = self.server.post(CHAT, self.ask(seed=seed), 200)["choices"][0]
            calls, pieces = [], 0
            events = [json.loads(data) for _, data in self.server.events(CHAT, self.ask(seed=seed))
                      if data != "[DONE]"]
            for event in events:
                for choice in event["choices"]:
                    for part in choice["delta"].get("tool_calls", []):
                        if "id" in part:
                            self.assertEqual(part["index"], len(calls))
                            self.assertEqual(part["function"]["arguments"], "")
                            calls.append([part["function"]["name"], ""])
                        else:
                            calls[part["index"]][1] += part["function"]["arguments"]
                            pieces += 1
            told = [[call["function"]["name"], call["function"]["arguments"]]
                    for call in whole["message"]["tool_calls"]]
            self.assertEqual(calls[:len(told)], told)  # the last may have been cut
            self.assertGreater(pieces, 3 * len(told))

    # ---- Items, streamed and whole ----

    def items(self, body):
        """The items that a stream builds, each checked against every event about it."""
        items, final, numbers = [], None, []
        for name, data in self.server.events("/v1/responses", body):
            event = json.loads(data)
            self.assertEqual(event["type"], name)
            numbers.append(event["sequence_number"])
            kind, index = name.removeprefix("response."), event.get("output_index")
            if kind == "output_item.added":
                self.assertEqual(index, len(items))
                items.append({"item": event["item"], "text": "", "logprobs": [], "done": None})
            elif index is None:
                final = event["response"]
                continue
            own = items[index]
            self.assertEqual(event.get("item_id", own["item"]["id"]), own["item"]["id"])
            self.assertIsNone(own["done"], name)
            if kind.endswith(".delta"):
                own["text"] += event["delta"]
                own["logprobs"] += event.get("logprobs", [])
            elif kind == "output_text.done":
                self.assertEqual(event["text"], own["text"])
                self.assertEqual(event["logprobs"], own["logprobs"])
            elif kind == "content_part.done":
                self.assertEqual(event["part"]["text"], own["text"])
                self.assertEqual(event["part"]["logprobs"], own["logprobs"])
            elif kind == "function_call_arguments.done":
                self.assertEqual(event["arguments"], own["text"])
            elif kind == "output_item.done":
                own["done"] = event["item"]
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertEqual(final["output"], [own["done"] for own in items])
        return final

    @staticmethod
    def without_ids(output):
        return [{key: value for key, value in item.items() if key not in ("id", "call_id")}
                for item in output]

    def test_responses_have_the_same_items_streamed_and_whole(self):
        tools = [{"type": "function", **self.TOOLS[0]["function"]}]
        shapes = set()
        for more in ({}, {"parallel_tool_calls": False}, {"tool_choice": "required"}):
            for seed, most in enumerate((55, 50, 20, 55, 55, 55, 9, 1)):
                body = {"input": "x", "tools": tools, "max_output_tokens": most, "seed": seed,
                        "top_logprobs": 2,
                        "include": ["message.output_text.logprobs"], **more}
                final = self.items(body)
                whole = self.server.post("/v1/responses", body, 200)
                self.assertEqual(self.without_ids(final["output"]),
                                 self.without_ids(whole["output"]))
                self.assertEqual(final["status"], whole["status"])
                for item in whole["output"]:
                    if item["type"] == "message" and item["content"][0]["text"] != "":
                        said = b"".join(bytes(entry["bytes"])
                                        for entry in item["content"][0]["logprobs"]
                                        if len(entry["bytes"]) == 1 or
                                        entry["token"] == "<|tool_call|>")  # text where it is cut
                        self.assertIn(item["content"][0]["text"].encode(), said)
                shapes.add(tuple(item["type"] for item in whole["output"]))
                if more.get("tool_choice") == "required" and most >= 50:
                    self.assertEqual({item["type"] for item in whole["output"]}, {"function_call"})
        self.assertIn(("function_call",), shapes)
        self.assertIn(("message",), shapes)
        self.assertIn(("message", "function_call", "message"), shapes)

    def test_chat_streams_tell_all_logprobs_of_calls(self):
        for most in (50, 12):
            body = self.ask(seed=1, max_tokens=most, logprobs=True, top_logprobs=1)
            whole = self.server.post(CHAT, body, 200)["choices"][0]["logprobs"]["content"]
            streamed = []
            for _, data in self.server.events(CHAT, body):
                for choice in json.loads(data)["choices"] if data != "[DONE]" else []:
                    self.assertNotEqual(choice["delta"].get("content"), "")
                    streamed += (choice["logprobs"] or {"content": []})["content"]
            self.assertEqual(streamed, whole)

    def test_a_call_that_is_cut_is_no_tool_use(self):
        """Its stream ends as one that has met its limit, in every family."""
        tools = [{"name": "f", "input_schema": self.TOOLS[0]["function"]["parameters"]}]
        seen = set()
        for most in range(10, 50, 3):
            events = self.server.events("/v1/messages", {
                "messages": user("x"), "tools": tools, "tool_choice": {"type": "any"},
                "max_tokens": most, "temperature": 0})
            events = [json.loads(data) for _, data in events]
            reason = next(event["delta"]["stop_reason"] for event in events
                          if event["type"] == "message_delta")
            used = sum(event["type"] == "content_block_start" and
                       event["content_block"]["type"] == "tool_use" for event in events)
            text = "".join(event["delta"]["partial_json"] for event in events
                           if event["type"] == "content_block_delta" and
                           event["delta"]["type"] == "input_json_delta")
            seen.add((reason, used > 0, text.endswith("}")))
        self.assertIn(("max_tokens", True, False), seen)
        self.assertNotIn(("tool_use", True, False), seen)



if __name__ == "__main__":
    unittest.main()
