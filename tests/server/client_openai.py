"""The openai client from PyPI, unchanged. Skipped where it is absent (pip install openai)."""
import json
import tempfile
import unittest
from pathlib import Path

from api_server import Server
from clients import HELLO, TEMPLATE, TOOL, Clients, needs, write_model
from command import wait_until

needs("openai")
import openai  # noqa: E402


class OpenAI(Clients):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none",
                                    max_retries=0, timeout=60)

    def tearDown(self):
        self.client.close()

    def test_chat_and_stream(self):
        create = self.client.chat.completions.create
        whole = create(model="tiny", messages=HELLO, max_tokens=10, seed=1)
        text = ""
        usage = None
        for chunk in create(model="tiny", messages=HELLO, max_tokens=10, seed=1, stream=True,
                            stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_logprobs(self):
        choice = self.client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=4, logprobs=True, top_logprobs=2).choices[0]
        self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 2)
        old = self.client.completions.create(model="tiny", prompt="ab", max_tokens=3, logprobs=2,
                                             extra_body={"ignore_eos": True})
        self.assertEqual(len(old.choices[0].logprobs.tokens), 3)

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                  "additionalProperties": False}
        told = self.client.chat.completions.create(
            model="tiny", messages=HELLO, seed=1, max_tokens=40, response_format={
                "type": "json_schema", "json_schema": {"name": "s", "schema": schema,
                                                       "strict": True}})
        self.assertIsInstance(json.loads(told.choices[0].message.content)["x"], bool)

    def test_tools(self):
        create = self.client.chat.completions.create
        arguments = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "max_tokens": 50,
                     "tool_choice": {"type": "function", "function": {"name": "f"}}}
        told = create(**arguments, seed=1)
        call = told.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "f")
        self.assertIsInstance(json.loads(call.function.arguments)["x"], bool)
        self.assertEqual(told.choices[0].finish_reason, "tool_calls")
        calls = [chunk.choices[0].delta.tool_calls[0]
                 for chunk in create(**arguments, seed=1, stream=True)
                 if chunk.choices and chunk.choices[0].delta.tool_calls]
        self.assertEqual("".join(part.function.arguments for part in calls),
                         call.function.arguments)
        self.assertEqual((calls[0].function.name, calls[0].function.arguments), ("f", ""))
        self.assertGreater(len(calls), 3)
        after = create(model="tiny", max_tokens=2, tools=[TOOL], messages=[
            {"role": "user", "content": "h"}, {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "7"}])
        self.assertEqual(after.usage.completion_tokens, 2)

    def test_embeddings(self):
        told = self.client.embeddings.create(model="tiny", input=["abc", "de"])
        self.assertEqual(len(told.data), 2)
        self.assertAlmostEqual(sum(x * x for x in told.data[0].embedding), 1.0, places=4)

    def test_responses(self):
        told = self.client.responses.create(model="tiny", input="hi", max_output_tokens=5)
        self.assertEqual(told.output_text, told.output[0].content[0].text)
        events = list(self.client.responses.create(model="tiny", input="hi", max_output_tokens=5,
                                                   stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].response.output_text, "".join(
            event.delta for event in events if event.type == "response.output_text.delta"))
        self.assertLessEqual(events[-1].response.usage.output_tokens, 5)

    def test_models_and_errors(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").id, "tiny")
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="none", messages=HELLO)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="tiny", messages=HELLO, temperature=-3)
        self.assertEqual(caught.exception.param, "temperature")


class OpenAIBatches(unittest.TestCase):
    """Files and batches, which need a server with --state."""

    def test_batches(self):
        with tempfile.TemporaryDirectory(prefix="avocet-openai-") as scratch:
            folder = Path(scratch)
            with Server(write_model(folder, template=TEMPLATE), "--name", "tiny", "--threads", "1",
                        "--state", folder / "state") as server, \
                    openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                                  timeout=60) as client:
                self.run_batch(client)

    def run_batch(self, client):
        requests = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions",
                     "body": {"model": "tiny", "messages": HELLO, "max_tokens": 4, "seed": i}}
                    for i in range(3)]
        requests.append({**requests[0], "custom_id": "wrong", "body": {"messages": []}})
        data = "\n".join(map(json.dumps, requests)).encode()
        file = client.files.create(file=("in.jsonl", data), purpose="batch")
        self.assertEqual((file.bytes, file.filename, file.status),
                         (len(data), "in.jsonl", "processed"))
        self.assertEqual(client.files.content(file.id).read(), data)
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions",
                                      completion_window="24h", metadata={"job": "test"})
        self.assertEqual(batch.metadata, {"job": "test"})
        wait_until(lambda: client.batches.retrieve(batch.id).status == "completed")
        batch = client.batches.retrieve(batch.id)
        self.assertEqual((batch.request_counts.total, batch.request_counts.completed,
                          batch.request_counts.failed), (4, 3, 1))
        self.assertGreaterEqual(batch.completed_at, batch.created_at)
        for line in client.files.content(batch.output_file_id).text.splitlines():
            entry = json.loads(line)
            seed = int(entry["custom_id"][1:])
            alone = client.chat.completions.create(**requests[seed]["body"])
            self.assertEqual(entry["response"]["body"]["choices"][0]["message"]["content"],
                             alone.choices[0].message.content)
        wrong = json.loads(client.files.content(batch.error_file_id).text)
        self.assertEqual((wrong["custom_id"], wrong["response"]["status_code"]), ("wrong", 400))
        self.assertEqual([one.id for one in client.batches.list()], [batch.id])
        self.assertEqual(len(list(client.files.list(limit=2))), 3)
        self.assertTrue(client.files.delete(file.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            client.files.retrieve(file.id)
        self.assertEqual(client.batches.cancel(batch.id).status, "completed")


if __name__ == "__main__":
    unittest.main()
