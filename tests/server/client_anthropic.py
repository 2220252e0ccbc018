"""The anthropic client from PyPI, unchanged. Skipped where it is absent (pip install anthropic)."""
import json
import unittest

from clients import HELLO, TOOL, Clients, needs

needs("anthropic")
import anthropic  # noqa: E402


class Anthropic(Clients):
    def test_messages(self):
        client = anthropic.Anthropic(base_url=self.server.url, api_key="none", max_retries=0,
                                     timeout=60)
        told = client.messages.create(model="tiny", max_tokens=6, messages=HELLO, system="b")
        self.assertEqual(told.content[0].type, "text")
        with client.messages.stream(model="tiny", max_tokens=6, messages=HELLO) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(client.messages.count_tokens(model="tiny", messages=HELLO).input_tokens, 5)
        with self.assertRaises(anthropic.BadRequestError):
            client.messages.create(model="tiny", max_tokens=6, messages=[])
        asked = {"model": "tiny", "max_tokens": 50, "messages": HELLO,
                 "tool_choice": {"type": "any"},
                 "tools": [{"name": "f", "input_schema": TOOL["function"]["parameters"]}]}
        told = client.messages.create(**asked)
        self.assertEqual((told.stop_reason, told.content[-1].name), ("tool_use", "f"))
        self.assertIsInstance(told.content[-1].input["x"], bool)
        with client.messages.stream(**asked) as stream:
            pieces = [event.delta.partial_json for event in stream
                      if event.type == "content_block_delta"
                      and event.delta.type == "input_json_delta"]
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.content[-1].type), ("tool_use", "tool_use"))
        self.assertGreater(len(pieces), 3)
        self.assertEqual(json.loads("".join(pieces)), final.content[-1].input)
        client.close()


if __name__ == "__main__":
    unittest.main()
