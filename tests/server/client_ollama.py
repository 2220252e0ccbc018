"""The ollama client from PyPI, unchanged. Skipped where it is absent (pip install ollama)."""
import json
import unittest

from clients import HELLO, TOOL, Clients, needs

needs("ollama")
import ollama  # noqa: E402


class Ollama(Clients):
    def setUp(self):
        self.client = ollama.Client(host=self.server.url, timeout=60)

    def tearDown(self):
        self.client._client.close()

    def test_chat_and_stream(self):
        options = {"seed": 1, "num_predict": 10}
        whole = self.client.chat("tiny", HELLO, options=options)
        self.assertEqual(whole.message.role, "assistant")
        self.assertTrue(whole.done)
        self.assertLessEqual(whole.eval_count, 10)
        parts = list(self.client.chat("tiny", HELLO, options=options, stream=True))
        self.assertEqual("".join(part.message.content for part in parts), whole.message.content)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(parts[-1].prompt_eval_count, whole.prompt_eval_count)

    def test_generate(self):
        options = ollama.Options(seed=2, num_predict=8, temperature=0.5, stop=["~"])
        whole = self.client.generate("tiny:latest", "hi", system="b", options=options)
        parts = self.client.generate("tiny", "hi", system="b", options=options, stream=True)
        self.assertEqual("".join(part.response for part in parts), whole.response)
        raw = self.client.generate("tiny", "hi", raw=True, options=options, logprobs=True,
                                   top_logprobs=2)
        self.assertEqual(len(raw.logprobs), raw.eval_count)
        self.assertEqual(len(raw.logprobs[0].top_logprobs), 2)
        self.assertEqual(self.client.generate("tiny").done_reason, "load")

    def test_format(self):
        schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                  "additionalProperties": False}
        told = self.client.chat("tiny", HELLO, format=schema, keep_alive="1m")
        self.assertIsInstance(json.loads(told.message.content)["x"], bool)

    def test_tools(self):
        call = {"function": {"name": "f", "arguments": {}}}
        turns = [{"role": "assistant", "content": "", "tool_calls": [call]},
                 {"role": "tool", "tool_name": "f", "content": "o"}]
        options = {"num_predict": 4, "seed": 1}
        for asked in ({"messages": HELLO, "tools": [TOOL]}, {"messages": turns}):
            for part in self.client.chat("tiny", **asked, options=options, stream=True):
                self.assertEqual(part.message.role, "assistant")

    def test_embed(self):
        told = self.client.embed("tiny", ["ab", "c"])
        self.assertEqual(len(told.embeddings), 2)
        self.assertAlmostEqual(sum(x * x for x in told.embeddings[0]), 1.0, places=4)
        self.assertEqual(len(self.client.embeddings("tiny", "ab").embedding),
                         len(told.embeddings[0]))
        self.assertEqual(len(self.client.embed("tiny", "ab", dimensions=4).embeddings[0]), 4)

    def test_models(self):
        self.assertEqual([model.model for model in self.client.list().models], ["tiny"])
        self.assertEqual([model.name for model in self.client.ps().models], ["tiny"])
        shown = self.client.show("tiny")
        self.assertEqual(shown.details.family, "llama")
        self.assertIn("tools", shown.capabilities)
        self.assertEqual(self.client.pull("tiny").status, "success")
        self.assertEqual([part.status for part in self.client.pull("tiny", stream=True)],
                         ["success"])

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as refused:
            self.client.chat("other", HELLO)
        self.assertEqual(refused.exception.status_code, 404)
        self.assertIn("other", refused.exception.error)
        with self.assertRaises(ollama.ResponseError) as refused:
            self.client.generate("tiny", "a", options={"mirostat": 2})
        self.assertIn("mirostat", refused.exception.error)


if __name__ == "__main__":
    unittest.main()
