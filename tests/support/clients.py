"""A server for clients that others wrote, over a tiny model with a template for tools."""
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

from command import ROOT
from api_server import Server

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from chat import write_model  # noqa: E402

# Says back calls and results and lists tools, in the form that Qwen and Hermes have.
TEMPLATE = (
    "{% if tools %}<|system|>{% for t in tools %}{{ t.function.name }}{% endfor %}<|end|>"
    "{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{% else %}<|system|>{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
    "additionalProperties": False}}}
HELLO = [{"role": "user", "content": "hi"}]


def needs(*modules):
    """Ends the test as skipped, which is not passed, where one is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: not installed: {', '.join(missing)}")
        sys.exit(77)


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-clients-")
        folder = write_model(Path(cls.scratch.name), template=TEMPLATE,
                             generation={"do_sample": True, "temperature": 1.0})
        cls.server = Server(folder, "--name", "tiny", "--threads", "1", "--sessions", "4",
                            "--rows", "64")

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass
        cls.scratch.cleanup()
